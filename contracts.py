"""Answers of plugins, checked against the contract of their group where they enter PIVOT.

A contract class lists in ``answers`` what its methods and properties return. A third party's subclass gets every
method that is listed there wrapped when the class is made: an answer that does not fit, and a call of ``sys.exit``,
raise one :class:`PluginError` that names the field, its value, what was expected and the entry point. PIVOT's own
plugins are not wrapped; the inherited contract tests check them.
"""

import inspect
import json
import math
import reprlib
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, wraps
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from .errors import PluginError


class Misfit(NamedTuple):
    """Violation of a contract: a value that it does not allow."""

    field: str
    """Path of the value inside the answer, such as ``[0].certificate.kind``; empty for the answer itself."""
    value: Any
    expected: str

    def __str__(self) -> str:
        """Return value and expectation as half a sentence."""
        return f"{shown(self.value)}, expected {self.expected}"


Check = Callable[[Any], Misfit | None]
"""Returns the first violation by a value, or None."""


@dataclass(frozen=True, slots=True)
class Fits:
    """A condition on a value, for ``Annotated[type, Fits(...)]``; it is checked after the type."""

    holds: Callable[[Any], bool]
    expected: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The contract of one method or property."""

    kind: Any
    """A type annotation: builtin types, dataclasses, ``Literal``, unions, containers, ``Annotated`` with ``Fits``."""
    also: Callable[..., Iterable[Misfit]] | None = None
    """Yields the violations that depend on the question; called with the plugin, the answer and the arguments."""


Misfits = Generator[Misfit, None, None]
"""Result of a function for :attr:`Answer.also`."""


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or text.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


Text = Annotated[str, Fits(_is_unicode, "a text that UTF-8 can store")]
"""A text without lone surrogates, which no file can store."""
JsonObject = Annotated[dict[str, Any], Fits(_is_json, "a dict of JSON values")]
"""Settings and other data that are stored as JSON."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Demands of a contract on the classes of a plugin."""

    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    """Contracts of the methods and properties that subclasses define, by name."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Type annotations of the attributes that classes set; checked when an entry point is loaded."""
    arguments: int = 0
    """Positional arguments that the constructor must take; 0 for the number of the base class."""


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlong = 40
MOST_SHOWN = 100
"""Characters of a value in a message."""


def shown(value: Any) -> str:
    """Return a short form of any value in printable characters, also where its ``__repr__`` raises."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # noqa: BLE001 - the value is from third-party code
        text = f"an object of type {type(value).__name__}"
    text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


# Checks of values by their annotation


@cache
def check_of(kind: Any) -> Check:
    """Return the check of a type annotation.

    Numbers are strict: ``bool`` is not an ``int``, a ``float`` is finite, and an ``int`` is a ``float``.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(parts[0], [each for each in kind.__metadata__ if isinstance(each, Fits)])
    if origin in (Union, types.UnionType):
        return _union(parts)
    if origin in (tuple, list, frozenset, Sequence):
        return _items(origin, parts)
    if origin in (dict, Mapping):
        return _mapping(origin, parts)
    return _plain(kind if origin in (None, Literal) else origin)


def _anything(_: Any) -> None:
    return None


def _matching(expected: str, holds: Callable[[Any], bool]) -> Check:
    return lambda value: None if holds(value) else Misfit("", value, expected)


def _is_one_of(value: Any, choices: tuple[Any, ...]) -> bool:
    return any(type(value) is type(choice) and value == choice for choice in choices)


_BUILTIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    None: ("None", lambda value: value is None),
    types.NoneType: ("None", lambda value: value is None),
    bool: ("True or False", lambda value: value is True or value is False),
    int: ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: (
        "a finite number",
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value),
    ),
    str: ("a text", lambda value: isinstance(value, str)),
    bytes: ("bytes", lambda value: isinstance(value, bytes)),
    dict: ("a dict", lambda value: isinstance(value, dict)),
}


