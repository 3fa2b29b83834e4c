"""Build a store from a config: plan, roll out, label, export, and write the manifest last.

The pipeline gets the pool that runs its shards (this process, others, or tasks of Prefect) and a reporter.
Every finished shard has receipts, so the same call resumes after an interruption.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.errors import NoStoreError, ReadOnlyError, StoreError
from ..core.progress import Reporter
from ..core.storage import Address, Storage, Url, open_storage
from ..core.storage.base import Receipt, is_intact
from ..core.storage.commit import JOURNAL
from ..datasets.export.card import write_card
from ..datasets.sql.database import write_database
from ..datasets.store.config import PartConfig, RunConfig, Shard, env_config
from ..datasets.store.dataset_rows import ShardSplit, plan_split
from ..datasets.store.location import marks_in, refuse_inside_store, refuse_unfinished_merge
from ..datasets.store.run import Run
from ..datasets.store.schema import STORE_TABLES
from ..datasets.store.stages import (
    EXPORT,
    PENDING_EPISODES,
    ROLLOUT,
    ExportStage,
    LabelStage,
    RolloutStage,
    ShardResult,
    Stage,
    report_stored,
    run_stage,
)
from ..datasets.store.store import (
    AUDIT,
    DATABASE,
    DATASET_FOLDER,
    MANIFEST,
    PROBE_FOLDER,
    RECEIPTS,
    RUN,
    Store,
    finish_relabel,
    home_of,
    stored_config,
)
from ..environments.base import Task
from ..labeling.base import UNANSWERED
from .engines.base import WorkerPool
from .engines.local import InProcess

if TYPE_CHECKING:
    from ..datasets.store.guidance import EarlierGuidance

COUNTS = (
    *("episodes", "succeeded", "failed", "pending_episodes"),
    *("labels", "accepted", "rejected", "unproved", UNANSWERED, "rows"),
)
"""Counts of a build for each environment."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The outcome of a build or relabel, counted from the receipts of its shards."""

    root: Address
    already_complete: bool
    reused_shards: int
    shards: int
    environments: dict[str, dict[str, int]] = field(default_factory=dict)
    """Counts by environment and name of ``COUNTS``."""

    @property
    def is_whole(self) -> bool:
        """Whether no episode and no answer of a teacher is pending."""
        return not (self.pending_episodes or self.unanswered)

    @property
    def pending_episodes(self) -> int:
        """Episodes that ended in an error, which the next build runs again."""
        return sum(counts["pending_episodes"] for counts in self.environments.values())

    @property
    def unanswered(self) -> int:
        """Labels whose teacher did not answer; the next build asks again."""
        return sum(counts[UNANSWERED] for counts in self.environments.values())


def build_store(
    root: Address, config: RunConfig, pool: WorkerPool, reporter: Reporter, *, refresh: bool = False
) -> BuildResult:
    """Build the store at ``root`` from ``config``, or complete it.

    A pre-flight check sends a request to each model behind a server first.

    Raises:
        StoreError: another run writes the store, the folder holds something else, or the disk fails.
        ConfigError, GenerationError, PluginError: the config cannot be carried out.
    """
    config = with_shards(config, root)
    run = Run(config, home_of(root))
    storage = open_storage(root)
    refuse_foreign_folder(storage, root)
    if storage.stat(RUN) is None:  # before the lock: a wrong command leaves no file behind
        if run.services("student", "teacher"):
            from .preflight import check_keys  # noqa: PLC0415 - only for models

            check_keys(run)
        _check(run, reporter)
    try:
        with storage.lock() as leased:
            finish_relabel(storage)
            is_begun = not refresh and storage.stat(RUN) is not None
            stored = _reconcile(root, config) if is_begun else config
            store = Store(leased, stored, run.with_stored(stored))
            done = complete_result(store) if is_begun else None
            return done or _make(store, pool, reporter, refresh=refresh)
    except ReadOnlyError:  # a complete store on a read-only disk needs no lock
        if refresh or storage.stat(RUN) is None:
            raise
        stored = _reconcile(root, config)
        done = complete_result(Store(root, stored, run.with_stored(stored)))
        if done is None:
            raise
        return done


def _check(run: Run, reporter: Reporter) -> None:
    for note in run.check():
        reporter.note(note)


