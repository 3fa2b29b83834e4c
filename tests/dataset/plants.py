"""Defects to plant in a store, each of which ``pivot verify`` has to find: cells, rows, ids, schemas, pictures.

Planting one also rewrites the card from the damaged tables and the manifest from the files, so only the defect
gives it away. ``make test WHAT=plants`` plants them all.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pivot
import pyarrow as pa
import pyarrow.parquet as pq
from pivot.core.errors import PivotError
from pivot.core.images import decode, encode_png
from pivot.core.progress import Reporter
from pivot.datasets.export.card import CARD, PICTURE, card_text
from pivot.datasets.store.schema import CALLS, DATASET, DATASET_EPISODES, EPISODES, FRAMES, LABELS, PROMPTS, STEPS
from pivot.datasets.store.store import DATABASE, RUN, Store
from pivot.flows.engines.local import InProcess
from pivot.flows.relabel import relabel_store
from pivot.tests.dataset.containers import CONTAINERS, one_pixel
from pivot.tests.stores import Patient, Rows, change_rows, problems, read_rows, rewrite_manifest

ENVS = ("sokoban", "frozenlake", "navigation", "primitiveskill", "svg")
DATASETS = "dataset"
NOW = "labels/v2"
CELLS = 24
"""Number of cells that are changed per store, of some 130 columns; each store has different ones."""

Damage = Callable[[Patient, str], None]
"""Function that damages the copy of a store of this environment."""


@dataclass(frozen=True)
class Plant:
    """One defect."""

    name: str
    plant: Damage
    own_card: bool = False
    """Whether the defect is in the card or its picture, so that the card is not rewritten."""


def build_planted(root: Path, env: str) -> Path:
    """Two levels of two rollouts each, labelled a second time."""
    options: dict[str, Any] = {"habits": {env: {"skill": -20.0}}} if env in ("sokoban", "frozenlake") else {}
    policy = {"name": "scripted", "options": options}
    pivot.build({"environments": {env: {"tasks": 2, "settings": {}}}, "rollouts": 2, "policy": policy}, root)
    relabel_store(root, {"validation_fraction": 0.4}, InProcess(), Reporter())
    return root


def lie(patient: Patient, env: str, plant: Plant) -> list[str]:
    """Plant a defect, adapt digests and card, and return the report of verify; the copy is restored afterwards."""
    try:
        plant.plant(patient, env)
        if not plant.own_card:
            rewrite_card(patient.root)
        try:
            rewrite_manifest(patient.root)
            return problems(patient.root)
        except PivotError as error:
            return [str(error)]
    finally:
        patient.heal()


def rewrite_card(root: Path) -> None:
    """Rewrite the card from the changed tables and run.json, if these still give one."""
    try:
        store = Store.open(root)
        rewrite_manifest(root)
        card, run = root / DATASETS / CARD, json.loads((root / RUN).read_text())
        card.write_text(card_text(store, DATASETS, run, store.manifest(), (card.parent / PICTURE).exists()))
    except Exception:  # noqa: BLE001 - whatever a lie breaks, the old card stays
        pass


# Cells


def other(value: Any, kind: pa.DataType) -> Any:
    """Return another value of the same type, as near as possible."""
    if value is None:
        if isinstance(kind, pa.ListType):
            return [other(None, kind.value_type)]
        if isinstance(kind, pa.StructType):
            return {field.name: other(None, field.type) for field in kind}
        return {"string": "x", "bool": False, "int32": 0, "int64": 0, "double": 0.0, "binary": b"x"}[str(kind)]
    changes: dict[type, Callable[[Any], Any]] = {
        bool: lambda value: not value,
        int: lambda value: value + 1,
        float: lambda value: value + 1.0,
        str: lambda value: f"{value}x",
        bytes: lambda value: encode_png(255 - decode(value)),
        list: lambda value: value[:-1] or None,
        dict: lambda value: _other_struct(value, kind),
    }
    return changes[type(value)](value)


def _other_struct(value: dict[str, Any], kind: Any) -> dict[str, Any]:
    name = next(each for each in ("bytes", "content", "after", "budget_after") if value.get(each) is not None)
    return value | {name: other(value[name], kind.field(name).type)}


FREE = {
    *("attempts", "latency", "prompt_tokens", "completion_tokens", "cost"),
    *("cache_hit", "model_revision", "answered", "left_out"),
}
"""Columns of `calls`: what a request cost may differ between equal runs."""


def _tables(env: str) -> list[tuple[str, Any]]:
    tables = [(schema.name, schema) for schema in (EPISODES, STEPS, FRAMES, PROMPTS, CALLS)]
    return [*tables, (NOW, LABELS), (f"{DATASETS}/{env}", DATASET), (f"{DATASETS}/{env}_episodes", DATASET_EPISODES)]


def cells(env: str) -> Iterator[Plant]:
    """Single cells, one in the middle of its column."""
    columns = [(name, each) for name, schema in _tables(env) for each in schema.columns if each.name not in FREE]
    for table, column in random.Random(env).sample(columns, CELLS):

        def change(rows: Rows, column: Any = column) -> None:
            row = rows[len(rows) // 2]
            row[column.name] = other(row[column.name], column.type)

        yield Plant(f"cell {table}.{column.name}", rows_of(table, change))


def rows_of(table: str, change: Callable[[Rows], Rows | None]) -> Damage:
    return lambda patient, env: change_rows(patient.root, patient.file(env, table), change)


def _first(table: str, column: str, change: Callable[[Any], Any], name: str) -> Plant:
    changed = rows_of(table, lambda rows: rows[0].update({column: change(rows[0][column])}))
    return Plant(f"cell {table}.{column} {name}", changed)


def near_cells(env: str) -> Iterator[Plant]:
    """Yield cells with minimal changes."""
    yield _first("steps", "reward", lambda value: value + 1e-9, "by a hair")
    yield _first("episodes", "episode_return", lambda value: value - 1e-9, "by a hair")
    yield _first("steps", "response", lambda text: text.replace("<think>", "<think> ", 1), "by a space")
    yield _first(NOW, "target", lambda text: text.replace('"pivot_step"', '"pivot_Step"'), "by a letter")
    yield _first(NOW, "certificate", lambda facts: facts | {"budget_after": facts["budget_after"] - 1}, "by a turn")


# Rows, ids, order


def _everywhere(column: str, folders: tuple[str, ...]) -> Damage:
    """Change one value in every table that contains it."""

    def plant(patient: Patient, name: str) -> None:
        first = read_rows(patient.source, patient.file(name, folders[0]))[0][column]

        def rename(rows: Rows) -> None:
            for row in rows:
                for key in {column, "next_frame_id"} if column == "frame_id" else {column}:
                    if row.get(key) == first:
                        row[key] = first[:-1] + ("0" if first[-1] != "0" else "1")

        for folder in folders:
            for path in sorted((patient.root / folder).rglob("*.parquet")):
                change_rows(patient.root, path.relative_to(patient.root).as_posix(), rename)

    return plant


def ids(env: str) -> Iterator[Plant]:
    """Yield ids that are changed consistently in every table."""
    everywhere = ("episodes", "steps", "calls", "labels", f"{DATASETS}/{env}", f"{DATASETS}/{env}_episodes")
    yield Plant("an episode id", _everywhere("episode_id", everywhere))
    yield Plant("a task id", _everywhere("task_id", everywhere))
    yield Plant("a group id", _everywhere("group_id", everywhere))
    yield Plant("a run id of rows", _everywhere("run_id", everywhere))
    yield Plant("a frame id", _everywhere("frame_id", ("frames", "steps")))
    yield Plant("a prompt hash", _everywhere("prompt_hash", ("prompts", "steps")))


# Schemas


def written(name: str, change: Callable[[pa.Table], pa.Table] = lambda table: table, **options: Any) -> Damage:
    """Write a table again, changed or with other options of Parquet."""

    def plant(patient: Patient, env: str) -> None:
        path = patient.root / patient.file(env, name)
        pq.write_table(change(pq.read_table(path)), path, **options)

    return plant


def _metadata(change: Callable[[str], str]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        text = (table.schema.metadata or {})[b"huggingface"].decode()
        assert change(text) != text
        return table.replace_schema_metadata({"huggingface": change(text)})

    return changed


def schemas(env: str) -> Iterator[Plant]:
    """Schemas that readers decode with, and unexpected columns."""
    record, episode = f"{DATASETS}/{env}", f"{DATASETS}/{env}_episodes"
    changes: dict[str, Callable[[pa.Table], pa.Table]] = {
        "class names swapped": _metadata(
            lambda text: text.replace('"timeout", "deadlock"', '"deadlock", "timeout"', 1)
        ),
        "pictures without a mode": _metadata(lambda text: text.replace('"mode": "RGB"', '"mode": null', 1)),
        "no features": lambda table: table.replace_schema_metadata(None),
        "another key": lambda table: table.replace_schema_metadata(table.schema.metadata | {b"note": b"trust me"}),
        "a column more": lambda table: table.append_column("reward_hint", pa.array([1.0] * table.num_rows)),
        "columns in another order": lambda table: table.select([1, 0, *range(2, table.num_columns)]),
    }
    for name, change in changes.items():
        yield Plant(f"schema of {record}: {name}", written(record, change))
    for table in (episode, "episodes", "steps", NOW):
        more = "a column more", "columns in another order"
        yield from (Plant(f"schema of {table}: {name}", written(table, changes[name])) for name in more)
    yield Plant(f"schema of {episode}: no features", written(episode, changes["no features"]))


# Pictures


def frame(change: Callable[[bytes], bytes]) -> Damage:
    """Change the first frame and state its new size."""

    def changed(rows: Rows) -> None:
        image = change(rows[0]["image"])
        rows[0].update(image=image, byte_size=len(image))

    return rows_of("frames", changed)


def picture(table: str, column: str, change: Callable[[bytes], bytes]) -> Damage:
    """Change the picture, or the last of the pictures, in the first row of a table."""

    def changed(rows: Rows) -> None:
        last = rows[0][column][-1] if column == "images" else rows[0][column]
        last["bytes"] = change(last["bytes"])

    return rows_of(table, changed)


def pictures(env: str) -> Iterator[Plant]:
    """Yield pictures with equal pixels to our decoder in other containers, and pictures with other pixels."""
    record, episode = f"{DATASETS}/{env}", f"{DATASETS}/{env}_episodes"
    for name, change in CONTAINERS.items():
        yield Plant(f"panel {name}", picture(record, "panel", change))
    for name in ("turned by its orientation", "with alpha", "WebP", "with a comment"):
        yield Plant(f"frame {name}", frame(CONTAINERS[name]))
    for name in ("turned by its orientation", "with a second frame"):
        yield Plant(f"collage {name}", picture(record, "images", CONTAINERS[name]))
        yield Plant(f"picture of an episode {name}", picture(episode, "images", CONTAINERS[name]))
    yield Plant("collage of other pixels", picture(record, "images", one_pixel))
    yield Plant("panel named a file", rows_of(record, lambda rows: rows[0]["panel"].update(path="elsewhere.png")))


# Card, config, views


def _text(old: str, new: str) -> Damage:
    def plant(patient: Patient, env: str) -> None:
        path = patient.root / DATASETS / CARD
        text = path.read_text()
        assert old.format(env=env) in text, f"the card does not say {old}"
        path.write_text(text.replace(old.format(env=env), new.format(env=env), 1))

    return plant


def card_picture(name: str, change: Callable[[bytes], bytes]) -> Plant:
    """Change the picture of the card."""

    def plant(patient: Patient, _: str) -> None:
        path = patient.root / DATASETS / PICTURE
        path.write_bytes(change(path.read_bytes()))

    return Plant(name, plant, own_card=True)


def cards(env: str) -> Iterator[Plant]:
    """Text and picture of the card."""
    texts = {
        "another pretty name": ("pretty_name: PIVOT failure labels", "pretty_name: Human labels"),
        "files of elsewhere": ("path:\n", "path:\n    - ../../*.parquet\n"),
        "a count": ("| {env} | ", "| {env} | 1"),
        "a sentence more": ("\n## ", "\nAll labels were checked by hand.\n\n## "),
    }
    for name, (old, new) in texts.items():
        yield Plant(f"card: {name}", _text(old, new), own_card=True)
    yield card_picture("card: a pixel of its picture", one_pixel)
    for name in ("turned by its orientation", "with a comment", "with alpha"):
        yield card_picture(f"card: its picture {name}", CONTAINERS[name])


def change_run(root: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrite run.json changed in place."""
    run = json.loads((root / RUN).read_text())
    change(run)
    (root / RUN).write_text(json.dumps(run, indent=2) + "\n")


def run_sql(root: Path, *statements: str) -> None:
    """Change the database of a store."""
    with duckdb.connect(str(root / DATABASE)) as connection:
        connection.execute(f"SET file_search_path = '{root}'")
        for statement in statements:
            connection.execute(statement)


def _sql(*statements: str) -> Damage:
    return lambda patient, _: run_sql(patient.root, *statements)


def views(env: str) -> Iterator[Plant]:
    """Views of pivot.duckdb."""
    yield Plant("views: one reads a file", _sql("CREATE VIEW more AS SELECT * FROM read_text('/etc/hostname')"))
    yield Plant("views: a table over one", _sql("DROP VIEW groups", "CREATE TABLE groups AS SELECT 1 AS n"))
    yield Plant("views: a comment on one", _sql("COMMENT ON VIEW modes IS 'x'"))
    yield Plant("views: a comment on a column", _sql("COMMENT ON COLUMN modes.env IS 'x'"))
    yield Plant("views: no database", lambda patient, env: (patient.root / DATABASE).unlink())


CELL_KINDS = (cells, near_cells, ids, schemas, pictures, cards, views)
