"""Parts of an object by its type: everything that affects its behaviour, or an error that names the unreadable part."""

import copyreg
import functools
import gc
import random
import re
import struct
import sys
import types
import weakref
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from enum import Enum
from logging import Logger
from typing import Any

import numpy as np

Part = tuple[Any, Any]
"""Name of a part, or None, and its value."""
PLAIN = frozenset({int, str, bytes, type(None)})
"""Types whose values are read as themselves."""
_LOCK, _RLOCK = type(__import__("_thread").allocate_lock()), type(__import__("_thread").RLock())


class UnreadableError(Exception):
    """An object that cannot be read in full; the reader adds where it was found."""


def float_key(value: float) -> bytes:
    """Return the bytes of a number, which tell NaN and the two zeros apart, and are equal for equal NaN."""
    return struct.pack("<d", value)


def code_name(code: types.CodeType) -> str:
    """Return a text that is equal for equal code, in every process."""
    consts = [code_name(each) if isinstance(each, types.CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_qualname}:{code.co_firstlineno}:{code.co_code.hex()}:{code.co_names}:{consts}"


named_code = functools.lru_cache(maxsize=4096)(code_name)


@functools.lru_cache(maxsize=4096)
def is_value(kind: type) -> bool:
    """Return whether objects of a type never change, so that equal objects are interchangeable."""
    base, _, has_attributes = _layout(kind)
    return kind.__module__ in _VALUES or (base in _VALUE_BASES and not has_attributes)


_VALUES = frozenset({"decimal", "datetime", "fractions", "uuid", "ipaddress", "zoneinfo", "pathlib"})
_VALUE_BASES = (int, float, complex, str, bytes, tuple, frozenset, range, slice, np.generic, np.dtype)


def _members(values: Iterable[Any]) -> list[Part]:
    return [(None, each) for each in values]


def _mapping(value: Any, kind: type[dict[Any, Any]] = dict) -> list[Part]:
    parts: list[Part] = []
    for name, each in kind.items(value):
        if type(name) is str or type(name) is int:
            parts.append((name, each))
        else:
            parts.append((None, (name, each)))
    return parts


def _array(value: Any) -> list[Part]:
    """Return shape, type, bytes, and the base array of a view, because a write to one changes the other."""
    array_type = value.dtype
    if array_type.hasobject and array_type.kind != "O":
        raise UnreadableError("its records hold objects")
    shape: list[Part] = [(None, value.shape), (None, repr(array_type.descr if array_type.names else array_type.str))]
    if array_type.hasobject:
        return shape + _members(np.ndarray.ravel(value).tolist())
    shape.append((None, np.ndarray.tobytes(value)))
    return shape


def _function(value: types.FunctionType) -> list[Part]:
    cells = [
        (name, _cell(cell)) for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    ]
    parts: list[Part] = [("module", value.__module__), ("code", named_code(value.__code__)), *cells]
    if value.__defaults__:
        parts.append(("defaults", value.__defaults__))
    if value.__kwdefaults__:
        parts.append(("kwdefaults", value.__kwdefaults__))
    if value.__dict__:
        parts.append(("attributes", value.__dict__))
    return parts


class _Empty:
    """Content of a cell that is not set."""


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Empty


def _cache(value: Any) -> list[Part]:
    """Return the wrapped function of a cached function, and its cached values."""
    parts: list[Part] = [("wrapped", value.__wrapped__)]
    for each in gc.get_referents(value):
        is_link = "_lru_list_elem" in getattr(each, "__name__", type(each).__name__)
        is_index = isinstance(each, dict) and any("_lru_list_elem" in type(link).__name__ for link in each.values())
        if not (is_link or is_index or each is value.__wrapped__ or each is value.__dict__ or type(each) is object):
            parts.append((None, each))
    return parts


def _random(value: Any) -> list[Part]:
    if isinstance(value, random.SystemRandom):
        raise UnreadableError("it takes random numbers from the system")
    return [("state", random.Random.getstate(value) if isinstance(value, random.Random) else value.getstate())]


def _logger(value: Logger) -> list[Part]:
    standard = {"name", "parent", "manager", "root", "handlers", "_cache"}
    own: list[Part] = [(name, each) for name, each in value.__dict__.items() if name not in standard]
    return [("name", value.name), *own]


def _surface(value: Any) -> list[Part]:
    pixels = value.get_buffer().raw
    facts = (value.get_size(), value.get_flags(), value.get_masks(), value.get_colorkey(), value.get_alpha())
    return [("pixels", pixels), ("facts", facts), ("clip", tuple(value.get_clip()))]


def _image(value: Any) -> list[Part]:
    own: list[Part] = [(name, each) for name, each in value.__dict__.items() if name not in ("im", "_im", "pyaccess")]
    return [("pixels", value.tobytes()), ("size", value.size), ("mode", value.mode), *own]


def _tensor(value: Any) -> list[Part]:
    return [("values", value.detach().cpu().numpy()), ("grad", value.requires_grad), *_members([str(value.dtype)])]


def _rlock(value: Any) -> list[Part]:
    match = re.search(r"count=(\d+)", repr(value))
    return [("count", match.group(1) if match else repr(value)[:9])]


_PARTS: dict[Any, Callable[[Any], list[Part]]] = {
    int: lambda value: [("", int.__index__(value))],
    float: lambda value: [("", float_key(value))],
    complex: lambda value: [("", tuple(map(float_key, (value.real, value.imag))))],
    np.generic: lambda value: [("", (value.dtype.str, value.tobytes()))],
    str: lambda value: [("", str.__str__(value))],
    bytes: lambda value: [("", bytes.__getitem__(value, slice(None)))],
    tuple: lambda value: _members(tuple.__iter__(value)),
    list: lambda value: _members(list.__iter__(value)),
    dict: _mapping,
    OrderedDict: lambda value: _mapping(value, OrderedDict),  # keeps an order of its own
    defaultdict: lambda value: [*_mapping(value), ("", value.default_factory)],
    set: lambda value: _members(set.__iter__(value)),
    frozenset: lambda value: _members(frozenset.__iter__(value)),
    deque: lambda value: [*_members(deque.__iter__(value)), ("maxlen", value.maxlen)],
    bytearray: lambda value: [("", bytes(value))],
    memoryview: lambda value: [("", bytes(value)), ("format", value.format), ("shape", value.shape)],
    array: lambda value: [("", array.tobytes(value)), ("typecode", value.typecode)],
    range: lambda value: _members((value.start, value.stop, value.step)),
    slice: lambda value: _members((value.start, value.stop, value.step)),
    types.MappingProxyType: lambda value: _mapping(dict(value)),
    np.ndarray: _array,
    types.FunctionType: _function,
    types.MethodType: lambda value: [("", value.__func__), ("self", value.__self__)],
    types.BuiltinFunctionType: lambda value: [("", value.__name__), ("self", value.__self__)],
    types.MethodWrapperType: lambda value: [("", value.__name__), ("self", value.__self__)],
    types.CellType: lambda value: [("", _cell(value))],
    property: lambda value: [("get", value.fget), ("set", value.fset), ("delete", value.fdel)],
    staticmethod: lambda value: [("", value.__func__)],
    classmethod: lambda value: [("", value.__func__)],
    weakref.ref: lambda value: [("", value())],
    functools.partial: lambda value: [("", value.func), ("args", value.args), ("keywords", value.keywords)],
    type(functools.lru_cache(_mapping)): _cache,
    np.random.Generator: lambda value: [("state", value.bit_generator.state)],
    np.random.BitGenerator: lambda value: [("state", value.state)],
    np.random.RandomState: lambda value: [("state", value.get_state(legacy=False))],
    np.random.SeedSequence: lambda value: [("state", value.state)],
    random.Random.__base__: _random,
    ContextVar: lambda value: [("", value.name), ("value", value.get(None))],
    _LOCK: lambda value: [("", value.locked())],
    _RLOCK: _rlock,
    Logger: _logger,
}
"""Parts of objects by the type that holds them; attributes of subclasses are added."""
_PARTS_BY_NAME: dict[str, Callable[[Any], list[Part]]] = {
    "pygame.surface.Surface": _surface,
    "pygame.color.Color": lambda value: [("", tuple(value))],
    "pygame.time.Clock": lambda _value: [],  # real time: if a state depends on it, the replays detect that
    "pygame.font.Font": lambda value: [
        ("style", (value.bold, value.italic, value.underline, value.get_height(), value.size("Ag")))
    ],
    "PIL.Image.Image": _image,
    "torch.Tensor": _tensor,
}
"""Functions to the parts, for types of packages that need not be installed."""
DICE = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)


