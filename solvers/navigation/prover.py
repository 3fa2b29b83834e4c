"""Prover of navigation labels: re-derives every field of a verdict in a different way.

It is independent of the solver: distances are fractions, gains are decimals, and networkx computes the exact number of
turns on a graph of the free steps of an embedded room, checked box by box. The two share only the meaning of the
solver's settings.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import networkx as nx

from ...core.plugins import Settings
from ..base import Case, Certificate, Proof, Prover, Verdict, differences

_DEFAULTS: Mapping[str, Any] = {"threshold": 1.5, "step": 0.5, "window": 5, "eps": 0.1, "pivot_rule": "budget"}
_ORDER = ("moveahead", "moveback", "moveright", "moveleft", "rotateright", "rotateleft", "lookup", "lookdown")
_NOTHING = ("invalid", "empty")
_COMPASS = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""Steps in x and z for the headings 0, 90, 180 and 270."""
_QUARTERS = {"moveahead": 0, "moveright": 1, "moveback": 2, "moveleft": 3}
_SLACK = Fraction(1, 1_000_000)
_EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN)
_NINE_PLACES = Decimal("1E-9")
_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, ArithmeticError, AttributeError, RecursionError)

Place = tuple[int, int]
"""x and z, millimetres."""
Agent = tuple[Place, int]
"""Position, and heading in quarter turns."""


