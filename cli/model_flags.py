"""The options that name a model, say how it draws its answers, and how it is reached: one table for every role.

Model, revision and sampling decide answers: they go into the options of a part and so into every id. Address, limits,
cache and prices go into its service settings, which decide no byte and may differ from run to run. A teacher has every
option of a policy with ``--teacher-`` before its name; how a server is reached holds for both unless it says otherwise.
"""

import functools
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import typer

from .. import plugins
from ..errors import ConfigError

Role = Literal["policy", "teacher", "analyzer"]

_PANELS: dict[Role, tuple[str, str]] = {
    "policy": (
        "Model that acts (policies openai, transformers, vllm)",
        "Model server (decides no byte of the data; may differ from run to run)",
    ),
    "teacher": (
        "Model that writes guidance (teachers openai, transformers, vllm)",
        "Its server (decides no byte of the data)",
    ),
    "analyzer": ("Model", "Model server"),
}
"""Headings of the help, for what decides answers and for what does not."""


@dataclass(frozen=True, slots=True)
class _Flag:
    """A setting of a model as an option."""

    name: str
    key: str
    """Its name in the config."""
    kind: type
    help: str
    default: str = ""
    """In words; of a policy and of a teacher with ``|`` between them where they differ."""
    lowest: float | None = None

    @property
    def part(self) -> str:
        """Return the part of the config that holds it."""
        return "options" if self in _OPTIONS else "service"

    def parameter(self, role: Role, roles: Collection[Role]) -> inspect.Parameter:
        """Return the parameter of a command that has options of ``roles``."""
        default = self.default.split("|")[-1 if role == "teacher" else 0]
        names = [f"--teacher-{self.name}"] if role == "teacher" else [f"--{self.name}"]
        if self.key in SHARED and role == "teacher":
            if "policy" in roles:
                default = f"as --{self.name}"
            else:
                names.append(f"--{self.name}")  # there is no other model that could be meant
        option: Any = typer.Option(
            *names,
            help=f"{self.help}{f' (default: {default})' if default else ''}.",
            rich_help_panel=_PANELS[role][self.part == "service"],
            min=self.lowest,
            show_default=False,
        )
        switch = self.kind is bool
        kind: Any = Annotated[bool if switch else self.kind | None, option]
        name = self.parameter_name(role)
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if switch else None, annotation=kind
        )

    def parameter_name(self, role: Role) -> str:
        """Return the name of the parameter."""
        return f"{role}_{self.name.replace('-', '_')}"


_OPTIONS = (
    _Flag("model", "model", str, "Its name on the server, or a folder or hub id"),
    _Flag("revision", "revision", str, "Its revision; another one counts as another model"),
    _Flag("temperature", "temperature", float, "Sampling temperature", "1.0, as for training rollouts|0, greedy", 0),
    _Flag("top-p", "top_p", float, "Nucleus sampling", "1.0, all tokens"),
    _Flag("top-k", "top_k", int, "Draw from the k likeliest tokens", "0, all", 0),
    _Flag("max-tokens", "max_tokens", int, "Longest answer in tokens", "512, the most|512", 1),
)
_SERVICE = (
    _Flag("base-url", "base_url", str, "Address, such as http://localhost:8000/v1", "OPENAI_BASE_URL, or OpenAI's"),
    _Flag("key-variable", "key_variable", str, "Environment variable that holds the key", "OPENAI_API_KEY"),
    _Flag("max-concurrency", "max_concurrency", int, "Most requests in flight; adapts itself below", "256", 1),
    _Flag("request-timeout", "request_seconds", float, "Seconds that one try of a request may take", "120"),
    _Flag("episode-timeout", "episode_seconds", float, "Seconds that an episode may take in all", "3600"),
    _Flag("patience", "patience_seconds", float, "Seconds without any answer after which the run stops", "180"),
    _Flag("cache", "cache", str, "File of the call cache, which pivot cache shows", "one for all runs"),
    _Flag("no-cache", "cache", bool, "Neither read nor fill the call cache"),
    _Flag("price-in", "price_in", float, "Price of a million prompt tokens, to count cost", "", 0),
    _Flag("price-out", "price_out", float, "Price of a million reply tokens", "", 0),
)

SHARED = frozenset({"base_url", "key_variable", "max_concurrency", "request_seconds", "patience_seconds", "cache"})
"""Service settings that hold for policy and teacher alike; prices are of one model."""


