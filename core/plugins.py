"""Plugins: found by name through entry points, and checked when they are loaded.

PIVOT's own parts are registered like a third party's (``pyproject.toml``), so adding one is a new file and one line.
Each group has a contract, an abstract class; a member that does not fit it is refused when it is loaded, in one message
that names group, package and fix. An error inside a plugin's own constructor is that plugin's bug and stays a
traceback.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from .contracts import EXPECTED, Contract, Terms, attribute_misfit, note_origin, shown
from .errors import ConfigError, PluginError
from .lazy import near_match

_PACKAGE, _DISTRIBUTION = __name__.partition(".")[0], "pivot-vlm"
WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""Pattern of names and failure modes, which folders, columns and prompts contain."""


class Settings(BaseModel):
    """Settings of a plugin: typed fields with defaults; the text under a field is its help."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[str(info.field_name)].annotation
        kinds = get_args(kind) or (kind,)
        if isinstance(value, bool) and bool not in kinds and (int in kinds or float in kinds):
            raise PydanticKnownError("int_type" if int in kinds else "float_type")
        return value


class Plugin(Contract):
    """Base of the contracts whose members are classes with settings."""

    terms: ClassVar[Terms] = Terms(arguments=1)
    config_type: ClassVar[type[Settings]]
    """Type of its settings, from which flags, ``--set``, ``--help`` and messages come; every plugin declares one."""

    def __init__(self, settings: Settings | None = None, **values: Any) -> None:
        """Take settings, or single values of them and defaults for the rest.

        Raises:
            ConfigError: a value is unknown or cannot be used.
        """
        self.settings: Any = settings if settings is not None else read_settings(self.config_type, values, "setting ")

    @classmethod
    def misfit(cls) -> str | None:
        """Return what of the class breaks its contract, or None; called once, when the class is loaded."""
        declared = getattr(cls, "config_type", None)
        if declared is None:
            return "it declares no config_type; give it a subclass of pivot.plugin.Settings, or that class itself"
        if not (isinstance(declared, type) and issubclass(declared, Settings)):
            return f"its config_type is {shown(declared)}, expected a subclass of pivot.plugin.Settings"
        return super().misfit()


@dataclass(frozen=True, slots=True)
class Group:
    """One kind of plugin."""

    member: str
    """Name of a member in messages."""
    contract: str
    """Module and name of its abstract class; imported when the first member is loaded."""
    objects: bool = False
    """Whether members are objects of that class, not subclasses of it."""


GROUPS = {
    "environments": Group("environment", "environments.base:PivotEnv"),
    "solvers": Group("solver", "solvers.base:Solver"),
    "provers": Group("prover", "solvers.base:Prover"),
    "models": Group("model", "models.base:Backend"),
    "policies": Group("policy", "rollouts.base:Policy"),
    "players": Group("player", "environments.turns:Player"),
    "prompts": Group("prompt", "environments.turns:StudentPrompt", objects=True),
    "domains": Group("domain", "labeling.domains.base:Domain", objects=True),
    "writers": Group("writer", "labeling.base:GuidanceWriter"),
    "filters": Group("filter", "labeling.base:Filter"),
    "engines": Group("engine", "flows.engines.base:Engine"),
    "generators": Group("generation engine", "training.policy_rl.engines.base:Generator"),
    "arms": Group("arm", "training.policy_rl.hindsight.contexts:Arm", objects=True),
    "objectives": Group("objective", "training.policy_rl.extensions.objectives:Objective"),
    "advantages": Group("estimator of advantages", "training.policy_rl.extensions.advantages:AdvantageEstimator"),
    "importers": Group("import format", "interop.base:Importer"),
    "exporters": Group("export format", "datasets.export.base:Exporter"),
    "storages": Group("storage", "core.storage.base:Storage"),
}


@cache
def _listed_in_the_source_tree() -> Mapping[str, Mapping[str, str]]:
    """Return the entry points of ``pyproject.toml`` by group; none if PIVOT is installed."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    try:
        distribution(_DISTRIBUTION)
    except PackageNotFoundError:
        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"] if project.exists() else {}
    return {}


@cache
def registered(group: str) -> list[EntryPoint]:
    """Return every entry point of a group once, by name; an editable install may list its own twice.

    A source tree that is not installed has no entry points of its own: those of ``pyproject.toml`` are taken.
    """
    points = {(each.name, each.value): each for each in entry_points(group=f"pivot.{group}")}
    for name, value in _listed_in_the_source_tree().get(f"pivot.{group}", {}).items():
        points[name, value] = EntryPoint(name, value, f"pivot.{group}")
    return sorted(points.values(), key=lambda point: point.name)


def _origin(point: EntryPoint) -> str:
    return f"{point.value}, from {point.dist.name if point.dist else 'an unknown distribution'}"


def member_of(point: EntryPoint) -> str:
    """Return the name of a member of a plugin's group."""
    return GROUPS[point.group.partition(".")[2]].member


