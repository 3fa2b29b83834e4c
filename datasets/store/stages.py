"""Stages of a shard: rollout, label, export. :func:`run_stage` runs a stage, in any process.

A stage reads the tables of the stage before it. Its receipt holds the digest of what decides its files, and counts of
their rows, which a summary adds up. A shard whose receipt still holds is skipped, and an earlier result with pending
episodes is completed; a build resumes in this way.
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ...core.errors import StoreError
from ...core.identity import digest
from ...core.messages import Call
from ...core.progress import Reporter
from ...core.records import from_row, to_row
from ...core.storage import FileRecord
from ...core.storage.base import Receipt
from ...environments.base import Task
from ...labeling.analyzer import VERSIONS
from ...labeling.base import UNANSWERED, Guidance, GuidanceRequest, GuidanceWriter
from ...labeling.label import (
    TEACHER,
    Certified,
    certify_episodes,
    guidance_requests,
    make_labels,
    with_prompt,
    write_guidance,
)
from ...rollouts.base import Batch, Status, TaskRollouts
from ...rollouts.episode import open_batch
from ...rollouts.loop import roll_out_batch
from ..export.base import LabelledShard
from ..export.dataset import DatasetExporter
from .config import FORMAT, Shard
from .dataset_rows import ShardSplit, dataset_file, shard_sides
from .parquet import write_tables
from .schema import CALLS, DATASET, EPISODES, LABELS, PROMPTS, STORE_TABLES, TableSchema
from .store import DATASET_FOLDER, PLAYED, Store, shard_frames, stored_failures
from .tables import rollout_tables, stored_rollouts

if TYPE_CHECKING:
    from .guidance import EarlierGuidance

ROLLOUT, LABEL, EXPORT = PLAYED, "label", "export"
PENDING_EPISODES = "pending"
"""Fact of a receipt: ids of the episodes that ended in an error."""


def file_digests(store: Store, stage: str, shard: Shard) -> dict[str, str]:
    """Digests of the files that a shard's earlier stage left; those of calls, which may differ freely, are left out."""
    receipt = store.receipt(stage, shard)
    files = receipt.files if receipt is not None else {}
    return {name: record.sha256 for name, record in files.items() if name.split("/")[0] != CALLS.name}


@dataclass(frozen=True, slots=True)
class ShardResult:
    """Report of a stage about one shard; small, so that it can travel between processes."""

    shard: Shard
    stage: str
    reused: bool
    """Whether the receipt of an earlier run was still valid."""
    files: dict[str, FileRecord]
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)
    """Duration of the stage."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Work that is left of a shard."""

    inputs: str
    """Digest of everything that decides the files."""
    episodes: frozenset[str] | None = None
    """Ids of the episodes that an earlier run left incomplete; None when the whole shard has to be made."""


@dataclass(frozen=True, slots=True)
class Product:
    """Tables of a shard, before they are written."""

    tables: Sequence[tuple[str, TableSchema, pa.Table]]
    """File name, schema and rows of each."""
    facts: dict[str, Any]
    """Counts for the receipt, so that a summary does not have to read the tables."""


@dataclass(frozen=True)
class ShardFiles(ABC):
    """Files of one stage of one shard with their receipt: checking and writing them.

    A scheduler that makes the tables of several shards at a time, such as a probe, uses this alone.
    """

    store: Store
    shard: Shard

    title: ClassVar[str]
    """Name of the stage for reporters."""
    sparse: ClassVar[bool] = False
    """Whether a table without rows has no file."""
    pending_fact: ClassVar[str | None] = None
    """Fact that lists the incomplete episodes of a shard; None for a stage without such episodes."""

    @property
    def name(self) -> str:
        """Name of the stage in receipts."""
        return self.title

    @property
    def receipt_file(self) -> str:
        """Name of the receipt, relative to the store."""
        return self.store.receipt_file(self.name, self.shard)

    @abstractmethod
    def inputs(self) -> str:
        """Return the digest of everything that decides the files."""

    def check(self) -> Pending | ShardResult:
        """Return the result of an earlier run if it is complete, else the remaining work."""
        inputs = self.inputs()
        receipt = Receipt.read(self.store.storage, self.receipt_file)
        if receipt is None or not receipt.holds(self.store.storage, inputs):
            return Pending(inputs)
        if self.pending_fact is not None and receipt.facts[self.pending_fact]:
            return Pending(inputs, frozenset(receipt.facts[self.pending_fact]))
        return ShardResult(self.shard, self.name, True, receipt.files, receipt.facts)

    def write(self, pending: Pending, product: Product) -> ShardResult:
        """Validate and write the tables, then the receipt; from now on the shard counts as done.

        Raises:
            StoreError: a table has other columns than its schema, or the disk fails.
        """
        for name, schema, table in product.tables:
            if not table.schema.equals(schema.arrow):
                raise StoreError(f"{name} is not written: found the columns {table.schema}, expected {schema.arrow}")
        files = write_tables(self.store.storage, product.tables, sparse=self.sparse)
        Receipt(pending.inputs, files, product.facts).write(self.store.storage, self.receipt_file)
        return ShardResult(self.shard, self.name, False, files, product.facts)


