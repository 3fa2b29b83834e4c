"""Options of a run config: environments and their settings, policy, teacher, solvers, and the fields of the run."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from pydantic import TypeAdapter, ValidationError

from ..core import plugins
from ..core.errors import ConfigError, PluginError
from ..datasets.store.config import RunConfig, environment, solver_type
from ..datasets.store.run import Run
from .from_config import Flag, Form, nested_setting, parameter
from .model_flags import PartFlags
from .opening import allow_typed_code
from .values import Values

RUN_FLAGS = {
    "include_infeasible": Flag("--infeasible", off="--no-infeasible"),
    "tasks_per_shard": Flag("--shard-size", default="16; up to 128 in a new store with more than 4,096 tasks"),
}
SIZE, LABELS, RARE = "Number of rollouts", "Labels and dataset", "Rarely needed"
RUN_PANELS = {
    SIZE: ("rollouts", "seed", "tasks_per_shard"),
    LABELS: ("guidance", "split", "validation_fraction", "include_infeasible", "target_vocabulary", "log", "license"),
    RARE: ("label_version",),
}


class RunForm(Form[RunConfig]):
    """The options of :class:`.RunConfig`."""

    def __init__(self) -> None:
        """Take the fields of the model, and make options of the nested ones by hand."""
        nested = ("environments", "policy", "teacher", "solvers")
        super().__init__("run", RunConfig, RUN_FLAGS, RUN_PANELS, skip=nested)
        self.policy, self.teacher = PartFlags("policy", "--policy"), PartFlags("teacher", "--writer")

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of a command: the nested fields first."""
        registered = ", ".join(plugins.names("environments"))
        yield parameter("run__envs", list[str], typer.Argument(metavar="ENV...", help=f"Environments: {registered}."))
        for name, kind, metavar, text in _ABOUT_ENVIRONMENTS:
            option = f"--{name.replace('_', '-')}"
            panel = SIZE if name in ("tasks", "levels") else None
            about = typer.Option(option, metavar=metavar, help=text, rich_help_panel=panel)
            yield parameter(f"run__{name}", kind, about)
        yield from super().parameters()
        yield parameter("run__solvers", list[str], SOLVER_OPTION)
        yield from self.policy.parameters()
        yield from self.teacher.parameters()

    def read(self, arguments: Mapping[str, Any], file: Mapping[str, Any], where: str) -> RunConfig:
        """Return the config that flags and file describe; see the base class."""
        values = Values()
        values.put_all({key: value for key, value in file.items() if key in self.keys}, where)
        for key in ("environments", "policy", "teacher", "solvers"):
            refuse_other_shapes(values, key)
        self.put_flags(arguments, values)
        names = _put_environments(arguments, values)
        put_solvers(arguments.get("run__solvers") or (), values, names)
        service = dict(values.get(("policy", "service")) or {})
        self.policy.put(arguments, values)
        self.teacher.put(arguments, values, service)
        return self.resolve(values)

    def resolve(self, values: Values) -> RunConfig:
        """Check the values, those of plugins included, and whether policy and teacher can be used here.

        Raises:
            ConfigError: a value cannot be used; PluginError: a plugin cannot.
        """
        _put_default_tasks(values)
        for part in (self.policy, self.teacher):
            part.check(values)
        config = read_run(values)
        for name in config.environments:
            allow_typed_code(values, name, ("environments", name, "settings"))
        Run(config).check_parts()
        return config


def read_run(values: Values) -> RunConfig:
    """Return the run config of checked parts; a message about a plugin's setting names its flag or key.

    Raises:
        ConfigError: a value cannot be used; PluginError: a plugin cannot.
    """
    try:
        return values.read(RunConfig)
    except (ConfigError, PluginError):
        for name in values.get(("environments",)) or {}:
            values.read(environment(name).config_type, ("environments", name, "settings"), f"setting {name}.")
        for name in values.get(("solvers",)) or {}:
            values.read(solver_type(name).config_type, ("solvers", name), f"solver setting {name}.")
        raise


def refuse_other_shapes(values: Values, key: str) -> None:
    """Let the model refuse values that are not mappings of mappings before other code reads them.

    Raises:
        ConfigError: they are not.
    """
    whole = values.get((key,))
    inner = whole.values() if isinstance(whole, dict) and key in ("environments", "solvers") else ()
    if whole is not None and not (isinstance(whole, dict) and all(isinstance(each, dict) for each in inner)):
        kind: Any = RunConfig.model_fields[key].annotation
        try:
            TypeAdapter(kind).validate_python(whole)
        except ValidationError as error:
            raise ConfigError(values.explain(error, RunConfig, (key,))) from error


