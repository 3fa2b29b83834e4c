"""Nights in a row on a real server and worker, with kills, full disks and outages of the object store."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from pivot.flows.limits import MODEL_SERVER
from pivot.tests.flows.nights import (
    FULL_DISK,
    KILLS,
    ON_DISK,
    ON_OBJECTS,
    OUTAGE,
    QUIET,
    Ledger,
    Night,
    Operator,
    check_whole,
    leftovers,
    nights_in,
    operator,
    plan,
)
from pivot.tests.storage.object_server import Line, ObjectServer

SEED = int(os.environ.get("PIVOT_NIGHTS_SEED", "34"))


def test_a_plan_has_every_fault() -> None:
    nights = plan(30, SEED)
    faults = [each.fault for each in nights]
    assert plan(30, SEED) == nights != plan(30, SEED + 1)
    assert (faults.count(FULL_DISK), faults.count(OUTAGE), faults.count(QUIET)) == (2, 2, 3)
    counts = [faults.count(each) for each in KILLS]
    assert sum(counts) == 30 - 2 - 2 - 3 and max(counts) - min(counts) <= 1
    assert len({each.day for each in nights}) == 30
    assert len({each.fault for each in plan(5, SEED)}) == 5


@pytest.mark.operations
@pytest.mark.xdist_group("prefect")
@pytest.mark.timeout(3600)
def test_five_nights(s3: ObjectServer, tmp_path: Path) -> None:
    _simulate(5, 3, s3, tmp_path)


@pytest.mark.long
@pytest.mark.xdist_group("prefect")
@pytest.mark.timeout(4 * 3600)
def test_thirty_nights(s3: ObjectServer, tmp_path: Path) -> None:
    _simulate(30, 10, s3, tmp_path)


def _simulate(count: int, keep: int, s3: ObjectServer, tmp_path: Path) -> None:
    home = tmp_path / "cache" / "pivot" / "prefect"
    home.mkdir(parents=True)
    line = Line(s3.port)
    ledger, days = Ledger(), list[str]()
    with operator(home, tmp_path, line, keep) as made:
        for night in plan(count, SEED):
            began = time.monotonic()
            days.append(night.day)
            _play(made, night, ledger)
            _check(made, days, tmp_path)
            ledger.restarts = made.restarts
            took = time.monotonic() - began
            sys.stdout.write(f"{night.day} {night.fault} at {night.moment}: {took:.0f} s\n")
            sys.stdout.flush()
        command = psutil.Process(made.process.pid)
    line.close()
    sys.stdout.write(f"{ledger.line()}\n")
    assert not command.is_running()
    assert made.ours() == []
    assert ledger.nights == count
    assert ledger.failures == ledger.alarms


def _play(made: Operator, night: Night, ledger: Ledger) -> None:
    """Let a night go wrong, and do what an operator does who sees the alarms."""
    ledger.nights += 1
    ledger.faults[night.fault] += 1
    if night.fault == FULL_DISK and made.disk.mounted:
        made.disk.fill()
    if night.fault == OUTAGE:
        made.line.break_at, made.line.stays_broken = made.line.sent + 500 * night.moment, True
    for name in made.roots:
        made.schedule(name, night.day)
    if night.fault in KILLS:
        made.strike(night)
    for name in made.roots:
        made.when(lambda name=name: made.settled(name, night.day, 1), f"{name} of {night} is not settled")
    for hours in (0.25, 1, 6, 20):
        made.tower.look(hours * 3600)
    begun = made.tower.take()
    failed = [name for name in made.roots if made.calls_for(name, night.day)]
    expected = {FULL_DISK: [ON_DISK] if made.disk.mounted else [], OUTAGE: [ON_OBJECTS]}.get(night.fault, [])
    assert failed == expected, f"{night}: the operator was called for {failed}"
    finals = {("PivotRunFailed", name): 1 for name in failed}
    assert {each: count for each, count in begun.items() if each[0] != "PivotRunKilled"} == finals, f"{night}: {begun}"
    silent = [count for each, count in begun.items() if each[0] == "PivotRunKilled"]
    # A power cut is seen if the night had begun to write metrics; nothing else leaves a run silent for ten minutes.
    assert set(silent) <= ({1} if night.fault == "command killed" else set()), f"{night}: {begun}"
    ledger.failures += len(failed) + len(silent)
    ledger.alarms += sum(begun.values())
    ledger.self_healed += night.fault in KILLS
    _heal(made, night, failed)


def _heal(made: Operator, night: Night, failed: list[str]) -> None:
    if night.fault == FULL_DISK and made.disk.mounted:
        made.disk.clear()
    if night.fault == OUTAGE:
        made.line.break_at, made.line.stays_broken, made.line.breaks = None, False, 0
    for name in failed:
        made.schedule(name, night.day)
        made.when(lambda name=name: made.settled(name, night.day, 2), f"{name} of {night} is not settled")
    made.tower.look()
    assert not made.tower.take(), night


def _check(made: Operator, days: list[str], scratch: Path) -> None:
    """Check what has to be true after every night."""
    day, kept = days[-1], days[-made.keep :]
    for name, root in made.roots.items():
        states = [run["state_type"] for run in made.runs(name, day)]
        assert states.count("COMPLETED") == 1, f"{name} of {day}: {states}"
        assert made.calls_for(name, day) <= 1
        check_whole(root / day, day, made.config(name), scratch)
        assert nights_in(root) == kept, f"{name}: {nights_in(root)}"
        assert leftovers(root, kept) == []

    def free() -> bool:
        limits = [made.get(f"v2/concurrency_limits/{MODEL_SERVER}")]
        limits += [made.deployment(name)["global_concurrency_limit"] for name in made.roots]
        return all(limit["active_slots"] == 0 for limit in limits)

    made.when(free, "slots are taken though no run is at work")

    def tidy() -> bool:
        below = {each.pid for each in psutil.Process(made.process.pid).children(recursive=True)}
        runs = [each for each in made.ours() if "PREFECT__FLOW_RUN_ID" in each.environ()]
        return not runs and {each.pid for each in made.ours()} <= below

    made.when(tidy, "processes are left")
