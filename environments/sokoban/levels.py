"""Parser of Sokoban levels in XSB text, and generator of rooms for new levels.

A random walk with a wide brush carves a room, which gives corridors and chambers like those of hand-made levels. The
outer ring stays wall, and the carved cells are connected. The solver chooses where boxes and player start
(:func:`~pivot.solvers.sokoban.sample_level`), because only a search gives the distance of a start from the goal.
"""

import random
from dataclasses import dataclass
from functools import lru_cache

from ...core.errors import LevelError
from ..grid import level_lines, pick
from .sprites import BOX, PLAYER, TARGET, WALL

_CODES = {" ": 0, ".": TARGET, "$": BOX, "*": BOX | TARGET, "@": PLAYER, "+": PLAYER | TARGET, "#": WALL}
_TO_CODES = str.maketrans({char: chr(code) for char, code in _CODES.items()})
_OTHER_FLOOR = {ord("-"): " ", ord("_"): " "}  # floor in many level collections; read, never written
_TO_CHARS = bytes.maketrans(bytes(_CODES.values()), "".join(_CODES).encode())


@dataclass(frozen=True, slots=True)
class Level:
    """A parsed state, padded to a rectangle."""

    cols: int
    cells: bytes
    """One code per cell (see ``sprites.py``), row by row."""
    player: int
    """Index of the player's cell."""
    boxes: frozenset[int]
    """Indices of the cells with a box."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.cells) // self.cols


def level_text(cells: bytes | bytearray, cols: int) -> str:
    """Return the XSB text of the cells, every line padded to the full width."""
    chars = cells.translate(_TO_CHARS).decode()
    return "\n".join([chars[start : start + cols] for start in range(0, len(chars), cols)])


@lru_cache(maxsize=1024)
def parse_level(text: str) -> Level:
    """Parse an XSB text without its surrounding blank lines and columns.

    Raises:
        LevelError: the text has unknown characters, not exactly one player, no box, fewer targets than boxes, or is
            not closed by walls.
    """
    lines = [
        line.translate(_OTHER_FLOOR).rstrip() for line in level_lines(text, "Sokoban level", "".join(_CODES) + "-_")
    ]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise LevelError("the Sokoban level is empty")
    indent = min(len(line) - len(line.lstrip(" ")) for line in lines if line)
    cols = max(map(len, lines)) - indent
    cells = "".join(line[indent:].ljust(cols) for line in lines).translate(_TO_CODES).encode()
    players = [index for index, code in enumerate(cells) if code & PLAYER]
    if len(players) != 1:
        raise LevelError(f"the Sokoban level has {len(players)} players ('@' or '+'); it needs exactly one")
    boxes = frozenset(index for index, code in enumerate(cells) if code & BOX)
    targets = sum(code & TARGET != 0 for code in cells)
    if not boxes:
        raise LevelError("the Sokoban level has no box ('$' or '*'); it needs at least one")
    if targets < len(boxes):
        raise LevelError(f"the Sokoban level has {len(boxes)} boxes but {targets} targets; every box needs one ('.')")
    leak = _leak(cells, cols)
    if leak is not None:
        raise LevelError(
            f"the Sokoban level is open at row {leak // cols}, column {leak % cols} (counted without blank lines "
            "around it); walls ('#') must close it around player, boxes and targets"
        )
    return Level(cols, cells, players[0], boxes)


def _leak(cells: bytes, cols: int) -> int | None:
    """Return a border cell that is reachable from the player, a box or a target; None in a closed room."""
    last_row = len(cells) - cols
    stack = [cell for cell, code in enumerate(cells) if code & (PLAYER | BOX | TARGET)]
    seen = set(stack)
    while stack:
        cell = stack.pop()
        if cell < cols or cell >= last_row or cell % cols in (0, cols - 1):
            return cell
        for neighbour in (cell - cols, cell + cols, cell - 1, cell + 1):
            if neighbour not in seen and cells[neighbour] != WALL:
                seen.add(neighbour)
                stack.append(neighbour)
    return None


def carve_room(rows: int, cols: int, boxes: int, rng: random.Random) -> str | None:
    """Return a room with ``boxes`` targets but no boxes and no player; None if too little floor was carved."""
    cells = bytearray([WALL]) * (rows * cols)
    interior = (rows - 2) * (cols - 2)
    quota = max(boxes + 2, int(interior * (0.55 + 0.3 * rng.random())))
    row, col = 1 + pick(rng, rows - 2), 1 + pick(rng, cols - 2)
    step_row, step_col = _turn(rng)
    floor: list[int] = []
    for _ in range(20 * interior):
        # The brush is the current cell and, half of the time, a neighbour, which widens corridors into chambers.
        brush = [(row, col)]
        if rng.random() < 0.5:
            brush.append((row + step_col, col + step_row))
        for brush_row, brush_col in brush:
            cell = brush_row * cols + brush_col
            if 0 < brush_row < rows - 1 and 0 < brush_col < cols - 1 and cells[cell] == WALL:
                cells[cell] = 0
                floor.append(cell)
        if len(floor) >= quota:
            break
        if rng.random() < 0.4:
            step_row, step_col = _turn(rng)
        if 0 < row + step_row < rows - 1 and 0 < col + step_col < cols - 1:
            row, col = row + step_row, col + step_col
        else:
            step_row, step_col = _turn(rng)
    if len(floor) < boxes + 2:
        return None
    for _ in range(boxes):
        cells[floor.pop(pick(rng, len(floor)))] = TARGET
    return level_text(cells, cols)


def _turn(rng: random.Random) -> tuple[int, int]:
    return ((-1, 0), (1, 0), (0, -1), (0, 1))[pick(rng, 4)]
