"""Optional fields of a request that a server accepts, found with the first requests.

A single refusal proves nothing: the server may refuse a request temporarily, or because of its content. A field is
dropped for the rest of the run only if the same request is answered without it and refused again with it.
"""

from ..base import ChatRequest
from .wire import LEVELS, RequestEncoder

RENAMED = frozenset({"max_tokens"})
"""Field that is sent under a different name when it is left out."""


class FieldLevels:
    """The level of ``LEVELS`` at which requests are sent to a server."""

    def __init__(self, encoder: RequestEncoder) -> None:
        """Start with all fields."""
        self._encoder = encoder
        self.level = 0
        self.is_settled = False
        """Whether the level holds for the rest of the run."""

    def settle(self, level: int) -> None:
        """Use ``level`` from now on."""
        self.level, self.is_settled = level, True

    def below(self, request: ChatRequest, level: int) -> int | None:
        """Return the next level at which ``request`` has fewer fields than at ``level``; None when there is none."""
        if self.is_settled:  # another request may have settled the level meanwhile
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
        levels = self._encoder.fields(request).keys()
        kept = [levels - without for without in LEVELS]
        return [level for level in range(len(LEVELS)) if level == 0 or kept[level] != kept[level - 1]]
