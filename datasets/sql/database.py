"""The views of a store as ``DIR/pivot.duckdb``, for any DuckDB client; :mod:`.views` makes the same in memory.

The views read the Parquet files each time, so they never go stale. Derived views are declared once, in
``views.yaml``: the statement, the reference in ``docs/reference/store.md`` and the names for queries all come from
:data:`DERIVED`.
"""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb

from ...core.data import load_data
from ...core.errors import StoreError
from ...core.storage import Storage
from ...core.storage.base import storage_error
from ...rollouts.base import GROUP_SIZE
from ..store.config import environment
from ..store.schema import CALLS, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, TableSchema
from ..store.store import DATABASE, NAMED_FILES, Store

_GROUP_KEY = "env, run_id, group_id, policy, policy_config, env_config"
"""A group id already separates policies and settings; imported rows are held to the same."""


@dataclass(frozen=True, slots=True)
class View:
    """One view: what a row of it is, what its columns mean, and how it is made."""

    doc: str
    sql: str
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Meaning of every column that no table declares; empty where the columns are those of tables."""
    by_shard: bool = False
    """Whether the rows of all shards together are the rows of the store: what a query needs of such a view is read
    once, shards at a time, and kept in memory while the store is open (:mod:`pivot.datasets.sql.views`)."""


DERIVED: dict[str, View] = {}
for _name, _view in load_data(__file__, "views.yaml").items():
    _sql = _view["sql"].replace("GROUP_KEY", _GROUP_KEY).replace("GROUP_SIZE", str(GROUP_SIZE))
    DERIVED[_name] = View(**_view | {"sql": _sql})

BASE: dict[str, TableSchema] = {
    "episodes": EPISODES,
    "steps": STEPS,
    "frames": FRAMES,
    "prompts": PROMPTS,
    "calls": CALLS,
    "labels": LABELS,
}
_KEYS = {"frames": "frame_id", "prompts": "prompt_hash"}
"""Tables that hold a row once a shard, and its key: their views hold it once, so that a join multiplies nothing."""

CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
"""Settings of a database that can reach nothing but what it holds: no file, no network, no extension, no variable."""


def _patterns(store: Store, schema: TableSchema) -> list[str]:
    """Return patterns that match the files of a table."""
    # Of the label versions the current one only: an older one may be kept, and a newer one in the making.
    of_labels = f"?????-labels-v{store.config.label_version}.parquet"
    folder = store.table_folder(schema)
    names = ["*.parquet"] if schema not in (PROMPTS, CALLS) else ["?????.parquet"]
    if schema is PROMPTS or (schema is CALLS and store.run.writer_is_served):
        names.append(of_labels)
    present = [PurePosixPath(name) for name in store.storage.listing(folder)]
    # DuckDB refuses a pattern that nothing fits, as of labels where no episode failed.
    return [f"{folder}/*/{each}" for each in names if any(path.match(each) for path in present)]


def setting_columns(stores: Iterable[Store]) -> str:
    """Return the columns of ``failures`` for the settings of environments that have one plain value, but no path."""
    kinds, defaults = dict[str, set[str]](), dict[str, dict[str, Any]]()
    for env, run in (each for store in stores for each in store.config.environments.items()):
        config = environment(env).config_type
        added = {name: config.model_fields[name].get_default() for name in config.added}  # rows lack these values
        others = {*LABELS.names, *EPISODES.names, *config.locations}
        for name, value in (added | run.settings).items():
            if type(value) in _SQL_TYPES and name.isidentifier() and name not in others:
                kinds.setdefault(name, set()).add(_SQL_TYPES[type(value)])
                defaults.setdefault(name, {})[env] = added.get(name)
    columns = ""
    for name, kind in sorted(kinds.items()):
        default = json.dumps(defaults[name]).replace("'", "''")
        value = f"coalesce(env_config ->> '$.{name}', '{default}' ->> env)"
        columns += f', TRY_CAST({value} AS {kind.pop() if len(kind) == 1 else "VARCHAR"}) AS "{name}"'
    return columns


_SQL_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def create_views(
    connection: duckdb.DuckDBPyConnection, sources: dict[str, str], derived: Iterable[str] = DERIVED, settings: str = ""
) -> None:
    """Create views in ``connection``: base views from tables or table functions, and views that derive from others.

    ``settings`` are the columns of :func:`setting_columns`.
    """
    for name, source in sources.items():
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {rows_of(name, source)}")
    for name in derived:
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {DERIVED[name].sql.replace('SETTINGS', settings)}")


def rows_of(name: str, source: str) -> str:
    """Return the query of a base view."""
    key = _KEYS.get(name)
    if key is None:
        return f"SELECT * FROM {source}"
    others = ", ".join(f"any_value({column}) AS {column}" for column in BASE[name].names if column != key)
    return f"SELECT {key}, {others} FROM {source} GROUP BY {key}"


def write_database(store: Store, name: str = DATABASE) -> None:
    """Write the views to ``DIR/pivot.duckdb``, or to the file ``name`` that replaces it later.

    The file is not part of the manifest: any DuckDB client that opens it for writing may change its bytes.

    Raises:
        StoreError: it cannot be written, or a table of the store cannot be read.
    """
    try:
        with tempfile.TemporaryDirectory() as scratch:
            temporary = Path(scratch) / DATABASE
            with database_of(store, str(temporary)):
                pass
            store.storage.write_bytes(name, temporary.read_bytes())
    except OSError as error:
        raise storage_error("write", store.storage.address(name), error) from error


@contextlib.contextmanager
def database_of(store: Store, path: str = ":memory:") -> Iterator[duckdb.DuckDBPyConnection]:
    """Make a new database with the views of a store, whose paths are relative to the store.

    Raises:
        StoreError: a table of the store cannot be read, or the database not be written.
    """
    storage, sources = store.storage, dict[str, str]()
    try:
        with duckdb.connect(path) as connection, searched(connection, storage):
            connection.begin()  # or else the disk is waited for after every view
            for name, schema in BASE.items():
                files = store.files(schema)
                names = _patterns(store, schema) if len(files) > NAMED_FILES else files
                if names:
                    paths = [storage.address(each) if storage.remote else each for each in names]
                    sources[name] = f"read_parquet({paths!r})"
                    continue
                connection.register("empty", schema.arrow.empty_table())  # a table without files: no row, all columns
                types = connection.execute("SELECT column_name, column_type FROM (DESCRIBE FROM empty)").fetchall()
                connection.unregister("empty")
                columns = (f"CAST(NULL AS {kind}) AS {column}" for column, kind in types)
                sources[name] = f"(SELECT {', '.join(columns)} WHERE false)"
            create_views(connection, sources, settings=setting_columns([store]))
            connection.commit()
            yield connection
    except duckdb.Error as error:
        store.check_files()
        raise StoreError(
            f"cannot create the views of {store.storage.address(DATABASE)}: {first_line(error)}; run the same build "
            "again"
        ) from error


@contextlib.contextmanager
def searched(connection: duckdb.DuckDBPyConnection, storage: Storage) -> Iterator[None]:
    """Let DuckDB find the files of a storage by their names; those of an object store by their addresses.

    A path in which DuckDB would read a character (comma, star, bracket ...) as anything but itself gets a plain name.
    """
    if storage.remote:
        from ...core.storage.files import StorageFiles  # noqa: PLC0415 - only for object stores

        connection.register_filesystem(StorageFiles(storage))
        yield
        return
    path = storage.local_path().resolve()
    with contextlib.ExitStack() as stack:
        if not re.fullmatch(r"[\w./ -]+", str(path)):
            link = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "store"
            link.symlink_to(path)
            path = link
        connection.execute(f"SET file_search_path = '{path}'")
        yield


def first_line(error: Exception) -> str:
    """Return a message of DuckDB as one line: what is wrong and its hint, without the place in the query."""
    return " ".join(str(error).split("\n\nLINE ")[0].split("\nLINE ")[0].split())
