"""The contract of a guidance writer that waits for a model."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...core.contracts import Answer, Fits, Terms
from ...core.messages import EncodedFrame, PromptMessages
from ..base import Guidance, GuidanceRequest, GuidanceWriter


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that is ready for the model; small enough to be sent between processes."""

    request: GuidanceRequest
    """The request without frames."""
    prompt: PromptMessages
    picture: EncodedFrame
    """The picture in the prompt."""


class ConcurrentWriter(GuidanceWriter):
    """A writer that waits for a model: the event loop of a process requests guidance for several shards at a time.

    ``prepare`` does the work that needs no model.
    """

    served: ClassVar[bool] = True
    terms: ClassVar[Terms] = Terms(
        answers={
            "in_flight": Answer(Annotated[int, Fits(lambda count: count > 0, "a whole number above 0")]),
            "prepare": Answer(PreparedRequest),
            "answer": Answer(Guidance),
        }
    )

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Largest number of concurrent requests, enough to keep the model busy."""

    @abstractmethod
    def prepare(self, request: GuidanceRequest) -> PreparedRequest:
        """Render the first prompt of a request."""

    @abstractmethod
    async def answer(self, prepared: PreparedRequest) -> Guidance:
        """Ask the model; a request that got no answer is ``unanswered``.

        Raises:
            ServerGoneError: the server is lost; the run stops and can be resumed.
            ConfigError, PluginError, CacheError: the model cannot be used with these settings.
        """

    async def aclose(self) -> None:
        """Release the model; another event loop may use the writer afterwards."""

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Answer ``requests``, in order, in an event loop of their own; the errors are those of :meth:`answer`."""
        return asyncio.run(self._write(requests)) if requests else []

    async def _write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        slots = asyncio.Semaphore(self.in_flight)

        async def write_one(request: GuidanceRequest) -> Guidance:
            async with slots:
                return await self.answer(self.prepare(request))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(write_one(request)) for request in requests]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        finally:
            await self.aclose()
        return [each.result() for each in tasks]
