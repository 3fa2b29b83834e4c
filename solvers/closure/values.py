"""Python objects as hashable data, read in full: everything that affects behaviour is included, or reading is refused.

Each object is taken apart into its parts: attributes and slots, contents of containers, cells, defaults and attributes
of functions, states of generators of random numbers, and for types of extension modules what pickling them would keep.
What classes and functions of an environment's own modules hold outside of the environment is in ``outside.py``.
"""

import types
from collections.abc import Hashable
from typing import Any

import numpy as np

from .advice import AdvisedError
from .parts import DICE, PLAIN, Part, UnreadableError, float_key, is_named, is_value, named_code, namespace, parts_of

MAX_DEPTH = 60
"""Maximum depth of objects within objects."""
REMEDY = (
    "set gym.key=observation if the observation shows the full state, name attributes that only draw in gym.drawing, "
    "or remove the attribute"
)
_SINGLE = frozenset({bool, float, complex, type(...), type(NotImplemented)})
_CODE = (
    *(types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType),
)


def _single(value: Any) -> Hashable:
    if isinstance(value, float):
        return "<float>", float_key(value)
    if isinstance(value, complex):
        return "<complex>", float_key(value.real), float_key(value.imag)
    return ("<bool>", value) if isinstance(value, bool) else ("<single>", repr(value))


class Reader:
    """Reads a value once: an object that occurs again becomes a reference, so that sharing is part of the state."""

    def __init__(self, outside: "dict[int, str] | None" = None) -> None:
        """Begin a reading; ``outside`` names objects that are read as references, by their ``id``."""
        self.outside = outside or {}
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []
        """Objects in ``seen``, kept alive so that no other object gets their ``id``."""
        self.path: list[Any] = []
        self.code: dict[int, Any] = {}
        """Classes, modules and functions that were found, by their ``id``."""
        self.dice: dict[str, Hashable] = {}
        """States of the random generators, by where they were found."""
        self.watched: list[tuple[Any, list[Any]]] | None = None
        """Objects with their parts; None to record none."""
        self.places: dict[int, str] = {}
        """Places of the watched objects, by ``id``."""

    def where(self) -> str:
        """Return the path to the object that is being read, for a message."""
        return "".join(f".{each}" if isinstance(each, str) else f"[{each}]" for each in self.path).removeprefix(".")

    def read(self, value: Any, name: Any = None) -> Hashable:
        """Return a value as hashable data.

        Raises:
            AdvisedError: it cannot be read in full; the message names it.
        """
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is np.int64:
            return int(value)
        if kind in (np.float64, np.bool_):
            value, kind = value.item(), type(value.item())
        if kind in _SINGLE:
            return _single(value)
        if isinstance(value, np.generic) and not kind.__dictoffset__ and not value.dtype.hasobject:
            return f"<{kind.__name__}>", value.dtype.str, value.tobytes()
        if isinstance(value, np.dtype):
            return "<dtype>", repr(value.descr) if value.names else value.str
        if len(self.path) > MAX_DEPTH:
            raise AdvisedError(f"key: {self.where()} is nested more than {MAX_DEPTH} deep; {REMEDY}")
        self.path.append(name)
        try:
            return self._object(value, kind)
        finally:
            self.path.pop()

    def _object(self, value: Any, kind: type) -> Hashable:  # noqa: C901 - one step for each kind of object
        if kind is tuple:
            return "<tuple>", tuple([self.read(each, place) for place, each in enumerate(value)])
        if reference := self._reference(value):
            return reference
        if not is_value(kind):
            self.seen[id(value)] = len(self.seen)
            if self.watched is not None:
                self.places[id(value)] = self.where()
        self.kept.append(value)
        if isinstance(value, type | types.ModuleType | types.FunctionType):
            self.code[id(value)] = value
        if isinstance(value, type | types.ModuleType):
            if isinstance(value, type) and not is_named(value):
                return self._composed(
                    value, kind, [("", value.__qualname__), ("bases", value.__bases__), *namespace(value)]
                )
            return "<code>", _code_of(value)
        try:
            parts = parts_of(value)
        except UnreadableError as error:
            raise AdvisedError(
                f"key: found {self.where()} of type {kind.__module__}.{kind.__qualname__}, which cannot be read in "
                f"full ({error}), expected plain data or objects of them; {REMEDY}"
            ) from error
        self.code[id(kind)] = kind
        if self.watched is not None:
            self.watched.append((value, [each for _, each in parts]))
        if isinstance(value, DICE):
            self.dice[self.where()] = Reader().read([each for _, each in parts])
            return "<generator>", kind.__name__
        if not is_named(kind):
            parts = [*parts, ("class", kind)]
        if isinstance(value, np.ndarray):
            parts = [*parts, *self._memory(value)]
        return self._composed(value, kind, parts)

    def _reference(self, value: Any) -> Hashable:
        """Return the name of an object that is code or occurred before; None for a new one."""
        if (place := self.outside.get(id(value))) is not None:
            return "<outside>", place
        if (number := self.seen.get(id(value))) is not None:
            return "<same>", number
        if isinstance(value, _CODE) and not self._is_bound(value):
            return "<code>", _code_of(value)
        return None

    def _memory(self, array: Any) -> list[Part]:
        """Return the earlier array that shares memory with an array."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if root is array:
            return []
        number: Any = self.outside.get(id(root), self.seen.get(id(root)))
        if number is None:
            self.seen[id(root)] = self.seen[id(array)]
            self.kept.append(root)
            return []
        return [("view", (number, array.ctypes.data - root.ctypes.data, array.strides))]

    def _composed(self, value: Any, kind: type, parts: list[Part]) -> Hashable:
        label = f"<{kind.__name__}>"
        if kind is list and {type(each) for _, each in parts} <= PLAIN:
            return label, tuple([each for _, each in parts])
        if isinstance(value, set | frozenset):
            members = frozenset(
                self.read(each) for each in self._in_order([each for name, each in parts if name is None])
            )
            return label, members, tuple((name, self.read(each, name)) for name, each in parts if name is not None)
        if isinstance(value, types.FunctionType):
            label = "<function>"
        return label, tuple(
            [
                self.read(each, place) if name is None else (name, self.read(each, name))
                for place, (name, each) in enumerate(parts)
            ]
        )

    def _in_order(self, members: list[Any]) -> list[Any]:
        """Sort the members of a set, so that references are numbered independently of its order."""
        if len(members) < 2 or {type(each) for each in members} <= PLAIN:
            return members
        return [members[place] for _, place in sorted((self._alone(each), place) for place, each in enumerate(members))]

    def _alone(self, value: Any) -> str:
        """Return a text for a member of a set, read as if it were the first object."""
        reader = Reader(self.outside)
        reader.seen, reader.path = dict(self.seen), list(self.path)
        return repr(reader.read(value))

    @staticmethod
    def _is_bound(value: Any) -> bool:
        owner = getattr(value, "__self__", None)
        return owner is not None and not isinstance(owner, types.ModuleType | type)


def key_of(value: Any) -> Hashable:
    """Return a value in full as a key, random generators included; of a value that cannot be read, a key of its own."""
    reader = Reader()
    try:
        return reader.read(value), *reader.dice.items()
    except AdvisedError:
        return object()


def _code_of(value: Any) -> str:
    """Return the name of code."""
    if isinstance(value, types.CodeType):
        return named_code(value)
    module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", "")
    return f"{module}.{getattr(value, '__qualname__', None) or getattr(value, '__name__', type(value).__name__)}"
