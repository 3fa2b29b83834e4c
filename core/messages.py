"""Prompts of models (chat messages that refer to pictures by frame id), the ends of answers, the cost of requests."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, cast

from .contracts import shown
from .errors import BrokenOffError
from .images import CODECS, LOSSLESS, Frame, frame_id
from .records import Stored


@dataclass(frozen=True, slots=True)
class PromptMessages:
    """A rendered prompt: chat messages whose images are named by frame id. One row of the ``prompts`` table."""

    prompt_hash: Annotated[str, Stored("Digest of `messages`.")]
    template: Annotated[str, Stored("Template name.")]
    version: Annotated[str, Stored("Template version.")]
    messages: Annotated[
        tuple[dict[str, Any], ...], Stored("Chat messages, JSON; images are named by frame_id.", json=True)
    ]
    """``{"role": ..., "content": [{"type": "text", "text": ...} | {"type": "image", "frame_id": ...}]}``."""


def frames_in(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the frame ids of the pictures in chat messages, in order."""
    contents = [message["content"] for message in messages if not isinstance(message["content"], str)]
    return [part["frame_id"] for content in contents for part in content if part["type"] == "image"]


def bare_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages as TRL and chat templates take them: image parts only mark the place of a picture."""
    return [
        {
            **message,
            "content": message["content"]
            if isinstance(message["content"], str)
            else [
                {"type": "image"} if part["type"] == "image" else {"type": part["type"], "text": part["text"]}
                for part in message["content"]
            ],
        }
        for message in messages
    ]


THINK_TAGS = ("think", "redacted_thinking")
"""Names of the tags around a thought: the usual one of models, and the longer one of the paper."""
THOUGHT_MARKS: Mapping[str, str] = {
    "<think>": "</think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<seed:think>": "</seed:think>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}
"""Marks that model families put around a thought: closing mark by opening mark."""
_IN_TAGS = {**dict.fromkeys(THOUGHT_MARKS, "<think>"), **dict.fromkeys(THOUGHT_MARKS.values(), "</think>")}
_MARK = re.compile("|".join(map(re.escape, _IN_TAGS)))
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
_THOUGHT_PARTS = frozenset({"thinking", "reasoning", "redacted_thinking"})


def is_thought(part: Mapping[str, Any]) -> bool:
    """Whether a part of a message is a thought: Mistral's, Anthropic's and inspect_ai's are."""
    return part.get("type") in _THOUGHT_PARTS


def thought_of(message: Mapping[str, Any]) -> str:
    """Return the thought that a server or a log keeps apart from the text of a message; empty if there is none.

    It is in a field of the message (vLLM, DeepSeek, OpenRouter and others) or in parts of its content.
    """
    content = message.get("content")
    listed = cast("list[Any]", content) if isinstance(content, list) else []
    parts: list[Any] = [each for each in listed if isinstance(each, dict) and is_thought(cast("dict[str, Any]", each))]
    values: list[Any] = [*(message.get(name) for name in _THOUGHT_FIELDS), parts]
    return next((text for each in values if (text := _thought_text(each)).strip()), "")


def _thought_text(value: Any, depth: int = 0) -> str:
    if isinstance(value, str) or depth > 4:
        return value if isinstance(value, str) else ""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        named = [fields.get(name) for name in ("thinking", "reasoning", "text", "summary")]
        return next((text for each in named if (text := _thought_text(each, depth + 1))), "")
    texts = [_thought_text(each, depth + 1) for each in cast("list[Any]", value)] if isinstance(value, list) else []
    return "\n".join(text for text in texts if text)


def in_think_tags(text: str) -> str:
    """Return a reply with its thoughts in think tags, whatever marks its model family uses."""
    return _MARK.sub(lambda match: _IN_TAGS[match[0]], text)


def after_thoughts(text: str) -> str:
    """Return a reply after its last closed thought; a thought that is never closed stays."""
    text = in_think_tags(text)
    for name in THINK_TAGS:
        text = text.rpartition(f"</{name}>")[2]
    return text


