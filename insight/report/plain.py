"""Values of a store as JSON that any browser reads back unchanged."""

import json
import math
from typing import Any

EXACT_INTEGER = 2**53
"""Integers beyond it are no numbers of JavaScript; they are given as text."""


def plain(value: Any) -> Any:
    """Return data as JSON has it: a float that is no number as null, a large integer as text, bytes as hex digits.

    Raises:
        RecursionError: it is nested too deeply.
    """
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return value if abs(value) <= EXACT_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.hex() if isinstance(value, bytes) else str(value)


def parsed(text: str | None) -> Any:
    """Return what a JSON column holds; a text that is no JSON, or is nested without end, as it is."""
    if text is None:
        return None
    try:
        return plain(json.loads(text))
    except (ValueError, RecursionError):
        return text


def json_text(record: Any) -> str:
    """Return a record as one line of JSON in ASCII, so that no character of it means anything to a script."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


def script(name: str, text: str) -> bytes:
    """Wrap JSON as a script: from disk a page may load scripts, but no data.

    The JSON is one string of the script, so nothing of it is run and every key is only a key.
    """
    return f"Pivot.put({json.dumps(name)},{json.dumps(text)});\n".encode("ascii")
