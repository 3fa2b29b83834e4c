"""Prover of PrimitiveSkill labels: re-derives every field of a verdict in a different way.

It is independent of the solver. Remaining stages are counted back from the last step; modes are derived from the text
of the logged action. Whether one turn can suffice is decided by enumeration: all outcomes of two successive generous
primitives, cube by cube, are searched for the goal. The two share only the planner's assumptions and constants
(``planner.py``).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

from ...core.plugins import Settings
from ..base import Case, Certificate, Proof, Prover, Verdict, differences

_STAGES = {
    "align": ("red at 0", "green at 0"),
    "place": ("red held", "red home", "green held"),
    "stack": ("red held", "red on green", "purple held"),
    "drawer": ("apple held", "apple in"),
}
_NAMES = {"align": "RG", "place": "RG", "stack": "RGP", "drawer": "A"}
"""Movable objects of each task, one letter each, in the order in which observations list them."""
_ALL_POINTS = {"align": 2, "place": 4, "stack": 3, "drawer": 2}
_NOTHING = ("empty", "invalid")
_NUMBERS = {"pick": 3, "place": 3, "push": 6}
_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError)

_TABLE, _HAND = "table", "hand"
_REACH, _OVER = 150, 60
_DONE = {"G": _TABLE, "R": "G", "P": "R"}

Bases = dict[str, str]
"""Support of each cube: a cube, the table, or the hand."""


class PrimitiveSkillProver(Prover):
    """Prover of PrimitiveSkill labels, from log and observations."""

    config_type: ClassVar[type[Settings]] = Settings

    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or all its errors."""
        try:
            level = json.loads(case.initial_state)
            task = level["task"]
            log = _Log(case, _STAGES[task], list(level["achieved"]))
            turns = _needed_turns(task, case)
        except _UNREADABLE as error:
            return Proof((f"level or log cannot be read: {type(error).__name__}: {error}",))
        if not 0 <= verdict.pivot_step < len(case.actions):
            return Proof((f"pivot_step {verdict.pivot_step} is not a step of the episode",))
        return Proof(_differences(log, turns, case.horizon, verdict))


def _differences(log: "_Log", turns: list[int], horizon: int, verdict: Verdict) -> tuple[str, ...]:
    last = len(log.turns) - 1
    late = [t for t in range(last + 1) if log.open[t + 1] > horizon - 1 - t]
    at_start = log.open[0] > horizon
    pivot = 0 if at_start else min(late, default=last)
    lost = [t for t in range(last + 1) if turns and turns[t + 1] > horizon - 1 - t]
    reference = None if not turns else 0 if turns[0] > horizon else min(lost, default=last)
    modes = log.modes(pivot)
    certificate = Certificate(
        kind="heuristic",
        unit="stages",
        budget_before=horizon - pivot,
        budget_after=horizon - pivot - 1,
        before=log.open[pivot],
        after=log.open[pivot + 1],
        reachable_after=None,
        raw_before=log.open[pivot],
        raw_after=log.open[pivot + 1],
        reference_pivot=reference,
        reference_kind="lower_bound" if turns else None,
        reference_before=turns[pivot] if turns else None,
        reference_after=turns[pivot + 1] if turns else None,
    )
    mode, fallback = modes[0] if modes else "timeout", not late and not at_start
    return differences(verdict, Verdict(pivot, mode, certificate, modes[1:], fallback, at_start))


