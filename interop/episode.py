"""PIVOT's own format of recorded episodes: one JSON object per line, pictures in files beside it.

``episode.schema.json`` is the JSON Schema of :class:`RecordedEpisode`. Every other format is read into the same record.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from ..core.identity import canonical_json
from ..rollouts.dialect import Call, Read

FORMAT = "pivot-episode-1"
MOST_TURNS = 1000
"""Turns of an episode, and slots of all its turns: the largest horizon of an environment."""

Name = Annotated[str, Field(max_length=200)]
Text = Annotated[str, Field(max_length=1 << 22)]


class _Record(BaseModel):
    """A part of the format; unknown fields are kept."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, use_attribute_docstrings=True)


_WITHOUT_NAN = frozenset({"env_config", "distances", "left", "starts", "solver"})
"""Fields whose numbers decide states or labels, so that a missing one is an error."""
_MOST_NOTES = 20


def _finite(value: Any, where: str, names: list[str]) -> Any:
    """Return JSON data with null in place of NaN and infinity; a list of log-probabilities with one of them is null."""
    if isinstance(value, float) and not math.isfinite(value):
        names.append(where)
        return None
    if isinstance(value, dict):
        return {key: _finite(each, key if where == "turns" else f"{where}.{key}", names) for key, each in value.items()}
    if isinstance(value, list):
        if where.endswith("logprobs") and any(isinstance(each, float) and not math.isfinite(each) for each in value):
            names.append(where)
            return None
        return [_finite(each, where, names) for each in value]
    return value


class RecordedAction(_Record):
    """An action by its normalised name, with its arguments."""

    name: Name
    """Name, such as ``pick``."""
    payload: Text | None = None
    """JSON of the arguments, if it has any."""


class RecordedTurn(_Record):
    """One reply of the agent, and the actions that ran."""

    frame: str | None = None
    """Picture before the turn: a file relative to the folder of the source."""
    observation: Text | None = None
    """Text that the agent saw with the picture."""
    messages: list[dict[str, Any]] | None = None
    """Chat that the agent was sent before the reply. An image part names a file, as in ``{"type": "image", "image":
    "frames/0.png"}``; one without a name shows ``frame``."""
    response: Text | None = None
    """Raw reply of the agent."""
    finish_reason: Name | None = None
    """Why its generation ended, such as ``stop`` or ``length``."""
    token_ids: list[Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]] | None = None
    """Tokens of the reply."""
    logprobs: list[float] | None = None
    """Log-probabilities of the tokens."""
    actions: list[Name | Annotated[int, Field(ge=0)] | RecordedAction] | None = None
    """Actions that ran, in order: the text that the answer tag held, the index of an action, or name and payload. Empty
    for a turn without a usable action. Missing to read the action from the reply."""
    action_valid: bool | None = None
    """Whether the trainer accepted the format of the reply."""
    reward: float | None = None
    """Sum of the rewards of the turn."""
    state: Text | None = None
    """State text before the turn, as the environment of PIVOT writes it."""
    info: dict[str, Any] | None = None
    """Measurements after the turn, such as ``dist`` and ``moved``; those of the environment are compared."""
    _reading: Read | None = PrivateAttr(default=None)
    _calls: tuple[Call, ...] = PrivateAttr(default=())
    _prompt: Sequence[dict[str, Any]] = PrivateAttr(default=())

    @property
    def prompt(self) -> Sequence[dict[str, Any]]:
        """The messages that the agent was sent, whose image parts name pictures of the source; empty if unknown."""
        return self._prompt

    @prompt.setter
    def prompt(self, messages: Sequence[dict[str, Any]]) -> None:
        self._prompt = messages

    @property
    def reading(self) -> Read | None:
        """Return how the reply was read, if the format reads replies in a dialect."""
        return self._reading

    @property
    def calls(self) -> tuple[Call, ...]:
        """Return the calls of tools in the reply."""
        return self._calls

    def read_as(self, reading: Read | None, calls: Sequence[Call] = ()) -> None:
        """Keep how the reply was read, and its calls of tools."""
        self._reading, self._calls = reading, tuple(calls)


class ChatFacts(NamedTuple):
    """Facts about the messages of an episode that no turn has."""

    masked: int = 0
    """Replies that a trainer would not learn from."""
    agents: tuple[str, ...] = ()
    """Names of the agents that replied, where the messages have them."""
    trailing: int = 0
    """Most replies after the end that hold actions and were not played, by the user's word."""
    limit: int = 0
    """Most actions of a turn by the text of the prompt; 0 where it does not say it."""


