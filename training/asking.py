"""Requests about many cases, enough of them at a time to keep a model busy; the Analyzer and the benchmark share it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from ..models.base import Backend, ChatModel

READ_AHEAD = 8
"""Cases that one thread call reads, because a thread switch costs more than a read, and the least number that waits for
the model, so that a slow read does not leave it idle. A collage has up to 1 MB."""

Case = TypeVar("Case")
Result = TypeVar("Result")


def ask_all(
    backend: Backend,
    cases: Iterable[Case],
    ask: Callable[[ChatModel, Case], Awaitable[Result]],
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Return the result of every case, in order; a separate thread reads a few cases ahead.

    Args:
        backend: model to connect to.
        cases: the cases, read when they are needed.
        ask: sends the requests about one case; what it raises ends the run.
        on_result: receives every result, in the order in which they come.

    Raises:
        ServerGoneError: the server does not answer.
        ConfigError, PluginError: the model cannot be used with these settings.
    """
    return asyncio.run(_ask_all(backend, iter(cases), ask, on_result or (lambda _: None)))


async def _ask_all(
    backend: Backend,
    cases: Iterator[Case],
    ask: Callable[[ChatModel, Case], Awaitable[Result]],
    on_result: Callable[[Result], None],
) -> list[Result]:
    model = backend.connect()
    results: dict[int, Result] = {}
    numbered = enumerate(cases)
    reading, ready = asyncio.Lock(), deque[tuple[int, Case]]()

    async def work() -> None:
        while True:
            async with reading:
                if not ready:
                    ready.extend(await asyncio.to_thread(lambda: list(islice(numbered, READ_AHEAD))))
                if not ready:
                    return
                number, case = ready.popleft()
            results[number] = await ask(model, case)
            on_result(results[number])

    # More workers than requests at a time: some read from disk while the others wait for answers.
    count = backend.in_flight + max(READ_AHEAD, backend.in_flight // 4)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    finally:
        await model.aclose()
    return [results[number] for number in sorted(results)]
