"""A process that fills a call cache until it is killed."""

import time
from pathlib import Path

from pivot.core.identity import digest
from pivot.models.cache import CallCache


def store_answers(path: Path, number: int) -> None:
    """Store answers without end; each can be checked from its request."""
    cache = CallCache(path)
    seed = number * 1_000_000
    while True:
        seed += 1
        facts = {"model": {"model": "m"}, "prompt_hash": "p", "seed": seed}
        cache.put(digest(facts), facts, "student", {"text": f"answer {seed} " * 50})
        time.sleep(0.0005)
