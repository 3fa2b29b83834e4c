"""Copy a store into shards of another size, without rollouts, certification or model requests.

Small builds and stores that grew have many small shards, and each shard is several files to list, open and hash. The
new store has the bytes of a build with its shard size; merged parts have those of a build of all their levels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..datasets.config import RunConfig, make_config
from ..datasets.inputs import ROLLOUT, rollout_facts, rollout_inputs
from ..datasets.origin import MERGED
from ..datasets.parts import part_folder
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
from .merge import Group, groups_of
from .pipeline import BuildResult, run_stages

STAGE = "compact"


def compact_store(
    root: Address,
    target: Address,
    execute: Execute,
    reporter: Reporter,
    *,
    tasks_per_shard: int | None = None,
    merge: bool = False,
    follow: bool = False,
) -> BuildResult:
    """Write the episodes and current labels of a finished store to a new one, in shards of another size.

    Args:
        root: the finished store, which stays as it is.
        target: the new one; empty, or begun by the same call.
        execute: runs the shards.
        reporter: gets the progress.
        tasks_per_shard: levels a shard; by default as many as a new build of its size would choose.
        merge: merge all parts that have the same policy, teacher and settings; see :mod:`.merge`.
        follow: whether folders of models that ``run.json`` names are read for their revision.

    Returns:
        The result of the first part.

    Raises:
        StoreError: a file is missing or damaged, another version wrote the store, ``target`` holds something else, or
            a run writes one of the two.
        ConfigError: the store has that shard size already and no parts to merge, ``target`` is inside the store, or
            the parts of a store that is split by episode would be merged.
    """
    check_source(root)
    source = Store.open(root)
    groups = {group.config.part: group for group in groups_of(source, merge=merge)}
    own = source.config.part  # not 0 where the store is itself a part of one that grew
    _refuse_needless(groups, tasks_per_shard, merge=merge)
    if not follow:
        _refuse_local_models(groups)

    def address(number: int) -> Address:
        return root if number == own else root / part_folder(number)

    by_address = {address(group.first): group for group in groups.values()}
    merged = [[*group.members] for group in groups.values()]
    notes = {MERGED: merged} if any(len(group) > 1 for group in merged) else {}

    def copy(first: Address, target: Address, parts: Callable[[Store], None]) -> BuildResult:
        group = by_address[first]
        for number in group.members:
            check_source(address(number))
        members = [*group.members.values()]
        sources = [(each, each.manifest()) for each in members]

        def shards(store: Store) -> list[ShardResult]:
            rows = {shard: ShardRows.of(sources, shard) for shard in store.config.shards()}
            made = run_stages([CompactRollouts(store, *each) for each in rows.items()], execute, reporter)
            return made + run_stages(
                [CompactLabels(store, shard, source=each) for shard, each in rows.items()], execute, reporter
            )

        config = compacted_config(members[0], tasks_per_shard, group.config)
        return Copying(STAGE, members[0], target, config, members[1:], notes).make(shards, execute, reporter, parts)

    return copy_parts(root, target, copy, {number: group.first for number, group in groups.items() if number != own})


def compacted_config(source: Store, tasks_per_shard: int | None = None, config: RunConfig | None = None) -> RunConfig:
    """Return the config of a store with another shard size, by default the size that a new build would choose.

    ``config`` has the levels of the new store, if they are not those of ``source`` alone.

    Raises:
        ConfigError: the store holds the rollouts of a training run.
    """
    config = config or source.config
    if config.policy.name == TRAINED:
        raise ConfigError(f"{source.root} holds the rollouts of a training run: each shard is one update and stays so")
    if not source.run.policy().plays:
        raise ConfigError(f"{source.root} holds imported episodes, whose levels have any number; import them again")
    if tasks_per_shard is None:
        usual = RunConfig.model_fields["tasks_per_shard"].default
        fitting = config.model_copy(update={"tasks_per_shard": usual}).with_fitting_shards()
        tasks_per_shard = fitting.tasks_per_shard
    return make_config(config.model_dump(mode="json") | {"tasks_per_shard": tasks_per_shard}, STORED)


def _refuse_local_models(groups: Mapping[int, Group]) -> None:
    """Refuse a store whose ``run.json`` names a local model folder, because compacting reads that folder.

    Raises:
        ConfigError: it names one.
    """
    for member in (member for group in groups.values() for member in group.members.values()):
        if folders := member.run.local_models():
            raise ConfigError(
                f"{member.storage.address(RUN)} names the model folder {folders[0]!r}, which would be read here; "
                "look at it, then compact with --sources"
            )


def _refuse_needless(groups: Mapping[int, Group], tasks_per_shard: int | None, *, merge: bool) -> None:
    """Refuse a store of which nothing can be merged, and whose parts all have that shard size.

    Raises:
        ConfigError: it is one.
    """
    members = [member for group in groups.values() for member in group.members.values()]
    if len(groups) < len(members):
        return
    sizes = [compacted_config(member, tasks_per_shard).tasks_per_shard for member in members]
    if sizes == [member.config.tasks_per_shard for member in members]:
        none = " and no two parts with the same policy, teacher and settings" if merge else ""
        raise ConfigError(
            f"{members[0].root} has shards of {sizes[0]} levels already{none}, so nothing is to be compacted; choose "
            "another size with --shard-size, or copy the folder"
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
