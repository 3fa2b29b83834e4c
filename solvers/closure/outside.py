"""State outside of an environment's object: what its classes and functions hold, environment variables, files.

Copies and snapshots do not bring it back. It is read once, then compared after every step; what differs from the first
reading is part of the key.
"""

import builtins
import dis
import os
import random
import sys
import threading
import types
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from operator import is_
from typing import Any

import numpy as np

from .advice import AdvisedError
from .parts import PLAIN, Part, namespace, parts_of
from .values import REMEDY, Reader

_EXACT = frozenset({"pivot", "gymnasium", "minigrid"})
"""Packages of which only the modules of the environment itself are read."""
_INSTALLED = ("site-packages", "dist-packages")
_INDIRECT = frozenset({"globals", "modules", "eval", "exec", "__globals__", "import_module", "__import__"})
"""Names in code that reach variables of a module by names that the code does not contain."""
_BY_NAME = _INDIRECT | {"getattr", "setattr", "vars", "__dict__"}
"""Those names, and names that reach attributes of a module object."""
_VARIABLES = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "STORE_NAME", "DELETE_NAME"})
"""Instructions whose names are variables; the other names are attributes."""
_MISSING = object()


class Scope:
    """Modules that are the environment's own: not the standard library or another package."""

    def __init__(self, kinds: Iterable[type]) -> None:
        """Collect the modules of the classes of an environment and its wrappers, and of their base classes."""
        self.modules = {kind.__module__ for kind in kinds}
        self.parents = {each for kind in kinds for each in kind.__mro__ if not _is_standard(each.__module__)}
        self.packages = {name.partition(".")[0] for name in self.modules} - _EXACT
        self._known: dict[str, bool] = {}

    def has(self, module: str) -> bool:
        """Return whether a module is the environment's own."""
        if module not in self._known:
            self._known[module] = self._has(module)
        return self._known[module]

    def _has(self, module: str) -> bool:
        package = module.partition(".")[0]
        if module in self.modules or package in self.packages:
            return True
        if _is_standard(module) or package in _EXACT:
            return module == "__main__"
        file = getattr(sys.modules.get(module), "__file__", None) or ""
        return not any(each in file for each in _INSTALLED)


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


@dataclass
class _Root:
    """A class or a function, with its contents at the first reading."""

    value: Any
    names: tuple[tuple[Mapping[str, Any], str], ...]
    """Global variables that a function reads."""
    baseline: Hashable = None
    shape: list[Any] = field(default_factory=list[Any])
    nodes: list[tuple[Any, list[Any]]] = field(default_factory=list[tuple[Any, list[Any]]])
    functions: list[tuple[Any, Any, Any]] = field(default_factory=list[tuple[Any, Any, Any]])
    dice: dict[str, Hashable] = field(default_factory=dict[str, Hashable])
    listed: list[str] = field(default_factory=list[str])
    size: int = 0

    @property
    def title(self) -> str:
        """Name of the root, for a message."""
        return f"{self.value.__module__}.{self.value.__qualname__}"

    def parts(self) -> list[Part]:
        """Return the current contents of the root."""
        if isinstance(self.value, type):
            return namespace(self.value)
        return [(name, space.get(name, _MISSING)) for space, name in self.names]

    def _now(self) -> list[Any]:
        if isinstance(self.value, type):
            space = vars(self.value)
            return [space.get(name, _MISSING) for name in self.listed] if len(space) == self.size else []
        return [space.get(name, _MISSING) for space, name in self.names]

    def read(self, reader: Reader, *, first: bool = False) -> Hashable:
        """Read the whole contents of the root."""
        reader.watched, reader.path = [], [self.title]
        parts = self.parts()
        reading = tuple([(name, reader.read(each, name)) for name, each in parts])
        reader.path = []
        if first:
            self.baseline, self.shape = reading, [each for _, each in parts]
            if isinstance(self.value, type):
                self.listed, self.size = [name for name, _ in parts], len(vars(self.value))
            for value, children in reader.watched:
                if isinstance(value, types.FunctionType) and not value.__closure__ and not value.__dict__:
                    self.functions.append((value, value.__code__, value.__defaults__))
                self.nodes.append((value, children))
            simple = {
                id(value)
                for value, *_ in self.functions
                if all(type(each) in PLAIN for each in value.__defaults__ or ())
            }
            self.functions = [each for each in self.functions if id(each[0]) in simple]
            self.nodes = [each for each in self.nodes if id(each[0]) not in simple]
        return reading

    def is_changed(self) -> bool:
        """Return whether the contents of the root may differ from the first reading."""
        if not _same(self._now(), self.shape):
            return True
        if any(
            each.__code__ is not code or each.__defaults__ is not defaults or each.__dict__
            for each, code, defaults in self.functions
        ):
            return True
        return any(not _same([each for _, each in parts_of(value)], children) for value, children in self.nodes)


