"""Proof of a label by replay alone, for environments without a solver of their own.

It shares no code with the search that made the label and never restores a state: every state is reached by ``reset``
and all actions from the start. What needs more steps than allowed is undecided.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .base import Certificate, Proof, Verdict

MAX_STEPS = 2_000_000
OUT_OF_BUDGET = "out_of_budget"
_DIFFER = (
    "the environment is random, or its reset leaves attributes as the last episode left them; reset all of them in a "
    "wrapper"
)
_HIDDEN = "the environment is random, or has state that its key does not show"
WON: Hashable = ("won",)
_OVER: Hashable = ("over",)
"""Ends of an episode, in place of a state key."""
ILLEGAL: Hashable = ("illegal",)
"""Outcome of an illegal action."""


class _TooLargeError(Exception):
    """The level takes more steps than allowed."""


@dataclass
class Game:
    """A level that is replayed from its start for every question."""

    env: Any
    """A gymnasium environment."""
    actions: Mapping[str, Any]
    """Actions by name, in the order that breaks ties between plans."""
    key: Callable[[Any], Hashable]
    """Return the state key of the environment, or of its observation with ``by_observation``."""
    won: Callable[[Any, float, bool, Mapping[str, Any]], bool]
    """Return whether a step succeeded, from environment, reward, ``terminated`` and ``info``."""
    won_at_start: Callable[[Mapping[str, Any]], bool] = lambda _info: False
    """Return whether ``info`` of ``reset`` reports success already."""
    allows: Callable[[str, Mapping[str, Any]], bool] = lambda _name, _info: True
    """Return whether ``info`` of the last answer allows an action."""
    full: Callable[[Any], Hashable] | None = None
    """Return all attributes, where a turn with an illegal action changes nothing; None: an episode has no such turn."""
    illegal: set[int] = field(default_factory=set[int])
    """Turns of the last plan whose action was not allowed, or raised and changed nothing."""
    seed: int | None = 0
    options: dict[str, Any] | None = None
    clock: Sequence[str] = ()
    """Attributes of ``env.unwrapped`` that count turns."""
    by_observation: bool = False
    """Whether the level declares that its observation shows the full state."""
    idle: str = "invalid"
    """Name of a turn without an action, which leaves the state as it is."""
    turns: int | None = None
    """Turns from the start after which the search ends; None for no limit."""
    max_steps: int = MAX_STEPS
    """Maximum number of steps of the environment for the search."""
    steps: int = 0
    _after: dict[Hashable, list[Hashable]] | None = None
    _turns: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    def play(self, plan: Sequence[str], first: int = 0) -> list[Hashable]:
        """Play a plan from the start; return the key before the turn ``first`` and after each from there, or its end.

        The list is shorter if the episode ends before the plan.
        """
        observation, info = self.env.reset(seed=self.seed, options=self.options)
        self.illegal = set()
        if self.won_at_start(info):
            return [WON]
        if begin := getattr(self.key, "begin", None):
            begin()
        begun = {name: getattr(self.env.unwrapped, name) for name in self.clock}
        keys: list[Hashable] = []
        for turn, name in enumerate(plan):
            if turn >= first:
                keys.append(self._key(observation))
            if name == self.idle:
                continue
            if not self.allows(name, info):
                self.illegal.add(turn)
                continue
            self.steps += 1
            for attribute, value in begun.items():
                setattr(self.env.unwrapped, attribute, value)
            try:
                observation, reward, terminated, _, info = self.env.step(copy(self.actions[name]))
            except Exception:
                if self.full is None or not self._changes_nothing(plan[:turn]):
                    raise
                self.illegal.add(turn)
                continue
            won = self.won(self.env, float(reward), bool(terminated), info)
            if won or terminated:
                return [*keys, WON if won else _OVER]
        return [*keys, self._key(observation)]

    def _changes_nothing(self, plan: Sequence[str]) -> bool:
        """Return whether the environment, whose last step raised, is unchanged since the plan before; replay it."""
        assert self.full is not None
        if begin := getattr(self.full, "begin", None):
            begin()
        after, illegal = self.full(self.env), self.illegal
        self.play([name for turn, name in enumerate(plan) if turn not in illegal])
        self.illegal = illegal
        return self.full(self.env) == after

    def _key(self, observation: Any) -> Hashable:
        return self.key(observation if self.by_observation else self.env)

    def search(self) -> None:
        """Reach every state by replay, and count the turns to success backwards from it.

        Raises:
            _TooLargeError: the level takes more than ``max_steps`` steps.
        """
        if self._after is not None:
            return
        start = self.play(())[0]
        plans: dict[Hashable, tuple[str, ...]] = {start: ()}
        after: dict[Hashable, list[Hashable]] = {}
        order = [start]
        for key in order:  # grows
            if self.turns is not None and len(plans[key]) >= self.turns:
                break
            after[key] = []
            for name in self.actions:
                plan = (*plans[key], name)
                if self.steps + len(plan) > self.max_steps:
                    raise _TooLargeError
                target = self.play(plan, len(plan))[-1]
                if len(plan) - 1 in self.illegal:
                    target = ILLEGAL
                after[key].append(target)
                if target not in (WON, _OVER, ILLEGAL) and target not in plans:
                    plans[target] = plan
                    order.append(target)
        self._turns, waiting, turns = {WON: 0}, set(after), 0
        while True:
            turns += 1
            nearer = {key for key in waiting if any(target in self._turns for target in after[key])}
            if not nearer:
                break
            self._turns |= dict.fromkeys(nearer, turns)
            waiting -= nearer
        self._after = after

    def need(self, key: Hashable) -> int | None:
        """Return the fewest turns from a state to success; None if it is out of reach."""
        return self._turns.get(key)

    def following(self, key: Hashable) -> list[Hashable]:
        """Return what each action leads to."""
        assert self._after is not None
        return self._after.get(key, [])

    def after(self, key: Hashable, name: str) -> Hashable:
        """Return what an action leads to."""
        return self.following(key)[list(self.actions).index(name)]

    def plan(self, key: Hashable) -> tuple[str, ...]:
        """Return the first shortest plan from a state that has one."""
        plan: list[str] = []
        while need := self._turns[key]:
            place = next(n for n, each in enumerate(self.following(key)) if self._turns.get(each) == need - 1)
            plan.append(list(self.actions)[place])
            key = self.following(key)[place]
        return tuple(plan)


def prove(game: Game, actions: Sequence[str], horizon: int, verdict: Verdict) -> Proof:
    """Prove or refute the label of a failed episode of the game's level.

    Args:
        game: the level; its search is kept for further labels.
        actions: names of the recorded actions.
        horizon: ``T_max``, the turn budget.
        verdict: the label; every field is checked.
    """
    if not 0 < len(actions) <= horizon or not set(actions) <= {*game.actions, game.idle}:
        return Proof((f"the episode has actions that do not fit the level or the horizon of {horizon}",))
    keys, illegal = game.play(actions), set(game.illegal)
    misfit = None
    if illegal and game.full is None:
        misfit = f"the action of turn {min(illegal)} is illegal, which refuses the episode"
    elif len(keys) <= len(actions):
        misfit = f"the episode is over after {len(keys) - 1} actions, but its row has {len(actions)}"
    elif keys[-1] == WON:
        misfit = "the episode succeeds"
    if misfit:
        return Proof((misfit,))
    try:
        game.search()
    except _TooLargeError:
        return Proof(undecided=f"the level takes more than max_steps = {game.max_steps} steps by replay")
    if reason := _contradiction(game, actions, keys, illegal):
        return Proof(undecided=reason)
    expected = _expected(game, keys, horizon)
    if verdict.failure_mode == OUT_OF_BUDGET and not expected.fallback:
        # The label leaves open what a limit hid: how far the goal was afterwards, or whether it was a dead end.
        facts = replace(expected.certificate, after=None, reachable_after=None)
        if expected.infeasible_at_start and verdict.certificate.before is None:
            facts = replace(facts, before=None)
        expected = replace(expected, failure_mode=OUT_OF_BUDGET, certificate=facts)
    return Proof(
        tuple(
            f"{each.name} is {getattr(verdict, each.name)!r}, expected {getattr(expected, each.name)!r}"
            for each in fields(Verdict)
            if getattr(verdict, each.name) != getattr(expected, each.name)
        )
    )


def _contradiction(game: Game, actions: Sequence[str], keys: Sequence[Hashable], illegal: set[int]) -> str | None:
    """Return where an episode and the search differ; None if they agree."""
    if unknown := [key for key in keys if key not in (WON, _OVER) and not game.following(key)]:
        return f"{len(unknown)} states of the episode are not among those of the search; {_DIFFER}"
    for step, (name, key, target) in enumerate(zip(actions, keys, keys[1:], strict=False)):
        if name != game.idle and game.after(key, name) != (ILLEGAL if step in illegal else target):
            return f"step {step} leads to another state than in the search; {_HIDDEN}"
    return None


def _expected(game: Game, keys: Sequence[Hashable], horizon: int) -> Verdict:
    """Return the label by its definition."""
    needs = [game.need(key) for key in keys]
    lost = [step for step, need in enumerate(needs[1:]) if need is None or need > horizon - 1 - step]
    pivot = lost[0] if lost else len(keys) - 2
    before, after, left = needs[pivot], needs[pivot + 1], horizon - pivot
    at_start = before is None or before > left
    certificate = Certificate(
        "exact", "turns", left, left - 1, _number(before), _number(after), reachable_after=after is not None
    )
    choices = zip(game.actions, map(game.need, game.following(keys[pivot])), strict=True)
    return Verdict(
        pivot,
        "deadlock" if after is None else "timeout",
        certificate,
        fallback=not lost,
        infeasible_at_start=at_start,
        witness=None if at_start else game.plan(keys[pivot]),
        feasible_actions=tuple(name for name, need in choices if need is not None and need < left),
    )


def _number(need: int | None) -> float | None:
    return None if need is None else float(need)
