"""A simulated operator's machine: nights of two deployments, faults, alarms, and what has to be true after each night.

The night's date is the scheduled time of its runs, so a month passes in minutes without a change of any clock. One
deployment writes to a small disk with processes of its own; the other writes to an object store behind a line that can
be cut, with two nodes of a Dask cluster whose service manager starts a killed one again.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pivot
import psutil
import pytest
from pivot.datasets.config import make_config
from pivot.datasets.store import MANIFEST, Store
from pivot.flows.deployments import ON_FAILURE
from pivot.flows.metrics import FOLDER
from pivot.identity import derive_seed
from pivot.storage import TEMPORARY, Address, Url, open_storage
from pivot.tests.flow_runs import clean_environment, fingerprint, free_port
from pivot.tests.flows.test_alerts import Prometheus, series_of
from pivot.tests.flows.test_deployments import FINAL, SHIPPED, Served
from pivot.tests.storage.object_server import BUCKET, Line, environment, promised

ON_DISK, ON_OBJECTS = "nightly-sokoban", "nightly-frozenlake"
KILLS = (
    "flow killed",
    "flow interrupted",
    "process killed",
    "node killed",
    "worker killed",
    "server killed",
    "server and node killed",
    "command killed",
    "command interrupted",
)
FULL_DISK, OUTAGE, QUIET = "full disk", "outage", "quiet"
FIRST = date(2024, 2, 10)
"""A day in the past, since a run begins when its time has come; thirty nights from it cross the leap day."""
LONGEST = 1800.0
"""Seconds of one wait after which the simulation gives up; a night takes 30 s on an idle machine."""
TASKS = {"sokoban": 8, "frozenlake": 4}


@dataclass(frozen=True, slots=True)
class Night:
    """One night: its day, what goes wrong, and when."""

    day: str
    fault: str
    moment: int
    """Receipts of shards that the night has when the fault comes."""

    @property
    def target(self) -> str:
        """Deployment at which the fault is aimed."""
        return ON_OBJECTS if "node" in self.fault else ON_DISK


def plan(nights: int, seed: int) -> list[Night]:
    """Return nights with two full disks and two outages of the object store (one of each in a short plan).

    The other nights have every kind of kill about equally often, and one in ten is quiet.
    """
    draw = random.Random(seed)
    twice = 2 if nights >= 10 else 1
    faults = [FULL_DISK, OUTAGE] * twice + [QUIET] * (nights // 10)
    kills = list(KILLS)
    draw.shuffle(kills)
    faults += [kills[index % len(kills)] for index in range(nights - len(faults))]
    draw.shuffle(faults)
    days = ((FIRST + timedelta(days=index)).isoformat() for index in range(nights))
    return [Night(day, fault, draw.randrange(9)) for day, fault in zip(days, faults, strict=True)]


class Disk:
    """A filesystem of its own whose size can be changed, where the user may mount one."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self.place = place
        mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(place)]
        self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        """Leave room for a few files only."""
        self._resize(f"{shutil.disk_usage(self.place).used // 1024 + 60}k")

    def clear(self) -> None:
        """Give it room again."""
        self._resize("256m")

    def close(self) -> None:
        """Unmount it."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.place)], check=True)

    def _resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.place)], check=True)


class Tower:
    """Evaluates the shipped alerts on the metrics, and counts how often each begins to fire."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._firing: set[tuple[str, str]] = set()
        self._lock, self._over = threading.Lock(), threading.Event()
        self.begun: Counter[tuple[str, str]] = Counter()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def look(self, later: float = 0.0) -> None:
        """Evaluate the alerts at this moment, or as many seconds later."""
        with self._lock:
            series: dict[str, dict[Any, float]] = {}
            for path in self._folder.glob("*.prom"):
                for name, vector in series_of(path.read_text(encoding="utf-8")).items():
                    series.setdefault(name, {}).update(vector)
            firing = Prometheus(time.time() + later, series).alarms() if series else set()
            self.begun.update(firing - self._firing)
            self._firing = firing

    def take(self) -> Counter[tuple[str, str]]:
        """Return what has begun to fire since the last call."""
        with self._lock:
            begun, self.begun = self.begun, Counter()
        return begun

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.look()


