"""The three stages of a shard as plain functions: roll out, label, export.

Each reads what the stage before it left on disk, writes its own files durably, and leaves a receipt that names the
digest of everything that decided their bytes. A shard whose receipt still holds is not made again; that is the whole of
resume, and it works the same with Prefect, in a process pool, or called by hand.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from time import perf_counter
from typing import Any, ParamSpec

import pyarrow as pa

from ..datasets.config import Shard
from ..datasets.export import ShardSplit, dataset_file, dataset_tables, shard_sides
from ..datasets.inputs import (
    ROLLOUT,
    export_inputs,
    export_stage,
    label_facts,
    label_inputs,
    label_stage,
    rollout_facts,
    rollout_inputs,
)
from ..datasets.parquet import write_tables
from ..datasets.progress import Reporter, ShardReporter
from ..datasets.proof.replay import KeptGuidance, guidance_of_version, stored_guidance
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
from ..datasets.usage import calls_in_all
from ..environments.base import Task
from ..labeling.base import UNANSWERED, ConcurrentWriter, Guidance, GuidanceRequest, GuidanceWriter, PreparedRequest
from ..labeling.label import (
    Certified,
    certify_episodes,
    guidance_requests,
    make_labels,
    with_prompt,
    write_guidance,
)
from ..messages import Call
from ..records import from_row, to_row
from ..rollouts.base import TaskRollouts
from ..rollouts.loop import roll_out_tasks
from ..storage import Address, FileRecord
from ..storage.receipts import Receipt


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What a stage tells about one shard; small, so that it can travel between processes."""

    shard: Shard
    stage: str
    reused: bool
    """True when the receipt of an earlier run still held."""
    files: dict[str, FileRecord]
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)
    """What the stage took of the clock."""


Arguments = ParamSpec("Arguments")


def timed(stage: Callable[Arguments, ShardResult]) -> Callable[Arguments, ShardResult]:
    """Make a stage say what it took."""

    @wraps(stage)
    def call(*arguments: Arguments.args, **more: Arguments.kwargs) -> ShardResult:
        began = perf_counter()
        return replace(stage(*arguments, **more), seconds=perf_counter() - began)

    return call


def tell_stored(reporter: Reporter, result: ShardResult) -> None:
    """Tell of a shard whose stage is on disk, where somebody wants to know of each."""
    if isinstance(reporter, ShardReporter):
        size = sum(record.bytes for record in result.files.values())
        stage = result.stage.partition("-")[0]  # without the label version
        reporter.stored(stage, result.shard.stem, result.seconds, size, reused=result.reused)


def kept_result(store: Store, stage: str, shard: Shard, inputs: str | None) -> ShardResult | None:
    """Return what an earlier run made of a shard, where its receipt holds; ``inputs`` None asks for no digest."""
    receipt = store.receipt(stage, shard)
    if receipt is None or not receipt.holds(store.storage, receipt.inputs if inputs is None else inputs):
        return None
    return ShardResult(shard, stage, True, receipt.files, receipt.facts)


def finish(
    store: Store, stage: str, shard: Shard, inputs: str, files: dict[str, FileRecord], facts: dict[str, Any]
) -> ShardResult:
    """Leave the receipt of a shard whose files are written."""
    Receipt(inputs, files, facts).write(store.storage, store.receipt_file(stage, shard))
    return ShardResult(shard, stage, False, files, facts)


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


@timed
def roll_out_shard(root: Address, run: Run, shard: Shard, tasks: Sequence[Task]) -> ShardResult:
    """Roll out one shard's tasks, or only those episodes of it that an earlier run still owes.

    Raises:
        StoreError: the shard cannot be written, or its stored rows cannot be read back.
    """
    job = rollout_job(root, run, shard, tasks)
    if isinstance(job, ShardResult):
        return job
    env, count = run.env(shard.env), run.config.rollouts
    rollouts = roll_out_tasks(
        env.type, env.config, tasks, run.policy(), count, only=job.owed, run_id=run.run_id, prompt=env.prompt
    )
    return store_rollouts(root, run, job, rollouts)


