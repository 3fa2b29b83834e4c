"""Options that name a model, set its sampling and reach its server: for a policy, a teacher, or an Analyzer.

They come from two models: :class:`.ModelOptions` decides answers, so it is part of every id; :class:`.Service` holds
address, limits, cache and prices, which may differ from run to run. A teacher has every option of a policy with
``--teacher-`` before its name, and shares the server of the policy unless its own options say otherwise.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import typer
from pydantic.fields import FieldInfo

from ..core import plugins
from ..core.errors import ConfigError
from ..core.plugins import Settings
from ..datasets.store.config import RunConfig, part_type
from ..models.base import ModelOptions
from ..models.service import Service
from .from_config import key_and_value, parameter
from .help_texts import help_text, metavar_of
from .values import Values, plain

RoleName = Literal["policy", "teacher", "analyzer"]

PANELS: dict[RoleName, tuple[str, str]] = {
    "policy": (
        "Model of the policy (--policy openai, transformers or vllm)",
        "Model server (does not affect the data)",
    ),
    "teacher": (
        "Model of the teacher (--teacher openai, transformers or vllm)",
        "Server of the teacher (does not affect the data)",
    ),
    "analyzer": ("Model", "Model server"),
}
"""Headings of the help: for the model, and for its server."""

NAMES = {"request_seconds": "request-timeout", "episode_seconds": "episode-timeout", "patience_seconds": "patience"}
"""Options whose name differs from that of their field."""
DEFAULTS = {
    "base_url": "OPENAI_BASE_URL, or OpenAI's",
    "cache": "one file for all runs",
}
"""Defaults in words; for policy and teacher with ``|`` between them."""
SHARED = frozenset({"base_url", "key_variable", "max_concurrency", "request_seconds", "patience_seconds", "cache"})
"""Service settings of the policy that hold for the teacher, too; prices belong to one model."""
SET_BY_BUILD = frozenset({"refresh", "payer"})
"""Service settings that a build sets itself; --policy-service and --teacher-service reach them."""


@dataclass(frozen=True, slots=True)
class ModelFlag:
    """One setting of a model as an option."""

    key: str
    """Name of the setting."""
    part: Literal["options", "service"]
    field: FieldInfo

    @property
    def name(self) -> str:
        """Name of the option of a policy, without the dashes."""
        return NAMES.get(self.key, self.key.replace("_", "-"))

    def written(self, role: RoleName) -> str:
        """Return the option of a role."""
        return f"--teacher-{self.name}" if role == "teacher" else f"--{self.name}"

    def help_of(self, role: RoleName, *, follows: bool) -> str:
        """Return its help; a teacher that ``follows`` a policy shares the server of it."""
        options = {each.key: each.written(role) for each in flags_of(role)}
        text = help_text(self.field.description or "", options).rstrip(".")
        default = DEFAULTS.get(self.key, "").split("|")[-1 if role == "teacher" else 0]
        value = self.field.get_default(call_default_factory=True)
        default = f"as --{self.name}" if follows else default or ("" if value in (None, "") else str(value))
        return f"{text} (default: {default})." if default else f"{text}."


def flags_of(role: RoleName) -> list[ModelFlag]:
    """Return the settings that a role has options for."""
    options = [ModelFlag(key, "options", field) for key, field in ModelOptions.model_fields.items()]
    service = [ModelFlag(key, "service", field) for key, field in Service.model_fields.items()]
    service = [each for each in service if each.key not in SET_BY_BUILD]
    if role == "analyzer":
        return [each for each in service if each.key in SHARED]
    return options + [each for each in service if role == "policy" or each.key != "episode_seconds"]


@dataclass(frozen=True, slots=True)
class ModelFlags:
    """The options of one role in a command."""

    role: RoleName
    follows: bool = False
    """Whether the command has a policy whose server this teacher shares."""

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command, for typer to make options of."""
        for flag in flags_of(self.role):
            names = [flag.written(self.role)]
            if self.role == "teacher" and flag.key in SHARED and not self.follows:
                names.append(f"--{flag.name}")  # no other model of the command could be meant
            panel = PANELS[self.role][flag.part == "service"]
            text = flag.help_of(self.role, follows=self.follows and flag.key in SHARED)
            metavar = metavar_of(flag.field.annotation)
            about = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, show_default=False)
            yield parameter(self._parameter(flag.key), str, about)
            if flag.key == "cache":
                off = [name.replace("--", "--no-", 1).replace("no-teacher-", "teacher-no-") for name in names]
                switch = typer.Option(*off, help="Neither read nor fill the call cache.", rich_help_panel=panel)
                yield parameter(self._parameter("no_cache"), bool, switch)

    def _parameter(self, key: str) -> str:
        return f"{self.role}__{key}"

    def settings(self, arguments: Mapping[str, Any], part: str) -> dict[str, tuple[str, Any]]:
        """Return the options or service settings that the command line gives: key to flag and text."""
        chosen: dict[str, tuple[str, Any]] = {}
        for flag in flags_of(self.role):
            value = arguments.get(self._parameter(flag.key))
            if flag.part == part and value is not None:
                chosen[flag.key] = flag.written(self.role), value
        if part == "service" and arguments.get(self._parameter("no_cache")):
            chosen["cache"] = "--no-cache", ""
        return chosen


