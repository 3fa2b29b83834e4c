"""A Sokoban level for searching: numbered cells, their neighbours, and sets of cells as bits of an integer.

Cells are numbered row by row over the bounding box of the floor; cell c is bit c of a set. A state is the set of boxes
and the player's cell.
"""

from dataclasses import dataclass
from functools import cached_property
from math import comb

from ...core.errors import LevelError
from .text import Cell, SokobanLevel

State = tuple[int, int]


@dataclass(frozen=True)
class Board:
    """A level, or a room that is to be filled with ``count`` boxes."""

    top: int
    left: int
    stride: int
    """Width of the bounding box; its top left corner is cell 0."""
    size: int
    """Number of cells in the bounding box."""
    count: int
    """Number of boxes."""
    floor: int
    """Floor of the closed areas that hold the player, a box or a target; in a room, of all closed areas."""
    area: int
    """Floor of the player's area; in a room, of all closed areas."""
    targets: int
    boxes: int
    player: int
    """Cell of the player; -1 in a room."""

    @classmethod
    def of(cls, level: SokobanLevel, count: int = 0) -> "Board":
        """Number the cells of a level, or with ``count`` of a room.

        Raises:
            LevelError: no wall closes an area.
        """
        if level.player is None:
            area = floor = _closed_floor(level)
        else:
            area = _connected(level, [level.player])
            floor = area | _connected(level, [*level.boxes, *level.targets])
        if not floor:
            raise LevelError("the level has no closed area; put walls '#' around the floor")
        rows, columns = [y for y, _ in floor], [x for _, x in floor]
        top, left, stride = min(rows), min(columns), max(columns) - min(columns) + 1

        def number(cell: Cell) -> int:
            return (cell[0] - top) * stride + cell[1] - left

        floor, area, targets, boxes = (
            sum(1 << number(cell) for cell in cells) for cells in (floor, area, level.targets, level.boxes)
        )
        size = (max(rows) - top + 1) * stride
        player = -1 if level.player is None else number(level.player)
        return cls(top, left, stride, size, count or len(level.boxes), floor, area, targets, boxes, player)

    @property
    def room(self) -> tuple[int, ...]:
        """Part of the board that is equal for all states of the level."""
        return self.top, self.left, self.stride, self.size, self.count, self.floor, self.targets

    @property
    def most_states(self) -> int:
        """An upper bound of the number of states."""
        cells = self.floor.bit_count()
        return comb(cells, self.count) * (cells - self.count)

    @cached_property
    def near(self) -> list[int]:
        """Cells above, below, left and right of each cell, at ``4 * cell + direction``; -1 if not floor."""
        near = [-1] * (4 * self.size)
        for cell in cells_of(self.floor):
            column = cell % self.stride
            beside = cell - self.stride, cell + self.stride, cell - 1, cell + 1
            inside = cell >= self.stride, cell < self.size - self.stride, column > 0, column < self.stride - 1
            for direction in range(4):
                if inside[direction] and self.floor >> beside[direction] & 1:
                    near[4 * cell + direction] = beside[direction]
        return near

    def move(self, state: State, direction: int) -> State:
        """Return the state after a move, an index of up, down, left and right; a blocked one changes nothing."""
        boxes, player = state
        ahead = self.near[4 * player + direction]
        if ahead < 0:
            return state
        if boxes >> ahead & 1:
            behind = self.near[4 * ahead + direction]
            if behind < 0 or boxes >> behind & 1:
                return state
            boxes ^= 1 << ahead | 1 << behind
        return boxes, ahead

    @cached_property
    def live(self) -> int:
        """Cells from which a box can be pushed to a target if there are no other boxes."""
        live, stack = self.targets, cells_of(self.targets)
        while stack:
            cell = stack.pop()
            for direction in range(4):
                # Pulling a box to `other` is the reverse of a push from there; the player ends one cell beyond.
                other = self.near[4 * cell + direction]
                if other >= 0 and not live >> other & 1 and self.near[4 * other + direction] >= 0:
                    live |= 1 << other
                    stack.append(other)
        return live


def cells_of(cells: int) -> list[int]:
    """List the cells of a set in ascending order."""
    return [cell for cell in range(cells.bit_length()) if cells >> cell & 1]


def _connected(level: SokobanLevel, starts: list[Cell]) -> set[Cell]:
    """Return the floor cells that are connected to ``starts``; walls must close them in."""
    seen: set[Cell] = set()
    stack = starts
    while stack:
        cell = stack.pop()
        if cell not in seen and cell not in level.walls:
            seen.add(cell)
            y, x = cell
            stack += [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
    return seen


def _closed_floor(level: SokobanLevel) -> set[Cell]:
    """Return the floor of a room that is not connected to the outside."""
    width = 2 + max((x for _, x in level.walls), default=0)
    # A frame of floor around the text is the outside; a frame of wall around that ends the search.
    frame = {(y, x) for y in (-2, level.lines + 1) for x in range(-2, width + 1)}
    frame |= {(y, x) for y in range(-2, level.lines + 2) for x in (-2, width)}
    fenced = SokobanLevel(level.walls | frame, level.targets, level.boxes, None, level.lines)
    outside = _connected(fenced, [(-1, -1)])
    inside = {(y, x) for y in range(level.lines) for x in range(width)}
    return inside - outside - level.walls
