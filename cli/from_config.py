"""Command-line options from pydantic models: a setting is declared once, in its model.

A :class:`Form` reads a model and offers an option for each of its fields: the name from the field, the help from its
description, the type and the default from its annotation. :func:`from_config` gives a command the options of its forms
and ``--config FILE``, and calls it with the checked models. A flag wins over the file, the file over the default.

| field | option |
|---|---|
| text, number, path, address, choice | ``--name VALUE`` |
| true or false | ``--name``; also ``--no-name`` if it is not false by default |
| list | ``--name VALUE``, repeated |
| mapping | ``--name KEY=VALUE``, repeated; of mappings ``--name KEY.KEY=VALUE`` |
| model | an option for each of its fields, ``--name-field`` |

Values of mappings are JSON, or a text.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..core.errors import ConfigError
from ..core.storage import Address
from .help_texts import help_text, metavar_of, without_none
from .options import address_of
from .settings_help import default_text
from .values import Keys, Model, RunFile, Values, read_file, setting_of, unknown_key

NONE = "none"
"""Value of a flag that sets an optional field to null although its default is a value."""
FILE = "config"
"""Parameter of ``--config``."""
_METAVARS = {"mapping": "KEY=VALUE", "nested mapping": "ENV.KEY=VALUE"}


@dataclass(frozen=True, slots=True)
class Flag:
    """Option of a field that deviates from the rule."""

    name: str = ""
    """The option; ``--field-name`` if empty."""
    off: str = ""
    """The option that sets a boolean to false; ``--no-field-name`` if empty, none for a field that is false anyway."""
    argument: str = ""
    """Placeholder of a positional argument, such as ``DIR``, if the field is one."""
    default: str = ""
    """Text of the default where the model's value does not say enough."""
    metavar: str = ""
    help: str = ""
    """Text in place of the description of the field."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A field with an option of its own."""

    keys: Keys
    field: FieldInfo
    kind: Any
    """Its annotation without ``None``."""
    optional: bool
    """Whether the field may be null."""

    @property
    def shape(self) -> Literal["value", "switch", "list", "mapping", "nested mapping"]:
        """Form of its values on the command line."""
        origin = get_origin(self.kind) or self.kind
        if self.kind is bool:
            return "switch"
        if origin in (tuple, list, set, frozenset):
            return "list"
        if origin in (dict, Mapping):
            inner = get_args(self.kind)[1:]
            return "nested mapping" if inner and _is_mapping(inner[0]) else "mapping"
        return "value"


def _is_mapping(kind: Any) -> bool:
    return (get_origin(kind) or kind) in (dict, Mapping) or (isinstance(kind, type) and issubclass(kind, BaseModel))


