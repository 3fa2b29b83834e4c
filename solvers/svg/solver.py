"""Labels of failed SVG reconstructions, read from the log by convention.

Every turn submits a whole document, so no state makes success impossible and no search applies: the pivot ``t*`` is the
last submission. Its mode compares the scores of the last two submissions. An empty or invalid submission counts like
any other, with score 0 and ``valid_svg`` false, so a valid one after it is compared with 0.

Scores are floats, and 0.80 - 0.79 is slightly more than 0.01 in binary. The exact difference of the two stored numbers
is therefore rounded to nine decimals (half to even) before it is compared with the limit; a difference equal to the
limit is a stagnation.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from ...core.errors import CertifyError
from ...core.plugins import Settings
from ..base import Case, Certificate, CertificateKind, CertificateUnit, Needs, Solver, SolverSettings, Unsolved, Verdict

EMPTY = "empty"
"""Logged name of a reply without a document."""

LIMIT = Fraction(1, 100)
"""Largest change of the score that counts as stagnation."""
DECIMALS = 9


class SvgSolver(Solver):
    """Solver of SVG episodes; see the module docstring."""

    name: ClassVar[str] = "svg"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = ("format", "regression", "stagnation", "mismatch")
    actions: ClassVar[tuple[str, ...]] = ("svg",)
    kind: ClassVar[CertificateKind] = "convention"
    unit: ClassVar[CertificateUnit] = "score"
    config_type: ClassVar[type[Settings]] = SolverSettings

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label cases from ``valid_svg`` and ``average_score`` of every logged step; see :meth:`Solver.certify`."""
        return [_label(case) for case in cases]

    def measure(self, cases: Sequence[Case]) -> list[Needs | Unsolved]:
        """Refuse: no submission makes success impossible; see :meth:`Solver.measure`."""
        raise CertifyError(
            "svg: its certificate is a convention (the last submission), expected one that measures what success takes "
            "from each state; use the scores of the submissions as rewards of its turns"
        )


def _label(case: Case) -> Verdict | Unsolved:
    problem = _problem(case)
    if problem is not None:
        return Unsolved("bad_episode", problem)
    pivot = len(case.actions) - 1
    last = case.steps[pivot]
    score = float(last["average_score"])
    if score >= 1:
        return Unsolved("not_a_failure", f"the last submission scores {score}, which reproduces the target")
    before = float(case.steps[pivot - 1]["average_score"]) if pivot else None
    if not last["valid_svg"]:
        mode = "format"
    elif before is None:
        mode = "mismatch"
    else:
        mode = _progress(before, score)
    budget = case.horizon - pivot
    certificate = Certificate("convention", "score", budget, budget - 1, None, None, None, before, score)
    return Verdict(pivot, mode, certificate)


def _progress(before: float, after: float) -> str:
    change = round(Fraction(after) - Fraction(before), DECIMALS)
    if change < -LIMIT:
        return "regression"
    return "stagnation" if change <= LIMIT else "mismatch"


def _problem(case: Case) -> str | None:
    """Return why the log is not a valid episode, or None."""
    count = len(case.actions)
    if not 0 < count <= case.horizon:
        return f"the episode has {count} actions; expected 1 to its horizon of {case.horizon}"
    if len(case.steps) != count:
        return f"the log has {len(case.steps)} steps for {count} actions; pass the info of every step"
    problems = (_step_problem(t, *turn) for t, turn in enumerate(zip(case.actions, case.steps, strict=True)))
    return next((problem for problem in problems if problem is not None), None)


def _step_problem(t: int, action: str, info: Mapping[str, Any]) -> str | None:
    valid, score = info.get("valid_svg"), info.get("average_score")
    if action not in ("svg", EMPTY):
        return f"unknown action {action!r} at step {t}; use svg or {EMPTY}"
    if not isinstance(valid, bool):
        return f"valid_svg of step {t} is {valid!r}; expected true or false"
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        return f"average_score of step {t} is {score!r}; expected a number from 0 to 1"
    if not valid and score:
        return f"step {t} is not a valid SVG but scores {score}; such a submission scores 0"
    if valid and action == EMPTY:
        return f"step {t} submitted nothing, but is logged as a valid SVG"
    return None