def without_thoughts(text: str) -> str:
    """Return a reply from the end of its last closed thought to the start of a thought that is never closed."""
    return re.split("|".join(f"<{name}>" for name in THINK_TAGS), after_thoughts(text), maxsplit=1)[0].strip()


def with_thought(message: Mapping[str, Any], text: str) -> str:
    """Return a message as a reply text; a separately stored thought comes first, in a think block.

    A thought that the text repeats in a think block of its own is there once.
    """
    thought, (own, _, _) = thought_of(message), text.rpartition(f"</{THINK_TAGS[0]}>")
    return f"<{THINK_TAGS[0]}>{thought}</{THINK_TAGS[0]}>{text}" if thought and thought not in own else text


@dataclass(frozen=True, slots=True)
class EncodedFrame:
    """A frame as stored: one row of the ``frames`` table."""

    frame_id: Annotated[str, Stored("SHA-256 over shape and decoded RGB.")]
    width: Annotated[int, Stored("Pixels.")]
    height: Annotated[int, Stored("Pixels.")]
    format: Annotated[str, Stored("`png` or `jpeg`.")]
    byte_size: Annotated[int, Stored("Length of `image`.", wide=True)] = field(init=False)
    image: Annotated[bytes, Stored("Encoded picture.")]

    def __post_init__(self) -> None:
        """Weigh the picture."""
        object.__setattr__(self, "byte_size", len(self.image))

    @classmethod
    def encode(cls, pixels: Frame, codec: str = LOSSLESS) -> "EncodedFrame":
        """Encode a picture, shape (height, width, 3), with a codec of :data:`pivot.core.images.CODECS`."""
        height, width = pixels.shape[:2]
        return cls(frame_id(pixels), width, height, codec, CODECS[codec].encode(pixels))


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a model with its cost: one row of the ``calls`` table."""

    request_id: Annotated[str, Stored("Digest of episode, step and role.")]
    episode_id: Annotated[str, Stored("Episode.")]
    t: Annotated[int | None, Stored("Step; null for a request about the whole episode.")]
    role: Annotated[str, Stored("`student` or `teacher`.")]
    attempts: Annotated[
        int, Stored("Number of attempts, including failed ones; 0 for an answer that cost nothing.")
    ] = 1
    latency: Annotated[float | None, Stored("Seconds.")] = None
    prompt_tokens: Annotated[int | None, Stored("Usage, where the server reports it.", wide=True)] = None
    completion_tokens: Annotated[int | None, Stored("Usage, where the server reports it.", wide=True)] = None
    cost: Annotated[float | None, Stored("Cost in the server's currency, where known.")] = None
    cache_hit: Annotated[
        bool, Stored("Whether the answer came from the call cache and another store had paid for it.")
    ] = False
    model_revision: Annotated[str | None, Stored("Checkpoint, model and build that answered, where known.")] = None
    answered: Annotated[bool | None, Stored("Whether there was an answer.")] = True
    left_out: Annotated[
        tuple[str, ...] | None, Stored("Fields that were left out because the server refuses them.")
    ] = ()
    answer: Annotated[
        str | None, Stored("Raw answer of a teacher; null for a policy, whose replies are in `steps`.")
    ] = None
    broken_off: Annotated[
        int,
        Stored(
            "Attempts whose answer neither the model nor the token limit ended, such as an abort; none is an answer."
        ),
    ] = 0
    finish_reason: Annotated[
        str | None,
        Stored("Why a model ended its answer: `stop`, `length` or `unknown`; null without a model's answer."),
    ] = None
    kept: bool = field(default=False, compare=False)
    """Whether the call cache supplied this row from an earlier attempt at the same store."""

    def after(self, earlier: "Call") -> "Call":
        """Return the call, plus earlier attempts that failed or whose answer was not stored."""
        if self.kept and earlier.answered is not False and earlier.request_id == self.request_id:
            return earlier  # the cached answer is that of the earlier call
        sums = {
            name: None if mine is None and theirs is None else (mine or 0) + (theirs or 0)
            for name in ("prompt_tokens", "completion_tokens", "cost")
            for mine, theirs in [(getattr(self, name), getattr(earlier, name))]
        }
        if self.cache_hit and not self.attempts:
            sums = {name: getattr(earlier, name) for name in sums}  # another store paid for this answer
        tries = self.attempts + earlier.attempts
        sums["broken_off"] = self.broken_off + earlier.broken_off
        return replace(self, attempts=tries, cache_hit=self.cache_hit and not earlier.attempts, **sums)

    def reported(self, report: Mapping[str, Any]) -> "Call":
        """Return the call with those fields of a model's report that are columns; other fields are dropped."""
        columns = {each.name: report[each.name] for each in fields(self) if each.name in report} if report else None
        return replace(self, **columns) if columns else self


