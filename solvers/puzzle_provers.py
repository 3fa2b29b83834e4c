"""Provers of puzzle labels, by forward exploration under an independent implementation of the rules.

An episode is replayed (``games.py``), and every field of the verdict is checked against its definition: no earlier step
was fatal, this one was, the witness solves the task in time, no plan is shorter or precedes it in order, and the
numbers of the certificate are exact.

A turn of several actions is played one action at a time and ends early where the episode does. Budgets of turns are
searched as budgets of actions: any path of so many actions can be cut into turns, because a turn may be short.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from math import ceil, inf
from typing import Any, ClassVar

from pydantic import Field

from ..core.errors import CertifyError, LevelError
from ..core.plugins import Settings
from .base import Case, Certificate, Proof, Prover, Verdict, differences
from .puzzle_rules import MAX_STATES, NOTHING, ORDER, BoxGame, Game, LakeGame


class PuzzleSettings(Settings):
    """Settings of a puzzle's prover."""

    max_states: int = Field(default=MAX_STATES, ge=1)
    """Maximum number of reachable states of a level; larger levels stay undecided."""


class PuzzleProver(Prover):
    """Prover of one puzzle; it caches the last level, because rollouts of a level come in succession."""

    config_type: ClassVar[type[Settings]] = PuzzleSettings
    game_type: ClassVar[Callable[[str, int, int], Game]]
    settings: PuzzleSettings

    def __init__(self, solver_config: Mapping[str, Any] | None = None, settings: Settings | None = None) -> None:
        """Create a prover; it ignores the solver settings, because exact labels do not depend on them."""
        super().__init__(solver_config, settings)
        self._game = lru_cache(maxsize=1)(type(self).game_type)

    @classmethod
    def quick(cls) -> Settings:
        """Return settings whose cap limits the time per level to about a second."""
        return PuzzleSettings(max_states=100_000)

    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or all its errors."""
        try:
            most = case.actions_per_turn
            game = self._game(case.initial_state, case.horizon * most, self.settings.max_states)
            unknown = [action for action in case.actions if not _is_turn(action, most)]
            if unknown or not 0 < len(case.actions) <= case.horizon:
                return Proof(
                    (f"not an episode: {len(case.actions)} actions for {case.horizon} turns, unknown {unknown}",)
                )
            states = [game.start]
            for action in case.actions:
                if game.is_over(states[-1]):
                    break
                state = states[-1]
                for each in action.split("|"):  # those after the end of the episode are not played
                    state = state if game.is_over(state) else game.after(state, each)
                states.append(state)
            over = len(states) <= len(case.actions)
            if over or game.is_solved(states[-1]):
                return Proof(
                    (f"not a failed episode: it is over after {len(states) - 1} of {len(case.actions)} actions",)
                )
            if not 0 <= verdict.pivot_step < len(case.actions):
                return Proof((f"pivot_step {verdict.pivot_step} is not a step of the episode",))
            return Proof((*_step_problems(game, states, case, verdict), *_plan_problems(game, states, case, verdict)))
        except CertifyError as error:
            return Proof(undecided=str(error))
        except LevelError as error:
            return Proof((f"could not be re-proved: {error}",))


class SokobanProver(PuzzleProver):
    """Prover of Sokoban labels."""

    game_type: ClassVar[Callable[[str, int, int], Game]] = BoxGame


class FrozenLakeProver(PuzzleProver):
    """Prover of FrozenLake labels."""

    game_type: ClassVar[Callable[[str, int, int], Game]] = LakeGame


def _is_turn(name: str, most: int) -> bool:
    """Return whether a name is the unusable turn or has 1 to ``most`` actions."""
    return name == NOTHING or (name.count("|") < most and all(part in ORDER for part in name.split("|")))


def _turns(moves: float | None, most: int) -> float | None:
    """Convert a number of actions to turns; infinity stays."""
    return moves if moves is None or moves == inf else ceil(moves / most)


def _limit(claimed: float | None, most: int) -> int | None:
    """Return the search depth that confirms or refutes a stated need; None for a complete search."""
    return int(claimed) * most if claimed is not None and 0 <= claimed * most < _DEEPEST else None


def _fatal_action(game: Game, state: Hashable, case: Case, step: int) -> int | None:
    """Return the index of the first action of a turn after which the goal is out of reach in the actions left."""
    left = (case.horizon - step) * case.actions_per_turn
    if case.actions_per_turn == 1 or case.actions[step] == NOTHING or not game.in_time(state, left):
        return None
    for index, action in enumerate(case.actions[step].split("|")):
        if game.is_over(state):
            return None
        state, left = game.after(state, action), left - 1
        if not game.in_time(state, left):
            return index
    return None


_DEEPEST = 100_000
"""Largest plausible distance, moves."""


def _step_problems(game: Game, states: list, case: Case, verdict: Verdict) -> tuple[str, ...]:
    """Check pivot, mode, flags and certificate."""
    step, horizon, most = verdict.pivot_step, case.horizon, case.actions_per_turn
    at_start = not game.in_time(states[0], horizon * most)
    # The first state from which success within the remaining turns is impossible, else the number of states.
    late = (t for t, state in enumerate(states) if not game.in_time(state, (horizon - t) * most))
    first = next(late, len(states))
    pivot = min(max(first - 1, 0), len(case.actions) - 1)
    facts = verdict.certificate
    before = _turns(game.distance(states[step], _limit(facts.before, most)), most)
    after = _turns(game.distance(states[step + 1], _limit(facts.after, most)), most)
    right = Verdict(
        pivot_step=pivot,
        failure_mode="deadlock" if after is None else "timeout",
        certificate=Certificate(
            kind="exact",
            unit="moves" if most == 1 else "turns",
            budget_before=horizon - step,
            budget_after=horizon - 1 - step,
            before=before,
            after=after,
            reachable_after=after is not None,
        ),
        fallback=first == len(states),
        infeasible_at_start=at_start,
        witness=verdict.witness,  # checked with the plan, as the next
        feasible_actions=verdict.feasible_actions,
        pivot_action=_fatal_action(game, states[step], case, step),
    )
    return differences(verdict, right)


def _plan_problems(game: Game, states: list, case: Case, verdict: Verdict) -> list[str]:
    """Check the witness and the feasible actions at the stored pivot step."""
    step = verdict.pivot_step
    most = case.actions_per_turn
    state, budget = states[step], (case.horizon - step) * most
    if not game.in_time(state, budget):
        problems = [] if verdict.witness is None else ["there is a witness, but no plan solves the task in time"]
        return problems + (["no action is feasible, but some are listed"] if verdict.feasible_actions else [])
    feasible = tuple(action for action in ORDER if game.in_time(game.after(state, action), budget - most))
    feasible += tuple(turn for turn in (verdict.witness or ())[:1] if "|" in turn)  # checked with the witness
    problems = []
    if tuple(verdict.feasible_actions) != feasible:
        problems.append(f"feasible_actions are {verdict.feasible_actions}, the prover gives {feasible}")
    if verdict.witness is None:
        return [*problems, "the witness is missing"]
    actions = [action for turn in verdict.witness for action in turn.split("|")]
    if len(actions) > budget:
        problems.append(f"the witness takes {len(actions)} actions, {budget} are left")
    if any(turn.count("|") + 1 != most for turn in verdict.witness[:-1]) or not all(
        _is_turn(turn, most) for turn in verdict.witness
    ):
        problems.append(f"the turns of the witness do not have {most} actions each, and the last one at most as many")
    left = next(moves for moves in range(budget + 1) if game.in_time(state, moves))
    for number, action in enumerate(actions):
        left -= 1
        first = next((name for name in ORDER if game.in_time(game.after(state, name), left)), None)
        if action not in ORDER or action != first:
            return [*problems, f"action {number} of the witness is {action!r}; the first shortest plan has {first!r}"]
        state = game.after(state, action)
    if not game.is_solved(state):
        problems.append("the witness does not solve the task")
    return problems
