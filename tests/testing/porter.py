"""An environment whose agent picks and drops in place and whose state is one line, with its exact solver.

An agent carries the box of a corridor to the goal ``G``; the pit ``x`` ends the episode. The symbol of the agent says
what it stands on and whether the box is in its hands or under its feet.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from pivot.core.errors import LevelError
from pivot.core.identity import derive_seed
from pivot.core.plugins import Settings
from pivot.environments.base import EnvConfig, EnvProfile, Frame, ParsedAction, PivotEnv, Task
from pivot.solvers.base import Case, Certificate, DistanceMap, ExactSolver, SolverSettings, Unsolved, Verdict
from pydantic import Field

ACTIONS = ("left", "right", "pick", "drop")
UNUSABLE = "invalid"
LONGEST, CELL = 10, 8
HELD = -1
"""Place of a box that the agent holds."""
AGENTS = {"a": ".", "A": ".", "c": ".", "g": "G", "h": "G", "w": "G", "X": "x", "Y": "x"}
WITH_BOX = {"A": HELD, "h": HELD, "Y": HELD, "c": 0, "w": 0}
"""Agents that hold the box, and agents that stand on it."""

State = tuple[str, int, int]
"""Cells without agent and box, place of the agent, place of the box."""


def parse(text: str) -> State:
    """Read a state; LevelError where the text is not one."""
    text = text.rstrip("\n")
    if not 3 <= len(text) <= LONGEST:
        raise LevelError(f"the corridor has {len(text)} cells; 3 to {LONGEST} are read")
    if unknown := set(text) - {*AGENTS, *".Gxb"}:
        raise LevelError(f"unknown symbol {min(unknown)!r}")
    agents = [place for place, symbol in enumerate(text) if symbol in AGENTS]
    if len(agents) != 1:
        raise LevelError(f"the corridor has {len(agents)} agents; exactly one is needed")
    (at,) = agents
    boxes = [place for place, symbol in enumerate(text) if symbol == "b"]
    boxes += [HELD if WITH_BOX[text[at]] == HELD else at] if text[at] in WITH_BOX else []
    cells = text.replace("b", ".").replace(text[at], AGENTS[text[at]])
    if len(boxes) != 1 or cells.count("G") != 1:
        raise LevelError(f"the corridor has {len(boxes)} boxes and {cells.count('G')} goals; one of each is needed")
    return cells, at, boxes[0]


def written(state: State) -> str:
    """Return the line of a state."""
    cells, at, box = state
    row = list(cells)
    if box not in (HELD, at):
        row[box] = "b"
    row[at] = {".": "aAc", "G": "ghw", "x": "XYX"}[cells[at]][1 if box == HELD else 2 if box == at else 0]
    return "".join(row)


def after(state: State, action: str) -> State:
    """Return the state after an action; one without effect changes nothing."""
    cells, at, box = state
    if is_over(state):
        return state
    if action in ("left", "right"):
        return cells, min(max(at + (1 if action == "right" else -1), 0), len(cells) - 1), box
    if action == "pick" and box == at:
        return cells, at, HELD
    return (cells, at, at) if action == "drop" and box == HELD else state


def is_won(state: State) -> bool:
    """Whether the box is on the goal."""
    return state[2] != HELD and state[0][state[2]] == "G"


def is_over(state: State) -> bool:
    """Whether the box is on the goal, or the agent in the pit."""
    return is_won(state) or state[0][state[1]] == "x"


class PorterConfig(EnvConfig):
    """Settings of the corridor."""

    horizon: int = Field(default=10, gt=0, le=100)
    length: int = Field(default=6, ge=4, le=LONGEST)


class PorterEnv(PivotEnv):
    """The corridor."""

    config: PorterConfig
    config_type: ClassVar[type[EnvConfig]] = PorterConfig
    profile: ClassVar[EnvProfile] = EnvProfile(
        name="porter",
        version="1",
        backend="embedded",
        answer_tag="action",
        unusable_action=UNUSABLE,
        failure_modes=("timeout", "fell"),
        state_format="porter",
        info_keys=("carrying",),
        log_fields=("moved", "last_action_success", "carrying", "remaining_turns"),
        task_description="Carry the box to the goal.",
        default_tasks=4,
    )

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = "rgb_array") -> None:
        super().__init__(config, render_mode)
        self.action_space = spaces.Discrete(len(ACTIONS) + 1)
        self.observation_space = spaces.Box(0, 255, (CELL, CELL * LONGEST, 3), np.uint8)
        self._state, self._turn, self._over = parse("abG"), 0, True

    @classmethod
    def make_task(cls, config: Any, seed: int) -> Task:
        inner = config.length - 2
        at, box = (1 + derive_seed(seed, name) % inner for name in ("agent", "box"))
        level = written(("xG"[seed % 2] + "." * inner + "Gx"[seed % 2], at, box))
        return Task(f"porter-{config.digest()}-{seed}", seed, level, "Carry the box to the goal.")

    @classmethod
    def canonical_state(cls, initial_state: str) -> str:
        return written(parse(initial_state))

    def parse_action(self, answer: str) -> ParsedAction | None:
        return ParsedAction(answer) if answer in ACTIONS else None

    def encode_action(self, name: str, payload: str | None = None) -> int:
        del payload
        if name not in (*ACTIONS, UNUSABLE):
            raise ValueError(f"unknown action {name!r}")
        return (*ACTIONS, UNUSABLE).index(name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = parse(self.asked_level(seed, options)[0])
        self._turn, self._over = 0, is_over(self._state)
        return self.render(), {"remaining_turns": self.config.horizon}

    def step(self, action: int) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise ResetNeeded("the episode is over; call reset first")
        before = self._state
        self._state = after(before, (*ACTIONS, UNUSABLE)[action])
        self._turn += 1
        left, ended, won = self.config.horizon - self._turn, is_over(self._state), is_won(self._state)
        self._over = ended or left == 0
        info = {
            "moved": self._state[1] != before[1],
            "last_action_success": self._state != before,
            "carrying": self._state[2] == HELD,
            "remaining_turns": left,
            "success": won,
        }
        return self.render(), 9.9 if won else -0.1, ended, self._over and not ended, info

    def render(self) -> Frame:  # pyright: ignore[reportIncompatibleMethodOverride]
        frame = np.zeros((CELL, CELL * LONGEST, 3), np.uint8)
        for place, symbol in enumerate(self.state_text()):
            frame[:, place * CELL : (place + 1) * CELL] = (ord(symbol), 3 * ord(symbol) % 256, 90)
        frame.flags.writeable = False
        return frame

    def state_text(self) -> str:
        return written(self._state)

    def frame_key(self) -> str:
        return self.state_text()

    def snapshot(self) -> bytes:
        return json.dumps([self.state_text(), self._turn]).encode()

    def restore(self, snapshot: bytes) -> Frame:
        text, self._turn = json.loads(snapshot)
        self._state = parse(text)
        self._over = is_over(self._state) or self._turn >= self.config.horizon
        return self.render()


class PorterMap(DistanceMap):
    """Fewest actions to the goal, of every state of one corridor."""

    def __init__(self, start: State) -> None:
        states, came_from = [start], dict[State, list[State]]()
        for state in states:  # grows while it is read
            for near in {after(state, action) for action in ACTIONS}:
                if near not in came_from:
                    states.append(near)
                came_from.setdefault(near, []).append(state)
        self.needed = {state: 0 for state in states if is_won(state)}
        frontier = list(self.needed)
        for state in frontier:
            for before in came_from.get(state, []):
                if before not in self.needed:
                    self.needed[before] = self.needed[state] + 1
                    frontier.append(before)

    def distance(self, state_text: str) -> int | None:
        return self.needed.get(parse(state_text))

    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        return tuple(self.needed.get(after(parse(state_text), action)) for action in ACTIONS)


class PorterSolver(ExactSolver):
    """Finds the first step after which the goal is out of reach."""

    name: ClassVar[str] = "porter"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = ("timeout", "fell")
    actions: ClassVar[tuple[str, ...]] = ACTIONS
    kind = "exact"
    unit = "moves"
    config_type: ClassVar[type[Settings]] = SolverSettings

    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> PorterMap:
        del depth_limit
        return PorterMap(parse(initial_state))

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        return [self._label(case) for case in cases]

    def _label(self, case: Case) -> Verdict | Unsolved:
        if not 0 < len(case.actions) <= case.horizon or set(case.actions) - {*ACTIONS, UNUSABLE}:
            return Unsolved("bad_episode", "unknown actions, or not one a turn")
        path = [parse(case.initial_state)]
        for action in case.actions:
            path.append(after(path[-1], action))
        if is_won(path[-1]):
            return Unsolved("not_a_failure", "the box is on the goal")
        needed, horizon, last = PorterMap(path[0]).needed, case.horizon, len(path) - 2

        def in_time(state: State, turns: int) -> bool:
            return needed.get(state, horizon + 1) <= turns

        fatal = next((t for t in range(last + 1) if not in_time(path[t + 1], horizon - 1 - t)), None)
        pivot = last if fatal is None else fatal
        left, plan, state = horizon - pivot, list[str](), path[pivot]
        while in_time(path[pivot], left) and needed[state]:
            plan.append(next(each for each in ACTIONS if needed.get(after(state, each), -1) == needed[state] - 1))
            state = after(state, plan[-1])
        lost = needed.get(path[pivot + 1])
        return Verdict(
            pivot_step=pivot,
            failure_mode="fell" if lost is None else "timeout",
            certificate=Certificate(
                "exact", "moves", left, left - 1, needed.get(path[pivot]), lost, reachable_after=lost is not None
            ),
            fallback=fatal is None,
            infeasible_at_start=not in_time(path[0], horizon),
            witness=tuple(plan) if in_time(path[pivot], left) else None,
            feasible_actions=tuple(each for each in ACTIONS if in_time(after(path[pivot], each), left - 1)),
        )
