"""The prover: every field of a verdict by arithmetic on the stored row, without a line of the solver's."""

import re
from typing import ClassVar

from pivot.plugin import Case, Certificate, Proof, Prover, Settings, Verdict

LEVEL = re.compile(r"[.oG]*A[.oG]*")
FAR = 10**9


class CorridorProver(Prover):
    """Derives the right verdict and compares field by field."""

    config_type: ClassVar[type[Settings]] = Settings

    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or everything that is wrong with it."""
        right = _right(case)
        if isinstance(right, str):
            return Proof((f"not a failed episode: {right}",))
        problems = []
        for name in Verdict.__slots__:
            stored, due = getattr(verdict, name), getattr(right, name)
            if stored != due:
                problems.append(f"{name} is {stored!r}, the walk gives {due!r}")
        return Proof(tuple(problems))


def _straight(view: str) -> int:
    """Return the place of the first goal in sight, -1 when a pit or nothing comes first."""
    return view.partition("o")[0].find("G")


def _moves(row: str, at: int) -> int:
    """Return the moves from a cell to the nearest goal with no pit in between, ``FAR`` without one."""
    if row[at] == "o":
        return FAR
    ways = [_straight(row[at:]), _straight(row[at::-1])]
    return min((way for way in ways if way >= 0), default=FAR)


def _right(case: Case) -> Verdict | str:
    actions, turns = list(case.actions), case.horizon
    if not LEVEL.fullmatch(case.initial_state) or not 0 < len(actions) <= turns:
        return "the level cannot be read, or there is not one action a turn"
    row, at = case.initial_state.replace("A", "."), case.initial_state.index("A")
    cells = [at]
    for action in actions:
        if row[cells[-1]] != "." or action not in ("left", "right", "invalid"):
            return f"{action!r} cannot follow"
        shift = {"left": -1, "right": 1}.get(action, 0)
        cells.append(max(0, min(len(row) - 1, cells[-1] + shift)))
    needed = [_moves(row, cell) for cell in cells]
    if needed[-1] == 0:
        return "it ends on the goal"
    late = [step for step in range(len(actions)) if needed[step + 1] + step + 1 > turns]
    step = late[0] if late else len(actions) - 1
    left = turns - step
    feasible = tuple(
        name
        for name, shift in (("left", -1), ("right", 1))
        if _moves(row, max(0, min(len(row) - 1, cells[step] + shift))) < left
    )
    plan = None
    if needed[step] <= left:
        # The nearest goal lies straight ahead; of two equally near ones, the left one is named first.
        go_left = _straight(row[cells[step] :: -1]) == needed[step]
        plan = (("left" if go_left else "right"),) * needed[step]
    before, after = (None if moves == FAR else moves for moves in needed[step : step + 2])
    facts = Certificate("exact", "moves", left, left - 1, before, after, after is not None)
    mode = "timeout" if after is not None else "fell"
    return Verdict(step, mode, facts, (), not late, needed[0] > turns, plan, feasible)
