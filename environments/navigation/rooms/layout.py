"""Placing furniture in an empty room: along walls, in the open, or beside something that stands already.

A layout knows the rectangles that are taken and what hangs on the walls. Nothing is forced: a piece that finds no place
within a few tries is left out, and the generator looks at what came of it.
"""

import random
from collections.abc import Sequence

from ...grid import pick
from .parts import Item, Placed, Rectangle, between, overlap, shuffled

HEIGHT = 2600
"""Of all rooms, millimetres."""
_TRIES = 14
_GRID = 50


class Layout:
    """A room while it is being furnished; lengths in millimetres."""

    def __init__(self, rng: random.Random, width: int, depth: int) -> None:
        """Start with bare walls."""
        self.rng = rng
        self.width, self.depth = width, depth
        self.placed: list[Placed] = []
        self.taken: list[Rectangle] = []
        self._hangings: list[list[tuple[int, int, int]]] = [[], [], [], []]

    def wall_length(self, wall: int) -> int:
        """Return how long a wall is; furniture on wall ``n`` is turned ``n`` quarters."""
        return self.width if wall in (0, 2) else self.depth

    def against(self, item: Item, wall: int, offset: int, y: int = 0) -> Placed:
        """Return the item with its back to a wall, ``offset`` along it."""
        if wall == 0:
            return Placed(item, offset, 0, y, 0)
        if wall == 1:
            return Placed(item, 0, offset, y, 1)
        if wall == 2:
            return Placed(item, offset, self.depth - item.depth, y, 2)
        return Placed(item, self.width - item.depth, offset, y, 3)

    def is_free(self, rectangle: Rectangle, walls: int = 0) -> bool:
        """Return whether a rectangle is inside, ``walls`` away from every wall, and not taken."""
        inside = (
            rectangle[0] >= walls
            and rectangle[1] >= walls
            and rectangle[2] <= self.width - walls
            and rectangle[3] <= self.depth - walls
        )
        return inside and not any(overlap(rectangle, other) for other in self.taken)

    def put(self, placed: Placed, margin: int = 0) -> Placed:
        """Keep an item where it is."""
        self.placed.append(placed)
        self.taken.append(placed.footprint(margin))
        return placed

    def on_wall(self, item: Item, walls: Sequence[int] | None = None, gap: int = 40) -> Placed | None:
        """Put an item with its back to some wall; None when no place was found."""
        top = max(part.high[1] for part in item.parts)
        for wall in shuffled(self.rng, walls if walls is not None else range(4)):
            room = self.wall_length(wall) - item.width
            if room < 0:
                continue
            for _ in range(_TRIES):
                offset = between(self.rng, 0, room, _GRID)
                if any(
                    low < offset + item.width and offset < high and top > y for low, high, y in self._hangings[wall]
                ):
                    continue
                placed = self.against(item, wall, offset)
                if self.is_free(placed.footprint(gap if gap <= offset else 0)) or self.is_free(placed.footprint()):
                    self.hang(wall, offset, offset + item.width, 0)
                    return self.put(placed)
        return None

    def in_the_open(self, item: Item, margin: int = 620, turns: Sequence[int] = range(4)) -> Placed | None:
        """Put an item away from everything else, so that one can walk around it; None when no place was found."""
        for _ in range(3 * _TRIES):
            turn = turns[pick(self.rng, len(turns))]
            across, along = (item.width, item.depth) if turn in (0, 2) else (item.depth, item.width)
            if self.width - across < 2 * margin or self.depth - along < 2 * margin:
                continue
            x = between(self.rng, margin, self.width - across - margin, _GRID)
            z = between(self.rng, margin, self.depth - along - margin, _GRID)
            placed = Placed(item, x, z, 0, turn)
            if self.is_free(placed.footprint(margin)):
                return self.put(placed)
        return None

    def beside(
        self, leader: Placed, item: Item, x: int, z: int, turn: int = 0, *, tucked: bool = False
    ) -> Placed | None:
        """Put an item at a place in another's own frame, turned against it; None when that place is taken.

        A ``tucked`` item may stand partly under its leader.
        """
        placed = attached(leader, item, x, z, turn)
        rectangle = placed.footprint()
        others = [other for other in self.taken if not (tucked and other == leader.footprint())]
        inside = rectangle[0] >= 0 and rectangle[1] >= 0 and rectangle[2] <= self.width and rectangle[3] <= self.depth
        if not inside or any(overlap(rectangle, other) for other in others):
            return None
        return self.put(placed)

    def lay(self, placed: Placed) -> None:
        """Add something flat that takes no room, if it lies inside."""
        rectangle = placed.footprint()
        if min(rectangle) >= 0 and rectangle[2] <= self.width and rectangle[3] <= self.depth:
            self.placed.append(placed)

    def hang(self, wall: int, start: int, end: int, bottom: int) -> None:
        """Note that a stretch of a wall is used from ``bottom`` upwards."""
        self._hangings[wall].append((start, end, bottom))

    def on_bare_wall(
        self, item: Item, bottom: int, walls: Sequence[int] | None = None, ends: int = 250
    ) -> Placed | None:
        """Hang an item where nothing hangs yet and nothing tall stands; None when no place was found."""
        for wall in shuffled(self.rng, walls if walls is not None else range(4)):
            room = self.wall_length(wall) - item.width - ends
            for _ in range(_TRIES if room >= ends else 0):
                offset = between(self.rng, ends, room, _GRID)
                placed = self.against(item, wall, offset, bottom)
                if self._hides(placed) or any(
                    low < offset + item.width + 60 and offset < high + 60 and y > 0
                    for low, high, y in self._hangings[wall]
                ):
                    continue
                self.hang(wall, offset, offset + item.width, bottom)
                self.placed.append(placed)
                return placed
        return None

    def _hides(self, hanging: Placed) -> bool:
        """Return whether furniture would stand in front of something that hangs."""
        rectangle = hanging.footprint(40)
        return any(
            overlap(rectangle, other.footprint()) and max(part.high[1] for part in other.item.parts) > hanging.y
            for other in self.placed
        )


def attached(leader: Placed, item: Item, x: int, z: int, turn: int = 0) -> Placed:
    """Return the item with the low corner of its footprint at (x, z) of the leader's own frame."""
    across, along = (item.width, item.depth) if turn in (0, 2) else (item.depth, item.width)
    one, other = leader.point(x, z), leader.point(x + across, z + along)
    return Placed(item, min(one[0], other[0]), min(one[1], other[1]), leader.y, (leader.turn + turn) % 4)
