"""``pivot compact``: a store in shards of another size."""

from typing import Annotated

from ..datasets.parts import members_of
from ..datasets.store import Store
from ..flows.compact import compact_store
from ..flows.engines.base import Workers, open_pool
from ..flows.engines.local import execute_with
from ..flows.pipeline import BuildResult, result_of
from .console import ProgressBars, err, out
from .engines import WORKERS, ClusterAddress, EngineName
from .options import StoreAddress, StorePath, address_option, option


def compact(
    root: StorePath,
    out_dir: Annotated[
        StoreAddress, address_option("Folder of the new store, or its s3:// address; new, or begun before.", "--out")
    ],
    shard_size: Annotated[
        int | None,
        option("Levels a shard (default: what a new build of this size has, 16 to 128).", "--shard-size", min=1),
    ] = None,
    workers: Annotated[int, option(WORKERS, "--workers", min=0)] = 0,
    engine: EngineName = "local",
    address: ClusterAddress = "",
) -> None:
    """Write a finished store once more in shards of another size: fewer, larger files to list, open and copy.

    Nothing is rolled out, certified or asked again: rows are copied, and the new store has the bytes of a build with
    such shards. The old store stays as it is; remove it when the new one is verified. The same command again goes on
    where it stopped. Only the current labels are taken along, and no rollback probe.

    [bold]Examples[/]

    pivot compact runs/grown --out runs/large

    pivot compact runs/first --out runs/small --shard-size 4

    pivot compact runs/grown --out s3://bucket/grown
    """
    store = Store.open(root)
    environments = list(store.config.environments)
    with ProgressBars() as bars, open_pool(Workers(engine, address, workers), environments, out_dir) as pool:
        result = compact_store(root, out_dir, execute_with(pool), bars, tasks_per_shard=shard_size)
    show_copy(store, result)


def show_copy(old: Store, result: BuildResult) -> None:
    """Say what a command made of a store, and what comes next."""
    root, new = old.root, Store.open(result.root)
    members = members_of(new).values()
    episodes = sum(run.tasks * each.config.rollouts for each in members for run in each.config.environments.values())
    shards, parts = sum(len(each.config.shards()) for each in members), len(members)
    size = max(each.config.tasks_per_shard for each in members)
    where = f"{shards} shards of up to {size} levels" + (f" in {parts} parts" if parts > 1 else "")
    done = "; that was done already" if result.already_complete else ""
    out.print(f"{new.root} holds the {episodes} episodes of {root} in {where}{done}", soft_wrap=True)
    counts = [counted for each in members if (counted := result_of(each)) is not None]
    if owed := sum(each.owed + each.unanswered for each in counts):
        what = f"{owed} episodes or answers of a teacher are owed"
        out.print(f"{what}; make them with: pivot build --out {new.root}", soft_wrap=True)
    if any(name.startswith("probe/") for name in old.manifest()):
        err.print(f"the rollback probe was not taken along; repeat it with: pivot probe {new.root}", soft_wrap=True)
    out.print(f"\nnext:\n  pivot verify {new.root}   before you remove {root}", soft_wrap=True)
