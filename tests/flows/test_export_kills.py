"""Exports that are cut short: by a kill before any change on disk, by Ctrl-C, by a full disk. A rerun has equal bytes.

`make test` takes some of the points, `make test WHAT=kill-points` all of them.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pivot
import pytest
from pivot.core.errors import StoreError
from pivot.core.progress import Reporter
from pivot.datasets.export.on_disk import RECORD
from pivot.datasets.verify.exports import verify_export
from pivot.tests.flow_runs import assert_nothing_is_torn, clean_environment, config_of
from pivot.tests.flows.victim import CHILD, GROUP, PARENT, Victim

ALL = os.environ.get("PIVOT_KILL_POINTS") == "all"
pytestmark = pytest.mark.xdist_group("kill")


def visible(root: Path) -> dict[str, bytes]:
    """Return the bytes of an export by name, without locks, receipts and temporary files."""
    names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    return {name: (root / name).read_bytes() for name in names if not name.startswith(".")}


def proved(store: Path, target: Path) -> bool:
    """Whether ``pivot verify`` finds nothing wrong with an export."""
    return not verify_export(store, target, Reporter(), lambda call, calls: (call(*each) for each in calls)).problems


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed-exports") / "store"
    pivot.build(config_of({"sokoban": 2, "frozenlake": 2}), root)
    return root


@pytest.fixture(scope="module")
def whole(victim: Victim, store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """An export that nobody disturbed, and the number of changes that made it."""
    root = tmp_path_factory.mktemp("whole") / "pairs"
    return root, len(victim.run("export", root, {"store": str(store), "format": "pairs"}, workers=2))


@pytest.mark.parametrize(
    ("how", "who", "workers", "every"),
    [
        (signal.SIGKILL, GROUP, 1, 1),
        (signal.SIGKILL, GROUP, 2, 3),
        (signal.SIGKILL, PARENT, 2, 5),
        (signal.SIGKILL, CHILD, 2, 5),
        (signal.SIGINT, GROUP, 1, 3),
    ],
)
def test_an_export_that_is_cut_short_anywhere_has_equal_bytes_after_a_rerun(
    victim: Victim,
    store: Path,
    whole: tuple[Path, int],
    tmp_path: Path,
    how: signal.Signals,
    who: str,
    workers: int,
    every: int,
) -> None:
    expected, changes = whole
    options, cut = {"store": str(store), "format": "pairs"}, 0
    cuts = list[int]()
    assert changes >= 15
    for moment in range(1, changes + 1, every if ALL else 7 * every):
        root = tmp_path / str(moment)
        made = victim.run("export", root, options, moment, workers=workers, how=how, who=who)
        assert_nothing_is_torn(root)
        if not (root / RECORD).exists():
            cut += 1
            with pytest.raises(StoreError, match="is not a finished export"):
                proved(store, root)
        victim.run("export", root, options, workers=workers)
        assert visible(root) == visible(expected), f"cut before {made[-1]}"
        assert not (root / ".receipts").exists()
        cuts.append(moment)
    assert proved(store, tmp_path / str(cuts[-1]))
    assert cut >= len(cuts) // 2, "hardly any export was cut short"


def test_an_export_over_an_older_one_survives_kills(
    victim: Victim, store: Path, whole: tuple[Path, int], tmp_path: Path
) -> None:
    """With other environments the older files go; at no moment is the folder taken for something else."""
    root, options = tmp_path / "pairs", {"store": str(store), "format": "pairs"}
    for moment in (1, 2, 3, 4, 5, 7, 9, 12) if ALL else (2, 4, 9):
        pivot.export(store, root, format="pairs", environments=["frozenlake"])
        victim.run("export", root, options, moment)
        victim.run("export", root, options)
        assert visible(root) == visible(whole[0]), f"cut before change {moment}"


def test_ctrl_c_says_what_to_do_next(store: Path, whole: tuple[Path, int], tmp_path: Path) -> None:
    root = tmp_path / "pairs"
    # The signal comes after the first file of rows, wherever that is in time.
    script = """
import os, signal, sys
import pivot.flows.export as flow
from pivot.__main__ import main

write = flow.write_tables
def interrupted(*arguments, **named):
    made = write(*arguments, **named)
    os.kill(os.getpid(), signal.SIGINT)
    return made

flow.write_tables = interrupted
main()
"""
    command = [sys.executable, "-c", script, "export", "pairs", store, "--out", root, "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "interrupted; run the same command again to resume"
    assert "Traceback" not in done.stderr
    assert visible(root).keys() & {RECORD} == set()
    pivot.export(store, root, format="pairs")
    assert visible(root) == visible(whole[0])


def test_a_full_disk_says_what_to_do_next(store: Path, whole: tuple[Path, int], disk: Path) -> None:
    pages = sum(-(-len(content) // 4096) for content in visible(whole[0]).values())
    full = 0
    for taken in range(1, pages, max(pages // (8 if ALL else 4), 1)):
        root = disk / str(taken)
        used = sum(-(-path.stat().st_size // 4096) for path in disk.rglob("*") if path.is_file())
        subprocess.run(["mount", "-o", f"remount,size={(used + taken) * 4}k", str(disk)], check=True)
        try:
            pivot.export(store, root, format="pairs")
        except StoreError as error:
            full += 1
            assert "No space left on device; free some space" in str(error)
            assert_nothing_is_torn(root)
        subprocess.run(["mount", "-o", "remount,size=1g", str(disk)], check=True)
        pivot.export(store, root, format="pairs")
        assert visible(root) == visible(whole[0]), f"full after {taken} pages"
    assert full >= 2
