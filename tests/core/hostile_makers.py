"""Makers of hostile stores: each takes a copy of a valid store and a folder outside, and makes the copy hostile.

Every maker keeps the manifest in step with the files, so that a store is not refused for its checksums before the
attack is reached.
"""

import hashlib
import io
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pivot.tests.dataset.containers import png_of

Maker = Callable[[Path, Path], None]
SHARD = "{table}/sokoban/00000.parquet"
EPISODES, STEPS, FRAMES = (SHARD.format(table=table) for table in ("episodes", "steps", "frames"))
LABELS, TRAINING = "labels/v1/sokoban/00000.parquet", "dataset/sokoban/train-00000.parquet"
SPOKEN = "\x1b]0;owned\x07\x1b[31mred\x1b[2J\x9b5m\u202egnp.exe\u2066\r\n\x00[bold]markup[/bold]"
"""Escapes that set the title, colour and clear; C1 controls, right-to-left marks, a carriage return, NUL, markup."""


def make_canary(outside: Path, store: Path) -> None:
    """Fill a folder outside of the store with targets of attacks: notes, a key, a valid shard, valid JSON."""
    (outside / "deep" / "er").mkdir(parents=True)
    (outside / "notes.txt").write_text("mine\n")
    (outside / "deep" / "er" / "key").write_bytes(bytes(range(256)))
    for name in (EPISODES, LABELS, TRAINING, "run.json", "manifest.json", "dataset/README.md"):
        shutil.copy(store / name, outside / Path(name).name)
    shutil.copytree(store / "episodes", outside / "episodes")


def digest(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return name, kind, mode, size, time and contents of everything in a folder."""
    states: dict[str, tuple[object, ...]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        state = path.lstat()
        contents = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        states[str(path.relative_to(folder))] = (state.st_mode, state.st_size, state.st_mtime_ns, contents)
    return states


def reseal(store: Path, *names: str) -> None:
    """Put the present length and SHA-256 of files into the manifest, as a forger would."""
    path = store / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in names:
        data = (store / name).read_bytes()
        manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    path.write_text(json.dumps(manifest, indent=2))


def write(name: str, data: bytes, seal: bool = True) -> Maker:
    """Return a function that replaces a file of a store by some bytes."""

    def make(store: Path, outside: Path) -> None:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(data)
        if seal and name != "manifest.json":
            reseal(store, name)

    return make


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)


def link(name: str, target: str, hard: bool = False) -> Maker:
    """Put a link in the place of a file or folder; `{out}` is the folder outside."""

    def make(store: Path, outside: Path) -> None:
        _clear(store / name)
        led = target.format(out=outside)
        os.link(led, store / name) if hard else (store / name).symlink_to(led)

    return make


def pipe(name: str) -> Maker:
    """Put a pipe in the place of a file."""

    def make(store: Path, outside: Path) -> None:
        _clear(store / name)
        os.mkfifo(store / name, 0o666)

    return make


def journal(content: Any) -> Maker:
    """Write a journal that looks like that of an interrupted step."""

    def make(store: Path, outside: Path) -> None:
        (store / ".commit" / "new").mkdir(parents=True)
        (store / ".commit" / "new" / "notes.txt").write_text("theirs\n")
        text = content if isinstance(content, str) else json.dumps(content)
        text = text.replace("OUT", str(outside)).replace("UP", os.path.relpath(outside, store))
        (store / ".commit" / "journal.json").write_text(text)

    return make


def edit_run(change: Callable[[dict[str, Any]], None]) -> Maker:
    """Change run.json."""

    def make(store: Path, outside: Path) -> None:
        run = json.loads((store / "run.json").read_text())
        change(run)
        (store / "run.json").write_text(json.dumps(run, indent=2).replace("OUT", str(outside)))
        reseal(store, "run.json")

    return make


def edit_manifest(change: Callable[[dict[str, Any]], None]) -> Maker:
    """Change the parsed manifest."""

    def make(store: Path, outside: Path) -> None:
        manifest = json.loads((store / "manifest.json").read_text())
        change(manifest)
        (store / "manifest.json").write_text(json.dumps(manifest).replace("OUT", str(outside)))

    return make


def named(name: str) -> Maker:
    """List a file of this name in the manifest, without one in the store."""
    return edit_manifest(lambda manifest: manifest["files"].update({name: {"sha256": "0" * 64, "bytes": 5}}))


def edit_table(name: str, change: Callable[[pa.Table], pa.Table], **options: Any) -> Maker:
    """Write a Parquet file again after a change."""

    def make(store: Path, outside: Path) -> None:
        pq.write_table(change(pq.read_table(store / name, partitioning="")), store / name, **options)
        reseal(store, name)

    return make


def with_column(column: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Return a change that fills a column with a value, in the type of the value."""

    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(column), column, pa.array([value] * table.num_rows))

    return change


