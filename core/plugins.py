"""Plugins: found by name through entry points, and checked when they are loaded.

PIVOT's own parts are registered like a third party's (``pyproject.toml``), so adding one is a new file and one line.
Each group has a contract, an abstract class; a member that does not fit it is refused when it is loaded, in one message
that names group, package and fix. An error inside a plugin's own constructor is that plugin's bug and stays a
traceback.
"""

import ast
import os
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from .contracts import Contract, Terms, attribute_misfit, note_origin, shown
from .errors import ConfigError, PluginError

_PACKAGE = __name__.partition(".")[0]
WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""Pattern of names and failure modes, which folders, columns and prompts contain."""


class Settings(BaseModel):
    """Settings of a plugin: typed fields with defaults; the text under a field is its help."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, hide_input_in_errors=True
    )


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

    def expected(self) -> type:
        """Import the contract."""
        module, _, name = self.contract.partition(":")
        return getattr(import_module(f"{_PACKAGE}.{module}"), name)


GROUPS = {
    "environments": Group("environment", "environments.base:PivotEnv"),
    "solvers": Group("solver", "solvers.base:Solver"),
    "provers": Group("prover", "solvers.base:Prover"),
    "models": Group("model", "models.base:Backend"),
    "policies": Group("policy", "rollouts.base:Policy"),
    "players": Group("player", "environments.player:Player"),
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
def _entry_points(group: str) -> list[EntryPoint]:
    """Return every entry point of a group once, by name; an editable install may list its own twice."""
    points = {(each.name, each.value): each for each in entry_points(group=f"pivot.{group}")}
    return sorted(points.values(), key=lambda point: point.name)


def _by_name(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in _entry_points(group)}


def _origin(point: EntryPoint) -> str:
    return f"{point.value}, from {point.dist.name if point.dist else 'an unknown distribution'}"


def blamed(error: BaseException) -> str | None:
    """Return one line about an error inside a third party's plugin; None for an error of our own.

    The innermost frame that belongs to a plugin or to PIVOT decides. Frames of other processes are read from the text
    that their pool sent along.
    """
    ours = f"{Path(__file__).parent}{os.sep}"
    text = "".join(traceback.format_exception(error))
    for block in text.split("Traceback (most recent call last)")[1:]:
        frames = [(path, int(line)) for path, line in re.findall(r'^ *File "(.+?)", line (\d+)', block, re.MULTILINE)]
        while frames:
            path, line = frames[-1]
            if points := _entry_points_of(path):
                what = " ".join(f"{type(error).__name__}: {error}".split())
                return f"{_owner(points, frames)} failed with {what} at {path}:{line}; fix or uninstall that package"
            if path.startswith(ours) and "site-packages" not in path.removeprefix(ours):
                break
            frames.pop()
    return None


def _entry_points_of(path: str) -> list[EntryPoint]:
    """List the entry points of the third party's package that a source file belongs to."""
    points: list[EntryPoint] = []
    for group in GROUPS:
        for point in _entry_points(group):
            module = sys.modules.get(point.module.partition(".")[0])
            if module is None or module.__name__ == _PACKAGE:
                continue
            folders = [f"{folder}{os.sep}" for folder in getattr(module, "__path__", ())]
            if path == module.__file__ or path.startswith(tuple(folders)):
                points.append(point)
    return points


def _owner(points: list[EntryPoint], frames: list[tuple[str, int]]) -> str:
    """Name the entry point whose class has the innermost frame; else the package."""
    for path, line in reversed(frames):
        here = [point for point in points if getattr(sys.modules.get(point.module), "__file__", None) == path]
        around = _class_around(path, line)
        named = [point for point in here if point.attr.partition(".")[0] == around]
        if named or len(here) == 1:
            return _describe((named or here)[0])
    if len(points) == 1:
        return _describe(points[0])
    package = points[0].dist.name if points[0].dist else points[0].module.partition(".")[0]
    return f"package {package!r} ({', '.join(f'{_member(point)} {point.name!r}' for point in points)})"


def _class_around(path: str, line: int) -> str | None:
    """Return the name of the top-level class in which a line of a source file is."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return next((node.name for node in classes if node.lineno <= line <= (node.end_lineno or 0)), None)


def _member(point: EntryPoint) -> str:
    return GROUPS[point.group.partition(".")[2]].member


def _describe(point: EntryPoint) -> str:
    return f"{_member(point)} {point.name!r} ({_origin(point)})"


def names(group: str) -> list[str]:
    """List the registered names of one group, sorted."""
    return list(_by_name(group))


def is_ours(group: str, name: str) -> bool:
    """Whether a registered plugin is part of PIVOT itself."""
    return _by_name(group)[name].module.partition(".")[0] == _PACKAGE


@cache
def load(group: str, name: str) -> Any:
    """Import, check and return what is registered as ``name`` in ``group``: a class, for prompts and domains an object.

    Raises:
        PluginError: the name is not registered, importing it failed, or it does not fit the contract of its group.
    """
    points, member = _by_name(group), GROUPS[group].member
    if name not in points:
        registered = ", ".join(points) or "none; reinstall the package so that its entry points are registered"
        raise PluginError(f"unknown {member} {name!r}; registered: {registered}")
    point = points[name]
    origin = _describe(point)
    if twice := [each for each in _entry_points(group) if each.name == name and each.value != point.value]:
        raise PluginError(
            f"{origin} is registered a second time ({_origin(twice[0])}), expected each name once; uninstall one"
        )
    try:
        part = point.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{origin} failed to import: {type(error).__name__}: {error}; fix or uninstall that package"
        ) from error
    if problem := _misfit(GROUPS[group], name, part):
        raise PluginError(f"{origin} does not fit the group pivot.{group}: {problem}; fix or uninstall that package")
    note_origin(part, name, origin)
    return part


def _misfit(group: Group, name: str, part: Any) -> str | None:
    """Return why ``part`` cannot be used as the plugin ``name``, or None."""
    contract = group.expected()
    where = f"pivot.{contract.__module__.partition('.')[2]}.{contract.__name__}"
    if not WORD.fullmatch(name):
        return f"its name is {name!r}, expected lower-case letters, digits and underscores, 40 at most"
    if group.objects:
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
"""Context of settings that a store brought with it: they are complete, and checking them touches nothing outside."""


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


_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "dict_type": "an object",
    "model_type": "an object",
    "mapping_type": "an object",
    "tuple_type": "a list",
    "list_type": "a list",
    "missing": "a value; it has no default",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "one of {expected}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "enum": "one of {expected}",
    "none_required": "nothing",
    "path_type": "a path",
}


def expectation(problem: Mapping[str, Any]) -> str:
    """Say what one error of pydantic's validation expected, in our words."""
    return _EXPECTED.get(problem["type"], "another value").format(**problem.get("ctx", {}))


def explain(error: ValidationError, where: str, kind: type[BaseModel]) -> str:
    """Say in one line which setting cannot be used, what it is, and what it could be."""
    problem = error.errors()[0]
    name = ".".join(str(part) for part in problem["loc"])
    field = (where + name).rstrip(".: ")
    context = problem.get("ctx", {})
    if problem["type"] == "extra_forbidden":
        fields = f"known: {', '.join(kind.model_fields) or 'none'}"
        return f"{where}unknown setting {name}; {fields}" if where.endswith(": ") else f"unknown {field}; {fields}"
    if problem["type"] == "value_error":  # a validator's own words
        return f"{field}: {context['error']}"
    value = "nothing" if problem["type"] == "missing" else repr(problem["input"])
    return f"{field}: found {value}, expected {expectation(problem)}"