_NOT_READ = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__abstractmethods__"),
        "__slotnames__",  # a cache of copyreg
        *("_abc_impl", "__parameters__", "__orig_bases__", "__dataclass_params__", "__match_args__", "__slots__"),
    }
)
"""Names in classes that only describe the class."""


def namespace(kind: type) -> list[Part]:
    """Return the attributes of a class."""
    return [(name, each) for name, each in vars(kind).items() if name not in _NOT_READ]


@functools.lru_cache(maxsize=4096)
def is_named(kind: type) -> bool:
    """Return whether a class is found by its name, so that code defined it once; others are read as values."""
    place: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        place = vars(place).get(name) if isinstance(place, type | types.ModuleType) else None
    return place is kind or not kind.__flags__ & (1 << 9)


def parts_of(value: Any) -> list[Part]:
    """Return all parts of an object.

    Raises:
        UnreadableError: it may have more.
    """
    kind = type(value)
    base, takes_apart, has_attributes = _layout(kind)
    if takes_apart is None and kind.__dictoffset__ and _dict_descriptor(kind) is None:
        raise UnreadableError("its class hides its attributes")
    if isinstance(value, Enum):
        hidden = ("_value_", "_name_", "__objclass__", "_sort_order_")
        return [("", value.name), *[each for each in _attributes(value, kind) if each[0] not in hidden]]
    try:
        if takes_apart is not None:
            parts = takes_apart(value)
        elif base is not object:
            parts = _pickled(value, kind, base)
        else:
            parts = []
        attributes = takes_apart not in (_function, _logger, _image) and has_attributes
        return [*parts, *_attributes(value, kind)] if attributes else parts
    except UnreadableError:
        raise
    except Exception as error:  # foreign code may raise anything
        raise UnreadableError(f"{type(error).__name__}: {' '.join(str(error).split())[:120]}") from error


