"""Values of a store as JSON that any browser reads back unchanged."""

import json
import math
from typing import Any

EXACT_INTEGER = 2**53
"""Limit of exact integers in JavaScript; larger ones are written as text."""


def plain(value: Any, largest: float = EXACT_INTEGER) -> Any:
    """Return data as JSON: NaN and infinity as null, an integer above ``largest`` as text, bytes as hex digits.

    Raises:
        RecursionError: it is nested too deeply.
    """
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return value if abs(value) <= largest else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(each, largest) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, largest) for each in value]
    return value.hex() if isinstance(value, bytes) else str(value)


def parsed(text: str | None) -> Any:
    """Return the parsed content of a JSON column; invalid or deeply nested JSON is returned as text."""
    if text is None:
        return None
    try:
        return plain(json.loads(text))
    except (ValueError, RecursionError):
        return text


def json_text(record: Any) -> str:
    """Return a record as one line of JSON in ASCII, so that none of its characters has a meaning in a script."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


def script(name: str, text: str) -> bytes:
    """Wrap JSON as a script: a page that is opened from disk may load scripts, but no data.

    The JSON is one string literal, so that none of it is executed and every key stays a key.
    """
    return f"Pivot.put({json.dumps(name)},{json.dumps(text)});\n".encode("ascii")
