"""Meaning of success in the first five levels of an environment: found once, stored in every level, and shown.

A run whose first levels do not show what success is ends before it starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...core import admission
from ...core.errors import CertifyError
from ...solvers.closure.advice import naming_settings
from ...solvers.closure.game import GameSettings, Level, close, first_level
from ...solvers.closure.graph import ILLEGAL, Graph, SuccessSteps
from ...solvers.closure.solver import ClosureSettings, ClosureSolver
from ...solvers.closure.success import GOAL_REWARD, RULES, NoSuccessError, rule_of

LEVELS = 5
_SECONDS = 240.0
"""Maximum time of the search of each of them; a slower one is refused, so that no run depends on the machine."""
_WITNESSES = 5
_ENDS = {True: "all of them end the episode", False: "none of them ends the episode", None: "some end the episode"}


@dataclass(frozen=True)
class FirstLevels:
    """First levels of some settings, and what success is in them."""

    rule: str
    graphs: tuple[Graph, ...]
    """Graph of each level, by its seed."""

    @property
    def success(self) -> SuccessSteps:
        """Steps of all levels that succeed, without witnesses."""
        each = [graph.success for graph in self.graphs]
        searched, steps = sum(part.searched for part in each), sum(part.steps for part in each)
        return SuccessSteps(self.rule, searched, steps, sum(part.ending for part in each))

    def table(self) -> str:
        """Return a table of the successful steps, with a few plans, for people."""
        success = self.success
        share = f"{success.steps} of {success.searched} steps of the levels of seeds 0 to {LEVELS - 1}"
        plans = [
            f"  seed {seed}: {' '.join(graph.actions[place] for place in graph.success.witnesses[number])}"
            for number in range(_WITNESSES)
            for seed, graph in enumerate(self.graphs)
            if number < len(graph.success.witnesses)
        ]
        if not plans:
            return f"success ({self.rule}): on none of {share}, which were not searched completely"
        return "\n".join([f"success ({self.rule}): on {share}; {_ENDS[success.ends]}, such as", *plans[:_WITNESSES]])


def first_levels(settings: GameSettings, horizon: int, most_states: int) -> FirstLevels:
    """Search the first levels of some settings, at most so many states of each, once per process.

    Raises:
        CertifyError: an environment cannot be made or searched, or its levels do not show what success is.
        NotAllowedError: this call does not allow its code.
    """
    admission.require(settings.code)
    return _first_levels(settings.model_dump_json(), horizon, most_states)


@lru_cache(maxsize=64)
def _first_levels(settings: str, horizon: int, most_states: int) -> FirstLevels:
    game = GameSettings.model_validate_json(settings)
    solver = ClosureSolver(ClosureSettings(max_states=most_states, max_seconds=_SECONDS))
    levels: list[Level] = []
    graphs: dict[int, Graph] = {}
    unclear: list[NoSuccessError] = []
    for seed in range(LEVELS):
        level, env = first_level(game, seed, horizon)
        close(env)
        levels.append(level)
        try:
            graphs[seed] = _graph(solver, level)
        except NoSuccessError as error:
            unclear.append(error)
    rules = {graph.success.rule for graph in graphs.values()} - {""}
    flags = sorted(rules - {GOAL_REWARD})
    if not game.success and len(flags) > 1:
        raise CertifyError(f"levels of different seeds set {' and '.join(flags)}; choose one of them in gym.success")
    if not rules and unclear:
        with naming_settings():
            raise unclear[0]
    if not rules:
        raise CertifyError(
            f"no step succeeds in {most_states} states of each of the first levels; raise gym.first_search or "
            f"gym.horizon, or name the rule in gym.success: {RULES}"
        )
    rule = game.success or (flags or [GOAL_REWARD])[0]
    for seed, level in enumerate(levels):
        if seed not in graphs or graphs[seed].success.rule != rule:
            graphs[seed] = _graph(solver, level.model_copy(update={"success": rule}))
    if game.illegal == "refuse" and any((graph.successors == ILLEGAL).any() for graph in graphs.values()):
        raise CertifyError(
            "info['action_mask'] excludes actions; say what a turn with one means: gym.illegal=invalid for a turn "
            "without an action, which changes nothing"
        )
    first = FirstLevels(rule, tuple(graphs[seed] for seed in range(LEVELS)))
    if not first.success.steps and all(graph.limit is None for graph in first.graphs):
        raise CertifyError(
            f"no actions lead to success ({rule}) from the start of the levels of seeds 0 to {LEVELS - 1}; name "
            f"another rule in gym.success: {RULES}"
        )
    for level, graph in zip(levels, first.graphs, strict=True):
        for places in graph.success.witnesses[:1]:
            _check_last_turn(level, [graph.actions[place] for place in places], rule, horizon)
    return first


def _check_last_turn(level: Level, plan: Sequence[str], rule: str, horizon: int) -> None:
    """Refuse a horizon in whose last turn a plan, begun late, fails because its reward shrinks with the clock."""
    game, values = level.game(), list[list[int]]()
    env = game.env.unwrapped
    for count in (0, len(plan), len(plan) - 1):
        game.level = level.model_copy(update={"taken": tuple(plan[:count])})
        game.reset()
        values.append([getattr(env, name) for name in level.clock])
    for name, start, end in zip(level.clock, *values[:2], strict=True):
        if type(start) in (int, float):
            setattr(env, name, start + (end - start) * (horizon - 1) // len(plan))
    _, reward, terminated, _, info = game.step(plan[-1])
    close(game.env)
    if not rule_of(rule).won(env, float(reward), bool(terminated), info):
        raise CertifyError(
            f"success ({rule}) depends on {', '.join(level.clock)}: the end of {' '.join(plan)} in the level of seed "
            f"{level.seed} pays {reward:g} in turn {horizon}, expected success in every turn; lower gym.horizon, raise "
            "the environment's own limit (gym.kwargs.max_steps of MiniGrid), or set gym.success to a rule without it"
        )


def _graph(solver: ClosureSolver, level: Level) -> Graph:
    graph = solver.graph(level)
    if graph.by_machine:
        raise CertifyError(
            f"{graph.limit} ended the search of the level of seed {level.seed} after {len(graph.successors)} states; "
            "lower gym.first_search"
        )
    return graph


__all__ = ["LEVELS", "FirstLevels", "first_levels"]
