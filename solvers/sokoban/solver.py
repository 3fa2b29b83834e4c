"""Exact pivot labels of failed Sokoban episodes, for any room and any number of boxes.

``d(s)`` is the fewest moves (not pushes) that solve state ``s``. A backward search from the solved states reaches
states in the order of ``d``. Small levels are searched in Python (``search.py``), large ones with a compiled kernel
(``large.py``) that goes no deeper than the budget of the first step after which it is too small. Only to decide
whether the state after that step is unsolvable (``deadlock``) or just too far (``timeout``), it continues from both
sides. Solved means that every box is on a target; there may be more targets than boxes.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar

from pydantic import Field

from ...core.errors import LevelError
from ...core.plugins import Settings
from ..base import Case, CertificateKind, CertificateUnit, ExactSolver, Needs, SolverSettings, Unsolved, Verdict
from ..puzzles import ACTIONS, answers, label, measure, translated
from .board import Board, SokobanSearch
from .search import MAX_STATES, Engine, SokobanDistances, read_board, search_of

VAGEN = {"#": "#", "_": " ", "O": ".", "√": "*", "X": "$", "P": "@", "S": "+"}
"""Wall, floor, target, box on a target, box, player, player on a target, in the text states of VAGEN."""


class SokobanSettings(SolverSettings):
    """Settings of the Sokoban solver."""

    max_states: int = Field(default=MAX_STATES, ge=1)
    """Maximum number of states per search; a label that needs more is rejected with ``solver_limit``."""


class SokobanSolver(ExactSolver):
    """Solver of Sokoban episodes; see the module docstring."""

    name: ClassVar[str] = "sokoban"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = ("timeout", "deadlock")
    actions: ClassVar[tuple[str, ...]] = ACTIONS
    kind: ClassVar[CertificateKind] = "exact"
    unit: ClassVar[CertificateUnit] = "moves"
    labels_long_turns: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = SokobanSettings
    settings: SokobanSettings

    @classmethod
    def read_level(cls, text: str) -> str:
        """Convert the symbols of VAGEN's and RAGEN's text states; see the base class."""
        return translated(text, VAGEN, "PS")

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label cases; see :meth:`Solver.certify`. Successive cases of one level share its search."""
        return answers(cases, self._searches(cases), label)

    def measure(self, cases: Sequence[Case]) -> list[Needs | Unsolved]:
        """Measure cases; see :meth:`Solver.measure`. Successive cases of one level share its search."""
        return answers(cases, self._searches(cases), measure)

    def _searches(self, cases: Sequence[Case]) -> Callable[[str], SokobanSearch]:
        """Return the function from the levels of a batch to their searches; it keeps the last one."""
        boards: dict[str, Board] = {}
        for text in {case.initial_state for case in cases}:
            with suppress(LevelError):
                boards[text] = read_board(text)
        Engine.expect(boards.values())
        last: list[tuple[str, SokobanSearch]] = []

        def search(text: str) -> SokobanSearch:
            if not last or last[0][0] != text:
                last.clear()  # a large search is freed before the next one begins
                board = boards.get(text) or read_board(text)
                last.append((text, Engine.search(board, self.settings.max_states)))
            return last[0][1]

        return search

    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> SokobanDistances:
        """Search a level; see :meth:`ExactSolver.distance_map`."""
        return SokobanDistances(
            search_of(read_board(initial_state), self.settings.max_states, depth_limit), depth_limit
        )
