"""Labels and credit of many episodes of an environment of one's own; each level is searched and checked once."""

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

from rich.console import Console
from rich.progress import track

from ...core.errors import CertifyError
from ...core.lazy import near_match
from ..base import Needs, Unsolved, Verdict
from .actions import members
from .certified import compare_replay, limits_of, name_of, with_actions
from .explore import CHECKS, explore
from .graph import Graph
from .values import key_of
from .worlds import Env, made_by

LATER_CHECKS = 24
"""Checks of the levels after the first, which has shown already whether the environment is random."""
_SETTINGS = frozenset({*signature(explore).parameters, "actions_by_name"})
Trajectory = Mapping[str, Any]


def made(make_env: Callable[..., Env], trajectory: Trajectory) -> Env:
    """Return a new environment of the level of a trajectory."""
    return made_by(make_env, *([trajectory["level"]] if "level" in trajectory else []))


def verdicts(
    make_env: Callable[..., Env], trajectories: Sequence[Trajectory], settings: Mapping[str, Any]
) -> Iterator[Verdict | Unsolved]:
    """Yield the label of each trajectory; ``settings`` are those of :func:`pivot.explore`, with ``actions_by_name``."""
    early: list[int] = []
    for index, (trajectory, graph, named) in enumerate(_levels(make_env, trajectories, dict(settings))):
        try:
            names = _names(graph, named, trajectory)
            answer = graph.certify(names, trajectory["horizon"])
            if isinstance(answer, Verdict):
                env = made(make_env, trajectory)
                if len(trajectory.get("rewards", ())) or len(trajectory.get("observations", ())):
                    compare_replay(env, graph, named, names, trajectory)
                if len(names) < trajectory["horizon"] and graph.walk(names)[-1] >= 0:
                    early.append(index)
                answer = with_actions(answer, names, env, graph, named, trajectory)
            yield answer
        except CertifyError as error:
            yield _unsolved(graph, error)
    if early:
        warnings.warn(
            f"{len(early)} of {len(trajectories)} episodes, first episodes[{early[0]}], stop before their horizon, but "
            "the game goes on; check that no actions are missing, and that seed and actions are right",
            stacklevel=3,
        )


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
    if unknown := [name for name in settings if name not in _SETTINGS]:
        near = near_match(unknown[0], _SETTINGS)
        raise CertifyError(f"{unknown[0]}: found a setting that pivot.explore does not have{near}")
    declared, graphs = settings.pop("actions_by_name", None), dict[Hashable, tuple[Graph | CertifyError, Any]]()
    limits = limits_of(max((trajectory["horizon"] for trajectory in trajectories), default=1))
    shown = Console(stderr=True)
    for trajectory in track(trajectories, "labels", console=shown, transient=True, disable=not shown.is_terminal):
        start = {"seed": trajectory.get("seed"), "options": trajectory.get("options")}
        key = key_of((start, trajectory.get("level", ...)))
        if key not in graphs:
            chosen: dict[str, Any] = {**limits, "checks": LATER_CHECKS if graphs else CHECKS, **start, **settings}
            named: dict[str, Any] = {}
            try:
                named = members(made(make_env, trajectory), declared)
                graphs[key] = explore(partial(made, make_env, trajectory), actions=named, **chosen), named
            except CertifyError as error:
                unseeded = not {"seed", "level"} & trajectory.keys()
                advice = "; the trajectory has no seed: give that of its reset as 'seed'" if unseeded else ""
                graphs[key] = CertifyError(f"{error}{advice}"), named
        yield trajectory, *graphs[key]
