"""Labels and credit of many episodes of an environment of one's own; each level is searched and checked once."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...core.errors import CertifyError
from ..base import Needs, Unsolved, Verdict
from .actions import members
from .certified import compare_rewards, limits_of, name_of
from .explore import CHECKS, explore
from .graph import Graph
from .worlds import Env, made_by

LATER_CHECKS = 24
"""Checks of the levels after the first, which has shown already whether the environment is random."""
Trajectory = Mapping[str, Any]


def made(make_env: Callable[..., Env], trajectory: Trajectory) -> Env:
    """Return a new environment of the level of a trajectory."""
    return made_by(make_env, *([trajectory["level"]] if "level" in trajectory else []))


def verdicts(
    make_env: Callable[..., Env], trajectories: Sequence[Trajectory], settings: Mapping[str, Any]
) -> Iterator[Verdict | Unsolved]:
    """Yield the label of each trajectory; ``settings`` are those of :func:`pivot.explore`, with ``actions_by_name``."""
    for trajectory, graph, named in _levels(make_env, trajectories, dict(settings)):
        try:
            names = _names(graph, named, trajectory)
            answer = graph.certify(names, trajectory["horizon"])
            if isinstance(answer, Verdict) and len(rewards := trajectory.get("rewards", ())):
                start = trajectory.get("seed"), trajectory.get("options")
                compare_rewards(made(make_env, trajectory), graph, named, names, rewards, *start)
            yield answer
        except CertifyError as error:
            yield _unsolved(graph, error)


def needs(
    make_env: Callable[..., Env], trajectories: Sequence[Trajectory], settings: Mapping[str, Any]
) -> Iterator[Needs | Unsolved]:
    """Yield what success takes from every state of each trajectory."""
    for trajectory, graph, named in _levels(make_env, trajectories, dict(settings)):
        try:
            yield graph.measure(_names(graph, named, trajectory), trajectory["horizon"])
        except CertifyError as error:
            yield _unsolved(graph, error)


def _names(graph: Any, named: dict[str, Any], trajectory: Trajectory) -> list[str]:
    """Return the names of the actions of a trajectory.

    Raises:
        CertifyError: one has no name, or the level has no graph.
    """
    if isinstance(graph, CertifyError):
        raise graph
    return [name_of(named, action) for action in trajectory["actions"]]


def _unsolved(graph: Any, error: CertifyError) -> Unsolved:
    return Unsolved("solver_limit" if error is graph else "bad_episode", str(error))


def _levels(
    make_env: Callable[..., Env], trajectories: Sequence[Trajectory], settings: dict[str, Any]
) -> Iterator[tuple[Trajectory, Any, dict[str, Any]]]:
    """Yield trajectories with the graph of their level, or the error of its search, and the actions by name."""
    declared, graphs = settings.pop("actions_by_name", None), dict[Hashable, tuple[Graph | CertifyError, Any]]()
    limits = limits_of(max((trajectory["horizon"] for trajectory in trajectories), default=1))
    for trajectory in trajectories:
        start = {"seed": trajectory.get("seed"), "options": trajectory.get("options")}
        key = (trajectory.get("level"), repr(start))
        if key not in graphs:
            chosen: dict[str, Any] = {**limits, "checks": LATER_CHECKS if graphs else CHECKS, **start, **settings}
            named: dict[str, Any] = {}
            try:
                named = members(made(make_env, trajectory), declared)
                graphs[key] = explore(partial(made, make_env, trajectory), actions=named, **chosen), named
            except CertifyError as error:
                graphs[key] = error, named
        yield trajectory, *graphs[key]
