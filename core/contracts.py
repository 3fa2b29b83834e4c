"""Answers of plugins, checked against the contract of their group where they enter PIVOT.

A contract class lists in ``answers`` what its methods and properties return. A third party's subclass gets every
method that is listed there wrapped when the class is made: an answer that does not fit, and a call of ``sys.exit``,
raise one :class:`PluginError` that names the field, its value, what was expected and the entry point. PIVOT's own
plugins are not wrapped; the inherited contract tests check them.
"""

import inspect
import json
import reprlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Annotated, Any, ClassVar, NamedTuple, cast

from pydantic import ConfigDict, GetCoreSchemaHandler, ValidationError, ValidatorFunctionWrapHandler, create_model
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema
from typing_extensions import TypedDict

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


_PACKAGE = __name__.partition(".")[0]
Check = Callable[[Any], Misfit | None]
"""Returns the first violation by a value, or None."""


@dataclass(frozen=True, slots=True)
class Fits:
    """A condition on a value, for ``Annotated[type, Fits(...)]``; it is checked after the type."""

    holds: Callable[[Any], bool]
    expected: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the condition after the type."""

        def check(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
            try:
                inner(value)
            except ValidationError as error:
                if error.errors()[0]["loc"]:
                    raise
            else:
                if self.holds(value):
                    return value
            raise PydanticCustomError("condition", "{expected}", {"expected": self.expected})

        return core_schema.no_info_wrap_validator_function(check, handler(source))


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
FINITE = Fits(lambda value: value is None or isinstance(value, int | float), "a finite number")
"""For ``Annotated[float, FINITE]``: a finite number; types that only convert to one, such as Decimal, are refused."""
JsonObject = Annotated[dict[str, Any], Fits(_is_json, "a dict of JSON values")]
"""Settings and other data that are stored as JSON."""


def json_object(**fields: Any) -> Any:
    """Return the annotation of a JSON object with exactly these fields."""
    kind: Any = TypedDict("kind", fields)  # pyright: ignore[reportArgumentType]
    kind.__pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return kind


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
"""Maximum number of characters of a value in a message."""


def shown(value: Any) -> str:
    """Return a short form of any value in printable characters, also where its ``__repr__`` raises."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # noqa: BLE001 - the value is from third-party code
        text = f"an object of type {type(value).__name__}"
    text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


# Checks of values by their annotation


EXPECTED = {
    "int_type": "a whole number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "list_type": "a list",
    "literal_error": "one of {expected}",
    "too_long": "at most {max_length} of them",
    "too_short": "at least {min_length} of them",
}
"""Expected values that an error of pydantic's validation names, by its type."""
_EXPECTED = EXPECTED | {
    "none_required": "None",
    "bool_type": "True or False",
    "float_type": "a finite number",
    "bytes_type": "bytes",
    "dict_type": "a dict",
    "tuple_type": "a tuple",
    "frozen_set_type": "a frozenset",
    "mapping_type": "a mapping",
    "is_instance_of": "a {class}",
    "dataclass_exact_type": "a {class_name}",
    "dataclass_type": "a {class_name}",
    "condition": "{expected}",
    "missing": "a value",
    "extra_forbidden": "no such field",
}
_ALTERNATIVES = {"none", "bool", "int", "float", "str"}
_STRICT = ConfigDict(arbitrary_types_allowed=True, strict=True, allow_inf_nan=False, revalidate_instances="always")


@cache
def check_of(kind: Any) -> Check:
    """Return the check of a type annotation.

    Numbers are strict: ``bool`` is not an ``int``, a ``float`` is finite, and an ``int`` is a ``float``.
    """
    model: Any = create_model("Answer", __config__=_STRICT, answer=(kind, ...))

    def check(value: Any) -> Misfit | None:
        try:
            model(answer=value)
        except ValidationError as error:
            problems = error.errors()
            problem = max(problems, key=lambda each: len(each["loc"]))
            expected = " or ".join(dict.fromkeys(map(_expectation, problems if len(problem["loc"]) < 3 else [problem])))
            return Misfit(_path(problem["loc"][1:]), problem["input"], expected)
        return None

    return check


def _expectation(problem: ErrorDetails) -> str:
    return _EXPECTED.get(problem["type"], problem["msg"]).format(**problem.get("ctx", {}))


def _path(parts: Sequence[int | str]) -> str:
    """Return the path to a value; parts that are no names of fields are alternatives of a union."""
    names = [part for part in parts if isinstance(part, int) or (part.islower() and part not in _ALTERNATIVES)]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in names).removeprefix(".")


def _below(field: str) -> str:
    return field if not field or field.startswith("[") else f".{field}"


# Contracts


_ORIGINS: dict[type, dict[str, str]] = {}
"""Entry points by the class that they load, then by name."""


def note_origin(part: Any, name: str, origin: str) -> None:
    """Remember which entry point loads a class or object, for messages about its answers."""
    _ORIGINS.setdefault(part if isinstance(part, type) else type(part), {})[name] = origin


def origin_of(part: Any) -> str:
    """Return the entry point of a plugin, or its class if no entry point loads it."""
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
        if cls.__module__.partition(".")[0] == _PACKAGE:
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
    """Return the error in an attribute of a plugin's class or object, or None; instances may still set missing ones."""
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
        PluginError: the answer violates the contract.
    """
    misfit = check_of(answer.kind)(value)
    if misfit is None and answer.also is not None:
        misfit = next(iter(answer.also(part, value, *arguments)), None)
    if misfit is not None:
        raise refuse(part, name, misfit)
