"""The state of any Python environment as one hashable value, and the turn counters in it."""

import random
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import gymnasium
from gymnasium import wrappers

from .actions import own
from .advice import IF_RANDOM, AdvisedError
from .outside import Outside, Scope, global_dice
from .packages import package_of
from .parts import Part, parts_of
from .values import Reader

Env = Any

_WRAPPER = frozenset({"env", "_saved_kwargs", "_cached_spec", "checked_reset", "checked_step", "checked_render"})
"""Attributes of wrappers that are no part of a state."""
_COUNTING: tuple[type, ...] = (
    *(wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.RecordEpisodeStatistics),
    *(wrappers.RecordVideo, wrappers.HumanRendering, wrappers.RenderCollection, wrappers.Autoreset),
    wrappers.NormalizeReward,
)
"""Wrappers that only count, check, record or scale; PIVOT's own turn budget replaces time limits."""
_SHOWING: tuple[type, ...] = (
    wrappers.FrameStackObservation,
    wrappers.NormalizeObservation,
    wrappers.TimeAwareObservation,
)
"""Wrappers that show earlier observations, turns or statistics."""


def bare(env: Env, *, observed: bool = False) -> Env:
    """Return an environment without wrappers that only count or record, which would make every turn a new state.

    Args:
        env: an environment; it is left as it is.
        observed: whether its observation is the key, so that wrappers which change it stay.
    """
    if not isinstance(env, gymnasium.Wrapper):
        return env
    inner: Env = env.env  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    below = bare(inner, observed=observed)
    if type(env) in (_COUNTING if observed else (*_COUNTING, *_SHOWING)):  # pyright: ignore[reportUnknownArgumentType]
        return below
    if below is inner:
        return env  # pyright: ignore[reportUnknownVariableType]
    other = object.__new__(type(env))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    vars(other).update(vars(env) | {"env": below})  # pyright: ignore[reportUnknownArgumentType]
    return other  # pyright: ignore[reportUnknownVariableType]


class Keys:
    """Keys of the states of one environment: all that its steps may depend on.

    They hold its attributes and those of its wrappers, however deep, and what changes outside of it. The state of a
    generator of random numbers is not in them: an environment whose steps draw from one is refused as random.
    """

    def __init__(self, skip: frozenset[str] = frozenset(), drawn: frozenset[str] = frozenset()) -> None:
        """Begin for one environment.

        Args:
            skip: attributes of the environment to leave out, such as counters of turns.
            drawn: generators whose numbers decide nothing, by the attribute of the environment.
        """
        self.skip, self._drawn = skip, drawn
        self._outside: Outside | None = None
        self._dice: dict[str, Hashable] | None = None
        self._shared: dict[str, Hashable] = {}
        self._draws = 0
        self._pool: dict[Hashable, Hashable] = {}
        self.changed = ""
        """Name of something outside of the environment that differs from the first reading."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings alone."""
        return Keys, (self.skip, self._drawn)

    def begin(self) -> None:
        """Treat the next reading as that of a start, after which no generator may change."""
        self._dice, self._shared = None, global_dice()

    def finish(self) -> None:
        """Refuse the steps since ``begin`` if they drew from a global random generator.

        Raises:
            AdvisedError: they did; where several threads run, only if they did so three times.
        """
        if self._shared and (now := global_dice()) != self._shared:
            name = next(name for name in now if now[name] != self._shared[name])
            self._shared, self._draws = now, self._draws + 1
            if self._draws >= (1 if threading.active_count() == 1 else 3):
                raise random_step(f"the generator of {name}, which all code shares")

    def __call__(self, env: Env) -> Hashable:
        """Return the key of the current state.

        Raises:
            AdvisedError: an attribute cannot be read in full, or a step drew a random number; the message names it.
        """
        layers = layers_of(env)
        if self._outside is None:
            kinds = [type(each) for each in layers]
            outside = Outside(Scope(kinds))
            reader = Reader()
            self._inside(layers, reader)
            outside.add([*kinds, *reader.code.values()], layers, first=True)
            self._outside = outside
        reader = Reader(self._outside.places)
        inside = self._inside(layers, reader)
        if unknown := [each for name, each in reader.code.items() if name not in self._outside.known]:
            self._outside.add(unknown, layers, first=False)
        token = self._outside.token(layers)
        self.changed = self._outside.changed
        dice = reader.dice | self._outside.dice
        if self._dice is None:
            self._dice = dice
        elif dice != self._dice:
            for name, state in dice.items():
                if self._dice.setdefault(name, state) != state:
                    raise random_step(name)
        return (inside, token) if token else inside

    def asks(self, name: str) -> bool:
        """Return whether the environment's own code uses a built-in function of this name."""
        return self._outside is not None and self._outside.asks(name)

    def _inside(self, layers: Sequence[Env], reader: Reader) -> Hashable:
        for each in layers:
            reader.seen[id(each)] = len(reader.seen)
        return tuple([self._layer(each, reader, each is layers[-1]) for each in layers])

    def _layer(self, layer: Env, reader: Reader, is_last: bool) -> Hashable:
        skip = self.skip if is_last else _WRAPPER
        reader.path = [type(layer).__name__]
        parts: list[Part] = [each for each in parts_of(layer) if each[0] not in skip]
        if is_last and "metadata" not in vars(layer):
            parts.append(("metadata", type(layer).metadata))
        read: list[Hashable] = []
        for name, each in parts:
            if is_last and name in self._drawn:
                continue
            pair: Hashable = (name, reader.read(each, name))
            read.append(self._pool.setdefault(pair, pair) if len(self._pool) < 100_000 else pair)
        reader.path = []
        return type(layer).__name__, tuple(read)


