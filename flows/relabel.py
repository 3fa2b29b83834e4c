"""Label a store again without new rollouts, and replace dataset and manifest in one step.

The new labels and dataset are built next to the old ones under the next label version. Readers see the old store until
everything is in place, and a kill leaves the old store or the new one (see :mod:`..storage.commit`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Unpack

from pydantic import BaseModel, BeforeValidator, ConfigDict

from ..core import admission
from ..core.errors import ConfigError, StoreError
from ..core.plugins import read_settings
from ..core.progress import Reporter
from ..core.storage import Address, open_storage, parse_address
from ..core.storage.commit import COMMIT, bind
from ..datasets.export.card import write_card
from ..datasets.sql.database import write_database
from ..datasets.store.config import PartConfig, RunConfig, make_config
from ..datasets.store.guidance import EarlierGuidance
from ..datasets.store.run import Run
from ..datasets.store.schema import LABELS, STORE_TABLES
from ..datasets.store.stages import ROLLOUT, ShardResult
from ..datasets.store.store import DATABASE, DATASET_FOLDER, MANIFEST, RUN, Store, finish_relabel, stored_config
from ..labeling.action_log import LogDetail
from ..labeling.base import GuidanceSource
from ..labeling.target import Vocabulary
from .engines.base import WorkerPool
from .pipeline import BuildResult, label_and_export, result_of, summarise
from .preflight import preflight_models
from .running import Running, pool_of, public


class LabelChanges(BaseModel):
    """Changed fields of a run config; fields that are None keep their value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    teacher: PartConfig | None = None
    split: Literal["task", "episode"] | None = None
    target_vocabulary: Vocabulary | None = None
    include_infeasible: bool | None = None
    solvers: dict[str, dict[str, Any]] | None = None
    guidance: GuidanceSource | None = None
    filters: Annotated[dict[str, tuple[str, ...]] | None, BeforeValidator(RunConfig.split_names)] = None
    log: LogDetail | None = None


@public
def relabel(
    root: str | Address,
    changes: LabelChanges | Mapping[str, Any],
    *,
    refresh: bool = False,
    only_rejected: bool = False,
    **running: Unpack[Running],
) -> BuildResult:
    """Label a finished store again, without new rollouts, as its next label version.

    Args:
        root: the store.
        changes: fields of the run config that differ from now on, such as ``{"split": "episode"}``: ``teacher``,
            ``split``, ``target_vocabulary``, ``include_infeasible``, ``solvers``, ``log``.
        refresh: ask the teacher for all guidance again.
        only_rejected: ask the teacher again where its guidance had a label rejected, and keep the rest.
        **running: workers, reporter, engine, address and allow: :class:`~pivot.flows.running.Running`.

    Returns:
        Counts of the store.

    Raises:
        StoreError: the store is missing or unfinished, or another run writes it.
        ConfigError: a change cannot be used.
    """
    store = parse_address(root)
    if not isinstance(changes, LabelChanges):
        changes = read_settings(LabelChanges, changes, "label setting ")
    fields = changes.model_dump(mode="json", exclude_none=True)
    config = stored_config(store, complete=False)
    changed = make_config(config.model_dump(mode="json") | fields)  # a mistake is reported before workers start
    if changed.teacher != config.teacher:
        Run(changed).writer().check()
    Store(store, config).check_files(STORE_TABLES)
    with pool_of(running, list(config.environments), store) as pool:
        return relabel_store(
            store, fields, pool, running.get("reporter") or Reporter(), refresh=refresh, only_rejected=only_rejected
        )


def relabel_store(
    root: Address,
    changes: dict[str, Any],
    pool: WorkerPool,
    reporter: Reporter,
    *,
    refresh: bool = False,
    only_rejected: bool = False,
) -> BuildResult:
    """Write the next label version of a finished store.

    Guidance of a model is kept if the model and its request have not changed. After a kill in its last step, the same
    call finishes that step; with other ``changes`` it then makes another version.

    Args:
        root: the store.
        changes: fields of the run config that change: ``teacher``, ``split``, ``target_vocabulary``,
            ``include_infeasible``, ``solvers``, ``log``.
        pool: runs the shards.
        reporter: gets the progress.
        refresh: request all guidance again, even if the store or the call cache has it.
        only_rejected: request guidance again where the label was rejected for it, and keep the rest.

    Raises:
        StoreError: the store is missing or unfinished, or another run writes it.
        ConfigError: a change cannot be used, or the teacher gives the same answers again.
        NotAllowedError: this call does not allow an environment of the store.
    """
    if refresh and only_rejected:
        raise ConfigError("found both refresh and only_rejected; choose one: ask for all guidance, or for the rejected")
    storage = open_storage(root)
    Store.open(root, complete=not storage.listing(COMMIT))
    with storage.lock() as leased:
        finished_now = finish_relabel(storage)
        old = Store.open(leased)
        admission.require(old.config.code)
        if finished_now and make_config(old.config.model_dump(mode="json") | changes) == old.config:
            finished = result_of(old)
            if finished is None:
                raise StoreError(f"{root} lacks receipts; run the same build again to write them")
            return finished
        raw = old.config.model_dump(mode="json") | changes | {"label_version": old.config.label_version + 1}
        store = Store(leased, make_config(raw))
        again = refresh or only_rejected
        if only_rejected and not store.run.writer_is_served:
            raise ConfigError(
                f"only_rejected: teacher {store.config.teacher.name!r} is not a model behind a server and would give "
                "the same answers; leave --only-rejected out, or name a model with --writer"
            )
        before, after = old.run.writer(), store.run.writer()
        is_new = (after.name, after.config) != (before.name, before.config)
        if store.run.writer_is_served and (again or is_new):
            preflight_models(store.run, policy=False)
        earlier = None if refresh else EarlierGuidance(old.config.label_version, only_accepted=only_rejected)
        results = label_and_export(store, pool, reporter, store.staged_folder, refresh=again, earlier=earlier)
        _bind(old, store, results)
        finish_relabel(storage)
        for shard in store.config.shards():
            if receipt := store.receipt(ROLLOUT, shard):
                results.append(ShardResult(shard, ROLLOUT, True, receipt.files, receipt.facts))
        return summarise(store, results, already_complete=False)


def _bind(old: Store, store: Store, results: list[ShardResult]) -> None:
    """Prepare every file of the last step and write its journal."""
    staged = store.staged_folder
    others = {name for shard in old.config.shards() for name in old.label_files(shard)[1:]}

    labels = old.table_folder(LABELS)
    replaced = (f"{DATASET_FOLDER}/", f"{labels}/")
    files = {
        name: record for name, record in old.manifest().items() if not name.startswith(replaced) and name not in others
    }
    made = {name: record for result in results for name, record in result.files.items()}
    made |= write_card(store, staged, made)
    files |= {name.replace(f"{staged}/", f"{DATASET_FOLDER}/", 1): record for name, record in made.items()}
    files[RUN] = store.write_run(f"{COMMIT}/{RUN}")
    write_database(store, f"{COMMIT}/{DATABASE}")
    store.write_manifest(files, f"{COMMIT}/{MANIFEST}")
    bind(store.storage, (staged, DATASET_FOLDER), (RUN, DATABASE, MANIFEST), [labels, *sorted(others)])