def _variables() -> Any:
    """Return the environment variables, in the system's own form if that is faster."""
    return getattr(os.environ, "_data", os.environ)


def _same(now: list[Any], before: list[Any]) -> bool:
    """Whether two lists hold the same objects, or equal plain ones."""
    if len(now) != len(before):
        return False
    return all(map(is_, now, before)) or all(map(_equal, now, before))


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    return one == other if kind in PLAIN else kind is tuple and _same([*one], [*other])


class Outside:
    """State that the code of an environment keeps outside of the environment object."""

    def __init__(self, scope: Scope) -> None:
        """Begin with nothing."""
        self.scope = scope
        self.roots: list[_Root] = []
        self.known: dict[int, Any] = {}
        self.places: dict[int, str] = {}
        """Places where outside objects were first found, by ``id``."""
        self._kept: list[Any] = []
        self._variables = dict(_variables())
        self.dice: dict[str, Hashable] = {}
        self.changed = ""
        """Name of something that differed at the last reading."""

    def _reader(self, layers: Iterable[Any]) -> Reader:
        """Return a reader that treats the environment itself as a reference."""
        reader = Reader()
        reader.seen = {id(each): number for number, each in enumerate(layers)}
        return reader

    def add(self, code: Iterable[Any], layers: Sequence[Any], *, first: bool) -> None:
        """Read classes, functions, and all code that they refer to, in their current state.

        Args:
            code: classes and functions; anything else is left out.
            layers: the environment and its wrappers.
            first: whether references to what is found shall be read as references from now on.
        """
        waiting = list(code)
        while waiting:
            value = waiting.pop()
            if id(value) in self.known:
                continue
            self.known[id(value)] = value
            own = isinstance(value, type | types.FunctionType) and self.scope.has(value.__module__ or "")
            if not own and value not in self.scope.parents:
                if isinstance(value, type) and type(value) is not type:
                    waiting.append(type(value))
                continue
            root = _Root(value, () if isinstance(value, type) else tuple(self._globals(value)))
            reader = self._reader(layers)
            root.read(reader, first=True)
            root.dice = reader.dice
            self.roots.append(root)
            waiting += [*reader.code.values(), *(value.__mro__ if isinstance(value, type) else ())]
            if first:
                self._kept += reader.kept
                for name, place in reader.places.items():
                    self.places.setdefault(name, place)

    def _globals(self, function: types.FunctionType) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Yield the places of the global variables that a function may read, by the names in its code."""
        space, names = function.__globals__, _names_of(function.__code__)
        if "cache_info" in names:
            raise AdvisedError(
                f"key: {function.__module__}.{function.__qualname__} asks how often a cache was used, which is state "
                f"that no key shows; expected caches that decide nothing; {REMEDY}"
            )
        everything = not _INDIRECT.isdisjoint(names)
        variables = _names_of(function.__code__, variables=True)
        for name in names:
            if name in variables and name in space:
                yield space, name
            elif name not in space and vars(builtins).get(name, _MISSING) is not _MISSING and name not in _BUILTINS:
                yield vars(builtins), name
            module = space.get(name) if name in space else sys.modules.get(name)
            if isinstance(module, types.ModuleType) and self.scope.has(module.__name__):
                inside = vars(module)
                listed = inside if not _BY_NAME.isdisjoint(names) else names
                yield from ((inside, each) for each in listed if each in inside and not each.startswith("__"))
            elif isinstance(module, types.ModuleType):
                yield from ((vars(module), each) for each in names if _is_data(vars(module).get(each, _MISSING)))
        if everything:
            yield from ((space, name) for name in space if not name.startswith("__"))

    def asks(self, name: str) -> bool:
        """Return whether a function of the environment's own code uses a built-in function of this name."""
        functions = (root.value for root in self.roots if isinstance(root.value, types.FunctionType))
        return any(
            name in _names_of(each.__code__, variables=True) and name not in each.__globals__ for each in functions
        )

    def token(self, layers: Sequence[Any]) -> Hashable:
        """Return what differs from the first reading; an empty tuple if nothing does."""
        self.changed, self.dice = "", {}
        changes: list[Hashable] = []
        for root in self.roots:
            if root.is_changed():
                reader = self._reader(layers)
                reading = root.read(reader)
                self.dice.update(reader.dice)
                if reading != root.baseline:
                    changes.append((root.title, reading))
                    self.changed = self.changed or _first_difference(root, reading)
            else:
                self.dice.update(root.dice)
        if (variables := _variables()) != self._variables:
            changes.append(("os.environ", tuple(sorted(variables.items()))))
            self.changed = "an environment variable"
        return tuple(changes)