# Environments and solvers

_ABOUT_ENVIRONMENTS: tuple[tuple[str, Any, str, str], ...] = (
    ("tasks", str, "N|ENV=N,...", "Number of tasks: one for all, or ENV=N,... (default: the paper's counts)."),
    ("levels", str, "FILE_OR_FOLDER", "Levels of your own, for a puzzle: XSB, gymnasium's desc, JSON or JSON lines."),
    ("set", list[str], "ENV.KEY=VALUE", "Environment setting, as pivot doctor ENV lists them. May be repeated."),
)
"""Options of environments: name, kind of value, placeholder, help."""
SOLVER_OPTION: Any = typer.Option(
    "--solver",
    metavar="ENV.KEY=VALUE",
    help="Solver setting, as pivot doctor ENV lists them; it changes labels alone. May be repeated.",
    rich_help_panel=LABELS,
)


def _put_environments(arguments: Mapping[str, Any], values: Values) -> list[str]:
    """Put environments, levels and settings of the command line over those of a file; return the environments."""
    runs: dict[str, Any] = values.get(("environments",)) or {}
    names: list[str] = list(dict.fromkeys(arguments.get("run__envs") or runs))
    if not names:
        registered = ", ".join(plugins.names("environments"))
        raise ConfigError(f"no environment named; give one or more of: {registered}")
    values.data["environments"] = {name: runs.get(name, {}) for name in names}
    for name, count in _task_counts(arguments.get("run__tasks"), names).items():
        values.put(("environments", name, "tasks"), count, "--tasks")
    if (levels := arguments.get("run__levels")) is not None:
        if not levels:
            raise ConfigError("--levels: found '', expected a file or folder")
        if len(names) > 1 or "levels" not in environment(names[0]).config_type.model_fields:
            raise ConfigError(f"--levels {levels}: found {', '.join(names)}, expected sokoban or frozenlake alone")
        values.put(("environments", names[0], "settings", "levels"), levels, "--levels")
    for text in arguments.get("run__set") or ():
        name, key, value = nested_setting("--set", text, "sokoban.boxes=2")
        _refuse_missing(f"--set {text}", name, names)
        values.put_once(("environments", name, "settings", key), value, f"--set {name}.{key}")
    return names


def _refuse_missing(written: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ConfigError(f"{written}: environment {name!r} is not part of this build ({', '.join(names)})")


def _task_counts(text: str | None, names: Sequence[str]) -> dict[str, int]:
    if text is None:
        return {}
    if text.removeprefix("-").isdecimal():
        return dict.fromkeys(names, int(text))
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if not number.removeprefix("-").isdecimal():
            raise ConfigError(f"--tasks {text}: found {part!r}; expected a number, or ENV=N,ENV=N")
        if name in counts:
            raise ConfigError(f"--tasks {text}: environment {name!r} is there twice; give it one number")
        _refuse_missing(f"--tasks {text}", name, names)
        counts[name] = int(number)
    return counts


def _put_default_tasks(values: Values) -> None:
    """Set missing counts of tasks: the paper's count, or the number of tasks that the settings list."""
    for name, run in values.data["environments"].items():
        kind = environment(name)
        if run.get("tasks") is None:
            where = ("environments", name, "settings")
            listed = kind.fixed_tasks(values.read(kind.config_type, where, f"setting {name}."))
            count = kind.profile.default_tasks if listed is None else len(listed)
            values.put(("environments", name, "tasks"), count, "--tasks")


def put_solvers(texts: Sequence[str], values: Values, names: Sequence[str]) -> None:
    """Overwrite the solver settings of a file by those of the command line, per environment.

    Raises:
        ConfigError: a text is not written as ``ENV.KEY=VALUE``, or names another environment.
    """
    if (before := values.get(("solvers",))) is not None:
        values.data["solvers"] = {name: each for name, each in before.items() if name in names}
    for text in texts:
        name, key, value = nested_setting("--solver", text, "navigation.threshold=1.0")
        _refuse_missing(f"--solver {text}", name, names)
        values.put_once(("solvers", name, key), value, f"--solver {name}.{key}")
