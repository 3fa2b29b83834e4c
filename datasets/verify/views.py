"""Verify ``pivot.duckdb``: make its views once more, and compare.

DuckDB words a view that another client or version wrote otherwise, so texts are compared as parsed trees. No stored
view is run.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import duckdb

from ...core.errors import ForbiddenError, PivotError
from ..sql.database import CLOSED, database_of
from ..store.store import DATABASE, Store
from .compare import contrast

MAX_BYTES = 64 << 20
"""Maximum size of a ``pivot.duckdb`` that is opened; it holds texts of views, normally less than a megabyte."""

_AGAIN = f"remove {DATABASE} and run the same build again to write it"

_VIEWS = "SELECT 'view', schema_name || '.' || view_name, sql FROM duckdb_views() WHERE NOT internal"
_CATALOGUE = f"""
    {_VIEWS}
    UNION ALL SELECT 'table', schema_name || '.' || table_name, sql FROM duckdb_tables() WHERE NOT internal
    UNION ALL SELECT 'function', schema_name || '.' || function_name, macro_definition
        FROM duckdb_functions() WHERE NOT internal
    UNION ALL SELECT 'sequence', schema_name || '.' || sequence_name, sql FROM duckdb_sequences()
    UNION ALL SELECT 'type', schema_name || '.' || type_name, '' FROM duckdb_types() WHERE NOT internal
    UNION ALL SELECT 'comment on', schema_name || '.' || view_name, comment FROM duckdb_views()
        WHERE NOT internal AND comment IS NOT NULL
    UNION ALL SELECT 'comment on', schema_name || '.' || table_name || '.' || column_name, comment FROM duckdb_columns()
        WHERE NOT internal AND comment IS NOT NULL
    UNION ALL SELECT 'schema', schema_name, '' FROM duckdb_schemas() WHERE NOT internal AND schema_name <> 'main'
"""
_AS = re.compile(r'\s*CREATE\s+VIEW\s+(?:\w+\.)*(?:\w+|"\w+")\s+AS\s', re.IGNORECASE)


def view_problems(store: Store) -> list[str]:
    """Compare the contents of ``pivot.duckdb`` with what a build writes."""
    name = DATABASE
    status = store.storage.stat(name)
    if status is None:
        return [f"{name}: the file is missing; run the same build again to write it"]
    if store.storage.stat(f"{name}.wal") is not None:
        return [f"{name}.wal: changes of {name} that a DuckDB client left; open it with that client, or remove them"]
    if status.bytes > MAX_BYTES:
        return [f"{name}: it has {status.bytes} bytes, expected at most {MAX_BYTES}; {_AGAIN}"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            copied = Path(folder) / name
            copied.write_bytes(store.storage.read_bytes(name))
            with duckdb.connect(str(copied), read_only=True, config=CLOSED) as connection:
                stored = _definitions(connection, _CATALOGUE)
        with database_of(store) as connection:
            expected = _definitions(connection, _VIEWS)
        differing = [key for key in sorted(stored.keys() & expected) if not _same(stored[key], expected[key])]
    except ForbiddenError:
        raise
    except (duckdb.Error, OSError, PivotError, ValueError) as error:
        return [f"{name}: its views cannot be compared ({str(error).splitlines()[0]}); {_AGAIN}"]
    return [
        *(
            f"{name}: a {kind} {each} that the run does not make; {_AGAIN}"
            for kind, each in sorted(stored.keys() - expected)
        ),
        *(f"{name}: the {kind} {each} is missing; {_AGAIN}" for kind, each in sorted(expected.keys() - stored)),
        *(
            f"{name}: the {kind} {each} is not the one that the run makes; {_AGAIN}: "
            f"{contrast('sql', stored[kind, each], expected[kind, each])}"
            for kind, each in differing
        ),
    ]


def _definitions(connection: duckdb.DuckDBPyConnection, query: str) -> dict[tuple[str, str], str]:
    """Return the definitions in a database, by kind and name."""
    return {(kind, name): sql or "" for kind, name, sql in connection.execute(query).fetchall()}


def _same(stored: str, derived: str) -> bool:
    """Whether two definitions are equal as texts, or as parsed trees."""
    if stored == derived:
        return True
    with duckdb.connect(config=CLOSED) as connection:
        one, other = (_tree(each, connection) for each in (stored, derived))
    return one is not None and one == other


def _tree(definition: str, connection: duckdb.DuckDBPyConnection) -> Any:
    """Return the parsed query of a view without text positions; None if it is not one SELECT."""
    match = _AS.match(definition)
    if match is None:
        return None
    query = definition[match.end() :].rstrip().removesuffix(";")
    text = connection.execute("SELECT json_serialize_sql($1)", [query]).fetchall()[0][0]
    parsed = json.loads(text)
    if parsed.get("error") or len(parsed["statements"]) != 1:
        return None
    return _without_places(parsed["statements"][0]["node"])


def _without_places(node: Any) -> Any:
    """Remove details of wording: text positions, and the order of excluded columns."""
    if isinstance(node, dict):
        kept = {key: _without_places(value) for key, value in node.items() if not key.startswith("query_location")}
        for key in ("exclude_list", "qualified_exclude_list"):
            if isinstance(kept.get(key), list):
                kept[key] = sorted(kept[key], key=str)
        return kept
    return [_without_places(each) for each in node] if isinstance(node, list) else node
