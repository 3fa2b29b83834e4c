"""Pivot labels of failed PrimitiveSkill episodes, from the number of remaining stages.

Each stage is assumed to need a turn: the pivot ``t*`` is the first step after which more stages than turns remain. This
is the paper's heuristic and not a proof, since a turn has two primitives and three stages may need two turns; ``kind``
of the certificate is therefore ``heuristic``. The remaining stages come from the log, and so does the mode at ``t*``:
``format``, ``order_error``, ``wrong_target``, else ``timeout``.

The certificate also has a provable lower bound on the turns, computed from the positions in the observations
(``planner.py``), with the pivot that it gives; without observations it is missing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...core.errors import CertifyError, LevelError
from ...core.plugins import Settings
from ..base import Case, Certificate, CertificateKind, CertificateUnit, Solver, SolverSettings, Unsolved, Verdict
from .planner import THINGS, fewest_turns

STAGES = {"align": 2, "place": 3, "stack": 3, "drawer": 2}
"""Number of stages per task."""
ARITY = {"pick": 3, "place": 3, "push": 6}
"""Number of coordinates per primitive."""
UNUSABLE = ("empty", "invalid")
"""Names of a reply without a usable action; PIVOT's logs use the first."""
MOST_PRIMITIVES = 2
MAX_STATE_BYTES = 10_000
MAX_ACTION_CHARS = 200

_INTEGER = "(?:0|-?[1-9][0-9]{0,8})"
_CALL = re.compile(rf"(pick|place|push)\(({_INTEGER}(?:,{_INTEGER})*)\)")