class _Log:
    """Log of an episode: the text of every turn, and the number of remaining stages before and after it."""

    def __init__(self, case: Case, stages: Sequence[str], achieved: list[Any]) -> None:
        if len(case.steps) != len(case.actions) or not 0 < len(case.actions) <= case.horizon:
            raise ValueError(f"{len(case.actions)} actions, {len(case.steps)} logged, {case.horizon} turns")
        if len(achieved) != len(stages) or not all(flag in (True, False) for flag in achieved):
            raise ValueError(f"achieved {achieved} for {len(stages)} stages")
        self.turns = [self._words(action) for action in case.actions]
        self.legal = [info["legal"] for info in case.steps]
        self.open = [len(stages) - sum(achieved), *(info["remaining_stages"] for info in case.steps)]
        if any(type(count) is not int or count < 0 for count in self.open) or self.open != sorted(self.open)[::-1]:
            raise ValueError(f"open stages {self.open}, which never become more")
        if any(
            flag not in (True, False) or (flag and not words)
            for flag, words in zip(self.legal, self.turns, strict=True)
        ):
            raise ValueError("a turn without a primitive is called legal")

    @staticmethod
    def _words(action: str) -> list[str]:
        if action in _NOTHING:
            return []
        words = []
        for call in action.split("|"):
            word, _, rest = call.partition("(")
            numbers = rest[:-1].split(",")
            plain = all(str(int(number)) == number for number in numbers)
            if not plain or not rest.endswith(")") or len(numbers) != _NUMBERS[word]:
                raise ValueError(f"action {action[:80]!r}")
            words.append(word)
        if len(words) > 2:
            raise ValueError(f"action {action[:80]!r}")
        return words

    def modes(self, t: int) -> tuple[str, ...]:
        """Return the matching modes of a turn, in order of priority; empty for ``timeout``."""
        words = self.turns[t]
        matches = ["format"] if not words or not self.legal[t] else []
        spoken = [word for turn in self.turns[:t] for word in turn]
        for word in words:
            if word != "pick" and "pick" not in spoken:
                matches.append("order_error")
                break
            spoken.append(word)
        if words == ["pick", "place"] and self.open[t + 1] == self.open[t]:
            matches.append("wrong_target")
        return tuple(matches)


# --- lower bound on turns --------------------------------------------------------------------------------------------


def _needed_turns(task: str, case: Case) -> list[int]:
    """Return a lower bound on the turns needed at ``s_0 .. s_T``; empty if an observation lacks the positions."""
    if len(case.observations) != len(case.actions):
        return []
    needed = []
    for text in case.observations:
        scene = _scene(task, text)
        if scene is None:
            return []
        needed.append(1 if _one_turn_may_do(task, scene) else 2)
    return [*needed, 1]


def _scene(task: str, text: str) -> tuple[list[list[int]], int] | None:
    """Return the positions of the movable objects and the drawer's opening; None if the text lacks them."""
    heads = ("Workspace limits in mm: ", "Object positions in mm: ", "Other information: ")
    lines = text.split("\n")
    if len(lines) != 3 or len(text) > 2000 or not all(map(str.startswith, lines, heads)):
        return None
    try:
        points = json.loads(lines[1][len(heads[1]) :].translate({ord("("): "[", ord(")"): "]"}))
        words = lines[2][len(heads[2]) :].split(" ")
        opening = json.loads(words[5]) if " ".join(words[:5]) == "the drawer is open by" else None
    except (ValueError, IndexError):
        return None
    if len(points) != _ALL_POINTS[task] or (opening is None) == (task == "drawer"):
        return None
    if any([type(value) for value in point] != [int] * 3 or max(map(abs, point)) > 999_999 for point in points):
        return None
    return points[: len(_NAMES[task])], opening or 0


def _one_turn_may_do(task: str, scene: tuple[list[list[int]], int]) -> bool:
    """Return whether two primitives can suffice, under the most favourable interpretation of the positions."""
    points, opening = scene
    if task == "drawer":
        # An apple on the table and an open drawer need three: lift the apple, release it in the tray, close.
        return points[0][2] >= 98 or opening <= 141
    if task != "stack":
        return True
    at = dict(zip(_NAMES[task], map(tuple, points), strict=True))
    readings = list(_piles(at))
    return not readings or any(_playable(_frozen(bases), 2, _frozen_near(at)) for bases in readings)


def _height(z: int) -> int:
    return sum(z >= limit for limit in (52, 86))