@functools.lru_cache(maxsize=4096)
def _layout(kind: type) -> tuple[type, Callable[[Any], list[Part]] | None, bool]:
    """Return the base class that holds more than attributes, its reader, and whether there are attributes."""
    base = kind
    while base is not object and base not in _PARTS and _name_of(base) not in _PARTS_BY_NAME and _adds_nothing(base):
        base = base.__base__ or object
    takes_apart = _PARTS.get(base) or _PARTS_BY_NAME.get(_name_of(base))
    return base, takes_apart, bool(_dict_descriptor(kind) or _slots(kind))


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _adds_nothing(kind: type) -> bool:
    """Return whether a class adds only attributes and slots to its base, as classes written in Python do."""
    base = kind.__base__ or object
    adds_dict = "__dict__" in vars(kind) and (kind.__dictoffset__ > 0 or kind.__itemsize__ > 0)
    words = len(_own_slots(kind)) + ("__weakref__" in vars(kind)) + adds_dict
    return kind.__itemsize__ == base.__itemsize__ and kind.__basicsize__ - base.__basicsize__ <= _WORD * words


_WORD = struct.calcsize("P")
_NO_SLOT = frozenset({"__dict__", "__weakref__", "__dictoffset__", "__weaklistoffset__", "__vectorcalloffset__"})


def _own_slots(kind: type) -> list[tuple[str, Any]]:
    if not kind.__flags__ & (1 << 9):  # a static type of C
        return []
    return [
        (name, each)
        for name, each in vars(kind).items()
        if type(each) is types.MemberDescriptorType and name not in _NO_SLOT
    ]


@functools.lru_cache(maxsize=4096)
def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(each for parent in kind.__mro__ for each in _own_slots(parent))


@functools.lru_cache(maxsize=4096)
def _dict_descriptor(kind: type) -> Any:
    """Return the descriptor of the true ``__dict__`` of objects, whatever their class says."""
    for parent in kind.__mro__:
        each = vars(parent).get("__dict__")
        if isinstance(each, types.GetSetDescriptorType | types.MemberDescriptorType):
            return each
    return None


def _attributes(value: Any, kind: type) -> list[Part]:
    parts: list[Part] = []
    if descriptor := _dict_descriptor(kind):
        parts += _mapping(descriptor.__get__(value, kind))
    for name, slot in _slots(kind):
        try:
            parts.append((name, slot.__get__(value, kind)))
        except AttributeError:  # not set
            continue
    return parts


def _pickled(value: Any, kind: type, base: type) -> list[Part]:
    """Return what pickling keeps of an object of an extension module."""
    for parent in kind.__mro__[: kind.__mro__.index(base)]:
        if own := {"__reduce__", "__reduce_ex__", "__getstate__"} & vars(parent).keys():
            raise UnreadableError(f"{parent.__name__}.{own.pop()} may leave something out")
    reduce = copyreg.dispatch_table.get(base)
    reduced: Any = reduce(value) if reduce else base.__reduce_ex__(value, 4)  # pyright: ignore[reportCallIssue]
    if isinstance(reduced, str):
        return [("", reduced)]
    function, arguments, *rest = reduced
    parts: list[Part] = [("", getattr(function, "__qualname__", str(function))), ("arguments", arguments)]
    for place, each in enumerate(rest):
        parts.append((None, list(each) if place in (1, 2) and each is not None else each))
    return parts
