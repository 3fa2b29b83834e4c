"""An event loop that a model waits for, without the pauses of Python's garbage collector.

A full collection looks through everything that was ever imported, a million objects: up to half a second in which no
request is sent. What is there when the loop begins is left alone until it ends.
"""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_steadily(work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` in an event loop of its own, like :func:`asyncio.run`."""
    gc.freeze()
    try:
        return asyncio.run(work)
    finally:
        gc.unfreeze()
