"""Options that name a model, set its sampling and reach its server: for a policy, a writer of guidance, or an Analyzer.

They come from two models: :class:`.ModelOptions` decides answers, so it is part of every id; :class:`.Service` holds
address, limits, cache and prices, which may differ from run to run. A policy has an option for each of them. A writer
has ``--writer-model``, and for the rest ``--writer-set`` and ``--writer-service``; it shares the server of the policy
unless its own options say otherwise.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import typer

from ..core import plugins
from ..core.errors import ConfigError
from ..core.plugins import Settings
from ..datasets.store.config import SHARED, RunConfig, part_type
from ..models.base import ModelOptions
from ..models.service import Service
from ..training.evaluation.config import AskedModel
from .from_config import Flag, Form, key_and_value, parameter
from .values import Values

OPTIONS = "Model of the policy (--policy openai or transformers)"
SERVER = "Model server (does not affect the data)"
"""Headings of the help."""
SET_BY_BUILD = ("refresh", "payer")
"""Service settings that a build sets itself; --policy-service and --writer-service reach them."""


_SERVICE_FLAGS = {
    "base_url": Flag(default="OPENAI_BASE_URL, or OpenAI's"),
    "cache": Flag(default="one file for all runs"),
    "request_seconds": Flag("--request-timeout"),
    "episode_seconds": Flag("--episode-timeout"),
    "patience_seconds": Flag("--patience"),
}


def _service_form(keys: Sequence[str]) -> Form[Service]:
    flags = {key: flag for key, flag in _SERVICE_FLAGS.items() if key in keys}
    return Form("model", Service, flags, {SERVER: keys}, skip=[key for key in Service.model_fields if key not in keys])


OF_MODEL = Form("model", ModelOptions, panels={OPTIONS: tuple(ModelOptions.model_fields)})
OF_SERVER = _service_form([key for key in Service.model_fields if key not in SET_BY_BUILD])
OF_SHARED_SERVER = _service_form(SHARED)
NO_CACHE = typer.Option("--no-cache", help="Neither read nor fill the call cache.", rich_help_panel=SERVER)


def typed(form: Form[Any], arguments: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the settings that the command line gives by the options of a form: key to flag and value."""
    chosen = Values()
    form.put_flags({name: value for name, value in arguments.items() if value is not False}, chosen)
    settings = {
        leaf.keys[0]: (form.flag_name(leaf, flag), chosen.data[leaf.keys[0]])
        for leaf, flag in form.leaves()
        if leaf.keys[0] in chosen.data
    }
    if form.model is Service and arguments.get("model__no_cache"):
        settings["cache"] = "--no-cache", ""
    return settings


