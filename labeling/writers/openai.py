"""The teacher ``openai``: guidance by a vision-language model behind any OpenAI-compatible server."""

from typing import Any, ClassVar

from ...errors import ConfigError
from ...models.base import ChatModel, Sampling
from ...models.cache import cached
from ...models.extras import look_for
from ...models.openai.model import PACKAGES, OpenAIModel, model_config
from ...models.service import Service
from .model import MAX_ANSWER_TOKENS, ModelTeacher

VERSION = "1"
"""Goes up when the same options get other answers, as by another way to write requests."""


class OpenAITeacher(ModelTeacher):
    """Asks a chat completions server, with structured output where the server has it."""

    name: ClassVar[str] = "openai"

    def __init__(
        self,
        model: str = "",
        revision: str | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        max_tokens: int = MAX_ANSWER_TOKENS,
        **service: Any,
    ) -> None:
        """Take options (what decides the answers), then service settings (see :class:`Service`).

        Raises:
            ConfigError: no model is named, or a number is out of range.
        """
        if not model:
            raise ConfigError("teacher openai: no model named; give the name that the server uses with --teacher-model")
        self.service = Service(**service)
        super().__init__(Sampling(temperature, top_p, max_tokens=max_tokens), self.service.max_concurrency)
        self.model = model
        self.revision = revision

    @property
    def model_config(self) -> dict[str, Any]:
        """Model and revision, never the address."""
        return {"version": VERSION, **model_config(self.model, self.revision)}

    def check(self) -> None:
        """See whether the extra is installed.

        Raises:
            PluginError: it is not.
        """
        for package in PACKAGES:
            look_for(package, "openai")

    def make_model(self) -> ChatModel:
        """Connect to the server, behind the call cache."""
        return cached(OpenAIModel(self.model, self.revision, self.service), self.service)