def random_step(where: str) -> AdvisedError:
    """Return the error of a step that drew a random number."""
    return AdvisedError(
        f"a step drew a random number from {where}: the environment is random; draw random numbers in reset alone, "
        f"from its seed; {IF_RANDOM}"
    )


def layers_of(env: Env) -> list[Env]:
    """Return an environment and its wrappers, from the outermost to the environment itself."""
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def keys_of(env: Env, skip: Sequence[str] = ()) -> Keys:
    """Return the keys of an environment, without attributes that are no part of its state.

    Args:
        env: the environment, whose package may be known.
        skip: counters of turns, and attributes that decide nothing but pictures.
    """
    package = package_of(env)
    return Keys(
        frozenset((*skip, *package.drawing, *package.constant)), frozenset({"_np_random"} if package.dice else ())
    )


def counters(
    env: Any,
    actions: Sequence[Any],
    seed: int | None,
    options: dict[str, Any] | None,
    mask: Callable[[Any], tuple[bool, ...] | None] = lambda _info: None,
    *,
    illegal: bool = False,
) -> tuple[str, ...]:
    """Return the integer attributes that every step raises by the same amount, whatever the action.

    Actions that ``mask`` excludes are not played, and with ``illegal`` a play ends where an action raises. Random plays
    are compared; with fewer than four steps, nothing is a counter. Some states are also drawn, so that what drawing
    keeps for later is there before the search.
    """
    changes: dict[str, set[int]] = {}
    steps, most = 0, 24 if package_of(env).key else 96
    draws = getattr(env, "render_mode", None) == "rgb_array"
    for play in range(most):
        choose = random.Random(play)
        _, info = env.reset(seed=seed, options=options)
        before = _integers(env)
        ended = False
        while not ended and steps < most:
            if draws and steps < 12:
                env.render()
            may = mask(info)
            legal = [action for place, action in enumerate(actions) if may is None or may[place]]
            if not legal:
                break
            try:
                _, _, terminated, _, info = env.step(own(choose.choice(legal)))
            except Exception:
                if not illegal:
                    raise
                break
            ended = bool(terminated)
            after = _integers(env)
            for name in before:
                changes.setdefault(name, set()).add(after.get(name, 0) - before[name])
            before, steps = after, steps + 1
    counting = sorted(name for name, each in changes.items() if len(each) == 1 and each != {0})
    return tuple(counting) if steps >= 4 else ()


def _integers(env: Any) -> dict[str, int]:
    return {name: value for name, value in vars(env.unwrapped).items() if type(value) is int}
