"""The contract of a chat model: it answers one request at a time, wherever it runs.

Policies and teachers are thin layers over a :class:`ChatModel`: one behind an OpenAI-compatible server, one loaded into
this process, or any other class that implements ``answer``. A request holds everything that decides its answer, so that
a call cache can be placed between the two. An answer holds its cost, which is stored in the ``calls`` table.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from ..core.contracts import Answer, Contract, Fits, JsonObject, Terms
from ..core.messages import FINISHED, EncodedFrame, Role, Sent, ending_of
from ..core.plugins import Plugin, Settings
from .extras import look_for

MAX_REPLY_TOKENS = 512
"""Longest reply of an acting model."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. Every one decides the answer and is therefore part of ids and cache keys."""

    temperature: float = 1.0
    """1.0 while rolling out and training, 0.4 for validation; 0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """Sample from the k most likely tokens only; 0 for all. Not part of OpenAI's interface, sent only when set."""
    max_tokens: int = MAX_REPLY_TOKENS
    """Longest answer, with its thought."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the chat template, such as ``{"enable_thinking": False}``."""
    extra_body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More fields of a request to a server, such as ``{"reasoning_effort": "low"}``."""

    def row(self) -> dict[str, Any]:
        """Return the settings as JSON data, without empty ones."""
        return {name: value for name, value in asdict(self).items() if value != {}}


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
    """Messages; a part is ``{"type": "text", "text": ...}`` or an image named by ``frame_id``."""
    images: Mapping[str, EncodedFrame]
    """At least the pictures that the messages name, by frame id."""
    prompt_hash: str
    """Digest of ``messages``; through their frame ids it covers everything that the model sees."""
    sampling: Sampling
    seed: int
    """Source of all randomness of the answer: 63 bits, different for every episode, step and try."""
    sample: int = 0
    """Index of an independent attempt under the same seed, such as a repetition after an unusable answer."""
    json_schema: Mapping[str, Any] | None = None
    """JSON schema that the answer should satisfy; a model that cannot enforce one answers freely."""
    wants_logprobs: bool = False
    """Whether the caller wants token ids and log-probabilities; a model without them leaves them out."""
    wants_tokens: bool = False
    """Whether the caller also wants the text of every token."""
    banned: Sequence[int] = ()
    """Tokens that a server must never sample; an in-process model gets them when it is created."""
    usable: "Callable[[ChatAnswer], bool] | None" = None
    """Predicate of answers that the caller can use; only these are cached. None accepts any text."""
    sent: Sent = field(default_factory=Sent, init=False, compare=False)
    """Counter kept by the model; a copy of the request starts at zero."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """Answer of a model to one request."""

    text: str
    finish_reason: str = FINISHED
    """A server's word, which becomes ``stop``, ``length`` or ``unknown``."""
    token_ids: tuple[int, ...] | None = None
    """Reply tokens, with the end token if the engine returns it."""
    logprobs: tuple[float, ...] | None = None
    """Natural log-probabilities of ``token_ids``, of equal length."""
    tokens: tuple[str, ...] | None = None
    """Text of every token of ``logprobs``, if it was requested and the engine returns it."""
    refusal: str | None = None
    """Message of a model that declined to answer; ``text`` is then empty or part of the refusal."""
    call: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Columns of the ``calls`` table that the model knows: attempts, latency (s), prompt_tokens, completion_tokens,
    cost, cache_hit, model_revision, left_out."""

    def __post_init__(self) -> None:
        """Check the finish reason, so that broken-off answers are never constructed.

        Raises:
            BrokenOffError: neither the model nor the token limit ended the answer.
        """
        text = self.text if self.refusal is None else self.refusal
        # The contract reports other types.
        if isinstance(self.finish_reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            object.__setattr__(self, "finish_reason", ending_of(self.finish_reason, text))


class ModelOptions(Settings):
    """Model and sampling parameters: they decide the answers and are therefore part of ids and receipts."""

    model: str = Field(default="", validate_default=True)
    """Name of the model on the server, a local folder, or a hub id."""
    revision: str | None = None
    """Revision of the model."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sampling temperature; by default 1.0 for replies, as for training rollouts, and 0 for guidance."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling: the share of probability that tokens are sampled from; 1.0 for all of it."""
    top_k: int = Field(default=0, ge=0)
    """Sample from the k most likely tokens; 0 for all."""
    max_tokens: int = Field(default=MAX_REPLY_TOKENS, ge=1)
    """Longest reply in tokens."""
    thinking_tokens: int = Field(default=0, ge=0)
    """Room for the thought of a thinking model, in tokens, in addition to ``max_tokens``."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template, such as ``enable_thinking=false``."""

    @field_validator("model")
    @classmethod
    def _named(cls, model: str) -> str:
        """Refuse the empty default."""
        if not model:
            raise ValueError("no model named; give it with --model, or --writer-model for guidance")
        return model

    def sampling(self, temperature: float) -> Sampling:
        """Return the sampling parameters, with ``temperature`` as the default temperature."""
        chosen = temperature if self.temperature is None else self.temperature
        room = self.max_tokens + self.thinking_tokens
        return Sampling(chosen, self.top_p, self.top_k, room, self.chat_template_kwargs)