class Operator(Served):
    """An operator with two nightly deployments, whose service manager starts the command again when it ends."""

    def __init__(self, home: Path, folder: Path, disk: Disk, line: Line, nodes: "Cluster", keep: int) -> None:
        self.disk, self.line, self.nodes, self.keep = disk, line, nodes, keep
        self.roots: dict[str, Address] = {
            ON_DISK: disk.place / "nights",
            ON_OBJECTS: Url(f"s3://{BUCKET}/nights-{random.Random(str(folder)).randrange(1 << 32):08x}"),
        }
        self.calls = folder / "calls"
        self.calls.touch()
        caller = folder / "call"
        caller.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" >> {self.calls}\n')
        caller.chmod(0o700)
        self.restarts = 0
        variables = {
            ON_FAILURE: str(caller),
            "PIVOT_RUN_RETRIES": "2",
            "PIVOT_RUN_RETRY_SECONDS": "2",
            "PIVOT_LEASE_SECONDS": "45",  # a request is repeated for five seconds
            "OMP_NUM_THREADS": "1",
        }
        super().__init__(home, folder, variables | environment(line.url))
        self.tower = Tower(Path(self.env[FOLDER]))

    def config(self, name: str) -> dict[str, Any]:
        """Return the config of a deployment."""
        env = name.removeprefix("nightly-")
        return {"environments": {env: {"tasks": TASKS[env]}}, "rollouts": 2, "tasks_per_shard": 1}

    def _deployments(self) -> list[dict[str, Any]]:
        shipped = {each["name"]: each for each in SHIPPED["deployments"]}
        return [
            shipped[name]
            | {
                "schedules": [],  # the simulation schedules
                "parameters": shipped[name]["parameters"]
                | {
                    "config": self.config(name),
                    "out": f"{root}/{{date}}",
                    "keep": str(self.keep),
                    "report": not isinstance(root, Url),
                    "workers": 2,
                }
                | ({"engine": "dask", "address": self.nodes.address} if name == ON_OBJECTS else {}),
            }
            for name, root in self.roots.items()
        ]

    # What happens

    def schedule(self, name: str, day: str) -> None:
        """Schedule a run of a deployment for one o'clock of a day."""
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": f"{day}T01:00:00Z"}}
        self.get(f"deployments/{self.deployment(name)['id']}/create_flow_run", {"state": state})

    def wait(self) -> None:
        """Return when everything is deployed; start the command again if it ends before, as on a busy machine."""
        for _ in range(20):
            assert self.process.stdout is not None
            if f"http://127.0.0.1:{self.port}/deployments until Ctrl-C" in self.process.stdout.readline():
                return
            _, errors = self.process.communicate(timeout=120)
            sys.stdout.write(f"the command ended: {errors[-600:]}\n")
            self.begin()
        raise AssertionError("the command does not start")

    def begin_again(self) -> None:
        """Start the command as a service manager does."""
        _, errors = self.process.communicate(timeout=120)
        sys.stdout.write(f"the command ended: {errors[-300:]}\n")
        self.restarts += 1
        self.begin()
        self.wait()

    def runs(self, name: str, day: str) -> list[dict[str, Any]]:
        """Return the runs of a deployment for a day."""
        own = {"deployments": {"name": {"any_": [name]}}}
        when = {"after_": f"{day}T00:00:00Z", "before_": f"{day}T23:59:59Z"}
        return self.get("flow_runs/filter", own | {"flow_runs": {"expected_start_time": when}})

    def when(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the service manager works."""
        deadline = time.monotonic() + LONGEST
        while True:
            assert time.monotonic() < deadline, f"after {LONGEST:.0f} s: {what}"
            if self.process.poll() is not None:
                self.begin_again()
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                if condition():
                    return
            time.sleep(0.3)

    def calls_for(self, name: str, day: str) -> int:
        """Return how often the operator's program was called for a night."""
        env = name.removeprefix("nightly-")
        run = f"build {env} in {self.roots[name]}/{day}"
        return self.calls.read_text(encoding="utf-8").splitlines().count(run)

    def settled(self, name: str, day: str, calls: int) -> bool:
        """Whether nothing more happens to a night: it is complete, or the operator was called that often."""
        runs = self.runs(name, day)
        if any(run["state_type"] not in FINAL for run in runs):
            return False
        return any(run["state_type"] == "COMPLETED" for run in runs) or self.calls_for(name, day) >= calls

    # What goes wrong

    def strike(self, night: Night) -> None:
        """Do what is planned for a night, once its shards are at that moment."""
        name, day = night.target, night.day
        self.when(lambda: bool(self.flow_processes(name, day)) or self.settled(name, day, 1), "no flow began")
        self.when(
            lambda: self._receipts(name, day) >= night.moment or self.settled(name, day, 1),
            f"{night.moment} receipts of {name} of {day}",
        )
        for process in self._victims(night):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGINT if night.fault.endswith("interrupted") else signal.SIGKILL)
        if night.fault == "command killed":  # a power cut of a quarter of an hour
            for process in self.ours():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.wait(60)
            self.tower.look(900.0)
        if night.fault.startswith("command"):
            self.process.wait(60)

    def _receipts(self, name: str, day: str) -> int:
        """Return the number of receipts in the store of a night."""
        return sum(each.endswith(".json") for each in open_storage(self.roots[name] / day).listing(".receipts"))

    def _victims(self, night: Night) -> list[psutil.Process]:
        victims: list[psutil.Process] = []
        for what in night.fault.split():
            match what:
                case "flow":
                    victims += self.flow_processes(night.target, night.day)
                case "process":
                    flows = self.flow_processes(night.target, night.day)
                    victims += [each for flow in flows for each in _children(flow) if "spawn_main" in _command(each)][
                        :1
                    ]
                case "node":
                    victims += self.nodes.nodes()[night.moment % 2 :][:1]
                case "worker" | "server":
                    mine = _children(psutil.Process(self.process.pid))
                    victims += [each for each in mine if f"pivot.flows.serve {what} start" in _command(each)]
                case "command":
                    victims.append(psutil.Process(self.process.pid))
                case _:
                    pass
        return victims

    def flow_processes(self, name: str, day: str) -> list[psutil.Process]:
        """Return the process of the run of a night."""
        ids = {run["id"] for run in self.runs(name, day)}
        processes = [each for each in self.ours() if _environ(each).get("PREFECT__FLOW_RUN_ID") in ids]
        pids = {each.pid for each in processes}
        return [each for each in processes if _parent(each) not in pids]

    def ours(self) -> list[psutil.Process]:
        """Return every process of this operator on the machine, the command itself excepted."""
        home = self.env["PREFECT_HOME"]
        return [
            each
            for each in psutil.process_iter()
            if each.pid != self.process.pid and _environ(each).get("PREFECT_HOME") == home
        ]


