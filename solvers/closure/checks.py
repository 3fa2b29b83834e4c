"""Checks that the graph of a level describes its environment: replays, walks, pictures, and later turns of a clock."""

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from ...core.errors import CertifyError
from .advice import (
    IF_RANDOM,
    AdvisedError,
    ClockError,
    ContradictionError,
    IllegalActionError,
    difference,
    plain,
    short,
)
from .graph import ILLEGAL, LOST, WON
from .packages import package_of
from .search import Search
from .state import Keys, random_step
from .success import GOAL_REWARD, unclear
from .values import Reader
from .worlds import Outcome, World, two_resets

WALK = 60
"""Least number of steps of a walk that checks the graph."""
LONGEST = 400
"""Maximum number of steps of such a walk."""
DELAYS = 8
"""Maximum number of plans that are played after waiting at some state of the plan; they reveal hidden counters."""
DRAWN = 4
"""Random walks during which the environment is also rendered, some after every step, some after a few."""
PICTURES = 200
"""Maximum number of pictures that are compared; rendering is slow."""
JUMPS = 6_000
"""Maximum number of steps that show whether a clock decides more than rewards."""
REPEATS = 16
"""Replays at the beginning and end of the checks that are repeated before another way to restore states is tried."""
CHECK_SECONDS = 1.0
"""Minimum processor time of the checks, seconds; at most twice the time of the search, if that is longer."""


@dataclass
class Check:
    """Comparison of a graph with the environment, by replay from ``reset``."""

    search: Search
    checks: int
    enough: float
    """Processor time after which the checks end once a few states and walks are checked."""
    end: float
    """Time at which the checks must end."""
    steps: int = 0
    states: int = 0
    walks: int = 0
    agreed: list[list[int]] = field(default_factory=list[list[int]])
    """Replays that agreed with the graph."""

    def run(self) -> int:
        """Hold the graph against the environment; return the steps that took.

        Raises:
            CertifyError: they contradict each other, and two paths are named; or there is too little time.
        """
        search, world = self.search, self.search.world
        package = package_of(world.env)
        is_known = package.key is not None
        if package.dice and (name := package.dice(world.env)):
            raise random_step(name)
        if is_known and not package.dice and world.seed is not None and _has_drawn(world):
            raise random_step("np_random")
        is_own = world.reading.key is None or isinstance(world.reading.key, Keys)
        checks = max(self.checks, 24) if is_own else self.checks
        walks = enumerate(walks_of(search, checks))
        draws = DRAWN + 2 * len(search.actions)
        for number in _spread(search.expanded, checks):
            for path in search.paths(number):
                compared = 0
                for place in search.legal_places(number):
                    self.steps += _replay(search, [*path, place], compared=compared)
                    self.agreed.append([*path, place])
                    compared = len(path)
            self.states += 1
            self._walk(islice(walks, 1), draws)
            if self._is_late():
                break
        else:
            self._walk(walks, draws)
        if world.reading.clock and is_own:
            self._jump()
        return self.steps

    def _walk(self, walks: Iterator[tuple[int, list[int]]], draws: int) -> None:
        is_known = package_of(self.search.world.env).key is not None
        for count, drawn in walks:
            if self._is_late():
                return
            walk = self.search.legal(drawn)
            self.steps += _replay(self.search, walk, every=1 + count % 3 if count < draws else 0)
            if self.search.world.reading.clock and (is_known or count % 4 == 0):
                self.steps += _replay(self.search, walk, running=True)
            self.walks += 1
            self.agreed.append(walk)

    def repeats(self) -> bool:
        """Return whether replays that agreed with the graph still agree, so that only restoring can be wrong."""
        try:
            for places in [*self.agreed[:REPEATS], *self.agreed[-REPEATS:]]:
                _replay(self.search, places)
        except CertifyError:
            return False
        return True

    def _is_late(self) -> bool:
        """Return whether the time is over; a few states and walks are checked in any case."""
        now = time.monotonic()
        if time.process_time() < self.enough and now < self.end:
            return False
        if self.states < min(8, self.search.expanded) or self.walks < 8:
            if now < self.end:
                return False
            raise AdvisedError(
                f"the checks of {self.states} states and {self.walks} walks took longer than what the search left of "
                "max_seconds, expected at least 8 of each; raise max_seconds, or lower max_states (of a run with "
                "--solver)"
            )
        return True

    def _jump(self) -> None:
        """Take steps with the clock set to later turns: those to success at many turns, then all others at some.

        Raises:
            ClockError: one has an end, a key or an observation that it has not with the clock held still.
        """
        search, width = self.search, len(self.search.actions)
        rates = self._rates()
        choose, latest = random.Random(1), max(WALK, 2 * search.depth)
        decisive = [step for step, target in enumerate(search.targets) if target < 0 and target != ILLEGAL]
        others = [step for step, target in enumerate(search.targets) if target >= 0]
        decisive.sort(key=lambda step: search.targets[step] != WON)
        choose.shuffle(others)
        every = len(search.targets) * latest * search.depth <= JUMPS
        until, budget = time.process_time() + CHECK_SECONDS, self.steps + JUMPS
        for step in [*decisive, *others]:
            state, place = divmod(step, width)
            path = search.path(state)
            turns = range(latest) if every or search.targets[step] < 0 else choose.sample(range(latest), 4)
            for turn in turns:
                if self.steps > budget or time.process_time() > until or time.monotonic() > self.end:
                    return
                later = {name: search.world.still[name] + rate * (len(path) + turn) for name, rate in rates.items()}
                self.steps += _replay(search, [*path, place], ahead=later, compared=len(path))

    def _rates(self) -> dict[str, Any]:
        """Return by how much a step raises each counter of the clock."""
        world = self.search.world
        world.reset()
        world.act(world.env, self.search.actions[0], running=True)
        level = world.env.unwrapped
        return {
            name: getattr(level, name) - start for name, start in world.still.items() if type(start) in (int, float)
        }


