"""Pivot labels of failed navigation episodes, from a lower bound on the turns to the target.

From ``dist`` metres, at least ``ceil(max(0, dist - threshold) / step - 1e-6)`` movements are needed, regardless of
obstacles. The pivot ``t*`` is the first step after which the bound exceeds the turns left. Distances come from the log;
a missing one is carried forward, starting with the initial distance. Flags of the log do not affect the pivot, only the
mode at ``t*``: ``format``, ``blocked``, ``stagnation``, else ``budget``.

In an embedded room, the exact number of turns is known too (``room.py``). It is stored with the bound as the better
bound (columns ``reference_*``), with the pivot that it gives; with ``pivot_rule=exact`` it is the certificate. If the
target is still reachable from ``s_{t*}``, the shortest plan is the witness.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from ...core.errors import CertifyError, LevelError
from ...core.plugins import Settings
from ..base import Case, Certificate, CertificateKind, CertificateUnit, Needs, Solver, SolverSettings, Unsolved, Verdict
from .room import TURN_OF_MOVE, Pose, Room, State, read_state

ACTIONS = ("moveahead", "moveback", "moveright", "moveleft", "rotateright", "rotateleft", "lookup", "lookdown")
UNUSABLE = ("invalid", "empty")
"""Names of a reply without a usable action; PIVOT's logs use the first."""

ROUNDING = 1e-6
"""Tolerance of the quotient above a whole number, so that rounding errors do not add a turn."""
DECIMALS = 9
"""Decimals of a gain in metres before it is compared, because 1.9 - 1.8 is slightly less than 0.1 in binary."""
FARTHEST = 1e9
"""Largest valid distance, metres; larger integers may not fit into a float."""
LOG_TOLERANCE = 0.01
"""Largest difference between a logged distance and that of the embedded room, metres; logs may have two decimals."""

PivotRule = Literal["budget", "earliest_event", "exact"]
ROOMS = "embedded"
"""Backend whose states hold a room."""


class NavigationSettings(SolverSettings):
    """Settings of the navigation solver."""

    threshold: float = Field(default=1.5, ge=0)
    """Success distance from the target, metres."""
    step: float = Field(default=0.5, gt=0)
    """Length of a movement, metres."""
    window: int = Field(default=5, gt=0)
    """``W``: number of steps over which progress is measured."""
    eps: float = Field(default=0.1, ge=0)
    """Progress over ``window`` steps below which the episode stagnates, metres."""
    pivot_rule: PivotRule = "budget"
    """``budget``: only the bound determines the pivot. ``earliest_event`` (the paper's literal definition): the first
    blocked movement, the end of the first stagnant window, or the first of the unusable replies at the end of an
    episode is the pivot, if it is not later than the bound's pivot. ``exact`` (built-in rooms only): the shortest way
    through the room determines the pivot."""


