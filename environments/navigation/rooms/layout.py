"""Placement of furniture in an empty room: along walls, in the open, or next to other furniture.

A layout records the occupied rectangles and the objects on the walls. An item for which no free position is found
within a few attempts is left out.
"""

import random
from collections.abc import Sequence

from ...grid import pick
from .parts import Item, Placed, Rectangle, between, overlap, shuffled

HEIGHT = 2600
"""Height of all rooms, millimetres."""
_TRIES = 14
_GRID = 50


class Layout:
    """A room while it is being furnished; lengths in millimetres."""

    def __init__(self, rng: random.Random, width: int, depth: int) -> None:
        """Create an empty room."""
        self.rng = rng
        self.width, self.depth = width, depth
        self.placed: list[Placed] = []
        self.taken: list[Rectangle] = []
        self._hangings: list[list[tuple[int, int, int]]] = [[], [], [], []]

    def wall_length(self, wall: int) -> int:
        """Return the length of a wall; furniture on wall ``n`` is turned by ``n`` quarter turns."""
        return self.width if wall in (0, 2) else self.depth

    def against(self, item: Item, wall: int, offset: int, y: int = 0) -> Placed:
        """Return the item with its back to a wall, at distance ``offset`` from the wall's start."""
        if wall == 0:
            return Placed(item, offset, 0, y, 0)
        if wall == 1:
            return Placed(item, 0, offset, y, 1)
        if wall == 2:
            return Placed(item, offset, self.depth - item.depth, y, 2)
        return Placed(item, self.width - item.depth, offset, y, 3)

    def is_free(self, rectangle: Rectangle, walls: int = 0) -> bool:
        """Return whether a rectangle is in the room, at least ``walls`` away from every wall, and not occupied."""
        inside = (
            rectangle[0] >= walls
            and rectangle[1] >= walls
            and rectangle[2] <= self.width - walls
            and rectangle[3] <= self.depth - walls
        )
        return inside and not any(overlap(rectangle, other) for other in self.taken)

    def put(self, placed: Placed, margin: int = 0) -> Placed:
        """Add an item at its position."""
        self.placed.append(placed)
        self.taken.append(placed.footprint(margin))
        return placed

    def on_wall(self, item: Item, walls: Sequence[int] | None = None, gap: int = 40) -> Placed | None:
        """Place an item with its back to a random wall; return None if no free position was found."""
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
        """Place an item with space to walk around it; return None if no free position was found."""
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
        """Place an item at a position in the local coordinates of another; return None if that position is occupied.

        The item is turned relative to the other one, its leader; a ``tucked`` item may be partly under its leader.
        """
        placed = attached(leader, item, x, z, turn)
        rectangle = placed.footprint()
        others = [other for other in self.taken if not (tucked and other == leader.footprint())]
        inside = rectangle[0] >= 0 and rectangle[1] >= 0 and rectangle[2] <= self.width and rectangle[3] <= self.depth
        if not inside or any(overlap(rectangle, other) for other in others):
            return None
        return self.put(placed)

    def lay(self, placed: Placed) -> None:
        """Add a flat object that does not occupy floor, such as a rug, if it is inside the room."""
        rectangle = placed.footprint()
        if min(rectangle) >= 0 and rectangle[2] <= self.width and rectangle[3] <= self.depth:
            self.placed.append(placed)

    def hang(self, wall: int, start: int, end: int, bottom: int) -> None:
        """Record that a section of a wall is occupied from height ``bottom`` upwards."""
        self._hangings[wall].append((start, end, bottom))

    def on_bare_wall(
        self, item: Item, bottom: int, walls: Sequence[int] | None = None, ends: int = 250
    ) -> Placed | None:
        """Hang an item on a free section of a wall, not behind tall furniture; return None if none was found."""
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
        """Return whether furniture would hide an object on the wall."""
        rectangle = hanging.footprint(40)
        return any(
            overlap(rectangle, other.footprint()) and max(part.high[1] for part in other.item.parts) > hanging.y
            for other in self.placed
        )


def attached(leader: Placed, item: Item, x: int, z: int, turn: int = 0) -> Placed:
    """Return the item with the low corner of its footprint at (x, z) in the leader's local coordinates."""
    across, along = (item.width, item.depth) if turn in (0, 2) else (item.depth, item.width)
    one, other = leader.point(x, z), leader.point(x + across, z + along)
    return Placed(item, min(one[0], other[0]), min(one[1], other[1]), leader.y, (leader.turn + turn) % 4)