def flags_of(role: Role) -> list[_Flag]:
    """Return the settings that are of use to a role."""
    if role == "analyzer":
        return [flag for flag in _SERVICE if flag.key in SHARED]
    return [flag for flag in (*_OPTIONS, *_SERVICE) if role == "policy" or flag.key != "episode_seconds"]


@dataclass(frozen=True, slots=True)
class Models:
    """What the options of a command say about models, by role."""

    options: Mapping[str, Mapping[str, Any]]
    service: Mapping[str, Mapping[str, Any]]

    def policy(self, name: str | None, own: Mapping[str, Any], teacher: str | None) -> "Change":
        """Return the change of the policy ``name``; how a server is reached may be meant for the ``teacher`` alone."""
        excused = SHARED if teacher in plugins.names("models") else frozenset[str]()
        return Change(name, self.options["policy"], self.service["policy"], own, excused=excused)

    def teacher(self, name: str | None) -> "Change":
        """Return the change of the teacher ``name``."""
        shared = {key: value for key, value in self.service.get("policy", {}).items() if key in SHARED}
        return Change(name, self.options["teacher"], self.service["teacher"], shared=shared)


def with_models(*roles: Role) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of the models in ``roles``; it takes what they say as one argument, ``models``."""
    flags: list[tuple[Role, _Flag]] = [(role, flag) for role in roles for flag in flags_of(role)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            parts: dict[str, dict[str, dict[str, Any]]] = {
                part: {role: {} for role in roles} for part in ("options", "service")
            }
            for role, flag in flags:
                value = values.pop(flag.parameter_name(role))
                if value is not None and value is not False:
                    parts[flag.part][role][flag.key] = "" if value is True else value
            command(**values, models=Models(parts["options"], parts["service"]))

        own = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in own.parameters.values():
            generated = [flag.parameter(role, roles) for role, flag in flags]
            parameters += generated if parameter.name == "models" else [parameter.replace(kind=parameter.KEYWORD_ONLY)]
        run.__signature__ = own.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
        return run

    return decorate


PolicySettings = Annotated[
    list[str] | None,
    typer.Option(
        "--policy-set",
        help="Setting KEY=VALUE of a policy that is no model (see `pivot settings NAME`); may be given again.",
    ),
]


def own(texts: Sequence[str] | None) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts; the value is JSON, or a text.

    Raises:
        ConfigError: one is written otherwise.
    """
    values: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ConfigError(f"--policy-set {text}: expected KEY=VALUE; see: pivot settings POLICY")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values


@dataclass(frozen=True, slots=True)
class Change:
    """What the command line says about a policy or teacher."""

    name: str | None
    options: Mapping[str, Any]
    service: Mapping[str, Any]
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of a policy that is no model."""
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Service settings of the policy, which a teacher follows."""
    excused: Collection[str] = ()
    """Service settings that a part which is no model may be given, because they are meant for another one."""

    def apply(self, key: str, before: Mapping[str, Any], policy: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the part as plain data; another name starts afresh, the same one keeps what a config file says of it.

        Args:
            key: ``policy`` or ``teacher``.
            before: the part so far.
            policy: the policy so far, whose service settings a teacher follows where it has none of its own.

        Raises:
            ConfigError: model settings for a part that is no model; PluginError: the part is unknown.
        """
        part: dict[str, Any] = dict(before) if self.name in (None, before["name"]) else {"name": self.name}
        if self.own:
            part["options"] = {**part.get("options", {}), **self.own}
        if part["name"] not in plugins.names("models"):
            settings = [*self.options, *(each for each in self.service if each not in self.excused)]
            if settings:
                raise ConfigError(
                    f"{key} {part['name']!r} is no model and has no use for these settings: {', '.join(settings)}; "
                    f"name one that is, such as --{key} openai"
                )
            return part
        service = {**self._followed(part, policy), **self.service}
        if self.options:
            part["options"] = {**part.get("options", {}), **self.options}
        if service:
            part["service"] = {**part.get("service", {}), **service}
        return part

    def _followed(self, part: Mapping[str, Any], policy: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the policy's settings that hold here: those of which a config file says nothing else."""
        told, theirs = part.get("service", {}), (policy or {}).get("service", {})
        fields = plugins.load("models", part["name"]).service_type.model_fields
        return {
            name: value
            for name, value in self.shared.items()
            if name in fields and (name not in told or told[name] == theirs.get(name))
        }