class NavigationProver(Prover):
    """Prover of navigation labels, for one set of solver settings."""

    config_type: ClassVar[type[Settings]] = Settings

    def __init__(self, solver_config: Mapping[str, Any] | None = None, settings: Settings | None = None) -> None:
        """Create a prover for labels made with these solver settings, or with the default settings."""
        super().__init__(solver_config, settings)
        self._config = {**_DEFAULTS, **self.solver_config}
        self._threshold = Fraction(self._config["threshold"])
        self._level = lru_cache(maxsize=4)(_Level)

    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or all its errors."""
        count = len(case.actions)
        strange = [action for action in case.actions if action not in (*_ORDER, *_NOTHING)]
        if strange or not 0 < count <= case.horizon:
            return Proof((f"not an episode: {count} actions for {case.horizon} turns, unknown {strange}",))
        try:
            level = self._level(case.initial_state, self._threshold)
            log = _Log(level, case, self._config)
        except _UNREADABLE as error:
            return Proof((f"level or log cannot be read: {type(error).__name__}: {error}",))
        problems = log.foreign()
        there = next((t for t, metres in enumerate(log.metres) if metres <= self._threshold), None)
        if there is not None:
            problems.append(f"not a failed episode: the target is reached after {there} actions")
        if not 0 <= verdict.pivot_step < count:
            problems.append(f"pivot_step {verdict.pivot_step} is not a step of the episode")
        return Proof(tuple(problems) or self._differences(level, log, case.horizon, verdict))

    def _needed(self, metres: Fraction) -> int:
        return max(0, math.ceil((metres - self._threshold) / Fraction(self._config["step"]) - _SLACK))

    def _differences(self, level: "_Level", log: "_Log", horizon: int, verdict: Verdict) -> tuple[str, ...]:
        exact, true = self._config["pivot_rule"] == "exact", log.true
        if exact and not true:
            return ("pivot_rule=exact, but the level has no room",)
        needed: list[int | None] = true if exact else [self._needed(metres) for metres in log.metres]
        pivot, modes, lost = self._reading(log, needed, horizon)
        left, facts = horizon - pivot, verdict.certificate
        has_room, has_reference = bool(true), bool(true) and not exact
        plans = has_room and _within(true[pivot], left)
        certificate = Certificate(
            kind="exact" if exact else "lower_bound",
            unit="turns",
            budget_before=left,
            budget_after=left - 1,
            before=needed[pivot],
            after=needed[pivot + 1],
            reachable_after=true[pivot + 1] is not None if exact else None,
            raw_before=_rounded(log.metres[pivot]),
            raw_after=_rounded(log.metres[pivot + 1]),
            reference_pivot=_lost(true, horizon)[0] if has_reference else None,
            reference_kind="exact" if has_reference else None,
            reference_before=true[pivot] if has_reference else None,
            reference_after=true[pivot + 1] if has_reference else None,
        )
        safe = (a for a in _ORDER if _within(level.turns.get(level.after(log.way[pivot], a)[0]), left - 1))
        right = Verdict(
            pivot,
            modes[0],
            certificate,
            modes[1:],
            not lost,
            not _within(needed[0], horizon),
            level.plan(log.way[pivot]) if plans else None,
            tuple(safe) if plans else (),
        )
        measured = replace(facts, raw_before=_rounded(facts.raw_before), raw_after=_rounded(facts.raw_after))
        return differences(replace(verdict, certificate=measured), right)

    def _reading(self, log: "_Log", needed: list[int | None], horizon: int) -> tuple[int, tuple[str, ...], bool]:
        """Return the pivot, its matching modes (the label's first), and whether some step was fatal."""
        last, lost = _lost(needed, horizon)
        if self._config["pivot_rule"] == "earliest_event":
            for t in range(last + 1):
                events = [mode for mode in log.modes(t) if mode != "format" or log.unusable_from == t]
                if events:
                    rest = tuple(mode for mode in log.modes(t) if mode != events[0])
                    return t, (events[0], *rest), True
        return last, log.modes(last) or ("budget",), lost


class _Level:
    """Positions of agent and target, and for an embedded room the graph of its free steps."""

    def __init__(self, text: str, threshold: Fraction) -> None:
        data = json.loads(text)
        agent, goal = data["agent"], data["target"]["position"]
        here = agent["position"]
        gaps = [Fraction(here[axis]) - Fraction(goal[axis]) for axis in "xz"]
        self.embedded = data["backend"] == "embedded"
        self.turns: dict[Place, int] = {}
        if not self.embedded:
            self.start: Agent = ((0, 0), 0)
            self.metres = _root(gaps[0] ** 2 + gaps[1] ** 2)
            return
        quarter, rest = divmod(round(agent["rotation"]), 90)
        if rest:
            raise ValueError(f"rotation {agent['rotation']} is not a multiple of 90")
        self.start = ((_whole(here["x"]), _whole(here["z"])), quarter % 4)
        self._goal = (_whole(goal["x"]), _whole(goal["z"]))
        self._size = tuple(_whole(data["room"]["size"][axis]) for axis in "xz")
        solids = [part for thing in data["room"]["objects"] for part in thing["parts"]]
        heights = [(_whole(part["min"][1]), _whole(part["max"][1])) for part in solids]
        self._boxes = [
            tuple(_whole(part[end][axis]) for end in ("min", "max") for axis in (0, 2))
            for part, (low, high) in zip(solids, heights, strict=True)
            if min(high, 1800) - max(low, 50) > 0
        ]
        self.metres = self.away(self.start[0])
        self._search(threshold)

    def _search(self, threshold: Fraction) -> None:
        """Fill ``turns``, the fewest steps from every position of the lattice."""
        (x, z), _ = self.start
        xs, zs = (range(at % 500, size + 1, 500) for at, size in zip((x, z), self._size, strict=True))
        graph: nx.Graph = nx.Graph()
        graph.add_nodes_from((column, row) for column in xs for row in zs)
        for place in list(graph):
            for dx, dz in _COMPASS[:2]:
                beside = (place[0] + 500 * dx, place[1] + 500 * dz)
                if beside in graph and self._open(place, beside):
                    graph.add_edge(place, beside)
        reach = (1000 * threshold) ** 2
        near = [node for node in graph if sum((a - b) ** 2 for a, b in zip(node, self._goal, strict=True)) <= reach]
        if near:
            lengths = nx.multi_source_dijkstra_path_length(graph, set(near))
            self.turns = {node: round(length) for node, length in lengths.items()}

    def _open(self, one: Place, other: Place) -> bool:
        """Return whether the square agent can move between two positions: inside the room, without touching a part."""
        swept = [(min(pair) - 200, max(pair) + 200) for pair in zip(one, other, strict=True)]
        if any(low < 0 or high > size for (low, high), size in zip(swept, self._size, strict=True)):
            return False
        (x0, x1), (z0, z1) = swept
        return not any(
            min(x1, right) - max(x0, left) > 0 and min(z1, far) - max(z0, near) > 0
            for left, near, right, far in self._boxes
        )

    def after(self, agent: Agent, action: str) -> Agent:
        """Return the position and heading after an action."""
        (x, z), heading = agent
        if action.startswith("rotate"):
            return (x, z), (heading + (1 if action == "rotateright" else 3)) % 4
        if action not in _QUARTERS:
            return agent
        dx, dz = _COMPASS[(heading + _QUARTERS[action]) % 4]
        beside = (x + 500 * dx, z + 500 * dz)
        return (beside if self._open((x, z), beside) else (x, z)), heading

    def away(self, place: Place) -> Fraction:
        """Return the distance between a position and the target, metres."""
        return _root(Fraction(sum((a - b) ** 2 for a, b in zip(place, self._goal, strict=True)), 10**6))

    def plan(self, agent: Agent) -> tuple[str, ...]:
        """Return the first shortest plan from a position from which success is possible."""
        plan: list[str] = []
        while self.turns[agent[0]]:
            shorter = {name: self.after(agent, name) for name in _QUARTERS}
            name = next(n for n in _ORDER if n in shorter and self.turns[shorter[n][0]] < self.turns[agent[0]])
            agent = shorter[name]
            plan.append(name)
        return tuple(plan)


class _Log:
    """The logged episode: positions, exact turns, distances and flags."""

    def __init__(self, level: _Level, case: Case, config: Mapping[str, Any]) -> None:
        self._config, self._level, self._actions = config, level, list(case.actions)
        self.way = [level.start]
        for action in case.actions if level.embedded else ():
            self.way.append(level.after(self.way[-1], action))
        self.true = [level.turns.get(place) for place, _ in self.way] if level.embedded else []
        self._steps: Sequence[Mapping[str, Any]] = case.steps or (self._own() if level.embedded else ())
        if len(self._steps) != len(case.actions):
            raise ValueError(f"{len(self._steps)} steps logged for {len(case.actions)} actions")
        self.metres = [level.metres]
        for info in self._steps:
            read = info.get("dist")
            if read is None or (isinstance(read, float) and not math.isfinite(read)):
                self.metres.append(self.metres[-1])
            elif isinstance(read, bool | str) or read < 0:
                raise ValueError(f"dist {read!r}")
            else:
                self.metres.append(Fraction(read))
        usable = [t for t, action in enumerate(case.actions) if action not in _NOTHING]
        self.unusable_from = usable[-1] + 1 if usable else 0

    def _own(self) -> list[dict[str, Any]]:
        """Return the log derived from the room; a movement that does not change the position was blocked."""
        level, way = self._level, self.way
        return [
            {"dist": float(level.away(after)), "moved": after != before} if action in _QUARTERS else {}
            for action, (before, _), (after, _) in zip(self._actions, way, way[1:], strict=False)
        ]

    def foreign(self) -> list[str]:
        """Return the logged distances that contradict the room."""
        if not self._level.embedded:
            return []
        places = [place for place, _ in self.way[1:]]
        return [
            f"dist of step {t} is {info['dist']}, the room gives {float(self._level.away(place)):.4f}"
            for t, (info, place) in enumerate(zip(self._steps, places, strict=True))
            if info.get("dist") is not None
            and math.isfinite(info["dist"])
            and abs(Fraction(info["dist"]) - self._level.away(place)) > Fraction(1, 100) + Fraction(1, 10**9)
        ]

    def modes(self, t: int) -> tuple[str, ...]:
        """Return the matching modes of a step, in order of priority; empty for ``budget``."""
        action, info, window = self._actions[t], self._steps[t], int(self._config["window"])
        stopped = False in (info.get("last_action_success"), info.get("moved"))
        matches = ["format"] if action in _NOTHING else ["blocked"] if action in _QUARTERS and stopped else []
        if t >= window:
            gain = _decimal(self.metres[t + 1 - window]) - _decimal(self.metres[t + 1])
            if _EXACT.quantize(gain, _NINE_PLACES) < Decimal(repr(float(self._config["eps"]))):
                matches.append("stagnation")
        return tuple(matches)


def _whole(metres: float) -> int:
    return round(1000 * metres)


def _root(square: Fraction) -> Fraction:
    return Fraction(_EXACT.sqrt(_EXACT.divide(Decimal(square.numerator), Decimal(square.denominator))))


def _decimal(value: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _rounded(value: float | Fraction | None) -> float | None:
    return None if value is None else round(float(value), 9)


def _within(needed: int | None, budget: int) -> bool:
    return needed is not None and needed <= budget


def _lost(needed: Sequence[int | None], horizon: int) -> tuple[int, bool]:
    """Return the first step after which too few turns remain, else the last step, and whether there is such a step."""
    late = [t for t, amount in enumerate(needed) if not _within(amount, horizon - t)]
    return (max(late[0] - 1, 0), True) if late else (len(needed) - 2, False)
