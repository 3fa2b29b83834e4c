"""`pivot verify` ends within its limits of time and memory, and says which one a store reached."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.core.errors import StoreError
from pivot.core.images import encode_png, frame_id
from pivot.core.progress import Silent
from pivot.datasets.store.store import RUN
from pivot.datasets.verify.limits import LimitReached, Limits, within
from pivot.datasets.verify.verify import verify_store
from pivot.tests.flow_runs import PATIENCE
from pivot.tests.stores import Patient, Rows, change_rows, problems, rewrite_manifest

SHORT = Limits(seconds=0.2)


def test_work_that_takes_too_long_is_interrupted() -> None:
    def endless() -> list[str]:
        while True:
            try:
                time.sleep(0.01)
            except Exception:  # noqa: BLE001 - as code that handles any error would
                continue

    started = time.monotonic()
    [problem] = within(SHORT, "shard x/00000", endless)
    assert problem == "limit reached: shard x/00000 took more than 0.2 s; raise it with --max-seconds"
    assert time.monotonic() - started < PATIENCE


def test_work_that_ends_in_time_is_not_interrupted() -> None:
    for _ in range(50):
        assert within(Limits(seconds=0.001), "quick", lambda: []) in ([], [Limits(0.001).problem("quick", "time")])
    try:
        for _ in range(100):
            time.sleep(0.001)
    except LimitReached:
        pytest.fail("the limit of earlier work interrupted later work")


def test_the_process_ends_where_interrupted_work_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pivot.datasets.verify.limits.GRACE", 0.1)
    ended: list[str] = []

    def deaf() -> list[str]:
        started = time.monotonic()
        while not ended and time.monotonic() - started < 60:
            try:
                time.sleep(0.01)
            except LimitReached:
                continue
        return []

    within(Limits(0.1, ends_process=ended.append), "deaf", deaf)
    assert "limit reached: deaf took more than 0.1 s" in ended[0]


def test_memory_beyond_the_limit_is_refused() -> None:
    [problem] = within(Limits(memory=200), "large", lambda: [str(np.ones(1 << 30, np.uint8).sum())])
    assert problem == "limit reached: large needed more than 200 MiB; raise it with --max-memory"
    assert within(Limits(memory=200), "small", lambda: [str(np.ones(1 << 20, np.uint8).sum())]) == ["1048576"]
    np.ones(1 << 28, np.uint8)  # the limit is gone


def _found(root: Path, limits: Limits) -> list[str]:
    rewrite_manifest(root)
    return verify_store(root, Silent(), limits=limits).problems


def test_a_store_that_takes_too_long_is_a_problem(lake: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(lake.root) == []  # kernels are compiled now; a compiler that is interrupted complains at the exit

    def endless(*_: object) -> None:
        while True:
            time.sleep(0.01)

    monkeypatch.setattr("pivot.datasets.verify.shard.verify_labels", endless)
    started = time.monotonic()
    messages = _found(lake.root, Limits(seconds=5))
    assert any(each.startswith("limit reached: shard frozenlake/") for each in messages), messages
    assert time.monotonic() - started < PATIENCE


def test_pictures_of_any_size_are_refused_from_their_headers(lake: Patient) -> None:
    image = np.zeros((7900, 7900, 3), np.uint8)
    encoded, name = encode_png(image), frame_id(image)

    def grow(rows: Rows) -> None:
        rows[0].update(image=encoded, frame_id=name, width=7900, height=7900, byte_size=len(encoded))

    change_rows(lake.root, lake.file("frozenlake", "frames"), grow)
    started = time.process_time()
    messages = _found(lake.root, Limits())
    assert any(
        each.startswith(f"limit reached: frames {name} of 62410000 pixels needed more than") for each in messages
    )
    assert time.process_time() - started < 60


def test_rows_that_unfold_to_more_than_the_memory_are_refused(lake: Patient) -> None:
    """A dictionary stores a text of 30 MB once and names it ten thousand times: 300 GB in a file of kilobytes."""
    path = lake.root / lake.file("frozenlake", "steps")
    whole = pq.read_table(path)
    index = whole.column_names.index("info")
    texts = pa.array(['"' + "x" * 30_000_000 + '"'])
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), texts)
    rows = pa.concat_tables([whole] * (10_000 // len(whole) + 1)).slice(0, 10_000)
    table = rows.set_column(index, pa.field("info", repeated.type), repeated)
    pq.write_table(table, path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1_000_000
    messages = _found(lake.root, Limits(memory=400))
    assert any(each.startswith("limit reached: ") or "column info takes" in each for each in messages), messages


def test_a_run_json_of_any_size_is_refused_unread(lake: Patient) -> None:
    path = lake.root / RUN
    path.write_text(path.read_text() + " " * 20_000_000)
    with pytest.raises(StoreError, match=r"limit reached: .*run\.json has 200\d+ bytes, at most 4194304 are read"):
        verify_store(lake.root, Silent(), limits=Limits(memory=64))
