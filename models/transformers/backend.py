"""The backend ``transformers``: a model loaded into this process once, for all callers."""

from typing import Any, ClassVar

from pydantic import Field

from ...core.plugins import Settings
from ..base import Backend, ChatModel, ModelOptions
from ..service import Unserved
from .model import BATCH_SIZE, EXTRA, PACKAGES, DType, TransformersModel


class TransformersOptions(ModelOptions):
    """Options of a model in this process."""

    dtype: DType = "auto"
    """``auto`` is bfloat16 on a GPU and float32 on a CPU."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    batch_size: int = Field(default=BATCH_SIZE, ge=1)
    """Maximum number of turns per call of ``generate``."""


class TransformersBackend(Backend):
    """A ``save_pretrained`` directory or hub id, without structured output: more guidance requests are repeated."""

    name: ClassVar[str] = "transformers"
    extra: ClassVar[str] = EXTRA
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    config_type: ClassVar[type[Settings]] = TransformersOptions
    service_type: ClassVar[type[Settings]] = Unserved
    one_process: ClassVar[bool] = True
    settings: TransformersOptions

    @property
    def config(self) -> dict[str, Any]:
        """Check that a model is given; its content is read with the first request."""
        return self._model().config

    @property
    def in_flight(self) -> int:
        """Return the size of two batches: the next one gathers while the current one is answered."""
        return 2 * self.settings.batch_size

    def connect(self) -> ChatModel:
        """Return the model, whose weights are loaded with the first request."""
        return self._model()

    def _model(self) -> TransformersModel:
        options = self.settings
        return TransformersModel(options.model, options.revision, options.dtype, options.device, options.batch_size)
