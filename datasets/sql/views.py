"""Queries over the views of a store, which are made in memory.

The views read the Parquet files each time, so they never go stale and statistics come from stored data only. Our own
queries never run what a ``pivot.duckdb`` holds, which may be untrusted: views are made from the code below over
tables that PIVOT opens, in a database that can reach no file, network or extension. Groups are
blocks of eight complete rollouts of one prompt key in order of sample index, never across runs, policies or settings;
short blocks are dropped and counted.

A summary of a million episodes would join and read them again for every view. Views that hold shard by shard (blocks,
pivots, rejects) are therefore read once for all queries of a connection, some shards at a time: labels and episodes of
a shard belong together, so no join is larger than that, and rows that summaries need fit in memory. Opening and
decoding small files takes most of the time: every file is opened once for all views, for the columns that these name.
"""

import contextlib
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from ...core.errors import ConfigError
from ...core.storage import Address, Storage, open_storage, parse_address
from ...core.storage.files import parquet_files
from ..store.nights import Nights, nights_of
from ..store.parquet import read_files
from ..store.schema import EPISODES, LABELS, TableSchema
from .database import BASE, CLOSED, DERIVED, create_views, first_line, rows_of, searched, setting_columns

VIEWS = (*BASE, *DERIVED)
"""Public view names, in the order of creation."""

_EPISODE, _GROUP = ("episode_id",), ("episode_id", "group_id")
_IDS = {"episodes": _GROUP, "steps": _EPISODE, "labels": _EPISODE, "failures": _GROUP, "instructive": _EPISODE}
"""Views that join tables by episode, and these tables, each with its ids that stores may share."""
_KEY_ALONE = ("env_config", "policy_config")
"""Columns that views by shard group by and never show: long texts, compared a million times."""
_EPISODES_AT_ONCE = 65_536
"""Number of episodes whose shards are read together, so that their join stays under 100 MB."""
_MEMORY = "512MiB"
"""Memory of DuckDB before it spills to disk. The process needs another 200 MB for libraries and open files."""


