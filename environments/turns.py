"""One turn of an agent: what it is shown, what it replies, and the contracts of prompts and of scripted players.

Prompts and scripted players are in the folders of their environments, so these types are below the rollouts. A player
plays one kind of environment for the stand-in: it has habits, and gives one reply per turn. Its randomness is a
function of ids: that of a level of its text, of an episode of its id, of a turn of its seed.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from ..core.contracts import Answer, Contract, Fits, JsonObject, Terms
from ..core.messages import EncodedFrame, PromptMessages, Sent
from ..core.plugins import Plugin, Settings, read_settings
from .base import EnvConfig, EnvProfile, ParsedAction, PivotEnv, Task

_TEN_WORDS = struct.Struct("<10I")

T = TypeVar("T")


class ReplyOutcome(StrEnum):
    """Result of the reply grammar for a reply."""

    OK = "ok"
    NO_THINK = "no_think"  # the action runs, but the step is not action_valid
    NO_ANSWER = "no_answer"
    NOT_AN_ACTION = "not_an_action"
    TAG_IN_THINK = "tag_in_think"
    UNUSED = "unused"  # imports only: the reply had fewer actions than a turn may have


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """Result of parsing a reply."""

    action: ParsedAction | None
    """The action to execute; None if the reply has no usable one."""
    action_valid: bool
    """True only for a usable action after a complete think block."""
    outcome: ReplyOutcome


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to a policy."""

    episode_id: str
    t: int
    seed: int
    """Source of all randomness of the reply, derived from the episode id and ``t``."""
    prompt: PromptMessages
    images: Mapping[str, EncodedFrame]
    """At least the frames that the prompt names; others of the same task may be included."""
    task: Task
    """The level being attempted, for logs. Like ``env`` it holds more than a model may know."""
    env: PivotEnv
    """The live environment, for embedded stand-ins only; a real policy uses prompt and images. It is None if the
    environment runs in another process, as it may for a served policy."""
    sent: Sent = field(default_factory=Sent, init=False, compare=False)
    """Counter of the requests that the policy sends."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of a policy to one turn."""

    text: str
    finish_reason: str = "stop"
    """A word that :func:`pivot.core.messages.ending_of` knows; any other ends the episode as an error."""
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    call: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Columns of the ``calls`` table that the policy knows: attempts, latency, usage, cost, cache_hit."""
    parsed: ParsedReply | None = None
    """Parse of the reply by the source of an import; None to parse it by the reply grammar."""
    prompt: PromptMessages | None = None
    """Prompt that an import recorded; None if it recorded none. A policy that plays answers the prompt of its turn."""
    pictures: Mapping[str, EncodedFrame] = field(default_factory=dict[str, EncodedFrame])
    """Pictures of ``prompt`` by frame id."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A past action for the Student's history, 1-based as in the prompts."""

    step: int
    action: str
    frame_id: str = ""
    """Id of the picture before the action; in the first entry that is the first observation, such as a target."""


def _is_message(message: dict[str, Any]) -> bool:
    """Whether a dict is a chat message of a role and a text, or of parts that are texts and frame ids."""
    content: Any = message.get("content")
    parts = cast(list[Any], content) if isinstance(content, list) else []
    has_content = isinstance(content, str) or bool(parts and all(map(_is_part, parts)))
    return has_content and isinstance(message.get("role"), str)


def _is_part(part: Any) -> bool:
    fields = cast(dict[str, Any], part) if isinstance(part, dict) else {}
    key = {"text": "text", "image": "frame_id"}.get(str(fields.get("type")), "")
    return isinstance(fields.get(key), str)


Message = Annotated[
    JsonObject,
    Fits(_is_message, "a message: a role, and as content a text or a list of text parts and image parts with frame_id"),
]


class StudentPrompt(Contract, ABC):
    """Acting prompt of one environment."""

    template: str
    """Public name of the template: ``student.`` and the environment."""
    version: str
    """Raised with every change of wording."""
    terms: ClassVar[Terms] = Terms(
        attributes={"template": str, "version": str, "frame_only": bool, "hindsight": Literal["before_closing", "end"]},
        answers={"render": Answer(tuple[Message, ...])},
    )
    frame_only: ClassVar[bool] = False
    """True when the messages of a task depend on nothing but the frame, so that a repeated frame repeats the prompt."""
    hindsight: ClassVar[Literal["before_closing", "end"]] = "end"
    """Position of the hindsight context in the Teacher's prompt: between the current picture and the
    closing text, which then must be the last two parts of the last message, or at the end."""

    @abstractmethod
    def render(
        self,
        profile: EnvProfile,
        task: Task,
        *,
        t: int,
        frame_id: str,
        history: Sequence[HistoryEntry],
        observation: str,
    ) -> tuple[dict[str, Any], ...]:
        """Return the messages of turn ``t``.

        Args:
            profile: description of the environment.
            task: the level; prompts show its instruction, never its state.
            t: step index, 0-based.
            frame_id: the current picture.
            history: the past actions, oldest first; the template decides how many it shows.
            observation: the text observation of this step, empty if the environment has none.
        """


class PlayerHabits(Settings):
    """Settings of a player; rates are probabilities per turn unless stated otherwise."""


class Player(Plugin, ABC):
    """Player of one environment. One object serves all its levels and episodes."""

    version: ClassVar[str] = "1"
    """Raised when default habits or their use change: replies, and therefore episode ids, then differ."""
    config_type: ClassVar[type[PlayerHabits]]  # pyright: ignore[reportIncompatibleVariableOverride]
    terms: ClassVar[Terms] = Terms(
        arguments=2, answers={"default_habits": Answer(PlayerHabits), "reply": Answer(Reply)}
    )

    def __init__(self, env: str, changes: Mapping[str, Any]) -> None:
        """Set the default habits of the environment ``env``, updated by ``changes``.

        Raises:
            ConfigError: an unknown field, or a number out of range.
        """
        habits = self.default_habits(env).model_dump() | dict(changes)
        super().__init__(read_settings(self.config_type, habits, f"policy scripted, habits of {env}: "))
        self.env = env

    @classmethod
    def default_habits(cls, env: str) -> PlayerHabits:
        """Return the default habits for an environment."""
        del env
        return cls.config_type()

    def check(self, config: EnvConfig) -> None:
        """Check that the player supports these settings of its environment.

        Raises:
            ConfigError: a setting is not supported.
        """

    @abstractmethod
    def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the same turn always gets the same answer.

        Raises:
            ConfigError: the environment offers no information to play by.
        """


def uniforms(seed: int) -> list[float]:
    """Return ten numbers in [0, 1), a function of ``seed`` on every machine."""
    words = _TEN_WORDS.unpack(blake2b(b"%d" % seed, digest_size=_TEN_WORDS.size).digest())
    return [word * 2.0**-32 for word in words]


def bell(draws: Sequence[float]) -> float:
    """Return a nearly normal number of mean 0 and deviation 1: a sum of uniforms needs no library function."""
    return (sum(draws[:6]) - 3.0) * 2.0**0.5


def pick(choices: Sequence[T], draw: float) -> T:
    """Return one of ``choices`` by a number in [0, 1)."""
    return choices[int(draw * len(choices))]
