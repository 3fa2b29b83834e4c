"""Graph of the states of one level, with exact needs, and the labels that follow from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base import Certificate, Needs, Unsolved, Verdict
from .worlds import How, Illegal

if TYPE_CHECKING:
    import networkx
    import polars

IDLE = "invalid"
"""Name of a turn without a usable action, which leaves the state as it is."""
UNSEEN, WON, LOST, ILLEGAL = -1, -2, -3, -4
"""Successors that are no states of the graph: not searched, success, an end without success, and none at all: the
environment does not allow the action there."""
OUT_OF_BUDGET = "out_of_budget"
"""Failure mode of a goal that is certainly out of reach in time, where limits hide whether it is a dead end."""
OUTCOMES = {UNSEEN: "unseen", WON: "success", LOST: "end", ILLEGAL: "illegal"}


@dataclass(frozen=True)
class SuccessSteps:
    """Successful steps of a level, and the rule that defines success."""

    rule: str
    """Name of the rule; empty where the searched part of the level shows none."""
    searched: int = 0
    """Number of steps that were searched."""
    steps: int = 0
    """Number of searched steps that succeed."""
    ending: int = 0
    """Number of steps that succeed and end the episode."""
    witnesses: tuple[tuple[int, ...], ...] = ()
    """Places of the actions of a few plans that succeed."""

    @property
    def ends(self) -> bool | None:
        """Whether success ends the episode; None if only some successful steps end it, or none succeeds."""
        return None if 0 < self.ending < self.steps or not self.steps else self.ending > 0


@dataclass(frozen=True)
class Graph:
    """All states of a level that the search reached, in breadth-first order; state 0 is the start."""

    actions: tuple[str, ...]
    successors: NDArray[np.int32]
    """Shape (states, actions): the next state, or :data:`UNSEEN`, :data:`WON`, :data:`LOST`, :data:`ILLEGAL`."""
    rewards: NDArray[np.float64]
    """Shape (states, actions): reward of the step; NaN where it is unseen or illegal."""
    how: How
    """Way in which the search restored states."""
    steps: int
    """Steps of the environment that the search and its checks took."""
    limit: str | None
    """Limit that ended the search, or None if every reachable state was searched."""
    by_machine: bool = False
    """Whether that limit is one of time or memory, so that the search ends elsewhere on another machine."""
    won_at_start: bool = False
    success: SuccessSteps = SuccessSteps("")
    """Steps that succeed."""
    illegal: Illegal = "refuse"
    """Meaning of an illegal action in an episode: an error, or a turn that leaves the state as it is."""

    @cached_property
    def least(self) -> NDArray[np.float64]:
        """Lower bound of the turns needed from each state, shape (states,); infinite where success is impossible."""
        return self._distances((WON, UNSEEN))

    @cached_property
    def most(self) -> NDArray[np.float64]:
        """Upper bound of the turns needed, shape (states,); equal to :attr:`least` where the need is exact."""
        return self._distances((WON,))

    def _distances(self, goals: tuple[int, ...]) -> NDArray[np.float64]:
        """Return the fewest steps to an edge of ``goals``, by breadth-first search along reversed edges."""
        count, width = self.successors.shape
        turns_to = np.full(count, np.inf)
        sources = np.repeat(np.arange(count), width)
        targets = self.successors.ravel()
        inside = targets >= 0
        order = np.argsort(targets[inside], kind="stable")
        into = sources[inside][order]
        first = np.searchsorted(targets[inside][order], np.arange(count + 1))
        level = np.flatnonzero(np.isin(self.successors, goals).any(axis=1))
        turns = 1
        while level.size:
            turns_to[level] = turns
            spans = [into[first[each] : first[each + 1]] for each in level]
            before = np.unique(np.concatenate(spans))
            level = before[np.isinf(turns_to[before])]
            turns += 1
        return turns_to

    @property
    def repeats(self) -> bool:
        """Whether several paths lead to one of the states."""
        return int(np.count_nonzero(self.successors >= 0)) >= len(self.successors)

    def need(self, state: int) -> float | None:
        """Return the turns needed from a state, infinite for a dead end; None if the limits leave it open."""
        return float(self.most[state]) if self.most[state] == self.least[state] else None

    def safe_actions(self, state: int, turns_left: int) -> tuple[str, ...]:
        """Return the actions after which success is certainly still possible in the turns that are then left."""
        return tuple(
            action
            for action, target in zip(self.actions, self.successors[state].tolist(), strict=True)
            if turns_left > 0 and self.bounds(target)[1] <= turns_left - 1
        )

    def plan(self, state: int) -> tuple[str, ...] | None:
        """Return the shortest plan from a state, the first in the order of ``actions``; None if none is known."""
        if np.isinf(self.most[state]):
            return None
        plan: list[str] = []
        while state >= 0:
            after = [self.bounds(target)[1] for target in self.successors[state].tolist()]
            best = after.index(min(after))
            plan.append(self.actions[best])
            state = int(self.successors[state, best])
        return tuple(plan)

    def bounds(self, state: int) -> tuple[float, float]:
        """Return the least and the most turns needed from a successor."""
        if state >= 0:
            return float(self.least[state]), float(self.most[state])
        return {WON: (0.0, 0.0), UNSEEN: (1.0, np.inf)}.get(state, (np.inf, np.inf))

    def walk(self, actions: Sequence[str]) -> list[int]:
        """Return the states that actions lead through from the start, the first included.

        Everything after an unseen state is unseen.

        Raises:
            ValueError: an action is not one of :attr:`actions`, is illegal, or follows the end of the episode.
        """
        index = {action: place for place, action in enumerate(self.actions)}
        states = [WON if self.won_at_start else 0]
        for step, action in enumerate(actions):
            if action not in index and action != IDLE:
                raise ValueError(f"unknown action {action!r} at step {step}; use one of {', '.join(self.actions)}")
            state = states[-1]
            if state in (WON, LOST):
                raise ValueError(f"action {action!r} at step {step} follows the end of the episode")
            stays = action == IDLE or state == UNSEEN
            target = state if stays else int(self.successors[state, index[action]])
            if target == ILLEGAL and self.illegal == "refuse":
                raise ValueError(
                    f"action {action!r} at step {step} is illegal there; a turn with it counts as one without an "
                    "action if illegal (gym.illegal) is 'invalid'"
                )
            states.append(state if target == ILLEGAL else target)
        return states

    def is_illegal(self, actions: Sequence[str]) -> bool:
        """Return whether the last of some actions from the start is illegal, where such a turn changes nothing.

        Raises:
            ValueError: as :meth:`walk`.
        """
        state = self.walk(actions)[-2]
        return (
            state >= 0 and actions[-1] != IDLE and (self.successors[state, self.actions.index(actions[-1])] == ILLEGAL)
        )

    def _states_of(self, actions: Sequence[str], horizon: int) -> list[int] | Unsolved:
        """Return the states of an episode, or why it is none of this level."""
        if not 0 < len(actions) <= horizon:
            return Unsolved("bad_episode", f"found {len(actions)} actions, expected 1 to the horizon of {horizon}")
        try:
            return self.walk(actions)
        except ValueError as error:
            return Unsolved("bad_episode", str(error))

    def certify(self, actions: Sequence[str], horizon: int) -> Verdict | Unsolved:
        """Label a failed episode of this level; what the limits leave open is not guessed.

        Args:
            actions: names of the actions taken, one per turn.
            horizon: ``T_max``, the turn budget.
        """
        states = self._states_of(actions, horizon)
        if isinstance(states, Unsolved):
            return states
        if states[-1] == WON:
            return Unsolved("not_a_failure", f"the episode succeeds after {len(actions)} actions")
        for step, state in enumerate(states[1:]):
            least, most = self.bounds(state)
            left = horizon - 1 - step
            if least > left:
                return self._verdict(step, states, horizon, fallback=False)
            if most > left:
                return self._open(f"whether the goal is within {left} turns after step {step}")
        return self._verdict(len(actions) - 1, states, horizon, fallback=True)

    def measure(self, actions: Sequence[str], horizon: int) -> Needs | Unsolved:
        """Return the turns that success takes from every state of an episode of this level, and the safe actions there.

        Args:
            actions: names of the actions taken, one per turn.
            horizon: ``T_max``, the turn budget.
        """
        states = self._states_of(actions, horizon)
        if isinstance(states, Unsolved):
            return states
        needs: list[int | None] = []
        for step, state in enumerate(states):
            least, most = self.bounds(state)
            if least != most and least <= horizon:
                return self._open(f"the need before step {step}")
            needs.append(int(most) if least == most and most <= horizon else None)
        left = [horizon - step for step in range(len(actions))]
        safe = [self.safe_actions(state, turns) for state, turns in zip(states[:-1], left, strict=True) if state >= 0]
        return Needs(needs, safe + [()] * (len(actions) - len(safe)))

    def _open(self, what: str) -> Unsolved:
        return Unsolved("solver_limit", f"{self.limit} ended the search before {what} was decided; raise the limit")

    def _verdict(self, pivot: int, states: Sequence[int], horizon: int, *, fallback: bool) -> Verdict | Unsolved:
        """Return the label; a mode beyond the limits is ``out_of_budget``, and anything else there has no label."""
        budget = horizon - pivot
        before, after = (self.bounds(state) for state in states[pivot : pivot + 2])
        at_start = pivot == 0 and before[0] > horizon
        if before[0] != before[1] and not at_start:
            return self._open(f"the need before step {pivot}")
        if after[0] != after[1] and after[0] <= budget - 1:
            return self._open(f"the need after step {pivot}")
        if any(least <= budget - 1 < most for least, most in map(self.bounds, self.successors[states[pivot]].tolist())):
            return self._open(f"which actions at step {pivot} keep the goal within reach")
        if not at_start and not self._is_first(states[pivot]):
            return self._open(f"which shortest plan at step {pivot} is the first")
        needs = [None if least != most or np.isinf(most) else most for least, most in (before, after)]
        is_open = after[0] != after[1]
        reachable = None if is_open else needs[1] is not None
        certificate = Certificate("exact", "turns", budget, budget - 1, needs[0], needs[1], reachable)
        return Verdict(
            pivot,
            OUT_OF_BUDGET if is_open else "timeout" if reachable else "deadlock",
            certificate,
            fallback=fallback,
            infeasible_at_start=at_start,
            witness=None if at_start else self.plan(states[pivot]),
            feasible_actions=self.safe_actions(states[pivot], budget),
        )

    def _is_first(self, state: int) -> bool:
        """Return whether no plan that the limits hide could be as short as this plan and earlier in the order."""
        if self.limit is None:
            return True
        while state >= 0:
            targets = self.successors[state].tolist()
            after = [self.bounds(target) for target in targets]
            best = min(most for _, most in after)
            chosen = next(place for place, (_, most) in enumerate(after) if most == best)
            if any(least <= best for least, _ in after[:chosen]):
                return False
            state = targets[chosen]
        return True

    def frame(self) -> "polars.DataFrame":
        """Return one row per state and action: ``state, action, next, outcome, reward, need, need_after``.

        ``next`` is null where the step leads to none of the states of the graph; ``outcome`` is ``state``, ``success``,
        ``end``, ``illegal`` or ``unseen``; needs are in turns, infinite for a dead end and null where the limits leave
        them open.
        """
        import polars as pl  # noqa: PLC0415 - only needed here

        count, width = self.successors.shape
        needs = [self.need(state) for state in range(count)]
        targets = self.successors.ravel().tolist()
        ends: dict[int, float | None] = {WON: 0.0, LOST: np.inf, ILLEGAL: np.inf, UNSEEN: None}
        return pl.DataFrame(
            {
                "state": np.repeat(np.arange(count), width),
                "action": list(self.actions) * count,
                "next": [target if target >= 0 else None for target in targets],
                "outcome": [OUTCOMES.get(target, "state") for target in targets],
                "reward": self.rewards.ravel(),
                "need": [need for need in needs for _ in range(width)],
                "need_after": [needs[target] if target >= 0 else ends[target] for target in targets],
            },
            schema_overrides={"next": pl.Int64, "need": pl.Float64, "need_after": pl.Float64},
        )

    def networkx(self) -> "networkx.MultiDiGraph[int | str]":
        """Return the graph with edge attributes ``action`` and ``reward``; ends are the nodes of their outcome."""
        import networkx as nx  # noqa: PLC0415 - only needed here

        made: networkx.MultiDiGraph[int | str] = nx.MultiDiGraph()
        for state in range(len(self.successors)):
            made.add_node(state, need=self.need(state))
        for (state, place), target in np.ndenumerate(self.successors):
            if target == ILLEGAL:
                continue
            node = OUTCOMES.get(int(target), int(target))
            made.add_edge(state, node, action=self.actions[place], reward=float(self.rewards[state, place]))
        return made