def _first_difference(root: _Root, reading: Any) -> str:
    before: Any = dict(root.baseline) if isinstance(root.baseline, tuple) else {}
    name = next((name for name, each in reading if before.get(name, _MISSING) != each), "")
    return f"{root.title}.{name}" if isinstance(root.value, type) else f"the global variable {name} of {root.title}"


@lru_cache(maxsize=4096)
def _names_of(code: types.CodeType, *, variables: bool = False) -> tuple[str, ...]:
    """Return the sorted names that code and its inner functions use, or the names of variables alone."""
    inner = [_names_of(each, variables=variables) for each in code.co_consts if isinstance(each, types.CodeType)]
    own = (
        {each.argval for each in dis.get_instructions(code) if each.opname in _VARIABLES}
        if variables
        else code.co_names
    )
    return tuple(sorted({*own}.union(*inner)))


def _is_data(value: Any) -> bool:
    """Whether something in a module of others may be a place for state: a plain value or container, or nothing yet."""
    return value is _MISSING or type(value) in (*PLAIN, bool, float, list, dict, set)


_BUILTINS = frozenset(vars(builtins))


def global_dice() -> dict[str, Hashable]:
    """Return the states of the generators that all code shares."""
    state = np.random.get_state(legacy=False)
    numbers = state["state"]  # pyright: ignore[reportCallIssue, reportArgumentType]
    return {"random": random.getstate(), "numpy.random": (numbers["key"].tobytes(), numbers["pos"])}


# ---- files, processes and connections


_TOUCHES = frozenset(
    {
        *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chdir"),
        *("os.putenv", "os.unsetenv", "os.system", "os.posix_spawn", "os.exec", "os.fork", "subprocess.Popen"),
        *("socket.connect", "socket.bind", "sqlite3.connect", "mmap.__new__", "shutil.move", "os.utime", "os.chmod"),
    }
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_watching: dict[int, list[str]] = {}
_installed: list[bool] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or (events := _watching.get(threading.get_ident())) is None:
        return
    if event in _TOUCHES:
        events.append(f"{event}({arguments[0] if arguments else ''!r})")
    elif event == "open" and len(arguments) > 2:
        path, mode, flags = arguments[:3]
        writes = bool(set(str(mode or "")) & set("wax+")) or (isinstance(flags, int) and bool(flags & _WRITES))
        if writes and "__pycache__" not in str(path) and str(path) != os.devnull:
            events.append(f"open({str(path)!r})")


@contextmanager
def touches() -> Iterator[list[str]]:
    """Collect what the code within writes, starts or connects to, by the audit events of Python."""
    if not _installed:
        sys.addaudithook(_hook)
        _installed.append(True)
    mine, events = threading.get_ident(), list[str]()
    before, _watching[mine] = _watching.get(mine), events
    try:
        yield events
    finally:
        if before is None:
            del _watching[mine]
        else:
            _watching[mine] = before
