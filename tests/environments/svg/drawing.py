"""Helpers that the tests of the sandbox share; a spawned child has to be able to import this module by its name."""

import multiprocessing
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from pivot.environments.svg.sandbox import pool
from pivot.environments.svg.sandbox.process import Worker
from pivot.tests.environments.svg.hostile import svg

CIRCLE = svg('<circle r="30"/>')


@cache
def draw_alone(document: str) -> np.ndarray:
    """Return the picture of a document from a worker that draws nothing else."""
    with Worker() as worker:
        pixels = worker.draw(document).pixels
    assert pixels is not None
    return pixels


def same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether there are two pictures, and they are equal."""
    return one is not None and other is not None and np.array_equal(one, other)


def draw_in_child(queue: "multiprocessing.Queue[tuple[list[int], bytes]]") -> None:
    """Draw a circle; send the workers' process ids and the pixels."""
    pixels = pool.rasterise(CIRCLE).pixels
    queue.put((pool._pool.pids, b"" if pixels is None else pixels.tobytes()))


def draw_beside_children() -> None:
    """Draw before and after a child process of this one draws: both have workers of their own, and the child's ends."""
    for method in ("fork", "spawn"):
        _draw_beside_a_child(multiprocessing.get_context(method))


def _draw_beside_a_child(context: Any) -> None:
    mine = pool.rasterise(CIRCLE).pixels
    assert mine is not None
    queue = context.Queue()
    child = context.Process(target=draw_in_child, args=(queue,))
    child.start()
    (pid,), pixels = queue.get(timeout=600)
    child.join(600)
    assert child.exitcode == 0
    assert pid not in pool._pool.pids
    deadline = monotonic() + 600
    while Path(f"/proc/{pid}").exists():  # it ends when its pipe is closed
        assert monotonic() < deadline
        sleep(0.01)
    assert pixels == draw_alone(CIRCLE).tobytes() == mine.tobytes()
    assert same(pool._pool.draw(CIRCLE).pixels, mine), "the parent's worker is untouched"