def _plain(kind: Any) -> Check:
    if kind is Any:
        return _anything
    if kind in _BUILTIN:
        return _matching(*_BUILTIN[kind])
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return _matching(f"one of {', '.join(map(repr, choices))}", lambda value: _is_one_of(value, choices))
    if is_dataclass(kind):
        return _dataclass(cast(type, kind))
    return _matching(_article(kind.__name__), lambda value: isinstance(value, kind))


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _annotated(kind: Any, conditions: list[Fits]) -> Check:
    inner = check_of(kind)

    def check(value: Any) -> Misfit | None:
        if misfit := inner(value):
            return misfit if misfit.field or not conditions else misfit._replace(expected=conditions[0].expected)
        return next((Misfit("", value, each.expected) for each in conditions if not each.holds(value)), None)

    return check


def _union(kinds: tuple[Any, ...]) -> Check:
    checks = [check_of(kind) for kind in kinds]

    def check(value: Any) -> Misfit | None:
        misfits: list[Misfit] = []
        for each in checks:
            misfit = each(value)
            if misfit is None:
                return None
            misfits.append(misfit)
        inside = next((misfit for misfit in misfits if misfit.field), None)
        return inside or Misfit("", value, " or ".join(dict.fromkeys(misfit.expected for misfit in misfits)))

    return check


def _items(origin: Any, parts: tuple[Any, ...]) -> Check:
    kind = (tuple, list) if origin is Sequence else origin
    what = "a list or tuple" if origin is Sequence else f"a {origin.__name__}"
    fixed = None if origin is not tuple or Ellipsis in parts else [check_of(part) for part in parts]
    each = check_of(parts[0]) if fixed is None and parts else _anything

    def check(value: Any) -> Misfit | None:
        if not isinstance(value, kind):
            return Misfit("", value, what)
        if fixed is not None and len(value) != len(fixed):
            return Misfit("", value, f"{what} of {len(fixed)}")
        for index, item in enumerate(value):
            if misfit := (each if fixed is None else fixed[index])(item):
                return misfit._replace(field=f"[{index}]{_below(misfit.field)}")
        return None

    return check


def _mapping(kind: Any, parts: tuple[Any, ...]) -> Check:
    of_key, of_value = check_of(parts[0]), check_of(parts[1])

    def check(value: Any) -> Misfit | None:
        if not isinstance(value, kind):
            return Misfit("", value, f"a {kind.__name__.lower()}")
        for key, item in cast(Mapping[Any, Any], value).items():
            if misfit := of_key(key):
                return misfit._replace(field="(key)")
            if misfit := of_value(item):
                return misfit._replace(field=f"[{shown(key)}]{_below(misfit.field)}")
        return None

    return check


def _dataclass(kind: type) -> Check:
    hints = get_type_hints(kind, include_extras=True)
    checks = [(each.name, check_of(hints[each.name])) for each in fields(kind)]
    expected = _article(kind.__name__)

    def check(value: Any) -> Misfit | None:
        if not isinstance(value, kind):
            return Misfit("", value, expected)
        for name, each in checks:
            if misfit := each(getattr(value, name, None)):
                return misfit._replace(field=f"{name}{_below(misfit.field)}")
        return None

    return check


def _below(field: str) -> str:
    return field if not field or field.startswith("[") else f".{field}"


# Contracts


_ORIGINS: dict[type, dict[str, str]] = {}
"""Entry points by the class that they load and their name."""


def note_origin(part: Any, name: str, origin: str) -> None:
    """Remember which entry point loads a class or object, for messages about its answers."""
    _ORIGINS.setdefault(part if isinstance(part, type) else type(part), {})[name] = origin


def origin_of(part: Any) -> str:
    """Name the entry point of a plugin, or its class where none loads it."""
    kind = part if isinstance(part, type) else type(part)
    origins = next((_ORIGINS[each] for each in kind.__mro__ if each in _ORIGINS), None)
    if origins is None:  # made by a plugin, such as the chat model of a backend
        origins = next((each for part, each in _ORIGINS.items() if part.__module__ == kind.__module__), None)
    if not origins:
        return f"{kind.__module__}:{kind.__qualname__}"
    own = getattr(part, "env", None) or getattr(getattr(part, "profile", None), "name", None)
    return origins.get(own if isinstance(own, str) else getattr(part, "name", ""), next(iter(origins.values())))


