"""The contract of a chat model: one request, one answer, wherever the model runs.

Policies and teachers are thin layers over a :class:`ChatModel`: one behind an OpenAI-compatible server, one loaded into
this process, or any other that implements ``answer``. A request says everything that decides its answer, so that a call
cache can stand between the two. What an answer cost is part of it and ends up in the ``calls`` table.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from ..errors import ConfigError
from ..messages import EncodedFrame
from ..plugins import Plugin, Settings
from .extras import look_for

Role = Literal["student", "teacher", "analyzer"]

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


@dataclass(slots=True)
class Sent:
    """Counts what was sent for one request, whatever becomes of it: an answer, an error, or the end of the run."""

    tries: int = 0


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
    wants_tokens: bool = False
    """Whether the text of every token is of use, too, to tell which of them spell what."""
    banned: Sequence[int] = ()
    """Tokens that shall never be drawn, for models behind a server; one that is loaded here is told when it is made."""
    usable: "Callable[[ChatAnswer], bool] | None" = None
    """Whether the asker can use an answer; only such a one is worth caching. None for whoever takes any text."""
    sent: Sent = field(default_factory=Sent, init=False, compare=False)
    """Counted by the model; a copy of the request begins anew."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What a model answered."""

    text: str
    finish_reason: str = FINISHED
    token_ids: tuple[int, ...] | None = None
    """Reply tokens, the end token included where the engine counts it."""
    logprobs: tuple[float, ...] | None = None
    """Natural log-probabilities of ``token_ids``, equally many."""
    tokens: tuple[str, ...] | None = None
    """Text of every token that ``logprobs`` speaks about, where it was asked for and the engine tells."""
    refusal: str | None = None
    """The model's own words when it declined to answer; ``text`` is then empty or part of the refusal."""
    call: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Columns of the ``calls`` table that the model knows: attempts, latency (s), prompt_tokens, completion_tokens,
    cost, cache_hit, model_revision, left_out."""


class ModelOptions(Settings):
    """Which model, and how it draws its answers: all of it decides them, so all of it is part of ids and receipts."""

    model: str = Field(default="", validate_default=True)
    """Its name on the server, a folder, or a hub id."""
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

    @field_validator("model")
    @classmethod
    def _named(cls, model: str) -> str:
        """Refuse the default: nobody knows which model is meant."""
        if not model:
            raise ValueError("no model named; give it with --model, or --teacher-model for guidance")
        return model

    def sampling(self, temperature: float) -> Sampling:
        """Return how tokens are drawn, by default at ``temperature``.

        Raises:
            ConfigError: a number is out of range.
        """
        chosen = temperature if self.temperature is None else self.temperature
        return Sampling(chosen, self.top_p, self.top_k, self.max_tokens)


class Backend(Plugin, ABC):
    """One way to run chat models, as a plugin: policies and guidance writers are made on it alike.

    Two kinds of settings come in: *options* decide answers and are part of every id, *service* settings say where the
    model is and how hard it may be driven.
    """

    name: ClassVar[str]
    extra: ClassVar[str]
    """Optional dependency that brings ``packages``."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Modules that have to be installed."""
    service_type: ClassVar[type[Settings]]
    one_process: ClassVar[bool] = False
    """True for a model that is loaded into the process that asks."""
    episode_seconds: float | None = None
    """Longest time that all replies of one episode may take together; None for no limit."""

    def __init__(self, options: Any, service: Any, role: Role) -> None:
        """Take checked settings; nothing is connected or loaded yet."""
        super().__init__(options)
        self.service = service
        self.role: Role = role

    @classmethod
    def misfit(cls) -> str | None:
        """Say what of the class breaks its contract; see the base class."""
        if problem := super().misfit():
            return problem
        if not issubclass(cls.config_type, ModelOptions):
            return f"its config_type is {cls.config_type!r}, expected a subclass of ModelOptions"
        service = getattr(cls, "service_type", None)
        fits = isinstance(service, type) and issubclass(service, Settings)
        return None if fits else f"its service_type is {service!r}, expected a subclass of pivot.plugins.Settings"

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What decides the answers beside the request: model, revision, how it is run; never an address or limit."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Requests that keep the model busy."""

    @property
    def episodes_in_flight(self) -> int:
        """Episodes that do."""
        return self.in_flight

    @property
    def wants_logprobs(self) -> bool:
        """Whether replies are asked for with token ids and log-probabilities."""
        return True

    def check(self) -> None:
        """See whether everything that the model needs is installed, before a long run starts.

        Raises:
            PluginError: something is missing; the message says how to get it.
        """
        for package in self.packages:
            look_for(package, self.extra)

    @abstractmethod
    def connect(self) -> "ChatModel":
        """Connect to the model, or name the one that is loaded with the first request."""

    def connect_for_preflight(self) -> "ChatModel":
        """Connect for one request before a run: no cache answers it, and a server that does not is soon given up."""
        return self.connect()


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

    async def served_as(self) -> str | None:
        """Return what tells apart the checkpoints that a server has under one name; None where nothing does.

        Equal as long as the server has the same weights, however often it is started anew. A part of cache keys, not of
        ids. The errors are those of :meth:`answer`.
        """
        return None

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
