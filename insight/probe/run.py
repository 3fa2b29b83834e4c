"""Probe a store: retry all its failures, shard by shard, and list the result in the manifest.

Shards of an embedded policy go to worker processes; a served policy plays one shard at a time, whose retries keep its
model busy. Finished retries are kept: the same call resumes.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from ...core import admission
from ...core.errors import ConfigError
from ...core.progress import Reporter
from ...core.storage import Address, FileRecord
from ...core.storage.base import Receipt
from ...datasets.store.config import PartConfig, RunConfig, Shard
from ...datasets.store.schema import LABELS
from ...datasets.store.stages import PENDING_EPISODES, ShardResult
from ...datasets.store.store import Store
from ...rollouts.base import Batch, TaskRollouts
from ...rollouts.episode import ENDS_THE_RUN
from ...rollouts.scheduler import run_batches, run_without_gc_pauses
from .bounds import BoundFiles, bound_shard, refuse_other_policy, run_of
from .rates import probe_settings
from .records import BOUND, FOLDER, PROBE_ARMS, SETTINGS_FILE, ProbeSettings, receipt_file, settings_record
from .shard import ProbeFiles, ShardDone, ShardProbe, rollback_policy

STAGE = "probe"


Stream = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Counts of a probe."""

    retries: int
    played: int
    """Number of retries of this call; the others are from earlier calls."""


def probe_store(
    root: Address,
    settings: ProbeSettings,
    reporter: Reporter,
    stream: Stream | None = None,
    policy: PartConfig | None = None,
) -> ProbeResult:
    """Retry the failures of a finished store.

    Args:
        root: the store; its policy acts.
        settings: arms, resamples, discount.
        reporter: receives the progress, in failures.
        stream: runs the shards of an embedded policy; by default one after the other in this process.
        policy: plays the retries of arm ``bound``; by default the policy of the store, which plays the other arms, on
            the server that ``policy`` names if it is the same policy.

    Raises:
        ConfigError: an arm is unknown, or the policy cannot play these environments.
        StoreError: the store is missing or unfinished, another run writes it, or the disk fails.
        ServerGoneError: the model stopped answering; finished retries are kept.
    """
    store = checked_store(root, settings, policy)
    with store.storage.lock() as locked:
        store = Store(locked, store.config)
        _refuse_to_drop(store, settings)
        if BOUND in settings.arms:
            refuse_other_policy(store, policy)
        manifest = {name: record for name, record in store.manifest().items() if not name.startswith(f"{FOLDER}/")}
        same = store.storage.stat(SETTINGS_FILE) is not None and probe_settings(store) == settings
        shards = store.config.shards()
        needs_model = store.run.served and {*settings.arms} != {BOUND}
        if needs_model and not (same and all(_is_played(store, shard) for shard in shards)):
            asyncio.run(store.run.policy().preflight())
        if SETTINGS_FILE in store.manifest() and not same:
            store.write_manifest(manifest)  # otherwise it would list files that a kill leaves in another state
        failures = {shard: store.read(LABELS, shard, ["episode_id"]).num_rows for shard in shards}
        arguments = [(locked, store.config, settings, shard) for shard in shards]
        run = starmap if store.run.served else stream or starmap
        done: list[ShardDone] = list(_reported(STAGE, run(probe_shard, arguments), reporter, failures))
        if BOUND in settings.arms:
            run = starmap if run_of(store, policy).served else stream or starmap  # a served policy: shard by shard
            bounds = [(store.root, store.config, settings, policy, shard) for shard in shards]
            done += _reported(BOUND, run(bound_shard, bounds), reporter, failures)
        files = {name: record for each in done for name, record in each.files.items()}
        files[SETTINGS_FILE] = store.storage.write_json(SETTINGS_FILE, settings_record(settings))
        store.write_manifest(manifest | files)
    return ProbeResult(sum(each.retries for each in done), sum(each.played for each in done))


