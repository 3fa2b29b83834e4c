"""Actions of an environment: their names, their values in the action space, and the mask of allowed ones."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import product
from typing import Any, cast

import gymnasium
import numpy as np

from ...core.errors import CertifyError
from .advice import AdvisedError, plain, short

MAX_ACTIONS = 64
MASK = "action_mask"


@cache
def _names_of_toy_text(kind: str) -> tuple[str, ...]:
    return {
        "FrozenLakeEnv": ("left", "down", "right", "up"),
        "CliffWalkingEnv": ("up", "right", "down", "left"),
        "TaxiEnv": ("south", "north", "east", "west", "pickup", "dropoff"),
    }.get(kind, ())


def _ranges(space: Any) -> list[range] | None:
    """Return the range of numbers of each part of a space, with the first number; None for spaces without numbers."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return [range(int(space.start), int(space.start + space.n))]
    if isinstance(space, gymnasium.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return [range(int(start), int(start + count)) for start, count in zip(space.start, space.nvec, strict=True)]
    if isinstance(space, gymnasium.spaces.MultiBinary) and len(space.shape) == 1:
        return [range(2)] * space.shape[0]
    parts: Sequence[Any] = space.spaces if isinstance(space, gymnasium.spaces.Tuple) else ()
    if parts and all(isinstance(part, gymnasium.spaces.Discrete) for part in parts):
        return [cast(list[range], _ranges(part))[0] for part in parts]
    return None


def folded(name: str) -> str:
    """Return the name of an action as replies are read: without capitals, and with underscores for spaces."""
    return "_".join(name.casefold().split())


def named_actions(env: Any, declared: Mapping[str, int | list[int]] | None = None) -> dict[str, int | list[int]]:
    """Return the actions of an environment by name, in the order of their numbers.

    Raises:
        CertifyError: the action space is neither discrete nor a small tuple of discrete ones, or the names do not fit.
    """
    space, ranges = env.action_space, _ranges(env.action_space)
    if ranges is None:
        raise AdvisedError(
            f"actions: found the action space {space}, expected a discrete or binary one, or a tuple of discrete ones, "
            f"with at most {MAX_ACTIONS} members; wrap the environment in one with a list of actions"
        )
    single = isinstance(space, gymnasium.spaces.Discrete)
    if declared:
        for name, value in declared.items():
            parts = value if isinstance(value, list) else [value]
            fits = isinstance(value, list) != single and len(parts) == len(ranges)
            if not fits or any(part not in each for part, each in zip(parts, ranges, strict=True)):
                raise AdvisedError(f"actions: found {value!r} for {name!r}, expected one of {space}")
        if len({"", *map(folded, declared)}) <= len(declared):
            raise AdvisedError(f"actions: found {', '.join(declared)}, expected names that differ in more than case")
        return dict(declared)
    count = int(np.prod([len(each) for each in ranges], dtype=object))
    if count > MAX_ACTIONS:
        raise AdvisedError(f"actions: found {count}, expected at most {MAX_ACTIONS}; name those to use in gym.actions")
    values: list[Any] = list(ranges[0]) if single else [list(each) for each in product(*ranges)]
    kinds: Any = getattr(env.unwrapped, "actions", None)
    names: Sequence[str] = _names_of_toy_text(type(env.unwrapped).__name__)
    if isinstance(kinds, type) and hasattr(kinds, "__members__"):
        names = list(cast(Any, kinds).__members__)
    if len(names) != len(values):
        names = [f"action_{'_'.join(map(str, each if isinstance(each, list) else [each]))}" for each in values]
    return dict(zip((name.lower() for name in names), values, strict=True))


def members(env: Any, declared: Any = None) -> dict[str, Any]:
    """Return the actions of an environment as members of its space, by name.

    Args:
        env: the environment.
        declared: actions by name, or a list of them, whose text is the name; None for all of a discrete space.

    Raises:
        CertifyError: there are none, two have one name, or the action space is neither discrete nor a small tuple of
            discrete ones.
    """
    if declared is not None and not len(declared):
        raise CertifyError("actions: found none, expected at least one")
    listed: list[Any] = [] if declared is None or hasattr(declared, "keys") else list(declared)
    named: dict[str, Any] = {str(plain(each)): each for each in listed} or dict(declared or named_actions(env))
    if listed and len(named) != len(listed):
        raise CertifyError(f"actions: found equal names in {short(listed)}, expected different ones")
    return {name: member(env.action_space, each) for name, each in named.items()}


def member(space: Any, value: Any) -> Any:
    """Convert a number or a list of numbers to the type that ``space.sample()`` returns; keep other values."""
    if isinstance(space, gymnasium.spaces.Discrete) and type(value) is int:
        return space.dtype.type(value)
    arrays = gymnasium.spaces.MultiDiscrete | gymnasium.spaces.MultiBinary
    if isinstance(space, arrays) and isinstance(value, list | tuple):
        return np.array(value, space.dtype)
    if (
        isinstance(space, gymnasium.spaces.Tuple)
        and isinstance(value, list | tuple)
        and len(value) == len(space.spaces)
    ):  # pyright: ignore[reportUnknownArgumentType]
        return tuple(member(part, each) for part, each in zip(space.spaces, value, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value


def own(action: Any) -> Any:
    """Return an action that its environment may change."""
    return action if isinstance(action, int | str | np.generic) else deepcopy(action)


def allowed(space: Any, actions: Sequence[Any], info: Any) -> tuple[bool, ...] | None:
    """Return for each action whether ``info["action_mask"]`` allows it; None without a mask.

    Raises:
        CertifyError: the mask does not fit the action space.
    """
    mask = info.get(MASK) if isinstance(info, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if mask is None:
        return None
    ranges = _ranges(space)
    if ranges is None:
        raise AdvisedError(f"info[{MASK!r}]: found one for the action space {space}, expected a discrete one")
    sizes = tuple(len(each) for each in ranges)
    try:
        if isinstance(mask, tuple | list) and len(sizes) > 1:
            parts = [np.asarray(each) for each in mask]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        else:
            parts = [np.asarray(mask)]
    except ValueError:
        parts = []
    shapes = tuple(part.shape for part in parts)
    joint = shapes == (sizes,)
    if not (joint or shapes == tuple((size,) for size in sizes)) or not all(
        np.isin(part, (0, 1)).all() for part in parts
    ):
        raise AdvisedError(
            f"info[{MASK!r}]: found {short(mask)}, expected 0 or 1 for each of the numbers of {space}: an array, or a "
            "tuple of arrays for several numbers"
        )
    places = [
        tuple(number - each.start for number, each in zip(np.atleast_1d(plain(action)).tolist(), ranges, strict=True))
        for action in actions
    ]
    if joint:
        return tuple(bool(parts[0][place]) for place in places)
    return tuple(all(part[each] for part, each in zip(parts, place, strict=True)) for place in places)


__all__ = ["MASK", "allowed", "folded", "members", "named_actions", "own"]
