"""Labels of episodes of a live environment: after the episode, or turn by turn during it."""

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from html import escape
from math import inf
from typing import Any

import gymnasium
import numpy as np

from ...core.errors import CertifyError
from ...core.images import encode_png
from ..base import Unsolved, Verdict
from .actions import members, own
from .advice import naming_code, plain, short
from .explore import explore
from .graph import Graph
from .values import key_of
from .worlds import Env, made_by

CACHED_LEVELS = 64
_GAP = 8
"""Width of the space between two pictures, pixels."""
DEPTH = 200
"""Least depth of a search for one episode; no label needs more than its horizon, but a dead end may."""


@dataclass(frozen=True)
class OwnVerdict(Verdict):
    """The label of a failed episode of an environment of one's own, which no store has."""

    actions: tuple[str, ...] = ()
    """Names of the actions of the episode."""

    def _repr_html_(self) -> str:
        """Return the label as a table that begins with the action at the pivot, and what was seen before and after."""
        first = f"<table><tr><th>action at the pivot</th><td>{escape(self.actions[self.pivot_step])}</td></tr>"
        picture = getattr(self, "_picture", b"")
        shown = f'<img alt="before and after it" src="data:image/png;base64,{b64encode(picture).decode()}">'
        return Verdict._repr_html_(self).replace("<table>", first) + (shown if picture else "")


@naming_code()
def certify_played(
    env: Env | Callable[[], Env],
    actions: Sequence[Any],
    horizon: int,
    *,
    seed: int | None,
    rewards: Sequence[float] = (),
    **settings: Any,
) -> Verdict:
    """Find the pivot step of one failed episode of a live environment; see :func:`pivot.certify`.

    Raises:
        CertifyError: the episode succeeded, does not fit the level, has other rewards, or a limit was hit.
    """
    made = env if hasattr(env, "unwrapped") and not isinstance(env, type) else made_by(env)  # pyright: ignore[reportArgumentType]
    named = members(made, settings.pop("actions_by_name", None))
    graph = explore(env, actions=named, seed=seed, **(limits_of(horizon) | settings))
    names = [name_of(named, action) for action in actions]
    answer = graph.certify(names, horizon)
    if isinstance(answer, Unsolved):
        raise CertifyError(f"{answer.reason}: {answer.detail}")
    if len(rewards):
        compare_replay(made, graph, named, names, {"seed": seed, "rewards": rewards, **settings})
    return with_actions(answer, names, made, graph, named, {"seed": seed, **settings})


def with_actions(
    answer: Verdict, names: Sequence[str], env: Env, graph: Graph, named: Mapping[str, Any], recorded: Mapping[str, Any]
) -> OwnVerdict:
    """Return a label with the actions of its episode, and with two pictures if the environment draws RGB arrays."""
    verdict = OwnVerdict(**{each.name: getattr(answer, each.name) for each in fields(Verdict)}, actions=tuple(names))
    if getattr(env, "render_mode", None) == "rgb_array":
        with suppress(Exception):  # foreign code, whose pictures decide nothing
            env.reset(seed=recorded.get("seed"), options=recorded.get("options"))
            pictures: list[Any] = []
            for step, action in enumerate(_taken(graph, named, names[: answer.pivot_step + 1])):
                pictures = [np.array(env.render(), np.uint8)] if step == answer.pivot_step else []
                if action is not None:
                    env.step(own(action))
            pictures.append(np.array(env.render(), np.uint8))
            gap = np.full((len(pictures[0]), _GAP, 3), 255, np.uint8)
            object.__setattr__(verdict, "_picture", encode_png(np.hstack([pictures[0], gap, pictures[1]])))
    return verdict


def limits_of(horizon: int) -> dict[str, Any]:
    """Return the limits of a search for one turn budget, which also end states that count turns."""
    return {"horizon": horizon, "max_depth": max(DEPTH, 4 * horizon)}


