"""Flows that copy or publish finished stores: what ``pivot compact`` and ``push`` do, for a worker."""

from typing import Any

from prefect import flow
from pydantic import NonNegativeInt

from ..datasets.publish import MAIN, PREFIX, parse_target, publish
from ..datasets.store import Store
from ..storage import parse_address
from .compact import compact_store
from .deployments import at_work, plain, show
from .engines.base import Workers
from .engines.prefect import execute_as_tasks
from .watch import watched


@flow(name="compact-dataset", flow_run_name="compact {root} to {out}", persist_result=False)
def compact_dataset(
    root: str,
    out: str,
    shard_size: NonNegativeInt = 0,
    merge: bool = False,
    workers: NonNegativeInt = 0,
    engine: str = "local",
    address: str = "",
) -> dict[str, Any]:
    """Write the rows of a finished store with all its parts to a new store, in fewer and larger files.

    Args:
        root: Folder of the store, or its address; it stays as it is.
        out: The new store: empty, or begun by an earlier run.
        shard_size: Levels per shard; 0 for as many as a new build of its size would choose.
        merge: Merge all parts that have the same policy, teacher and settings.
        workers: Worker processes; 0 for one per core.
        engine: Engine that runs the shards: `local`, `ray`, `dask`, or another that is installed.
        address: Cluster of the engine; empty for workers on the machine of this run.

    Raises:
        PivotError: as :func:`.compact_store`.
    """
    source, target = parse_address(root), parse_address(out)
    config = Store.open(source).config
    with at_work(config, target, Workers(engine, address, workers)) as (watch, pool):
        execute = execute_as_tasks(pool)
        result = compact_store(source, target, execute, watch, tasks_per_shard=shard_size or None, merge=merge)
        show(watch, result)
    return plain(result)


@flow(name="push-dataset", flow_run_name="push {root} to {target}", persist_result=False)
def push_dataset(root: str, target: str, private: bool = False, revision: str = MAIN) -> dict[str, Any]:
    """Publish the dataset of a finished store on the Hugging Face hub; a version that is there is not sent again.

    The worker needs a login: `HF_TOKEN` in its environment, or `hf auth login`.

    Args:
        root: Folder of the store, or its address.
        target: `hub:OWNER/NAME`; the repository is made if there is none.
        private: Make a new repository private.
        revision: Branch; made if there is none.

    Raises:
        PivotError: as :func:`.publish`.
    """
    repo, store = parse_target(target), parse_address(root)
    with watched(f"push-{root}") as watch:

        def say(line: str) -> None:
            watch.log.info("%s", line)

        made = publish(store, repo, private=private, revision=revision, say=say)
        watch.log.info("%s%s has this version: %d files, %d sent", PREFIX, repo, made.files, made.sent)
    return {"repo": repo, "commit": made.commit, "files": made.files, "sent": made.sent, "bytes": made.sent_bytes}
