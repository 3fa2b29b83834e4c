"""Turns needed to success from each state of a level, in the unit of its certificates, for the ``need`` columns.

For an exact solver these are its distances; a level beyond the limits of its search is not measured. For other solvers
they are what the solver derives from the log of an episode (:meth:`..solvers.base.Solver.needs`).
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil

from ..core import plugins
from ..core.errors import PivotError
from ..solvers.base import Case, DistanceMap, ExactSolver, Solver
from .base import Episode

MOST_STATES = 500_000
"""Most states in the search for the distances of a level: a few tenths of a second and about 50 MB."""
CAP = "max_states"


@dataclass(frozen=True, slots=True)
class Measured:
    """Columns of a state; ``need`` is None if unknown."""

    state: str
    need: int | None = None


class Measure:
    """The distances of one level, computed at their first use."""

    def __init__(self, env: str, initial_state: str, horizon: int, actions_per_turn: int = 1) -> None:
        """Measure a level of an environment up to its turn budget."""
        self._most = actions_per_turn
        self._env, self._initial_state, self._horizon = env, initial_state, horizon
        self._measured: dict[str, Measured] = {}

    @cached_property
    def _solver(self) -> Solver | None:
        """Return the solver with default settings: settings of a run decide labels, never episodes."""
        if self._env not in plugins.names("solvers"):
            return None
        kind: type[Solver] = plugins.load("solvers", self._env)
        cap = {CAP: MOST_STATES} if CAP in kind.config_type.model_fields else {}
        return kind(kind.config_type(**cap))

    @property
    def exact(self) -> bool:
        """Whether the environment has an exact solver."""
        return isinstance(self._solver, ExactSolver)

    @cached_property
    def _map(self) -> DistanceMap | None:
        if not isinstance(self._solver, ExactSolver):
            return None
        try:
            return self._solver.distance_map(self._initial_state, depth_limit=self._horizon * self._most)
        except PivotError:
            return None

    def of(self, state: str) -> Measured:
        """Return a state text with the fewest turns to success from it, None where those are more than the horizon."""
        if state not in self._measured:  # rollouts of a level meet few states
            try:
                moves = None if self._map is None else self._map.distance(state)
            except PivotError:
                moves = None
            need = None if moves is None else ceil(moves / self._most)
            self._measured[state] = Measured(state, need if need is not None and need <= self._horizon else None)
        return self._measured[state]

    @cached_property
    def optimal_start(self) -> int | None:
        """Return the fewest turns from the start of the level to success."""
        return self.of(self._initial_state).need if self.exact else None

    def note_needs(self, episode: Episode) -> None:
        """Set ``need`` of the steps of an episode from its log, if the solver is not exact."""
        steps = episode.steps
        if self._solver is None or self.exact or not steps:
            return
        observations = [step.observation_text for step in steps]
        case = Case(self._initial_state, episode.actions, self._horizon, [step.info for step in steps], observations)
        for step, need in zip(steps, self._solver.needs(case) or (), strict=False):  # the needs include the last state
            step.need = None if need is None else round(need)
