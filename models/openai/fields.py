"""Which optional fields of a request a server takes: found out with the first requests, given up one after the other.

One refusal proves nothing, since a server may refuse a request for a moment or for what it holds. A field is given up
for the rest of the run when the same request is answered without it and refused again with it.
"""

from ..base import ChatRequest
from .wire import LEVELS, RequestEncoder

RENAMED = frozenset({"max_tokens"})
"""Sent by another name where it is left out."""


class FieldLevels:
    """The level of ``LEVELS`` that a server is asked at."""

    def __init__(self, encoder: RequestEncoder) -> None:
        """Begin with all fields."""
        self._encoder = encoder
        self.level = 0
        self.is_settled = False
        """Whether the level holds for the rest of the run."""

    def settle(self, level: int) -> None:
        """Ask at ``level`` from now on."""
        self.level, self.is_settled = level, True

    def below(self, request: ChatRequest, level: int) -> int | None:
        """Return the next level at which ``request`` has fewer fields than at ``level``; None when there is none."""
        if self.is_settled:  # others may have found the level out meanwhile
            return self.level if self.level > level else None
        return next((each for each in self._levels(request) if each > level), None)

    def above(self, request: ChatRequest, level: int) -> int | None:
        """Return the next level at which ``request`` has more fields; None when there is none."""
        return next((each for each in reversed(self._levels(request)) if each < level), None)

    def left_out(self, request: ChatRequest, level: int) -> tuple[str, ...]:
        """Name the fields that ``request`` lacks at ``level``."""
        if level == 0:
            return ()
        return tuple(sorted((LEVELS[level] - RENAMED) & self._encoder.fields(request).keys()))

    def _levels(self, request: ChatRequest) -> list[int]:
        """Return the levels at which the request differs from the one above, the first one included."""
        asked = self._encoder.fields(request).keys()
        kept = [asked - without for without in LEVELS]
        return [level for level in range(len(LEVELS)) if level == 0 or kept[level] != kept[level - 1]]
