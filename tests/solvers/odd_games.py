"""Locks whose digit is kept in an unusual place; :mod:`.locks` has the game."""

import collections
import contextvars
import ctypes
import enum
import functools
import io
import itertools
import os
import random
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pygame
from PIL import Image
from pivot.tests.solvers.locks import Even, Lock, Slow

STORED = [0]
COUNTER = 0


class _Box:
    """A place for a digit, as a class."""

    digit = 0


def _hold(digit: int, place: list[int] = STORED) -> None:
    place[0] = digit


class _Int(int):
    digit: int


class _List(list[int]):
    digit: int


class _Dict(dict[str, int]):
    digit: int


class _Hidden:
    __slots__ = ("__digit",)

    def __init__(self, digit: int) -> None:
        self.__digit = digit

    def read(self) -> int:
        return self.__digit


class _Lamp(enum.Enum):
    ON = 1


class _Elsewhere:
    """Descriptor that keeps values beside the objects."""

    def __init__(self) -> None:
        self.values: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __get__(self, owner: Any, kind: type) -> int:
        return self.values.get(owner, 0)

    def __set__(self, owner: Any, value: int) -> None:
        self.values[owner] = value


@dataclass
class _Data:
    digit: int = 0
    inner: dict[str, int] = field(default_factory=dict[str, int])


