"""The typed config of a run: everything that decides the bytes of a store, resolved before anything starts.

``DIR/run.json`` holds it with the versions that ran; ``--config`` reads it again. Workers, progress and folder, which
do not change bytes, are not in it.
"""

from collections.abc import Mapping
from ctypes import CDLL, c_char_p
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from operator import is_, not_
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from ...core import plugins
from ...core.errors import ConfigError, PluginError
from ...core.messages import Role
from ...core.plugins import STORED, Settings, explain, read_settings
from ...environments.base import EnvConfig, PivotEnv
from ...labeling.action_log import LogDetail
from ...labeling.base import Filter, GuidanceSource
from ...labeling.target import Vocabulary
from ...rollouts.base import GROUP_SIZE
from ...solvers.base import Solver

FORMAT = 1
"""Raised when stored rows get another meaning, or equal inputs other bytes; part of receipts, and of ``run.json``."""


class PartConfig(BaseModel):
    """A policy or teacher by its registered name, with its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    """The registered name, such as ``scripted`` or ``openai``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings that decide the answers: model, revision, sampling. Part of ids and receipts."""
    service: dict[str, Any] = Field(default_factory=dict, exclude_if=not_)
    """Settings of the model's server: address, limits, cache, prices. They do not affect answers, so ids do not contain
    them, and a build may resume with another address. Kept in ``run.json``, without credentials."""

    @field_validator("service")
    @classmethod
    def _strip_credentials(cls, service: dict[str, Any]) -> dict[str, Any]:
        """Remove credentials from an address before it is stored."""
        if "base_url" not in service:
            return service
        from ...models.address import bare_url  # noqa: PLC0415 - most runs have no server

        return service | {"base_url": bare_url(service["base_url"])}


SHARED = ("base_url", "key_variable", "max_concurrency", "request_seconds", "patience_seconds", "cache")
"""Service settings of the policy that apply to the teacher, too; prices belong to one model."""
_IS_UNSET = partial(is_, None)
"""Leaves a field out of ``run.json`` that few runs have."""


class EnvRun(BaseModel):
    """Number of tasks of one environment, and its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tasks: int = Field(le=10_000_000)
    """Number of tasks; 0 only in a store whose import gave nothing but bounds."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Resolved settings of the environment's config; fields of a later version only where they differ from their
    defaults, which never change."""
    drawn: tuple[int, ...] | None = Field(default=None, exclude_if=_IS_UNSET)
    """Indices of the tasks in the plan, if they are not its first ones: a training run samples tasks for every
    update, and may sample a task again for a later one."""
    seeds: tuple[tuple[int, int], ...] | None = Field(default=None, exclude_if=_IS_UNSET)
    """Seeds of the levels in order, each with its number of tasks, such as ``((7, 16), (9, 16))``, if the seed of the
    run did not plan all of them: stores with different seeds were merged."""

    def seeds_of(self, seed: int) -> tuple[tuple[int, int], ...]:
        """Return the seeds of the levels in order, each with its number of tasks; ``seed`` is that of the run."""
        return self.seeds or ((seed, self.tasks),)

    tasks_per_shard: int | None = Field(default=None, gt=0, le=10_000, exclude_if=_IS_UNSET)
    """Tasks per shard of this environment, if not those of the run: a training run stores one shard per update, and
    may play more tasks of one environment than of another."""

    @field_validator("tasks")
    @classmethod
    def _has_some(cls, tasks: int, info: ValidationInfo) -> int:
        if tasks < (0 if info.context else 1):
            raise PydanticKnownError("greater_than", {"gt": 0})
        return tasks

    @model_validator(mode="after")
    def _has_each_level(self) -> Self:
        if self.drawn is not None and (len(self.drawn) != self.tasks or min(self.drawn) < 0):
            raise ValueError(f"found {len(self.drawn)} levels for {self.tasks} tasks, expected an index for each")
        levels = sum(count for _, count in self.seeds or ())
        if self.seeds is not None and (
            levels != self.tasks or any(seed not in range(2**63) or count < 1 for seed, count in self.seeds)
        ):
            raise ValueError(f"found seeds of {levels} levels, expected those of {self.tasks} tasks")
        if self.seeds is not None and self.drawn is not None:
            raise ValueError("found seeds and drawn levels, expected one of them")
        return self


MANY_SHARDS, LARGEST_FITTING = 256, 128
"""Largest number of shards of an environment before shards become larger, and the levels of the largest shard."""