@dataclass(frozen=True)
class Stage(ShardFiles):
    """One stage of one shard. It is sent to workers, each of which opens the store once."""

    @property
    def episodes(self) -> int:
        """Number of episodes in the shard; imported levels have fewer of them than the level with most."""
        receipt = self.store.receipt(ROLLOUT, self.shard) if self.store.is_imported else None
        return (
            receipt.facts["episodes"] if receipt else (self.shard.stop - self.shard.first) * self.store.config.rollouts
        )

    @abstractmethod
    def make(self, pending: Pending) -> Product:
        """Make the tables of the shard, or complete the stored ones.

        Raises:
            StoreError: stored rows cannot be read.
        """


def run_stage(stage: Stage) -> ShardResult:
    """Run a stage on one shard: skip it if complete, else compute, validate and write it, the receipt last.

    Raises:
        StoreError: the shard cannot be read or written. Others as :meth:`Stage.make` of the stage.
    """
    began = perf_counter()
    result = stage.check()
    if isinstance(result, Pending):
        with rare_collections():
            result = stage.write(result, stage.make(result))
    return replace(result, seconds=perf_counter() - began)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run less often meanwhile: rows are many objects without cycles, a fifth of a stage."""
    before = gc.get_threshold()
    gc.set_threshold(before[0] and max(before[0], YOUNG_OBJECTS), *before[1:])  # 0: collection is off
    try:
        yield
    finally:
        gc.set_threshold(*before)


YOUNG_OBJECTS = 50_000
"""New objects after which the garbage collector looks for cycles while a stage runs; Python's default is 700."""


def report_stored(reporter: Reporter, result: ShardResult) -> None:
    """Report a stored shard."""
    size = sum(record.bytes for record in result.files.values())
    stage = result.stage.partition("-")[0]  # without the label version
    reporter.stored(stage, result.shard.stem, result.seconds, size, reused=result.reused)


@dataclass(frozen=True)
class RolloutStage(Stage):
    """Rolls out the levels of a shard, or only the episodes that an earlier run left broken or did not have."""

    tasks: Sequence[Task]

    title: ClassVar[str] = ROLLOUT
    pending_fact: ClassVar[str | None] = PENDING_EPISODES

    def inputs(self) -> str:
        """Return the digest of everything that decides the episodes."""
        run, shard = self.store.run, self.shard
        env = run.envs[shard.env]
        return digest(
            {
                "format": FORMAT,
                "run": run.run_ids(shard),
                "env": [shard.env, env.type.profile.version, env.config.decisive()],
                "policy": run.policy().config_for(shard.env),
                "prompt": [env.prompt.template, env.prompt.version],
                "tasks": [asdict(task) for task in self.tasks],
            }
        )

    def check(self) -> Pending | ShardResult:
        """Return the result or the remaining work; a shard that gets more tasks keeps its stored episodes."""
        result, rollouts = super().check(), self.store.config.rollouts
        if isinstance(result, ShardResult) or result.episodes is not None:
            return result
        receipt = self.store.receipt(self.name, self.shard)
        count = receipt.facts["episodes"] // rollouts if receipt else 0
        before = replace(self, tasks=self.tasks[:count]).check() if 0 < count < len(self.tasks) else result
        pending = before.episodes if isinstance(before, Pending) else frozenset[str]()
        if pending is None:
            return result
        _, episodes = open_batch(self.batch(result), self.store.run.policy())
        added = (run.id_of(sample) for run, sample in episodes[count * rollouts :])
        return replace(result, episodes=pending.union(added))

    def make(self, pending: Pending) -> Product:
        """Play the pending episodes with the policy of the run."""
        return self.product(pending, roll_out_batch(self.batch(pending), self.store.run.policy()))

    def batch(self, pending: Pending) -> Batch:
        """Return the pending episodes for the rollout loop."""
        run = self.store.run
        env, ids = run.envs[self.shard.env], run.run_ids(self.shard)
        return Batch(env.type, env.config, self.tasks, run.config.rollouts, pending.episodes, ids, prompt=env.prompt)

    def product(self, pending: Pending, rollouts: Sequence[TaskRollouts]) -> Product:
        """Return the tables of the new episodes together with the shard's earlier episodes."""
        store = self.store
        if pending.episodes is not None:
            stored = stored_rollouts({schema: store.read(schema, self.shard) for schema in STORE_TABLES})
            pairs = zip(stored, rollouts, strict=False)  # the shard may have got more tasks
            merged = [_merged(before, after, pending.episodes) for before, after in pairs]
            rollouts = [*merged, *rollouts[len(merged) :]]
        tables = rollout_tables(rollouts)
        files = [(store.table_file(schema, self.shard), schema, tables[schema]) for schema in STORE_TABLES]
        rows = tables[EPISODES].select(["episode_id", "status", "failed"]).to_pylist()
        facts = {
            "episodes": len(rows),
            "succeeded": sum(row["failed"] is False for row in rows),
            "failed": sum(row["failed"] is True for row in rows),
            PENDING_EPISODES: [row["episode_id"] for row in rows if row["status"] == Status.ERROR],
        }
        return Product(files, facts)


