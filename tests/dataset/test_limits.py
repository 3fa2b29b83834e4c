"""Commands that read a stranger's store end with one message, whatever its files do to the libraries that read them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.tests.stores import Patient, rewrite_manifest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of a child process need Linux")
END = """
import os, signal, sys
from pivot.core.guard import expect_progress, guard, limit_memory
guard(sys.argv[1])
"""


def _python(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, timeout=300)


def _verified(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return _python("-m", "pivot", "verify", root, "--workers", "1", *words)


def _ended(how: str) -> subprocess.CompletedProcess[str]:
    return _python("-c", f"{END}\n{how}", "stats")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("os.abort()", "pivot stats was ended by SIGABRT: a library met a damaged file"),
        ("os.kill(os.getpid(), 11)", "pivot stats was ended by SIGSEGV"),
        ("expect_progress(0.1)\nwhile True: pass", "pivot stats made no progress within --max-seconds"),
    ],
)
def test_the_end_of_the_child_is_one_message(how: str, message: str) -> None:
    ended = _ended(how)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert "\n" not in ended.stderr.strip()


def test_status_and_output_of_the_child_are_those_of_the_command() -> None:
    ended = _ended("print('rows'); sys.exit(3)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "rows\n", "")


def test_memory_beyond_the_limit_is_refused() -> None:
    assert _ended("limit_memory(200)\ntry: bytearray(1 << 30)\nexcept MemoryError: sys.exit(7)").returncode == 7


def test_a_signal_reaches_the_child_and_a_killed_command_leaves_none() -> None:
    waits = f"{END}\nimport time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    for number, status in ((signal.SIGTERM, 1), (signal.SIGKILL, -signal.SIGKILL)):
        words, pipe = [sys.executable, "-c", waits, "stats"], subprocess.PIPE
        command = subprocess.Popen(words, stdout=pipe, stderr=pipe)
        assert command.stdout is not None
        child = int(command.stdout.readline())
        assert child != command.pid
        command.send_signal(number)
        assert command.wait(20) == status
        end = time.monotonic() + 10
        while Path(f"/proc/{child}").exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert not Path(f"/proc/{child}").exists()
        command.communicate()


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
    rewrite_manifest(lake.root)
    ended = _verified(lake.root)
    assert ended.returncode == 1
    assert "memory" in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr
