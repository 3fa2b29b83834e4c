"""Defects of files: strays that readers find, footers, checksums, views, calls, names in run.json."""

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from pivot.datasets.sql.views import VIEWS
from pivot.datasets.store.store import DATABASE
from pivot.tests.core.hostile_makers import with_row_count
from pivot.tests.dataset.plants import CELL_KINDS, DATASETS, NOW, Damage, Plant, change_run, rows_of
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


def _written(table: str, **options: Any) -> Damage:
    def plant(patient: Patient, env: str) -> None:
        path = patient.root / patient.file(env, table)
        pq.write_table(pq.read_table(path), path, **options)

    return plant


def _bytes(table: str, change: Callable[[bytes], bytes]) -> Damage:
    def plant(patient: Patient, env: str) -> None:
        path = patient.root / patient.file(env, table)
        data = path.read_bytes()
        assert change(data) != data
        path.write_bytes(change(data))

    return plant


def _with_empty_group(patient: Patient, path: Path) -> None:
    del patient
    whole = pq.read_table(path)
    with pq.ParquetWriter(path, whole.schema) as writer:
        writer.write_table(whole)
        writer.write_table(whole.slice(0, 0))


def footers(env: str) -> Iterator[Plant]:
    """Footers that differ although the rows are equal."""
    for table in (*TABLES, f"{DATASETS}/{env}", f"{DATASETS}/{env}_episodes"):
        yield Plant(f"footer of {table}: its number of rows", _bytes(table, lambda data: with_row_count(data, 1000, 1)))
        yield Plant(
            f"footer of {table}: its writer",
            _bytes(table, lambda data: data.replace(b"parquet-cpp-arrow", b"parquet-mr--arrow")),
        )
        order = [pq.SortingColumn(0)]
        yield Plant(f"footer of {table}: an order", _written(table, sorting_columns=order))
        yield Plant(f"footer of {table}: an index", _written(table, write_page_index=True))
        yield Plant(
            f"footer of {table}: a group of no rows",
            lambda patient, env, table=table: _with_empty_group(patient, patient.root / patient.file(env, table)),
        )


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

    def frame(change: Callable[[bytes], bytes]) -> Callable[[Rows], None]:
        def changed(rows: Rows) -> None:
            rows[0]["image"] = change(rows[0]["image"])
            rows[0]["byte_size"] = len(rows[0]["image"])

        return changed

    def cell(column: str, change: Callable[[bytes], bytes]) -> Callable[[Rows], None]:
        def changed(rows: Rows) -> None:
            picture = rows[0][column]
            picture = picture[-1] if isinstance(picture, list) else picture
            picture.update(bytes=change(picture["bytes"]))

        return changed

    changes = {kind.decode(): _checksum(kind) for kind in (b"IHDR", b"IDAT")}
    for name, change in changes.items():
        yield Plant(f"checksum of a frame: {name}", rows_of("frames", frame(change)))
        yield Plant(f"checksum of a panel: {name}", rows_of(record, cell("panel", change)))
        yield Plant(f"checksum of a collage: {name}", rows_of(record, cell("images", change)))
        yield Plant(f"checksum of a picture of an episode: {name}", rows_of(episode, cell("images", change)))
        yield Plant(f"checksum of the card's picture: {name}", _picture(change), own_card=True)


def _picture(change: Callable[[bytes], bytes]) -> Damage:
    def plant(patient: Patient, env: str) -> None:
        del env
        path = patient.root / DATASETS / "example.png"
        path.write_bytes(change(path.read_bytes()))

    return plant


# Views


def _replaced(name: str, sql: str, version: str | None) -> Damage:
    def plant(patient: Patient, env: str) -> None:
        with duckdb.connect(str(patient.root / DATABASE)) as connection:
            connection.execute(f"SET file_search_path = '{patient.root}'")
            connection.execute(sql.format(name=name))
        if version is not None:
            change_run(lambda run, _: run["versions"].update(duckdb=version))(patient, env)

    return plant


def stored_views(env: str) -> Iterator[Plant]:
    """Yield every view, removed or with another result, for several versions of DuckDB."""
    del env
    for name in VIEWS:
        yield Plant(f"view {name} removed", _replaced(name, 'DROP VIEW "{name}"', None))
        forged = 'CREATE OR REPLACE VIEW "{name}" AS SELECT 1 AS forged'
        yield Plant(f"view {name} forged", _replaced(name, forged, None))
        yield Plant(f"view {name} forged, of another DuckDB", _replaced(name, forged, "1.0.0"))


# Calls, run.json


def calls(env: str) -> Iterator[Plant]:
    """Costs and answers that requests of an embedded policy cannot have."""
    del env
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
    del env
    elsewhere = {"model": "/etc"}
    changes: dict[str, Callable[[dict[str, Any], str], Any]] = {
        "a policy of a folder": lambda run, _: run["config"].update(
            policy={"name": "transformers", "options": elsewhere}
        ),
        "a policy behind an address": lambda run, _: run["config"].update(
            policy={"name": "openai", "options": elsewhere, "service": {"base_url": "http://127.0.0.1:9"}}
        ),
        "a teacher of a folder": lambda run, _: run["config"].update(
            teacher={"name": "transformers", "options": elsewhere}
        ),
        "a policy of a module": lambda run, _: run["config"]["policy"].update(name="os:system"),
        "a teacher of a module": lambda run, _: run["config"]["teacher"].update(name="os:system"),
        "an environment of a module": lambda run, env: run["config"]["environments"].update(
            {"os:system": run["config"]["environments"].pop(env)}
        ),
        "a solver of a module": lambda run, _: run["config"]["solvers"].update({"os:system": {}}),
        "a default left out by another version": lambda run, _: (
            run["versions"].update({"pivot-vlm": "0.0.1"}),
            run["config"].pop("split"),
        ),
        "a version less of another version": lambda run, _: (
            run["versions"].update({"pivot-vlm": "0.0.1"}),
            run["versions"].pop("numpy"),
        ),
        "ten million tasks": lambda run, env: run["config"]["environments"][env].update(tasks=10_000_000),
        "a name with control characters": lambda run, env: run["config"]["environments"].update(
            {"\x1b[2J": run["config"]["environments"].pop(env)}
        ),
        "a config that is a list": lambda run, _: run.update(config=[]),
        "versions that are a list": lambda run, _: run.update(versions=[]),
        "a format that is a text": lambda run, _: run.update(format="new"),
    }
    for name, change in changes.items():
        if name != "ten million tasks":
            yield Plant(f"run.json names: {name}", change_run(change))


KINDS = (*CELL_KINDS, strays, footers, checksums, stored_views, calls, names)


def plants(env: str) -> list[Plant]:
    """Every lie for a store of an environment; their names are distinct."""
    return [plant for kind in KINDS for plant in kind(env)]