class RunConfig(BaseModel):
    """Configuration of a build: everything that decides the bytes of its store."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    environments: dict[str, EnvRun] = Field(min_length=1)
    """Environments by name, in the order of the store."""
    rollouts: int = Field(default=GROUP_SIZE, gt=0, le=10_000)
    """Episodes per task; eight make a group."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of levels and of scripted policies."""
    policy: PartConfig = PartConfig(name="scripted")
    """Policy that acts."""
    teacher: PartConfig = PartConfig(name="template")
    """Teacher that writes guidance."""
    solvers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of the solvers of individual environments, such as ``{"navigation": {"threshold": 1.0}}``; the solver's
    own defaults otherwise. They decide labels alone, not episodes."""
    guidance: GuidanceSource = "facts"
    """Source of the texts in targets: ``facts`` renders sentences from proved facts that the teacher selected;
    ``prose`` takes the teacher's own text, which nothing proves."""
    filters: dict[str, tuple[str, ...]] = Field(default_factory=dict, validate_default=True)
    """Filters that check the labels of individual environments, by name, such as ``{"sokoban": ["target", "replay"]}``;
    by default every installed filter of the environment. A filter that is installed later changes no store."""
    split: Literal["task", "episode"] = "task"
    """``task``: all episodes of a level are in one split; ``episode``: exactly ``validation_fraction`` of the records
    are held out."""
    validation_fraction: float = Field(default=0.1, gt=0, lt=1)
    """Fraction of the records in the validation split."""
    include_infeasible: bool = False
    """Whether the dataset contains episodes that were infeasible before any action."""
    target_vocabulary: Vocabulary = "certificate"
    """Vocabulary of failure modes in targets; ``paper`` uses timeout for all modes of svg."""
    log: LogDetail = "full"
    """Content of a step in the Analyzer's log: ``full`` has the fields of its environment, from which the pivot can
    often be computed; ``actions`` has its action alone, so that the pictures decide."""
    license: str = Field(default="", max_length=60, pattern=r"^[a-z0-9][a-z0-9.+-]*$|^$")
    """Licence that the publisher of the dataset states, as the Hugging Face hub spells it, such as ``cc-by-4.0``; by
    default derived from the sources of the rows, ``unknown`` if the terms of a source are unknown."""
    tasks_per_shard: int = Field(default=16, gt=0, le=10_000)
    """Tasks per shard, the unit of work, resume and storage; 16 tasks of 8 rollouts are one row group."""
    label_version: int = Field(default=1, gt=0, le=1_000_000)
    """Number of the label version; ``pivot relabel`` increments it."""

    @field_validator("environments")
    @classmethod
    def _resolve_settings(cls, runs: dict[str, EnvRun], info: ValidationInfo) -> dict[str, EnvRun]:
        """Check every environment's settings and complete them with their defaults."""
        return {
            name: run.model_copy(
                update={"settings": env_config(name, run.settings, info.context).model_dump(mode="json")}
            )
            for name, run in runs.items()
        }

    @field_validator("teacher")
    @classmethod
    def _share_server(cls, teacher: PartConfig, info: ValidationInfo) -> PartConfig:
        """Complete the service settings of a model by those of the policy; a store has them all."""
        policy = info.data.get("policy")
        if info.context or policy is None or not policy.service or teacher.name not in plugins.names("models"):
            return teacher
        keys = {*SHARED} & plugins.load("models", teacher.name).service_type.model_fields.keys()
        shared = {key: value for key, value in policy.service.items() if key in keys}
        return teacher.model_copy(update={"service": shared | teacher.service})

    @field_validator("solvers")
    @classmethod
    def _resolve_solvers(cls, solvers: dict[str, dict[str, Any]], info: ValidationInfo) -> dict[str, dict[str, Any]]:
        """Check the settings of every named solver and complete them with their defaults."""
        for name in solvers:
            if name not in info.data.get("environments", solvers):
                raise ValueError(
                    f"environment {name!r} is not part of this run ({', '.join(info.data['environments'])})"
                )
        resolved = {name: solver_settings(name, options) for name, options in solvers.items() if options}
        for name, run in info.data.get("environments", {}).items():
            if name in resolved and (refusal := solver_type(name).refusal(resolved[name], run.settings)):
                raise ValueError(refusal)
        return {name: settings.model_dump(mode="json") for name, settings in resolved.items()}

    @field_validator("filters", mode="before")
    @classmethod
    def split_names(cls, filters: Any) -> Any:
        """Read ``target,mode``, as a flag gives it, as a list."""
        if not isinstance(filters, Mapping):
            return filters
        return {env: [*filter(None, n.split(","))] if isinstance(n, str) else n for env, n in filters.items()}

    @field_validator("filters")
    @classmethod
    def _resolve_filters(cls, filters: dict[str, tuple[str, ...]], info: ValidationInfo) -> dict[str, tuple[str, ...]]:
        """Complete the filters of every environment: by default, every installed one that judges it, sorted."""
        environments = info.data.get("environments", filters)
        if unknown := sorted(filters.keys() - environments):
            raise ValueError(f"environment {unknown[0]!r} is not part of this run ({', '.join(environments)})")
        completed: dict[str, tuple[str, ...]] = {}
        for env in environments:
            names = filters.get(env)
            if names is None:
                kinds: dict[str, type[Filter]] = {
                    name: plugins.load("filters", name) for name in plugins.names("filters")
                }
                names = [name for name, kind in kinds.items() if kind.environments is None or env in kind.environments]
            completed[env] = tuple(sorted({*names}))
        return completed

    def __hash__(self) -> int:
        """Return a hash of the fields as JSON: some are dictionaries."""
        return hash(self.model_dump_json())

    @property
    def code(self) -> dict[str, str]:
        """Modules and models that the environments' settings name and that are not part of PIVOT, with the setting."""
        configs = (env_config(name, run.settings, STORED) for name, run in self.environments.items())
        return {name: setting for config in configs for name, setting in config.code.items()}

    def with_fitting_shards(self) -> "RunConfig":
        """Return the config with larger shards if the default size would make many small files.

        At most 256 shards, and at most 128 levels per shard, because a worker holds the rows and pictures of a shard.
        """
        size, most = self.tasks_per_shard, max(run.tasks for run in self.environments.values())
        while size < LARGEST_FITTING and most > MANY_SHARDS * size:
            size *= 2
        return self.model_copy(update={"tasks_per_shard": size})

    def shards(self) -> list["Shard"]:
        """List the shards in their fixed order: whole tasks, never depending on the number of workers."""
        return [
            Shard(name, number, first, min(first + size, run.tasks))
            for name, run in self.environments.items()
            for size in [run.tasks_per_shard or self.tasks_per_shard]
            for number, first in enumerate(range(0, max(run.tasks, 1), size))
        ]


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of tasks of one environment: the unit of work and storage."""

    env: str
    number: int
    first: int
    stop: int

    @property
    def stem(self) -> str:
        """Path of the shard within a table, without the suffix."""
        return f"{self.env}/{self.number:05d}"

    @property
    def file(self) -> str:
        """Path of the shard within a table."""
        return f"{self.stem}.parquet"


def environment(name: str) -> type[PivotEnv]:
    """Load an environment class by name."""
    return plugins.load("environments", name)


def solver_type(env: str) -> type[Solver]:
    """Load the solver class of an environment."""
    return plugins.load("solvers", env)


def solver_settings(env: str, options: Mapping[str, Any]) -> Settings:
    """Check the settings of the solver of an environment.

    Raises:
        ConfigError: a setting is unknown or cannot be used. PluginError: the solver is unknown or cannot be used.
    """
    return read_settings(solver_type(env).config_type, options, f"solver setting {env}.")


def part_type(role: Role, name: str) -> Any:
    """Load the class of a policy (``student``) or guidance writer (``teacher``), or the backend of a model.

    Raises:
        PluginError: the name is unknown, or the plugin cannot be used.
    """
    group = "policies" if role == "student" else "writers"
    if name in plugins.names(group):
        return plugins.load(group, name)
    if name in plugins.names("models"):
        return plugins.load("models", name)
    registered = ", ".join(sorted([*plugins.names(group), *plugins.names("models")]))
    raise PluginError(f"unknown {plugins.GROUPS[group].member} {name!r}; registered: {registered}")


def env_config(name: str, settings: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> EnvConfig:
    """Check the settings of one environment; ``context`` is ``STORED`` for those of a store.

    Raises:
        ConfigError: a setting is unknown or out of range. PluginError: the environment is unknown.
    """
    return read_settings(environment(name).config_type, settings, f"setting {name}.", context)


def make_config(raw: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> RunConfig:
    """Build a RunConfig from plain data; ``context`` is ``STORED`` for that of a store.

    Raises:
        ConfigError: a field is unknown, missing or out of range.
    """
    try:
        return RunConfig.model_validate(raw, context=context)
    except ValidationError as error:
        raise ConfigError(explain(error, "config field ", RunConfig)) from error


@cache
def versions() -> dict[str, str]:
    """Return the versions that a store depends on."""
    packages = ("pivot-vlm", "gymnasium", "numpy", "numba", "pyarrow", "duckdb", "polars", "prefect")
    pictures = ("pillow", "opencv-python-headless", "isal", "cairosvg")
    installed: dict[str, str] = {}
    for package in (*packages, *pictures):
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "not installed"
    installed["cairo"] = _cairo_version()
    return installed


def _cairo_version() -> str:
    """Return the version of the C library that draws SVG."""
    try:
        library = CDLL("libcairo.so.2")
    except OSError:  # another system, whose names cairocffi has; its import takes longer than a small build
        try:
            return import_module("cairocffi").cairo_version_string()
        except (ImportError, OSError):
            return "not installed"
    library.cairo_version_string.restype = c_char_p
    return library.cairo_version_string().decode()
