"""Traces of verifiers v1 and prime-rl: ``traces.jsonl``, one rollout per line.

Read in PrimeIntellect-ai/verifiers: ``verifiers/v1/trace.py`` (``task.data``, ``nodes``, ``calls``, ``rewards``) and
``verifiers/v1/graph.py``: a node has a message, its parent, and whether the model sampled it; ``token_ids`` include the
scaffold, ``mask`` marks sampled tokens, and ``logprobs`` has one number per marked token. The path to the last sampled
node is the episode. A line is a trace, and since 0.4.0 (``verifiers/v1/utils/trace_store.py``,
``verifiers/v1/episode.py``) an episode with the ``traces`` of all its agents, without nulls. Reasons why a generation
ended are in ``calls`` since then, before it in the nodes; nodes of the first versions have no parents.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter

from ..core.plugins import Settings
from .base import Importer, Place, UnreadableError, files_of, line_places, read_line, validated
from .chat import ChatSettings, Message, episode_of, message_of
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


class _Call(BaseModel):
    """A request to the model."""

    node: int | None = None
    finish_reason: str | None = None


class _Agent(BaseModel):
    name: str = "agent"
    trainable: bool = True


class _Trace(BaseModel):
    """The fields of a trace that are read; others are kept."""

    model_config = ConfigDict(extra="allow")

    id: int | str | None = None
    task: _Task = _Task()
    agent: _Agent = _Agent()
    nodes: list[_Node]
    calls: list[_Call] = []
    rewards: dict[str, Any] = {}
    info: dict[str, Any] = {}
    stop_condition: str | None = None

    @property
    def has_replied(self) -> bool:
        """Whether a model sampled a message of it."""
        return any(node.sampled for node in self.nodes)


class _Episode(BaseModel):
    """A line of several traces."""

    model_config = ConfigDict(extra="ignore")

    id: int | str | None = None
    traces: list[_Trace] = Field(min_length=1)


_LINE: TypeAdapter[_Episode | _Trace] = TypeAdapter(
    Annotated[
        Annotated[_Episode, Tag("episode")] | Annotated[_Trace, Tag("trace")],
        Discriminator(lambda line: "episode" if isinstance(line, dict) and "traces" in line else "trace"),
    ]
)


class VerifiersImporter(Importer):
    """Reader of ``traces.jsonl``, or of all such files below a folder."""

    config_type: ClassVar[type[Settings]] = ChatSettings
    accepts_data_urls: ClassVar[bool] = True
    settings: ChatSettings

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the lines of the file, or of all files of that name below the folder."""
        for file in files_of(source, [f"**/{_TRACES}"], "name the output folder of the run"):
            yield from line_places(source, file, file.relative_to(source).as_posix() if source.is_dir() else file.name)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one trace."""
        line = validated(_LINE, read_line(source, place))
        trace = line if isinstance(line, _Trace) else self._chosen(line)
        for call in trace.calls:
            if call.node is not None and 0 <= call.node < len(trace.nodes):
                trace.nodes[call.node].finish_reason = call.finish_reason
        row = {**trace.task.data, "id": trace.id}
        kept = {"rewards": trace.rewards, "info": trace.info, "stop_condition": trace.stop_condition}
        kept |= trace.model_extra or {}
        return episode_of([_message(node) for node in _path(trace.nodes)], {**row, "trace": kept}, self.settings)

    def _chosen(self, episode: _Episode) -> _Trace:
        """Return the trace of the agent that acts."""
        names, agent = [trace.agent.name for trace in episode.traces], self.settings.agent
        if agent and agent not in names:
            raise UnreadableError(f"found the agents {', '.join(names)}, expected {agent!r}; name one with agent=NAME")
        traces = [each for each in episode.traces if each.agent.name == (agent or each.agent.name)]
        trained = [each for each in traces if each.has_replied and (agent or each.agent.trainable)]
        return (trained or traces)[0]


def _path(nodes: list[_Node]) -> list[_Node]:
    """Return the nodes from a root to the last sampled one; all nodes if none has a parent."""
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
    own = [token for token, own in zip(node.token_ids, node.mask, strict=False) if own]
    is_example = node.message.get("role") == "assistant" and not node.sampled  # in the prompt
    facts = {"token_ids": own or None, "logprobs": node.logprobs or None, "finish_reason": node.finish_reason}
    return message_of(node.message, [], "user" if is_example else "", **facts)
