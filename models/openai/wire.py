"""Requests and answers of the chat completions interface as bytes.

A request is JSON with pictures as data URLs; its messages are encoded once per prompt, for all samples. Answers are
untrusted: an answer that is not a chat completion is a :class:`GarbledAnswerError`, and fields of a wrong type are
ignored.
"""

import base64
import json
import math
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.images import readable_formats
from ...core.messages import EncodedFrame, cut_reply, ending_of, is_thought, thought_of
from ..base import ChatRequest
from .fields import sent, words_of

ANSWER_LIMIT_BYTES = 16_000_000
"""Longest answer that is read; 512 tokens with log-probabilities are 60 kB, 100,000 of them 12 MB."""

NEVER = -100
"""Bias of tokens that must not be sampled: the lowest of the interface."""

ROUNDING = 1e-6
"""Largest positive log-probability that is accepted as rounding; a larger one is invalid."""
_KEPT_BYTES = 64_000_000
_LARGEST_TOKEN = 2**31 - 1


class GarbledAnswerError(Exception):
    """An answer that is not a chat completion: cut off, not JSON, or of another shape."""


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """The checked content of a chat completion."""

    text: str
    reasoning: str
    finish_reason: str
    token_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    tokens: tuple[str, ...] | None
    """Texts of the tokens of ``logprobs``."""
    refusal: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    model: str | None
    """Name of the model that answered."""
    revision: str | None
    """Model and build that answered, in the server's words."""


class RequestEncoder:
    """Encoder of request bodies; it keeps the encoded messages of recent prompts."""

    def __init__(self, model: str) -> None:
        """Encode requests to ``model``."""
        self._model = model
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def body(self, request: ChatRequest, without: frozenset[str] = frozenset()) -> bytes:
        """Return the JSON of a request, leaving out the fields ``without``."""
        return b'{"messages":' + self._messages(request) + b"," + json.dumps(self.fields(request, without)).encode()[1:]

    def fields(self, request: ChatRequest, without: frozenset[str] = frozenset()) -> dict[str, Any]:
        """Return the fields of a request except its messages, leaving out the fields ``without``."""
        sampling = request.sampling
        fields: dict[str, Any] = {
            "model": self._model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request.seed,
            "max_tokens": sampling.max_tokens,
        }
        if sampling.top_k:
            fields["top_k"] = sampling.top_k
        if request.json_schema is not None:
            schema = {"name": "answer", "schema": request.json_schema, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.banned:
            fields["logit_bias"] = {str(token): NEVER for token in request.banned}
        if request.wants_logprobs:
            fields |= {"logprobs": True, "return_token_ids": True}
        if sampling.chat_template_kwargs:
            fields["chat_template_kwargs"] = sampling.chat_template_kwargs
        return sent({**fields, **sampling.extra_body}, without)

    def _messages(self, request: ChatRequest) -> bytes:
        encoded = self._kept.get(request.prompt_hash)
        if encoded is not None:
            self._kept.move_to_end(request.prompt_hash)
            return encoded
        messages = [
            {**message, "content": content if isinstance(content, str) else [_part(part, request) for part in content]}
            for message in request.messages
            for content in [message["content"]]
        ]
        encoded = json.dumps(messages).encode()
        self._kept[request.prompt_hash] = encoded
        self._size += len(encoded)
        while self._size > _KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest)
        return encoded


def _part(part: Mapping[str, Any], request: ChatRequest) -> Mapping[str, Any]:
    if part["type"] != "image":
        return part
    return {"type": "image_url", "image_url": {"url": data_url(request.images[part["frame_id"]])}}


def data_url(frame: EncodedFrame) -> str:
    """Return a picture as a data URL."""
    kind = frame.format.lower()
    formats = readable_formats()
    if kind not in formats:
        raise ValueError(f"a picture of format {kind!r} cannot be sent; expected one of {', '.join(formats)}")
    return f"data:{formats[kind].mime};base64,{base64.b64encode(frame.image).decode()}"


def is_same_model(requested: str, named: str) -> bool:
    """Whether two names may mean one model: servers add a date, an owner or a folder, and resolve ``latest``."""
    words = (re.findall(r"[a-z0-9]+", name.casefold()) for name in (requested, named))
    names = ["-".join(word for word in each if word not in ("latest", "preview")) for each in words]
    return not all(names) or any(f"-{one}-" in f"-{other}-" for one, other in (names, names[::-1]))


def read_answer(raw: bytes) -> WireAnswer:
    """Read a chat completion.

    Raises:
        GarbledAnswerError: the bytes are not a chat completion.
        BrokenOffError: neither the model nor the token limit ended the answer.
    """
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise GarbledAnswerError(f"{len(raw)} bytes that are not JSON ({error})") from error
    choice = _first_choice(data)
    message = choice["message"]
    refusal = message.get("refusal")
    refusal = refusal if isinstance(refusal, str) and refusal else None
    text = _text(message.get("content"))
    reason = choice.get("finish_reason")
    if not text.strip() and (message.get("tool_calls") or message.get("function_call")):
        reason = "tool_calls"  # some servers call it stop
    token_ids = _token_ids(choice.get("token_ids"))
    logprobs = _logprobs(choice.get("logprobs"))
    if token_ids is not None and logprobs is not None and len(token_ids) != len(logprobs):
        logprobs = None  # they belong to different tokens
    usage = data.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return WireAnswer(
        text=text,
        reasoning=thought_of(message),
        finish_reason=ending_of(reason, refusal or text),
        token_ids=token_ids,
        logprobs=logprobs,
        tokens=None if logprobs is None else _tokens(choice["logprobs"]),
        refusal=refusal,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        model=data["model"] if isinstance(data.get("model"), str) else None,
        revision=_revision(data),
    )


def _first_choice(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise GarbledAnswerError(f"a JSON {type(data).__name__} in place of a chat completion")
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        words = words_of(data.get("error") or data)
        raise GarbledAnswerError(f"a chat completion without choices{f': {words}' if words else ''}")
    if not isinstance(choices[0].get("message"), dict):
        raise GarbledAnswerError("a chat completion without a message")
    return choices[0]


def _text(content: Any) -> str:
    """Return the text of a message; some servers send it in parts, and null for an empty text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and not is_thought(part)]
        return "".join(part for part in parts if isinstance(part, str))
    raise GarbledAnswerError(f"a message whose content is a {type(content).__name__}")


def _token_ids(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    whole = all(type(item) is int and 0 <= item <= _LARGEST_TOKEN for item in value)
    return tuple(value) if whole else None


def _logprobs(value: Any) -> tuple[float, ...] | None:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or not content:
        return None
    numbers = [item.get("logprob") if isinstance(item, dict) else None for item in content]
    try:
        numbers = [None if isinstance(item, bool) else item for item in numbers]
        floats = tuple(float(item) for item in numbers if isinstance(item, int | float) and item <= ROUNDING)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return floats if len(floats) == len(numbers) and all(map(math.isfinite, floats)) else None


def _tokens(value: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the token texts of log-probabilities that were read."""
    texts = [item.get("token") for item in value["content"]]
    return tuple(texts) if all(isinstance(text, str) for text in texts) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**62 else None


def _revision(data: Mapping[str, Any]) -> str | None:
    words = [data.get(name) for name in ("model", "system_fingerprint")]
    texts = [word for word in words if isinstance(word, str) and word]
    return cut_reply("@".join(texts), 200) if texts else None
