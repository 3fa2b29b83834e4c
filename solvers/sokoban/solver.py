"""Exact pivot labels of failed Sokoban episodes, for any room and any number of boxes.

``d(s)`` is the fewest moves (not pushes) that solve state ``s``. A backward search from the solved states reaches
states in the order of ``d``, so it finds the first step after which the budget is too small without searching deeper
than that budget. Only to decide whether the state after that step is unsolvable (``deadlock``) or just too far
(``timeout``), the search continues from both sides. The searches are compiled (``kernel.py``) and label a batch in one
call, each episode independently. Solved means that every box is on a target; there may be more targets than boxes.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from ...errors import LevelError
from ...plugins import Settings
from ..base import Case, CertificateKind, CertificateUnit, ExactSolver, Needs, SolverSettings, Unsolved, Verdict
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
from .board import parse_levels
from .layout import CODE, OK
from .levels import MAX_STATES, SokobanDistances, sample_level
from .text import SokobanLevel, clean_text, parse_level, parse_room

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
        """Label cases; see :meth:`Solver.certify`."""
        answers: list[Verdict | Unsolved | None] = [bad_episode(case) for case in cases]
        good = [index for index, answer in enumerate(answers) if answer is None]
        if good:
            for index, answer in zip(good, self._label([cases[index] for index in good]), strict=True):
                answers[index] = answer
        return [answer for answer in answers if answer is not None]

    def measure(self, cases: Sequence[Case]) -> list[Needs | Unsolved]:
        """Measure cases; see :meth:`Solver.measure`. Successive cases of one level share its search."""
        answers: list[Needs | Unsolved | None] = [bad_episode(case) for case in cases]
        good = [index for index, answer in enumerate(answers) if answer is None]
        if good:
            for index, answer in zip(good, self._measure([cases[index] for index in good]), strict=True):
                answers[index] = answer
        return [answer for answer in answers if answer is not None]

    def _measure(self, cases: list[Case]) -> list[Needs | Unsolved]:
        batch = self._batch(cases)
        statuses, *measures = kernel.measure_episodes(*batch)
        answers: list[Needs | Unsolved] = list(episode_needs(cases, Measures(*measures)))
        codes = batch[0].shape[:, CODE]
        for index in np.flatnonzero((codes != OK) | (statuses != LABELLED)).tolist():
            if codes[index] != OK:
                answers[index] = _malformed(cases[index].initial_state)
            elif statuses[index] == SOLVED:
                answers[index] = Unsolved(
                    "bad_episode", "actions follow the turn that solved the level; leave them out"
                )
            else:
                answers[index] = self._too_large()
        return answers

    def _batch(self, cases: list[Case]) -> tuple[Any, ...]:
        """Return the arguments of the kernel's searches of a batch."""
        texts = [clean_text(case.initial_state).encode("ascii", "replace") for case in cases]
        boards = parse_levels(np.frombuffer(b"".join(texts), np.uint8), np.cumsum([len(text) for text in texts]), 0)
        turns = np.array([case.actions_per_turn for case in cases])
        return (
            boards,
            np.frombuffer(action_codes(cases), np.int8),
            np.cumsum(np.array([len(case.actions) for case in cases]) * turns),
            np.array([case.horizon for case in cases]) * turns,
            turns,
            self.settings.max_states,
        )

    def _too_large(self) -> Unsolved:
        return Unsolved("solver_limit", f"a search met more than max_states = {self.settings.max_states} states")

    def _label(self, cases: list[Case]) -> list[Verdict | Unsolved]:
        boards, *batch = self._batch(cases)
        table, plans = kernel.label_episodes(boards, *batch)
        words = [ACTIONS[code] for code in plans[: table[-1, PLAN_END]].tolist()]
        answers: list[Verdict | Unsolved] = []
        begin = 0
        for case, code, row in zip(cases, boards.shape[:, CODE].tolist(), table.tolist(), strict=True):
            end = row[PLAN_END]
            if code != OK:
                answers.append(_malformed(case.initial_state))
            elif row[STATUS] == LABELLED:
                answers.append(verdict(row, tuple(words[begin:end]), case, "moves"))
            elif row[STATUS] == SOLVED:
                answers.append(Unsolved("not_a_failure", f"every box is on a target after {row[PIVOT]} actions"))
            else:
                answers.append(self._too_large())
            begin = end
        return answers

    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> SokobanDistances:
        """Search a level; see :meth:`ExactSolver.distance_map`."""
        return SokobanDistances.of(initial_state, depth_limit, self.settings.max_states)


def _malformed(text: str) -> Unsolved:
    try:
        parse_level(text)
    except LevelError as error:
        return Unsolved("bad_episode", str(error))
    raise AssertionError(f"the two readers of levels disagree; please report this level:\n{text}")


__all__ = [
    "ACTIONS",
    "INVALID",
    "MAX_STATES",
    "SokobanDistances",
    "SokobanLevel",
    "SokobanSolver",
    "parse_level",
    "parse_room",
    "sample_level",
]
