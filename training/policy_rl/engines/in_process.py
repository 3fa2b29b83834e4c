"""Generation by the module that is trained: no second copy of the weights, and no synchronisation.

It is a backend like the others, so that policies and the Analyzer use it unchanged. Waiting requests are batched into
one ``generate`` when the event loop has nothing else to do, so the batches are a function of the episodes and not of
timing, as long as no environment blocks. The trainer must not change the module meanwhile.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from ....core.messages import Role
from ....core.plugins import Settings
from ....models.base import Backend, ChatAnswer, ChatModel, ChatRequest
from ....models.extras import need
from ....models.service import Unserved
from ....models.transformers.model import PACKAGES, VERSION, Engine
from ....rollouts.policies import NAME
from ...config import EXTRA
from .base import GenerationOptions, Generator, Trained

QUIET_ROUNDS = 16
"""Rounds of the event loop without a new request after which the batch is complete."""


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
        self._model = InProcessModel(engine, self.config, batch, half=half)
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


class InProcessModel(ChatModel):
    """A chat model that answers waiting requests in one ``generate``."""

    def __init__(self, engine: Engine, config: dict[str, Any], batch: int, *, half: bool) -> None:
        """Generate with ``engine``; see :class:`InProcessBackend`."""
        self._engine, self._config, self._batch, self._half = engine, config, batch, half
        self._waiting: list[tuple[ChatRequest, asyncio.Future[ChatAnswer]]] = []
        self._worker: asyncio.Task[None] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The backend's config."""
        return self._config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request, in a batch with the other waiting requests."""
        future: asyncio.Future[ChatAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    def answer_all(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
        """Return answers in order, made in batches; a request that the model cannot read gets its error."""
        torch: Any = need("torch", EXTRA)
        answers: list[ChatAnswer | Exception] = []
        with torch.autocast(torch.device(self._engine.device).type, torch.bfloat16, enabled=self._half):
            for first in range(0, len(requests), self._batch):
                answers += self._engine.answer(requests[first : first + self._batch])
        return answers

    async def _work(self) -> None:
        while self._waiting:
            await self._quiet()
            batch = self._waiting[: self._batch]
            del self._waiting[: len(batch)]
            pending = [(request, future) for request, future in batch if not future.done()]
            try:
                answers = await asyncio.to_thread(self.answer_all, [request for request, _ in pending])
            except Exception as error:  # noqa: BLE001 - passed to every waiting request
                answers = [error] * len(pending)
            for (_, future), answer in zip(pending, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    async def _quiet(self) -> None:
        """Wait until no further request comes, or the batch is full."""
        quiet, count = 0, len(self._waiting)
        while quiet < QUIET_ROUNDS and count < self._batch:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == count else 0
            count = len(self._waiting)
