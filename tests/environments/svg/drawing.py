"""What the tests of the sandbox share; a spawned child has to be able to import it by its name."""

import multiprocessing

import numpy as np
from pivot.environments.svg.sandbox import pool
from pivot.environments.svg.sandbox.process import Worker
from pivot.tests.environments.svg.hostile import svg

CIRCLE = svg('<circle r="30"/>')


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
