"""One turn of an agent: what it is shown, what it replies, and how a prompt shows the turns before.

Prompts and scripted players are in the folders of their environments, so these types are below the rollouts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, cast

from ..core.contracts import Answer, Contract, Fits, JsonObject, Terms
from ..core.messages import EncodedFrame, PromptMessages, Sent
from .base import EnvProfile, ParsedAction, PivotEnv, Task


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
        attributes={
            "template": str,
            "version": str,
            "frame_only": bool,
            "hindsight": Literal["before_closing", "end"],
        },
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
