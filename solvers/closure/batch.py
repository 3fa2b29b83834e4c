"""Labels and credit of many episodes of an environment of one's own; each level is searched and checked once."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from ...core.errors import CertifyError
from ..base import Needs, Unsolved, Verdict
from .actions import members
from .certified import compare_rewards, limits_of, name_of
from .explore import CHECKS, explore
from .graph import Graph
from .worlds import Env

LATER_CHECKS = 24
"""Checks of the levels after the first, which has shown already whether the environment is random."""


class Levels:
    """Graphs of the levels of an environment."""

    def __init__(self, make_env: Callable[..., Env], settings: Mapping[str, Any]) -> None:
        """Search nothing yet; ``settings`` are those of :func:`pivot.explore`, with ``actions_by_name``."""
        self._make, self._settings = make_env, dict(settings)
        self._named = self._settings.pop("actions_by_name", None)
        self._graphs: dict[tuple[Hashable, int | None, str], tuple[Graph, dict[str, Any]] | CertifyError] = {}

    def made(self, trajectory: Mapping[str, Any]) -> Env:
        """Return a new environment of the level of a trajectory."""
        return self._make(trajectory["level"]) if "level" in trajectory else self._make()

    def verdicts(self, trajectories: Sequence[Mapping[str, Any]]) -> Iterator[Verdict | Unsolved]:
        """Yield the label of each trajectory."""
        for trajectory, graph, names in self._played(trajectories):
            if isinstance(names, Unsolved):
                yield names
                continue
            answer = graph.certify(names, trajectory["horizon"])
            doubt = self._doubt(trajectory, graph, names) if isinstance(answer, Verdict) else None
            yield doubt or answer

    def needs(self, trajectories: Sequence[Mapping[str, Any]]) -> Iterator[Needs | Unsolved]:
        """Yield what success takes from every state of each trajectory."""
        for trajectory, graph, names in self._played(trajectories):
            yield names if isinstance(names, Unsolved) else graph.measure(names, trajectory["horizon"])

    def _played(self, trajectories: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Any, Any]]:
        """Yield trajectories with the graph of their level and the names of their actions, or why there is none."""
        longest = max((trajectory["horizon"] for trajectory in trajectories), default=1)
        for trajectory in trajectories:
            found = self._graph(trajectory, longest)
            if isinstance(found, CertifyError):
                yield trajectory, None, Unsolved("solver_limit", str(found))
                continue
            graph, named = found
            try:
                yield trajectory, graph, [name_of(named, action) for action in trajectory["actions"]]
            except CertifyError as error:
                yield trajectory, graph, Unsolved("bad_episode", str(error))

    def _graph(self, trajectory: Mapping[str, Any], horizon: int) -> tuple[Graph, dict[str, Any]] | CertifyError:
        key = (trajectory.get("level"), trajectory.get("seed"), repr(trajectory.get("options")))
        if key not in self._graphs:
            settings: dict[str, Any] = limits_of(horizon) | {"checks": LATER_CHECKS if self._graphs else CHECKS}
            try:
                env = self.made(trajectory)
                named = members(env, self._named)
                settings |= {"seed": trajectory.get("seed"), "options": trajectory.get("options")}
                graph = explore(env, actions=named, **(settings | self._settings))
                self._graphs[key] = graph, named
            except CertifyError as error:
                self._graphs[key] = error
        return self._graphs[key]

    def _doubt(self, trajectory: Mapping[str, Any], graph: Graph, names: Sequence[str]) -> Unsolved | None:
        """Return the difference between recorded rewards and those of a replay, if there is one."""
        if not len(trajectory.get("rewards", ())):
            return None
        named = self._graph(trajectory, trajectory["horizon"])[1]  # pyright: ignore[reportIndexIssue]
        try:
            compare_rewards(
                *(self.made(trajectory), graph, named, names, trajectory["rewards"]),
                *(trajectory.get("seed"), trajectory.get("options")),
            )
        except CertifyError as error:
            return Unsolved("bad_episode", str(error))
        return None