def _make(store: Store, pool: WorkerPool, reporter: Reporter, *, refresh: bool) -> BuildResult:
    """Do the pending work; the manifest is written last."""
    run = store.run
    fresh = store.storage.stat(RUN) is None
    if not fresh:
        _check(run, reporter)
    if run.served or run.writer_is_served:
        from .preflight import preflight_build  # noqa: PLC0415 - only for models

        preflight_build(store, refresh=refresh)
    tasks = plan(run, reporter)
    for name in (MANIFEST, DATABASE, *marks_in(store.storage)):  # unfinished from now on, and no prune removes it
        store.storage.delete(name)
    if refresh:
        names = {*(schema.name for schema in STORE_TABLES), "imports", "labels", DATASET_FOLDER, RECEIPTS, PROBE_FOLDER}
        for name in store.storage.entries():
            if name in names | {AUDIT} or name.startswith(f".{DATASET_FOLDER}-v"):
                store.storage.delete(name)
    store.write_run()
    asking = store.with_service("student", refresh=True) if refresh else store
    stages = [RolloutStage(asking, shard, levels) for shard, levels in tasks.items()]
    try:
        if run.served:
            from .served import roll_out, run_served  # noqa: PLC0415 - only for models

            results = _in_order(list(tasks), run_served(roll_out, stages, "student", pool, reporter))
        else:
            results = run_stages(stages, pool, reporter)
    except Exception:
        with suppress(StoreError):  # report the first error, not one of the clean-up
            begun = (RECEIPTS, *(schema.name for schema in STORE_TABLES))
            if fresh and not any(map(store.storage.listing, begun)):
                for name in (*begun, RUN):
                    store.storage.delete(name)  # nothing is stored: the next command finds an empty folder
        raise
    results += label_and_export(store, pool, reporter, DATASET_FOLDER, refresh=refresh)
    return seal_store(store, results)


def seal_store(store: Store, results: Sequence[ShardResult]) -> BuildResult:
    """Write card, config, views and, last, the manifest: from then on the store is complete."""
    files = {name: record for result in results for name, record in result.files.items()}
    files |= write_card(store, DATASET_FOLDER, files)
    files[RUN] = store.write_run()
    if store.is_imported:
        files[AUDIT] = store.storage.record(AUDIT)
    write_database(store)
    store.write_manifest(files)
    if PROBE_FOLDER in store.storage.entries():
        from ..insight.probe.run import keep_retries  # noqa: PLC0415 - few stores are probed before they grow

        keep_retries(store)
    return summarise(store, results, already_complete=False)


def finish_store(root: Address, pool: WorkerPool, reporter: Reporter) -> BuildResult:
    """Label and export rollouts, with receipts, that a training run has stored; nothing is played.

    Raises:
        StoreError: a shard of the rollouts or its receipt is missing, or the disk fails.
        ConfigError, PluginError: its config cannot be carried out.
    """
    storage = open_storage(root)
    with storage.lock() as leased:
        store = Store.open(leased, complete=False)
        results: list[ShardResult] = []
        for shard in store.config.shards():
            receipt = store.receipt(ROLLOUT, shard)
            if receipt is None:
                raise StoreError(f"{root} lacks the receipt of {shard.file}; its run did not get that far, or lost it")
            results.append(ShardResult(shard, ROLLOUT, True, receipt.files, receipt.facts))
        return seal_store(store, results + label_and_export(store, pool, reporter, DATASET_FOLDER))


def label_and_export(
    store: Store,
    pool: WorkerPool,
    reporter: Reporter,
    folder: str,
    *,
    refresh: bool = False,
    earlier: "EarlierGuidance | None" = None,
) -> list[ShardResult]:
    """Label every shard and write its part of the dataset under ``folder``.

    With ``refresh`` guidance is requested even if the call cache has it. ``earlier`` guidance is kept if its request
    has not changed.
    """
    asking, shards, writer = store, store.config.shards(), store.run.writer()
    if refresh:
        asking = store.with_service("teacher", refresh=True)
    stages = [LabelStage(asking, shard, earlier) for shard in shards]
    waits = False
    if writer.served:
        from ..labeling.writers.concurrent import ConcurrentWriter  # noqa: PLC0415 - only for models

        waits = isinstance(writer, ConcurrentWriter)
    if waits:
        from .served import label, run_served  # noqa: PLC0415 - as above

        results = _in_order(shards, run_served(label, stages, "teacher", pool, reporter))
    else:
        results = run_stages(stages, InProcess() if writer.one_process else pool, reporter)
    return results + export_store(store, pool, reporter, folder)


