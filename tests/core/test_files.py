"""Durable writing: complete or old files after any failure, one writer at a time, and truthful receipts."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pivot.core.errors import ForbiddenError, StoreError
from pivot.core.storage import FileRecord, LocalStorage, open_storage
from pivot.core.storage.base import Receipt
from pivot.core.storage.local import LOCK, TEMPORARY
from pivot.datasets.store.parquet import read_table, write_tables
from pivot.datasets.store.schema import FRAMES
from pivot.tests.disks import mounted_disk, obeyed_permissions

OLD = b"the old content"


def _store(root: Path) -> Path:
    """A folder with one file of old content; returns the file."""
    LocalStorage(root).write("table/env/00000.bin", lambda sink: sink.write(OLD))
    return root / "table/env/00000.bin"


def _left_over(root: Path) -> list[str]:
    return [path.name for path in (root / TEMPORARY).rglob("*") if path.is_file()]


def _fail(code: int) -> Callable[..., Any]:
    def broken(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return broken


def _failing_fill(sink: Any) -> None:
    sink.write(b"half of the new")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("step", "code", "fix"),
    [
        ("fill", errno.ENOSPC, "free some space"),
        ("fsync", errno.EIO, "check the disk"),
        ("fsync", errno.EDQUOT, "quota"),
        ("replace", errno.EACCES, "choose a folder you may write to"),
        ("open", errno.EROFS, "writable filesystem"),
    ],
)
def test_a_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, fix: str
) -> None:
    target = _store(tmp_path)
    fill: Callable[[Any], object] = lambda sink: sink.write(b"new")  # noqa: E731
    with monkeypatch.context() as patch:
        if step == "fill":
            fill = _failing_fill
        else:
            patch.setattr(Path if step == "open" else os, step, _fail(code))
        with pytest.raises(StoreError) as raised:
            LocalStorage(tmp_path).write("table/env/00000.bin", fill)
    assert str(target) in str(raised.value) and os.strerror(code) in str(raised.value)
    assert fix in str(raised.value)
    assert target.read_bytes() == OLD
    assert _left_over(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, pa.ArrowInvalid])
def test_what_is_no_disk_error_passes_through_and_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    target = _store(tmp_path)

    def fill(sink: Any) -> None:
        sink.write(b"half")
        raise error("stop")

    with pytest.raises(error):
        LocalStorage(tmp_path).write("table/env/00000.bin", fill)
    assert target.read_bytes() == OLD
    assert _left_over(tmp_path) == []


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("not a folder")
    with pytest.raises(StoreError, match="a file stands where a folder is needed"):
        LocalStorage(tmp_path).write_bytes("table/env/00000.txt", b"x")


def test_what_may_not_be_read_is_not_called_missing(tmp_path: Path) -> None:
    inner = LocalStorage(tmp_path / "closed/inner")
    inner.write_bytes("table/a.bin", OLD)
    for closed, look in (
        (inner.root.parent, inner.exists),
        (inner.root.parent, inner.entries),
        (inner.root, inner.entries),
        (inner.root, lambda: inner.stat("table/a.bin")),
        (inner.root / "table", lambda: inner.stat("table/a.bin")),
        (inner.root / "table/a.bin", lambda: inner.read_bytes("table/a.bin")),
    ):
        mode = closed.stat().st_mode
        closed.chmod(0)
        try:
            with obeyed_permissions(), pytest.raises(ForbiddenError, match="Permission denied; change its"):
                look()
        finally:
            closed.chmod(mode)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of 256 KiB."""
    with mounted_disk(tmp_path / "disk", "256k") as disk:
        yield disk


def _frames(size: int) -> pa.Table:
    row = {"frame_id": "a", "width": 1, "height": 1, "format": "png", "byte_size": size, "image": os.urandom(size)}
    return FRAMES.table([row])


def test_a_full_disk(small_disk: Path) -> None:
    path = "frames/env/00000.parquet"
    write_tables(LocalStorage(small_disk), [(path, FRAMES, _frames(60_000))])
    before = (small_disk / path).read_bytes()
    with pytest.raises(StoreError, match=r"frames/env/00000\.parquet: No space left on device; free some space"):
        write_tables(LocalStorage(small_disk), [(path, FRAMES, _frames(400_000))])
    assert (small_disk / path).read_bytes() == before and _left_over(small_disk) == []
    write_tables(LocalStorage(small_disk), [(path, FRAMES, _frames(50_000))])
    assert read_table(LocalStorage(small_disk), path, FRAMES).num_rows == 1


