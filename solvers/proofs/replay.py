"""Proof of a label by replay alone, for environments that have no solver of their own.

It shares no code with the search that made the label and never restores a state: every state is reached by ``reset``
and all actions from the start, with its own rules for keys and success. It is slow and for small levels; what needs
more steps than allowed is undecided.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..base import Certificate, Proof, Verdict

MAX_STEPS = 2_000_000


class _TooLargeError(Exception):
    """The level takes more steps than allowed."""


@dataclass
class Game:
    """A level that is played from its start again for every question."""

    env: Any
    """A gymnasium environment."""
    actions: Mapping[str, Any]
    """Actions by name, in the order that breaks ties between plans."""
    key: Callable[[Any], Hashable]
    """Return the state key of the environment."""
    won: Callable[[Any, float, bool, Mapping[str, Any]], bool]
    """Return whether a step succeeded, from environment, reward, ``terminated`` and ``info``."""
    seed: int | None = 0
    options: dict[str, Any] | None = None
    clock: Sequence[str] = ()
    """Attributes of ``env.unwrapped`` that count turns."""
    max_steps: int = MAX_STEPS
    """Maximum number of steps of the environment for one proof."""
    steps: int = 0

    def play(self, plan: Sequence[str]) -> tuple[str, Hashable]:
        """Play a plan from the start; return ``won``, ``over`` or ``open``, and the key of the last state.

        A plan that goes on after the end of the episode is ``over``.
        """
        self.env.reset(seed=self.seed, options=self.options)
        begun = {name: getattr(self.env.unwrapped, name) for name in self.clock}
        for number, name in enumerate(plan, start=1):
            self.steps += 1
            for attribute, value in begun.items():
                setattr(self.env.unwrapped, attribute, value)
            _, reward, terminated, _, info = self.env.step(self.actions[name])
            if self.won(self.env, float(reward), bool(terminated), info):
                return "won" if number == len(plan) else "over", self.key(self.env)
            if terminated:
                return "over", self.key(self.env)
        if self.steps > self.max_steps:
            raise _TooLargeError
        return "open", self.key(self.env)

    def need(self, start: Sequence[str], most: float) -> tuple[int | None, tuple[str, ...] | None, bool]:
        """Return the fewest turns to success after ``start``, the first such plan, and whether all states were tried.

        The search goes ``most`` turns deep at most; without success within them the first two are None.
        """
        state, key = self.play(start)
        if state != "open":
            return (0, (), True) if state == "won" else (None, None, True)
        known, layer = {key}, [tuple[str, ...]()]
        depth = 0
        while layer and depth < most:
            depth += 1
            after: list[tuple[str, ...]] = []
            for plan in layer:
                for name in self.actions:
                    state, key = self.play([*start, *plan, name])
                    if state == "won":
                        return depth, (*plan, name), False
                    if state == "open" and key not in known:
                        known.add(key)
                        after.append((*plan, name))
            layer = after
        return None, None, not layer


def prove(game: Game, actions: Sequence[str], horizon: int, verdict: Verdict) -> Proof:
    """Prove or refute the label of a failed episode of the game's level.

    Args:
        game: the level.
        actions: names of the recorded actions.
        horizon: ``T_max``, the turn budget.
        verdict: the label; every field is checked.
    """
    if not 0 < len(actions) <= horizon or not set(actions) <= game.actions.keys():
        return Proof((f"the episode has actions that do not fit the level or the horizon of {horizon}",))
    game.steps = 0
    try:
        if game.play(actions)[0] == "won":
            return Proof(("the episode succeeds",))
        expected = _expected(game, actions, horizon, verdict)
    except _TooLargeError:
        return Proof(undecided=f"the level takes more than max_steps = {game.max_steps} steps by replay")
    if isinstance(expected, str):
        return Proof((expected,))
    found = {each.name: getattr(verdict, each.name) for each in fields(Verdict)}
    return Proof(
        tuple(
            f"{name} is {value!r}, expected {getattr(expected, name)!r}"
            for name, value in found.items()
            if value != getattr(expected, name)
        )
    )


def _expected(game: Game, actions: Sequence[str], horizon: int, verdict: Verdict) -> Verdict | str:
    """Return the label that holds if the pivot step does, or why that step is wrong."""
    pivot, last = verdict.pivot_step, len(actions) - 1
    if not 0 <= pivot <= last:
        return f"pivot_step is {pivot}, expected 0 to {last}"
    left = horizon - pivot
    before, plan, _ = game.need(actions[:pivot], float("inf"))
    after, _, _ = game.need(actions[: pivot + 1], float("inf"))
    at_start = before is None or before > left
    if at_start and pivot:
        return f"pivot_step is {pivot}, but the goal is out of reach before that step"
    is_fatal = after is None or after > left - 1
    if not is_fatal and pivot != last:
        return f"pivot_step is {pivot}, but the goal is within {left - 1} turns after that step"
    needs = {name: game.need([*actions[:pivot], name], left - 1)[0] for name in game.actions}
    certificate = Certificate(
        "exact", "turns", left, left - 1, _number(before), _number(after), reachable_after=after is not None
    )
    return Verdict(
        pivot,
        "deadlock" if after is None else "timeout",
        certificate,
        fallback=not is_fatal,
        infeasible_at_start=at_start,
        witness=None if at_start else plan,
        feasible_actions=tuple(name for name, need in needs.items() if need is not None),
    )


def _number(need: int | None) -> float | None:
    return None if need is None else float(need)
