"""The model ``openai``: behind any OpenAI-compatible server, reached through the call cache."""

from typing import Any, ClassVar

from ...plugins import Settings
from ..base import Backend, ChatModel, ModelOptions
from ..cache import cached, check_cache
from ..pacing import START
from ..preflight import PATIENCE_SECONDS
from ..service import Service
from .model import PACKAGES, OpenAIModel, model_config

VERSION = "1"
"""Goes up when the same options get other answers, as by another way to write requests."""

EPISODES_A_SLOT = 2.0
"""Episodes in flight for each request that may be in flight. While one draws its next picture, another one asks; and
when no new ones are left, enough of them are on their way to fill all slots nearly to the end."""


class OpenAIOptions(ModelOptions):
    """Options of a model behind a server."""

    logprobs: bool = True
    """Whether replies are asked for with token ids and log-probabilities."""


class OpenAIBackend(Backend):
    """Chat completions; the number of requests follows what the server takes."""

    name: ClassVar[str] = "openai"
    extra: ClassVar[str] = "openai"
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    config_type: ClassVar[type[Settings]] = OpenAIOptions
    service_type: ClassVar[type[Settings]] = Service
    settings: OpenAIOptions
    service: Service
    _model: OpenAIModel | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Model and revision, never the address."""
        asked = {"logprobs": self.settings.logprobs} if self.role == "student" else {}
        return {"version": VERSION, **model_config(self.settings.model, self.settings.revision), **asked}

    @property
    def episode_seconds(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the service settings say."""
        return self.service.episode_seconds

    @property
    def in_flight(self) -> int:
        """The limit that may not be exceeded; the model keeps the real number below it."""
        return self.service.max_concurrency

    @property
    def episodes_in_flight(self) -> int:
        """Follows the number of requests that the server takes."""
        limit = min(START, self.in_flight) if self._model is None else self._model.limit.limit
        return int(limit * EPISODES_A_SLOT) + 1

    @property
    def wants_logprobs(self) -> bool:
        """As the options say."""
        return self.settings.logprobs

    def connect(self) -> ChatModel:
        """Connect to the server, behind the call cache."""
        self._model = OpenAIModel(self.settings.model, self.settings.revision, self.service)
        return cached(self._model, self.service)

    def connect_for_preflight(self) -> ChatModel:
        """Connect with little patience, and see whether the call cache can be used.

        Raises:
            CacheError: it cannot.
        """
        check_cache(self.service)
        hurry = {
            "patience_seconds": min(self.service.patience_seconds, PATIENCE_SECONDS),
            "longest_pause": min(self.service.longest_pause, PATIENCE_SECONDS / 5),
        }
        return OpenAIModel(self.settings.model, self.settings.revision, self.service.model_copy(update=hurry))
