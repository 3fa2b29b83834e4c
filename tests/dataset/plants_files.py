"""Defects of files: strays that readers find, footers, checksums, views, calls, names in run.json."""

import shutil
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.parquet as pq
from pivot.datasets.sql.views import VIEWS
from pivot.tests.core.hostile_makers import with_row_count
from pivot.tests.dataset.plants import (
    CELL_KINDS,
    DATASETS,
    NOW,
    Damage,
    Plant,
    card_picture,
    change_run,
    frame,
    picture,
    rows_of,
    run_sql,
    written,
)
from pivot.tests.stores import Patient, Rows

TABLES = ("episodes", "steps", "frames", "prompts", "calls", NOW)


def _copied(table: str, name: str) -> Damage:
    """Copy the first file of a table to another place; ``{env}`` in its name is the environment."""

    def plant(patient: Patient, env: str) -> None:
        target = patient.root / name.format(env=env)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(patient.source / patient.file(env, table.format(env=env)), target)

    return plant


def strays(env: str) -> Iterator[Plant]:
    """Yield additional files that DuckDB, polars, pandas or load_dataset would read."""
    record = f"{DATASETS}/{env}"
    for table in (*TABLES, record, f"{record}_episodes"):
        folder = f"{table}/{env}" if not table.startswith(DATASETS) else table
        yield Plant(f"stray: a hidden file in {table}", _copied(table, f"{folder}/.hidden.parquet"))
        yield Plant(f"stray: a shard more of {table}", _copied(table, f"{folder}/00009.parquet"))
        yield Plant(f"stray: a folder more in {table}", _copied(table, f"{table}/more/00000.parquet"))
    for name in ("_x.parquet", "train-00001.PARQUET", "b/c/train-1.parquet", "train-00001.parquet.gz", "train.csv"):
        yield Plant(f"stray: {name} in the dataset", _copied(record, f"{record}/{name}"))
    for name in (".d/x.parquet", "train-.parquet", "train-00000.parquet.d/x.parquet", "00000.arrow", "data.jsonl"):
        yield Plant(f"stray: {name} in the dataset", _copied(record, f"{record}/{name}"))
    for name in ("x.parquet", "data/train.parquet", ".h/x.parquet", ".receipts/x.parquet", ".tmp/x.parquet"):
        yield Plant(f"stray: {name} in the store", _copied(record, name))
    for name in (".dataset-v3/{env}/train-00000.parquet", ".dataset-v2/x.PARQUET", "Dataset/x.parquet", ".commit/x"):
        yield Plant(f"stray: {name} in the store", _copied(record, name))
    yield Plant("stray: labels of the next version", _copied(NOW, "labels/v3/{env}/00000.parquet"))
    yield Plant("stray: prompts of the next version", _copied("prompts", "prompts/{env}/00000-labels-v3.parquet"))
    yield Plant("stray: a journal", _copied("prompts", ".commit/journal.json"))


def _bytes(table: str, change: Callable[[bytes], bytes]) -> Damage:
    def plant(patient: Patient, env: str) -> None:
        path = patient.root / patient.file(env, table)
        data = path.read_bytes()
        assert change(data) != data
        path.write_bytes(change(data))

    return plant


def _with_empty_group(table: str) -> Damage:
    def plant(patient: Patient, env: str) -> None:
        path = patient.root / patient.file(env, table)
        whole = pq.read_table(path)
        with pq.ParquetWriter(path, whole.schema) as writer:
            writer.write_table(whole)
            writer.write_table(whole.slice(0, 0))

    return plant


def footers(env: str) -> Iterator[Plant]:
    """Footers that differ although the rows are equal."""
    for table in (*TABLES, f"{DATASETS}/{env}", f"{DATASETS}/{env}_episodes"):
        yield Plant(f"footer of {table}: its number of rows", _bytes(table, lambda data: with_row_count(data, 1000, 1)))
        other = _bytes(table, lambda data: data.replace(b"parquet-cpp-arrow", b"parquet-mr--arrow"))
        yield Plant(f"footer of {table}: its writer", other)
        yield Plant(f"footer of {table}: an order", written(table, sorting_columns=[pq.SortingColumn(0)]))
        yield Plant(f"footer of {table}: an index", written(table, write_page_index=True))
        yield Plant(f"footer of {table}: a group of no rows", _with_empty_group(table))


# Pictures