def leaves(kind: type[BaseModel], above: Keys = ()) -> Iterator[Leaf]:
    """Yield the fields of a model and of its nested models."""
    for name, info in kind.model_fields.items():
        inner, optional = without_none(info.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from leaves(inner, (*above, name))
        else:
            yield Leaf((*above, name), info, inner, optional)


class Form(Generic[Model]):
    """The options of one model.

    Args:
        name: prefix of its parameters, unique in a command.
        model: the model.
        flags: what differs from the rule, by field; a field of a nested model as ``model.field``.
        panels: headings of the help, each with its fields; other fields are under the heading that they declare as
            ``panel`` in ``json_schema_extra``, or under ``Options``.
        skip: fields without an option of their own, such as one that another form of the command has.
    """

    def __init__(
        self,
        name: str,
        model: type[Model],
        flags: Mapping[str, Flag] | None = None,
        panels: Mapping[str, Sequence[str]] | None = None,
        skip: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.model = model
        self._flags = flags or {}
        self._panels = {each: panel for panel, fields in (panels or {}).items() for each in fields}
        self._leaves = {".".join(each.keys): each for each in leaves(model) if each.keys[0] not in skip}
        if unknown := (self._flags.keys() | self._panels.keys()) - self._leaves.keys() - model.model_fields.keys():
            raise ValueError(f"{model.__name__} has no field {', '.join(sorted(unknown))}")

    @property
    def keys(self) -> list[str]:
        """Keys of a file that the form reads."""
        return list(self.model.model_fields)

    def leaves(self) -> Iterator[tuple[Leaf, Flag]]:
        """Yield every field that has an option, with the spelling of the option."""
        for name, leaf in self._leaves.items():
            yield leaf, self._flags.get(name, Flag())

    def needs(self, argument: str | None) -> bool:
        """Return whether the positional argument with this placeholder is required."""
        return any(flag.argument == argument and leaf.field.is_required() for leaf, flag in self.leaves())

    def flag_name(self, leaf: Leaf, flag: Flag) -> str:
        """Return the option of a field as the user types it, or the placeholder of an argument."""
        return flag.argument or flag.name or "--" + "-".join(leaf.keys).replace("_", "-")

    def panel(self, leaf: Leaf) -> str | None:
        """Return the heading of the help that a field is under."""
        extra = self.model.model_fields[leaf.keys[0]].json_schema_extra
        declared = extra.get("panel") if isinstance(extra, dict) else None
        named = self._panels.get(".".join(leaf.keys)) or self._panels.get(leaf.keys[0])
        return named or (str(declared) if declared else None)

    def help_of(self, leaf: Leaf, flag: Flag) -> str:
        """Return the help of an option, with the default of the model."""
        text = self._text(leaf, flag)
        default = flag.default or self._default(leaf)
        text = text.rstrip(".") + (f" (default: {default})" if default else "") + "." if text or default else ""
        text += " (required)" if leaf.field.is_required() and not flag.argument else ""
        if leaf.shape in ("list", "mapping", "nested mapping") and not flag.argument:
            text += " May be repeated."
        return text.strip()

    def _text(self, leaf: Leaf, flag: Flag) -> str:
        """Return the help without the default; fields of the form that it names are written as their options."""
        options = {each.keys[0]: self.flag_name(each, how) for each, how in self.leaves() if len(each.keys) == 1}
        return help_text(flag.help or leaf.field.description or "", options)

    @staticmethod
    def _default(leaf: Leaf) -> str:
        default = leaf.field.get_default(call_default_factory=True)
        if default is PydanticUndefined or default in (None, "", (), [], {}) or default is False:
            return ""
        if default is True:
            return "yes"
        if isinstance(default, tuple | list):
            return ", ".join(map(str, default))
        return default_text(leaf.field).strip('"')

    # Options

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of a command, for typer to make options of."""
        for leaf, flag in self.leaves():
            name = self._parameter(leaf)
            text, panel = self.help_of(leaf, flag), self.panel(leaf)
            several = leaf.shape not in ("value", "switch")
            kind: Any = bool if leaf.shape == "switch" else list[str] if several else str
            metavar = flag.metavar or _METAVARS.get(leaf.shape) or metavar_of(leaf.kind)
            if flag.argument:
                positional: Any = typer.Argument(metavar=flag.argument, help=text, show_default=False)
                yield parameter(name, kind, positional)
                continue
            written = self.flag_name(leaf, flag)
            if leaf.shape == "switch" and (flag.off or leaf.field.default is not False):
                written += f"/{flag.off or '--no-' + written.removeprefix('--')}"
            about = typer.Option(written, metavar=metavar, show_default=False, help=text, rich_help_panel=panel)
            yield parameter(name, kind, about)

    def _parameter(self, leaf: Leaf) -> str:
        return "__".join((self.name, *leaf.keys))

    # Values

    def read(self, arguments: Mapping[str, Any], file: Mapping[str, Any], where: str) -> Model:
        """Return the model that flags and file describe.

        Args:
            arguments: parameters of the command, by name.
            file: the config file; only keys of this form are read.
            where: how messages name the file.

        Raises:
            ConfigError: a value cannot be used.
        """
        values = Values()
        values.put_all({key: value for key, value in file.items() if key in self.keys}, where)
        self.put_flags(arguments, values)
        return self.resolve(values)

    def put_flags(self, arguments: Mapping[str, Any], values: Values) -> None:
        """Overwrite values by those of the flags.

        Raises:
            ConfigError: the value of a mapping is not written as ``KEY=VALUE``.
        """
        for leaf, flag in self.leaves():
            name = self._parameter(leaf)
            label = self.flag_name(leaf, flag)
            value = arguments.get(name)
            if value is not None and value != []:
                self._put(leaf, flag, value, label, values)

    def _put(self, leaf: Leaf, flag: Flag, value: Any, label: str, values: Values) -> None:
        if leaf.shape == "mapping":
            is_text = get_args(leaf.kind)[1:] in ((str,), (Path,))
            for text in value:
                key, setting = key_and_value(label, text, shape=flag.metavar or "KEY=VALUE")
                setting = text.partition("=")[2] if is_text else setting
                values.put_once((*leaf.keys, key), setting, f"{label} {key}")
        elif leaf.shape == "nested mapping":
            for text in value:
                outer, inner, setting = nested_setting(label, text)
                values.put_once((*leaf.keys, outer, inner), setting, f"{label} {outer}.{inner}")
        elif leaf.optional and value == NONE and leaf.field.get_default(call_default_factory=True) is not None:
            values.put(leaf.keys, None, label)
        else:
            values.put(leaf.keys, value, label)

    def resolve(self, values: Values) -> Model:
        """Check the values.

        Raises:
            ConfigError: one is missing or cannot be used; the message names its flag or its key.
        """
        for leaf, flag in self.leaves():
            if leaf.field.is_required() and len(leaf.keys) == 1 and values.origin(leaf.keys) is None:
                label = self.flag_name(leaf, flag)
                what = f"argument '{label}'" if flag.argument else f"option '{label}'"
                text = self._text(leaf, flag)
                raise ConfigError(f"missing {what}: {text[:1].lower()}{text[1:]}".rstrip(".: "))
        return values.read(self.model)


def parameter(name: str, kind: Any, about: Any) -> inspect.Parameter:
    """Return a parameter of a command from which typer makes an option; it is None if the option is not used."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, about]
    )


def key_and_value(label: str, text: str, hint: str = "", shape: str = "KEY=VALUE") -> tuple[str, Any]:
    """Read ``KEY=VALUE``.

    Raises:
        ConfigError: the text does not have this form.
    """
    key, equals, value = text.partition("=")
    if not (equals and key):
        raise ConfigError(f"{label}: found {text!r}, expected {shape}{hint}")
    return key, setting_of(value)


def nested_setting(label: str, text: str, example: str = "") -> tuple[str, str, Any]:
    """Read ``ENV.KEY=VALUE``.

    Raises:
        ConfigError: the text does not have this form.
    """
    target, equals, value = text.partition("=")
    name, dot, key = target.partition(".")
    if not (equals and dot and name and key):
        such = f", such as {example}" if example else ""
        raise ConfigError(f"{label}: found {text!r}, expected ENV.KEY=VALUE{such}")
    return name, key, setting_of(value)


def env_settings(env: str, texts: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts of one environment; ``ENV.`` may be in front of them, as for pivot build.

    Raises:
        ConfigError: a text cannot be used.
    """
    chosen: dict[str, Any] = {}
    for text in texts:
        name, key, value = nested_setting("--set", text if "." in text.partition("=")[0] else f"{env}.{text}")
        if name != env:
            raise ConfigError(f"--set {text}: found a setting of {name}, expected one of {env}")
        chosen[key] = value
    return chosen


# Commands

FileOf = Callable[[Mapping[str, Any]], Address | None]
"""Names the config file of a command line that gives none."""


def from_config(
    *forms: Form[Any], file_otherwise: FileOf | None = None, file: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of its forms; it is called with their models, in this order.

    Args:
        forms: the forms; positional arguments come first.
        file_otherwise: names the config file where ``--config`` does not.
        file: whether the command has ``--config``.
    """
    keys = [key for form in forms for key in form.keys]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            named = arguments.pop(FILE, None)
            path = None if named is None else address_of("--config", named)
            if path is None and file_otherwise is not None:
                path = file_otherwise(arguments)
            content = {} if path is None else read_file(path)
            where = f"config file {path}"
            if isinstance(content.get("config"), dict):
                content, where = content["config"], RunFile(path)
            for key in content:
                if key not in keys:
                    raise ConfigError(unknown_key(f"{where}: {key}", key, keys))
            command(*(form.read(arguments, content, where) for form in forms))

        about: Any = typer.Option(
            "--config",
            metavar="FILE",
            help="Read settings from a YAML, TOML or JSON file, or from a run.json; flags override it.",
            rich_help_panel=None,
        )
        parameters = [each for form in forms for each in form.parameters()]
        parameters += [parameter(FILE, str, about)] * file
        run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.forms = forms  # pyright: ignore[reportAttributeAccessIssue] - the reference of settings lists them
        return run

    return decorate
