"""A config resolved at the start: every plugin found and checked, every setting typed, before anything is written.

Stages get a :class:`Run`. It holds classes and settings, not objects: every caller gets a policy, writer, solver or
prover of its own, so that threads share none. Between processes it is sent as its config.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...core import plugins
from ...core.errors import ConfigError
from ...core.identity import digest
from ...core.messages import Role
from ...core.plugins import Settings, read_settings
from ...environments.base import EnvConfig, PivotEnv, Task
from ...environments.turns import StudentPrompt
from ...labeling.base import Filter, GuidanceWriter
from ...labeling.target import profile_under
from ...rollouts.base import Policy
from ...rollouts.plan import plan_tasks
from ...solvers.base import FAILURE_MODES, Prover, Solver, prover_of
from .config import (
    EnvRun,
    PartConfig,
    RunConfig,
    Shard,
    env_config,
    environment,
    part_type,
    solver_settings,
    solver_type,
)


@dataclass(frozen=True, slots=True)
class RunEnv:
    """One environment of a run."""

    name: str
    tasks: int
    type: type[PivotEnv]
    config: EnvConfig
    prompt: StudentPrompt
    solver_settings: Settings
    levels: EnvRun

    failure_modes: tuple[str, ...]
    """Failure modes of its labels, including the modes that its settings add."""

    def plan(self, seed: int) -> list[Task]:
        """Make its levels, in order.

        Raises:
            GenerationError, ConfigError: see :func:`.plan_tasks`.
        """
        if drawn := self.levels.drawn:
            planned = plan_tasks(self.type, self.config, seed, max(drawn) + 1)
            return [planned[index] for index in drawn]
        seeds = self.levels.seeds_of(seed)
        return [task for each, count in seeds for task in plan_tasks(self.type, self.config, each, count)]

    def solver(self) -> Solver:
        """Make its solver."""
        return solver_type(self.name)(self.solver_settings)

    def prover(self, *, quick: bool = False) -> Prover | None:
        """Return the environment's prover for labels of that solver; None if it has none."""
        return prover_of(self.name, self.solver().config, quick=quick)