def with_row_count(data: bytes, rows: int, places: int = -1) -> bytes:
    """Return a Parquet file whose footer states a wrong number of rows, in the first place or in row groups, too."""

    def varint(number: int) -> bytes:
        number *= 2  # zigzag
        out = bytearray()
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        return bytes([*out, number])

    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    had = pq.read_metadata(io.BytesIO(data)).num_rows
    # num_rows is the third field of the footer, before the list of row groups; no field before it has 64 bits.
    changed = data[start:-8].replace(b"\x16" + varint(had), b"\x16" + varint(rows), places)
    assert changed != data[start:-8]
    return data[:start] + changed + len(changed).to_bytes(4, "little") + b"PAR1"


def patch_rows(name: str, rows: int) -> Maker:
    """Make the footer state a wrong number of rows."""

    def make(store: Path, outside: Path) -> None:
        (store / name).write_bytes(with_row_count((store / name).read_bytes(), rows))
        reseal(store, name)

    return make


def bomb_png(side: int) -> bytes:
    """Return a valid PNG of side x side pixels, a few MB for gigabytes of zeros."""
    packer = zlib.compressobj(1)
    lines = b""
    if side <= 30_000:
        line = b"\0" * (3 * side + 1)
        lines = b"".join(packer.compress(line) for _ in range(side))
    return png_of(side, side, lines + packer.flush())


def picture(side: int, width: int | None = None) -> Maker:
    """Put a picture of that many pixels in the place of all frames of a shard; the cells may claim another size."""

    def make(store: Path, outside: Path) -> None:
        image = bomb_png(side)

        def change(table: pa.Table) -> pa.Table:
            for column, value in (("width", width or side), ("height", width or side)):
                index = table.column_names.index(column)
                table = table.set_column(index, column, pa.array([value] * table.num_rows, pa.int32()))
            rows = [image, *table["image"].to_pylist()[1:]]
            table = table.set_column(table.column_names.index("image"), "image", pa.array(rows, pa.binary()))
            sizes = pa.array([len(row) for row in rows], pa.int64())
            return table.set_column(table.column_names.index("byte_size"), "byte_size", sizes)

        edit_table(FRAMES, change)(store, outside)

    return make


def bomb_rows(table: pa.Table) -> pa.Table:
    """Repeat the first row two million times: half a megabyte in dictionary pages."""
    return table.take(pa.array(np.zeros(2_000_000, np.int64)))


def views(*statements: str) -> Maker:
    """Put views of a forger into pivot.duckdb."""

    def make(store: Path, outside: Path) -> None:
        with duckdb.connect(str(store / "pivot.duckdb")) as database:
            for statement in statements:
                database.execute(statement.replace("OUT", str(outside)))

    return make


def shard_named(stem: str) -> Maker:
    """Add a copy of a shard under another name, and list it."""

    def make(store: Path, outside: Path) -> None:
        name = f"episodes/sokoban/{stem}.parquet"
        shutil.copy(store / EPISODES, store / name)
        reseal(store, name)

    return make


def hole(name: str, size: int) -> Maker:
    """Make a file sparse and huge."""

    def make(store: Path, outside: Path) -> None:
        with (store / name).open("r+b") as file:
            file.truncate(size)

    return make


def no_rights(store: Path, outside: Path) -> None:
    """Remove all permissions of a shard."""
    (store / EPISODES).chmod(0)


def settle(key: str, value: Any) -> Maker:
    """Set a field of the config in run.json; dots lead into it."""

    def change(run: dict[str, Any]) -> None:
        *way, last = key.split(".")
        for step in way:
            run = run.setdefault(step, {})
        run[last] = value

    return edit_run(change)


def policy(name: str, **options: Any) -> Maker:
    """Name another policy."""
    return settle("config.policy", {"name": name, "options": options})


def folder(name: str) -> Maker:
    """Put an empty folder in the place of a file."""

    def make(store: Path, outside: Path) -> None:
        _clear(store / name)
        (store / name).mkdir()

    return make


def filled(name: str, column: str, number: int) -> Maker:
    """Fill a column of 32-bit numbers."""

    def change(table: pa.Table) -> pa.Table:
        values = pa.array([number] * table.num_rows, pa.int32())
        return table.set_column(table.column_names.index(column), column, values)

    return edit_table(name, change)
