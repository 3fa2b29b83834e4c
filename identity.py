"""Stable identities: digests of JSON values, seeds, and the ids built from them.

Everything here is a pure function of its inputs and equal on every machine and Python version; Python's own ``hash`` is
never used. Ids carry a version prefix so that a later scheme can live beside this one.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

ID_VERSION = "v1"


def canonical_json(value: Any) -> str:
    """Serialise ``value`` with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any, length: int = 32) -> str:
    """Return the first ``length`` hex digits of the SHA-256 of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def derive_seed(*parts: str | int) -> int:
    """Return a 63-bit seed that depends on every part and on their order."""
    joined = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(joined.encode(), digest_size=8).digest(), "big") >> 1


def versioned_id(kind: str, inputs: Mapping[str, Any]) -> str:
    """Return the id of a record from the inputs that made it, never from its results (spec section 9)."""
    return f"{kind}-{ID_VERSION}-{digest(inputs)}"
