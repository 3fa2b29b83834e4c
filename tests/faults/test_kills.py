"""Builds, exports and probes that are cut short anywhere: the same command then ends with the bytes of a whole run.

Runs are killed in forked children just before a chosen change on disk (see `victim`), which costs no start; one run is
the command as a user starts it, with workers that are spawned. Points are spread evenly over the changes that a run
makes: `make test` takes a few of every kind, `make test WHAT=kill-points` all of them.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pivot
import psutil
import pytest
from pivot.core.errors import ServerGoneError, StoreError
from pivot.core.progress import Reporter
from pivot.core.storage import open_storage
from pivot.core.storage.lease import LOCK
from pivot.datasets.export.on_disk import RECORD
from pivot.datasets.store.store import Store
from pivot.datasets.verify.exports import verify_export
from pivot.insight.probe.rates import probe_rows
from pivot.tests.cli.command_line import error_of
from pivot.tests.core.object_server import Line, ObjectServer, promised, release
from pivot.tests.faults.test_served_faults import config_at
from pivot.tests.faults.victim import CHILD, GROUP, PARENT, Victim, watch_changes
from pivot.tests.flow_runs import (
    PATIENCE,
    assert_nothing_is_torn,
    assert_whole,
    clean_environment,
    config_of,
    files_of,
    fingerprint,
)
from pivot.tests.flows.test_writers import tables_of
from pivot.tests.models.chat_server import served, stop_after
from pivot.tests.stores import copy_store, problems

ALL = os.environ.get("PIVOT_KILL_POINTS") == "all"
CONFIG = config_of({"sokoban": 2, "frozenlake": 2})
KILL, CTRL_C = signal.SIGKILL, signal.SIGINT

pytestmark = pytest.mark.xdist_group("kill")


def points(among: int, few: int, many: int) -> list[int]:
    """Sample numbers from 1 to ``among``, seeded by ``among``."""
    return sorted(random.Random(among).sample(range(1, among + 1), min(among, many if ALL else few)))


def proved(store: Path, target: Path) -> bool:
    """Whether ``pivot verify`` finds nothing wrong with an export."""
    return not verify_export(store, target, Reporter(), lambda call, calls: (call(*each) for each in calls)).problems


@dataclass(frozen=True)
class Command:
    """A command that is cut short, and what it leaves when nobody disturbs it."""

    action: str
    options: dict[str, Any]
    begun_from: Path | None = None
    """Store that it adds to."""
    whole: Path = Path()
    changes: int = 0

    def begin(self, root: Path) -> Path:
        """Make the folder as it is before the command."""
        return root if self.begun_from is None else copy_store(self.begun_from, root)

    def content(self, root: Path) -> Any:
        """Return what a rerun has to equal: an export without locks and receipts, a store by its promised bytes."""
        if self.action != "export":
            return fingerprint(root)
        return {name: (root / name).read_bytes() for name in files_of(root) if not name.startswith(".")}

    def check_unfinished(self, root: Path) -> bool:
        """Check that no reader takes an unfinished result for a finished one; return whether it is unfinished."""
        if self.action == "export" and not (root / RECORD).exists():
            with pytest.raises(StoreError, match="is not a finished export"):
                proved(Path(self.options["store"]), root)
            return True
        if self.action == "build" and not (root / "manifest.json").exists():
            with pytest.raises(StoreError, match=r"did not finish|holds no run\.json"):
                Store.open(root)
            return True
        if self.action == "probe":
            problems = pivot.verify(root).problems
            assert all("a probe did not finish; run: pivot probe" in text for text in problems)
            manifests = [(each / "manifest.json").read_bytes() for each in (root, self.whole)]
            assert bool(problems) == (any((root / "probe").rglob("*.parquet")) and manifests[0] != manifests[1])
            return bool(problems)
        return False

    def check_whole(self, root: Path, place: str) -> None:
        """Check that the result is that of an undisturbed run."""
        assert self.content(root) == self.content(self.whole), place
        if self.action == "export":
            assert not (root / ".receipts").exists()
        else:
            assert_whole(root)


@pytest.fixture(scope="module")
def commands(victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """The commands by name, undisturbed."""
    folder, made = tmp_path_factory.mktemp("undisturbed"), dict[str, Command]()
    bare = folder / "build"
    for command in (
        Command("build", CONFIG),
        Command("export", {"store": str(bare), "format": "pairs"}),
        Command("probe", {}, begun_from=bare),
    ):
        root = command.begin(folder / command.action)
        changes = victim.run(command.action, root, command.options, workers=2)
        made[command.action] = replace(command, whole=root, changes=len(changes))
    assert [each.changes > least for each, least in zip(made.values(), (50, 14, 10), strict=True)] == [True] * 3
    assert proved(bare, made["export"].whole)
    assert probe_rows(Store.open(made["probe"].whole)).height > 20
    assert pivot.verify(made["probe"].whole).problems == []
    return made


@pytest.mark.parametrize(
    "cut",
    [
        ("build", KILL, GROUP, 2, 1, 60),
        ("build", KILL, PARENT, 2, 0, 30),
        ("build", KILL, CHILD, 2, 0, 30),
        ("export", KILL, GROUP, 1, 1, 60),
        ("export", KILL, GROUP, 2, 0, 20),
        ("export", KILL, PARENT, 2, 0, 12),
        ("export", KILL, CHILD, 2, 0, 12),
        ("export", CTRL_C, GROUP, 1, 0, 20),
        ("probe", KILL, GROUP, 1, 1, 30),
        ("probe", CTRL_C, GROUP, 1, 0, 20),
    ],
    ids=lambda cut: "-".join(map(str, cut)),
)
def test_cut_short_anywhere_a_rerun_has_equal_bytes(
    victim: Victim, commands: dict[str, Command], tmp_path: Path, cut: tuple[str, signal.Signals, str, int, int, int]
) -> None:
    """Catch a file written in place, a receipt before its file, an unfinished result that a reader takes for finished.

    No shard with a receipt is rebuilt, either.
    """
    action, how, who, workers, few, many = cut
    command, unfinished = commands[action], 0
    for moment in sorted({command.changes // 3, *points(command.changes, few, many)}):
        root = command.begin(tmp_path / str(moment))
        made = victim.run(action, root, command.options, moment, workers=workers, how=how, who=who)
        place = f"{who} cut before {made[moment - 1] if moment <= len(made) else 'nothing'}"
        assert_nothing_is_torn(root)
        is_unfinished = command.check_unfinished(root)
        unfinished += is_unfinished
        kept = {*root.glob(".receipts/**/[0-9]*.json"), *root.glob(".probe/**/[0-9]*.json")}
        if action == "export" and not is_unfinished:
            kept = set()  # a finished export is written again; the receipts that it was removing count no more
        if action == "probe":  # a receipt follows each shard
            assert len(kept) >= len([*(root / "probe").rglob("*.parquet")]) - 1
        again = victim.run(action, root, command.options, workers=workers)
        assert action == "probe" or not [path for path in kept if f"replace {path}" in again], place
        command.check_whole(root, place)
    assert unfinished, "no run was cut short"


@pytest.mark.parametrize("action", ["build", "export"])
def test_the_disk_is_full_at_any_size(commands: dict[str, Command], disk: Path, action: str) -> None:
    """From a disk that takes the config alone to one that lacks a page for the last file."""
    command, full = commands[action], 0
    pages = sum(-(-path.stat().st_size // 4096) for path in command.whole.rglob("*") if path.is_file())

    run = partial(pivot.build, CONFIG)
    if action == "export":
        run = partial(pivot.export, command.options["store"], format="pairs")

    for taken in points(pages, 3, 30):
        root = disk / str(taken)
        used = sum(-(-path.stat().st_size // 4096) for path in disk.rglob("*") if path.is_file())
        subprocess.run(["mount", "-o", f"remount,size={(used + taken) * 4}k", str(disk)], check=True)
        try:
            run(root)
        except StoreError as error:
            full += 1
            assert "No space left on device; free some space" in str(error)
            assert_nothing_is_torn(root)
        subprocess.run(["mount", "-o", "remount,size=1g", str(disk)], check=True)
        run(root)
        command.check_whole(root, f"full after {taken} pages")
    assert full >= 2


# Builds


def _receipts(root: Path, stage: str = "*") -> int:
    return len(list(root.glob(f".receipts/{stage}/**/*.json")))


def test_killed_again_and_again_with_its_workers_it_gets_there(
    victim: Victim, commands: dict[str, Command], tmp_path: Path
) -> None:
    """Each run dies with both of its workers, wherever they are; the next keeps what all before it finished."""
    draw = random.Random(5)
    kept: list[int] = []
    while True:
        die_at = draw.randint(8, 24)
        changes = victim.run("build", tmp_path, CONFIG, die_at, workers=2)
        if len(changes) < die_at:
            break
        assert_nothing_is_torn(tmp_path)
        finished = f"replace {tmp_path}/manifest.json" in changes[:-1]
        assert (tmp_path / "manifest.json").exists() == finished
        kept.append(_receipts(tmp_path))
        assert len(kept) < 60
    assert kept == sorted(kept) and len(kept) >= 4 and len(set(kept)) >= 3
    commands["build"].check_whole(tmp_path, "killed again and again")
    assert problems(tmp_path) == []


SCRIPT = """
import json, sys
import pivot

