"""Exact pivot labels of failed FrozenLake episodes, for maps of any size.

A map consists of the rows of gymnasium's ``desc`` joined by line ends, over ``S F H G``, of equal length, with exactly
one S and at least one G. A state text is the map and, if the agent is not on S, a last line ``@ row column`` (from 0).
The distance of a state is the length of the shortest path to a goal that avoids holes. Holes are terminal: a step into
one is a ``deadlock`` and no action may follow. A breadth-first search from the goals gives the distances of all cells.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from ...core.errors import LevelError
from ...core.plugins import Settings
from ..base import (
    Case,
    CertificateKind,
    CertificateUnit,
    DistanceMap,
    ExactSolver,
    Needs,
    SolverSettings,
    Unsolved,
    Verdict,
)
from ..puzzles import ACTIONS, Search, answers, label, measure, translated

VAGEN = {"P": "S", "_": "F", "O": "H", "G": "G"}
"""Player, ice, hole and goal in the text states of VAGEN; the player's position becomes the start."""

_POSITION = re.compile(r"@ (\d{1,6}) (\d{1,6})")


def state_text(map_text: str, row: int, column: int) -> str:
    """Return the text of the state with the agent on a cell; only the map if that cell is S."""
    rows = map_text.split("\n")
    return map_text if rows[row][column] == "S" else f"{map_text}\n@ {row} {column}"


def split_state(text: str) -> tuple[str, int, int]:
    """Return the map, row and column of a state text; row and column are -1 if the agent is on S.

    Raises:
        LevelError: the position line is malformed.
    """
    if "\r" in text or text.endswith("\n"):
        text = text.replace("\r\n", "\n").rstrip("\n")
    rows, mark, position = text.partition("\n@")
    if not mark:
        return text, -1, -1
    match = _POSITION.fullmatch(f"@{position}")
    if match is None:
        raise LevelError(f"the position line '@{position}' cannot be read; write '@ row column' with numbers from 0")
    return rows, int(match[1]), int(match[2])


def check_state(text: str) -> None:
    """Check that a text is a FrozenLake state.

    Raises:
        LevelError: the text is not a state; the message names the position and the fix.
    """
    map_text, row, column = split_state(text)
    rows = map_text.split("\n")
    for y, line in enumerate(rows):
        if not line or len(line) != len(rows[0]):
            raise LevelError(
                f"row {y + 1} of the map has {len(line)} cells; all need the {len(rows[0])} of row 1, at least 1"
            )
        for x, symbol in enumerate(line):
            if symbol not in "SFHG":
                raise LevelError(
                    f"unknown symbol {symbol!r} in row {y + 1}, column {x + 1} of the map; use only S F H G"
                )
    if map_text.count("S") != 1:
        raise LevelError(f"the map has {map_text.count('S')} start cells; exactly one S is needed")
    if "G" not in map_text:
        raise LevelError("the map has no goal; put at least one G in it")
    if row >= len(rows) or column >= len(rows[0]):
        raise LevelError(
            f"the position {row} {column} is off the map of {len(rows)} x {len(rows[0])} cells, counted from 0"
        )


class LakeSearch(Search):
    """A map with the distances of its cells; a state is a cell, ``row * width + column``."""

    success = "the goal is reached"
    ending = "reached the goal"

    def __init__(self, map_text: str, row: int, column: int) -> None:
        """Search a map; row and column are -1 if the agent is on S."""
        rows = map_text.split("\n")
        self._width, self._tiles = len(rows[0]), "".join(rows)
        self.start = self.cell(row, column)
        cells, width = len(self._tiles), self._width
        self._beside = [
            (
                cell - width if cell >= width else cell,
                cell + width if cell < cells - width else cell,
                cell - 1 if cell % width else cell,
                cell + 1 if (cell + 1) % width else cell,
            )
            for cell in range(cells)
        ]
        """Next cells up, down, left and right of each cell; the cell itself at the edge of the map."""
        self._needs = {cell: 0 for cell, tile in enumerate(self._tiles) if tile == "G"}
        queue = deque(self._needs)
        while queue:
            cell = queue.popleft()
            for other in self._beside[cell]:
                if other not in self._needs and self._tiles[other] != "H":
                    self._needs[other] = self._needs[cell] + 1
                    queue.append(other)

    def cell(self, row: int, column: int) -> int:
        """Return the cell of a position; that of S if the row is -1."""
        return self._tiles.index("S") if row < 0 else row * self._width + column

    def move(self, state: int, direction: int) -> int:
        """Return the next cell; on a goal or in a hole, actions have no effect."""
        return state if self._tiles[state] in "HG" else self._beside[state][direction]

    def is_solved(self, state: int) -> bool:
        """Return whether a cell is a goal."""
        return self._tiles[state] == "G"

    def is_lost(self, state: int) -> bool:
        """Return whether a cell is a hole."""
        return self._tiles[state] == "H"

    def need(self, state: int, most: int | None = None) -> int | None:
        """Return the distance of a cell; see the base class."""
        need = self._needs.get(state)
        return None if need is None or (most is not None and need > most) else need


@lru_cache(maxsize=64)
def search_lake(text: str) -> LakeSearch:
    """Search the map of a state.

    Raises:
        LevelError: the text is not a state.
    """
    check_state(text)
    return LakeSearch(*split_state(text))


@dataclass(frozen=True)
class FrozenLakeDistances(DistanceMap):
    """Distances of all cells of one map."""

    map_text: str
    search: LakeSearch
    limit: int | None

    def _cell(self, text: str) -> int:
        map_text, row, column = split_state(text)
        if map_text != self.map_text:
            raise LevelError("the state belongs to a different map; pass the map that the distances were computed for")
        if row >= 0:
            check_state(text)
        return self.search.cell(row, column)

    def distance(self, state_text: str) -> int | None:
        """Return the distance of a state; see :meth:`DistanceMap.distance`."""
        return self.search.need(self._cell(state_text), self.limit)

    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        """Return the distances after each action; on a goal or in a hole, actions have no effect."""
        cell = self._cell(state_text)
        return tuple(self.search.need(self.search.move(cell, code), self.limit) for code in range(len(ACTIONS)))


class FrozenLakeSolver(ExactSolver):
    """Solver of FrozenLake episodes; see the module docstring."""

    name: ClassVar[str] = "frozenlake"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = ("timeout", "deadlock")
    actions: ClassVar[tuple[str, ...]] = ACTIONS
    kind: ClassVar[CertificateKind] = "exact"
    unit: ClassVar[CertificateUnit] = "moves"
    labels_long_turns: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = SolverSettings

    @classmethod
    def read_level(cls, text: str) -> str:
        """Convert the symbols of VAGEN's and RAGEN's text states; see the base class."""
        return translated(text, VAGEN, "P")

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label cases; see :meth:`Solver.certify`."""
        return answers(cases, search_lake, label)

    def measure(self, cases: Sequence[Case]) -> list[Needs | Unsolved]:
        """Measure cases; see :meth:`Solver.measure`."""
        return answers(cases, search_lake, measure)

    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> FrozenLakeDistances:
        """Search a level; see :meth:`ExactSolver.distance_map`."""
        return FrozenLakeDistances(split_state(initial_state)[0], search_lake(initial_state), depth_limit)
