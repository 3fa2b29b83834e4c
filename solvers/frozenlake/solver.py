"""Exact pivot labels of failed FrozenLake episodes, for maps of any size.

A map consists of the rows of gymnasium's ``desc`` joined by line ends, over ``S F H G``, of equal length, with exactly
one S and at least one G. A state text is the map and, if the agent is not on S, a last line ``@ row column`` (from 0).
The distance of a state is the length of the shortest path to a goal that avoids holes. Holes are terminal: a step into
one is a ``deadlock`` and no action may follow.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import LevelError
from ...plugins import Settings
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
from ..rows import (
    ACTIONS,
    INVALID,
    LABELLED,
    PIVOT,
    PLAN_END,
    SOLVED,
    STATUS,
    Measures,
    action_codes,
    bad_episode,
    episode_needs,
    translated,
    verdict,
)
from . import kernel

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


def _codes(map_text: str) -> NDArray[np.uint8]:
    return np.frombuffer(map_text.encode("ascii", "replace"), np.uint8)


@dataclass(frozen=True)
class FrozenLakeDistances(DistanceMap):
    """Distances of all cells of one map."""

    map_text: str
    width: int
    start: int
    depths: tuple[int | None, ...]

    def _cell(self, text: str) -> int:
        map_text, row, column = split_state(text)
        if map_text != self.map_text:
            raise LevelError("the state belongs to a different map; pass the map that the distances were computed for")
        if row < 0:
            return self.start
        cell = row * self.width + column
        if column >= self.width or cell >= len(self.depths):
            check_state(text)
        return cell

    def distance(self, state_text: str) -> int | None:
        """Return the distance of a state; see :meth:`DistanceMap.distance`."""
        return self.depths[self._cell(state_text)]

    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        """Return the distances after each action; on a goal or in a hole, actions have no effect."""
        cell = self._cell(state_text)
        if self.map_text[cell + cell // self.width] in "HG":
            return (self.depths[cell],) * 4
        height = len(self.depths) // self.width
        return tuple(self.depths[kernel.move(cell, direction, self.width, height)] for direction in range(4))


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
        return _answered(cases, _label)

    def measure(self, cases: Sequence[Case]) -> list[Needs | Unsolved]:
        """Measure cases; see :meth:`Solver.measure`."""
        return _answered(cases, _measure)

    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> FrozenLakeDistances:
        """Search a level; see :meth:`ExactSolver.distance_map`."""
        map_text, row, column = split_state(initial_state)
        code, width, _, start, depths = kernel.read_map(_codes(map_text), row, column)
        if code != kernel.OK:
            check_state(initial_state)
        limit = len(depths) if depth_limit is None else depth_limit
        distances = tuple(depth if 0 <= depth <= limit else None for depth in depths.tolist())
        start = map_text.replace("\n", "").index("S") if row >= 0 else start
        return FrozenLakeDistances(map_text, int(width), int(start), distances)


Answer = TypeVar("Answer")
States = list[tuple[str, int, int]]
"""Map, row and column of the first state of each episode."""


def _answered(
    cases: Sequence[Case], answers_of: Callable[[list[Case], States], list[Answer | Unsolved]]
) -> list[Answer | Unsolved]:
    """Return the answers to the valid cases, and why the others are not valid, in order."""
    answers: list[Answer | Unsolved | None] = []
    good: list[int] = []
    states: States = []
    for index, case in enumerate(cases):
        answers.append(bad_episode(case))
        if answers[index] is None:
            try:
                states.append(split_state(case.initial_state))
                good.append(index)
            except LevelError as error:
                answers[index] = Unsolved("bad_episode", str(error))
    if good:
        for index, answer in zip(good, answers_of([cases[index] for index in good], states), strict=True):
            answers[index] = answer
    return [answer for answer in answers if answer is not None]


def _batch(cases: list[Case], states: States) -> tuple[Any, ...]:
    """Return the arguments of the kernel for a batch."""
    texts = [map_text.encode("ascii", "replace") for map_text, _, _ in states]
    turns = np.array([case.actions_per_turn for case in cases])
    return (
        np.frombuffer(b"".join(texts), np.uint8),
        np.cumsum([len(text) for text in texts]),
        np.array([(row, column) for _, row, column in states]),
        np.frombuffer(action_codes(cases), np.int8),
        np.cumsum(np.array([len(case.actions) for case in cases]) * turns),
        np.array([case.horizon for case in cases]) * turns,
        turns,
    )


def _measure(cases: list[Case], states: States) -> list[Needs | Unsolved]:
    codes, statuses, *measures = kernel.measure_episodes(*_batch(cases, states))
    answers: list[Needs | Unsolved] = list(episode_needs(cases, Measures(*measures)))
    for index in np.flatnonzero((codes != kernel.OK) | (statuses != LABELLED)).tolist():
        if codes[index] != kernel.OK:
            answers[index] = _malformed(cases[index].initial_state)
        else:
            end = "reached the goal" if statuses[index] == SOLVED else "fell into a hole"
            answers[index] = Unsolved("bad_episode", f"actions follow the turn that {end}; leave them out")
    return answers


def _label(cases: list[Case], states: States) -> list[Verdict | Unsolved]:
    codes, table, plans = kernel.label_episodes(*_batch(cases, states))
    words = [ACTIONS[code] for code in plans[: table[-1, PLAN_END]].tolist()]
    answers: list[Verdict | Unsolved] = []
    begin = 0
    for case, code, row in zip(cases, codes.tolist(), table.tolist(), strict=True):
        end = row[PLAN_END]
        if code != kernel.OK:
            answers.append(_malformed(case.initial_state))
        elif row[STATUS] == LABELLED:
            answers.append(verdict(row, tuple(words[begin:end]), case, "moves"))
        elif row[STATUS] == SOLVED:
            answers.append(Unsolved("not_a_failure", f"the goal is reached after {row[PIVOT]} actions"))
        else:
            late = (
                f"the agent is in a hole after {row[PIVOT]} actions, but {len(case.actions) - row[PIVOT]} more follow"
            )
            answers.append(Unsolved("bad_episode", late))
        begin = end
    return answers


def _malformed(text: str) -> Unsolved:
    try:
        check_state(text)
    except LevelError as error:
        return Unsolved("bad_episode", str(error))
    raise AssertionError(f"the two readers of maps disagree; please report this map:\n{text}")


__all__ = ["ACTIONS", "INVALID", "FrozenLakeDistances", "FrozenLakeSolver", "check_state", "split_state", "state_text"]