class PartFlags:
    """The options of a policy or a writer: its name, its own settings, and those of a model."""

    def __init__(self, role: Literal["policy", "teacher"], flag: str) -> None:
        """Take the key of the part in a run config, and the beginning of its options."""
        self.role, self.flag = role, flag

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        default = RunConfig.model_fields[self.role].default.name
        who, what = self.flag.removeprefix("--"), "acts" if self.role == "policy" else "writes guidance"
        about = f"The {who}, which {what} (default: {default}, built in, in place of a model)."
        yield parameter(f"{self.role}__name", str, typer.Option(self.flag, metavar="NAME", help=about))
        if self.role == "teacher":
            model = typer.Option("--writer-model", metavar="NAME", help="Model of the writer, such as of openai.")
            yield parameter("teacher__model", str, model)
        for part, text in (
            ("set", f"Setting of the {who}, as pivot doctor NAME lists them. May be repeated."),
            ("service", f"Setting of the model server of the {who}, such as base_url=URL. May be repeated."),
        ):
            option = typer.Option(f"{self.flag}-{part}", metavar="KEY=VALUE", help=text)
            yield parameter(f"{self.role}__{part}", list[str], option)
        if self.role == "policy":
            yield from OF_MODEL.parameters()
            yield from OF_SERVER.parameters()
            yield parameter("model__no_cache", bool, NO_CACHE)

    def changes(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the command line says anything about this part."""
        return any(arguments.get(each.name) not in (None, [], False) for each in self.parameters())

    def put(self, arguments: Mapping[str, Any], values: Values, before: Mapping[str, Any] = {}) -> None:
        """Overwrite the part's values by those of the command line; another name discards the earlier values.

        Args:
            arguments: parameters of the command.
            values: a run config.
            before: service settings of the policy in the config file; the writer follows the policy's options where its
                own settings were equal.

        Raises:
            ConfigError: model settings for a part that is not a model.
        """
        role, models = self.role, plugins.names("models")
        stored = values.get((role,))
        if stored is None:
            stored = RunConfig.model_fields[role].default.model_dump()
            values.put((role,), stored, f"--{role}")
        name = arguments.get(f"{role}__name")
        if name is not None and isinstance(stored, dict) and name != stored.get("name"):
            values.put((role,), {"name": name}, self.flag)
        current = values.get((role, "name"))
        options, service = (typed(form, arguments) for form in (OF_MODEL, OF_SERVER))
        if role == "teacher":
            model = arguments.get("teacher__model")
            options = {} if model is None else {"model": ("--writer-model", model)}
            service = {} if current not in models else self._followed(service, values, before)
        elif arguments.get("teacher__name") in models and current not in models:
            service = {key: each for key, each in service.items() if key not in SHARED}  # meant for the writer
        if current not in models:
            for flag, _ in (*options.values(), *service.values()):
                raise ConfigError(
                    f"{flag}: {role} {current!r} is not a model, so it cannot use this option; "
                    f"name a model, such as {self.flag} openai"
                )
        for part, key, settings in (("options", "set", options), ("service", "service", service)):
            for setting, (flag, value) in settings.items():
                values.put((role, part, setting), value, flag)
            for text in arguments.get(f"{role}__{key}") or ():
                flag = f"{self.flag}-{key}"
                setting, value = key_and_value(flag, text, f"; see: pivot doctor {role.upper()}")
                if isinstance(value, int | float) and self._is_text(str(current), part, setting):
                    value = text.partition("=")[2]  # a revision may be 2, or 1e5
                values.put((role, part, setting), value, f"{flag} {setting}")

    def _is_text(self, name: str, part: str, setting: str) -> bool:
        """Whether a setting of the part is a text, or a text or nothing."""
        kind = part_type("student" if self.role == "policy" else "teacher", name)
        fields = getattr(kind, "config_type" if part == "options" else "service_type", Settings).model_fields
        return setting in fields and fields[setting].annotation in (str, str | None)

    def _followed(
        self, typed: Mapping[str, tuple[str, Any]], values: Values, before: Mapping[str, Any]
    ) -> dict[str, tuple[str, Any]]:
        """Return new values of settings that were equal to the policy's; without a model there, its options."""
        if values.get(("policy", "name")) not in plugins.names("models"):
            return {key: each for key, each in typed.items() if key in SHARED}
        pairs = {key: [values.get((part, "service", key)) for part in (self.role, "policy")] for key in SHARED}
        return {
            key: (self.flag, new)
            for key, (own, new) in pairs.items()
            if own == before.get(key) and None not in (own, new)
        }

    def check(self, values: Values) -> None:
        """Replace the texts of flags by typed settings.

        Raises:
            ConfigError: a setting cannot be used; PluginError: the part cannot.
        """
        part = values.get((self.role,))
        if not isinstance(part, dict) or not isinstance(part.get("name"), str):
            return  # the config reports its own error
        kind = part_type("student" if self.role == "policy" else "teacher", part["name"])
        types: dict[str, type[Settings]] = {"options": kind.config_type}
        if part["name"] in plugins.names("models"):
            types["service"] = kind.service_type
        for key, settings in types.items():
            # This also finds a missing model, which is the only required option of a model.
            checked = values.read(settings, (self.role, key), f"{self.role} {part['name']}: ").model_dump(mode="json")
            if part.get(key):
                part[key] = {name: checked[name] for name in part[key]}


Asked = TypeVar("Asked", bound=AskedModel)


class AskedForm(Form[Asked]):
    """The options of a config that names a model to ask about many cases, and those of its server."""

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        yield from super().parameters()
        yield from OF_SHARED_SERVER.parameters()
        yield parameter("model__no_cache", bool, NO_CACHE)

    def put_flags(self, arguments: Mapping[str, Any], values: Values) -> None:
        """Override values by flags; see the base class."""
        super().put_flags(arguments, values)
        for key, (flag, value) in typed(OF_SHARED_SERVER, arguments).items():
            values.put(("service", key), value, flag)

    def resolve(self, values: Values) -> Asked:
        """Check the values, those of the server by the model's backend; see the base class."""
        config = super().resolve(values)
        if not config.service:
            return config
        kind = plugins.load("models", config.backend_name).service_type
        settings = values.read(kind, ("service",), "service setting ").model_dump(mode="json")
        return config.model_copy(update={"service": {key: settings[key] for key in config.service}})
