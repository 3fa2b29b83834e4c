"""Verify what stands beside the tables: the manifest, run.json, the card with its picture, views and receipts."""

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from ...errors import PivotError, StoreError
from ...images import container_problem, decode, frame_id
from ...storage import FileRecord, Storage
from ...storage.receipts import Receipt
from ..card import CARD, PICTURE, card_text, example_picture
from ..config import Shard, versions
from ..export import dataset_file
from ..formats import formats, migrate_hint
from ..inputs import EXPORT, LABEL, ROLLOUT, export_stage
from ..origin import ORIGIN
from ..schema import DATASET, DATASET_EPISODES, LABELS, STORE_TABLES
from ..split import SIDES
from ..store import DATABASE, DATASET_FOLDER, MANIFEST, RECEIPTS, RUN, Store, data_files
from ..views import CLOSED, write_views
from .compare import contrast


def file_problems(store: Store) -> list[str]:
    """Compare the manifest, the files on disk, and those that the run makes."""
    manifest = store.manifest()
    made = _made_files(store)
    problems = []
    for name, record in manifest.items():
        if store.storage.stat(name) is None:
            problems.append(f"{name}: the file is missing")
            continue
        try:
            actual = store.storage.record(name)
        except StoreError as error:
            problems.append(f"{name}: {error}")
            continue
        if actual != record:
            what = "length" if actual.bytes != record.bytes else "sha256"
            problems.append(f"{name}: its {what} is not that of {MANIFEST}")
    version = store.config.label_version
    on_disk = {*data_files(store), RUN}
    # An interrupted relabelling leaves parts of the next version, which no reader opens and the next one takes up.
    present = {name for name in on_disk if _labels_of(name) != version + 1}
    problems += [f"{name}: the file is not in {MANIFEST}" for name in sorted(present - manifest.keys())]
    lost = sorted(made - manifest.keys() - present)
    problems += [f"{name}: the file is missing, and {MANIFEST} does not list it" for name in lost]
    for name in sorted((manifest.keys() & on_disk) - made - {f"{DATASET_FOLDER}/{PICTURE}"}):
        if not 0 < _labels_of(name) < version:
            problems.append(f"{name}: a file that the run does not make")
    return problems


def _made_files(store: Store) -> set[str]:
    """Relative paths of every file that the run makes and the manifest lists.

    Whether a shard makes files of labels and of the dataset depends on its rows, which are compared one by one.
    """
    files = {RUN, f"{DATASET_FOLDER}/{CARD}"}
    for schema in (*STORE_TABLES, LABELS):
        files.update(store.files(schema))
    for shard in store.config.shards():
        files.update(_dataset_files(shard) & store.manifest().keys())
    return files


def _dataset_files(shard: Shard) -> set[str]:
    schemas = (DATASET, DATASET_EPISODES)
    return {dataset_file(DATASET_FOLDER, schema, shard, side) for schema in schemas for side in SIDES}


def _labels_of(name: str) -> int:
    """The label version that a file belongs to, 0 for any other file."""
    found = re.fullmatch(r"labels/v(\d+)/.*|(?:prompts|calls)/.*-labels-v(\d+)\.parquet", name)
    return int(found[1] or found[2]) if found else 0


def run_problems(store: Store, run_id: str) -> list[str]:
    """Check that ``run.json`` says what a build writes into it and nothing more; ``run_id`` is the one of its rows."""
    raw, config = store.storage.read_json(RUN), store.config.model_dump(mode="json")
    expected = {"run_id", "config", "versions"}
    problems = [f"{RUN}: unknown field {name!r}" for name in sorted(map(str, raw.keys() - expected - {"formats"}))]
    problems += [f"{RUN}: the field {name!r} is missing" for name in sorted(expected - raw.keys())]
    if raw.get("formats", formats()) != formats():  # a run.json from before there was the field is read as today's
        hint = migrate_hint(store.root)
        problems.append(f"{RUN}: the formats are {raw['formats']!r}, those of this version {formats()!r}; {hint}")
    if raw.get("run_id") not in (run_id, None):
        problems.append(f"{RUN}: {contrast('run_id', raw['run_id'], run_id)}")
    # A config of another version may lack what this one has, or write it in other words; what it means was read.
    stored = {"filters": config["filters"], **raw["config"]}  # the first release did not name filters
    if _written_by_this_version(raw) and stored != config:
        problems.append(f"{RUN}: {_config_contrast(stored, config)}")
    return problems + _version_problems(raw.get("versions", {}))