def _has_drawn(world: World) -> bool:
    """Return whether the steps since the last reset moved the generator of an environment."""
    level = world.env.unwrapped
    after = level.np_random.bit_generator.state
    world.reset()
    return after != level.np_random.bit_generator.state


def _spread(count: int, most: int) -> Iterator[int]:
    """Yield at most ``most`` evenly spaced numbers below ``count``."""
    yield from range(count) if count <= most else (number * count // most for number in range(most))


def walks_of(search: Search, checks: int) -> Iterator[list[int]]:
    """Yield the shortest plan, walks that repeat one action, plans that begin late, and random walks.

    Each is cut where it ends. Without a plan, the first walks try all actions in the state reached last.
    """
    length, plan = max(WALK, min(2 * search.depth, LONGEST)), search.plan()
    if plan is None:
        last = search.path(search.expanded - 1)
        yield from ([*last, place] for place in range(len(search.actions)))
    else:
        yield plan
    yield from ([place] * length for place in range(len(search.actions)))
    if plan is not None:
        yield from search.delays(plan, length, min(checks, DELAYS))
    choose = random.Random(0)
    yield from islice(iter(lambda: choose.choices(range(len(search.actions)), k=length), None), checks)


def apart(expected: Outcome, actual: Outcome) -> str:
    """Return the place where the keys of two outcomes differ, for a message."""
    where = difference(expected.key, actual.key)
    return f", which differ in {where}" if where else ""


def differ(expected: Outcome, actual: Outcome) -> bool:
    """Return whether two outcomes of one step differ; of two ends the states are not compared."""
    if expected.won or actual.won:
        return expected.won != actual.won or expected.reward != actual.reward
    if expected.ended or actual.ended:
        return expected[1:] != actual[1:]
    return expected != actual


def _replay(
    search: Search,
    places: Sequence[int],
    *,
    every: int = 0,
    running: bool = False,
    ahead: Mapping[str, Any] | None = None,
    compared: int = 0,
) -> int:
    """Replay actions from ``reset`` until the graph ends, and compare every step with it; return the steps taken.

    Args:
        search: the search with the graph.
        places: numbers of the actions, of which none is illegal.
        every: number of steps after which a picture is drawn; 0 for none.
        running: whether the clock runs, so that rewards may differ.
        ahead: values of the clock at the last step, whose reward may differ then.
        compared: number of steps that a replay of before compared with the graph; they are taken without a look.
    """
    world, state, path = search.world, 0, list[Any]()
    first, _ = world.reset()
    if first != search.keys[0]:
        raise two_resets(world.seed, difference(search.keys[0], first))
    draws = every and getattr(world.env, "render_mode", None) is not None
    for step, place in enumerate(places):
        if draws and step % every == 0:
            _draw(search, state, path)
        action, expected = search.actions[place], search.outcome(state, place)
        timed = running or (ahead is not None and step == len(places) - 1)
        for name, value in ahead.items() if timed and ahead else ():
            setattr(world.env.unwrapped, name, value)
        if step < compared:
            world.go(action, lambda: path)
            path.append(action)
            state = search.targets[state * len(search.actions) + place]
            continue
        actual = _act(world, action, path, timed=timed)
        if timed:
            actual = actual._replace(reward=expected.reward)
        path.append(action)
        if differ(expected, actual):
            raise _timed(world, path) if timed else _contradiction(search, state, path, expected, actual)
        if actual.won or actual.ended or (running and world.truncated):
            break
        state = search.numbers[actual.key]
        if world.seen != search.seen[state] or world.allowed != search.allowed[state]:
            raise _timed(world, path) if timed else search.two_observations(state, path)
        if state >= search.expanded:
            break  # beyond the limits of the search
    world.finish()
    return len(path)


def _act(world: World, action: Any, path: Sequence[Any], *, timed: bool) -> Outcome:
    """Take a step, with the clock running if it is timed.

    Raises:
        ClockError: it raised because of that. CertifyError: it raised.
    """
    try:
        return world.act(world.env, action, lambda: path, running=timed)
    except CertifyError as error:
        if not timed or world.reading.is_declared:
            raise
        raise _timed(world, [*path, action]) from error


def _draw(search: Search, state: int, path: Sequence[Any]) -> None:
    """Render a state, and compare the picture with the one of before, if no attribute for drawing differs."""
    world = search.world
    picture: Any = world.env.render()
    if len(search.pictures) >= PICTURES or not isinstance(picture, np.ndarray):
        return
    level = world.env.unwrapped
    drawing = Reader().read([getattr(level, name, None) for name in world.reading.drawing])
    shown = hash((picture.shape, picture.tobytes()))
    if search.pictures.setdefault((state, drawing), shown) != shown:
        raise search.two_observations(state, path, "pictures")


def _timed(world: World, path: Sequence[Any]) -> ClockError:
    names = ", ".join(world.reading.clock)
    return ClockError(
        f"after the actions {plain(list(path))}, more than the reward depends on {names}, which every step raises; set "
        "gym.clock=[], which makes it part of the state"
    )


def _contradiction(search: Search, state: int, path: Sequence[Any], expected: Outcome, actual: Outcome) -> AdvisedError:
    level = type(search.world.env.unwrapped).__name__
    attribute = re.search(rf"\b{level}\.(\w+)", difference(expected.key, actual.key))
    drawn = "" if attribute is None else f"gym.drawing={[attribute[1]]} if that decides nothing but pictures; else "
    return ContradictionError(
        f"the actions {plain(search.path_of(state))} and {plain(list(path[:-1]))} lead to the same key "
        f"{short(search.keys[state])}, but then {plain(path[-1])!r} gives {expected.shown}, and {actual.shown}"
        f"{apart(expected, actual)}; the environment is random, has state that key does not show, or does not come "
        f"back to a state by {search.world.how}; {drawn}use gym.key=state, keep all state in attributes that a copy "
        "contains (a counter of turns may decide rewards only), and draw random numbers in reset alone, from its "
        f"seed; {IF_RANDOM}"
    )


def check_goal_reward(search: Search, counters: Sequence[str], turns: int) -> None:
    """Refuse a goal reward that shrinks to zero over time: reaching the goal late would be a failure.

    Args:
        search: a search whose states contain the counters.
        counters: attributes that every step raises.
        turns: number of turns at which the first plan's last step is tried.

    Raises:
        AdvisedError: an end pays different rewards in time, and at last no positive one; or no state repeats and ends
            pay at the earliest turn alone.
    """
    plan, world = search.plan(), search.world
    if search.success.rule != GOAL_REWARD or not plan:
        return
    paid: Counter[float] = Counter()
    level, path = world.env.unwrapped, [search.actions[place] for place in plan]
    for turn in range(turns if counters else 0):
        world.reset()
        start = {name: getattr(level, name) for name in counters}
        world.go(path[0], tuple)
        later = {name: value + (getattr(level, name) - value) * turn for name, value in start.items()}
        world.reset()
        for action in path[:-1]:
            world.go(action, tuple)
        vars(level).update(later)
        try:
            _, reward, terminated, _, _ = world.go(path[-1], tuple)
        except IllegalActionError:  # no turn of an episode
            break
        if terminated:
            paid[float(reward)] += 1
    if min(paid, default=1.0) <= 0 and len([each for each in paid if each > 0]) > 1:
        raise unclear(f"the reward of an end shrinks with {', '.join(counters)}, until it is none", paid)
    ends = {step: target for step, target in enumerate(search.targets) if target in (WON, LOST)}
    turns_of = {
        kind: [len(search.path(step // len(search.actions))) for step, target in ends.items() if target == kind]
        for kind in ((WON, LOST) if search.is_timed and LOST in ends.values() else ())
    }
    if turns_of and max(turns_of[WON]) < len(plan) <= max(turns_of[LOST]):
        raise unclear(
            f"no state repeats, and what ends after turn {len(plan)} pays nothing, as if it came too late",
            Counter(search.rewards[each] for each in ends),
        )