def described(point: EntryPoint) -> str:
    """Return kind, name and origin of a plugin."""
    return f"{member_of(point)} {point.name!r} ({_origin(point)})"


def names(group: str) -> list[str]:
    """List the registered names of one group, sorted."""
    return list({point.name: point for point in registered(group)})


def is_ours(group: str, name: str) -> bool:
    """Whether a registered plugin is part of PIVOT itself."""
    return {point.name: point for point in registered(group)}[name].module.partition(".")[0] == _PACKAGE


@cache
def load(group: str, name: str) -> Any:
    """Import, check and return what is registered as ``name`` in ``group``: a class, for prompts and domains an object.

    Raises:
        PluginError: the name is not registered, importing it failed, or it does not fit the contract of its group.
    """
    points, member = {point.name: point for point in registered(group)}, GROUPS[group].member
    if name not in points:
        all_names = ", ".join(points) or "none; reinstall the package so that its entry points are registered"
        raise PluginError(f"unknown {member} {name!r}{near_match(name, points) or ';'} registered: {all_names}")
    point = points[name]
    if twice := [each for each in registered(group) if each.name == name and each.value != point.value]:
        raise PluginError(
            f"{described(point)} is registered a second time ({_origin(twice[0])}), expected each name once; uninstall "
            "one"
        )
    try:
        part = point.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{described(point)} failed to import: {type(error).__name__}: {error}; fix or uninstall that package"
        ) from error
    if point.dist is not None and point.dist.name == _DISTRIBUTION:  # tests check that PIVOT's own fit
        return part
    origin = described(point)
    if problem := misfit(group, name, part):
        raise PluginError(f"{origin} does not fit the group pivot.{group}: {problem}; fix or uninstall that package")
    note_origin(part, name, origin)
    return part


def misfit(group: str, name: str, part: Any) -> str | None:
    """Return why ``part`` cannot be used as the plugin ``name`` of a group, or None."""
    module, _, contract_name = GROUPS[group].contract.partition(":")
    contract: Any = getattr(import_module(f"{_PACKAGE}.{module}"), contract_name)
    where = f"pivot.{contract.__module__.partition('.')[2]}.{contract.__name__}"
    if not WORD.fullmatch(name):
        return f"its name is {name!r}, expected lower-case letters, digits and underscores, 40 at most"
    if GROUPS[group].objects:
        fits = isinstance(part, contract)
        return attribute_misfit(part) if fits else f"it is {shown(part)}, expected an instance of {where}"
    if not (isinstance(part, type) and issubclass(part, contract)):
        return f"it is {shown(part)}, expected a subclass of {where}"
    missing = sorted(each for each in dir(part) if getattr(getattr(part, each, None), "__isabstractmethod__", False))
    if missing:
        return f"it does not define {', '.join(missing)} of {where}"
    kind = cast(type[Contract], part)
    return attribute_misfit(kind) or kind.misfit()


# Settings

Kind = TypeVar("Kind", bound=BaseModel)


STORED = {"stored": True}
"""Context for settings read from a store: they are complete, and validation accesses no file or network."""


def read_settings(
    kind: type[Kind], values: Mapping[str, Any], where: str, context: Mapping[str, Any] | None = None
) -> Kind:
    """Check values and complete them with their defaults; ``where`` is what messages put before a setting's name.

    ``context`` is that of pydantic's validation, such as ``STORED``.

    Raises:
        ConfigError: a setting is unknown, missing, or cannot be used.
    """
    try:
        return kind.model_validate(dict(values), context=context)
    except ValidationError as error:
        raise ConfigError(explain(error, where, kind)) from error


_EXPECTED = EXPECTED | {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "mapping_type": "an object",
    "tuple_type": "a list",
    "missing": "a value; it has no default",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "{min_length} or more characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "enum": "one of {expected}",
    "none_required": "nothing",
    "path_type": "a path",
}


def expectation(problem: Mapping[str, Any]) -> str:
    """Return what one error of pydantic's validation expected, in PIVOT's words."""
    return _EXPECTED.get(problem["type"], "another value").format(**problem.get("ctx", {}))


def explain(error: ValidationError, where: str, kind: type[BaseModel]) -> str:
    """Return one line that names the invalid setting, its value, and the valid values."""
    problem = error.errors()[0]
    name = ".".join(str(part) for part in problem["loc"])
    field = (where + name).rstrip(".: ")
    context = problem.get("ctx", {})
    if problem["type"] == "extra_forbidden":
        hint = near_match(name, kind.model_fields) or ";"
        fields = f"{hint} known: {', '.join(kind.model_fields) or 'none'}"
        return f"{where}unknown setting {name}{fields}" if where.endswith(": ") else f"unknown {field}{fields}"
    if problem["type"] == "value_error":  # a validator's own words
        return f"{field}: {context['error']}"
    value = "nothing" if problem["type"] == "missing" else repr(problem["input"])
    return f"{field}: found {value}, expected {expectation(problem)}"