def _written_by_this_version(run: dict[str, Any]) -> bool:
    """Whether ``run.json`` says so, or does not say otherwise."""
    here, stored = versions()["pivot-vlm"], run.get("versions")
    return not isinstance(stored, dict) or stored.get("pivot-vlm", here) == here


def _config_contrast(stored: dict[str, Any], complete: dict[str, Any]) -> str:
    missing = sorted(complete.keys() - stored.keys())
    return f"config lacks the field {missing[0]!r}" if missing else contrast("config", stored, complete)


def _version_problems(stored: Any) -> list[str]:
    """Versions cannot be derived anew, but which are named can, by the version that names them."""
    if not isinstance(stored, dict) or not all(isinstance(value, str) for value in stored.values()):
        return [f"{RUN}: versions are no texts by the name of their package"]
    if not _written_by_this_version({"versions": stored}):
        return []
    odd = sorted(stored.keys() ^ versions().keys())
    return [f"{RUN}: versions name other packages than a build does: {', '.join(odd)}"] if odd else []


def card_problems(store: Store) -> list[str]:
    """Derive the card and its picture from the tables and compare."""
    storage = store.storage
    try:
        picture = example_picture(store)
        card = card_text(store, DATASET_FOLDER, storage.read_json(RUN), store.manifest(), picture is not None)
        problems = []
        if storage.read_bytes(f"{DATASET_FOLDER}/{CARD}").decode() != card:
            problems.append(f"{DATASET_FOLDER}/{CARD}: its text is not the one that the tables and {RUN} give")
        return problems + _picture_problems(storage, f"{DATASET_FOLDER}/{PICTURE}", picture)
    except Exception as error:  # noqa: BLE001 - tables that contradict each other break what is counted in any way
        return [f"{DATASET_FOLDER}/{CARD}: it cannot be derived anew ({type(error).__name__}: {error})"]


def _picture_problems(storage: Storage, name: str, picture: bytes | None) -> list[str]:
    """Check that a file shows the pixels of ``picture``; without a picture there must be no file."""
    if picture is None or storage.stat(name) is None:
        wrong = picture is not None or storage.stat(name) is not None
        return [f"{name}: it is not the picture that the tables give"] if wrong else []
    found = storage.read_bytes(name)
    if found == picture:
        return []
    if frame_id(decode(found)) != frame_id(decode(picture)):
        return [f"{name}: it is not the picture that the tables give"]
    strange = container_problem(found, "png")
    return [] if strange is None else [f"{name}: {strange}"]


# Views

_CATALOGUE = """
    SELECT 'view' AS kind, schema_name || '.' || view_name AS name, sql FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT 'table', schema_name || '.' || table_name, sql FROM duckdb_tables() WHERE NOT internal
    UNION ALL SELECT 'function', schema_name || '.' || function_name, macro_definition
        FROM duckdb_functions() WHERE NOT internal
    UNION ALL SELECT 'sequence', schema_name || '.' || sequence_name, sql FROM duckdb_sequences()
    UNION ALL SELECT 'type', schema_name || '.' || type_name, '' FROM duckdb_types() WHERE NOT internal
    UNION ALL SELECT 'schema', schema_name, '' FROM duckdb_schemas() WHERE NOT internal AND schema_name <> 'main'
"""


