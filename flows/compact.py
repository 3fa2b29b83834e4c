"""Copy a store into shards of another size, without rollouts, certification or model requests.

Small builds and stores that grew have many small shards, and each shard is several files to list, open and hash. The
new store has the bytes of a build with its shard size.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from ..datasets.config import RunConfig, make_config
from ..datasets.formats import refuse_other_formats
from ..datasets.inputs import ROLLOUT, rollout_facts, rollout_inputs
from ..datasets.parts import members_of
from ..datasets.progress import Reporter
from ..datasets.resharding import ShardRows
from ..datasets.schema import EPISODES, STORE_TABLES
from ..datasets.stages.base import Pending, Product, ShardResult, Stage
from ..datasets.stages.label import LabelStage
from ..datasets.store import RUN, Store
from ..errors import ConfigError
from ..plugins import STORED
from ..rollouts.policies import NAME as TRAINED
from ..storage import Address
from .copying import Copying, check_source, copy_parts
from .engines.local import Execute
from .pipeline import BuildResult, run_stages

STAGE = "compact"


def compact_store(
    root: Address,
    target: Address,
    execute: Execute,
    reporter: Reporter,
    *,
    tasks_per_shard: int | None = None,
    follow: bool = False,
) -> BuildResult:
    """Write the episodes and current labels of a finished store to a new one, in shards of another size.

    Args:
        root: the finished store, which stays as it is.
        target: the new one; empty, or begun by the same call.
        execute: runs the shards.
        reporter: gets the progress.
        tasks_per_shard: levels a shard; by default as many as a new build of its size would choose.
        follow: whether folders of models that ``run.json`` names are read for their revision.

    Raises:
        StoreError: a file is missing or damaged, another version wrote the store, ``target`` holds something else, or
            a run writes one of the two.
        ConfigError: the store has that shard size already, or ``target`` is inside the store.
    """
    check_source(root)
    _refuse_needless(Store.open(root), tasks_per_shard)
    if not follow:
        _refuse_local_models(Store.open(root))

    def copy(root: Address, target: Address, parts: Callable[[Store], None]) -> BuildResult:
        check_source(root)
        source = Store.open(root)
        manifest = source.manifest()

        def shards(store: Store) -> list[ShardResult]:
            rows = {shard: ShardRows.of(source, shard, manifest) for shard in store.config.shards()}
            made = run_stages([CompactRollouts(store, *each) for each in rows.items()], execute, reporter)
            return made + run_stages(
                [CompactLabels(store, shard, source=each) for shard, each in rows.items()], execute, reporter
            )

        config = compacted_config(source, tasks_per_shard)
        return Copying(STAGE, source, target, config).make(shards, execute, reporter, parts)

    return copy_parts(root, target, copy)


def compacted_config(source: Store, tasks_per_shard: int | None = None) -> RunConfig:
    """Return the config of a store with another shard size, by default the size that a new build would choose.

    Raises:
        ConfigError: the store holds the rollouts of a training run. StoreError: another version wrote it.
    """
    config = source.config
    refuse_other_formats(source.storage.read_json(RUN), source.root)
    if config.policy.name == TRAINED:
        raise ConfigError(f"{source.root} holds the rollouts of a training run: each shard is one update and stays so")
    if not source.run.policy().plays:
        raise ConfigError(f"{source.root} holds imported episodes, whose levels have any number; import them again")
    if tasks_per_shard is None:
        usual = RunConfig.model_fields["tasks_per_shard"].default
        fitting = config.model_copy(update={"tasks_per_shard": usual}).with_fitting_shards()
        tasks_per_shard = fitting.tasks_per_shard
    return make_config(config.model_dump(mode="json") | {"tasks_per_shard": tasks_per_shard}, STORED)


def _refuse_local_models(store: Store) -> None:
    """Refuse a store whose ``run.json`` names a local model folder, because compacting reads that folder.

    Raises:
        ConfigError: it names one.
    """
    for member in members_of(store).values():
        if folders := member.run.local_models():
            raise ConfigError(
                f"{member.storage.address(RUN)} names the model folder {folders[0]!r}, which would be read here; "
                "look at it, then compact with --sources"
            )


def _refuse_needless(store: Store, tasks_per_shard: int | None) -> None:
    """Refuse a store whose parts all have that shard size.

    Raises:
        ConfigError: they do.
    """
    members = members_of(store).values()
    sizes = [compacted_config(member, tasks_per_shard).tasks_per_shard for member in members]
    if sizes == [member.config.tasks_per_shard for member in members]:
        raise ConfigError(
            f"{store.root} has shards of {sizes[0]} levels already, so nothing is to be compacted; choose another size "
            "with --shard-size, or copy the folder"
        )


@dataclass(frozen=True)
class CompactRollouts(Stage):
    """Takes the rollout tables of one shard from the shards of another size."""

    source: ShardRows
    title: ClassVar[str] = STAGE

    @property
    def name(self) -> str:
        """Name of the stage in receipts: that of a rollout."""
        return ROLLOUT

    def inputs(self) -> str:
        """Return the digest that a build would give its rollouts."""
        return rollout_inputs(self.store.run, self.shard, self.source.tasks())

    def make(self, pending: Pending) -> Product:
        """Return the rollout tables.

        Raises:
            StoreError: the rows cannot be read.
        """
        del pending
        tables = self.source.rollouts()
        files = [(self.store.table_file(schema, self.shard), schema, tables[schema]) for schema in STORE_TABLES]
        return Product(files, rollout_facts(tables[EPISODES]))


@dataclass(frozen=True)
class CompactLabels(LabelStage):
    """Takes the labels of one shard, with their prompts and calls, from shards of another size."""

    source: ShardRows = field(kw_only=True)
    title: ClassVar[str] = f"{STAGE} labels"
    pending_fact: ClassVar[str | None] = None

    def make(self, pending: Pending) -> Product:
        """Return the tables of the labels.

        Raises:
            StoreError: the rows cannot be read.
        """
        del pending
        return self.product_of(self.source.labels())