def _environ(process: psutil.Process) -> dict[str, str]:
    with contextlib.suppress(psutil.Error, OSError):
        return process.environ()
    return {}


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _parent(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return 0


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


# What has to be true


@dataclass(slots=True)
class Ledger:
    """Counts of a simulation, for its report."""

    nights: int = 0
    failures: int = 0
    alarms: int = 0
    self_healed: int = 0
    restarts: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])

    def line(self) -> str:
        """Return one line."""
        return (
            f"{self.nights} nights of 2 deployments, {self.restarts} restarts, {self.self_healed} disturbed nights "
            f"completed without the operator, {self.failures} failures, {self.alarms} alarms; {dict(self.faults)}"
        )


def check_whole(root: Address, day: str, config: dict[str, Any], scratch: Path) -> None:
    """Check that a night is complete, verifies, and has the bytes of an undisturbed build."""
    store = Store.open(root)
    assert [name for name in store.storage.sizes() if name.startswith(f"{TEMPORARY}/")] == []
    seed = derive_seed("nightly", day) % 2**32
    assert store.config.seed == seed
    verified = subprocess.run(  # apart from this process, whose memory grows over the nights
        [sys.executable, "-P", "-m", "pivot", "verify", str(root)], capture_output=True, text=True, check=False
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    undisturbed = scratch / f"undisturbed-{day}"
    pivot.build(make_config(config).model_copy(update={"seed": seed}), undisturbed)
    made, expected = promised(root), fingerprint(undisturbed)
    differing = sorted(name for name in made.keys() | expected.keys() if made.get(name) != expected.get(name))
    assert not differing, f"{root} and {undisturbed} differ in {differing}"
    shutil.rmtree(undisturbed)


def nights_in(root: Address) -> list[str]:
    """Return the finished nights of a folder."""
    names = [name for name in open_storage(root).entries() if not name.endswith("-report")]
    return sorted(name for name in names if open_storage(root / name).stat(MANIFEST) is not None)


def leftovers(root: Address, days: list[str]) -> list[str]:
    """Return what is in a folder of nights beside these nights and their reports."""
    expected = {*days, *(f"{day}-report" for day in days)}
    storage = open_storage(root)
    return [name for name in storage.entries() if name not in expected and open_storage(root / name).sizes()]


class Cluster:
    """A Dask scheduler with two nodes in processes of their own; a nanny starts a killed node again."""

    def __init__(self, folder: Path, line: Line) -> None:
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        variables = clean_environment() | environment(line.url) | {"OMP_NUM_THREADS": "1"}
        scheduler = ["dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        workers = ["dask_worker", self.address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
        workers += ["--local-directory", str(folder)]
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", f"distributed.cli.{name}", *options],
                env=variables,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for name, *options in (scheduler, workers)
        ]

    def nodes(self) -> list[psutil.Process]:
        """Return the processes that run calls."""
        below = _children(psutil.Process(self._processes[1].pid))
        return sorted((each for each in below if "spawn_main" in _command(each)), key=lambda each: each.pid)

    def close(self) -> None:
        """End it."""
        for each in reversed(self._processes):
            for process in [*_children(psutil.Process(each.pid)), psutil.Process(each.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            each.wait()


@contextlib.contextmanager
def operator(home: Path, folder: Path, line: Line, keep: int) -> Iterator[Operator]:
    """Run a command with a disk for a simulation, and end all of it."""
    disk = Disk(folder / "disk")
    (folder / "work").mkdir()
    pytest.importorskip("distributed")
    (folder / "nodes").mkdir()
    with contextlib.closing(Cluster(folder / "nodes", line)) as nodes:
        made = Operator(home, folder / "work", disk, line, nodes, keep)
        try:
            made.wait()
            yield made
        finally:
            made.tower.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(made.process.pid, signal.SIGINT)
            made.process.communicate(timeout=120)
            for each in made.ours():
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            disk.close()