def view_problems(store: Store, notes: list[str]) -> list[str]:
    """Compare what ``pivot.duckdb`` holds with what a build writes; nothing in it is run.

    Versions of DuckDB word a view differently. Views of another one are compared by name, and ``notes`` says so.
    """
    name = DATABASE
    if store.storage.stat(name) is None:
        return [f"{name}: the file is missing; run the same build again to write it anew"]
    if store.storage.stat(f"{name}.wal") is not None:
        return [f"{name}.wal: changes of {name} that a DuckDB client left; open it with that client, or remove them"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            stored, made = Path(folder) / "stored", Path(folder) / "made"
            with store.storage.open(name) as source, stored.open("wb") as copy:
                shutil.copyfileobj(source, copy)
            write_views(store, made)
            held, wanted = _catalogue(stored), _catalogue(made)
    except (duckdb.Error, OSError, PivotError) as error:
        return [f"{name}: its views cannot be compared ({str(error).splitlines()[0]}); run the same build again"]
    problems = [f"{name}: a {kind} {each} that the run does not make" for kind, each in sorted(held.keys() - wanted)]
    problems += [f"{name}: the {kind} {each} is missing" for kind, each in sorted(wanted.keys() - held)]
    writer, here = store.storage.read_json(RUN).get("versions", {}).get("duckdb"), versions()["duckdb"]
    if writer != here:
        notes.append(f"views of {name} were compared by name alone: DuckDB {writer} wrote them, {here} is installed")
        return problems
    return problems + [
        f"{name}: the {kind} {each} is another: {contrast('sql', held[kind, each], sql)}"
        for (kind, each), sql in wanted.items()
        if held.get((kind, each), sql) != sql
    ]


def _catalogue(path: Path) -> dict[tuple[str, str], str]:
    with duckdb.connect(str(path), read_only=True, config=CLOSED) as connection:
        rows = connection.execute(_CATALOGUE).fetchall()
    return {(kind, name): _EXCLUDED.sub(_in_order, sql or "") for kind, name, sql in rows}


_EXCLUDED = re.compile(r"EXCLUDE \(([\w, ]+)\)")
"""Names without an order, which DuckDB words otherwise whenever a client makes it write the file again."""


def _in_order(found: re.Match[str]) -> str:
    return f"EXCLUDE ({', '.join(sorted(found[1].split(', ')))})"


# Receipts

_STAGES = re.compile(rf"{RECEIPTS}/(?:{ROLLOUT}|{LABEL}-v\d+|{EXPORT}-v\d+(?:-staged)?)/\w+/\d{{5}}\.json")


def receipt_problems(
    store: Store, manifest: Mapping[str, FileRecord], expected: Mapping[Shard, Mapping[str, Receipt]]
) -> list[str]:
    """Compare the receipts that are there with what the shards' rows give; a store may be published without any."""
    problems = [
        f"{name}: a receipt that no stage leaves"
        for name in store.storage.listing(RECEIPTS)
        if not _STAGES.fullmatch(name) and name != ORIGIN
    ]
    same_version = _written_by_this_version(store.storage.read_json(RUN))
    in_place, staged = (export_stage(store.config, staged=each) for each in (False, True))
    for shard, stages in expected.items():
        for stage, right in stages.items():
            name = store.receipt_file(stage, shard)
            # A relabel leaves a staged export; a build after it, which then is the newer one, an export in place.
            older = stage == staged and store.storage.stat(store.receipt_file(in_place, shard)) is not None
            if store.storage.stat(name) is None or older:
                continue
            receipt = store.receipt(stage, shard)
            if receipt is None:
                problems.append(f"{name}: it cannot be read; the next build makes the shard again")
                continue
            problems += [f"{name}: {what}" for what in _receipt_problems(store, receipt, right, manifest, same_version)]
            made = {file.replace(f"{store.staged_folder}/", f"{DATASET_FOLDER}/", 1) for file in receipt.files}
            if made != _stage_files(store, stage, shard) & manifest.keys():
                problems.append(f"{name}: it names other files than its stage makes")
    return problems


def _stage_files(store: Store, stage: str, shard: Shard) -> set[str]:
    if stage == ROLLOUT:
        return {store.table_file(schema, shard) for schema in STORE_TABLES}
    return set(store.label_files(shard)) if stage.startswith(LABEL) else _dataset_files(shard)


def _receipt_problems(
    store: Store, receipt: Receipt, right: Receipt, manifest: Mapping[str, FileRecord], same_version: bool
) -> list[str]:
    problems = []
    for made_as, record in receipt.files.items():
        name = made_as.replace(f"{store.staged_folder}/", f"{DATASET_FOLDER}/", 1)
        if manifest.get(name) != record:
            problems.append(f"its record of {name} is not that of {MANIFEST}")
    if receipt.facts != right.facts:
        problems.append(contrast("facts", receipt.facts, right.facts))
    if same_version and right.inputs and receipt.inputs != right.inputs:
        problems.append("its inputs are not those of the run; the next build makes the shard again")
    return problems