class NavigationSolver(Solver):
    """Solver of navigation episodes; see the module docstring."""

    name: ClassVar[str] = "navigation"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = ("format", "blocked", "stagnation", "budget")
    actions: ClassVar[tuple[str, ...]] = ACTIONS
    kind: ClassVar[CertificateKind] = "lower_bound"
    unit: ClassVar[CertificateUnit] = "turns"
    config_type: ClassVar[type[Settings]] = NavigationSettings
    settings: NavigationSettings

    def __init__(self, settings: Settings | None = None, **options: Any) -> None:
        """Create the solver; its certificates are exact if the rule is."""
        super().__init__(settings, **options)
        if self._is_exact:
            self.kind = "exact"  # pyright: ignore[reportAttributeAccessIssue] - one class, two kinds

    @property
    def _is_exact(self) -> bool:
        return self.settings.pivot_rule == "exact"

    @classmethod
    def refusal(cls, settings: Settings, environment: Mapping[str, Any]) -> str | None:
        """Refuse the exact rule for a simulator, whose states hold no room; see the base class."""
        rule, backend = getattr(settings, "pivot_rule", None), environment.get("backend", ROOMS)
        if rule != "exact" or backend == ROOMS:
            return None
        return (
            f"pivot_rule=exact searches the built-in rooms, and backend={backend} has none; choose "
            "navigation.pivot_rule=budget"
        )

    @classmethod
    def read_distance(cls, metres: float) -> str:
        """Return a state without a room, with agent and target at a distance; see the base class."""
        places = {name: {"position": {"x": x, "z": 0.0}} for name, x in (("agent", 0.0), ("target", float(metres)))}
        return json.dumps({"backend": "log", **places})

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label cases from ``dist``, ``moved`` and ``last_action_success`` of the log; see :meth:`Solver.certify`.

        An embedded episode needs no log, because its room gives the same distances.
        """
        return [self._label(case) for case in cases]

    def needed(self, raw: float) -> int | None:
        """Return the smallest number of turns for a distance of ``raw`` metres; None where the room decides."""
        return None if self._is_exact else self._bound(raw)

    def _bound(self, raw: float) -> int:
        return math.ceil(max(0.0, raw - self.settings.threshold) / self.settings.step - ROUNDING)

    def needs(self, case: Case) -> list[float | None] | None:
        """Return the turns for the logged distances; see :meth:`Solver.needs`."""
        try:
            state = read_state(case.initial_state, self.settings.threshold)
            if self._is_exact:
                room = _room_of(state)
                return [room.turns(pose) for pose in _poses(room, case.actions)]
            return [self._bound(distance) for distance in _distances(state.start_distance, case.steps)]
        except (LevelError, CertifyError):
            return None

    def measure(self, cases: Sequence[Case]) -> list[Needs | Unsolved]:
        """Return the bounds, and in embedded rooms the actions that are safe by the exact distance; see the base."""
        return [self._measure(case) for case in cases]

    def _measure(self, case: Case) -> Needs | Unsolved:
        try:
            _, distances, room, poses = self._read(case)
        except (LevelError, CertifyError) as error:
            return Unsolved("bad_episode", str(error))
        turns: list[int | None] = [self._bound(distance) for distance in distances]
        safe: list[tuple[str, ...]] = [()] * len(case.actions)
        if room is not None and poses is not None:
            safe = [_safe_actions(room, pose, case.horizon - 1 - turn) for turn, pose in enumerate(poses[:-1])]
            if self._is_exact:
                turns = [room.turns(pose) for pose in poses]
        return Needs([each if _in_time(each, case.horizon) else None for each in turns], safe)

    def _read(self, case: Case) -> tuple[Sequence[Mapping[str, Any]], list[float], Room | None, list[Pose] | None]:
        """Return log, distances, room and poses of an episode.

        Raises:
            LevelError, CertifyError: level, actions and log are not a valid episode.
        """
        state = read_state(case.initial_state, self.settings.threshold)
        if self._is_exact:
            _room_of(state)
        steps = _checked_steps(case, state)
        poses = None if state.room is None else _poses(state.room, case.actions)
        distances = _distances(state.start_distance, steps)
        if state.room is not None and poses is not None:
            _compare(state.room, poses, steps)
        return steps, distances, state.room, poses

    def _label(self, case: Case) -> Verdict | Unsolved:
        try:
            steps, distances, room, poses = self._read(case)
        except (LevelError, CertifyError) as error:
            return Unsolved("bad_episode", str(error))
        reached = next((t for t, distance in enumerate(distances) if distance <= self.settings.threshold), None)
        if reached is not None:
            return Unsolved("not_a_failure", f"{distances[reached]:.2f} m from the target after {reached} actions")
        return self._verdict(case, steps, distances, room, poses)

    def _verdict(
        self,
        case: Case,
        steps: Sequence[Mapping[str, Any]],
        distances: list[float],
        room: Room | None,
        poses: list[Pose] | None,
    ) -> Verdict:
        true: list[int | None] = [] if room is None or poses is None else [room.turns(pose) for pose in poses]
        exact, bounds = self._is_exact, [self._bound(distance) for distance in distances]
        needed: Sequence[int | None] = true if exact else bounds
        fatal, fallback = _first_fatal(needed, case.horizon)
        pivot, event = fatal, None
        if self.settings.pivot_rule == "earliest_event":
            first = min(self._events(case.actions, steps, distances), default=(case.horizon, None))
            if first[0] <= fatal:
                pivot, event = first
        fitting = self._fitting(case.actions, steps, distances, pivot)
        mode = self.modes[event] if event is not None else fitting[0] if fitting else "budget"
        before, after = case.horizon - pivot, case.horizon - 1 - pivot
        reference = [] if exact else true
        certificate = Certificate(
            kind="exact" if exact else "lower_bound",
            unit="turns",
            budget_before=before,
            budget_after=after,
            before=needed[pivot],
            after=needed[pivot + 1],
            reachable_after=needed[pivot + 1] is not None if exact else None,
            raw_before=distances[pivot],
            raw_after=distances[pivot + 1],
            reference_pivot=_first_fatal(reference, case.horizon)[0] if reference else None,
            reference_kind="exact" if reference else None,
            reference_before=reference[pivot] if reference else None,
            reference_after=reference[pivot + 1] if reference else None,
        )
        witness, feasible = None, ()
        if room is not None and poses is not None and _in_time(true[pivot], before):
            witness = _shortest_plan(room, poses[pivot])
            feasible = _safe_actions(room, poses[pivot], after)
        return Verdict(
            pivot_step=pivot,
            failure_mode=mode,
            certificate=certificate,
            secondary_modes=tuple(other for other in fitting if other != mode),
            fallback=fallback and event is None,
            infeasible_at_start=not _in_time(needed[0], case.horizon),
            witness=witness,
            feasible_actions=feasible,
        )

    def _fitting(
        self, actions: Sequence[str], steps: Sequence[Mapping[str, Any]], distances: list[float], t: int
    ) -> list[str]:
        """Return the matching modes of step ``t`` in order of priority; empty for ``budget``."""
        tests = {
            "format": actions[t] in UNUSABLE,
            "blocked": _rejected(actions[t], steps[t]),
            "stagnation": self._stagnates(distances, t),
        }
        return [mode for mode, holds in tests.items() if holds]

    def _stagnates(self, distances: list[float], t: int) -> bool:
        """Return whether the ``window`` steps up to ``t`` gained less than ``eps`` (``distances[t + 1]`` follows t)."""
        return (
            t >= self.settings.window
            and round(distances[t + 1 - self.settings.window] - distances[t + 1], DECIMALS) < self.settings.eps
        )

    def _events(
        self, actions: Sequence[str], steps: Sequence[Mapping[str, Any]], distances: list[float]
    ) -> list[tuple[int, int]]:
        """Return step and index of the mode of the first event of each kind."""
        suffix = len(actions)
        while suffix and actions[suffix - 1] in UNUSABLE:
            suffix -= 1
        fires = (
            [t == suffix for t in range(len(actions))],
            [_rejected(action, info) for action, info in zip(actions, steps, strict=True)],
            [self._stagnates(distances, t) for t in range(len(actions))],
        )
        return [(row.index(True), mode) for mode, row in enumerate(fires) if True in row]


def _room_of(state: State) -> Room:
    """Return the room of a state.

    Raises:
        CertifyError: it holds none.
    """
    if state.room is None:
        raise CertifyError(
            f"the level holds no room (backend {state.backend!r}), but pivot_rule=exact searches one; use "
            "pivot_rule=budget"
        )
    return state.room


def _safe_actions(room: Room, pose: Pose, turns: int) -> tuple[str, ...]:
    """Return the actions after which the target can be reached in this many turns."""
    return tuple(action for action in ACTIONS if _in_time(room.turns(room.after(pose, action)[0]), turns))


def _in_time(needed: int | None, budget: int) -> bool:
    return needed is not None and needed <= budget


def _first_fatal(needed: Sequence[int | None], horizon: int) -> tuple[int, bool]:
    """Return ``t*`` for the turns needed at ``s_0 .. s_T`` (None: unreachable), and whether it is the fallback."""
    for t in range(len(needed) - 1):
        if not _in_time(needed[t + 1], horizon - 1 - t) or (t == 0 and not _in_time(needed[0], horizon)):
            return t, False
    return len(needed) - 2, True


def _rejected(action: str, info: Mapping[str, Any]) -> bool:
    """Return whether the flags report a blocked movement."""
    return action in TURN_OF_MOVE and (info.get("last_action_success") is False or info.get("moved") is False)


def _checked_steps(case: Case, state: State) -> Sequence[Mapping[str, Any]]:
    """Return the log of an episode; without one, derive it from the room.

    Raises:
        CertifyError: actions and log are not a valid episode.
    """
    count = len(case.actions)
    if not 0 < count <= case.horizon:
        raise CertifyError(f"the episode has {count} actions; expected 1 to its horizon of {case.horizon}")
    for t, action in enumerate(case.actions):
        if action not in ACTIONS and action not in UNUSABLE:
            raise CertifyError(f"unknown action {action!r} at step {t}; use one of {', '.join(ACTIONS)}, {UNUSABLE[0]}")
    if not case.steps and state.room is not None:
        return _simulated(state.room, case.actions)
    if len(case.steps) != count:
        raise CertifyError(f"the log has {len(case.steps)} steps for {count} actions; pass the info of every step")
    return case.steps


def _poses(room: Room, actions: Sequence[str]) -> list[Pose]:
    """Return the poses ``s_0 .. s_T`` by the room's rules."""
    poses = [room.start]
    for action in actions:
        poses.append(room.after(poses[-1], action)[0])
    return poses


