"""The three stages of a shard as plain functions: roll out, label, export.

Each reads what the stage before it left on disk, writes its own files durably, and leaves a receipt that names the
digest of everything that decided their bytes. A shard whose receipt still holds is not made again; that is the whole of
resume, and it works the same with Prefect, in a process pool, or called by hand.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..datasets.config import RunConfig, Shard
from ..datasets.export import dataset_file, dataset_tables
from ..datasets.parquet import read_table, write_tables
from ..datasets.proof.replay import KeptGuidance, stored_guidance
from ..datasets.run import Run
from ..datasets.schema import CALLS, DATASET, EPISODES, LABELS, PROMPTS, STEPS, STORE_TABLES
from ..datasets.store import DATASET_FOLDER, Store, shard_frames
from ..datasets.tables import (
    failed_episodes,
    label_call_table,
    label_prompt_table,
    label_table,
    rollout_tables,
    stored_rollouts,
)
from ..environments.base import Task
from ..identity import digest
from ..labeling.analyzer import template_version
from ..labeling.base import UNANSWERED, Guidance, Label
from ..labeling.label import TEACHER, label_episodes
from ..rollouts.base import Policy, Status, TaskRollouts
from ..rollouts.loop import roll_out_tasks
from ..storage import FileRecord
from ..storage.receipts import Receipt

ROLLOUT, LABEL, EXPORT = "rollout", "label", "export"
STORE_FORMAT = 4
"""Raised when the bytes of a table change for equal inputs; part of every receipt."""


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What a stage tells about one shard; small, so that it can travel between processes."""

    shard: Shard
    stage: str
    reused: bool
    """True when the receipt of an earlier run still held."""
    files: dict[str, FileRecord]
    facts: dict[str, Any] = field(default_factory=dict)


# Roll out


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """What is to be rolled out of one shard."""

    shard: Shard
    tasks: Sequence[Task]
    inputs: str
    """Digest of everything that decides the episodes."""
    owed: frozenset[str] | None
    """Ids of the episodes that an earlier run left broken; None when the shard has to be made whole."""


def roll_out_shard(root: Path, run: Run, shard: Shard, tasks: Sequence[Task]) -> ShardResult:
    """Roll out one shard's tasks, or only those episodes of it that an earlier run still owes.

    Raises:
        StoreError: the shard cannot be written, or its stored rows cannot be read back.
    """
    policy = run.policy()
    job = rollout_job(root, run, shard, tasks, policy)
    if isinstance(job, ShardResult):
        return job
    env, count = run.env(shard.env), run.config.rollouts
    rollouts = roll_out_tasks(
        env.type, env.config, tasks, policy, count, only=job.owed, run_id=run.run_id, prompt=env.prompt
    )
    return store_rollouts(root, run, job, rollouts)


def rollout_job(root: Path, run: Run, shard: Shard, tasks: Sequence[Task], policy: Policy) -> RolloutJob | ShardResult:
    """Return what has to be rolled out of a shard, or its result when an earlier run did it all."""
    store, env = Store(root, run.config), run.env(shard.env)
    inputs = digest(
        {
            "format": STORE_FORMAT,
            "run": run.run_id,
            "env": [shard.env, env.type.profile.version, env.config.decisive()],
            "policy": policy.config_for(shard.env),
            "prompt": [env.prompt.template, env.prompt.version],
            "tasks": [asdict(task) for task in tasks],
        }
    )
    receipt = store.receipt(ROLLOUT, shard)
    known = receipt if receipt is not None and receipt.holds(store.storage, inputs) else None
    if known is not None and not known.facts["owed"]:
        return ShardResult(shard, ROLLOUT, True, known.files, known.facts)
    return RolloutJob(shard, tasks, inputs, None if known is None else frozenset(known.facts["owed"]))


def store_rollouts(root: Path, run: Run, job: RolloutJob, rollouts: list[TaskRollouts]) -> ShardResult:
    """Write the episodes of a job, together with those that the shard holds already, and leave the receipt.

    Raises:
        StoreError: the shard cannot be written, or its stored rows cannot be read back.
    """
    store, shard = Store(root, run.config), job.shard
    if job.owed is not None:
        old = stored_rollouts({schema: store.read(schema, shard) for schema in STORE_TABLES})
        rollouts = [_merged(before, after, job.owed) for before, after in zip(old, rollouts, strict=True)]
    tables = rollout_tables(rollouts)
    named = ((store.table_file(schema, shard), schema, tables[schema]) for schema in STORE_TABLES)
    files = write_tables(store.storage, named)
    return _done(store, ROLLOUT, shard, job.inputs, files, _rollout_facts(rollouts))


def _merged(before: TaskRollouts, after: TaskRollouts, owed: Collection[str]) -> TaskRollouts:
    fresh = {episode.episode_id: episode for episode in after.episodes}
    place = {episode.episode_id: number for number, episode in enumerate(before.episodes)}
    calls = [call for call in before.calls if call.episode_id not in owed] + after.calls
    return TaskRollouts(
        task=before.task,
        episodes=[fresh.get(episode.episode_id, episode) for episode in before.episodes],
        frames=before.frames | after.frames,
        prompts=before.prompts | after.prompts,
        calls=sorted(calls, key=lambda call: place[call.episode_id]),
    )


def _rollout_facts(rollouts: Sequence[TaskRollouts]) -> dict[str, Any]:
    episodes = [episode for task in rollouts for episode in task.episodes]
    return {
        "episodes": len(episodes),
        "succeeded": sum(episode.failed is False for episode in episodes),
        "failed": sum(episode.failed is True for episode in episodes),
        "owed": [episode.episode_id for episode in episodes if episode.status is Status.ERROR],
    }


