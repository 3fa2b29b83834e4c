"""Stable identities: digests of JSON values, seeds, the ids built from them, and draws.

Everything here is a pure function of its inputs and equal on every machine and Python version; Python's own ``hash`` is
never used, nor are ``choice``, ``randrange`` and ``sample`` of ``random``, whose values may change. Ids carry a version
prefix so that a later scheme can live beside this one.
"""

import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

ID_VERSION = "v1"
canonical_json: Callable[[Any], str] = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode
"""Serialises a value with sorted keys and no spaces: equal values give equal text."""


def digest(value: Any, length: int = 32) -> str:
    """Return the first ``length`` hex digits of the SHA-256 of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def derive_seed(*parts: str | int) -> int:
    """Return a 63-bit seed that depends on every part and on their order."""
    joined = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(joined.encode(), digest_size=8).digest(), "big") >> 1


def below(rng: random.Random, count: int) -> int:
    """Return a uniform integer in [0, count): the value that Python 3.11's ``rng.randrange(count)`` gives."""
    bits = count.bit_length()
    drawn = rng.getrandbits(bits)
    while drawn >= count:
        drawn = rng.getrandbits(bits)
    return drawn


def sample_below(rng: random.Random, count: int, size: int) -> list[int]:
    """Return ``size`` different integers in [0, count): those of Python 3.11's ``rng.sample(range(count), size)``."""
    few = 21  # up to this size, a list of all numbers is smaller than a set of the sampled ones
    if size > 5:
        power = 1
        while power < 3 * size:
            power *= 4
        few += power
    if count > few:
        drawn: dict[int, None] = {}
        while len(drawn) < size:
            drawn[below(rng, count)] = None
        return list(drawn)
    left = list(range(count))
    sample: list[int] = []
    for last in range(count - 1, count - 1 - size, -1):
        place = below(rng, last + 1)
        sample.append(left[place])
        left[place] = left[last]
    return sample
