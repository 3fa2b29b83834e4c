"""The probe of one shard: plan the retries of its failures in every arm, take their episodes, write the rows.

The step is reached by re-executing the logged replies, which is exact wherever re-execution is, needs no snapshot of a
simulator, and gives the policy the same history. A retry is an episode like any other, with an id and so a random
stream of its own.

Rows of an earlier run are kept if they have the same labels and settings, so more arms or resamples, or a run after a
kill, add only the missing retries. Failed retries are pending: the next run makes them. Retries that a stopped run did
not begin are stored as failed, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

from ...core.errors import PolicyError
from ...core.identity import canonical_json, digest
from ...core.messages import PromptMessages
from ...core.plugins import Settings
from ...core.records import from_row, to_row
from ...core.storage import FileRecord
from ...datasets.store.config import PartConfig, Shard
from ...datasets.store.parquet import read_table
from ...datasets.store.run import Run, RunEnv
from ...datasets.store.schema import EPISODES, LABELS, STEPS
from ...datasets.store.stages import PENDING_EPISODES, Pending, Product, ShardFiles, ShardResult
from ...datasets.store.store import Store, shard_frames, stored_failures
from ...datasets.store.tables import steps_by_episode
from ...environments.base import Task
from ...environments.turns import Reply, Turn
from ...labeling.base import UNANSWERED
from ...labeling.domains import domain_of
from ...labeling.hindsight import Hindsight, teacher_prompt
from ...labeling.label import label_episodes
from ...rollouts.base import Batch, Episode, Policy, Status, TaskRollouts, episode_id
from .records import PROBE, PROBE_ARMS, VERSION, ProbeSettings, Retry, RetryStatus, is_lift, probe_file, receipt_file


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed episode with what a retry needs."""

    task: Task
    sample_idx: int
    """Index of the failure among the rollouts of its level."""
    steps: Sequence[Mapping[str, Any]]
    """Rows of the episode in the ``steps`` table, in order."""
    pivot_step: int
    failure_mode: str
    kind: str
    """Kind of its certificate."""
    label_version: str
    guidance: str
    """Guidance of its label."""

    @property
    def episode_id(self) -> str:
        """Id of the episode."""
        return str(self.steps[0]["episode_id"])

    @property
    def rewards(self) -> list[float]:
        """The logged rewards."""
        return [step["reward"] for step in self.steps]


@dataclass(frozen=True, slots=True)
class Planned:
    """A pending retry."""

    failure: Failure
    restore_step: int
    hint: str | None