def rollout_job(root: Address, run: Run, shard: Shard, tasks: Sequence[Task]) -> RolloutJob | ShardResult:
    """Return what has to be rolled out of a shard, or its result when an earlier run did it all."""
    inputs = rollout_inputs(run, shard, tasks)
    earlier = kept_result(Store(root, run.config), ROLLOUT, shard, inputs)
    if earlier is not None and not earlier.facts["owed"]:
        return earlier
    return RolloutJob(shard, tasks, inputs, None if earlier is None else frozenset(earlier.facts["owed"]))


def store_rollouts(root: Address, run: Run, job: RolloutJob, rollouts: list[TaskRollouts]) -> ShardResult:
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
    return finish(store, ROLLOUT, shard, job.inputs, files, rollout_facts(tables[EPISODES]))


def _merged(before: TaskRollouts, after: TaskRollouts, owed: Collection[str]) -> TaskRollouts:
    fresh = {episode.episode_id: episode for episode in after.episodes}
    place = {episode.episode_id: number for number, episode in enumerate(before.episodes)}
    calls = calls_in_all(before.calls, after.calls, owed)
    return TaskRollouts(
        task=before.task,
        episodes=[fresh.get(episode.episode_id, episode) for episode in before.episodes],
        frames=before.frames | after.frames,
        prompts=before.prompts | after.prompts,
        calls=sorted(calls, key=lambda call: place[call.episode_id]),
    )


# Label


@dataclass(frozen=True, slots=True)
class LabelJob:
    """The failures of one shard, certified: what is left is to ask a model about some, and to write the labels."""

    shard: Shard
    inputs: str
    """Digest of everything that decides the labels."""
    certified: list[Certified]
    guidance: dict[int, Guidance]
    """What need not be asked for, by the place of the episode."""
    prepared: dict[int, PreparedRequest]
    """What is to be asked."""


@timed
def label_shard(root: Address, run: Run, shard: Shard, like: int | None = None) -> ShardResult:
    """Label the failed episodes of one shard; keep the guidance of label version ``like`` where it still answers.

    Raises:
        StoreError: the rollouts cannot be read, or the labels not written.
    """
    begun = _begin_labels(root, run, shard, like)
    if isinstance(begun, ShardResult):
        return begun
    teacher, inputs, certified, requests = begun
    return _store_labels(root, run, shard, inputs, certified, write_guidance(teacher, requests))


def label_job(root: Address, run: Run, shard: Shard, like: int | None = None) -> LabelJob | ShardResult:
    """Return what has to be asked about a shard for a concurrent writer, or its result when an earlier run did it all.

    Raises:
        StoreError: the rollouts cannot be read.
    """
    begun = _begin_labels(root, run, shard, like)
    if isinstance(begun, ShardResult):
        return begun
    teacher, inputs, certified, requests = begun
    writer: ConcurrentWriter = run.writer()  # pyright: ignore[reportAssignmentType]
    guidance: dict[int, Guidance] = {}
    prepared: dict[int, PreparedRequest] = {}
    for place, request in requests.items():
        known = teacher.kept(request) if isinstance(teacher, KeptGuidance) else None
        if known is None:
            prepared[place] = writer.prepare(request)
        else:
            guidance[place] = with_prompt(known, teacher, request)
    return LabelJob(shard, inputs, certified, guidance, prepared)


def store_labels(root: Address, run: Run, job: LabelJob) -> ShardResult:
    """Judge the labels of a job, all of whose guidance is there, write them and leave the receipt.

    Raises:
        StoreError: they cannot be written.
    """
    return _store_labels(root, run, job.shard, job.inputs, job.certified, job.guidance)


Begun = tuple[GuidanceWriter, str, list[Certified], dict[int, GuidanceRequest]]
"""Teacher, digest of the inputs, certified episodes, and what is wanted from the teacher by their places."""


