"""Sokoban levels as their authors write them: other characters, run-length encoding, tabs, drawings outside."""

import re

from ...core.errors import LevelError
from .levels import parse_level

_ROW = re.compile(r"[-#@+$*._ pPbBo|0-9\t]*#[-#@+$*._ pPbBo|0-9\t]*")
_RUN = re.compile(r"(\d+)(\D)")
_OTHER_CELLS = str.maketrans("pPbBo-_", "@+$*.  ")
TAB = 8
"""Columns between two tab stops, as in mail and news, where the format comes from."""
LONGEST_RUN = 999
"""Maximum count of a run; a level has at most 64 columns."""


def is_row(line: str) -> bool:
    """Return whether a line consists of cells and holds a wall."""
    return _ROW.fullmatch(line) is not None


def own_level(text: str) -> tuple[str, str]:
    """Return the XSB text of a level, and the same without the walls around it that nobody can reach.

    Read are ``|`` between rows, run-length encoding (``3#-@``), ``-`` and ``_`` for floor, ``p P b B o`` for player,
    box and target, tabs, and boxes on goals outside the walls, which are drawings and become walls, like all that the
    player cannot reach.

    Raises:
        LevelError: the text is not a level or a solved one, or a box or target that has to be used is out of reach.
    """
    rows = [row for line in text.splitlines() for row in _unpacked(line.expandtabs(TAB)).split("|")]
    rows = [row.translate(_OTHER_CELLS).rstrip() for row in rows]
    while rows and not rows[-1]:
        rows.pop()
    width = max(map(len, rows), default=0)
    cells = [list(row.ljust(width)) for row in rows]
    inside = _reached(cells)
    for r, row in enumerate(cells):
        for c, cell in enumerate(row):
            if (r, c) not in inside:
                if cell in "$.":
                    what = "box" if cell == "$" else "target"
                    raise LevelError(f"the Sokoban level has a {what} in row {r}, column {c} that nobody can reach")
                row[c] = "#"
    level = "\n".join(map("".join, cells))
    parse_level(level)
    if "$" not in level:
        raise LevelError("the Sokoban level is solved before the first move; one box ('$') has to be off the targets")
    kept_rows = [r for r in range(len(cells)) if any((r + d, c) in inside for d in (-1, 0, 1) for c in range(width))]
    kept = [c for c in range(width) if any((r, c + d) in inside for d in (-1, 0, 1) for r in range(len(cells)))]
    return level, "\n".join("".join(cells[r][c] for c in kept) for r in kept_rows)


def _unpacked(line: str) -> str:
    """Return a row without run-length encoding.

    Raises:
        LevelError: a count is too large, or has no cell.
    """
    if line.rstrip()[-1:].isdigit():
        raise LevelError(f"the Sokoban row {line.strip()[:20]!r} ends in a number; a count stands before its cell")
    if long := next((run for run, _ in _RUN.findall(line) if len(run) > 4 or int(run) > LONGEST_RUN), None):
        raise LevelError(f"the Sokoban level has a run of {long[:12]} cells; at most 64x64 cells are read")
    return _RUN.sub(lambda run: run[2] * int(run[1]), line)


def _reached(cells: list[list[str]]) -> set[tuple[int, int]]:
    """Return the cells that the player could reach if boxes were floor.

    Raises:
        LevelError: there is not exactly one player, or the walls are open.
    """
    players = [(r, c) for r, row in enumerate(cells) for c, cell in enumerate(row) if cell in "@+"]
    if len(players) != 1:
        raise LevelError(f"the Sokoban level has {len(players)} players ('@' or '+'); it needs exactly one")
    seen, stack = {players[0]}, [players[0]]
    while stack:
        r, c = stack.pop()
        for row, column in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            if not (0 <= row < len(cells) and 0 <= column < len(cells[0])):
                raise LevelError(f"the Sokoban level is open at row {r}, column {c}; walls ('#') must close it")
            if (row, column) not in seen and cells[row][column] != "#":
                seen.add((row, column))
                stack.append((row, column))
    return seen