def test_a_full_disk_refuses_files_clearly_and_no_lock(small_disk: Path) -> None:
    """A lock needs no space, because a prune locks before it frees any."""
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb") as filler:
        while True:
            filler.write(bytes(4096))
            filler.flush()
    with LocalStorage(small_disk).lock() as leased, pytest.raises(StoreError, match="No space left on device; free"):
        open_storage(leased).write_bytes("file", b"x")


def test_a_read_only_disk(small_disk: Path) -> None:
    target = _store(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="Read-only file system; choose a folder on a writable filesystem"):
        LocalStorage(small_disk).write("table/env/00000.bin", lambda sink: sink.write(b"new"))
    with pytest.raises(StoreError, match="writable filesystem"), LocalStorage(small_disk).lock():
        pass
    assert target.read_bytes() == OLD


def _trace_disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record every flush and rename, by path."""
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def path_of(descriptor: int) -> Path:
        return Path(f"/proc/self/fd/{descriptor}").readlink()

    def traced_fsync(descriptor: int) -> None:
        events.append(("flush", str(path_of(descriptor))))
        fsync(descriptor)

    def traced_replace(source: Path, target: Path) -> None:
        events.append(("rename", str(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "replace", traced_replace)
    return events


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are named by /proc only")
def test_content_is_flushed_before_the_rename_and_the_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    events = _trace_disk(monkeypatch)
    LocalStorage(root).write_bytes("labels/v1/env/00000.txt", b"x")
    folder = root / "labels/v1/env"
    renamed = events.index(("rename", str(folder / "00000.txt")))
    flushed_before = [path for kind, path in events[:renamed] if kind == "flush"]
    assert any(path.startswith(str(root / TEMPORARY)) for path in flushed_before)
    assert events[renamed + 1 :] == [("flush", str(folder))]
    # The entries of folders that are new must survive a power cut too.
    assert {str(root), str(root / "labels"), str(root / "labels/v1")} <= set(flushed_before)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are named by /proc only")
def test_files_written_side_by_side_are_flushed_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = _trace_disk(monkeypatch)
    paths = [f"frames/env/{number:05d}.parquet" for number in range(6)]
    records = write_tables(
        LocalStorage(tmp_path), [(path, FRAMES, _frames(100 + place)) for place, path in enumerate(paths)]
    )
    assert list(records) == paths
    assert all(LocalStorage(tmp_path).record(path) == record for path, record in records.items())
    for path in paths:
        renamed = events.index(("rename", str(tmp_path / path)))
        name = str(tmp_path / TEMPORARY / path.replace("/", "-"))
        assert any(kind == "flush" and flushed.startswith(name) for kind, flushed in events[:renamed])
    assert events[-1] == ("flush", str(tmp_path / "frames/env"))


WRITER = """
import sys
from pathlib import Path
from pivot.core.storage import LocalStorage
storage, number = LocalStorage(Path(sys.argv[1])), 0
while True:
    number += 1
    content = bytes([number % 256]) * 3_000_000
    storage.write_bytes("file.bin", content)
    print(number, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.011])
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path, delay: float) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    content = (tmp_path / "file.bin").read_bytes()
    assert len(content) == 3_000_000 and content.count(content[:1]) == len(content)
    with LocalStorage(tmp_path).lock():
        assert not (tmp_path / TEMPORARY).exists()


