"""The teachers ``transformers`` and ``vllm``: a model in this process, loaded once for policy and teacher."""

from typing import Any, ClassVar

from ...models import vllm as vllm_model
from ...models.base import ChatModel, Sampling
from ...models.extras import look_for
from ...models.transformers import model as transformers_model
from ...models.transformers.model import BATCH_SIZE, DType, TransformersModel, named
from ...models.vllm import VllmModel
from .model import MAX_ANSWER_TOKENS, ModelTeacher


class TransformersTeacher(ModelTeacher):
    """Guidance by a model that transformers loads; it answers freely, so that more answers are asked for again."""

    name: ClassVar[str] = "transformers"
    one_process: ClassVar[bool] = True

    def __init__(
        self,
        model: str = "",
        revision: str | None = None,
        dtype: DType = "auto",
        temperature: float = 0.0,
        max_tokens: int = MAX_ANSWER_TOKENS,
        device: str = "auto",
        batch_size: int = BATCH_SIZE,
        refresh: bool = False,
    ) -> None:
        """Ask ``model``; see :class:`~pivot.models.transformers.model.TransformersModel`."""
        super().__init__(Sampling(temperature, max_tokens=max_tokens), concurrency=2 * batch_size)
        del refresh  # nothing is cached
        self._model = TransformersModel(named(model, self.name), revision, dtype, device, batch_size)

    @property
    def model_config(self) -> dict[str, Any]:
        """What decides the answers beside the sampling."""
        return self._model.config

    def check(self) -> None:
        """See whether the extra is installed.

        Raises:
            PluginError: it is not.
        """
        for package in transformers_model.PACKAGES:
            look_for(package, transformers_model.EXTRA)

    def make_model(self) -> ChatModel:
        """Return the model; its weights are loaded with the first request."""
        return self._model


class VllmTeacher(ModelTeacher):
    """Guidance by a model in a vLLM engine, whose structured output keeps every answer in shape."""

    name: ClassVar[str] = "vllm"
    one_process: ClassVar[bool] = True

    def __init__(
        self,
        model: str = "",
        revision: str | None = None,
        dtype: DType = "auto",
        temperature: float = 0.0,
        max_tokens: int = MAX_ANSWER_TOKENS,
        engine: dict[str, Any] | None = None,
        refresh: bool = False,
    ) -> None:
        """Ask ``model``; see :class:`~pivot.models.vllm.VllmModel`."""
        super().__init__(Sampling(temperature, max_tokens=max_tokens), concurrency=256)
        del refresh  # nothing is cached
        self._settings = (named(model, self.name), revision, dtype, engine)
        self._config = VllmModel(*self._settings).config

    @property
    def model_config(self) -> dict[str, Any]:
        """What decides the answers beside the sampling."""
        return self._config

    def check(self) -> None:
        """See whether the extra is installed.

        Raises:
            PluginError: it is not.
        """
        look_for(vllm_model.EXTRA, vllm_model.EXTRA)

    def make_model(self) -> ChatModel:
        """Return the model; its engine starts with the first request."""
        return VllmModel(*self._settings)