class PrimitiveSkillSolver(Solver):
    """Solver of PrimitiveSkill episodes; see the module docstring."""

    name: ClassVar[str] = "primitiveskill"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = ("timeout", "format", "wrong_target", "order_error")
    actions: ClassVar[tuple[str, ...]] = tuple(ARITY)
    kind: ClassVar[CertificateKind] = "heuristic"
    unit: ClassVar[CertificateUnit] = "stages"
    config_type: ClassVar[type[Settings]] = SolverSettings

    @classmethod
    def read_action(cls, text: str) -> str:
        """Return a turn in lower case without spaces; it may have two primitives separated by ``|``."""
        return "".join(text.split()).casefold()

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label cases from ``legal`` and ``remaining_stages`` of the log; see :meth:`Solver.certify`."""
        return [_label(case) for case in cases]

    def needs(self, case: Case) -> list[float | None] | None:
        """Return the remaining stages; see :meth:`Solver.needs`."""
        try:
            start = _read_level(case.initial_state)[1]
            return [start, *_read_log(case, start)]
        except (LevelError, CertifyError):
            return None


def _label(case: Case) -> Verdict | Unsolved:
    try:
        task, start = _read_level(case.initial_state)
        calls = _read_actions(case)
        stages = [start, *_read_log(case, start)]
        turns = _turns(task, case)
    except (LevelError, CertifyError) as error:
        return Unsolved("bad_episode", str(error))
    pivot, fallback = _first_fatal(stages, case.horizon)
    fitting = _fitting(calls, case.steps, stages, pivot)
    reference = None if turns is None else _first_fatal(turns, case.horizon)[0]
    before = case.horizon - pivot
    certificate = Certificate(
        kind="heuristic",
        unit="stages",
        budget_before=before,
        budget_after=before - 1,
        before=stages[pivot],
        after=stages[pivot + 1],
        reachable_after=None,
        raw_before=float(stages[pivot]),
        raw_after=float(stages[pivot + 1]),
        reference_pivot=reference,
        reference_kind=None if turns is None else "lower_bound",
        reference_before=None if turns is None else turns[pivot],
        reference_after=None if turns is None else turns[pivot + 1],
    )
    return Verdict(
        pivot_step=pivot,
        failure_mode=fitting[0] if fitting else "timeout",
        certificate=certificate,
        secondary_modes=tuple(fitting[1:]),
        fallback=fallback,
        infeasible_at_start=start > case.horizon,
    )


def _first_fatal(needed: Sequence[int], horizon: int) -> tuple[int, bool]:
    """Return ``t*`` for the needed amounts at ``s_0 .. s_T``, and whether it is the fallback."""
    for t in range(len(needed) - 1):
        if needed[t + 1] > horizon - 1 - t or (t == 0 and needed[0] > horizon):
            return t, False
    return len(needed) - 2, True


def _fitting(
    calls: Sequence[Sequence[str]], steps: Sequence[Mapping[str, Any]], stages: Sequence[int], t: int
) -> list[str]:
    """Return the matching modes of step ``t`` in order of priority; empty for ``timeout``."""
    turn = calls[t]
    picked = any("pick" in earlier for earlier in calls[:t])
    first_pick = turn.index("pick") if "pick" in turn else len(turn)
    tests = {
        "format": not turn or steps[t]["legal"] is False,
        "order_error": not picked and any(name != "pick" for name in turn[:first_pick]),
        "wrong_target": "place" in turn[first_pick:] and stages[t + 1] >= stages[t],
    }
    return [mode for mode, holds in tests.items() if holds]


def _turns(task: str, case: Case) -> list[int] | None:
    """Return a lower bound on the turns needed at ``s_0 .. s_T``; None if the observations lack the positions.

    A failed episode is not solved after its last turn either, so the last state needs at least one turn.
    """
    if len(case.observations) != len(case.actions):
        return None
    try:
        return [*(fewest_turns(task, text) for text in case.observations), 1]
    except LevelError:
        return None


def _read_level(text: str) -> tuple[str, int]:
    """Return the task of a state text and the number of its remaining stages.

    Raises:
        LevelError: the text is not a state of a known task.
    """
    if len(text) > MAX_STATE_BYTES:
        raise LevelError(f"the state has {len(text)} characters, at most {MAX_STATE_BYTES} are read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LevelError(f"the state is not JSON: {error}") from error
    task = data.get("task") if isinstance(data, dict) else None
    if not isinstance(task, str) or task not in THINGS:
        raise LevelError(f"the state has task {str(task)[:80]!r}, expected one of {', '.join(THINGS)}")
    achieved = data.get("achieved")
    if not isinstance(achieved, list) or [type(flag) for flag in achieved] != [bool] * STAGES[task]:
        raise LevelError(f"achieved is {str(achieved)[:80]}, expected {STAGES[task]} times true or false")
    return task, achieved.count(False)


def _read_actions(case: Case) -> list[list[str]]:
    """Return the names of the primitives of every turn; empty for an unusable reply.

    Raises:
        CertifyError: the actions are not a valid episode.
    """
    count = len(case.actions)
    if not 0 < count <= case.horizon:
        raise CertifyError(f"the episode has {count} actions; expected 1 to its horizon of {case.horizon}")
    return [_names(t, action) for t, action in enumerate(case.actions)]


def _names(t: int, action: str) -> list[str]:
    if action in UNUSABLE:
        return []
    parts = action.split("|") if len(action) <= MAX_ACTION_CHARS else []
    calls = [_CALL.fullmatch(part) for part in parts]
    names = [call[1] for call in calls if call is not None and call[2].count(",") + 1 == ARITY[call[1]]]
    if len(names) != len(parts) or not 0 < len(names) <= MOST_PRIMITIVES:
        raise CertifyError(
            f"unknown action {action[:80]!r} at step {t}; use one or two of pick(x,y,z), place(x,y,z) and "
            f"push(x,y,z,x,y,z) with a | between them, or {UNUSABLE[0]}"
        )
    return names


def _read_log(case: Case, start: int) -> list[int]:
    """Return the remaining stages after every step.

    Raises:
        CertifyError: the log is not a valid episode.
    """
    if len(case.steps) != len(case.actions):
        raise CertifyError(
            f"the log has {len(case.steps)} steps for {len(case.actions)} actions; pass the info of every step"
        )
    open_stages, most = [], start
    for t, info in enumerate(case.steps):
        stages, legal = info.get("remaining_stages"), info.get("legal")
        if type(stages) is not int or not 0 <= stages <= most:
            raise CertifyError(
                f"remaining_stages of step {t} is {str(stages)[:40]}; expected a whole number from 0 to {most}, since "
                "a stage stays achieved"
            )
        if not isinstance(legal, bool):
            raise CertifyError(f"legal of step {t} is {str(legal)[:40]}; expected true or false")
        if legal and case.actions[t] in UNUSABLE:
            raise CertifyError(f"step {t} is logged as legal, but its action is {case.actions[t]}")
        most = stages
        open_stages.append(stages)
    return open_stages
