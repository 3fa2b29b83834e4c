"""What a child process of the sandbox's tests runs; a spawned child has to be able to import it by its name."""

import multiprocessing

from pivot.environments import _svg_sandbox
from pivot.tests.svg_hostile import svg

CIRCLE = svg('<circle r="30"/>')


def draw_in_child(queue: "multiprocessing.Queue[tuple[int | None, bytes]]") -> None:
    """Draw a circle; send the worker's process id and the pixels."""
    pixels = _svg_sandbox.rasterise(CIRCLE).pixels
    queue.put((_svg_sandbox._worker.pid, b"" if pixels is None else pixels.tobytes()))