class RollbackPolicy(Policy):
    """Gives the logged replies up to the restored step, then asks the policy, with the hint of the retry."""

    config_type = Settings
    mark: ClassVar[Mapping[str, Any]] = {"rollback": VERSION}

    def __init__(self, policy: Policy, envs: Mapping[str, RunEnv]) -> None:
        """Wrap ``policy``; :attr:`planned` holds the retries by id.

        Args:
            policy: acts from the restored step on.
            envs: the environments, for the prompts and the texts of hints.
        """
        self.name = policy.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self.episode_seconds = policy.episode_seconds
        self.planned: dict[str, Planned] = {}
        self._policy, self._envs = policy, envs

    @property
    def episodes_in_flight(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of the policy's concurrent episodes."""
        return self._policy.episodes_in_flight

    @property
    def config(self) -> dict[str, Any]:
        """Config of the policy, with a mark that its episodes are retries."""
        return {**self._policy.config, **self.mark}

    def config_for(self, env: str) -> dict[str, Any]:
        """Return the config for one environment, which decides ids."""
        return {**self._policy.config_for(env), **self.mark}

    def check_environment(self, env: str, config: Any) -> None:
        """Check that the policy can act here; see the base class."""
        self._policy.check_environment(env, config)

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the errors are those of the policy.

        Raises:
            PolicyError: the episode is not a planned retry.
        """
        plan = self.planned.get(turn.episode_id)
        if plan is None:
            raise PolicyError(f"no retry with the id {turn.episode_id} was planned")
        if turn.t < plan.restore_step:
            return self.logged(turn, plan.failure.steps[turn.t])
        return await self._policy.reply(replace(turn, prompt=self._with_hint(turn, plan)))

    def logged(self, turn: Turn, step: Mapping[str, Any]) -> Reply:
        """Return the reply of a row of the ``steps`` table."""
        del turn
        return Reply(step["response"])

    def _with_hint(self, turn: Turn, plan: Planned) -> PromptMessages:
        if plan.hint is None:
            return turn.prompt
        env, failure = self._envs[turn.env.profile.name], plan.failure
        domain = domain_of(env.name, env.solver_settings, turn.env.config)
        facts = failure.pivot_step, failure.failure_mode, plan.hint, None
        return teacher_prompt(turn.prompt, env.prompt, env.name, Hindsight(("mode", "guidance"), *facts, domain=domain))

    async def aclose(self) -> None:
        """Close the policy."""
        await self._policy.aclose()


def rollback_policy(store: Store, policy: Policy | None = None) -> RollbackPolicy:
    """Return the policy of a store, or ``policy``, ready to retry the store's failures."""
    return RollbackPolicy(policy or store.run.policy(), store.run.envs)


def finish_row(row: Retry, plan: Planned, episode: Episode, *, exact: bool, tolerance: float) -> None:
    """Write the outcome of a retry into its row.

    Args:
        row: row of the planned retry.
        plan: the planned retry.
        episode: the episode of the retry, from the first step on.
        exact: whether the environment repeats its pictures to the pixel.
        tolerance: largest difference of repeated rewards.
    """
    start, logged = plan.restore_step, plan.failure.steps
    row.restore_step = start
    if episode.status is not Status.COMPLETE:
        row.status, row.error = RetryStatus.ERROR, episode.error
        return
    before = episode.steps[:start]
    wrong = _difference(before, logged[:start], tolerance)
    if wrong is None and exact and episode.steps[start].frame_id != logged[start]["frame_id"]:
        wrong = f"the picture at step {start} differs"
    if wrong is not None:
        row.status, row.error = RetryStatus.NOT_RESTORED, wrong
        return
    suffix = episode.steps[start:]
    row.status = RetryStatus.DONE
    row.old_return = sum(plan.failure.rewards[start:])
    row.new_return = sum(episode.rewards[start:])
    row.lift = is_lift(row.old_return, row.new_return)
    row.success = bool(episode.success)
    row.actions = [step.action for step in suffix]
    row.payloads = [step.payload or "" for step in suffix]
    row.action_valid = [step.action_valid for step in suffix]
    row.rewards = [step.reward for step in suffix]
    row.responses = [step.response for step in suffix]


def _difference(played: Sequence[Any], logged: Sequence[Mapping[str, Any]], tolerance: float) -> str | None:
    if len(played) < len(logged):
        return f"the logged replies ended the episode after step {len(played) - 1}"
    for t, (step, row) in enumerate(zip(played, logged, strict=True)):
        if step.action != row["action"]:
            return f"step {t} was {row['action']}, played again it is {step.action}"
        if abs(step.reward - row["reward"]) > tolerance:
            return f"step {t} gave {row['reward']}, played again it gives {step.reward}"
    return None


def own_hints(store: Store, shard: Shard, earlier: Mapping[str, str]) -> dict[str, str]:
    """Return the hints of arm ``self`` for the failures of a shard, by episode.

    A model writes them together, before the first retry, so that no retry waits for one. A hint is empty if the answer
    was unusable. A failure without an answer is missing; the next run asks again.

    Args:
        store: the store.
        shard: one of its shards.
        earlier: hints of earlier runs, which are kept.

    Raises:
        ServerGoneError: the model stopped answering.
        StoreError: a table cannot be read.
    """
    config, hints = store.config, dict(earlier)
    own = config.policy if store.run.served else PartConfig(name="template")  # an embedded policy writes nothing
    writer = Run(config.model_copy(update={"teacher": own})).writer()
    labels = label_episodes(
        [each for each in stored_failures(store, shard) if each.episode_id not in earlier],
        store.run.envs[shard.env].solver(),
        writer,
        [],
        str(config.label_version),
        config.target_vocabulary,
        shard_frames(store, shard) if writer.needs_pictures else {},
    )
    for label in labels:
        if all(reason.kind != UNANSWERED for reason in label.reject_reasons):
            hints[label.episode_id] = label.failure_reason or ""
    return hints


_ARMS_PER_FAILURE, _SAMPLES_PER_ARM = 64, 10_000
"""Maximum numbers of arms and resamples in ids, with room for more, so that ids of retries never change."""
_PLANNED = tuple(each.name for each in fields(Retry) if each.default is MISSING and each.name != "status")
"""Fields of a retry that its plan decides."""
UNASKED = "the policy's model gave no answer when it was asked for a hint"
UNPLAYED = "not played yet: the probe was stopped"


@dataclass(frozen=True, slots=True)
class ShardDone:
    """Summary of one shard; small, so that it can travel between processes."""

    shard: Shard
    files: dict[str, FileRecord]
    retries: int
    played: int


class ShardProbe:
    """The retries of one shard."""

    def __init__(self, store: Store, shard: Shard, settings: ProbeSettings, policy: RollbackPolicy) -> None:
        """Plan the retries of a shard, and pass the pending ones to ``policy``.

        Args:
            store: the store.
            shard: a shard of it.
            settings: settings of the probe.
            policy: makes the retries.

        Raises:
            StoreError: a table of the store cannot be read.
        """
        self.shard = shard
        self._store, self._settings, self._policy = store, settings, policy
        self._env: RunEnv = store.run.envs[shard.env]
        self.rows: list[Retry] = []
        self._planned: dict[str, tuple[Retry, Planned, int]] = {}
        self._earlier = earlier_rows(self._stage)
        for failure in self._failures():
            for name in PROBE_ARMS:
                if name in settings.arms:
                    self._plan(failure, name)

    def _failures(self) -> list[Failure]:
        tables = {schema: self._store.read(schema, self.shard) for schema in (EPISODES, STEPS, LABELS)}
        steps = steps_by_episode(tables[STEPS].to_pylist())
        labels = {row["episode_id"]: row for row in tables[LABELS].to_pylist()}
        names = [each.name for each in fields(Task)]
        failures: list[Failure] = []
        for row in tables[EPISODES].to_pylist():
            label = labels.get(row["episode_id"])
            if label is None or label["pivot_step"] is None:
                continue
            failures.append(
                Failure(
                    Task(**{name: row[name] for name in names}),
                    row["sample_idx"],
                    steps[row["episode_id"]],
                    label["pivot_step"],
                    label["failure_mode"],
                    label["certificate"]["kind"],
                    label["label_version"],
                    label["failure_reason"] or "",
                )
            )
        return failures

    @cached_property
    def _own_hints(self) -> Mapping[str, str]:
        rows = [row for row in self._earlier.values() if PROBE_ARMS[row.arm].hint == "self"]
        return own_hints(self._store, self.shard, {row.episode_id: row.hint for row in rows if row.hint is not None})

    def _hint(self, failure: Failure, arm: str) -> str | None:
        kind = PROBE_ARMS[arm].hint
        if kind == "none":
            return None
        if kind == "teacher":
            return failure.guidance
        return self._own_hints.get(failure.episode_id)

    def _plan(self, failure: Failure, arm: str) -> None:
        env, hint = self._env, self._hint(failure, arm)
        step = PROBE_ARMS[arm].step(failure.episode_id, failure.pivot_step, len(failure.steps))
        policy_config = self._policy.config_for(env.name)
        for sample in range(self._settings.resamples):
            index = (failure.sample_idx * _ARMS_PER_FAILURE + list(PROBE_ARMS).index(arm)) * _SAMPLES_PER_ARM + sample
            retry_id = episode_id(
                env.type.profile,
                env.config,
                failure.task,
                index,
                policy_name=self._policy.name,
                policy_config=policy_config,
            )
            row = Retry(
                retry_id=retry_id,
                episode_id=failure.episode_id,
                env=env.name,
                task_id=failure.task.task_id,
                arm=arm,
                sample_idx=sample,
                label_version=failure.label_version,
                pivot_step=failure.pivot_step,
                kind=failure.kind,
                restore_step=step,
                hint=hint,
                status=RetryStatus.NO_SUFFIX,
                policy=self._policy.name,
                policy_config=canonical_json(policy_config),
            )
            old = self._earlier.get(retry_id)
            if old is not None and all(getattr(old, name) == getattr(row, name) for name in _PLANNED):
                self.rows.append(old)
                continue
            self.rows.append(row)
            if step is not None and hint == "":
                row.status = RetryStatus.NO_HINT
            elif step is not None and hint is None and PROBE_ARMS[arm].hint != "none":
                row.status, row.error = RetryStatus.ERROR, UNASKED
            elif step is not None:
                row.status, row.error = RetryStatus.ERROR, UNPLAYED
                plan = Planned(failure, step, hint)
                self._planned[retry_id] = row, plan, index
                self._policy.planned[retry_id] = plan

    @property
    def pending(self) -> int:
        """Number of planned retries without a kept row."""
        return len(self._planned)

    def batches(self) -> Iterator[Batch]:
        """Yield the pending retries, level by level."""
        env = self._env
        by_task: dict[Task, list[int]] = {}
        for _, plan, index in self._planned.values():
            by_task.setdefault(plan.failure.task, []).append(index)
        for task, indices in by_task.items():
            yield Batch(env.type, env.config, [task], len(indices), prompt=env.prompt, samples=indices)

    def receive(self, records: Sequence[TaskRollouts]) -> None:
        """Write the episodes of one level into their rows.

        A run that stops passes the levels with finished episodes; the retries of the others stay pending.
        """
        config = self._env.config
        for episode in (each for task in records for each in task.episodes):
            row, plan, _ = self._planned[episode.episode_id]
            row.error = None
            finish_row(row, plan, episode, exact=config.repeats_exactly, tolerance=config.tolerance or 1e-9)

    @property
    def played(self) -> int:
        """Number of finished retries."""
        return sum(row.status is not RetryStatus.ERROR for row, _, _ in self._planned.values())

    # On disk

    @property
    def _stage(self) -> "ProbeFiles":
        return ProbeFiles(self._store, self.shard, self._settings, self._policy)

    def write(self) -> dict[str, FileRecord]:
        """Write the rows of the shard and its receipt; return the manifest entries.

        Raises:
            StoreError: the rows cannot be written.
        """
        stage = self._stage
        return stage.write(Pending(stage.inputs()), stage.product(self.rows)).files


@dataclass(frozen=True)
class ProbeFiles(ShardFiles):
    """Files of the retries of one shard; :class:`ShardProbe` plans them, and a scheduler plays them."""

    settings: ProbeSettings
    policy: RollbackPolicy
    title: ClassVar[str] = "probe"

    @property
    def receipt_file(self) -> str:
        """Name of the receipt: a probe has receipts of its own."""
        return receipt_file(self.shard)

    def inputs(self) -> str:
        """Return the digest of everything that decides the rows, except their arms and samples."""
        manifest = self.store.manifest()
        names = [self.store.table_file(schema, self.shard) for schema in (EPISODES, STEPS, LABELS)]
        return digest(
            {
                "version": VERSION,
                "policy": self.policy.config_for(self.shard.env),
                "files": [manifest[name].sha256 for name in names if name in manifest],
            }
        )

    def product(self, rows: Sequence[Retry]) -> Product:
        """Return the table of retries."""
        table = PROBE.table([to_row(row) for row in rows])
        broken = sum(row.status is RetryStatus.ERROR for row in rows)
        return Product([(probe_file(self.shard), PROBE, table)], {"retries": len(rows), PENDING_EPISODES: broken})


def earlier_rows(stage: ProbeFiles) -> dict[str, Retry]:
    """Return the valid rows of an earlier run by id, without failed retries."""
    if not isinstance(stage.check(), ShardResult):
        return {}
    store, shard = stage.store, stage.shard
    rows = [from_row(Retry, row) for row in read_table(store.storage, probe_file(shard), PROBE).to_pylist()]
    return {row.retry_id: row for row in rows if row.status is not RetryStatus.ERROR}
