"""One shard of a store, probed: its failures are planned in every arm, played again, and written down.

Rows that are there already are kept when they were made from the same labels and settings, so more arms or resamples,
or a run after a kill, only play what is missing. Retries that broke are owed, and played again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

from ...datasets.config import PartConfig, Shard
from ...datasets.parquet import read_table, write_tables
from ...datasets.run import Run, RunEnv
from ...datasets.schema import EPISODES, LABELS, STEPS
from ...datasets.store import Store, shard_frames
from ...datasets.tables import failed_episodes, steps_by_episode
from ...environments.base import Task
from ...identity import canonical_json, digest
from ...labeling.label import label_episodes
from ...records import from_row, to_row
from ...rollouts.base import TaskRollouts
from ...rollouts.ids import episode_id
from ...rollouts.loop import Batch
from ...storage import FileRecord
from ...storage.receipts import Receipt
from .arms import PROBE_ARMS
from .records import PROBE, VERSION, ProbeSettings, Retry, RetryStatus, probe_file, receipt_file
from .rollback import Failure, Planned, RollbackPolicy, episodes_of, finish_row

EMBEDDED_WRITER = "template"
"""Writes the hints of an embedded policy, which has no model that could."""
_ARMS_A_FAILURE, _SAMPLES_AN_ARM = 64, 10_000
"""Room for more arms and resamples, so that ids of retries never move."""


class ShardProbe:
    """The retries of one shard."""

    def __init__(self, store: Store, shard: Shard, settings: ProbeSettings, policy: RollbackPolicy) -> None:
        """Plan the retries of a shard, and give those that are to be played to ``policy``.

        Raises:
            StoreError: a table of the store cannot be read.
        """
        self.shard = shard
        self._store, self._settings, self._policy = store, settings, policy
        self._env: RunEnv = store.run.env(shard.env)
        self.rows: list[Retry] = []
        self._planned: dict[str, tuple[Retry, Planned, int]] = {}
        self._left = 0
        known = self._known_rows()
        for failure in self._failures():
            for name in PROBE_ARMS:
                if name in settings.arms:
                    self._plan(failure, name, known)

    def _failures(self) -> list[Failure]:
        tables = {schema: self._store.read(schema, self.shard) for schema in (EPISODES, STEPS, LABELS)}
        steps = steps_by_episode(tables[STEPS].to_pylist())
        labels = {row["episode_id"]: row for row in tables[LABELS].to_pylist()}
        names = [each.name for each in fields(Task)]
        found: list[Failure] = []
        for row in tables[EPISODES].to_pylist():
            label = labels.get(row["episode_id"])
            if label is None or label["pivot_step"] is None or (self._settings.accepted_only and not label["accepted"]):
                continue
            found.append(
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
        return found

    @cached_property
    def _own_hints(self) -> Mapping[str, str]:
        """What the policy's own model writes about each failure, by episode."""
        store, config = self._store, self._store.config
        own = config.policy if store.run.served else PartConfig(name=EMBEDDED_WRITER)
        writer = Run(config.model_copy(update={"teacher": own})).writer()
        episodes = failed_episodes(store.read(EPISODES, self.shard), store.read(STEPS, self.shard))
        frames = shard_frames(store, self.shard) if writer.needs_pictures else None
        labels = label_episodes(
            episodes, self._env.solver(), writer, [], str(config.label_version), config.target_vocabulary, frames
        )
        return {label.episode_id: label.failure_reason or "" for label in labels}

    def _hint(self, failure: Failure, arm: str) -> str | None:
        kind = PROBE_ARMS[arm].hint
        if kind == "none":
            return None
        if kind == "teacher":
            return failure.guidance
        return self._own_hints.get(failure.episode_id, "")

    def _plan(self, failure: Failure, arm: str, known: Mapping[str, Retry]) -> None:
        env, hint = self._env, self._hint(failure, arm)
        step = PROBE_ARMS[arm].step(failure.episode_id, failure.pivot_step, len(failure.steps))
        policy_config = self._policy.config_for(env.name)
        for sample in range(self._settings.resamples):
            place = (failure.sample_idx * _ARMS_A_FAILURE + list(PROBE_ARMS).index(arm)) * _SAMPLES_AN_ARM + sample
            retry_id = episode_id(
                env.type.profile,
                env.config,
                failure.task,
                place,
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
                status=RetryStatus.NO_SUFFIX if step is None else RetryStatus.NO_HINT,
                policy=self._policy.name,
                policy_config=canonical_json(policy_config),
            )
            old = known.get(retry_id)
            if old is not None and (old.pivot_step, old.hint) == (row.pivot_step, row.hint):
                self.rows.append(old)
                continue
            self.rows.append(row)
            if step is not None and hint != "":
                plan = Planned(failure, step, hint)
                self._planned[retry_id] = row, plan, place
                self._policy.planned[retry_id] = plan

    @property
    def pending(self) -> int:
        """How many retries are to be played."""
        return len(self._planned)

    def batches(self) -> Iterator[Batch]:
        """Yield what is to be played, level by level."""
        env = self._env
        by_task: dict[Task, list[int]] = {}
        for _, plan, place in self._planned.values():
            by_task.setdefault(plan.failure.task, []).append(place)
        self._left = len(by_task)
        for task, places in by_task.items():
            yield Batch(env.type, env.config, [task], len(places), prompt=env.prompt, work=self, samples=places)

    def receive(self, records: Sequence[TaskRollouts]) -> bool:
        """Take in what was played of one level; return whether it was the last one.

        A run that stops hands on what it has: the rest stays unplayed, and is owed.
        """
        config = self._env.config
        for retry_id, episode in episodes_of(records).items():
            row, plan, _ = self._planned[retry_id]
            finish_row(
                row, plan, episode, self._settings, exact=config.repeats_exactly, tolerance=config.tolerance or 1e-9
            )
        self._left -= 1
        return self._left == 0

    # On disk

    @property
    def inputs(self) -> str:
        """Digest of what decides a row besides its arm and sample."""
        store, manifest = self._store, self._store.manifest()
        files = [store.table_file(schema, self.shard) for schema in (EPISODES, STEPS, LABELS)]
        return digest(
            {
                "version": VERSION,
                "gamma": self._settings.gamma,
                "policy": self._policy.config_for(self.shard.env),
                "files": [manifest[name].sha256 for name in files],
            }
        )

    def _known_rows(self) -> dict[str, Retry]:
        """Rows of an earlier run that still hold, by id; those that broke are left out."""
        store, name = self._store, probe_file(self.shard)
        receipt = Receipt.read(store.storage, receipt_file(self.shard))
        if receipt is None or not receipt.holds(store.storage, self.inputs):
            return {}
        rows = [from_row(Retry, row) for row in read_table(store.storage, name, PROBE).to_pylist()]
        return {row.retry_id: row for row in rows if row.status is not RetryStatus.ERROR}

    def write(self) -> dict[str, FileRecord]:
        """Write the rows of the shard and its receipt; return the manifest entries.

        Raises:
            StoreError: they cannot be written.
        """
        store, table = self._store, PROBE.table([to_row(row) for row in self.rows])
        files = write_tables(store.storage, [(probe_file(self.shard), PROBE, table)])
        owed = sum(row.status is RetryStatus.ERROR for row in self.rows)
        facts: dict[str, Any] = {"retries": len(self.rows), "owed": owed}
        Receipt(self.inputs, files, facts).write(store.storage, receipt_file(self.shard))
        return files
