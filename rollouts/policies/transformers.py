"""The policy ``transformers``: a model in this process acts."""

from typing import Any, ClassVar

from ...models.base import MAX_REPLY_TOKENS, ChatModel, Sampling
from ...models.extras import look_for
from ...models.transformers.model import BATCH_SIZE, EXTRA, PACKAGES, DType, TransformersModel, named
from .base import ModelPolicy


class TransformersPolicy(ModelPolicy):
    """The policy ``transformers``: a model in this process acts."""

    name: ClassVar[str] = "transformers"

    def __init__(
        self,
        model: str = "",
        revision: str | None = None,
        dtype: DType = "auto",
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        max_tokens: int = MAX_REPLY_TOKENS,
        device: str = "auto",
        batch_size: int = BATCH_SIZE,
        refresh: bool = False,
    ) -> None:
        """Act with ``model``; see :class:`TransformersModel` and :class:`Sampling`.

        Raises:
            ConfigError: no model is named, or a setting is out of range.
        """
        super().__init__(Sampling(temperature, top_p, top_k, max_tokens))
        del refresh  # nothing is cached
        self.episodes_in_flight = 2 * batch_size  # the next batch gathers while one is answered
        self._chat = TransformersModel(named(model, self.name), revision, dtype, device, batch_size)

    @property
    def model_config(self) -> dict[str, Any]:
        """What decides the replies beside the sampling."""
        return self._chat.config

    def check(self) -> None:
        """See whether the extra is installed.

        Raises:
            PluginError: it is not.
        """
        for package in PACKAGES:
            look_for(package, EXTRA)

    def make_model(self) -> ChatModel:
        """Return the model; its weights are loaded with the first turn."""
        return self._chat
