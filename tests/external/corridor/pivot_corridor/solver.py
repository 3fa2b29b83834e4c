"""The solver: exact distances by breadth-first search. It reads plain texts and knows nothing of the environment."""

from collections.abc import Sequence
from typing import ClassVar

from pivot.plugin import (
    Case,
    Certificate,
    CertificateKind,
    CertificateUnit,
    DistanceMap,
    ExactSolver,
    LevelError,
    Settings,
    SolverSettings,
    Unsolved,
    Verdict,
)

STEPS = {"left": -1, "right": 1, "invalid": 0}
AGENTS = {"A": ".", "*": "G", "x": "o"}


class CorridorMap(DistanceMap):
    """Distance of every cell of one corridor to the goal."""

    def __init__(self, text: str) -> None:
        """Search from the goals backwards over floor."""
        self.start = self.cell(text)
        self.cells = text.rstrip("\n").translate(str.maketrans(AGENTS))
        self.needed: dict[int, int] = {at: 0 for at, cell in enumerate(self.cells) if cell == "G"}
        frontier = list(self.needed)
        for at in frontier:  # grows while it is read
            for near in (at - 1, at + 1):
                if 0 <= near < len(self.cells) and self.cells[near] == "." and near not in self.needed:
                    self.needed[near] = self.needed[at] + 1
                    frontier.append(near)

    @staticmethod
    def cell(text: str) -> int:
        """Return the agent's cell."""
        places = [place for place, symbol in enumerate(text.rstrip("\n")) if symbol in AGENTS]
        if len(places) != 1 or set(text.rstrip("\n")) - set(".oGA*x"):
            raise LevelError(f"{text!r} is not a corridor with one agent")
        return places[0]

    def is_over(self, at: int) -> bool:
        """Whether the episode ends on the cell."""
        return self.cells[at] != "."

    def after(self, at: int, action: str) -> int:
        """Return the cell after an action."""
        return at if self.is_over(at) else min(max(at + STEPS[action], 0), len(self.cells) - 1)

    def distance(self, state_text: str) -> int | None:
        """Return the moves to the goal; see the base class."""
        return self.needed.get(self.cell(state_text))

    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        """Return the moves to the goal after each action; see the base class."""
        at = self.cell(state_text)
        return tuple(self.needed.get(self.after(at, name)) for name in CorridorSolver.actions)


class CorridorSolver(ExactSolver):
    """Finds the first step after which the goal is out of reach, in time or for good."""

    name: ClassVar[str] = "corridor"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = ("timeout", "fell")
    actions: ClassVar[tuple[str, ...]] = ("left", "right")
    kind: ClassVar[CertificateKind] = "exact"
    unit: ClassVar[CertificateUnit] = "moves"
    config_type: ClassVar[type[Settings]] = SolverSettings

    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> CorridorMap:
        """Search one corridor; it is so small that no limit is needed."""
        del depth_limit
        return CorridorMap(initial_state)

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label ``cases``, in order."""
        return [self._label(case) for case in cases]

    def _label(self, case: Case) -> Verdict | Unsolved:
        unknown = sorted(set(case.actions) - set(STEPS))
        if unknown or not 0 < len(case.actions) <= case.horizon:
            detail = f"{len(case.actions)} actions for {case.horizon} turns, unknown actions {unknown}"
            return Unsolved("bad_episode", detail)
        try:
            corridor = CorridorMap(case.initial_state)
        except LevelError as error:
            return Unsolved("bad_episode", str(error))
        path = [corridor.start]
        for step, action in enumerate(case.actions):
            if corridor.is_over(path[-1]):
                return Unsolved("bad_episode", f"the episode is over before step {step}")
            path.append(corridor.after(path[-1], action))
        if corridor.needed.get(path[-1]) == 0:
            return Unsolved("not_a_failure", "the last action reaches the goal")
        return self._verdict(corridor, path, case.horizon)

    def _verdict(self, corridor: CorridorMap, path: list[int], horizon: int) -> Verdict:
        def in_time(at: int, turns: int) -> bool:
            return corridor.needed.get(at, horizon + 1) <= turns

        last = len(path) - 2
        fatal = next((t for t in range(last + 1) if not in_time(path[t + 1], horizon - 1 - t)), None)
        pivot = last if fatal is None else fatal
        at, left = path[pivot], horizon - pivot
        before, after = corridor.needed.get(at), corridor.needed.get(path[pivot + 1])
        witness = []
        place = at
        while in_time(at, left) and corridor.needed[place]:
            place, name = min(
                (corridor.after(place, name), name) for name in self.actions if self._nears(corridor, place, name)
            )
            witness.append(name)
        return Verdict(
            pivot_step=pivot,
            failure_mode="fell" if after is None else "timeout",
            certificate=Certificate("exact", "moves", left, left - 1, before, after, after is not None),
            fallback=fatal is None,
            infeasible_at_start=not in_time(path[0], horizon),
            witness=tuple(witness) if in_time(at, left) else None,
            feasible_actions=tuple(name for name in self.actions if in_time(corridor.after(at, name), left - 1)),
        )

    @staticmethod
    def _nears(corridor: CorridorMap, at: int, action: str) -> bool:
        return corridor.needed.get(corridor.after(at, action), -1) == corridor.needed[at] - 1