def _begin_labels(root: Address, run: Run, shard: Shard, like: int | None) -> Begun | ShardResult:
    """Certify the failures of a shard; or return its result when an earlier run did it all."""
    config, store = run.config, Store(root, run.config)
    teacher = run.writer()
    inputs = label_inputs(store, run, shard)
    stage = label_stage(config)
    earlier = kept_result(store, stage, shard, inputs)
    if earlier is not None:
        if not earlier.facts[UNANSWERED]:
            return earlier
        teacher = KeptGuidance(teacher, _answered(store, shard, earlier.facts[UNANSWERED]))
    elif like is not None and run.writer_is_served:
        teacher = guidance_of_version(store, shard, like, teacher)
    episodes = failed_episodes(store.read(EPISODES, shard), store.read(STEPS, shard))
    frames = shard_frames(store, shard) if teacher.needs_pictures else {}
    certified = certify_episodes(episodes, run.env(shard.env).solver(), config.target_vocabulary, config.log)
    return teacher, inputs, certified, guidance_requests(certified, config.target_vocabulary, frames)


def _store_labels(
    root: Address, run: Run, shard: Shard, inputs: str, certified: list[Certified], guidance: dict[int, Guidance]
) -> ShardResult:
    config, store, env = run.config, Store(root, run.config), run.env(shard.env)
    labels = make_labels(
        certified,
        guidance,
        env.solver(),
        run.writer(),
        run.filters(),
        str(config.label_version),
        config.target_vocabulary,
        env.prover(quick=True),
    )
    rows = label_table(labels)
    tables = [
        (store.table_file(LABELS, shard), LABELS, rows),
        (store.label_prompts_file(shard), PROMPTS, label_prompt_table(labels)),
    ]
    calls = store.label_calls_file(shard)
    if calls is not None:
        tables.append((calls, CALLS, _label_calls(store, shard, inputs, label_call_table(labels))))
    files = write_tables(store.storage, tables, sparse=True)
    return finish(store, label_stage(config), shard, inputs, files, label_facts(rows))


def _label_calls(store: Store, shard: Shard, inputs: str, made: pa.Table) -> pa.Table:
    """Return the calls of a shard's labels; what labels had taken whose teacher did not answer then counts, too."""
    earlier, name = kept_result(store, label_stage(store.config), shard, inputs), store.label_calls_file(shard)
    if earlier is None or name is None:
        return made
    owed = set(earlier.facts[UNANSWERED])
    stored = [from_row(Call, row) for row in store.read_file(name, CALLS).to_pylist()]
    before = [call for call in stored if call.episode_id in owed]
    return CALLS.table(
        [to_row(call) for call in calls_in_all(before, [from_row(Call, row) for row in made.to_pylist()], owed)]
    )


def _answered(store: Store, shard: Shard, unanswered: Sequence[str]) -> dict[str, Guidance]:
    """Return the stored guidance of a shard, but for the labels whose teacher could not be asked."""
    calls = store.label_calls_file(shard)
    known = stored_guidance(
        store.read(LABELS, shard).to_pylist(),
        [] if calls is None else store.read_file(calls, CALLS).to_pylist(),
    )
    return {episode: guidance for episode, guidance in known.items() if episode not in set(unanswered)}


# Export


@timed
def export_shard(root: Address, run: Run, shard: Shard, split: ShardSplit, folder: str) -> ShardResult:
    """Write one shard's part of the Hugging Face dataset under ``folder``.

    ``split`` is what the shard has to know of others.

    Raises:
        StoreError: the shard cannot be read or written.
    """
    config, store = run.config, Store(root, run.config)
    sides = shard_sides(store, shard, split)
    inputs = export_inputs(store, run, shard, sides, folder)
    stage = export_stage(config, staged=folder != DATASET_FOLDER)
    earlier = kept_result(store, stage, shard, inputs)
    if earlier is not None:
        return earlier
    tables = dataset_tables(store, shard, sides)
    named = ((dataset_file(folder, schema, shard, side), schema, table) for (schema, side), table in tables.items())
    files = write_tables(store.storage, named, sparse=True)
    rows = sum(table.num_rows for (schema, _), table in tables.items() if schema is DATASET)
    return finish(store, stage, shard, inputs, files, {"rows": rows})