def refuse(part: Any, method: str, misfit: Misfit) -> PluginError:
    """Return the error for an answer that does not fit."""
    field = f"{method}(){_below(misfit.field)}"
    return PluginError(f"{origin_of(part)} answered {field} = {misfit}; fix or uninstall that package")


@contextmanager
def _refuse_exit(part: Any, method: str) -> Iterator[None]:
    try:
        yield
    except SystemExit as error:
        raise PluginError(
            f"{origin_of(part)} called sys.exit({shown(error.code)}) in {method}(), expected an answer or an "
            "exception; fix or uninstall that package"
        ) from error


class Contract:
    """Base of the contracts of all groups."""

    terms: ClassVar[Terms] = Terms()
    """Demands of this class on its subclasses, in addition to the terms of its bases."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap what a third party's class defines."""
        super().__init_subclass__(**options)
        if cls.__module__.partition(".")[0] == __package__:
            return
        for name, defined in list(vars(cls).items()):
            answer = _declared(cls, name)
            if answer is not None or name == "__init__":
                setattr(cls, name, _wrapped(name, defined, answer))

    @classmethod
    def misfit(cls) -> str | None:
        """Return why the class breaks its contract, or None; called once, when the class is loaded."""
        return constructor_misfit(cls)


def _terms(kind: type) -> list[Terms]:
    """Return the terms of a class and its bases, the nearest first."""
    return [terms for each in kind.__mro__ if isinstance(terms := vars(each).get("terms"), Terms)]


def attribute_misfit(part: Any) -> str | None:
    """Return what is wrong with an attribute of a plugin's class or object, or None; instances may still set others."""
    for terms in _terms(part if isinstance(part, type) else type(part)):
        for name, hint in terms.attributes.items():
            value = getattr(part, name, None)
            if hasattr(part, name) and not isinstance(value, property) and (misfit := check_of(hint)(value)):
                return f"its {name}{_below(misfit.field)} is {misfit}"
    return None


def constructor_misfit(kind: type) -> str | None:
    """Return why a class cannot be made with the arguments of its contract, or None."""
    count = next(terms.arguments for terms in _terms(kind) if terms.arguments)
    try:
        inspect.signature(kind).bind(*range(count))
    except TypeError as error:
        return f"its constructor cannot take {count} positional argument{'s' * (count > 1)}: {error}"
    return None


def _declared(cls: type, name: str) -> Answer | None:
    return next((terms.answers[name] for terms in _terms(cls) if name in terms.answers), None)


def _wrapped(name: str, defined: Any, answer: Answer | None) -> Any:
    if isinstance(defined, (classmethod, staticmethod)):
        return type(defined)(_wrapped(name, cast(Any, defined).__func__, answer))
    if isinstance(defined, property):
        return property(_wrapped(name, defined.fget, answer), defined.fset, defined.fdel, defined.__doc__)
    if not inspect.isfunction(defined):
        return defined

    def checked(part: Any, value: Any, arguments: tuple[Any, ...]) -> Any:
        if answer is not None:
            check_answer(part, name, answer, value, *arguments)
        return value

    @wraps(defined)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        with _refuse_exit(self, name):
            value = defined(self, *arguments, **named)
        return checked(self, value, arguments)

    @wraps(defined)
    async def wait(self: Any, *arguments: Any, **named: Any) -> Any:
        with _refuse_exit(self, name):
            value = await defined(self, *arguments, **named)
        return checked(self, value, arguments)

    return wait if inspect.iscoroutinefunction(defined) else call


def check_answer(part: Any, name: str, answer: Answer, value: Any, *arguments: Any) -> None:
    """Check one answer of a plugin.

    Raises:
        PluginError: it does not fit the contract.
    """
    misfit = check_of(answer.kind)(value)
    if misfit is None and answer.also is not None:
        misfit = next(iter(answer.also(part, value, *arguments)), None)
    if misfit is not None:
        raise refuse(part, name, misfit)
