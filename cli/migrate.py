"""``pivot migrate``: a store of an older version, made one of this version."""

from typing import Annotated

from ..flows.engines.base import Workers, open_pool
from ..flows.engines.local import execute_with
from ..flows.migrate import migrate_store, open_older
from .compact import show_copy
from .console import ProgressBars, err
from .engines import WORKERS, ClusterAddress, EngineName
from .options import StoreAddress, StorePath, address_option, option


def migrate(
    root: StorePath,
    out_dir: Annotated[
        StoreAddress, address_option("Folder of the new store, or its s3:// address; new, or begun before.", "--out")
    ],
    workers: Annotated[int, option(WORKERS, "--workers", min=0)] = 0,
    engine: EngineName = "local",
    address: ClusterAddress = "",
) -> None:
    """Make a store of this version of one that an older version wrote: columns, ids, labels, dataset, card.

    Nobody is asked: episodes are played again with the stored replies, and labels are certified again with the guidance
    that a teacher wrote. Where the teacher would be shown something else now, its answer is owed, and the next build
    asks for it. A shard in which anything else happens now than is stored is refused by name.

    The old store stays as it is. The same command again goes on where it stopped. Older label versions that were kept
    and rollback probes are not taken along.

    [bold]Example[/]

    pivot migrate runs/last-year --out runs/this-year
    """
    store, _ = open_older(root)
    environments = list(store.config.environments)
    with ProgressBars() as bars, open_pool(Workers(engine, address, workers), environments, out_dir) as pool:
        migration = migrate_store(root, out_dir, execute_with(pool), bars)
    for setting in migration.left_out:
        err.print(f"left out, as this version has no such setting: {setting}", soft_wrap=True)
    show_copy(store, migration.result)
