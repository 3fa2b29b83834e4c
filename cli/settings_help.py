"""``pivot settings``: what can be set of a plugin, from its declared settings."""

import json
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from ..core import plugins
from ..core.errors import PluginError
from .console import out, show_table
from .help_texts import help_text

TOPIC = "variables"
"""Topic of ``pivot settings`` that shows them."""


class Variable(NamedTuple):
    """A variable that PIVOT reads, or that a library reads for it."""

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable("OPENAI_API_KEY", "none", "Key of the model server of --policy openai and --writer openai."),
    Variable("OPENAI_BASE_URL", "https://api.openai.com/v1", "Server address if --base-url is not given."),
    Variable("HF_HOME, HF_TOKEN", "those of the library", "Cache folder, and access token, of the Hugging Face hub."),
    Variable("HF_HUB_OFFLINE", "0", "1: use only cached files of the hub."),
    Variable("AWS_ENDPOINT_URL", "Amazon S3", "Another server for s3:// addresses, such as MinIO."),
    Variable(
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
        "none",
        "Credentials for s3:// addresses; the token only where the key came with one.",
    ),
    Variable("AWS_REGION", "us-east-1", "Region for s3:// addresses."),
    Variable("GOOGLE_APPLICATION_CREDENTIALS", "none", "Key file for gs:// addresses."),
    Variable(
        "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN",
        "none",
        "Credentials for az:// addresses: the name, with the key or the token.",
    ),
    Variable(
        "PIVOT_LEASE_SECONDS",
        "120",
        "Lease of a writer on a store in an object store, seconds; requests are retried for 40 s less.",
    ),
    Variable("PREFECT_API_URL", "of the profile", "Prefect server that records builds; without one none does."),
    Variable("PREFECT_HOME", "~/.prefect", "Profiles and records of Prefect."),
    Variable("XDG_CACHE_HOME", "~/.cache", "Folder of the call cache, pivot/calls.sqlite."),
    Variable("NUMBA_CACHE_DIR", "next to the package", "Folder of the compiled renderers and searches."),
    Variable("PIVOT_METRICS_DIR", "none", "Folder for metrics of flow runs, which Prometheus' node_exporter picks up."),
    Variable("PIVOT_TRACEBACK", "none", "1: show an error inside a plugin with its whole traceback."),
    Variable("PIVOT_SVG_WORKERS", "one per core", "Processes that render untrusted SVG documents."),
    Variable("PIVOT_THOR_EXECUTABLE", "downloaded", "Unity build of AI2-THOR to use."),
    Variable("PIVOT_THOR_GPU", "none", "Number of the GPU that AI2-THOR renders on."),
    Variable("PIVOT_THOR_START_SECONDS", "600", "Time limit of the start of an AI2-THOR process."),
    Variable("PIVOT_THOR_STEP_SECONDS", "60", "Time limit of a step; ten times as long for loading a scene."),
    Variable("PIVOT_THOR_DOWNLOAD_SECONDS", "7200", "Time limit of the download of its Unity build."),
    Variable("PIVOT_MANISKILL_START_SECONDS", "300", "Time limit of the start of a ManiSkill process."),
    Variable("PIVOT_MANISKILL_STEP_SECONDS", "60", "Time limit of a step of it."),
)

_FLAGS = {
    "environments": "--set {name}.KEY=VALUE",
    "solvers": "--solver {name}.KEY=VALUE",
    "models": "--policy {name}, --writer {name}",
    "policies": "--policy {name}",
    "writers": "--writer {name}",
    "importers": "pivot import SOURCE --format {name} --option KEY=VALUE",
    "objectives": "--opd-objective {name} --objective-set KEY=VALUE",
    "advantages": "--advantages {name} --advantages-set KEY=VALUE",
}
"""Groups whose settings a run chooses, and the option that does it."""


def settings(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help=f"Environments, models, policies, writers, formats; or {TOPIC} for environment variables.",
        ),
    ] = None,
) -> None:
    """Show the settings of an environment and its solver, a model, a policy, a teacher or a format of pivot import.

    [bold]Examples[/]

    pivot settings

    pivot settings sokoban

    pivot settings variables
    """
    registered = {name for group in _FLAGS for name in plugins.names(group)} | {TOPIC}
    for name in names or ():
        if name not in registered:
            raise PluginError(f"unknown plugin {name!r}; registered: {', '.join(sorted(registered))}")
    if not names:
        rows = [[group, ", ".join(plugins.names(group))] for group in _FLAGS]
        show_table("Plugins with settings", ["group", "names"], [*rows, ["environment", TOPIC]])
        return
    for name in names:
        if name == TOPIC:
            rows = [[name, f"{meaning} Default: {default}."] for name, default, meaning in VARIABLES]
            show_table("Environment variables", ["name", "what it is"], rows)
        for group, flag in _FLAGS.items():
            if name in plugins.names(group):
                _show(group, name, flag)


def _show(group: str, name: str, flag: str) -> None:
    member, kind = plugins.GROUPS[group].member, plugins.load(group, name).config_type
    rows = [[*row, help_text(text, {})] for *row, text in settings_rows(kind)]
    if rows:
        show_table(f"{member} {name}: {flag.format(name=name)}", ["key", "type", "default", "what it is"], rows)
    else:
        out.print(f"{member} {name} has no settings")


def settings_rows(kind: type[BaseModel]) -> list[list[str]]:
    """Return key, type, default and help of every setting."""
    return [
        [key, type_text(field), default_text(field), " ".join((field.description or "").split())]
        for key, field in kind.model_fields.items()
    ]


def type_text(field: FieldInfo) -> str:
    """Name what a setting may be: its type in words, and its limits."""
    limits = {type(limit): limit for limit in field.metadata}
    low, high = limits.get(Ge), limits.get(Le)
    if low is not None and high is not None:
        return f"{_words(field.annotation)}, {low.ge} to {high.le}"
    signs = ((Gt, "gt", ">"), (Ge, "ge", ">="), (Lt, "lt", "<"), (Le, "le", "<="))
    bounds = [f"{sign} {getattr(limits[kind], name)}" for kind, name, sign in signs if kind in limits]
    return " ".join([_words(field.annotation), *bounds])


def _words(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin in (Union, UnionType):
        named = [_words(part) for part in parts if part is not NoneType]
        return " or ".join([*named, *(["null"] if NoneType in parts else [])])
    if origin in (tuple, list):
        return f"list of {_words(parts[0])}"
    if origin is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "object"
    return _NAMES.get(kind, getattr(kind, "__name__", str(kind)))


_NAMES: dict[Any, str] = {str: "text", bool: "true or false", int: "int", float: "float", dict: "object"}


def default_text(field: FieldInfo) -> str:
    """Return the default of a setting as JSON."""
    default = field.get_default(call_default_factory=True)
    return "required" if default is PydanticUndefined else json.dumps(to_jsonable_python(default))