def _piles(at: Mapping[str, tuple[int, ...]]) -> Iterator[Bases]:
    """Yield all arrangements of the cubes."""
    hanging = sorted((point[2], name) for name, point in at.items() if point[2] > 250)
    options: dict[str, list[str]] = {}
    for name, (_, _, z) in at.items():
        if z > 250:
            below = [other for height, other in hanging if height < z]
            options[name] = below or [_HAND]
        elif _height(z) == 0:
            options[name] = [_TABLE]
        else:
            options[name] = [
                other
                for other, point in at.items()
                if point[2] <= 250 and _height(point[2]) == _height(z) - 1 and _gap(at[name], point) <= _OVER
            ]
    for chosen in product(*options.values()):
        bases = dict(zip(options, chosen, strict=True))
        if _sound(bases):
            yield bases


def _gap(one: Sequence[int], other: Sequence[int]) -> int:
    return max(abs(a - b) for a, b in zip(one[:2], other[:2], strict=True))


def _way_down(bases: Bases, name: str) -> list[str]:
    way = [bases[name]]
    while way[-1] in bases and len(way) <= len(bases):
        way.append(bases[way[-1]])
    return way


def _sound(bases: Bases) -> bool:
    """Return whether no cube supports itself and at most one cube is in the hand."""
    return all(_way_down(bases, name)[-1] in (_TABLE, _HAND) for name in bases) and (
        sum(base == _HAND for base in bases.values()) < 2
    )


Frozen = tuple[tuple[str, str], ...]


def _frozen(bases: Bases) -> Frozen:
    return tuple(sorted(bases.items()))


def _frozen_near(at: Mapping[str, tuple[int, ...]]) -> frozenset[tuple[str, str]]:
    return frozenset((one, other) for one, other in product(at, at) if _gap(at[one], at[other]) <= _REACH)


@lru_cache(maxsize=1 << 12)
def _playable(start: Frozen, left: int, near: frozenset[tuple[str, str]] | None) -> bool:
    """Return whether at most ``left`` primitives can build the tower; ``near`` is None once positions are unknown."""
    if dict(start) == _DONE:
        return True
    return left > 0 and any(_playable(after, left - 1, None) for after in set(_outcomes(dict(start), near)))


def _outcomes(bases: Bases, near: frozenset[tuple[str, str]] | None) -> Iterator[Frozen]:
    """Yield all arrangements after one primitive: a place or a push (at no cube), or a pick at each cube."""
    in_hand = next((name for name, base in bases.items() if base == _HAND), None)
    carried = {name for name in bases if _way_down(bases, name)[-1] == _HAND}
    for taken in (None, *bases):
        lists = [_new_bases(bases, name, taken, carried, near) for name in bases]
        for chosen in product(*lists):
            after = dict(zip(bases, chosen, strict=True))
            hand = [name for name, base in after.items() if base == _HAND]
            if not _sound(after) or hand not in ([taken], [in_hand], [] if taken is None else [taken]):
                continue
            if _rises_rightly(bases, after, taken, carried):
                yield _frozen(after)


def _new_bases(
    bases: Bases, name: str, taken: str | None, carried: set[str], near: frozenset[tuple[str, str]] | None
) -> list[str]:
    """Return the possible supports of a cube after a primitive, given the positions that it can reach."""
    if name == taken:
        return [_HAND]
    supports = [_TABLE, bases[name]]
    for other in bases:
        free = (
            near is None or taken is None or (taken, other) in near or (name not in carried and (name, other) in near)
        )
        if other != name and free:
            supports.append(other)
    return [base for base in dict.fromkeys(supports) if base != _HAND or taken is None]


def _rises_rightly(before: Bases, after: Bases, taken: str | None, carried: set[str]) -> bool:
    """Return whether no cube is higher than a primitive can lift it or was released onto a cube that it carries."""
    for name in before:
        was, now = _way_down(before, name), _way_down(after, name)
        if now[-1] == _HAND:
            lifted = name in carried or name == taken
            if not lifted and (taken is None or len(was) <= len(_way_down(before, taken))):
                return False
        elif name in carried:
            if any(base in before and name in _way_down(before, base) for base in now):
                return False
        elif len(now) > len(was):
            return False
    return True