class _Odd:
    """A lock that hides its attributes."""

    @property
    def __dict__(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {}

    def __reduce__(self) -> Any:
        return _Odd, ()


@functools.cache
def _remembered() -> list[int]:
    return [0]


def _generate() -> Any:
    digit = 0
    while True:
        received = yield digit
        digit = digit if received is None else received


_VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("digit", default=0)
_FILE = os.path.join(tempfile.gettempdir(), f"odd-lock-{os.getpid()}")  # noqa: PTH118
ONE, OTHER = object(), object()


def _closure() -> tuple[Callable[[int], None], Callable[[], int]]:
    digit = 0

    def put(new: int) -> None:
        nonlocal digit
        digit = new

    return put, lambda: digit


def _methods(name: str, put: Any, get: Any, make: Any = None) -> type[Lock]:
    members = {"put": put, "get": get, "__module__": __name__}
    return type(name, (Lock,), members | ({"make": make} if make else {}))


def _set_global(_self: Any, digit: int) -> None:
    global COUNTER  # noqa: PLW0603 - that is the fault
    COUNTER = digit


def _write(_self: Any, digit: int) -> None:
    with open(_FILE, "w") as file:  # noqa: PTH123
        file.write(str(digit))


def _seek(self: Any, digit: int) -> None:
    self.stream.seek(digit)


def _partial(self: Any, digit: int) -> None:
    self.held = functools.partial(int, digit)


def _bound(self: Any, digit: int) -> None:
    self.held = [7] * digit
    self.count = self.held.__len__


def _pixel(self: Any, digit: int) -> None:
    self.image.putpixel((0, 0), (digit, 0, 0))


def _iterate(self: Any, digit: int) -> None:
    self.place = iter(range(digit, 9))


def _alias(self: Any, digit: int) -> None:
    lists: list[list[int]] = [[0] for _ in range(8)]
    self.lists, self.chosen = lists, lists[digit]


def _order(self: Any, digit: int) -> None:
    self.names = dict.fromkeys(list(itertools.permutations("abc"))[digit])


def _zeros(self: Any, digit: int) -> None:
    self.bits = [-0.0 if digit >> bit & 1 else 0.0 for bit in range(3)]


def _sentinels(self: Any, digit: int) -> None:
    self.bits = [ONE if digit >> bit & 1 else OTHER for bit in range(3)]


def _switch(self: Any, digit: int) -> None:
    self.thing.__class__ = _KINDS[digit]


_KINDS = [type(f"Kind{digit}", (), {"digit": digit}) for digit in range(7)]


def _named(self: Any, digit: int) -> None:
    type(self).digit = digit


def _view(self: Any, digit: int) -> None:
    self.whole = np.zeros(8, np.int64)
    self.part = self.whole[digit:]


def _code(self: Any, digit: int) -> None:
    self.ask = eval(f"lambda: {digit}")


def _dynamic(self: Any, digit: int) -> None:
    self.space = type("Space", (), {"digit": digit})


def _attributes_of(name: str) -> tuple[Any, Any]:
    def put(self: Any, digit: int) -> None:
        getattr(self, name).digit = digit

    return put, lambda self: getattr(getattr(self, name), "digit", 0)


def _made(make: Callable[[], Any]) -> Any:
    return lambda self: setattr(self, "held", make())


def _drawn(bits: Any) -> Any:
    """Store a digit as the number of random draws since a fixed seed."""

    def put(self: Any, digit: int) -> None:
        self.held = bits(7)
        for _ in range(digit):
            self.held.random()

    def get(self: Any) -> int:
        value = bits(7)
        firsts = [value.random() for _ in range(8)]
        kept = self.held.random()
        self.put(firsts.index(kept))
        return firsts.index(kept)

    return put, get


def _deque(self: Any, digit: int) -> None:
    self.held = collections.deque(maxlen=digit)


def _factory(self: Any, digit: int) -> None:
    self.held = collections.defaultdict(functools.partial(int, digit))


def _weak(self: Any, digit: int) -> None:
    self.things = [_Data(each) for each in range(7)]
    self.held = weakref.ref(self.things[digit])


def _local(self: Any, digit: int) -> None:
    self.local.digit = digit


def _structured(self: Any, digit: int) -> None:
    self.held = np.array([(digit, 0.5)], dtype=[("digit", "i8"), ("rest", "f8")])


def _objects(self: Any, digit: int) -> None:
    self.held = np.array([_Data(digit), None], dtype=object)


class _Record(np.ndarray):
    digit = 0


def _record(self: Any, digit: int) -> None:
    self.held = np.zeros(2).view(_Record)
    self.held.digit = digit


def _semaphore(self: Any, digit: int) -> None:
    self.held = threading.Semaphore(digit)


def _locks(self: Any, digit: int) -> None:
    self.held = [threading.Lock() for _ in range(3)]
    for bit in range(3):
        if digit >> bit & 1:
            self.held[bit].acquire()


def _module(self: Any, digit: int) -> None:
    sys.modules["odd_lock_memory"] = types.ModuleType("odd_lock_memory")
    sys.modules["odd_lock_memory"].digit = digit  # pyright: ignore[reportAttributeAccessIssue]


class InRegistry(Lock):
    """Keeps digits of all locks in a dict of the class, by their ids."""

    digits: dict[int, int] = {}  # noqa: RUF012 - that is the fault

    def put(self, digit: int) -> None:
        self.digits[id(self)] = digit

    def get(self) -> int:
        return self.digits[id(self)]


class InDescriptor(Lock):
    """Keeps its digit in a descriptor of the class."""

    digit = _Elsewhere()  # pyright: ignore[reportAssignmentType]


class InMetadata(Lock):
    """Keeps its digit in the metadata of the class."""

    def put(self, digit: int) -> None:
        self.metadata["digit"] = digit

    def get(self) -> int:
        return self.metadata["digit"]


def _locks_elsewhere() -> dict[str, type[Lock]]:
    attribute = _attributes_of("held")
    pairs: dict[str, tuple[Any, Any] | tuple[Any, Any, Any]] = {
        "closure": (
            lambda self, digit: self.cell[0](digit),
            lambda self: self.cell[1](),
            lambda self: setattr(self, "cell", _closure()),
        ),
        "partial": (_partial, lambda self: self.held()),
        "bound method": (_bound, lambda self: self.count()),
        "rect": (lambda self, digit: setattr(self, "held", pygame.Rect(digit, 0, 1, 1)), lambda self: self.held.x),
        "surface": (
            lambda self, digit: self.held.set_at((1, 1), (digit, 0, 0)),
            lambda self: self.held.get_at((1, 1))[0],
            _made(lambda: pygame.Surface((4, 4))),
        ),
        "mask": (
            lambda self, digit: (self.held.clear(), self.held.set_at((digit, 0))),
            lambda self: next(x for x in range(8) if self.held.get_at((x, 0))),
            _made(lambda: pygame.mask.Mask((8, 1))),
        ),
        "picture": (
            _pixel,
            lambda self: self.image.getpixel((0, 0))[0],
            lambda self: setattr(self, "image", Image.new("RGB", (2, 2))),
        ),
        "list subclass": (*attribute, _made(_List)),
        "dict subclass": (*attribute, _made(_Dict)),
        "int subclass": (*attribute, _made(_Int)),
        "ctypes": (
            lambda self, digit: setattr(self.held, "value", digit),
            lambda self: self.held.value,
            _made(ctypes.c_int),
        ),
        "ctypes pointer": (
            lambda self, digit: setattr(self.held.contents, "value", digit),
            lambda self: self.held.contents.value,
            _made(lambda: ctypes.pointer(ctypes.c_int(0))),
        ),
        "stream": (
            _seek,
            lambda self: self.stream.tell(),
            lambda self: setattr(self, "stream", io.BytesIO(b"01234567")),
        ),
        "cache": (lambda _self, digit: _remembered().__setitem__(0, digit), lambda _self: _remembered()[0]),
        "space": _attributes_of("action_space"),
        "generator of numpy": _drawn(np.random.default_rng),
        "generator of Python": _drawn(random.Random),
        "random state": _drawn(np.random.RandomState),
        "class attribute": (_named, lambda self: type(self).digit),
        "class of a module": (lambda _self, digit: setattr(_Box, "digit", digit), lambda _self: _Box.digit),
        "global": (_set_global, lambda _self: COUNTER),
        "default of a function": (lambda _self, digit: _hold(digit), lambda _self: _hold.__defaults__[0][0]),  # pyright: ignore
        "attribute of a function": (
            lambda _self, digit: setattr(_hold, "digit", digit),
            lambda _self: getattr(_hold, "digit", 0),
        ),
        "file": (_write, lambda _self: int(open(_FILE).read())),  # noqa: PTH123, SIM115
        "environment variable": (
            lambda _self, digit: os.environ.__setitem__("ODD_LOCK", str(digit)),
            lambda _self: int(os.environ["ODD_LOCK"]),
        ),
        "module of its own": (_module, lambda _self: sys.modules["odd_lock_memory"].digit),
        "module of others": (
            lambda _self, digit: setattr(gymnasium, "odd_digit", digit),
            lambda _self: gymnasium.odd_digit,  # pyright: ignore
        ),  # pyright: ignore
        "name-mangled slot": (lambda self, digit: setattr(self, "held", _Hidden(digit)), lambda self: self.held.read()),
        "enum member": (
            lambda _self, digit: setattr(_Lamp.ON, "digit", digit),
            lambda _self: getattr(_Lamp.ON, "digit", 0),
        ),
        "generator": (
            lambda self, digit: self.held.send(digit),
            lambda self: next(self.held),
            lambda self: (setattr(self, "held", _generate()), next(self.held)),
        ),
        "iterator": (_iterate, lambda self: 9 - self.place.__length_hint__()),
        "count": (
            lambda self, digit: setattr(self, "held", itertools.count(digit)),
            lambda self: int(repr(self.held)[6:-1]),
        ),
        "weak reference": (_weak, lambda self: self.held().digit),
        "structured array": (_structured, lambda self: int(self.held["digit"][0])),
        "array of objects": (_objects, lambda self: self.held[0].digit),
        "array subclass": (_record, lambda self: self.held.digit),
        "view": (_view, lambda self: 8 - len(self.part)),
        "data class": (
            lambda self, digit: setattr(self, "held", _Data(0, {"digit": digit})),
            lambda self: self.held.inner["digit"],
        ),
        "length of a deque": (_deque, lambda self: self.held.maxlen),
        "factory": (_factory, lambda self: self.held.default_factory()),
        "proxy": (
            lambda self, digit: setattr(self, "held", types.MappingProxyType({"digit": digit})),
            lambda self: self.held["digit"],
        ),
        "order of an OrderedDict": (
            lambda self, digit: (
                setattr(self, "held", collections.OrderedDict.fromkeys("012345")),
                self.held.move_to_end(str(digit), last=False),
            ),
            lambda self: int(next(iter(self.held))),
        ),
        "order of a dict": (_order, lambda self: list(itertools.permutations("abc")).index(tuple(self.names))),
        "sign of zero": (_zeros, lambda self: sum((str(each)[0] == "-") << bit for bit, each in enumerate(self.bits))),
        "sentinels": (_sentinels, lambda self: sum((each is ONE) << bit for bit, each in enumerate(self.bits))),
        "alias": (_alias, lambda self: next(place for place, each in enumerate(self.lists) if each is self.chosen)),
        "class of an object": (
            _switch,
            lambda self: self.thing.digit,
            lambda self: setattr(self, "thing", _KINDS[0]()),
        ),
        "class as a value": (_dynamic, lambda self: self.space.digit),
        "code": (_code, lambda self: self.ask()),
        "semaphore": (_semaphore, lambda self: self.held._value),
        "locks": (_locks, lambda self: sum(each.locked() << bit for bit, each in enumerate(self.held))),
        "thread": (
            _local,
            lambda self: getattr(self.local, "digit", 0),
            lambda self: setattr(self, "local", threading.local()),
        ),
        "context variable": (lambda _self, digit: _VARIABLE.set(digit), lambda _self: _VARIABLE.get()),
        "object that hides": (*_attributes_of("held"), _made(_Odd)),
        "simple namespace": (*_attributes_of("held"), _made(types.SimpleNamespace)),
        "type of a number": (
            lambda self, digit: setattr(
                self, "held", [1, 1.0, True, np.int8(1), np.float32(1), Fraction(1), Decimal(1)][digit]
            ),
            lambda self: [int, float, bool, np.int8, np.float32, Fraction, Decimal].index(type(self.held)),
        ),
    }
    return {name: _methods(name, *each) for name, each in pairs.items()}


NASTY: dict[str, Callable[[], Any]] = {
    **_locks_elsewhere(),
    **{kind.__name__: kind for kind in (InRegistry, InDescriptor, InMetadata, Slow, Even)},
}
"""Games that are deterministic, with their state in odd places."""