def export_store(store: Store, pool: WorkerPool, reporter: Reporter, folder: str) -> list[ShardResult]:
    """Write every shard's part of the dataset under ``folder``, from finished labels."""
    split = plan_split(store)
    stages = [ExportStage(store, shard, split[shard], folder) for shard in store.config.shards()]
    return run_stages(stages, pool, reporter)


def plan(run: Run, reporter: Reporter) -> dict[Shard, list[Task]]:
    """Make the levels of a run and assign them to its shards."""
    stage = "plan"
    seed, rollouts = run.config.seed, run.config.rollouts
    reporter.start(stage, sum(env.tasks for env in run.envs.values()) * rollouts)
    tasks: dict[str, list[Task]] = {}
    for name, env in run.envs.items():
        tasks[name] = env.plan(seed)
        reporter.advance(stage, env.tasks * rollouts)
    reporter.finish(stage)
    return {shard: tasks[shard.env][shard.first : shard.stop] for shard in run.config.shards()}


def run_stages(stages: Sequence[Stage], pool: WorkerPool, reporter: Reporter) -> list[ShardResult]:
    """Run one stage of several shards; return their results in the order of the shards."""
    title = stages[0].title
    episodes = {stage.shard: stage.episodes for stage in stages}
    reporter.start(title, sum(episodes.values()))
    results: list[ShardResult] = []
    for result in pool.stream(run_stage, [(stage,) for stage in stages]):
        results.append(result)
        report_stored(reporter, result)
        reporter.advance(title, episodes[result.shard])
    reporter.finish(title)
    return _in_order(list(episodes), results)


def _in_order(shards: Sequence[Shard], results: Sequence[ShardResult]) -> list[ShardResult]:
    index = {shard: number for number, shard in enumerate(shards)}
    return sorted(results, key=lambda result: index[result.shard])


def refuse_foreign_folder(storage: Storage, root: Address) -> None:
    """Refuse a folder with other files or with another command's unfinished store, or inside a store.

    Raises:
        StoreError: it does.
    """
    refuse_inside_store(root)
    refuse_unfinished_merge(storage)
    foreign = [name for name in storage.entries() if not name.startswith(".")]
    if foreign and RUN not in foreign:
        raise NoStoreError(
            f"{storage.address()} holds {foreign[0]!r} but no {RUN}, so it is not a PIVOT store; "
            "choose an empty folder with --out"
        )


def refuse_another_config(root: Address, config: RunConfig, *, refresh: bool) -> None:
    """Refuse a folder that a build with this config could not write; :func:`build_store` checks it again."""
    storage = open_storage(root)
    refuse_foreign_folder(storage, root)
    if not refresh and storage.stat(RUN) is not None and storage.stat(JOURNAL) is None:
        _reconcile(root, with_shards(config, root))


def with_shards(config: RunConfig, root: Address) -> RunConfig:
    """Return the config with the shard size of the existing store, or with a suitable one for a new store.

    A size that the config sets is kept.
    """
    if "tasks_per_shard" in config.model_fields_set:
        return config
    if open_storage(root).stat(RUN) is None:
        return config.with_fitting_shards()
    begun = Store.open(root, complete=False).config
    return config.model_copy(update={"tasks_per_shard": begun.tasks_per_shard})


def _reconcile(root: Address, config: RunConfig) -> RunConfig:
    """Return the config of the build after comparing it with the store's: a store may grow, but not change."""
    old = stored_config(root, complete=False)
    config = config.model_copy(update={"label_version": old.label_version, "license": config.license or old.license})
    changed = [
        name
        for name in type(config).model_fields
        if name not in ("environments", "filters", "license")
        and deciding(getattr(config, name)) != deciding(getattr(old, name))
    ]
    for name, run in old.environments.items():
        new = config.environments.get(name)
        if new is None:
            changed.append(f"environments (it also holds {name})")
        elif keys := _changed_settings(name, run.settings, new.settings):
            changed.append(f"settings of {name} ({', '.join(keys)})")
        elif config.filters[name] != old.filters[name]:
            changed.append(f"filters of {name} ({', '.join({*config.filters[name]} ^ {*old.filters[name]})})")
        elif (new.drawn, new.seeds) != (run.drawn, run.seeds):
            changed.append(f"levels of {name} (these are of merged stores, or not the first ones of their seed)")
        elif new.tasks < run.tasks:
            changed.append(f"tasks of {name} (it holds {run.tasks}, {new.tasks} asked for)")
    if changed:
        raise NoStoreError(
            f"{root} holds a run with another config: {'; '.join(changed)}; choose another --out, relabel it with "
            f"`pivot relabel {root}` if only teacher, solver settings, filters, split, target words or log differ, or "
            "build it again with --refresh"
        )
    return config


