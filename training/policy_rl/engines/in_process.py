"""Generation by the module that is trained: no second copy of the weights, and no synchronisation.

It is a backend like the others, so that policies and the Analyzer use it unchanged. The trainer must not change the
module meanwhile.
"""

from typing import Any, ClassVar

from ....core.messages import Role
from ....core.plugins import Settings
from ....models.base import Backend
from ....models.service import Unserved
from ....models.transformers.model import PACKAGES, VERSION, Engine, InProcessModel
from ....rollouts.policies import NAME
from ...config import EXTRA
from .base import GenerationOptions, Generator, Trained


class InProcessGenerator(Generator):
    """The trained module itself."""

    packages: ClassVar[tuple[str, ...]] = PACKAGES
    extra: ClassVar[str] = EXTRA
    copies_weights: ClassVar[bool] = False

    def backend(self, options: GenerationOptions) -> "InProcessBackend":
        """Return the module as a model."""
        trained: Trained = self.trained
        return InProcessBackend(options, trained.engine, batch=trained.config.generate, half=trained.scorer.half)


class InProcessBackend(Backend):
    """The module that is trained."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = EXTRA
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    config_type: ClassVar[type[Settings]] = GenerationOptions
    service_type: ClassVar[type[Settings]] = Unserved
    one_process: ClassVar[bool] = True
    settings: GenerationOptions

    def __init__(
        self, options: GenerationOptions, engine: Engine, role: Role = "student", *, batch: int, half: bool = False
    ) -> None:
        """Generate with ``engine``, at most ``batch`` replies at a time, in bfloat16 if ``half``."""
        super().__init__(options, Unserved(), role)
        self._model = InProcessModel(lambda: engine, self.config, batch, half=half)
        self._batch = batch

    @property
    def config(self) -> dict[str, Any]:
        """Model, run, update and the version of the sampling."""
        options = self.settings
        return {"model": options.model, "run": options.run, "update": options.update, "version": VERSION}

    @property
    def in_flight(self) -> int:
        """Requests at a time: two batches, so that blocking environments prepare one while the other is answered."""
        return 2 * self._batch

    def connect(self) -> "InProcessModel":
        """Return the model."""
        return self._model
