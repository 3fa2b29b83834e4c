"""Two hundred ways to be cut short: each restart ends with the bytes of a run that nobody disturbed.

Points are spread evenly over the changes that a run makes. `make test` takes a few of every kind, `make
test-kill-points` all of them.
"""

import os
import random
import subprocess
from pathlib import Path

import pivot
import pytest
from pivot.core.errors import ServerGoneError, StoreError
from pivot.core.storage import open_storage
from pivot.core.storage.lease import LOCK
from pivot.datasets.store.store import Store
from pivot.tests.core.object_server import Line, ObjectServer, promised, release
from pivot.tests.flow_runs import assert_nothing_is_torn, assert_whole, config_of, fingerprint
from pivot.tests.flows.test_served_faults import config_at, tables_of
from pivot.tests.flows.victim import CHILD, GROUP, PARENT, Victim
from pivot.tests.models.chat_server import served, stop_after

ALL = os.environ.get("PIVOT_KILL_POINTS") == "all"
CONFIG = config_of({"sokoban": 2, "frozenlake": 3})

pytestmark = pytest.mark.xdist_group("kill")


def points(among: int, few: int, many: int) -> list[int]:
    """Some of the numbers from 1 to ``among``, other ones every time that the number of changes is another."""
    return sorted(random.Random(among).sample(range(1, among + 1), min(among, many if ALL else few)))


@pytest.fixture(scope="module")
def undisturbed(victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A store of ``CONFIG``, and how many changes made it."""
    root = tmp_path_factory.mktemp("undisturbed") / "store"
    return root, len(victim.run("build", root, CONFIG, workers=2))


@pytest.mark.parametrize(("who", "few", "many"), [(GROUP, 5, 60), (PARENT, 3, 30), (CHILD, 3, 30)])
def test_killed_at_any_change(
    victim: Victim, undisturbed: tuple[Path, int], tmp_path: Path, who: str, few: int, many: int
) -> None:
    whole, changes = undisturbed
    assert changes > 60
    cut = 0
    for moment in points(changes, few, many):
        root = tmp_path / str(moment)
        made = victim.run("build", root, CONFIG, moment, workers=2, who=who)
        assert_nothing_is_torn(root)
        cut += not (root / "manifest.json").exists()
        if who != CHILD and moment < changes:
            with pytest.raises(StoreError, match=r"did not finish|holds no run\.json"):
                Store.open(root)
        victim.run("build", root, CONFIG, workers=2)
        assert fingerprint(root) == fingerprint(whole), f"{who} killed before {made[moment - 1]}"
        assert_whole(root)
    assert cut >= 2, "hardly any run was cut short"


def test_the_disk_is_full_at_any_size(undisturbed: tuple[Path, int], disk: Path) -> None:
    """From a disk that takes the config alone to one that lacks a page for the manifest."""
    whole, _ = undisturbed
    pages = sum(-(-path.stat().st_size // 4096) for path in whole.rglob("*") if path.is_file())
    assert pages > 100
    full = 0
    for taken in points(pages, 3, 30):
        root = disk / str(taken)
        used = sum(-(-path.stat().st_size // 4096) for path in disk.rglob("*") if path.is_file())
        subprocess.run(["mount", "-o", f"remount,size={(used + taken) * 4}k", str(disk)], check=True)
        try:
            pivot.build(CONFIG, root)
        except StoreError as error:
            full += 1
            assert "No space left on device; free some space" in str(error)
            assert_nothing_is_torn(root)
        subprocess.run(["mount", "-o", "remount,size=1g", str(disk)], check=True)
        pivot.build(CONFIG, root)
        assert fingerprint(root) == fingerprint(whole), f"full after {taken} pages"
        assert_whole(root)
    assert full >= 2


def test_the_line_to_an_object_store_is_cut_at_any_byte(
    line: Line, s3: ObjectServer, undisturbed: tuple[Path, int]
) -> None:
    """Most cuts are within the upload of an object; the next run replaces a lease that was not released."""
    whole = fingerprint(undisturbed[0])
    pivot.build(CONFIG, s3.store())
    for place in points(line.sent // 1000 - 3, 2, 30):  # not in the last request, which gives the lock back
        root = s3.store()
        line.sent, line.breaks, line.break_at, line.stays_broken = 0, 0, 1000 * place, True
        with pytest.raises(StoreError, match="cannot be reached"):
            pivot.build(CONFIG, root)
        line.break_at, line.stays_broken = None, False
        if open_storage(root).stat(LOCK) is not None:
            release(root)
        pivot.build(CONFIG, root)
        assert promised(root) == whole, f"cut after {place} KB"


def test_a_model_server_goes_at_any_answer(tmp_path: Path) -> None:
    with served(slots=4) as server:
        config = config_at(server, {"sokoban": 3}, rollouts=3, patience_seconds=0.3, max_concurrency=4)
        config |= {"tasks_per_shard": 1}
        pivot.build(config, tmp_path / "whole")
        steps = server.log.answered
        for number in points(steps - 4, 2, 20):  # as many may be on their way when the last one comes
            root = tmp_path / str(number)
            stopped = stop_after(server, number)
            with pytest.raises(ServerGoneError, match="finished episodes are kept"):
                pivot.build(config, root)
            stopped.join()
            server.fault = lambda key, tried: None
            server.start()
            assert pivot.build(config, root).pending_episodes == 0
            assert tables_of(root) == tables_of(tmp_path / "whole"), f"gone after {number} answers"
            assert_whole(root)
