"""Near matches for misspelt names; imports nothing, because ``import pivot`` uses it."""

import difflib
from collections.abc import Iterable


def near_match(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean 'workers'?`` for a name that is close to one of ``names``, else nothing."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
