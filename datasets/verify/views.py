"""Verify ``pivot.duckdb``: its views are ours, or return the same rows; nothing in it reads a file of its own choice.

The installed DuckDB may word a view otherwise than the one that wrote it, so texts are compared as parsed trees. A
derived view whose tree differs as well is run, over the proved rows alone, in a database that can reach no file,
network or extension, and its rows are compared with ours. A view that names its own files, or a table, macro, type or
schema that a build does not make, is a problem and never run.
"""

import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from ...core.errors import ForbiddenError, PivotError
from ..sql.derived_views import DERIVED
from ..sql.views import CLOSED, VIEWS, connect, write_views
from ..store.store import DATABASE, Store
from .compare import contrast

MAX_BYTES = 64 << 20
"""A ``pivot.duckdb`` holds texts of views, less than a megabyte; a larger one is not opened."""

SECONDS = 60.0
"""Time limit for the rows of one stored view, whose SQL is foreign."""

Catalogue = Mapping[tuple[str, str], str]
"""Definitions by kind and qualified name, such as ``("view", "main.groups")``."""

_CATALOGUE = """
    SELECT 'view' AS kind, schema_name || '.' || view_name AS name, sql FROM duckdb_views() WHERE NOT internal
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
_ROWS = 4096


def view_problems(store: Store) -> list[str]:
    """Compare what ``pivot.duckdb`` holds with what a build writes."""
    name = DATABASE
    status = store.storage.stat(name)
    if status is None:
        return [f"{name}: the file is missing; run the same build again to write it"]
    if store.storage.stat(f"{name}.wal") is not None:
        return [f"{name}.wal: changes of {name} that a DuckDB client left; open it with that client, or remove them"]
    if status.bytes > MAX_BYTES:
        return [f"{name}: it has {status.bytes} bytes, expected at most {MAX_BYTES}; run the same build again"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            copied = Path(folder) / "stored"
            copied.write_bytes(store.storage.read_bytes(name))
            derived = Path(folder) / "derived"
            write_views(store, derived)
            stored, expected = _catalogue(copied), _catalogue(derived)
    except ForbiddenError:
        raise
    except (duckdb.Error, OSError, PivotError) as error:
        return [f"{name}: its views cannot be compared ({str(error).splitlines()[0]}); run the same build again"]
    problems = [
        f"{name}: a {kind} {each} that the run does not make" for kind, each in sorted(stored.keys() - expected)
    ]
    problems += [f"{name}: the {kind} {each} is missing" for kind, each in sorted(expected.keys() - stored)]
    differing = [key for key, sql in stored.items() if not _same(sql, expected.get(key))]
    if problems:
        return problems + _contrasts(name, differing, stored, expected)
    return _returned_problems(store, differing, stored, expected)


def _contrasts(name: str, differing: list[tuple[str, str]], stored: Catalogue, expected: Catalogue) -> list[str]:
    return [
        f"{name}: the {kind} {each} is not the one that the run makes: "
        f"{contrast('sql', stored[kind, each], expected[kind, each])}"
        for kind, each in differing
        if (kind, each) in expected
    ]


def _catalogue(path: Path) -> Catalogue:
    with duckdb.connect(str(path), read_only=True, config=CLOSED) as connection:
        rows = connection.execute(_CATALOGUE).fetchall()
    return {(kind, name): sql or "" for kind, name, sql in rows}


# Texts


def _same(stored: str, derived: str | None) -> bool:
    """Whether two definitions are equal as texts, or as parsed trees."""
    if derived is None or stored == derived:
        return derived is not None
    one, other = _tree(stored), _tree(derived)
    return one is not None and one == other


def _query(definition: str) -> str | None:
    """Return the query of a view from its definition; None for anything else."""
    match = _AS.match(definition)
    return None if match is None else definition[match.end() :].rstrip().removesuffix(";")


def _tree(definition: str) -> Any:
    """Return the parsed query of a view without places in the text; None where it is not one SELECT."""
    query = _query(definition)
    if query is None:
        return None
    with duckdb.connect(config=CLOSED) as connection:
        text = connection.execute("SELECT json_serialize_sql($1)", [query]).fetchall()[0][0]
    parsed = json.loads(text)
    if parsed.get("error") or len(parsed["statements"]) != 1:
        return None
    return _without_places(parsed["statements"][0]["node"])


def _without_places(node: Any) -> Any:
    """Drop what wording alone decides: places in the text, and the order of excluded columns."""
    if isinstance(node, dict):
        kept = {key: _without_places(value) for key, value in node.items() if not key.startswith("query_location")}
        for key in ("exclude_list", "qualified_exclude_list"):
            if isinstance(kept.get(key), list):
                kept[key] = sorted(kept[key], key=str)
        return kept
    return [_without_places(each) for each in node] if isinstance(node, list) else node


# Rows


def _returned_problems(
    store: Store, differing: list[tuple[str, str]], stored: Catalogue, expected: Catalogue
) -> list[str]:
    """Compare the rows of derived views whose texts differ; a base view names files, so its text has to be ours."""
    names = {name: ("view", f"main.{name}") for name in DERIVED}
    runnable = {name: key for name, key in names.items() if key in differing and _is_closed(stored[key])}
    problems = _contrasts(DATABASE, [key for key in differing if key not in runnable.values()], stored, expected)
    if not runnable or problems:
        return problems + _contrasts(DATABASE, list(runnable.values()), stored, expected)
    definitions = {name: _query(stored[key]) or "" for name, key in names.items()}
    for name, key in runnable.items():
        try:
            same = _same_rows(store, name, definitions)
        except (duckdb.Error, PivotError, OSError, ValueError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            problems.append(f"{DATABASE}: the view {key[1]} is not ours and cannot be run ({reason[:200]})")
            continue
        if not same:
            problems += _contrasts(DATABASE, [key], stored, expected)
    return problems


def _is_closed(definition: str) -> bool:
    """Whether a view depends on nothing but other views of the store: no file, no clock, no setting."""
    tree, tables = _tree(definition), set(VIEWS)
    if tree is None:
        return False
    nodes = [*_nodes(tree)]
    tables |= {str(entry["key"]) for node in nodes for entry in node.get("cte_map", {}).get("map", [])}
    for node in nodes:
        kind = node.get("type")
        if kind == "BASE_TABLE" and (node.get("catalog_name") or node.get("table_name") not in tables):
            return False
        if kind == "FUNCTION" and node.get("function_name") not in _functions():
            return False
        if kind == "COLUMN_REF" and _FROM_OUTSIDE.intersection(map(str.lower, node.get("column_names", []))):
            return False
        if kind in ("TABLE_FUNCTION", "SHOW_REF", "COLUMN_DATA", "PARAMETER", "VALUE_PARAMETER"):
            return False
    return True


_FROM_OUTSIDE = {
    *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "user"),
    *("current_user", "current_role", "session_user", "current_schema", "current_catalog"),
}
"""Words that read like columns, and whose value changes without a change of the store."""


@cache
def _functions() -> frozenset[str]:
    """Return the functions that our own views call: each gives the same for the same rows."""
    trees = (_tree(f"CREATE VIEW {name} AS {view.sql}") for name, view in DERIVED.items())
    return frozenset(
        str(node["function_name"]) for tree in trees for node in _nodes(tree) if node.get("type") == "FUNCTION"
    )


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def _same_rows(store: Store, name: str, definitions: Mapping[str, str]) -> bool:
    """Whether the stored definition of a view returns our rows, given the base views and the other stored ones."""
    with (
        connect(store.root, [name]) as ours,
        connect(store.root, [*_BASES], definitions=definitions) as theirs,
        _at_most(ours, SECONDS),
        _at_most(theirs, SECONDS),
    ):
        one, other = (each.execute(f"SELECT * FROM {name} ORDER BY ALL") for each in (ours, theirs))
        if [column[:2] for column in one.description or []] != [column[:2] for column in other.description or []]:
            return False
        while rows := one.fetchmany(_ROWS):
            if repr(rows) != repr(other.fetchmany(_ROWS)):
                return False
        return not other.fetchmany(1)


_BASES = [name for name in VIEWS if name not in DERIVED]


@contextmanager
def _at_most(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """Interrupt what a connection runs after so many seconds; it then raises duckdb.InterruptException."""
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
