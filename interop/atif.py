"""Trajectories of Harbor, ``trajectory.json``: the Agent Trajectory Interchange Format (ATIF), versions 1.0 to 1.8.

Read in harbor-framework/harbor: ``src/harbor/models/trajectories`` (``trajectory.py``, ``step.py``, ``content.py``,
``observation_result.py``) and ``src/harbor/models/trial/result.py``. A step is a message of the system, the user or the
agent; one of the agent has its calls of tools and the observation after them. Pictures are files beside the trajectory.
The file ``result.json`` of the trial, in the folder of the trajectory or above it, has the rewards of the verifier.
Fields of PIVOT's own format, such as ``env`` and ``initial_state``, are read from ``extra`` of the trajectory.
"""

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ..core.errors import ConfigError
from ..core.messages import with_thought
from ..core.plugins import Settings
from .base import Importer, Place, UnreadableError, explained, folder_of, read_json_below, validated
from .chat import ChatSettings, Message, call_of, episode_of, text_and_images
from .episode import RecordedEpisode

_NAME, _RESULT = "trajectory.json", "result.json"
_ROLES = {"agent": "assistant"}


class AtifSettings(ChatSettings):
    """Dialect of trajectories."""

    reward: str = "reward"
    """Reward of the verifier that is 1 where the task was solved."""


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Call(_Read):
    function_name: str = ""
    arguments: dict[str, Any] | str = {}


class _Result(_Read):
    content: str | list[dict[str, Any]] | None = None


class _Observation(_Read):
    results: list[_Result] = []


class _Metrics(_Read):
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class _Step(_Read):
    source: Literal["system", "user", "agent"]
    message: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None


class _Agent(_Read):
    name: str = ""
    model_name: str | None = None


class _Trajectory(BaseModel):
    """A trajectory; its other fields are kept."""

    model_config = ConfigDict(extra="allow")

    schema_version: str = Field(pattern=r"^ATIF-v1\.")
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: _Agent = _Agent()
    steps: list[_Step] = Field(min_length=1)
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None


class _Verifier(_Read):
    rewards: dict[str, float | None] | None = None


class _Trial(_Read):
    task_name: str | None = None
    trial_name: str | None = None
    verifier_result: _Verifier | None = None


class AtifImporter(Importer):
    """Reader of a ``trajectory.json``, or of all such files below a folder."""

    config_type: ClassVar[type[Settings]] = AtifSettings
    settings: AtifSettings

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the trajectories, by name."""
        files = sorted(source.rglob(_NAME)) if source.is_dir() else [source]
        if not files:
            raise ConfigError(f"{source} holds no {_NAME}; name the folder of the job or of a trial")
        for file in files:
            name = file.relative_to(source).as_posix() if source.is_dir() else file.name
            yield Place(name, name)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one trajectory."""
        folder, path = folder_of(source), PurePosixPath(place.path)
        try:
            trajectory = validated(TypeAdapter(_Trajectory), read_json_below(folder, place.path))
            trial = _trial_of(folder, path)
        except ValidationError as error:
            raise explained(error) from error
        rewards = trial.verifier_result.rewards if trial and trial.verifier_result else None
        reward = (rewards or {}).get(self.settings.reward)
        origin = {"id": trajectory.trajectory_id or trajectory.session_id, "policy": trajectory.agent.model_name}
        kept = {
            **(trajectory.model_extra or {}),
            "agent": trajectory.agent.name,
            "rewards": rewards,
            "continued_in": trajectory.continued_trajectory_ref,
            "task": trial.task_name if trial else None,
        }
        messages = [each for step in trajectory.steps for each in _messages(step, path.parent)]
        facts = {
            "success": None if reward is None or not math.isfinite(reward) else reward >= 1,
            **(trajectory.extra or {}),
            **origin,
            "atif": kept,
        }
        try:
            return episode_of(messages, facts, self.settings)
        except ValidationError as error:
            raise explained(error) from error


def _trial_of(folder: Path, path: PurePosixPath) -> _Trial | None:
    """Return the result of the trial that a trajectory is from."""
    for parent in (path.parent, path.parent.parent):
        name = (parent / _RESULT).as_posix()
        if (folder / name).is_file():
            try:
                return _Trial.model_validate_json(read_json_below(folder, name))
            except ValidationError as error:
                raise UnreadableError(f"its {name} is not the result of a trial: {explained(error)}") from error
    return None


def _messages(step: _Step, folder: PurePosixPath) -> Iterator[Message]:
    """Yield the message of a step, and that of the observation after it."""
    text, images = text_and_images(step.message, [])
    metrics = step.metrics or _Metrics()
    if step.source == "agent" and step.is_copied_context:
        return  # an earlier trajectory has it
    if step.source == "agent":
        text = with_thought({"reasoning_content": step.reasoning_content, "content": step.message}, text)
    facts = {"token_ids": metrics.completion_token_ids, "logprobs": metrics.logprobs} if step.source == "agent" else {}
    calls = [call_of(each.function_name, each.arguments) for each in step.tool_calls or ()]
    yield Message(_ROLES.get(step.source, step.source), text, [_beside(folder, each) for each in images], facts, calls)
    for result in step.observation.results if step.observation else ():
        text, images = text_and_images(result.content, [])
        yield Message("tool", text, [_beside(folder, each) for each in images])


def _beside(folder: PurePosixPath, name: str) -> str:
    """Return the name of a picture relative to the source; it is relative to its trajectory."""
    return name if "://" in name else (folder / name).as_posix()