REPLY_LIMIT_BYTES = 64 * 1024
"""Maximum length of a reply that is read and stored, in UTF-8 bytes; ``profile.reply_limit`` overrides it."""


def cut_reply(text: str, limit_bytes: int = REPLY_LIMIT_BYTES) -> str:
    """Return the longest start of ``text`` that fits into ``limit_bytes`` of UTF-8 and ends with a whole character.

    Lone surrogates, which UTF-8 cannot hold and which a JSON reply may contain, become ``?``.
    """
    if len(text) <= limit_bytes and text.isascii():
        return text
    # A character takes at least one byte, so the slice bounds the work by the limit and not by the reply.
    encoded = text[:limit_bytes].encode("utf-8", errors="replace")
    return encoded[:limit_bytes].decode("utf-8", errors="ignore")


Role = Literal["student", "teacher", "analyzer"]

FINISHED, CUT, UNKNOWN = "stop", "length", "unknown"
"""Finish reasons of an answer: the model ended it, ``max_tokens`` did, or the server does not say."""

_SPELLINGS = {
    FINISHED: "stop eos eos_token end_turn end_of_turn end_id stop_sequence stop_token stop_words complete completed",
    CUT: "length max_tokens max_output_tokens max_completion_tokens max_new_tokens max_length model_length "
    "model_context_window_exceeded",
    UNKNOWN: "unknown null none",
}
_ENDINGS = {word: ending for ending, words in _SPELLINGS.items() for word in words.split()}
_REMEDIES = {"content_filter": "check the filter of the server", "tool_calls": "serve the model without a tool parser"}


def ending_of(reason: Any, text: str) -> str:
    """Return which of the three finish reasons a server's word for the end of an answer means.

    An answer is what the model ended or the token limit cut. Anything else, such as an abort, may have ended in the
    middle of an action, so that its text says nothing about the model.

    Args:
        reason: the server's word, or an object whose ``type`` is the word; None or an empty text if it is missing.
        text: the text of the answer; a missing reason without text is an error.

    Raises:
        BrokenOffError: something else ended the answer.
    """
    word: Any = cast(Mapping[str, Any], reason).get("type", reason) if isinstance(reason, Mapping) else reason
    plain = "null" if word in (None, "") else str(word).strip().lower().replace("-", "_")
    ending = _ENDINGS.get(plain)
    if ending == UNKNOWN and not text.strip():
        raise BrokenOffError("the answer is empty and its finish_reason missing; look at the server's log")
    if ending is None:
        advice = _REMEDIES.get(plain, "look at the server's log")
        raise BrokenOffError(f"the answer ended with finish_reason {shown(reason)}, expected stop or length; {advice}")
    return ending


@dataclass(slots=True)
class Sent:
    """Counter of the attempts sent for one request, however it ends: answer, error, or end of the run."""

    tries: int = 0
    broken_off: int = 0
    """Tries whose answer was broken off (:func:`ending_of`); the request was sent again."""
    failure: str = ""
    """Why the last failed try failed."""

    def add(self, other: "Sent") -> None:
        """Add the attempts that ``other`` counted."""
        self.tries += other.tries
        self.broken_off += other.broken_off
