"""Exact pivot labels of failed episodes in any gymnasium environment, by search through its own steps."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isinf
from typing import ClassVar, TypeVar

from pydantic import Field

from ...core.errors import CertifyError, LevelError, NotAllowedError, PivotError
from ...core.plugins import Settings
from ..base import (
    Case,
    CertificateKind,
    CertificateUnit,
    DistanceMap,
    ExactSolver,
    Needs,
    SolverSettings,
    Unsolved,
    Verdict,
)
from .advice import naming_settings
from .explore import explore
from .game import Level, close, level_env, search_of
from .graph import OUT_OF_BUDGET, Graph, SuccessSteps

Answer = TypeVar("Answer")


def _ends(success: SuccessSteps) -> str:
    return {True: "ends the episode", False: "does not end it", None: "ends it on some steps alone"}[success.ends]


CACHED_LEVELS = 64
"""Levels whose graphs are cached; all rollouts of a level come in succession."""


class ClosureSettings(SolverSettings):
    """Limits of the search of a level."""

    max_states: int = Field(default=500_000, ge=1)
    """Maximum number of states."""
    max_steps: int = Field(default=5_000_000, ge=1)
    """Maximum number of steps of the environment."""
    max_depth: int = Field(default=1_000, ge=1)
    """Maximum number of turns from the start; it ends the search of levels that count turns without end."""
    max_seconds: float = Field(default=600.0, gt=0)
    """Maximum time of the search, seconds. A level at this limit may be labelled on one machine and not on another."""
    max_megabytes: int = Field(default=2_000, ge=1)
    """Maximum growth of memory, megabytes."""
    checks: int = Field(default=6, ge=1)
    """Number of states and of random walks that are tried again by replay in every level; ten times as many in the
    first level of a process, which is also replayed in a new process."""


@dataclass(frozen=True)
class GraphDistances(DistanceMap):
    """Distances of all states of one level."""

    level: Level
    graph: Graph

    def _state(self, text: str) -> int:
        level = Level.read(text)
        if level.start != self.level:
            raise LevelError("the state belongs to a different level; pass the level of which distances were computed")
        try:
            return self.graph.walk(level.taken)[-1]
        except ValueError as error:
            raise LevelError(f"the gym level: {error}") from error

    def distance(self, state_text: str) -> int | None:
        """Return the distance of a state; see the base class."""
        return _whole(self.graph.bounds(self._state(state_text)))

    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        """Return the distances after each action; see the base class."""
        state = self._state(state_text)
        if state < 0:
            return (None,) * len(self.graph.actions)
        return tuple(_whole(self.graph.bounds(each)) for each in self.graph.successors[state].tolist())


def _whole(bounds: tuple[float, float]) -> int | None:
    """Return a need as a number; None for a dead end.

    Raises:
        CertifyError: the limits of the search leave it open.
    """
    least, most = bounds
    if least != most:
        raise CertifyError("the limits of the search leave open how far this state is from success")
    return None if isinf(most) else int(most)


class ClosureSolver(ExactSolver):
    """Solver of gymnasium environments; each level is searched once for all its episodes."""

    name: ClassVar[str] = "gym"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = ("timeout", "deadlock", OUT_OF_BUDGET)
    actions: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[CertificateKind] = "exact"
    unit: ClassVar[CertificateUnit] = "turns"
    config_type: ClassVar[type[Settings]] = ClosureSettings
    settings: ClosureSettings
    _checked: ClassVar[set[str]] = set()
    """Games of which a level was replayed in a new process."""
    _graphs: ClassVar[OrderedDict[tuple[str, str], Graph | PivotError]] = OrderedDict()

    @classmethod
    def actions_of(cls, initial_state: str) -> tuple[str, ...]:
        """Return the actions that the level names; see the base class."""
        return tuple(Level.read(initial_state).actions)

    @classmethod
    def modes_of(cls, initial_state: str) -> tuple[str, ...]:
        """Return the modes of the search, then the modes of the level's settings; see the base class."""
        return (*cls.modes, *Level.read(initial_state).failure_modes)

    def graph(self, level: Level) -> Graph:
        """Search a level, or return its graph of before.

        Raises:
            CertifyError: the environment cannot be made or searched. LevelError: the level does not fit it.
            NotAllowedError: this call does not allow the environment's code.
        """
        key = (level.text(), self.settings.model_dump_json())
        graph = self._graphs.get(key)
        if graph is None:
            try:
                with naming_settings():
                    graph = self._search(level)
            except NotAllowedError:
                raise  # another call may allow it
            except PivotError as error:
                graph = error
            self._graphs[key] = graph
            if len(self._graphs) > CACHED_LEVELS:
                self._graphs.popitem(last=False)
        if isinstance(graph, PivotError):
            raise graph
        return graph

    def _search(self, level: Level) -> Graph:
        limits = self.settings
        close(level.make())  # refuses what this process may not use
        kind = level.model_copy(update={"seed": 0}).text()
        graph = explore(
            partial(level_env, level),
            **search_of(level),
            max_states=limits.max_states,
            max_steps=limits.max_steps,
            max_depth=limits.max_depth,
            max_seconds=limits.max_seconds,
            max_megabytes=limits.max_megabytes,
            checks=limits.checks if kind in self._checked else 10 * limits.checks,
            fresh=kind not in self._checked or None,
        )
        self._checked.add(kind)
        first = SuccessSteps(level.success, 0, *level.success_steps)
        if first.ends is not None and graph.success.steps and graph.success.ends != first.ends:
            raise CertifyError(
                f"success ({level.success}) {_ends(graph.success)} in this level, and {_ends(first)} in the first "
                "levels of the run; name a rule in gym.success that fits all levels"
            )
        return graph

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        """Label cases; see :meth:`Solver.certify`."""
        return [self._named(case, self._answer(case, Graph.certify)) for case in cases]

    def measure(self, cases: Sequence[Case]) -> list[Needs | Unsolved]:
        """Measure cases; see :meth:`Solver.measure`."""
        return [self._answer(case, Graph.measure) for case in cases]

    def _answer(
        self, case: Case, answer_of: Callable[[Graph, Sequence[str], int], Answer | Unsolved]
    ) -> Answer | Unsolved:
        try:
            level = Level.read(case.initial_state)
            graph = self.graph(level.start)
        except LevelError as error:
            return Unsolved("bad_episode", str(error))
        except CertifyError as error:
            return Unsolved("solver_limit", str(error))
        if level.taken:
            return Unsolved("bad_episode", "the level starts after some actions, expected its start")
        return answer_of(graph, case.actions, case.horizon)

    @staticmethod
    def _named(case: Case, answer: Verdict | Unsolved) -> Verdict | Unsolved:
        """Rename the failure mode of a verdict to the level's own, if one of its predicates holds."""
        if isinstance(answer, Unsolved):
            return answer
        level = Level.read(case.initial_state)
        if not level.failure_modes:
            return answer
        try:
            game = level.game()
            own = game.own_mode(case.actions[: answer.pivot_step + 1])
        except CertifyError as error:
            return Unsolved("solver_limit", str(error))
        close(game.env)
        return replace(answer, failure_mode=own, secondary_modes=(answer.failure_mode,)) if own else answer

    def distance_map(self, initial_state: str, depth_limit: int | None = None) -> GraphDistances:
        """Search a level completely, whatever the limit of depth; see :meth:`ExactSolver.distance_map`."""
        del depth_limit
        level = Level.read(initial_state).start
        return GraphDistances(level, self.graph(level))
