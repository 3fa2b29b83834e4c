"""The backend ``openai``: a model behind any OpenAI-compatible server, reached through the call cache."""

import re
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field, field_validator

from ...core.plugins import Settings
from ..base import Backend, ChatModel, ModelOptions, Sampling
from ..cache import cached, check_cache
from ..pacing import START
from ..preflight import PATIENCE_SECONDS
from ..service import Service
from .fields import SET_FIELDS
from .model import PACKAGES, OpenAIModel, model_config, refused_fields

VERSION = "1"
"""Raised when equal options get different answers, for example because requests are written differently."""

EPISODES_A_SLOT = 2.0
"""Concurrent episodes per concurrent request. While one episode renders its next picture, another sends its request;
when no new episodes are left, the running ones still fill nearly all slots."""


_KEY = re.compile(r"(?i)authorization|(x-)?api[-_]?key|token|password|secret")
"""Names of fields that hold a key."""


class OpenAIOptions(ModelOptions):
    """Options of a model behind a server."""

    logprobs: bool = True
    """Whether requests for replies ask for token ids and log-probabilities."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """More fields of every request, such as ``{"reasoning_effort": "low"}``."""

    @field_validator("extra_body")
    @classmethod
    def _own_fields(cls, extra_body: dict[str, Any]) -> dict[str, Any]:
        """Refuse fields that PIVOT sets."""
        if keys := sorted(name for name in extra_body if _KEY.fullmatch(name)):
            raise ValueError(f"{', '.join(keys)} would be stored with the data; name the key with key_variable")
        if taken := sorted(extra_body.keys() & SET_FIELDS):
            raise ValueError(f"PIVOT sets {', '.join(taken)} itself; expected other fields")
        return extra_body

    def sampling(self, temperature: float) -> Sampling:
        """Return the sampling parameters; see the base class."""
        return replace(super().sampling(temperature), extra_body=self.extra_body)


class OpenAIBackend(Backend):
    """Chat completions of a server; the number of concurrent requests follows what the server accepts."""

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
        """Return model and revision, never the address."""
        decisive = {"logprobs": self.settings.logprobs} if self.role == "student" else {}
        return {"version": VERSION, **model_config(self.settings.model, self.settings.revision), **decisive}

    @property
    def episode_seconds(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the time limit of the service settings."""
        return self.service.episode_seconds

    @property
    def in_flight(self) -> int:
        """Return the configured cap; the model keeps the actual number below it."""
        return self.service.max_concurrency

    @property
    def episodes_in_flight(self) -> int:
        """Return the most concurrent episodes, a multiple of the requests that the server accepts now."""
        limit = min(START, self.in_flight) if self._model is None else self._model.limit.limit
        return int(limit * EPISODES_A_SLOT) + 1

    @property
    def wants_logprobs(self) -> bool:
        """Return the option ``logprobs``."""
        return self.settings.logprobs

    def connect(self) -> ChatModel:
        """Connect to the server, behind the call cache."""
        self._model = OpenAIModel(self.settings.model, self.settings.revision, self.service)
        return cached(self._model, self.service)

    def connect_for_preflight(self) -> ChatModel:
        """Connect with little patience, and check that the call cache can be used.

        Raises:
            CacheError: the call cache cannot be used.
        """
        check_cache(self.service)
        refused_fields.pop((self.service.base_url, self.settings.model, self.role), None)
        hurry = {
            "patience_seconds": min(self.service.patience_seconds, PATIENCE_SECONDS),
            "longest_pause": min(self.service.longest_pause, PATIENCE_SECONDS / 5),
        }
        return OpenAIModel(self.settings.model, self.settings.revision, self.service.model_copy(update=hurry))
