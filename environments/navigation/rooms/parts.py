"""Furniture and small objects as parts in local coordinates, which are turned and moved into a room.

In local coordinates, an item has its back at z = 0 and faces +z; x is its width, y is up; lengths are millimetres.
Items are turned by quarter turns, so boxes stay axis-aligned. A slot is a surface of an item for a small object.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...grid import pick
from ..state import Part, Point, RoomObject

Rectangle = tuple[int, int, int, int]
"""low x, low z, high x, high z in millimetres."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Centre, height, width and depth of a horizontal surface for a small object, in the item's local coordinates."""

    x: int
    y: int
    z: int
    width: int
    depth: int


@dataclass(slots=True)
class Item:
    """A piece of furniture or a small object in local coordinates."""

    type: str
    width: int
    depth: int
    parts: list[Part] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)

    def add(self, low: Point, high: Point, colour: str, surface: str = "plain", shape: str = "box") -> "Item":
        """Add a part; return the item."""
        self.parts.append(Part(low, high, shape, colour, surface))
        return self

    def slot(self, x: int, y: int, z: int, width: int, depth: int) -> None:
        """Add a slot."""
        self.slots.append(Slot(x, y, z, width, depth))

    def legs(self, height: int, thick: int, inset: int, colour: str, surface: str = "wood", shape: str = "box") -> None:
        """Add four legs of a height."""
        for x in (inset, self.width - inset - thick):
            for z in (inset, self.depth - inset - thick):
                self.add((x, 0, z), (x + thick, height, z + thick), colour, surface, shape)


@dataclass(frozen=True, slots=True)
class Placed:
    """An item in the room: position of its local origin, and number of clockwise quarter turns seen from above."""

    item: Item
    x: int
    z: int
    y: int
    turn: int

    def point(self, x: int, z: int) -> tuple[int, int]:
        """Return the room coordinates x, z of a point in local coordinates."""
        width, depth = self.item.width, self.item.depth
        if self.turn == 0:  # faces +z
            return self.x + x, self.z + z
        if self.turn == 1:  # faces +x
            return self.x + z, self.z + width - x
        if self.turn == 2:  # faces -z
            return self.x + width - x, self.z + depth - z
        return self.x + depth - z, self.z + x  # faces -x

    def box(self, low: Point, high: Point) -> tuple[Point, Point]:
        """Return the room coordinates of a box in local coordinates."""
        one, other = self.point(low[0], low[2]), self.point(high[0], high[2])
        return (
            (min(one[0], other[0]), self.y + low[1], min(one[1], other[1])),
            (max(one[0], other[0]), self.y + high[1], max(one[1], other[1])),
        )

    def parts(self) -> tuple[Part, ...]:
        """Return the parts in room coordinates."""
        return tuple(
            Part(*self.box(part.low, part.high), part.shape, part.colour, part.surface) for part in self.item.parts
        )

    def footprint(self, margin: int = 0) -> Rectangle:
        """Return the rectangle of the item's width and depth in the room, grown by ``margin``."""
        low, high = self.box((0, 0, 0), (self.item.width, 1, self.item.depth))
        return low[0] - margin, low[2] - margin, high[0] + margin, high[2] + margin

    def as_object(self) -> RoomObject:
        """Return the item as an object of a room; its id consists of type and centre, as in AI2-THOR."""
        parts = self.parts()
        middle = middle_of(parts)
        places = "|".join(f"{value / 1000:+07.3f}" for value in middle)
        return RoomObject(f"{self.item.type}|{places}", self.item.type, parts)


def middle_of(parts: Sequence[Part]) -> Point:
    """Return the middle of the box around ``parts``, rounded down to the millimetre."""
    lows = [min(part.low[axis] for part in parts) for axis in range(3)]
    highs = [max(part.high[axis] for part in parts) for axis in range(3)]
    x, y, z = ((low + high) // 2 for low, high in zip(lows, highs, strict=True))
    return x, y, z


def overlap(one: Rectangle, other: Rectangle) -> bool:
    """Return whether two rectangles overlap by more than an edge."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def between(rng: random.Random, low: int, high: int, step: int = 10) -> int:
    """Return a random number in [low, high] that is ``low`` plus a multiple of ``step``."""
    return low + step * pick(rng, (high - low) // step + 1)


def shade(colour: str, percent: int) -> str:
    """Return a colour at ``percent`` of its brightness, with integer arithmetic."""
    channels = (min(255, int(colour[at : at + 2], 16) * percent // 100) for at in (1, 3, 5))
    return "#" + "".join(f"{value:02x}" for value in channels)


def shuffled(rng: random.Random, values: Sequence[int]) -> list[int]:
    """Return ``values`` in a random order, using only ``rng.random()``."""
    left = list(values)
    return [left.pop(pick(rng, len(left))) for _ in range(len(left))]
