"""The contract of a chat model: one request, one answer, wherever the model runs.

Policies and teachers are thin layers over a :class:`ChatModel`: one behind an OpenAI-compatible server, one loaded into
this process, or any other that implements ``answer``. A request says everything that decides its answer, so that a call
cache can stand between the two. What an answer cost is part of it and ends up in the ``calls`` table.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ..errors import ConfigError
from ..messages import EncodedFrame

Role = Literal["student", "teacher"]

FINISHED, CUT = "stop", "length"
"""Finish reasons: the model ended its reply, or ``max_tokens`` did. A server's other words are kept as they are."""

MAX_REPLY_TOKENS = 512
"""Longest reply of an acting model (spec section 8)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. All of it decides the answer, so all of it is part of ids and cache keys."""

    temperature: float = 1.0
    """1.0 while rolling out and training, 0.4 for validation (spec section 8); 0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """Draw from the k most likely tokens only; 0 for all. Not part of OpenAI's interface, sent only when set."""
    max_tokens: int = MAX_REPLY_TOKENS

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigError: a number is out of range.
        """
        checks = {
            "temperature": (0 <= self.temperature <= 2, "0 to 2"),
            "top_p": (0 < self.top_p <= 1, "above 0, at most 1"),
            "top_k": (self.top_k >= 0, "0 (all tokens) or more"),
            "max_tokens": (self.max_tokens >= 1, "1 or more"),
        }
        for name, (fits, expected) in checks.items():
            if not fits:
                raise ConfigError(f"sampling setting {name}: found {getattr(self, name)}, expected {expected}")

    def row(self) -> dict[str, Any]:
        """Return the settings as JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model."""

    request_id: str
    """Key of the ``calls`` table."""
    episode_id: str
    t: int | None
    """Step, 0-based; None for a request about the whole episode."""
    role: Role
    messages: Sequence[Mapping[str, Any]]
    """As in ``PromptMessages``: a part is ``{"type": "text", "text": ...}`` or an image named by ``frame_id``."""
    images: Mapping[str, EncodedFrame]
    """At least the pictures that the messages name, by frame id."""
    prompt_hash: str
    """Digest of ``messages``; with the frame ids inside them it names all that the model is shown."""
    sampling: Sampling
    seed: int
    """All randomness of the answer comes from it: 63 bits, another one for every episode, step and try."""
    sample: int = 0
    """Counts tries that shall be independent under one seed, such as asking again after an unusable answer."""
    json_schema: Mapping[str, Any] | None = None
    """JSON schema that the answer should fit; a model that cannot enforce one answers freely."""
    wants_logprobs: bool = False
    """Whether token ids and log-probabilities are of use; a model that has none leaves them out."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What a model answered."""

    text: str
    finish_reason: str = FINISHED
    token_ids: tuple[int, ...] | None = None
    """Reply tokens, the end token included where the engine counts it."""
    logprobs: tuple[float, ...] | None = None
    """Natural log-probabilities of ``token_ids``, equally many."""
    refusal: str | None = None
    """The model's own words when it declined to answer; ``text`` is then empty or part of the refusal."""
    call: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the ``calls`` table that the model knows: attempts, latency (s), prompt_tokens, completion_tokens,
    cost, cache_hit, model_revision."""


class ChatModel(ABC):
    """Answers chat requests. Many are in flight in one event loop; a model may batch those that wait together."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What decides the answers beside the request itself: model, revision, and how it is run where that matters.

        Never where it is reached or how fast: no address, no key, no limit.
        """

    @abstractmethod
    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request.

        Raises:
            PolicyError: this request could not be answered; others may.
            ServerGoneError: none will be answered until somebody looks after the server: the run has to stop.
            ConfigError, PluginError: wrong for every request.
        """

    async def aclose(self) -> None:  # noqa: B027 - most models hold nothing
        """Let go of connections, threads and memory; the model is not used again."""


def image_ids(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the frame ids that messages name, in the order in which they are shown."""
    return [
        part["frame_id"]
        for message in messages
        if not isinstance(message["content"], str)
        for part in message["content"]
        if part["type"] == "image"
    ]