def _taken(graph: Graph, named: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Return the action of each turn; None for a turn without an action or with an illegal one."""
    return [None if graph.is_illegal(names[: step + 1]) else named.get(name) for step, name in enumerate(names)]


def compare_replay(
    env: Env, graph: Graph, named: dict[str, Any], names: Sequence[str], recorded: Mapping[str, Any]
) -> None:
    """Replay an episode with its clock running, and compare its ``rewards`` and ``observations`` where it has them.

    Raises:
        CertifyError: a reward or an observation differs.
    """
    actions = _taken(graph, named, names)
    rewards, observations = recorded.get("rewards", ()), recorded.get("observations", ())
    if len(rewards) not in (0, len(actions)):
        raise CertifyError(f"rewards: found {len(rewards)}, expected {len(actions)}, one per action")
    seen, _ = env.reset(seed=recorded.get("seed"), options=recorded.get("options"))
    for step, action in enumerate(actions):
        if step < len(observations) and is_equal(observations[step], seen) is False:
            raise CertifyError(
                f"observations[{step}]: found {short(observations[step])}, but the environment shows {short(seen)}; "
                f"{_AS_RECORDED}"
            )
        reward = 0.0
        if action is not None:
            seen, reward, *_ = env.step(own(action))
        if len(rewards) and abs(float(reward) - rewards[step]) > 1e-6:
            raise CertifyError(
                f"rewards[{step}]: found {rewards[step]:g}, but the environment gives {float(reward):g}; {_AS_RECORDED}"
            )


_AS_RECORDED = "pass the seed, the options and the settings of the recorded episode"


def is_equal(recorded: Any, seen: Any) -> bool | None:
    """Return whether a recorded observation is that of a replay; None where it is of another kind, such as a picture.

    A list may equal an array, and a number its form in JSON.
    """
    if isinstance(recorded, Mapping) and isinstance(seen, Mapping):
        one, other = ({str(name): value for name, value in each.items()} for each in (recorded, seen))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
        parts = [is_equal(one[name], other[name]) for name in one] if one.keys() == other.keys() else [None]
        return None if None in parts else all(parts)
    try:
        one, other = np.asarray(recorded), np.asarray(seen)
    except ValueError:  # lists of different lengths
        return None
    are_numbers = one.dtype.kind in "biuf" and other.dtype.kind in "biuf"
    if one.shape != other.shape or not (are_numbers or one.dtype.kind == other.dtype.kind == "U"):
        return None
    return bool(np.allclose(one, other, atol=1e-6, equal_nan=True) if are_numbers else (one == other).all())


def name_of(named: dict[str, Any], action: Any) -> str:
    """Return the name of an action, which is a name already or a member of the action space."""
    if isinstance(action, str):
        return action
    value = np.atleast_1d(plain(action)).tolist()
    for name, each in named.items():
        if np.atleast_1d(plain(each)).tolist() == value:
            return name
    raise CertifyError(f"actions: found {short(action)}, expected one of {', '.join(named)}")


class Certified(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds to ``info`` how far success is, and which actions keep it within reach.

    ``reset`` searches the level of its seed (one is drawn if there is none), or takes the search of before. Keys:

    - ``need``: fewest turns to success; infinite for a dead end, None where a limit leaves it open.
    - ``slack``: turns left minus ``need``; negative once the goal is out of reach in time.
    - ``safe_actions``: members of the action space after which success in time is still possible.
    - ``is_pivot`` (after a step): whether this step was the first after which the goal is out of reach in time.
    """

    def __init__(self, env: Env, horizon: int, actions: Any = None, **settings: Any) -> None:
        """Wrap an environment.

        Args:
            env: a gymnasium environment; its levels are searched with itself before each is played.
            horizon: ``T_max``, the turn budget.
            actions: actions by name; see :func:`pivot.explore`.
            settings: settings of :func:`pivot.explore`.
        """
        super().__init__(env)
        self._horizon, self._settings = horizon, settings
        self._actions = members(env, actions)
        self._graphs: OrderedDict[Any, Graph] = OrderedDict()
        self._taken: list[str] = []
        self._graph: Graph | None = None
        self._lost, self._seen = False, None

    @property
    def graph(self) -> Graph:
        """Graph of the current level.

        Raises:
            CertifyError: ``reset`` was not called.
        """
        if self._graph is None:
            raise CertifyError("Certified: found no level, expected one; call reset() first")
        return self._graph

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Search the level, start it, and add the keys to ``info``.

        Raises:
            CertifyError: the environment is random, or has state that its key does not show.
        """
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        key = key_of((seed, options))
        if key not in self._graphs:
            limits = limits_of(self._horizon) | self._settings
            self._graphs[key] = explore(self.env, actions=self._actions, seed=seed, options=options, **limits)
            if len(self._graphs) > CACHED_LEVELS:
                self._graphs.popitem(last=False)
        self._graph, self._taken = self._graphs[key], []
        observation, info = self.env.reset(seed=seed, options=options)
        self._seen = observation
        self._lost = self._bounds()[0] > self._horizon
        return observation, {**info, **self._facts()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action and add the keys to ``info``; with ``illegal="invalid"`` an illegal action wastes the turn.

        Raises:
            CertifyError: the action is illegal, and such episodes are refused.
        """
        name = name_of(self._actions, action)
        try:
            is_illegal = self.graph.is_illegal([*self._taken, name])
        except ValueError as error:
            raise CertifyError(f"Certified: {error}") from error
        self._taken.append(name)
        reward, terminated, truncated, info = 0.0, False, False, dict[str, Any]()
        if not is_illegal:
            self._seen, reward, terminated, truncated, info = self.env.step(action)
        observation = self._seen
        was_lost, self._lost = self._lost, self._bounds()[0] > self._horizon - len(self._taken)
        at_start = len(self._taken) == 1  # step 0 is the pivot of a level that was out of reach from its start
        facts = self._facts() | {"is_pivot": self._lost and (not was_lost or at_start)}
        return observation, reward, terminated, truncated, {**info, **facts}

    def _bounds(self) -> tuple[float, float]:
        return self.graph.bounds(self.graph.walk(self._taken)[-1])

    def _facts(self) -> dict[str, Any]:
        state = self.graph.walk(self._taken)[-1]
        least, most = self.graph.bounds(state)
        left = self._horizon - len(self._taken)
        need = least if least == most else None
        safe = self.graph.safe_actions(state, left) if state >= 0 else ()
        return {
            "need": need,
            "slack": None if need is None else left - need if need < inf else -inf,
            "safe_actions": tuple(plain(self._actions[name]) for name in safe),
        }