def _reported(stage: str, results: Iterator[Any], reporter: Reporter, failures: Mapping[Shard, int]) -> Iterator[Any]:
    """Yield the results of shards, and report the failures of each as done."""
    reporter.start(stage, sum(failures.values()))
    for result in results:
        yield result
        reporter.advance(stage, failures[result.shard])
    reporter.finish(stage)


def checked_store(root: Address, settings: ProbeSettings, policy: PartConfig | None = None) -> Store:
    """Open a store and check before any process starts that it can be probed.

    Raises:
        ConfigError, StoreError: see :func:`probe_store`. NotAllowedError: this call does not allow an environment.
    """
    names = [*PROBE_ARMS, BOUND]
    unknown = [name for name in settings.arms if name not in names]
    if unknown:
        raise ConfigError(f"unknown arm {unknown[0]!r}, expected some of: {', '.join(names)}")
    store = Store.open(root)
    stored = store.config.policy
    if policy is not None and (policy.name, policy.options) == (stored.name, stored.options):
        store = Store(root, store.config.model_copy(update={"policy": policy}))
    elif policy is not None and BOUND not in settings.arms:
        raise ConfigError(f"another policy than that of the store plays arm {BOUND} alone; add --arm {BOUND}")
    store.check_files()
    admission.require(store.config.code)
    run_of(store, policy).policy().check()
    if {*settings.arms} != {BOUND}:
        store.run.policy().check()
    _refuse_to_drop(store, settings)
    return store


def _refuse_to_drop(store: Store, settings: ProbeSettings) -> None:
    """Refuse settings that would drop stored retries: those of a model cost as much as rollouts."""
    if store.storage.stat(SETTINGS_FILE) is None:
        return
    stored = probe_settings(store)
    if set(stored.arms) <= set(settings.arms) and stored.resamples <= settings.resamples:
        return
    raise ConfigError(
        f"{store.root} holds retries in the arms {', '.join(stored.arms)}, {stored.resamples} per failure, some of "
        "which would be dropped; ask for at least these with --arm and --resamples, or delete its folder probe"
    )


def keep_retries(store: Store) -> None:
    """List the retries of an earlier probe in a new manifest, and remove those of shards that have changed."""
    if store.storage.stat(SETTINGS_FILE) is None:
        return  # the first probe did not finish
    settings, policy, files = probe_settings(store), rollback_policy(store), dict[str, FileRecord]()
    for shard in store.config.shards():
        for stage in (ProbeFiles(store, shard, settings, policy), BoundFiles(store, shard)):
            if isinstance(result := stage.check(), ShardResult):
                files |= result.files
    if files:
        files[SETTINGS_FILE] = store.storage.record(SETTINGS_FILE)
    for name in store.storage.listing(FOLDER).keys() - files.keys():
        store.storage.delete(name)
    store.write_manifest(store.manifest() | files)


def _is_played(store: Store, shard: Shard) -> bool:
    """Whether an earlier probe finished every retry of a shard."""
    receipt = Receipt.read(store.storage, receipt_file(shard))
    return receipt is not None and not receipt.facts[PENDING_EPISODES]


def probe_shard(root: Address, config: RunConfig, settings: ProbeSettings, shard: Shard) -> ShardDone:
    """Probe one shard in an event loop of its own; an interruption keeps the finished retries.

    Raises:
        StoreError, ConfigError: see :func:`probe_store`. ServerGoneError: the model stopped answering.
    """
    store = Store(root, config)
    policy = rollback_policy(store)
    work = ShardProbe(store, shard, settings, policy)

    def receive(_: Batch, records: list[TaskRollouts]) -> None:
        work.receive(records)

    try:
        run_without_gc_pauses(run_batches(work.batches(), policy, receive))
    except (*ENDS_THE_RUN, KeyboardInterrupt):
        if work.played:  # a retry costs a model as much as a rollout
            work.write()
        raise
    return ShardDone(shard, work.write(), len(work.rows), work.pending)
