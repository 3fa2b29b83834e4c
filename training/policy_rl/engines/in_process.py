"""Generation by the very module that is trained: no second copy of the weights, and nothing to keep in step.

It is a backend like any other, so that policies and the Analyzer stand on it unchanged. Requests that wait together go
through one ``generate``; which do is a function of the episodes alone, not of timing, as long as no environment blocks:
a batch is taken when the event loop has nothing else left to do. The trainer must not touch the module meanwhile.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from ....models.base import Backend, ChatAnswer, ChatModel, ChatRequest, ModelOptions, Role
from ....models.extras import need
from ....models.service import Unserved
from ....models.transformers.model import PACKAGES, VERSION, Engine
from ....plugins import Settings
from ....rollouts.policies import NAME
from ...encode import EXTRA

torch: Any = need("torch", EXTRA)

QUIET_ROUNDS = 16
"""Rounds of the event loop without a new request after which everyone who is going to ask has asked."""


class InProcessOptions(ModelOptions):
    """What decides the replies: which run, and how far its weights have come."""

    run: str = ""
    """Digest of the run's settings."""
    update: int = Field(default=0, ge=0)
    """Updates that the weights have had; part of every episode id, so that no two updates draw the same noise."""


class InProcessBackend(Backend):
    """The module that is being trained."""

    name: ClassVar[str] = NAME
    extra: ClassVar[str] = EXTRA
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    config_type: ClassVar[type[Settings]] = InProcessOptions
    service_type: ClassVar[type[Settings]] = Unserved
    one_process: ClassVar[bool] = True
    settings: InProcessOptions

    def __init__(
        self, options: InProcessOptions, engine: Engine, role: Role = "student", *, batch: int, half: bool = False
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
        """Two batches: while one is answered, blocking environments bring the next."""
        return 2 * self._batch

    def connect(self) -> "InProcessModel":
        """Return the model."""
        return self._model


class InProcessModel(ChatModel):
    """Answers the requests that wait together in one ``generate``."""

    def __init__(self, engine: Engine, config: dict[str, Any], batch: int, *, half: bool) -> None:
        """See :class:`InProcessBackend`."""
        self._engine, self._config, self._batch, self._half = engine, config, batch, half
        self._waiting: list[tuple[ChatRequest, asyncio.Future[ChatAnswer]]] = []
        self._worker: asyncio.Task[None] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """See the backend."""
        return self._config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request together with those that wait beside it."""
        future: asyncio.Future[ChatAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    def answer_all(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
        """Answer requests in batches of their order; one that cannot be shown to the model gets its error."""
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
            asked = [(request, future) for request, future in batch if not future.done()]
            try:
                answers = await asyncio.to_thread(self.answer_all, [request for request, _ in asked])
            except Exception as error:  # noqa: BLE001 - handed on to everyone who waits
                answers = [error] * len(asked)
            for (_, future), answer in zip(asked, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    async def _quiet(self) -> None:
        """Wait until no further request comes, or a batch is full."""
        quiet, count = 0, len(self._waiting)
        while quiet < QUIET_ROUNDS and count < self._batch:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == count else 0
            count = len(self._waiting)
