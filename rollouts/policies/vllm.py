"""The policy ``vllm``: a model in a vLLM engine of this process acts."""

from typing import Any, ClassVar

from ...models.base import MAX_REPLY_TOKENS, ChatModel, Sampling
from ...models.extras import look_for
from ...models.transformers.model import DType, named
from ...models.vllm import EXTRA, VllmModel
from .base import ModelPolicy


class VllmPolicy(ModelPolicy):
    """The policy ``vllm``: a model in a vLLM engine of this process acts."""

    name: ClassVar[str] = "vllm"

    def __init__(
        self,
        model: str = "",
        revision: str | None = None,
        dtype: DType = "auto",
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        max_tokens: int = MAX_REPLY_TOKENS,
        engine: dict[str, Any] | None = None,
        refresh: bool = False,
    ) -> None:
        """Act with ``model``; see :class:`VllmModel` and :class:`Sampling`.

        Raises:
            ConfigError: no model is named, or a setting is out of range.
        """
        super().__init__(Sampling(temperature, top_p, top_k, max_tokens))
        del refresh  # nothing is cached
        self.episodes_in_flight = 256  # vLLM's default number of sequences in one step
        self._chat_settings = (named(model, self.name), revision, dtype, engine)
        self._config = VllmModel(*self._chat_settings).config

    @property
    def model_config(self) -> dict[str, Any]:
        """What decides the replies beside the sampling."""
        return self._config

    def check(self) -> None:
        """See whether the extra is installed.

        Raises:
            PluginError: it is not.
        """
        look_for(EXTRA, EXTRA)

    def make_model(self) -> ChatModel:
        """Return the model; its engine starts with the first turn."""
        return VllmModel(*self._chat_settings)