class PartFlags:
    """The options of a policy or a teacher: its name, its own settings, and those of a model."""

    def __init__(self, role: Literal["policy", "teacher"], *, follows: bool = False) -> None:
        """Take the role; ``follows`` says that a teacher shares the server of a policy of the command."""
        self.role: RoleName = role
        self.follows = follows
        self.models = ModelFlags(role, follows)

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        default = RunConfig.model_fields[self.role].default.name
        what = {"policy": "acts in the environment", "teacher": "writes guidance"}[self.role]
        named = typer.Option(
            f"--{self.role}",
            metavar="NAME",
            help=f"The {self.role}, which {what} (default: {default}, built in, in place of a model).",
        )
        yield parameter(f"{self.role}__name", str, named)
        own = typer.Option(
            f"--{self.role}-set",
            metavar="KEY=VALUE",
            help=f"Setting of the {self.role}, as pivot settings NAME lists them. May be repeated.",
        )
        yield parameter(f"{self.role}__own", list[str], own)
        service = typer.Option(
            f"--{self.role}-service",
            metavar="KEY=VALUE",
            help="Setting of its model server that has no option of its own. May be repeated.",
            rich_help_panel=PANELS[self.role][1],
        )
        yield parameter(f"{self.role}__service_own", list[str], service)
        yield from self.models.parameters()

    def changes(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the command line says anything about this part."""
        return any(arguments.get(each.name) not in (None, [], False) for each in self.parameters())

    def put(self, arguments: Mapping[str, Any], values: Values, *, excused: bool = False) -> None:
        """Put what the command line says of the part over what is there; another name starts afresh.

        Args:
            arguments: parameters of the command.
            values: a run config; a teacher that follows the policy reads its service settings there.
            excused: whether settings of a server may be meant for the other role.

        Raises:
            ConfigError: model settings for a part that is not a model.
        """
        role = self.role
        before = values.get((role,))
        if before is None:
            before = RunConfig.model_fields[role].default.model_dump()
            values.put((role,), before, f"--{role}")
        name = arguments.get(f"{role}__name")
        if name is not None and isinstance(before, dict) and name != before.get("name"):
            values.put((role,), {"name": name}, f"--{role}")
        texts: Mapping[str, Any] = {"options": "own", "service": "service_own"}
        for part, key in texts.items():
            flag = f"--{role}-{'set' if part == 'options' else 'service'}"
            for text in arguments.get(f"{role}__{key}") or ():
                setting, value = key_and_value(flag, text, "; see: pivot settings POLICY")
                values.put((role, part, setting), value, f"{flag} {setting}")
        chosen = {part: self.models.settings(arguments, part) for part in ("options", "service")}
        current = values.get((role, "name"))
        if current not in plugins.names("models"):
            useless = {**chosen["options"], **chosen["service"]}
            for key, (flag, _) in useless.items():
                if not (excused and key in SHARED):
                    raise ConfigError(
                        f"{flag}: {role} {current!r} is not a model, so it cannot use this option; "
                        f"name a model, such as --{role} openai"
                    )
            return
        if self.follows:
            chosen["service"] = {**self._followed(arguments, values), **chosen["service"]}
        for part, settings in chosen.items():
            for key, (flag, value) in settings.items():
                values.put((role, part, key), value, flag)

    def _followed(self, arguments: Mapping[str, Any], values: Values) -> dict[str, tuple[str, Any]]:
        """Return the policy's options that hold here: those of which a config file says nothing else."""
        shared = ModelFlags("policy").settings(arguments, "service")
        own = values.get((self.role, "service")) or {}
        before = arguments.get("policy__service_before") or {}
        fields = plugins.load("models", values.get((self.role, "name"))).service_type.model_fields
        return {
            key: each
            for key, each in shared.items()
            if key in SHARED and key in fields and (key not in own or own[key] == before.get(key))
        }

    def check(self, values: Values) -> None:
        """Replace the texts of flags by the typed settings that they stand for.

        Raises:
            ConfigError: a setting cannot be used; PluginError: the part cannot.
        """
        part = values.get((self.role,))
        if not isinstance(part, dict) or not isinstance(part.get("name"), str):
            return  # the config says what is wrong with it
        kind = part_type("student" if self.role == "policy" else "teacher", part["name"])
        types: dict[str, type[Settings]] = {"options": kind.config_type}
        if part["name"] in plugins.names("models"):
            types["service"] = kind.service_type
        for key, settings in types.items():
            # A missing model is found here, too: a model has no other required option.
            checked = values.read(settings, (self.role, key), f"{self.role} {part['name']}: ")
            if key in part:
                part[key] = {name: plain(getattr(checked, name)) for name in part[key]}