class RecordedEpisode(_Record):
    """One episode."""

    format: Literal["pivot-episode-1"] = FORMAT
    """Name and version of this format."""
    env: Name
    """Environment, such as ``sokoban``."""
    env_config: dict[str, Any] = {}
    """Settings that differ from the defaults. ``horizon`` counts turns, if the environment has a setting
    ``actions_per_turn`` and it is set here; else actions, turns times ``actions_per_turn`` of the episode."""
    id: Name | None = None
    """Id of the episode in the source."""
    policy: Name | None = None
    """Model or checkpoint that acted."""
    recorder: Name | None = None
    """``pivot`` for an episode that was recorded in PIVOT's own environment: ``seed`` is that of its generator, and
    integers are indices of its actions. Without it both need pictures, boards or rewards that agree."""
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None
    """Seed of ``reset``."""
    options: dict[str, Any] | None = None
    """Options of ``reset``."""
    initial_state: Text | None = None
    """State text of the level; without it the level is generated from the seed."""
    state_source: Literal["row", "seed", "picture"] = "row"
    """Origin of ``initial_state``, if it was derived and not recorded."""
    instruction: Text | None = None
    """Instruction of the agent; without it that of the environment."""
    task_id: Name | None = None
    """Id of the level."""
    goal_idx: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """Which goal of the level."""
    eval_set: Name = "default"
    """Split of the task set."""
    actions_per_turn: Annotated[int, Field(ge=1, le=64)] = 1
    """Most actions of a turn, for environments without such a setting: every action is then a step, and a turn with
    fewer of them spends the rest of its budget."""
    turns: Annotated[list[RecordedTurn], Field(min_length=1, max_length=MOST_TURNS)]
    """Turns in order."""
    final_frame: str | None = None
    """Picture after the last turn."""
    final_state: Text | None = None
    """State text after the last turn."""
    final_observation: Text | None = None
    """Text that followed the last turn."""
    distances: list[Annotated[float, Field(ge=0)]] | None = None
    """Metres to the target before the first turn and after each, of a navigation log without states. The first may be
    the smallest one that fits the log."""
    left: list[Annotated[int, Field(ge=0)]] | None = None
    """Most actions that could still run before the first turn and after each, where turns of ``distances`` have several
    actions; else ``horizon`` says it."""
    starts: tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]] | None = None
    """Smallest and largest distance of a start in the dialect of the log, metres."""
    solver: dict[str, Any] | None = None
    """Settings of the solver that reads ``distances``, such as ``step`` and ``threshold``, metres."""
    success: bool | None = None
    """Whether the goal was reached."""
    terminated: bool | None = None
    """Whether the environment ended the episode."""
    truncated: bool | None = None
    """Whether the budget of turns ended it."""

    _chat: ChatFacts = PrivateAttr(default=ChatFacts())

    @property
    def chat(self) -> ChatFacts:
        """Return facts about the messages that no turn has."""
        return self._chat

    def note_chat(self, chat: ChatFacts) -> None:
        """Keep facts about the messages."""
        self._chat = chat

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, record: Any) -> Any:
        """Leave out fields that are null where no null is meant, as tables of optional columns write them."""
        if not isinstance(record, dict):
            return record
        fields = cls.model_fields
        return {
            name: value
            for name, value in record.items()
            if value is not None or name not in fields or fields[name].is_required() or fields[name].default is None
        }

    @model_validator(mode="before")
    @classmethod
    def _not_a_number_is_null(cls, record: Any) -> Any:
        """Read NaN and infinity as null, but in settings; the field ``not_finite`` names where they were."""
        if not isinstance(record, dict):
            return record
        kept = {name: value for name, value in record.items() if name not in _WITHOUT_NAN}
        names: list[str] = []
        finite = {name: _finite(value, name, names) for name, value in kept.items()}
        return {**record, **finite, **({"not_finite": sorted({*names})[:_MOST_NOTES]} if names else {})}

    @model_validator(mode="after")
    def _can_be_stored(self) -> Self:
        """Refuse NaN and infinity in fields that are stored as JSON."""
        for name, value in {"env_config": self.env_config, **self.other_fields()}.items():
            try:
                canonical_json(value)
            except ValueError as error:
                raise ValueError(f"the field {name[:60]!r} cannot be stored as JSON: {error}") from error
        return self

    def other_fields(self) -> Mapping[str, Any]:
        """Return the fields that the format does not have, those of turns by their index."""
        turns = {str(t): turn.model_extra for t, turn in enumerate(self.turns) if turn.model_extra}
        options = {"options": self.options} if self.options else {}
        return {**(self.model_extra or {}), **options, **({"turns": turns} if turns else {})}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RecordedEpisode.model_json_schema()}