def _changed_settings(env: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the settings whose change would alter episodes; a moved file counts as unchanged."""
    before, after = (env_config(env, settings).decisive() for settings in (old, new))
    return sorted(key for key in before | after if before.get(key) != after.get(key))


def deciding(value: Any) -> Any:
    """Return the part of a config field that decides bytes: the service of a model does not."""
    return (value.name, value.options) if isinstance(value, PartConfig) else value


def complete_result(store: Store) -> BuildResult | None:
    """Return the summary of a store without pending work, else None."""
    storage = store.storage
    old = None if storage.stat(DATABASE) is None else stored_config(store.root, complete=False)
    if old is None or any(
        deciding(getattr(old, name)) != deciding(getattr(store.config, name)) for name in RunConfig.model_fields
    ):
        return None
    try:
        rest = store.manifest()
    except StoreError:
        return None  # missing or damaged: written again
    receipts = _receipts(store)
    for _, _, receipt in receipts or ():
        for made_as, record in receipt.files.items():
            name = made_as.replace(f"{store.staged_folder}/", f"{DATASET_FOLDER}/", 1)
            changed = receipt.changed.get(made_as)
            if rest.pop(name, None) != record or not is_intact(storage, name, record, changed):
                return None
    # Not in a receipt: the card and run.json.
    if receipts is None or not all(is_intact(storage, name, record, None) for name, record in rest.items()):
        return None
    result = _summary(store, receipts)
    return result if result.is_whole else None


def result_of(store: Store) -> BuildResult | None:
    """Summarise a finished store from its receipts; None when some are missing."""
    receipts = _receipts(store)
    return None if receipts is None else _summary(store, receipts)


def _summary(store: Store, receipts: list[tuple[Shard, str, Receipt]]) -> BuildResult:
    results = [ShardResult(shard, stage, True, receipt.files, receipt.facts) for shard, stage, receipt in receipts]
    return summarise(store, results, already_complete=True)


def _receipts(store: Store) -> list[tuple[Shard, str, Receipt]] | None:
    """Return every receipt of a finished store with its stage; None if some are missing."""
    complete: list[tuple[Shard, str, Receipt]] = []
    with store.storage.prefetch(RECEIPTS):
        for shard in store.config.shards():
            receipts = {stage: store.receipt(stage, shard) for stage in (ROLLOUT, LabelStage(store, shard).name)}
            # A relabel leaves a staged export; a later build leaves an export in place, which is then the current one.
            exports = [ExportStage(store, shard, ShardSplit(), each) for each in (DATASET_FOLDER, store.staged_folder)]
            in_place, staged = (store.receipt(stage.name, shard) for stage in exports)
            receipts[EXPORT] = in_place or staged
            for stage, receipt in receipts.items():
                if receipt is None:
                    return None
                complete.append((shard, stage, receipt))
    return complete


def summarise(store: Store, results: Sequence[ShardResult], *, already_complete: bool) -> BuildResult:
    """Sum the reports of the shards of a run."""
    totals: dict[str, dict[str, int]] = {name: dict.fromkeys(COUNTS, 0) for name in store.config.environments}
    for result in results:
        counts = totals[result.shard.env]
        for fact, value in result.facts.items():
            name = "pending_episodes" if fact == PENDING_EPISODES else fact
            counts[name] += len(value) if isinstance(value, list) else value
    made = [result for result in results if result.stage == ROLLOUT]
    root = Url(store.root.text) if isinstance(store.root, Url) else store.root  # without the lease, which ends here
    return BuildResult(root, already_complete, sum(result.reused for result in made), len(made), totals)
