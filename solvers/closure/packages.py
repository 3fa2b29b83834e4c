"""Packages of environments that PIVOT knows: their state keys, and fast ways back to a state."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Package:
    """Knowledge of a package; everything else follows from the environment itself."""

    module: str
    """Module whose import registers the ids; empty if none is needed."""
    prefixes: tuple[str, ...]
    """Beginnings of its ids."""
    inside: tuple[str, ...]
    """Beginnings of the names of the modules with its environments."""
    key: Callable[[Any], Hashable] | None = None
    """State key of an environment; None: all its attributes."""
    snapshot: Callable[[Any], Any] | None = None
    restore: Callable[[Any, Any], None] | None = None
    drawing: tuple[str, ...] = ()
    """Attributes that decide nothing but pictures."""
    constant: tuple[str, ...] = ()
    """Attributes that no step changes."""
    dice: Callable[[Any], str] | None = None
    """Return the random part of an environment in which every step draws a number; empty if the draws have no
    effect."""
    masks: bool = True
    """Whether ``info["action_mask"]`` forbids actions; Taxi's only advises against actions without an effect."""
    unseen: tuple[str, ...] = ()
    """Methods that only make observations; a search whose keys do not need these skips them."""


_PLAIN = (bool, int, float, str, np.generic, type(None))
"""Types of values that nothing changes in place."""


def _toy_state(env: Any) -> Hashable:
    return int(env.unwrapped.s)


def _toy_snapshot(env: Any) -> Any:
    """Return all plain values and the state of the random generator; the tables never change."""
    level = env.unwrapped
    values = {name: value for name, value in vars(level).items() if isinstance(value, _PLAIN)}
    return values, level.np_random.bit_generator.state


def _toy_restore(env: Any, snapshot: Any) -> None:
    values, state = snapshot
    vars(env.unwrapped).update(values)
    env.unwrapped.np_random.bit_generator.state = state


def _toy_dice(env: Any) -> str:
    """Return what is random in an environment of toy text; empty if every draw has one possible result."""
    level = env.unwrapped
    several = any(sum(each[0] > 0 for each in moves) > 1 for row in level.P.values() for moves in row.values())
    return "P, its table of transitions" if several else "fickle_step" * getattr(level, "fickle_passenger", False)


def _object(each: Any) -> Hashable:
    if each is None:
        return None
    flags = (getattr(each, "is_open", None), getattr(each, "is_locked", None))
    return each.type, each.color, *flags, _object(getattr(each, "contains", None))


def _minigrid_key(env: Any) -> Hashable:
    level = env.unwrapped
    where = tuple(map(int, level.agent_pos)), int(level.agent_dir)
    return where, _object(level.carrying), tuple(map(_object, level.grid.grid))


def _minigrid_snapshot(env: Any) -> Any:
    level = env.unwrapped
    objects = [each for each in (*level.grid.grid, level.carrying) if each is not None]
    objects += [each.contains for each in objects if getattr(each, "contains", None) is not None]
    attributes = {
        name: value.copy() if isinstance(value, np.ndarray | list) else value for name, value in vars(level).items()
    }
    return attributes, level.grid, list(level.grid.grid), [(each, dict(vars(each))) for each in objects]


def _minigrid_restore(env: Any, snapshot: Any) -> None:
    attributes, grid, cells, objects = snapshot
    vars(env.unwrapped).update(
        {name: value.copy() if isinstance(value, np.ndarray | list) else value for name, value in attributes.items()}
    )
    grid.grid = list(cells)
    for each, values in objects:
        vars(each).update(values)


_MINIGRID_PICTURE = (
    *("window", "clock", "screen_size", "render_size", "highlight", "tile_size", "agent_pov", "agent_view_size"),
)
MINIGRID = Package(
    "minigrid",
    ("MiniGrid-",),
    ("minigrid.",),
    _minigrid_key,
    _minigrid_snapshot,
    _minigrid_restore,
    drawing=_MINIGRID_PICTURE,
    unseen=("gen_obs",),
)
BABYAI = Package(
    "minigrid",
    ("BabyAI-",),
    ("minigrid.envs.babyai.",),
    drawing=_MINIGRID_PICTURE,
    constant=("action_space", "observation_space", "spec", "metadata"),
)
"""BabyAI: instructions store the progress, so all attributes are the key."""
TOY_TEXT = Package(
    "",
    ("FrozenLake", "CliffWalking", "Taxi"),
    tuple(f"gymnasium.envs.toy_text.{name}" for name in ("frozen_lake", "cliffwalking", "taxi")),
    _toy_state,
    _toy_snapshot,
    _toy_restore,
    drawing=("lastaction", "window_surface", "clock", "window_size", "cell_size"),
    constant=("P", "initial_state_distrib"),
    dice=_toy_dice,
    masks=False,
)
PACKAGES = (TOY_TEXT, BABYAI, MINIGRID)
OTHER = Package("", (), ())


_WRAPPERS = ("gymnasium.wrappers.", "minigrid.wrappers")


def package_of(env: Any) -> Package:
    """Return the package of an environment; with a wrapper that is not known, nothing but its drawing is known."""
    inside = type(env.unwrapped).__module__
    package = next((each for each in PACKAGES if inside.startswith(each.inside)), OTHER)
    if package is OTHER:
        return _derived(env)
    while hasattr(env, "env"):
        if not type(env).__module__.startswith(_WRAPPERS):
            return Package("", (), (), drawing=package.drawing, dice=package.dice)
        env = env.env
    return package


def _derived(env: Any) -> Package:
    """Return the package of an environment that derives from one of toy text and has the same step method."""
    for kind in type(env.unwrapped).__mro__:
        if kind.__module__.startswith(TOY_TEXT.inside):
            same = type(env.unwrapped).step is kind.step  # pyright: ignore[reportAttributeAccessIssue]
            return Package("", (), (), drawing=TOY_TEXT.drawing, dice=_toy_dice) if same else OTHER
    return OTHER


def blind(env: Any) -> None:
    """Let an environment make no observations, which takes most of the time of a step of MiniGrid."""
    for name in package_of(env).unseen:
        setattr(env.unwrapped, name, _nothing)


def _nothing() -> dict[str, Any]:
    """Return an observation that shows nothing."""
    return {}