@contextlib.contextmanager
def connect(
    root: Address, queries: Sequence[str] = VIEWS, *, external: bool = False, unfinished: bool = False
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the views of a finished store, or of a folder of nights, in a database of their own, in memory.

    Args:
        root: the store or folder.
        queries: SQL that will run, or names of views. Only the views that they name are created, and only their tables
            checked; without names, all views are created.
        external: whether queries may read and write any file and load extensions; relative paths are then those of the
            store.
        unfinished: whether the store may be one that is being built; then its played shards are read.

    Raises:
        StoreError: the store is missing or unfinished, or one of its files is missing, torn or has other columns.
    """
    nights, needed, storage = nights_of(root, unfinished=unfinished), _needed(queries), open_storage(root)
    for store in nights.values():
        store.check_presence(BASE.values())
        # Files of prefetched views are checked by reading them.
        store.check_files([schema for name, schema in BASE.items() if name in needed])
    with duckdb.connect(config=CLOSED | {"enable_external_access": "true"}) as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        connection.execute("SET enable_progress_bar = false")  # it would mix with the output of a slow query
        _read_by_shard(root, nights, connection, needed)
        _create(storage, nights, connection, needed)
        if not external:
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            connection.execute("BEGIN TRANSACTION READ ONLY")  # changes would be lost without an error
            yield connection
            return
        with searched(connection, storage):
            yield connection


def _create(
    storage: Storage, nights: Nights, connection: duckdb.DuckDBPyConnection, needed: Mapping[str, set[str]]
) -> None:
    """Create the views that are not tables yet."""
    base = [name for name in BASE if name in needed or not needed]
    derived = [name for name in DERIVED if name in needed and not DERIVED[name].by_shard] if needed else [*DERIVED]
    settings = setting_columns(nights.values())
    for name in base:
        files = [f"{prefix}{file}" for prefix, store in nights.items() for file in store.files(BASE[name])]
        connection.register(f"{name}_files", parquet_files(storage, files, BASE[name].arrow))
        connection.execute(f"CREATE VIEW {name} AS {rows_of(name, f'(SELECT * EXCLUDE (store) FROM {name}_files)')}")
    create_views(connection, {}, derived, settings)
    if len(nights) > 1:
        _join_by_store(connection, [name for name in _IDS if name in {*base, *derived}], settings)


def _join_by_store(connection: duckdb.DuckDBPyConnection, names: Sequence[str], settings: str) -> None:
    """Make views join within each store, as stores may share episodes: in a schema whose ids begin with the store."""
    connection.execute("CREATE SCHEMA stores; USE stores")
    for name in names:
        if name in BASE:
            ids = ", ".join(f"store || '/' || {each} AS {each}" for each in _IDS[name])
            connection.execute(f"CREATE VIEW {name} AS SELECT * EXCLUDE (store) REPLACE ({ids}) FROM {name}_files")
        else:
            create_views(connection, {}, [name], settings)
            ids = ", ".join(f"regexp_replace({each}, '^[^/]*/', '') AS {each}" for each in _IDS[name])
            connection.execute(f"CREATE OR REPLACE VIEW main.{name} AS SELECT * REPLACE ({ids}) FROM stores.{name}")
    connection.execute("USE main")


def _needed(queries: Iterable[str]) -> dict[str, set[str]]:
    """Return the views that the queries name, and the views that these use, each with its needed columns.

    A view that is read by shard uses no other. An empty set means all columns.
    """
    needed: dict[str, set[str]] = {}
    for query_text in queries:
        for name in set(VIEWS).intersection(re.findall(r"\w+", query_text.lower())):
            needed[name] = set()  # a query that names it may use any column
    for name in [*reversed(DERIVED)]:
        if name not in needed or DERIVED[name].by_shard:
            continue
        sql = DERIVED[name].sql
        columns = set[str]() if "SELECT *" in sql or ".*" in sql else set(re.findall(r"\w+", sql))
        for source in set(VIEWS).intersection(re.findall(r"(?:FROM|JOIN) (\w+)", sql)):
            more = needed.get(source, columns)
            needed[source] = more | columns if more and columns else set()
    return needed


def _read_by_shard(
    root: Address, nights: Nights, connection: duckdb.DuckDBPyConnection, needed: Mapping[str, set[str]]
) -> None:
    """Make tables of views, from some shards after the other; no file is read twice.

    Raises:
        StoreError: a file is torn or has other columns.
    """
    names = [name for name in DERIVED if name in needed and DERIVED[name].by_shard]
    if not names:
        return
    with (
        _explained(root),
        contextlib.closing(_one_ahead(_tables(open_storage(root), nights, names))) as batches,
        ThreadPoolExecutor(len(names), "pivot-views") as threads,
        contextlib.ExitStack() as stack,
    ):
        # DuckDB uses one thread for so few rows, so the views are made in parallel.
        made = [_Made(name, stack.enter_context(connection.cursor()), needed[name]) for name in names]
        for tables in batches:
            for work in [threads.submit(view.add, tables) for view in made]:
                work.result()


class _Made:
    """A view that becomes a table, a few shards at a time, through its own connection."""

    def __init__(self, name: str, connection: duckdb.DuckDBPyConnection, columns: set[str]) -> None:
        self._connection = connection
        kept = [each for each in DERIVED[name].columns if each in columns] or ["*"]
        self._rows = f"SELECT {', '.join(kept)} FROM ({DERIVED[name].sql})"
        self._into = f"CREATE TABLE {name} AS"
        self._next = f"INSERT INTO {name}"

    def add(self, tables: Mapping[TableSchema, pa.Table]) -> None:
        """Add the rows of these files."""
        for base, table in tables.items():
            self._connection.register(base.name, table)
        if LABELS in tables:
            plain = DERIVED["failures"].sql.replace("SETTINGS", "")
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW failures AS {plain}")
        self._connection.execute(f"{self._into} {self._rows}")
        self._into = self._next


def _tables(storage: Storage, nights: Nights, names: Sequence[str]) -> Iterator[dict[TableSchema, pa.Table]]:
    """Yield the columns of episodes and labels that the views need, a few shards at a time."""
    words = set(re.findall(r"\w+", " ".join(DERIVED[name].sql for name in names)))
    if "failures" in words:
        words.update(re.findall(r"\w+", DERIVED["failures"].sql))
    columns = {base: [name for name in base.names if name in words] for base in (EPISODES, LABELS)}
    for batch in _batches(nights):
        yield {base: read_files(storage, batch[base], base, used, _KEY_ALONE) for base, used in columns.items() if used}


def _one_ahead(batches: Iterator[dict[TableSchema, pa.Table]]) -> Generator[dict[TableSchema, pa.Table], None, None]:
    """Yield the batches; while one is worked on, a thread reads the next."""
    with ThreadPoolExecutor(1, "pivot-ahead") as thread:
        following = thread.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = thread.submit(next, batches, None)
            yield batch


def _batches(nights: Nights) -> Iterator[dict[TableSchema, list[str]]]:
    """Yield the files of episodes and labels of a few shards at a time, store by store."""
    for prefix, store in nights.items():
        config, shards = store.config, store.shards
        at_once = max(1, _EPISODES_AT_ONCE // (config.rollouts * config.tasks_per_shard))
        present = {file for base in (EPISODES, LABELS) for file in store.files(base)}
        for first in range(0, len(shards), at_once):
            files = {
                base: [store.table_file(base, shard) for shard in shards[first : first + at_once]]
                for base in (EPISODES, LABELS)
            }
            yield {base: [f"{prefix}{file}" for file in names if file in present] for base, names in files.items()}


def query(root: Address, sql: str, *, external: bool = False) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one SQL query over the views; return column names and rows; see :func:`connect` for ``external``.

    Raises:
        ConfigError: the query is wrong, or asks for what it may not; StoreError: the store is damaged.
    """
    with connect(root, [sql], external=external) as connection:
        return run_query(root, connection, sql)


def run_query(
    root: Address, connection: duckdb.DuckDBPyConnection, sql: str
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one of several queries over the views of the same store; it raises the errors of :func:`query`."""
    with _explained(root, sql):
        if not duckdb.extract_statements(sql):
            raise ConfigError("the query is empty; give a statement, such as 'from modes'")
        _refuse_several(sql)
        result = connection.execute(sql)
        return [column[0] for column in result.description or []], result.fetchall()


def query_table(root: Address, connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Run a query like :func:`run_query`; return an Arrow table, for files."""
    with _explained(root, sql):
        _refuse_several(sql)
        result = connection.sql(sql)
        if result is None:  # so it is for an empty text
            raise ConfigError("the statement has no result to write; give a SELECT")
        return result.to_arrow_table()


def query_frame(root: str | Address, sql: str, *, allow_external: bool = False) -> pl.DataFrame:
    """Run an SQL query over the views of a store.

    Args:
        root: the finished store, or a folder of nights.
        sql: a statement of DuckDB, such as ``from modes``.
        allow_external: let the query read and write other files and load extensions, too.

    Returns:
        The rows.

    Raises:
        StoreError: the store is missing or unfinished, or one of its files is missing or torn.
        ConfigError: the query cannot be run.
    """
    store = parse_address(root)
    with connect(store, [sql], external=allow_external) as connection:
        return pl.DataFrame(query_table(store, connection, sql))


def _refuse_several(sql: str) -> None:
    """Raise ConfigError if several statements return rows: those of all but the last would be lost."""
    rows = [duckdb.ExpectedResultType.QUERY_RESULT]
    count = sum(each.expected_result_type == rows for each in duckdb.extract_statements(sql))
    if count > 1:
        raise ConfigError(f"the query: found {count} statements that return rows, expected one; run them one by one")


@contextlib.contextmanager
def _explained(root: Address, sql: str = "") -> Iterator[None]:
    try:
        yield
    except duckdb.PermissionException as error:
        raise ConfigError(
            f"the query may see the store alone, no other file and no extension ({first_line(error)}); give "
            "--allow-external to let it"
        ) from error
    except (duckdb.Error, pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # A damaged file can cause any error; checking the files finds it.
        for store in nights_of(root, unfinished=True).values():
            store.check_files()
        missing = re.search(r'Referenced column "(.*?)"', str(error))
        is_quoted = missing is not None and f'"{missing[1]}"' in sql
        hint = f"; a text is written in single quotes: '{missing[1]}'" if missing and is_quoted else ""
        raise ConfigError(f"the query failed: {first_line(error)}{hint}; views: {', '.join(VIEWS)}") from error
