"""SIGKILL again and again, as a user meets it, and two runs at once; single moments are in `test_kill_points`.

Runs are killed in forked children just before a chosen change on disk (see `victim`), which costs no start; one run is
the command as a user starts it, with workers that are spawned.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pivot
import psutil
import pytest
from pivot.core.errors import StoreError
from pivot.core.progress import Reporter
from pivot.datasets.verify.verify import verify_store
from pivot.tests.cli.command_line import error_of
from pivot.tests.flow_runs import (
    PATIENCE,
    assert_nothing_is_torn,
    assert_whole,
    clean_environment,
    config_of,
    files_of,
    fingerprint,
)
from pivot.tests.flows.victim import Victim, watch_changes

SMALL = config_of({"sokoban": 1, "frozenlake": 1})
MANY_SHARDS = config_of({"sokoban": 4, "frozenlake": 4})

SCRIPT = """
import json, sys
import pivot

if __name__ == "__main__":
    pivot.build(json.loads(sys.argv[1]), sys.argv[2], workers=2)
"""

pytestmark = pytest.mark.xdist_group("kill")


@pytest.fixture(scope="module")
def undisturbed(victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A store of `SMALL` that nobody disturbed, and the changes that made it."""
    root = tmp_path_factory.mktemp("undisturbed") / "store"
    return root, victim.run("build", root, SMALL)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of `MANY_SHARDS` that nobody disturbed, made by one process."""
    root = tmp_path_factory.mktemp("many") / "store"
    pivot.build(MANY_SHARDS, root)
    return root


def _receipts(root: Path, stage: str = "*") -> int:
    return len(list(root.glob(f".receipts/{stage}/**/*.json")))


def test_killed_again_and_again_with_its_workers_it_gets_there(victim: Victim, many: Path, tmp_path: Path) -> None:
    """Each run dies with both of its workers, wherever they are; the next keeps what all before it finished."""
    draw = random.Random(5)
    kept: list[int] = []
    while True:
        die_at = draw.randint(6, 24)
        changes = victim.run("build", tmp_path, MANY_SHARDS, die_at, workers=2)
        if len(changes) < die_at:
            break
        assert_nothing_is_torn(tmp_path)
        finished = f"replace {tmp_path}/manifest.json" in changes[:-1]
        assert (tmp_path / "manifest.json").exists() == finished
        kept.append(_receipts(tmp_path))
        assert len(kept) < 60
    assert len(kept) >= 8
    assert kept == sorted(kept)
    assert len(set(kept)) >= 4
    assert fingerprint(tmp_path) == fingerprint(many)
    assert_whole(tmp_path)
    assert verify_store(tmp_path, Reporter()).problems == []


# The command as a user starts it


def test_workers_do_not_outlive_a_parent_that_was_killed_alone(many: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, json.dumps(MANY_SHARDS), str(tmp_path)]
    with subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE, text=True) as run:
        while _receipts(tmp_path) < 3:
            assert run.poll() is None, run.communicate()
            time.sleep(0.005)
        children = psutil.Process(run.pid).children(recursive=True)
        run.kill()
        run.wait()
        assert len(children) >= 2
        gone, alive = psutil.wait_procs(children, timeout=PATIENCE)
        assert not alive
        assert len(gone) == len(children)
    assert_nothing_is_torn(tmp_path)
    assert not (tmp_path / "manifest.json").exists()
    finished = _receipts(tmp_path, "rollout")
    assert finished > 0
    assert pivot.build(MANY_SHARDS, tmp_path).reused_shards == finished
    assert fingerprint(tmp_path) == fingerprint(many)
    assert_whole(tmp_path)


# Two runs at once


def test_a_second_run_on_the_same_folder_is_refused_and_harms_nothing(
    undisturbed: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Second runs start while the first one writes its config, a receipt and its manifest."""
    root = tmp_path / "store"
    moments = ["run.json", "rollout/sokoban/00000.json", "manifest.json"]

    def come_in_between(change: str) -> None:
        if not moments or not change.endswith(f"/{moments[0]}"):
            return
        moments.pop(0)
        before = {name: (root / name).read_bytes() for name in files_of(root)}
        refused = f"is being written by another run (process {os.getpid()})"
        assert refused in str(error_of("build", "sokoban", "--out", root))
        with pytest.raises(StoreError) as raised:
            pivot.build(SMALL, root, refresh=True)
        assert refused in str(raised.value)
        assert {name: (root / name).read_bytes() for name in files_of(root)} == before

    watch_changes(come_in_between, monkeypatch.setattr)
    pivot.build(SMALL, root)
    assert moments == []
    assert fingerprint(root) == fingerprint(undisturbed[0])
    assert_whole(root)


@pytest.mark.parametrize("tasks", [[4] * 8, [1, 2, 3, 4, 1, 2, 3, 4]], ids=["of one config", "of growing ones"])
def test_eight_runs_at_once_take_turns(victim: Victim, many: Path, tmp_path: Path, tasks: list[int]) -> None:
    configs = [config_of({"sokoban": number, "frozenlake": number}) for number in tasks]
    victim.run("builds at once", tmp_path / "store", {"configs": configs})
    assert fingerprint(tmp_path / "store") == fingerprint(many)
    assert_whole(tmp_path / "store")
    assert verify_store(tmp_path / "store", Reporter()).problems == []
