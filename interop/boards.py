"""Boards in texts: levels and states that a chat shows as text, with or without a picture.

Read in mll-lab-nu/VAGEN: ``vagen/envs/sokoban/sokoban_env.py`` and ``vagen/envs/frozenlake/frozenlake_env.py``
(``GRID_LOOKUP``: three characters a cell, one line a row; RAGEN has the same symbols, one character a cell). The
solvers read these symbols. XSB boards of Sokoban and
gymnasium's ``desc`` of FrozenLake, with or without a mark of the player, are rows of single characters.
"""

import re
from collections.abc import Iterator

from ..core.errors import LevelError
from ..environments.base import PivotEnv
from ..solvers.puzzles import translated
from ..solvers.sokoban.solver import VAGEN

_BOARD = re.compile(r"(?:^ ?[#_O√XPSG](?:(?:  )?[#_O√XPSG])+ ?$\n?){2,}", re.MULTILINE)
"""Rows of cells, apart or not; the blank at either end is missing where a template or a trainer trimmed the text."""
_XSB = re.compile(r"(?:^[#@$.*+ _-]*#[#@$.*+ _-]*$\n?){3,}", re.MULTILINE)
_DESC = re.compile(r"(?:^[SFHGP@]{2,}[ ]*$\n?){2,}(?:^@ \d+ \d+$)?", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[41m([SFHG])\x1b\[0m")
"""Gymnasium's mark of the player's cell."""


def levels_in(kind: type[PivotEnv], text: str) -> list[str]:
    """Return the levels that the boards of a text show: of FrozenLake a player stands on the start."""
    levels = [
        board.replace("P", "S") if kind.profile.name == "frozenlake" else board for board in boards_of(kind, text)
    ]
    return [each for each in levels if kind.profile.name != "frozenlake" or "S" in each]


def boards_of(kind: type[PivotEnv], text: str) -> list[str]:
    """Return the boards in a text in the form of :func:`board_of_state`; maps without a player are kept unchanged."""
    env = kind.profile.name
    readers = {"sokoban": _sokoban_boards, "frozenlake": _frozenlake_boards}
    return list(readers[env](kind, text)) if env in readers else []


def board_of_state(kind: type[PivotEnv], state: str) -> str:
    """Return the board of a state as a text shows it: in FrozenLake the player hides the cell below it."""
    if kind.profile.name != "frozenlake":
        return state
    body, _, position = kind.canonical_state(state).partition("\n@ ")
    rows = body.split("\n")
    if position:
        row, column = map(int, position.split())
    else:
        row = next(number for number, line in enumerate(rows) if "S" in line)
        column = rows[row].index("S")
    return _lake(rows, row, column)


def map_of_board(board: str) -> str:
    """Return a board without player and start."""
    return board.replace("P", "F").replace("S", "F")


def _lake(rows: list[str], row: int, column: int) -> str:
    plain = [line.replace("S", "F") for line in rows]
    plain[row] = f"{plain[row][:column]}P{plain[row][column + 1 :]}"
    return "\n".join(plain)


def _sokoban_boards(kind: type[PivotEnv], text: str) -> Iterator[str]:
    boards = [(match.start(), match[0].strip("\n")) for match in _XSB.finditer(text)]
    for match in _BOARD.finditer(text):
        rows = match[0].strip("\n")
        if "O" in rows or "_" in rows:
            boards.append((match.start(), translated(rows, VAGEN, "PS")))
    for _, rows in sorted(boards):
        try:
            yield kind.canonical_state(rows)
        except LevelError:
            continue


def _frozenlake_boards(kind: type[PivotEnv], text: str) -> Iterator[str]:
    marked = _ANSI.sub("P", text)
    boards = [(match.start(), match[0].rstrip("\n")) for match in _DESC.finditer(marked)]
    for match in _BOARD.finditer(text):
        symbols = {"P": "P", "_": "F", "O": "H", "G": "G"}
        rows = [
            "".join(symbols.get(each, "?") for each in line if each != " ") for line in match[0].strip("\n").split("\n")
        ]
        if not any("?" in line for line in rows):
            boards.append((match.start(), "\n".join(rows)))
    for _, board in sorted(boards):
        rows = [line.strip().replace("@", "P") for line in board.split("\n") if not line.startswith("@ ")]
        if board.rpartition("\n")[2].startswith("@ "):
            try:
                yield board_of_state(kind, board)
            except LevelError:
                continue
        elif len({len(line) for line in rows}) == 1 and "".join(rows).count("P") <= 1:
            lake = "\n".join(rows)
            yield lake.replace("S", "F") if "P" in lake else lake