def _simulated(room: Room, actions: Sequence[str]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    pose = room.start
    for action in actions:
        pose, done = room.after(pose, action)
        steps.append({"dist": room.distance(pose), "last_action_success": done})
    return steps


def _compare(room: Room, poses: list[Pose], steps: Sequence[Mapping[str, Any]]) -> None:
    """Raise CertifyError if the log contradicts the room: it would belong to a different level."""
    for t, info in enumerate(steps):
        logged, right = info.get("dist"), room.distance(poses[t + 1])
        if logged is not None and math.isfinite(logged) and abs(logged - right) > LOG_TOLERANCE:
            raise CertifyError(f"dist of step {t} is {logged}, but the room's rules give {right:.4f}")


def _distances(start: float, steps: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the distances at ``s_0 .. s_T``, carrying the last one forward where one is missing.

    Raises:
        CertifyError: a distance is not a number of metres.
    """
    distances = [start]
    for t, info in enumerate(steps):
        value = info.get("dist")
        if value is None:
            distances.append(distances[-1])
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or FARTHEST < value < math.inf:
            raise CertifyError(f"dist of step {t} is {value!r}; expected metres, or nothing where it was not measured")
        distances.append(float(value) if math.isfinite(value) else distances[-1])
    return distances


def _shortest_plan(room: Room, pose: Pose) -> tuple[str, ...]:
    """Return the shortest plan to success; among equally short ones, the first in the order of ``ACTIONS``."""
    plan: list[str] = []
    left = room.turns(pose)
    while left:
        action = next(name for name in ACTIONS if room.turns(room.after(pose, name)[0]) == left - 1)
        pose, left = room.after(pose, action)[0], left - 1
        plan.append(action)
    return tuple(plan)
