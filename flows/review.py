"""The weekly review of scheduled builds: verify every new store, and show their statistics in one table."""

from collections.abc import Iterator
from typing import Any

from ..core.errors import PivotError, StoreError
from ..core.storage import Address, open_storage, parse_address
from ..datasets.store.store import MANIFEST, RUN, Store
from ..datasets.verify.verify import verify_store
from ..insight.stats import SUMMARY
from .artifacts import Row, query_rows
from .engines.base import Workers, open_pool
from .pipeline import result_of
from .watch import Watch

SHOWN = ("group_rates", "modes", "reject_kinds")
"""Tables of ``pivot stats`` that are shown for all stores together."""


def review_stores(folder: Address, newest: int, watch: Watch, workers: Workers) -> dict[str, Any]:
    """Verify the newest stores below ``folder`` and show their statistics.

    Args:
        folder: a store, a folder of stores, or a folder of such folders.
        newest: number of stores of each folder, the last ones by name.
        watch: gets the progress, and shows the tables.
        workers: engine that proves the shards.

    Raises:
        StoreError: no store is there, or one has problems or was left unfinished; the tables then name all of them.
    """
    rows: list[Row] = []
    problems: list[str] = []
    stores = [root for series in _series(folder) for root in series[-newest:]]
    if not stores:
        raise StoreError(f"{folder} holds no store, nor does a folder in it; name the folder of a build's `out`")
    for root in stores:
        more, wrong = _proved(root, watch, workers)
        rows += more
        problems += wrong
    watch.artifacts.table("stores", rows, f"The newest stores below {folder}, proved again")
    with watch.artifacts.unharmed("statistics"):
        for summary in (each for each in SUMMARY if each.view in SHOWN):
            table: list[Row] = []
            for root in {row["store"]: None for row in rows if row["state"] == "proved"}:
                table += [{"store": root, **row} for row in query_rows(parse_address(root), summary.shown)]
            watch.artifacts.table(summary.view.replace("_", "-"), table, f"{summary.title}, below {folder}")
    if problems:
        raise StoreError(f"{len(problems)} problems found in stores below {folder}, the first: {problems[0]}")
    return {"folder": str(folder), "stores": [str(root) for root in stores]}


def _proved(root: Address, watch: Watch, workers: Workers) -> tuple[list[Row], list[str]]:
    """Verify one store; return a row for each of its environments, and its problems."""
    try:
        storage = open_storage(root)
        if storage.stat(MANIFEST) is None:
            if writer := storage.writer():
                return [{"store": str(root), "state": f"written by process {writer}"}], []
            missing = f"{root} is not finished, and no run writes it; start a run for the same day again"
            return [{"store": str(root), "state": "not finished"}], [missing]
        store = Store.open(root)
        with open_pool(workers, list(store.config.environments), root, writes=False) as pool:
            problems = verify_store(root, watch, pool.stream).problems
        result = result_of(store)
    except PivotError as error:
        return [{"store": str(root), "state": str(error)}], [str(error)]
    for problem in problems:
        watch.log.error("%s: %s", root, problem)
    state = f"{len(problems)} problems" if problems else "proved"
    counts = {} if result is None else result.environments
    names = list(store.config.environments)
    rows = [{"store": str(root), "state": state, "environment": name, **counts.get(name, {})} for name in names]
    return rows, problems


def _series(folder: Address) -> Iterator[list[Address]]:
    """Yield the stores of a folder, and the stores of every folder in it, sorted; or the folder, if it is a store."""
    if _is_store(folder):
        yield [folder]
        return
    # A folder of stores may hold links to stores; only the folders below a store must not be links.
    storage = open_storage(parse_address(folder, follow_links=True))
    folders = [folder / name for name in storage.entries() if not name.startswith(".") and storage.stat(name) is None]
    yield [each for each in folders if _is_store(each)]
    for each in folders:
        if not _is_store(each):
            names = open_storage(each).entries()
            yield [each / name for name in names if not name.startswith(".") and _is_store(each / name)]


def _is_store(root: Address) -> bool:
    try:
        return open_storage(root).stat(RUN) is not None
    except StoreError:
        return True  # a link of that name: opening the store reports it
