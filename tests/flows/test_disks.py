"""Disks that are full, read-only or closed: the file and the fix are named, and nothing is lost."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pivot
import pytest
from pivot.cli import app
from pivot.core.errors import PivotError, StoreError
from pivot.tests.disks import mounted_disk
from pivot.tests.flow_runs import assert_whole, config_of, files_of, fingerprint
from typer.testing import CliRunner

CONFIG = config_of({"sokoban": 2, "frozenlake": 2})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ``CONFIG``; copy it before changing anything."""
    root = tmp_path_factory.mktemp("disks") / "store"
    pivot.build(CONFIG, root)
    return root


def run(*arguments: str | Path) -> str:
    """Run a command in this process and return its output; raise its error."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if isinstance(result.exception, PivotError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 400 KB of its own."""
    with mounted_disk(tmp_path / "disk", "400k") as disk:
        yield disk


def _remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def test_a_full_disk_loses_nothing(small_disk: Path, built: Path) -> None:
    root = small_disk / "store"
    with pytest.raises(StoreError, match=r"cannot write .*No space left on device; free some space and run the same"):
        pivot.build(CONFIG, root)
    kept = {name for name in files_of(root) if name.startswith(".receipts/rollout")}
    assert kept
    assert not (root / ".tmp").exists()
    _remount(small_disk, "size=64m")
    assert pivot.build(CONFIG, root).reused_shards == len(kept)
    assert fingerprint(root) == fingerprint(built)
    _remount(small_disk, f"size={shutil.disk_usage(small_disk).used // 1024 + 40}k")
    with pytest.raises(StoreError, match="No space left on device"):
        run("relabel", root, "--workers", "1")
    _remount(small_disk, "size=64m")
    with pytest.raises(StoreError, match="problems found"):  # files of the next labels, which a pattern would find
        run("verify", root, "--workers", "1")
    run("relabel", root, "--workers", "1")
    assert_whole(root)


def test_a_read_only_disk_is_named(small_disk: Path, built: Path) -> None:
    _remount(small_disk, "size=64m")
    shutil.copytree(built, small_disk / "store")
    _remount(small_disk, "ro")
    for arguments in (
        ("build", "sokoban", "--out", small_disk / "other"),
        ("build", "sokoban", "--out", small_disk / "store", "--refresh"),
        ("relabel", small_disk / "store", "--workers", "1"),
    ):
        with pytest.raises(StoreError, match="Read-only file system; choose a folder on a writable") as caught:
            run(*arguments)
        assert str(small_disk) in str(caught.value)
    for arguments in (("stats",), ("peek",), ("verify", "--workers", "1")):
        run(arguments[0], small_disk / "store", *arguments[1:])
    assert len(pivot.load_store(small_disk / "store").episodes.collect()) == 16


def test_a_complete_store_on_a_read_only_disk_is_complete(small_disk: Path, built: Path) -> None:
    _remount(small_disk, "size=64m")
    root = small_disk / "store"
    shutil.copytree(built, root)
    (root / ".lock").unlink()
    _remount(small_disk, "ro")
    assert pivot.build(CONFIG, root).already_complete
    shown = run("build", "--config", root / "run.json", "--out", root, "--workers", "1")
    assert "(already complete)" in " ".join(shown.split())
    with pytest.raises(StoreError, match="holds a run with another config"):
        pivot.build(CONFIG | {"seed": 1}, root)
    # What needs a write is refused as before.
    refused = pytest.raises(StoreError, match="Read-only file system; choose a folder on a writable")
    with refused:
        pivot.build(CONFIG, root, refresh=True)
    with refused:
        pivot.build(config_of({"sokoban": 2, "frozenlake": 3}), root)
    _remount(small_disk, "rw")
    (root / "steps/sokoban/00000.parquet").unlink()
    _remount(small_disk, "ro")
    with refused:
        pivot.build(CONFIG, root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="Permission denied; choose a folder you may write to"):
        run("build", "sokoban", "--out", tmp_path / "closed" / "store")
