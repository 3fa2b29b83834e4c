"""A thread that answers waiting requests in batches, so that an in-process model serves many episodes.

Requests come from any thread or event loop. While a batch is answered, new requests wait; the next batch takes as many
as fit. Episodes that were answered together ask again together, so the thread waits a moment for the last of them.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")

LINGER_SECONDS = 0.01
"""Time that an incomplete batch waits for one more request; a forward pass takes many times as long."""


class BatchingThread(Generic[Request, Answer]):
    """Thread that answers requests in batches of at most ``size``."""

    def __init__(
        self, name: str, size: int, answer: Callable[[Sequence[Request]], Sequence[Answer | Exception]]
    ) -> None:
        """Start the thread.

        Args:
            name: name of the thread.
            size: most requests per batch.
            answer: returns one answer or error per request of a batch, in order; an error it raises goes to all.
        """
        self._size = size
        self._answer = answer
        self._waiting: queue.SimpleQueue[tuple[Request, Future[Answer]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, request: Request) -> "Future[Answer]":
        """Queue a request; its future can be cancelled until its batch begins."""
        future: Future[Answer] = Future()
        self._waiting.put((request, future))
        return future

    def _work(self) -> None:
        while True:
            batch = [each for each in self._gather() if each[1].set_running_or_notify_cancel()]
            if not batch:
                continue
            try:
                answers = self._answer([request for request, _ in batch])
                if len(answers) != len(batch):
                    raise RuntimeError(f"{len(answers)} answers to {len(batch)} requests")
            except Exception as error:  # noqa: BLE001 - passed to every waiting request
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _gather(self) -> list[tuple[Request, "Future[Answer]"]]:
        batch = [self._waiting.get()]
        while len(batch) < self._size:
            try:
                batch.append(self._waiting.get(timeout=LINGER_SECONDS))
            except queue.Empty:
                break
        return batch