def _merged(before: TaskRollouts, after: TaskRollouts, replaced: Collection[str]) -> TaskRollouts:
    from .usage import calls_in_all  # noqa: PLC0415 - only for a shard that is completed

    fresh = {episode.episode_id: episode for episode in after.episodes}
    index = {episode.episode_id: number for number, episode in enumerate(before.episodes)}
    calls = calls_in_all(before.calls, after.calls, replaced)
    return TaskRollouts(
        task=before.task,
        episodes=[fresh.get(episode.episode_id, episode) for episode in before.episodes],
        frames=before.frames | after.frames,
        prompts=before.prompts | after.prompts,
        calls=sorted(calls, key=lambda call: index[call.episode_id]),
    )


@dataclass(frozen=True)
class LabelStage(Stage):
    """Labels the failures of a shard; asks the teacher only for guidance that the store does not hold."""

    earlier: "EarlierGuidance | None" = None

    title: ClassVar[str] = LABEL
    sparse: ClassVar[bool] = True
    pending_fact: ClassVar[str | None] = UNANSWERED

    @property
    def name(self) -> str:
        """Name of the stage in receipts: each label version has its own."""
        return f"{LABEL}-v{self.store.config.label_version}"

    def inputs(self) -> str:
        """Return the digest of everything that decides the labels."""
        store, run, config = self.store, self.store.run, self.store.config
        env, teacher = run.envs[self.shard.env], run.writer()
        solver, prover = env.solver(), env.prover(quick=True)
        return digest(
            {
                "format": FORMAT,
                "rollouts": file_digests(store, ROLLOUT, self.shard),
                "solver": [solver.name, solver.version, solver.config],
                "teacher": [teacher.name, teacher.config],
                "guidance": config.guidance,
                "filters": [type(each).__qualname__ for each in run.filters(self.shard.env)],
                "prover": None if prover is None else type(prover).__qualname__,
                "label_version": config.label_version,
                "target_vocabulary": config.target_vocabulary,
                "analyzer": VERSIONS[config.log],
            }
        )

    def make(self, pending: Pending) -> Product:
        """Certify the failures and have the teacher write the missing guidance."""
        certified, requests = self.certify()
        return self.product(pending, certified, write_guidance(self.writer(pending), requests))

    def certify(self) -> tuple[list[Certified], dict[int, GuidanceRequest]]:
        """Return the certified failures, and the requests to the teacher by the index of the failure."""
        store, config = self.store, self.store.config
        frames = shard_frames(store, self.shard) if store.run.writer().needs_pictures else {}
        solver = store.run.envs[self.shard.env].solver()
        certified = certify_episodes(stored_failures(store, self.shard), solver, config.target_vocabulary, config.log)
        return certified, guidance_requests(certified, config.target_vocabulary, frames)

    def writer(self, pending: Pending) -> GuidanceWriter:
        """Return the teacher of the run; valid stored guidance is used instead of asking it.

        A shard whose episodes have changed, because some were broken or were added, keeps that of the same requests.
        """
        store, writer = self.store, self.store.run.writer()
        if pending.episodes is None and not store.run.writer_is_served:
            return writer
        from . import guidance  # noqa: PLC0415 - only to resume

        if pending.episodes is not None:
            stored = guidance.stored_guidance(store, self.shard, store.read(LABELS, self.shard).to_pylist())
            kept = {name: each for name, each in stored.items() if name not in pending.episodes}
            return guidance.KeptGuidance(writer, kept)
        earlier, unanswered = self.earlier, list[str]()
        if earlier is None:
            receipt = store.receipt(self.name, self.shard)
            if receipt is None or not receipt.holds(store.storage, receipt.inputs):
                return writer
            earlier, unanswered = guidance.EarlierGuidance(store.config.label_version), receipt.facts[UNANSWERED]
        return guidance.guidance_of_version(store, self.shard, earlier, writer, unanswered)

    def kept_guidance(self, pending: Pending, requests: Mapping[int, GuidanceRequest]) -> dict[int, Guidance]:
        """Return stored guidance that still answers, by the index of the failure."""
        from .guidance import KeptGuidance  # noqa: PLC0415 - only for models

        teacher = self.writer(pending)
        if not isinstance(teacher, KeptGuidance):
            return {}
        kept = {index: (request, teacher.kept(request)) for index, request in requests.items()}
        return {index: with_prompt(each, teacher, request) for index, (request, each) in kept.items() if each}

    def product(self, pending: Pending, certified: list[Certified], guidance: Mapping[int, Guidance]) -> Product:
        """Judge the labels and return their tables."""
        store, run = self.store, self.store.run
        env = run.envs[self.shard.env]
        labels = make_labels(
            certified,
            guidance,
            env.solver(),
            run.writer(),
            run.filters(self.shard.env),
            str(run.config.label_version),
            run.config.target_vocabulary,
            env.prover(quick=True),
            run.config.guidance or "facts",
        )
        made, name = [call for label in labels for call in label.calls], store.label_calls_file(self.shard)
        calls = [] if name is None else _all_calls(store, name, pending, made)
        shown = [label.teacher_prompt for label in labels if label.teacher_prompt is not None]
        prompts = {each.prompt_hash: each for each in (*(label.prompt for label in labels), *shown)}
        rows = {LABELS: labels, PROMPTS: prompts.values(), CALLS: calls}
        return self.product_of({schema: schema.table(list(map(to_row, each))) for schema, each in rows.items()})

    def product_of(self, tables: Mapping[TableSchema, pa.Table]) -> Product:
        """Return the labels of the shard with their prompts, and with their calls if the teacher is a model."""
        store, shard = self.store, self.shard
        prompts = store.label_prompts_file(shard)
        calls = prompts.replace(PROMPTS.name, CALLS.name, 1)  # without rows, it removes what a killed relabel left
        names = {LABELS: store.table_file(LABELS, shard), PROMPTS: prompts, CALLS: calls}
        columns = ["episode_id", "pivot_step", "accepted", "proved", "reject_reasons"]
        rows, unanswered = tables[LABELS].select(columns).to_pylist(), (TEACHER, UNANSWERED)
        facts = {
            "labels": len(rows),
            "accepted": sum(row["accepted"] for row in rows),
            "rejected": sum(not row["accepted"] for row in rows),
            "unproved": sum(row["proved"] is None and row["pivot_step"] is not None for row in rows),
            UNANSWERED: [
                row["episode_id"]
                for row in rows
                if any((reason["name"], reason["kind"]) == unanswered for reason in row["reject_reasons"])
            ],
        }
        return Product([(name, schema, tables[schema]) for schema, name in names.items()], facts)