def _checksum(kind: bytes) -> Callable[[bytes], bytes]:
    """Change the checksum of the last chunk of a kind; cut the end off a JPEG."""

    def changed(data: bytes) -> bytes:
        if data.startswith(b"\xff\xd8"):
            return data[:-2]
        index = data.rindex(kind)
        length = struct.unpack(">I", data[index - 4 : index])[0]
        end = index + 4 + length
        return data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :]

    return changed


def checksums(env: str) -> Iterator[Plant]:
    """Yield files that some decoders read and others refuse."""
    record, episode = f"{DATASETS}/{env}", f"{DATASETS}/{env}_episodes"
    for name in ("IHDR", "IDAT"):
        change = _checksum(name.encode())
        yield Plant(f"checksum of a frame: {name}", frame(change))
        yield Plant(f"checksum of a panel: {name}", picture(record, "panel", change))
        yield Plant(f"checksum of a collage: {name}", picture(record, "images", change))
        yield Plant(f"checksum of a picture of an episode: {name}", picture(episode, "images", change))
        yield card_picture(f"checksum of the card's picture: {name}", change)


# Views


def _replaced(sql: str, version: str | None = None) -> Damage:
    def plant(patient: Patient, env: str) -> None:
        run_sql(patient.root, sql)
        if version is not None:
            change_run(patient.root, lambda run: run["versions"].update(duckdb=version))

    return plant


def stored_views(env: str) -> Iterator[Plant]:
    """Yield every view, removed or with another result, for several versions of DuckDB."""
    for name in VIEWS:
        yield Plant(f"view {name} removed", _replaced(f'DROP VIEW "{name}"'))
        forged = f'CREATE OR REPLACE VIEW "{name}" AS SELECT 1 AS forged'
        yield Plant(f"view {name} forged", _replaced(forged))
        yield Plant(f"view {name} forged, of another DuckDB", _replaced(forged, "1.0.0"))


# Calls, run.json


def calls(env: str) -> Iterator[Plant]:
    """Costs and answers that requests of an embedded policy cannot have."""
    lies: dict[str, Any] = {"attempts": -1, "latency": -1.0, "prompt_tokens": 5, "completion_tokens": 5, "cost": 1.0}
    lies |= {"cache_hit": True, "model_revision": "human", "answered": False, "left_out": ["seed"]}
    for column, value in lies.items():
        for place in (0, -1):
            yield Plant(f"calls: {column} of row {place}", rows_of("calls", _cell(place, column, value)))
    for value in (float("inf"), float("nan")):
        yield Plant(f"calls: latency of {value}", rows_of("calls", _cell(0, "latency", value)))


def _cell(index: int, column: str, value: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[index].update({column: value})


def names(env: str) -> Iterator[Plant]:
    """Names and places in run.json."""
    folder = {"name": "transformers", "options": {"model": "/etc"}}
    service = folder | {"name": "openai", "service": {"base_url": "http://127.0.0.1:9"}}
    old = {"pivot-vlm": "0.0.1"}

    def renamed(environments: dict[str, Any], name: str) -> None:
        environments[name] = environments.pop(env)

    changes: dict[str, Callable[[dict[str, Any]], Any]] = {
        "a policy of a folder": lambda run: run["config"].update(policy=folder),
        "a policy behind an address": lambda run: run["config"].update(policy=service),
        "a teacher of a folder": lambda run: run["config"].update(teacher=folder),
        "a policy of a module": lambda run: run["config"]["policy"].update(name="os:system"),
        "a teacher of a module": lambda run: run["config"]["teacher"].update(name="os:system"),
        "an environment of a module": lambda run: renamed(run["config"]["environments"], "os:system"),
        "a solver of a module": lambda run: run["config"]["solvers"].update({"os:system": {}}),
        "a default left out by another version": lambda run: (run["versions"].update(old), run["config"].pop("split")),
        "a version less of another version": lambda run: (run["versions"].update(old), run["versions"].pop("numpy")),
        "a name with control characters": lambda run: renamed(run["config"]["environments"], "\x1b[2J"),
        "a config that is a list": lambda run: run.update(config=[]),
        "versions that are a list": lambda run: run.update(versions=[]),
        "a format that is a text": lambda run: run.update(format="new"),
    }
    for name, change in changes.items():
        changed = lambda patient, _, change=change: change_run(patient.root, change)  # noqa: E731
        yield Plant(f"run.json names: {name}", changed)


KINDS = (*CELL_KINDS, strays, footers, checksums, stored_views, calls, names)


def plants(env: str) -> list[Plant]:
    """Every lie for a store of an environment; their names are distinct."""
    return [plant for kind in KINDS for plant in kind(env)]