# Label


def label_shard(root: Path, run: Run, shard: Shard) -> ShardResult:
    """Label the failed episodes of one shard.

    Raises:
        StoreError: the rollouts cannot be read, or the labels not written.
    """
    config, store = run.config, Store(root, run.config)
    solver, teacher, filters = run.env(shard.env).solver(), run.writer(), run.filters()
    prover = run.env(shard.env).prover(quick=True)
    inputs = digest(
        {
            "format": STORE_FORMAT,
            "pivot": __version__,
            "rollouts": _file_digests(store, ROLLOUT, shard, without=CALLS.name),
            "solver": [solver.name, solver.version, solver.config],
            "teacher": [teacher.name, teacher.config],
            "filters": [type(item).__qualname__ for item in filters],
            "prover": None if prover is None else type(prover).__qualname__,
            "label_version": config.label_version,
            "target_vocabulary": config.target_vocabulary,
            "analyzer": template_version(config.log),
        }
    )
    stage = label_stage(config)
    receipt = store.receipt(stage, shard)
    if receipt is not None and receipt.holds(store.storage, inputs):
        if not receipt.facts[UNANSWERED]:
            return ShardResult(shard, stage, True, receipt.files, receipt.facts)
        teacher = KeptGuidance(teacher, _answered(store, shard, receipt.facts[UNANSWERED]))
    episodes = failed_episodes(store.read(EPISODES, shard), store.read(STEPS, shard))
    frames = shard_frames(store, shard) if teacher.needs_pictures else None
    labels = label_episodes(
        episodes,
        solver,
        teacher,
        filters,
        str(config.label_version),
        config.target_vocabulary,
        frames,
        prover,
        config.log,
    )
    tables = [
        (store.table_file(LABELS, shard), LABELS, label_table(labels)),
        (store.label_prompts_file(shard), PROMPTS, label_prompt_table(labels)),
    ]
    calls = store.label_calls_file(shard)
    if calls is not None:
        tables.append((calls, CALLS, label_call_table(labels)))
    files = write_tables(store.storage, tables)
    return _done(store, stage, shard, inputs, files, _label_facts(labels))


def _answered(store: Store, shard: Shard, unanswered: Sequence[str]) -> dict[str, Guidance]:
    """Return the stored guidance of a shard, but for the labels whose teacher could not be asked."""
    calls = store.label_calls_file(shard)
    known = stored_guidance(
        store.read(LABELS, shard).to_pylist(),
        [] if calls is None else read_table(store.storage, calls, CALLS).to_pylist(),
    )
    return {episode: guidance for episode, guidance in known.items() if episode not in set(unanswered)}


def label_stage(config: RunConfig) -> str:
    """Name of the label stage in receipts: each label version has its own."""
    return f"{LABEL}-v{config.label_version}"


def _label_facts(labels: Sequence[Label]) -> dict[str, Any]:
    return {
        "labels": len(labels),
        "accepted": sum(label.accepted for label in labels),
        "rejected": sum(not label.accepted for label in labels),
        "unproved": sum(label.proved is None and label.pivot_step is not None for label in labels),
        UNANSWERED: [label.episode_id for label in labels if _is_unanswered(label)],
    }


def _is_unanswered(label: Label) -> bool:
    return any(reason.name == TEACHER and reason.kind == UNANSWERED for reason in label.reject_reasons)


# Export


def export_shard(root: Path, run: Run, shard: Shard, sides: dict[str, str], folder: str) -> ShardResult:
    """Write one shard's part of the Hugging Face dataset under ``folder``.

    ``sides`` maps the episode ids of the shard to their side of the split.

    Raises:
        StoreError: the shard cannot be read or written.
    """
    config, store = run.config, Store(root, run.config)
    inputs = digest(
        {
            "format": STORE_FORMAT,
            "pivot": __version__,
            "rollouts": _file_digests(store, ROLLOUT, shard, without=CALLS.name),
            "labels": _file_digests(store, label_stage(config), shard, without=CALLS.name),
            "include_infeasible": config.include_infeasible,
            "sides": sorted(sides.items()),
            "modes": run.failure_modes,
            "folder": folder,
        }
    )
    stage = export_stage(config, staged=folder != DATASET_FOLDER)
    receipt = store.receipt(stage, shard)
    if receipt is not None and receipt.holds(store.storage, inputs):
        return ShardResult(shard, stage, True, receipt.files, receipt.facts)
    tables = dataset_tables(store, shard, sides)
    named = ((dataset_file(folder, schema, shard, side), schema, table) for (schema, side), table in tables.items())
    files = write_tables(store.storage, named)
    rows = sum(table.num_rows for (schema, _), table in tables.items() if schema is DATASET)
    return _done(store, stage, shard, inputs, files, {"rows": rows})


def export_stage(config: RunConfig, *, staged: bool) -> str:
    """Name of the export stage in receipts; ``staged`` for a dataset that is built beside the one in use."""
    return f"{EXPORT}-v{config.label_version}{'-staged' if staged else ''}"


def _done(
    store: Store, stage: str, shard: Shard, inputs: str, files: dict[str, FileRecord], facts: dict[str, Any]
) -> ShardResult:
    Receipt(inputs, files, facts).write(store.storage, store.receipt_file(stage, shard))
    return ShardResult(shard, stage, False, files, facts)


def _file_digests(store: Store, stage: str, shard: Shard, without: str = "") -> dict[str, str]:
    """Digests of the files that a shard's earlier stage left; ``without`` names a table that may differ freely."""
    receipt = store.receipt(stage, shard)
    files = receipt.files if receipt is not None else {}
    return {name: record.sha256 for name, record in files.items() if name.split("/")[0] != without}
