"""Traces of verifiers v1 and prime-rl: ``traces.jsonl``, one rollout per line.

Read in PrimeIntellect-ai/verifiers: ``verifiers/v1/cli/output.py`` (one trace per line), ``verifiers/v1/trace.py``
(``task.data``, ``nodes``, ``rewards``) and ``verifiers/v1/graph.py``: a node has a message, its parent, and whether the
model sampled it; ``token_ids`` include the scaffold, ``mask`` marks sampled tokens, and ``logprobs`` has one number per
marked token. Older versions wrote nodes without parents. The path to the last sampled node is the episode.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import ConfigError
from ..plugins import Settings
from .base import Importer, Place, UnreadableError, explained, line_places, read_line
from .chat import ChatSettings, Message, episode_of, text_and_images
from .episode import RecordedEpisode

_TRACES = "traces.jsonl"


class _Node(BaseModel):
    """A message of the graph."""

    model_config = ConfigDict(extra="ignore")

    parent: int | None = None
    message: dict[str, Any]
    sampled: bool = False
    token_ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    finish_reason: str | None = None


class _Task(BaseModel):
    data: dict[str, Any] = {}


class _Trace(BaseModel):
    """The fields of a trace that are read; others are kept."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    task: _Task = _Task()
    nodes: list[_Node]
    rewards: dict[str, Any] = {}
    info: dict[str, Any] = {}
    stop_condition: str | None = None


class VerifiersImporter(Importer):
    """Reader of ``traces.jsonl``, or of all such files below a folder."""

    config_type: ClassVar[type[Settings]] = ChatSettings
    accepts_data_urls: ClassVar[bool] = True
    settings: ChatSettings

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the lines of the file, or of all files of that name below the folder."""
        files = sorted(source.rglob(_TRACES)) if source.is_dir() else [source]
        if not files:
            raise ConfigError(f"{source} holds no {_TRACES}; name the output folder of the run")
        for file in files:
            yield from line_places(file, file.relative_to(source).as_posix() if source.is_dir() else file.name)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one trace."""
        try:
            trace = _Trace.model_validate_json(read_line(source, place))
            row = {**trace.task.data, "id": trace.id}
            kept = {"rewards": trace.rewards, "info": trace.info, "stop_condition": trace.stop_condition}
            return episode_of([_message(node) for node in _path(trace.nodes)], {**row, "trace": kept}, self.settings)
        except ValidationError as error:
            raise explained(error) from error


def _path(nodes: list[_Node]) -> list[_Node]:
    """Return the nodes from a root to the last sampled one; all nodes where none has a parent."""
    if all(node.parent is None for node in nodes):
        return nodes
    last = index = max((index for index, node in enumerate(nodes) if node.sampled), default=None)
    path = [node for node in nodes if last is not None and node.parent == last][:1]  # the observation after it
    while index is not None:
        if not 0 <= index < len(nodes) or len(path) > len(nodes) + 1:
            raise UnreadableError(f"its nodes form no path: node {index} of {len(nodes)}")
        path.append(nodes[index])
        index = nodes[index].parent
    return path[::-1]


def _message(node: _Node) -> Message:
    text, images = text_and_images(node.message.get("content"), [])
    role = str(node.message.get("role"))
    if role == "assistant" and not node.sampled:
        role = "user"  # an example in the prompt
    tokens = [token for token, own in zip(node.token_ids, node.mask, strict=False) if own]
    facts = {"token_ids": tokens or None, "logprobs": node.logprobs or None, "finish_reason": node.finish_reason}
    reasoning = node.message.get("reasoning_content")
    if role == "assistant" and isinstance(reasoning, str):
        text = f"<think>{reasoning}</think>{text}"
    return Message(role, text, images, facts)
