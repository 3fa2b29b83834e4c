"""SIGKILL at any moment: no torn file under a final name, nothing finished is made again, the same bytes in the end."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pivot
import psutil
import pytest
from pivot.datasets.progress import Silent
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.store import Store
from pivot.errors import StoreError
from pivot.tests.flow_runs import (
    assert_nothing_is_torn,
    assert_whole,
    clean_environment,
    config_of,
    error_lines,
    fingerprint,
)
from pivot.tests.flow_runs import pivot as command
from pivot.tests.flows.victim import Victim

SMALL = config_of({"sokoban": 1, "frozenlake": 1})
MANY_SHARDS = config_of({"sokoban": 8, "frozenlake": 8})

SCRIPT = """
import json, sys
import pivot

if __name__ == "__main__":
    result = pivot.build(json.loads(sys.argv[1]), sys.argv[2], workers=int(sys.argv[3]))
    sys.stdout.write(f"{result.reused_shards}\\n")
"""


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    """One process for all orders of this module."""
    with Victim() as process:
        yield process


# Just before any change on disk


@pytest.fixture(scope="module")
def undisturbed(victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A store that nobody disturbed, and the changes that made it."""
    root = tmp_path_factory.mktemp("undisturbed") / "store"
    return root, victim.run("build", root, SMALL)


@pytest.mark.xdist_group("kill")
def test_killed_before_any_change_and_started_again(
    victim: Victim, undisturbed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    wanted, changes = undisturbed
    assert len(changes) > 25
    moments = {1, 2, len(changes) - 1, len(changes), *random.Random(3).sample(range(3, len(changes) - 1), 6)}
    for moment in sorted(moments):
        root = tmp_path / str(moment)
        victim.run("build", root, SMALL, die_at=moment)
        assert_nothing_is_torn(root)
        if moment < len(changes):
            with pytest.raises(StoreError, match=r"did not finish|holds no run\.json"):
                Store.open(root)
        victim.run("build", root, SMALL)
        assert fingerprint(root) == fingerprint(wanted), f"killed before: {changes[moment - 1]}"
        assert_whole(root)


@pytest.mark.xdist_group("kill")
def test_killed_again_and_again_it_still_gets_there(victim: Victim, tmp_path: Path) -> None:
    """Every run is killed early; each must keep what the ones before it finished."""
    draw = random.Random(4)
    done: list[int] = []
    while len(victim.run("build", tmp_path, SMALL, die_at := draw.randint(9, 16))) == die_at:
        assert_nothing_is_torn(tmp_path)
        done.append(len(list((tmp_path / ".receipts").rglob("*.json"))))
        assert len(done) < 60
    assert done == sorted(done)
    assert len(done) >= 3
    pivot.build(SMALL, tmp_path / "undisturbed")
    assert fingerprint(tmp_path / "undisturbed").items() <= fingerprint(tmp_path).items()


# The whole process group, with workers


def _start(root: Path, workers: int = 2) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(MANY_SHARDS), str(root), str(workers)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _receipts(root: Path) -> int:
    return len(list((root / ".receipts").rglob("*.json")))


@pytest.mark.xdist_group("kill")
@pytest.mark.timeout(300)
def test_killed_with_its_workers_at_ten_random_moments(tmp_path: Path) -> None:
    draw = random.Random(5)
    root = tmp_path / "killed"
    kills = 0
    for _ in range(10):
        before, delay = _receipts(root), draw.uniform(0, 0.1)
        enough = before + draw.randint(0, 3)
        run = _start(root)
        while _receipts(root) < enough and run.poll() is None:
            time.sleep(0.005)
        time.sleep(delay)
        if run.poll() is not None:  # it was quicker than the kill
            run.communicate()
            break
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        kills += 1
        assert_nothing_is_torn(root)
        assert not (root / "manifest.json").exists()
    assert kills >= 5
    finished = len(list((root / ".receipts" / "rollout").rglob("*.json")))
    assert finished > 0
    last = _start(root)
    reported, errors = last.communicate(timeout=120)
    assert last.returncode == 0, errors
    assert int(reported) == finished
    pivot.build(MANY_SHARDS, tmp_path / "undisturbed")
    assert fingerprint(root) == fingerprint(tmp_path / "undisturbed")
    assert_whole(root)
    assert verify_store(root, Silent()).problems == []


@pytest.mark.xdist_group("kill")
def test_workers_do_not_outlive_a_parent_that_was_killed_alone(tmp_path: Path) -> None:
    run = _start(tmp_path)
    while _receipts(tmp_path) < 3:
        assert run.poll() is None, run.communicate()
        time.sleep(0.005)
    children = psutil.Process(run.pid).children(recursive=True)
    assert len(children) >= 2
    run.kill()
    run.wait()
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert len(gone) == len(children)
    for stream in (run.stdout, run.stderr):
        if stream is not None:
            stream.close()


# Two runs at once


@pytest.mark.xdist_group("kill")
def test_a_second_run_on_the_same_folder_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    first = _start(root)
    while _receipts(root) < 1:
        assert first.poll() is None, first.communicate()
        time.sleep(0.005)
    os.killpg(first.pid, signal.SIGSTOP)  # so that it does not end before the others have come
    try:
        refused = error_lines(command("build", "sokoban", "--out", root))
        assert len(refused) == 1
        assert f"is being written by another run (process {first.pid})" in refused[0]
        with pytest.raises(StoreError, match="is being written by another run"):
            pivot.build(MANY_SHARDS, root, refresh=True)
    finally:
        os.killpg(first.pid, signal.SIGCONT)
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 0, errors
    assert_whole(root)
