"""Breadth-first search through the states of a level, in a few bytes per step."""

import resource
import time
from array import array
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any

from .advice import AdvisedError, ClockError, ContradictionError, difference, plain, short
from .graph import ILLEGAL, LOST, UNSEEN, WON, SuccessSteps
from .worlds import Outcome, World

EARLY = frozenset({4, 32, 256, 2_048, 16_384})
"""Numbers of states after which a restored state is compared with a replay."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that end a search; everything searched until then stays exact."""

    states: int
    """Maximum number of states."""
    steps: int
    """Maximum number of steps of the environment."""
    seconds: float
    """Maximum time of the search."""
    megabytes: int
    """Maximum growth of the peak memory of the process."""
    depth: int | None = None
    """Maximum number of turns from the start; None for no limit."""
    horizon: int | None = None
    """Limit in turns, where each state belongs to one turn because it contains a clock or a record of turns."""


@dataclass
class Search:
    """An unfinished search; states are numbered and expanded in the order of discovery.

    A step from state ``s`` by action number ``a`` is the number ``s * len(actions) + a``.
    """

    world: World
    actions: tuple[Any, ...]
    limits: Limits
    numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """State number by key."""
    keys: list[Hashable] = field(default_factory=list[Hashable])
    seen: list[int | None] = field(default_factory=list[int | None])
    """Hash of the observation of each state, where observations are compared."""
    pictures: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """Hash of the picture of a state, by its number and the attributes that decide nothing but pictures."""
    first: "array[int]" = field(default_factory=lambda: array("q"))
    """Step by which each state was first reached; -1 for the start."""
    again: "array[int]" = field(default_factory=lambda: array("q"))
    """Step that last reached each state again; -1 for none."""
    targets: "array[int]" = field(default_factory=lambda: array("i"))
    """State after each step, or ``WON`` or ``LOST``."""
    rewards: "array[float]" = field(default_factory=lambda: array("d"))
    """Reward of each step."""
    allowed: list[tuple[bool, ...] | None] = field(default_factory=list[tuple[bool, ...] | None])
    """Whether the mask of each state allows each action; None without a mask."""
    open_wins: list[int] = field(default_factory=list[int])
    """Steps that succeed without an end of the episode."""
    success: SuccessSteps = field(default_factory=lambda: SuccessSteps(""))
    """Steps that succeed."""
    steps: int = 0
    depth: int = 0
    is_timed: bool = True
    """Whether every step led to a state of the next turn."""
    limit: str | None = None
    """Limit that ended the search."""
    by_machine: bool = False
    """Whether that limit is one of time or memory, so that the search ends elsewhere on another machine."""

    @property
    def expanded(self) -> int:
        """Number of states whose steps were all taken."""
        return len(self.targets) // len(self.actions)

    def run(self, stated: float) -> str | None:
        """Expand all states, or return the limit that ended the search; ``stated`` is the user's limit of time."""
        key, won = self.world.reset()
        if won:
            return None
        self._meet(key, -1)
        world, numbers, targets, rewards, again = self.world, self.numbers, self.targets, self.rewards, self.again
        waiting = deque([self.world.here()])
        end, peak = time.monotonic() + self.limits.seconds, _peak()
        number, last_of_depth, replays = -1, 0, self.world.how == "replay"
        while waiting:
            number += 1
            if number > last_of_depth:
                self.depth, last_of_depth = self.depth + 1, len(self.keys) - 1
            if limit := self._limit(number, end, peak, stated):
                return limit
            if number in EARLY and not replays:
                self._look(len(self.keys) - 1)
            handle = waiting.popleft()
            for place in range(len(self.actions)):
                outcome = self._step(number, handle, place)
                if outcome is None:
                    targets.append(ILLEGAL)
                    rewards.append(nan)
                    continue
                key, reward, ended, won = outcome
                rewards.append(reward)
                if won or ended:
                    if not ended:
                        self.open_wins.append(len(targets))
                    targets.append(WON if won else LOST)
                    continue
                target = numbers.get(key)
                if target is None:
                    target = self._meet(key, len(targets))
                    waiting.append(world.here())
                else:
                    again[target] = len(targets)
                    self.is_timed = self.is_timed and target > last_of_depth
                    if world.seen != self.seen[target] or world.allowed != self.allowed[target]:
                        raise self.two_observations(target, [*self.path_of(number), self.actions[place]])
                targets.append(target)
            self.steps += len(self.actions) * (self.depth + 1 if replays else 1)
        return None

    def _step(self, number: int, handle: Any, place: int) -> Outcome | None:
        """Take an action in the state of a handle; return None if it is illegal there."""
        allowed = self.allowed[number]
        if allowed is not None and not allowed[place]:
            return None
        return self.world.step(handle, lambda: self.path_of(number), self.actions[place])

    def _look(self, state: int) -> None:
        """Replay the path to a state, so that a wrong way to restore states ends the search early.

        Raises:
            ContradictionError: the path leads to a different state.
        """
        world, path = self.world, list[Any]()
        key, _ = world.reset()
        for place in self.path(state):
            key = world.act(world.env, self.actions[place], lambda: path).key
            path.append(self.actions[place])
        if key != self.keys[state]:
            raise ContradictionError(
                f"the actions {plain(path)} lead to two states, which differ in {difference(self.keys[state], key)}; "
                f"the environment is random, or does not come back to a state by {world.how}; set gym.how=replay, or "
                "keep all state in attributes that a copy contains"
            )

    def two_observations(self, state: int, path: Sequence[Any], what: str = "observations") -> AdvisedError:
        """Return the error of a state that is shown in two ways."""
        what = what if self.world.allowed == self.allowed[state] else "masks of actions"
        timed = bool(self.world.reading.clock) and what == "observations"
        return (ClockError if timed else ContradictionError)(
            f"the actions {plain(self.path_of(state))} and {plain(list(path))} lead to the same key "
            f"{short(self.keys[state])}, but to different {what}; what they show is not in the key, or decided by "
            "something random; use gym.key=state and keep all state in attributes, or name attributes that only draw "
            "in gym.drawing"
        )

    def _meet(self, key: Hashable, step: int) -> int:
        """Number a new state."""
        number = self.numbers[key] = len(self.keys)
        self.keys.append(key)
        self.seen.append(self.world.seen)
        self.allowed.append(self.world.allowed)
        self.first.append(step)
        self.again.append(-1)
        return number

    def _limit(self, number: int, end: float, peak: float, stated: float) -> str | None:
        limits = self.limits
        if len(self.keys) > limits.states:
            return f"max_states = {limits.states}"
        if self.steps >= limits.steps:
            return f"max_steps = {limits.steps}"
        depths = {"max_depth": limits.depth, "horizon": limits.horizon if self.is_timed else None}
        for name, depth in depths.items():
            if depth is not None and self.depth > depth:
                return f"{name} = {depth}"
        if number % 64 == 0:
            self.by_machine = True
            if time.monotonic() > end:
                return f"max_seconds = {stated:g}"
            if _peak() - peak > limits.megabytes:
                return f"max_megabytes = {limits.megabytes}"
            self.by_machine = False
        return None

    def path(self, number: int) -> list[int]:
        """Return the places of the actions that first led to a state."""
        places: list[int] = []
        while number > 0:
            number, place = divmod(self.first[number], len(self.actions))
            places.append(place)
        return places[::-1]

    def path_of(self, number: int) -> list[Any]:
        """Return the actions that first led to a state."""
        return [self.actions[place] for place in self.path(number)]

    def paths(self, number: int) -> list[list[int]]:
        """Return the action indices of the first and the last path found to a state: one path or two."""
        paths = [self.path(number)]
        if self.again[number] >= 0:
            before, place = divmod(self.again[number], len(self.actions))
            paths.append([*self.path(before), place])
        return paths

    def plan(self) -> list[int] | None:
        """Return the places of the first shortest way to success, or None if the search found none."""
        try:
            state, place = divmod(self.targets.index(WON), len(self.actions))
        except ValueError:
            return None
        return [*self.path(state), place]

    def delays(self, plan: Sequence[int], least: int, most: int) -> Iterator[list[int]]:
        """Yield walks that follow a plan but wait in one of its states for ``least`` steps.

        Args:
            plan: places of actions from the start.
            least: number of steps.
            most: maximum number of walks; those states are chosen evenly that one or two steps lead back to.
        """
        states, width = [0], len(self.actions)
        for place in plan[:-1]:
            states.append(self.targets[states[-1] * width + place])
        delays: list[list[int]] = []
        for step, state in enumerate(states):
            if loop := self._loop(state):
                delays.append([*plan[:step], *loop * -(-least // len(loop)), *plan[step:]])
        yield from delays if len(delays) <= most else (delays[each * len(delays) // most] for each in range(most))

    def legal_places(self, state: int) -> list[int]:
        """Return the indices of the actions that are legal in an expanded state."""
        width = len(self.actions)
        return [place for place in range(width) if self.targets[state * width + place] != ILLEGAL]

    def legal(self, walk: Sequence[int]) -> list[int]:
        """Return a walk without its illegal actions, up to its end or to a state that was not expanded."""
        places: list[int] = []
        state = 0
        for place in walk:
            if not 0 <= state < self.expanded:
                break
            target = self.targets[state * len(self.actions) + place]
            if target != ILLEGAL:
                places.append(place)
                state = target
        return places

    def _loop(self, state: int) -> list[int]:
        """Return the indices of one or two actions that lead from a state back to it; empty if there are none."""
        width, detour = len(self.actions), list[int]()
        for place, target in enumerate(self.targets[state * width : (state + 1) * width]):
            if target == state:
                return [place]
            if not detour and 0 <= target < self.expanded:
                after = self.targets[target * width : (target + 1) * width]
                detour = [place, after.index(state)] if state in after else detour
        return detour

    def outcome(self, state: int, place: int) -> Outcome:
        """Return what the search saw of a step; an end has no key."""
        step = state * len(self.actions) + place
        target = self.targets[step]
        return Outcome(
            self.keys[target] if target >= 0 else None, self.rewards[step], target in (WON, LOST), target == WON
        )

    def complete(self) -> None:
        """Add the steps of states that were reached but not expanded, as unseen steps."""
        unseen = len(self.keys) * len(self.actions) - len(self.targets)
        self.targets.extend(array("i", [UNSEEN]) * unseen)
        self.rewards.extend(array("d", [float("nan")]) * unseen)


def _peak() -> float:
    """Return the peak memory of this process, megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
