"""The policy ``openai``: a vision-language model behind any OpenAI-compatible server acts."""

from typing import Any, ClassVar

from ...errors import ConfigError
from ...models.base import MAX_REPLY_TOKENS, ChatModel, Sampling
from ...models.cache import cached
from ...models.extras import need
from ...models.openai.model import PACKAGES, OpenAIModel, model_config
from ...models.pacing import START
from ...models.service import Service
from .base import ModelPolicy

VERSION = "1"
"""Goes up when the same options get other replies, as by another way to write requests."""

EPISODES_A_SLOT = 1.25
"""Episodes in flight for each request that may be in flight: while one draws its next picture, another one asks."""


class OpenAIPolicy(ModelPolicy):
    """Sends every turn to a chat completions server."""

    name: ClassVar[str] = "openai"

    def __init__(
        self,
        model: str = "",
        revision: str | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        max_tokens: int = MAX_REPLY_TOKENS,
        logprobs: bool = True,
        **service: Any,
    ) -> None:
        """Take options (what decides the replies), then service settings (see :class:`Service`).

        Raises:
            ConfigError: no model is named, or a number is out of range.
        """
        if not model:
            raise ConfigError("policy openai: no model named; give it with --model NAME, as the server calls it")
        if max_tokens > MAX_REPLY_TOKENS:
            raise ConfigError(f"policy openai: max_tokens {max_tokens}; a reply has at most {MAX_REPLY_TOKENS} tokens")
        super().__init__(Sampling(temperature, top_p, top_k, max_tokens))
        self.model = model
        self.revision = revision
        self.wants_logprobs = logprobs
        self.service = Service(**service)
        self.episode_seconds = self.service.episode_seconds
        self._openai: OpenAIModel | None = None

    @property
    def model_config(self) -> dict[str, Any]:
        """Model and revision, never the address."""
        return {"version": VERSION, **model_config(self.model, self.revision), "logprobs": self.wants_logprobs}

    @property
    def episodes_in_flight(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Follows the number of requests that the server takes."""
        limit = min(START, self.service.max_concurrency) if self._openai is None else self._openai.limit.limit
        return int(limit * EPISODES_A_SLOT) + 1

    def check(self) -> None:
        """See whether the extra is installed.

        Raises:
            PluginError: it is not.
        """
        for package in PACKAGES:
            need(package, "openai")

    def make_model(self) -> ChatModel:
        """Connect to the server, behind the call cache."""
        self._openai = OpenAIModel(self.model, self.revision, self.service)
        return cached(self._openai, self.service)