def _all_calls(store: Store, name: str, pending: Pending, made: list[Call]) -> list[Call]:
    """Return the calls of a shard's labels, with earlier calls of labels whose teacher did not answer then."""
    if pending.episodes is None:
        return made
    from .usage import calls_in_all  # noqa: PLC0415 - only for a shard that is completed

    stored = [from_row(Call, row) for row in store.read_file(name, CALLS).to_pylist()]
    before = [call for call in stored if call.episode_id in pending.episodes]
    return calls_in_all(before, made, pending.episodes)


@dataclass(frozen=True)
class ExportStage(Stage):
    """Writes the records and whole episodes of a shard, each into its split."""

    split: ShardSplit
    """Facts of other shards that decide the splits of this one."""
    folder: str = DATASET_FOLDER

    title: ClassVar[str] = EXPORT
    sparse: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the stage in receipts: a dataset that a relabelling prepares has its own."""
        return f"{EXPORT}-v{self.store.config.label_version}{'-staged' if self.folder != DATASET_FOLDER else ''}"

    @cached_property
    def _splits(self) -> dict[str, str]:
        return shard_sides(self.store, self.shard, self.split)

    def inputs(self) -> str:
        """Return the digest of everything that decides the files."""
        store, shard = self.store, self.shard
        return digest(
            {
                "format": FORMAT,
                "rollouts": file_digests(store, ROLLOUT, shard),
                "labels": file_digests(store, LabelStage(store, shard).name, shard),
                "include_infeasible": store.config.include_infeasible,
                "sides": sorted(self._splits.items()),
                "modes": store.run.failure_modes,
                "folder": self.folder,
            }
        )

    def make(self, pending: Pending) -> Product:
        """Compose the records from the stored rows."""
        del pending
        tables = DatasetExporter().tables(LabelledShard(self.store, self.shard, self._splits))
        files = [
            (dataset_file(self.folder, schema, self.shard, side), schema, table)
            for (schema, side), table in tables.items()
        ]
        return Product(files, {"rows": sum(table.num_rows for _, schema, table in files if schema is DATASET)})
