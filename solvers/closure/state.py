"""The state of any Python environment as one hashable value, and the counters of turns in it."""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from types import FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from .worlds import advised, own

MAX_DEPTH = 40
"""Maximum depth of objects within objects."""
_OTHER_KEY = (
    "pass key=, a function from the environment to a hashable state",
    "set gym.key=observation if the observation shows the full state, or remove the attribute",
)
_PLAIN = (str, bytes, bool, int, float, complex, type(None))
_UNREAD = (
    *(type, ModuleType, FunctionType, MethodType, gymnasium.Space, EnvSpec),
    *(np.random.Generator, np.random.RandomState, random.Random),
)
"""Types of values that are no part of a state: code, spaces, and sources of randomness, which replays detect."""
_PICTURES = frozenset({"pygame", "matplotlib", "mpl_toolkits", "PIL", "cv2", "pyglet", "tkinter"})
"""Packages whose objects only draw."""
_WRAPPER = frozenset(
    {
        *("env", "_saved_kwargs", "_cached_spec", "metadata", "_metadata", "spec"),
        *("checked_reset", "checked_step", "checked_render"),
    }
)
"""Attributes of wrappers that are no part of a state."""
_CONSTANT = frozenset({"spec", "metadata", "_ezpickle_args", "_ezpickle_kwargs"})
"""Attributes of environments that are no part of a state."""


def state_of(env: Any, skip: frozenset[str] = frozenset()) -> Hashable:
    """Return all attributes of an environment and of its wrappers, however deep, as one hashable value.

    Args:
        env: a gymnasium environment.
        skip: attributes of the environment to leave out, such as counters of turns.

    Raises:
        CertifyError: an attribute is an object that cannot be read; the message names it.
    """
    layers: list[Hashable] = []
    seen: dict[int, int] = {id(env.unwrapped): 0}
    while isinstance(env, gymnasium.Wrapper):
        layers.append(_attributes(env, _WRAPPER, seen, type(env).__name__, 0))  # pyright: ignore[reportUnknownArgumentType]
        env = env.env  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return (*layers, _attributes(env, skip | _CONSTANT, seen, type(env).__name__, 0))  # pyright: ignore[reportUnknownArgumentType]


def _attributes(value: Any, skip: frozenset[str], seen: dict[int, int], path: str, depth: int) -> Hashable:
    names = [*getattr(value, "__dict__", ())]
    for kind in type(value).__mro__:
        slots: Any = vars(kind).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return tuple(
        (name, _frozen(getattr(value, name), seen, f"{path}.{name}", depth + 1))
        for name in dict.fromkeys(names)
        if name not in skip and name not in ("__dict__", "__weakref__") and hasattr(value, name)
    )


def _frozen(value: Any, seen: dict[int, int], path: str, depth: int) -> Hashable:
    if isinstance(value, (*_PLAIN, *_UNREAD, Enum, np.generic)) or type(value).__module__.split(".")[0] in _PICTURES:
        return _single(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.shape, value.dtype.str, value.tobytes()
    if depth > MAX_DEPTH:
        raise advised(f"key: {path} is nested more than {MAX_DEPTH} deep", *_OTHER_KEY)
    if id(value) in seen:
        return "same", seen[id(value)]
    seen[id(value)] = len(seen)
    return _composed(value, seen, path, depth)


def _single(value: Any) -> Hashable:
    if isinstance(value, Enum):
        return type(value).__name__, value.name
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bool):
        return "bool", value
    return value if isinstance(value, _PLAIN) else None


def _composed(value: Any, seen: dict[int, int], path: str, depth: int) -> Hashable:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return tuple(
            (_frozen(name, seen, path, depth + 1), _frozen(each, seen, f"{path}[{name!r}]", depth + 1))
            for name, each in value.items()
        )
    if isinstance(value, set | frozenset):
        return frozenset(_frozen(each, seen, path, depth + 1) for each in value)
    if isinstance(value, Sequence):
        return tuple(_frozen(each, seen, f"{path}[{place}]", depth + 1) for place, each in enumerate(value))
    if not hasattr(value, "__dict__") and not hasattr(type(value), "__slots__"):
        raise advised(
            f"key: found {path} of type {type(value).__module__}.{type(value).__name__}, which cannot be read, "
            "expected attributes of plain data",
            *_OTHER_KEY,
        )
    return type(value).__name__, _attributes(value, frozenset(), seen, path, depth)


def difference(one: Hashable, other: Hashable, path: str = "") -> str:
    """Return the first place where two keys differ, and both values there, shortened; empty for equal keys."""
    if one == other:
        return ""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):  # pyright: ignore[reportUnknownArgumentType]
        pairs = list(zip(one, other, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if len(pairs) == 2 and isinstance(one[0], str) and one[0] == other[0]:
            return difference(one[1], other[1], f"{path}.{one[0]}")
        for place, (left, right) in enumerate(pairs):
            named = isinstance(left, tuple) and len(left) == 2 and isinstance(left[0], str)  # pyright: ignore[reportUnknownArgumentType]
            if left != right:
                return difference(left, right, path if named else f"{path}[{place}]")
    left, right = (text if len(text := repr(each)) < 60 else f"{text[:60]}…" for each in (one, other))
    return f"{path.removeprefix('.') or 'the key'}: {left} and {right}"


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
    are compared until they have 24 steps; with fewer than four, nothing is a counter.
    """
    changes: dict[str, set[int]] = {}
    steps = 0
    for play in range(24):
        choose = random.Random(play)
        _, info = env.reset(seed=seed, options=options)
        before = _integers(env)
        ended = False
        while not ended and steps < 24:
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
