"""Near matches for misspelt keywords and names."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def near_match(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean 'workers'?`` for a name that is close to one of ``names``, else nothing."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Let a misspelt keyword of a public function raise a TypeError that names the nearest one."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in names:
                raise TypeError(
                    f"{function.__name__}() has no parameter {name!r}{near_match(name, names)} "
                    f"(parameters: {', '.join(names)})"
                )
        return function(*arguments, **keywords)

    return call