class Run:
    """A resolved config: classes, settings and filters by name."""

    def __init__(self, config: RunConfig, home: str = "") -> None:
        """Find and check everything that the config names; ``home`` is the store billed for answers of models.

        Raises:
            PluginError: a plugin is unknown, fails to import, or does not fit its contract.
            ConfigError: settings cannot be used.
        """
        self.config = config
        self.home = home
        self.envs: Mapping[str, RunEnv] = {}
        """All environments, in the order of the config."""
        for name, chosen in config.environments.items():
            kind, settings = environment(name), env_config(name, chosen.settings)
            shown: StudentPrompt = plugins.load("prompts", name)
            solver, modes = config.solvers.get(name, {}), profile_under(kind.profile, settings).failure_modes
            made = RunEnv(name, chosen.tasks, kind, settings, shown, solver_settings(name, solver), chosen, modes)
            self.envs = {**self.envs, name: made}
        self._filters = {
            env: [plugins.load("filters", name) for name in names] for env, names in config.filters.items()
        }
        parts: dict[Role, PartConfig] = {"student": config.policy, "teacher": config.teacher}
        self._parts = {role: _Part(role, part, home) for role, part in parts.items()}
        self.served = self._parts["student"].served
        """Whether the policy waits for a model: all shards are then rolled out in one event loop."""
        self.writer_is_served = self._parts["teacher"].served
        """Whether guidance waits for a model: its requests are then stored."""
        other = {mode for env in self.envs.values() for mode in env.failure_modes} - {*FAILURE_MODES}
        self.failure_modes = (*FAILURE_MODES, *sorted(other))
        """Class names of ``failure_mode_id``: the ten fixed ones, then the modes of other environments, sorted."""

    def __reduce__(self) -> tuple[type["Run"], tuple[RunConfig, str]]:
        """Pickle as the config."""
        return Run, (self.config, self.home)

    def with_stored(self, config: RunConfig) -> "Run":
        """Return the run under the config of its store, which differs in label version and licence alone."""
        same = object.__new__(Run)  # the constructor would resolve it again
        vars(same).update(vars(self) | {"config": config})
        return same

    def services(self, *roles: Role) -> list[Settings]:
        """Return the service settings of the models in these roles; parts that are not models have none."""
        services = (self._parts[role].service for role in roles)
        return [each for each in services if each is not None]

    def slots(self, role: Role) -> int | None:
        """Return the most concurrent requests to the server of a model.

        None for what has one event loop: a model that is loaded into the process, or a plugin other than a model.
        """
        part = self._parts[role]
        return None if part.in_process else getattr(part.service, "max_concurrency", None)

    def policy(self) -> Policy:
        """Make the policy."""
        return self._parts["student"].make()

    def writer(self) -> GuidanceWriter:
        """Make the guidance writer."""
        return self._parts["teacher"].make()

    def local_models(self) -> list[str]:
        """Return the folders of this machine from which models of policy or teacher are read, or would be."""
        from ...models.weights import is_local  # noqa: PLC0415 - few runs have a model in this process

        parts = (part for part in self._parts.values() if part.is_model and part.reads_weights)
        return [part.model for part in parts if is_local(part.model)]

    def filters(self, env: str) -> list[Filter]:
        """Make the filters that judge the labels of an environment, in the order of their names."""
        return [kind(kind.config_type()) for kind in self._filters[env]]

    @cached_property
    def run_id(self) -> str:
        """Digest of seed, rollouts and policy. Tasks and environments may grow without changing it."""
        return self.run_id_with(self.policy().config)

    def run_id_with(self, policy_config: Mapping[str, Any], seed: int | None = None) -> str:
        """Return the run id for a policy config, such as that of stored rows; by default with the run's seed."""
        seed = self.config.seed if seed is None else seed
        named = {"seed": seed, "rollouts": self.config.rollouts, "policy": self.policy().name}
        return digest({**named, **policy_config}, 16)

    def run_ids(self, shard: Shard, policy_config: Mapping[str, Any] | None = None) -> str | list[str]:
        """Return the run id of the episodes of a shard, or one per level: levels of merged stores keep theirs."""
        levels = self.envs[shard.env].levels
        if levels.seeds is None:
            return self.run_id if policy_config is None else self.run_id_with(policy_config)
        policy_config = self.policy().config if policy_config is None else policy_config
        ids = [each for seed, count in levels.seeds for each in [self.run_id_with(policy_config, seed)] * count]
        return ids[shard.first : shard.stop]

    def check_parts(self) -> None:
        """See whether what policy and writer need is installed.

        Raises:
            PluginError: something is missing; the message says how to get it.
        """
        self.policy().check()
        self.writer().check()

    def check(self) -> list[str]:
        """See whether everything that the run needs works, before a long run; return notes for people.

        Raises:
            PluginError: something is missing; the message says how to get it.
            ConfigError: the policy cannot play an environment, or a simulator cannot be used.
        """
        self.check_parts()
        policy = self.policy()
        for env in self.envs.values():  # all of them, before the first simulator takes its minutes to start
            policy.check_environment(env.name, env.config)
        notes = [env.type.check_ready(env.config) for env in self.envs.values()]
        return [note for note in notes if note]


class _Part:
    """A policy or writer by name: a plugin of its own group, or a model in that role."""

    def __init__(self, role: Role, part: PartConfig, home: str) -> None:
        self._role: Role = role
        self._kind = part_type(role, part.name)
        self.is_model = part.name not in plugins.names("policies" if role == "student" else "writers")
        self.served: bool = self.is_model or self._kind.served
        where = f"{'policy' if role == 'student' else 'writer'} {part.name}: "
        self._options = read_settings(self._kind.config_type, part.options, where)
        if part.service and not self.is_model:
            raise ConfigError(f"{where}found service settings, but it is not a model; leave them out")
        self.service = read_settings(self._kind.service_type, part.service, where) if self.is_model else None
        if home and self.service is not None and "payer" in type(self.service).model_fields:
            self.service = self.service.model_copy(update={"payer": home})

    @property
    def model(self) -> str:
        """The name of the model: an id of a hub or server, or a folder."""
        return str(getattr(self._options, "model", ""))

    @property
    def reads_weights(self) -> bool:
        """Whether the model runs in this process, and its revision is taken from its files."""
        return self.in_process and getattr(self._options, "revision", None) is None

    @property
    def in_process(self) -> bool:
        """Whether the model is loaded into the process that uses it."""
        return bool(getattr(self._kind, "one_process", False))

    def make(self) -> Any:
        if not self.is_model:
            return self._kind(self._options)
        from ...labeling.writers import ModelWriter  # noqa: PLC0415 - most runs have no model
        from ...rollouts.policies import ModelPolicy  # noqa: PLC0415 - as above

        backend = self._kind(self._options, self.service, self._role)
        return ModelPolicy(backend) if self._role == "student" else ModelWriter(backend)