_Positive = Annotated[int, Fits(lambda count: count > 0, "a whole number above 0")]
_Connected = Annotated[Any, Fits(lambda model: isinstance(model, ChatModel), "a ChatModel")]


class Backend(Plugin, ABC):
    """One way to run chat models, as a plugin, used by policies and guidance writers alike.

    It has two kinds of settings: *options* decide answers and are part of every id; *service* settings hold the address
    of the model and its load limits.
    """

    name: ClassVar[str]
    extra: ClassVar[str]
    """Optional dependency that brings ``packages``."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Modules that must be installed."""
    service_type: ClassVar[type[Settings]]
    one_process: ClassVar[bool] = False
    """True for a model that is loaded into the calling process."""
    terms: ClassVar[Terms] = Terms(
        arguments=3,
        answers={
            "config": Answer(JsonObject),
            "in_flight": Answer(_Positive),
            "episodes_in_flight": Answer(_Positive),
            "wants_logprobs": Answer(bool),
            "connect": Answer(_Connected),
            "connect_for_preflight": Answer(_Connected),
        },
    )
    episode_seconds: float | None = None
    """Longest time that all replies of one episode may take together; None for no limit."""

    def __init__(self, options: Any, service: Any, role: Role) -> None:
        """Store checked settings; nothing is connected or loaded yet."""
        super().__init__(options)
        self.service = service
        self.role: Role = role

    @classmethod
    def misfit(cls) -> str | None:
        """Return how the class breaks its contract; see the base class."""
        if problem := super().misfit():
            return problem
        if not issubclass(cls.config_type, ModelOptions):
            return f"its config_type is {cls.config_type!r}, expected a subclass of ModelOptions"
        service = getattr(cls, "service_type", None)
        fits = isinstance(service, type) and issubclass(service, Settings)
        return None if fits else f"its service_type is {service!r}, expected a subclass of pivot.core.plugins.Settings"

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the settings besides the request that decide the answer, such as model, revision and precision."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Number of concurrent requests that keep the model busy."""

    @property
    def episodes_in_flight(self) -> int:
        """Number of concurrent episodes that keep the model busy."""
        return self.in_flight

    @property
    def wants_logprobs(self) -> bool:
        """Whether requests for replies ask for token ids and log-probabilities."""
        return True

    def check(self) -> None:
        """Check that everything the model needs is installed, before a long run starts.

        Raises:
            PluginError: something is missing; the message says how to get it.
        """
        for package in self.packages:
            look_for(package, self.extra)

    @abstractmethod
    def connect(self) -> "ChatModel":
        """Return the model; it connects or loads with its first request."""

    def connect_for_preflight(self) -> "ChatModel":
        """Return the model for a pre-flight check: without a cache and with little patience."""
        return self.connect()


class ChatModel(Contract, ABC):
    """Model that answers concurrent chat requests in one event loop; it may batch the requests that wait."""

    terms: ClassVar[Terms] = Terms(
        answers={"config": Answer(JsonObject), "answer": Answer(ChatAnswer), "served_as": Answer(str | None)}
    )

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the settings besides the request that decide the answer: model, revision, and precision if relevant.

        It never holds an address, a key or a limit.
        """

    @abstractmethod
    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request.

        Raises:
            PolicyError: this request could not be answered; others may.
            ServerGoneError: the server is gone: no request will be answered, so the run has to stop.
            ConfigError, PluginError: the set-up is wrong for every request.
        """

    async def served_as(self) -> str | None:
        """Return the server's own name of the checkpoint behind the model name; None if the server has none.

        It stays equal while the server has the same weights, also after restarts. It is part of cache keys, not of ids.
        The errors are those of :meth:`answer`.
        """
        return None

    async def aclose(self) -> None:
        """Release connections, threads and memory; the model is not used again."""


def image_ids(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the frame ids in messages, in the order of display."""
    return [
        part["frame_id"]
        for message in messages
        if not isinstance(message["content"], str)
        for part in message["content"]
        if part["type"] == "image"
    ]
