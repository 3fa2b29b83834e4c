"""A store once more in shards of another size: nothing is rolled out, certified or asked again.

Many small shards come of small builds, and of stores that grew; each is a handful of files to list, open and hash. The
new store has the bytes of a build with shards of its size.
"""

from collections.abc import Callable

from ..datasets.config import RunConfig, Shard, make_config
from ..datasets.formats import refuse_other_formats
from ..datasets.inputs import ROLLOUT, label_facts, label_inputs, label_stage, rollout_facts, rollout_inputs
from ..datasets.parquet import write_tables
from ..datasets.parts import members_of
from ..datasets.progress import Reporter
from ..datasets.resharding import Dealer
from ..datasets.run import Run
from ..datasets.schema import CALLS, EPISODES, LABELS, PROMPTS, STORE_TABLES
from ..datasets.store import RUN, Store
from ..errors import ConfigError
from ..plugins import STORED
from ..rollouts.policies import NAME as TRAINED
from ..storage import Address
from .copying import Copying, copy_parts, settle_source
from .engines.local import Execute
from .pipeline import BuildResult, run_stage
from .stages import ShardResult, finish, kept_result, timed

STAGE = "compact"


def compact_store(
    root: Address, target: Address, execute: Execute, reporter: Reporter, *, tasks_per_shard: int | None = None
) -> BuildResult:
    """Write the episodes and current labels of a finished store to a new one, in shards of another size.

    Args:
        root: the finished store, which stays as it is.
        target: the new one; empty, or begun by the same call.
        execute: runs the shards.
        reporter: is told how far the work has come.
        tasks_per_shard: levels a shard; by default as many as a new build of its size would choose.

    Raises:
        StoreError: a file is missing or damaged, another version wrote the store, ``target`` holds something else, or
            a run writes one of the two.
        ConfigError: the size is the one that the store has, or ``target`` lies in it.
    """
    settle_source(root)
    _refuse_needless(Store.open(root), tasks_per_shard)

    def copy(root: Address, target: Address, parts: Callable[[Store], None]) -> BuildResult:
        settle_source(root)
        source = Store.open(root)
        manifest = source.manifest()

        def shards(store: Store) -> list[ShardResult]:
            def dealer(shard: Shard) -> tuple[Dealer]:
                return (Dealer.of(source, shard, manifest),)

            made = run_stage(STAGE, compact_rollouts, store, execute, reporter, dealer)
            return made + run_stage(f"{STAGE} labels", compact_labels, store, execute, reporter, dealer)

        config = compacted_config(source, tasks_per_shard)
        return Copying(STAGE, source, target, config).make(shards, execute, reporter, parts)

    return copy_parts(root, target, copy)


def compacted_config(source: Store, tasks_per_shard: int | None = None) -> RunConfig:
    """Return the config of a store with shards of another size, by default of that which a new build would choose.

    Raises:
        ConfigError: it is what a training run played. StoreError: another version wrote it.
    """
    held = source.config
    refuse_other_formats(source.storage.read_json(RUN), source.root)
    if held.policy.name == TRAINED:
        raise ConfigError(f"{source.root} is what a training run played: each of its shards is an update, and stays so")
    if tasks_per_shard is None:
        usual = RunConfig.model_fields["tasks_per_shard"].default
        fitting = held.model_copy(update={"tasks_per_shard": usual}).with_fitting_shards()
        tasks_per_shard = fitting.tasks_per_shard
    return make_config(held.model_dump(mode="json") | {"tasks_per_shard": tasks_per_shard}, STORED)


def _refuse_needless(store: Store, tasks_per_shard: int | None) -> None:
    """Refuse a store all of whose parts have shards of that size.

    Raises:
        ConfigError: it is one.
    """
    members = members_of(store).values()
    sizes = [compacted_config(member, tasks_per_shard).tasks_per_shard for member in members]
    if sizes == [member.config.tasks_per_shard for member in members]:
        raise ConfigError(
            f"{store.root} has shards of {sizes[0]} levels already, so nothing is to be compacted; choose another size "
            "with --shard-size, or copy the folder"
        )


@timed
def compact_rollouts(root: Address, run: Run, shard: Shard, dealer: Dealer) -> ShardResult:
    """Write the rollout tables of one shard, unless an earlier call did.

    Raises:
        StoreError: the rows cannot be read, or not written.
    """
    store = Store(root, run.config)
    earlier = kept_result(store, ROLLOUT, shard, None)  # the digest is that of levels that only the rows name
    if earlier is not None:
        return earlier
    tables = dealer.rollouts()
    named = ((store.table_file(schema, shard), schema, tables[schema]) for schema in STORE_TABLES)
    files = write_tables(store.storage, named)
    episodes = tables[EPISODES]
    inputs = rollout_inputs(run, shard, dealer.tasks(episodes))
    return finish(store, ROLLOUT, shard, inputs, files, rollout_facts(episodes))


@timed
def compact_labels(root: Address, run: Run, shard: Shard, dealer: Dealer) -> ShardResult:
    """Write the labels of one shard with their prompts and calls, unless an earlier call did.

    Raises:
        StoreError: the rows cannot be read, or not written.
    """
    store, stage = Store(root, run.config), label_stage(run.config)
    inputs = label_inputs(store, run, shard)
    earlier = kept_result(store, stage, shard, inputs)
    if earlier is not None:
        return earlier
    tables = dealer.labels()
    names = {LABELS: store.table_file(LABELS, shard), PROMPTS: store.label_prompts_file(shard)}
    calls = store.label_calls_file(shard)
    if calls is not None:
        names[CALLS] = calls
    files = write_tables(store.storage, ((name, schema, tables[schema]) for schema, name in names.items()), sparse=True)
    return finish(store, stage, shard, inputs, files, label_facts(tables[LABELS]))