if __name__ == "__main__":
    pivot.build(json.loads(sys.argv[1]), sys.argv[2], workers=2)
"""


def test_workers_do_not_outlive_a_parent_that_was_killed_alone(commands: dict[str, Command], tmp_path: Path) -> None:
    """Catch a worker that writes on without its run: the next run would share the folder with it."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(CONFIG), str(tmp_path)]
    with subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE, text=True) as run:
        while not _receipts(tmp_path):
            assert run.poll() is None, run.communicate()
            time.sleep(0.005)
        children = psutil.Process(run.pid).children(recursive=True)
        run.kill()
        run.wait()
        assert len(children) >= 2
        assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []
    assert_nothing_is_torn(tmp_path)
    assert not (tmp_path / "manifest.json").exists()
    finished = _receipts(tmp_path, "rollout")
    assert finished > 0
    assert pivot.build(CONFIG, tmp_path).reused_shards == finished
    commands["build"].check_whole(tmp_path, "orphaned")


def test_a_second_run_on_the_same_folder_is_refused_and_harms_nothing(
    commands: dict[str, Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a second run that starts while the first one writes its config, a receipt or its manifest."""
    root, same = tmp_path / "store", tmp_path / "config.json"
    same.write_text(json.dumps(CONFIG), encoding="utf-8")
    moments = ["run.json", "rollout/sokoban/00000.json", "manifest.json"]

    def come_in_between(change: str) -> None:
        if not moments or not change.endswith(f"/{moments[0]}"):
            return
        moments.pop(0)
        before = {name: (root / name).read_bytes() for name in files_of(root)}
        refused = f"is being written by another run (process {os.getpid()})"
        assert refused in str(error_of("build", "--config", same, "--out", root))
        other = "holds a run with another config" if "run.json" in before else refused
        assert other in str(error_of("build", "sokoban", "--out", root))
        with pytest.raises(StoreError) as raised:
            pivot.build(CONFIG, root, refresh=True)
        assert refused in str(raised.value)
        assert {name: (root / name).read_bytes() for name in files_of(root)} == before

    watch_changes(come_in_between, monkeypatch.setattr)
    pivot.build(CONFIG, root)
    assert moments == []
    commands["build"].check_whole(root, "disturbed")


def test_four_runs_at_once_take_turns(victim: Victim, commands: dict[str, Command], tmp_path: Path) -> None:
    """Catch a lease that two runs hold at once: of one config, or of one that grows the other's store."""
    configs = [config_of({"sokoban": number, "frozenlake": number}) for number in (1, 2, 1, 2)]
    victim.run("builds at once", tmp_path, {"configs": configs})
    commands["build"].check_whole(tmp_path, "all at once")


def test_the_line_to_a_store_is_cut_at_any_byte(line: Line, s3: ObjectServer) -> None:
    """Catch half an object, or a lease that stays; most cuts are within the upload of an object."""
    config, undisturbed = config_of(1, rollouts=2), s3.store()
    pivot.build(config, undisturbed)
    for place in points(line.sent // 1000 - 3, 1, 30):  # not in the last request, which gives the lock back
        root = s3.store()
        line.sent, line.breaks, line.break_at, line.stays_broken = 0, 0, 1000 * place, True
        with pytest.raises(StoreError, match="cannot be reached"):
            pivot.build(config, root)
        line.break_at, line.stays_broken = None, False
        if open_storage(root).stat(LOCK) is not None:
            release(root)
        pivot.build(config, root)
        assert promised(root) == promised(undisturbed), f"cut after {place} KB"


def test_a_model_server_goes_at_any_answer(tmp_path: Path) -> None:
    with served(slots=4) as server:
        config = config_at(server, {"sokoban": 3}, rollouts=2, patience_seconds=0.3, max_concurrency=4)
        config |= {"tasks_per_shard": 1}
        pivot.build(config, tmp_path / "whole")
        steps = server.log.answered
        for number in {3 * steps // 4, *points(steps - 4, 2, 20)}:  # four may be on their way when the last one comes
            root = tmp_path / str(number)
            stopped = stop_after(server, number)
            with pytest.raises(ServerGoneError, match="finished episodes are kept"):
                pivot.build(config, root)
            stopped.join()
            server.fault = lambda key, tried: None
            server.start()
            answered = server.log.answered
            assert pivot.build(config, root).pending_episodes == 0
            assert server.log.answered - answered < steps or number < 3 * steps // 4, "what was finished was kept"
            assert tables_of(root) == tables_of(tmp_path / "whole"), f"gone after {number} answers"
            assert_whole(root)


# Exports and probes over older ones


def test_an_export_over_an_old_one_survives_kills(victim: Victim, commands: dict[str, Command], tmp_path: Path) -> None:
    """With other environments the older files go; at no moment is the folder taken for something else."""
    root, export = tmp_path / "pairs", commands["export"]
    for moment in (1, 2, 3, 4, 5, 7, 9, 12) if ALL else (2, 4, 9):
        pivot.export(export.options["store"], root, format="pairs", environments=["frozenlake"])
        victim.run("export", root, export.options, moment)
        victim.run("export", root, export.options)
        export.check_whole(root, f"cut before change {moment}")


def test_a_killed_probe_leaves_no_false_manifest(victim: Victim, commands: dict[str, Command], tmp_path: Path) -> None:
    whole = commands["probe"].whole
    root = copy_store(whole, tmp_path / "store")
    victim.run("probe", root, {"resamples": 2}, "/probe/frozenlake/00000.parquet")
    store = Store.open(root)
    manifest = store.manifest()
    assert {name: store.storage.record(name) for name in manifest} == manifest
    victim.run("probe", root, {"resamples": 2})
    fresh = copy_store(whole, tmp_path / "fresh")
    victim.run("probe", fresh, {"resamples": 2})
    assert fingerprint(root) == fingerprint(fresh)