HOLDER = """
import sys, time
from pathlib import Path
from pivot.core.storage import LocalStorage
with LocalStorage(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_second_writer_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(StoreError) as raised, LocalStorage(tmp_path).lock():
            pass
        assert f"{tmp_path} is being written by another run (process {process.pid})" in str(raised.value)
        assert "wait for its end, or choose another --out" in str(raised.value)
        assert LocalStorage(tmp_path).writer() == str(process.pid), "the refused run left the name of the holder"
        process.send_signal(signal.SIGKILL)
    with LocalStorage(tmp_path).lock():
        assert (tmp_path / LOCK).read_text() == str(os.getpid())


def test_a_file_system_whose_locks_do_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    with (
        pytest.raises(StoreError, match=r"grants the same lock twice .*expected working file locks: mount it with"),
        LocalStorage(tmp_path / "store").lock(),
    ):
        pass
    monkeypatch.undo()
    with LocalStorage(tmp_path / "store").lock():
        pass


def test_the_lock_is_free_after_an_error_and_refused_twice_in_one_process(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), LocalStorage(tmp_path).lock():
        raise RuntimeError("the run fails")
    with LocalStorage(tmp_path).lock(), pytest.raises(StoreError, match="another run"), LocalStorage(tmp_path).lock():
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"files": {}}x'])
def test_json_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"run\.json is not valid JSON .*build the store again"):
        LocalStorage(tmp_path).read_json("run.json")
    with pytest.raises(StoreError, match=r"cannot read .*missing\.json: No such file"):
        LocalStorage(tmp_path).read_json("missing.json")


RECEIPT = ".receipts/rollout/env/00000.json"


def _receipt(root: Path) -> Receipt:
    record = LocalStorage(root).write_bytes("episodes/env/00000.parquet", b"content")
    receipt = Receipt("inputs", {"episodes/env/00000.parquet": record}, {"owed": ["a"], "episodes": 8})
    receipt.write(LocalStorage(root), RECEIPT)
    return receipt


def test_a_receipt_holds_only_for_its_inputs_and_whole_files(tmp_path: Path) -> None:
    receipt = _receipt(tmp_path)
    assert Receipt.read(LocalStorage(tmp_path), RECEIPT) == receipt
    assert receipt.holds(LocalStorage(tmp_path), "inputs")
    assert not receipt.holds(LocalStorage(tmp_path), "other inputs")
    target = tmp_path / "episodes/env/00000.parquet"
    target.write_text("conten")
    assert not receipt.holds(LocalStorage(tmp_path), "inputs")
    target.write_text("contents")
    assert not receipt.holds(LocalStorage(tmp_path), "inputs")
    target.write_text("CONTENT")
    assert not receipt.holds(LocalStorage(tmp_path), "inputs")
    target.write_text("content")
    assert receipt.holds(LocalStorage(tmp_path), "inputs")
    target.unlink()
    assert not receipt.holds(LocalStorage(tmp_path), "inputs")
    target.parent.rmdir()
    assert not receipt.holds(LocalStorage(tmp_path), "inputs")


def test_only_what_may_have_changed_is_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _receipt(tmp_path)
    receipt = Receipt.read(LocalStorage(tmp_path), RECEIPT)
    assert receipt is not None
    hashed: list[str] = []
    record = LocalStorage.record

    def recorded(self: LocalStorage, name: str) -> FileRecord:
        hashed.append(name)
        return record(self, name)

    monkeypatch.setattr(LocalStorage, "record", recorded)
    assert receipt.holds(LocalStorage(tmp_path), "inputs")
    assert hashed == []
    target = tmp_path / "episodes/env/00000.parquet"
    os.utime(target, ns=(0, target.stat().st_mtime_ns + 1))
    assert receipt.holds(LocalStorage(tmp_path), "inputs")
    # A receipt of an earlier version knows no times.
    assert replace(receipt, changed={}).holds(LocalStorage(tmp_path), "inputs")
    assert hashed == ["episodes/env/00000.parquet"] * 2
    # A program that appends to a file may restore the old time.
    receipt.write(LocalStorage(tmp_path), RECEIPT)
    receipt = Receipt.read(LocalStorage(tmp_path), RECEIPT)
    assert receipt is not None
    then = target.stat().st_mtime_ns
    target.write_text("contents")
    os.utime(target, ns=(0, then))
    assert not receipt.holds(LocalStorage(tmp_path), "inputs")


def test_a_torn_receipt_is_none(tmp_path: Path) -> None:
    receipt = _receipt(tmp_path)
    whole = (tmp_path / RECEIPT).read_bytes()
    for length in range(len(whole)):
        (tmp_path / RECEIPT).write_bytes(whole[:length])
        assert Receipt.read(LocalStorage(tmp_path), RECEIPT) in (None, receipt)
    assert Receipt.read(LocalStorage(tmp_path), "missing.json") is None


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": ...},
        {"files": ["a"]},
        {"files": {"a": {"sha256": "0"}}},
        {"files": {"a": ["0", 1]}},
        {"files": {"a": {"sha256": 1, "bytes": 1}}},
        {"facts": None},
        {"facts": ...},
    ],
)
def test_a_receipt_of_another_shape_is_none(tmp_path: Path, change: dict[str, Any]) -> None:
    _receipt(tmp_path)
    raw = json.loads((tmp_path / RECEIPT).read_text()) | change
    LocalStorage(tmp_path).write_json(RECEIPT, {name: value for name, value in raw.items() if value is not ...})
    assert Receipt.read(LocalStorage(tmp_path), RECEIPT) is None
