"""What a child process of the sandbox's tests runs; a spawned child has to be able to import it by its name."""

import multiprocessing

from pivot.environments.svg.sandbox import pool
from pivot.tests.environments.svg.hostile import svg

CIRCLE = svg('<circle r="30"/>')


def draw_in_child(queue: "multiprocessing.Queue[tuple[int | None, bytes]]") -> None:
    """Draw a circle; send the worker's process id and the pixels."""
    pixels = pool.rasterise(CIRCLE).pixels
    queue.put((pool._worker.pid, b"" if pixels is None else pixels.tobytes()))
