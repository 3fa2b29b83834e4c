"""Ray and Dask give the bytes of a local run, also when a node dies, and leave no files or processes.

Two raylets are two nodes, and two processes two workers of Dask; both share this machine's disk.
A worker with other sources or another store is refused.
"""

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pivot
import psutil
import pytest
from pivot.core.errors import ConfigError, PivotError, StoreError
from pivot.core.progress import Reporter
from pivot.datasets.store.config import env_config, make_config
from pivot.flows.engines import cluster as orders
from pivot.flows.engines.base import WorkerPool
from pivot.flows.engines.cluster import PREFETCH_PER_CORE, ClusterPool, carry_out, packed
from pivot.flows.engines.versions import CODE, OURS, ROOMS, source_digest, versions_here
from pivot.flows.pipeline import build_store
from pivot.flows.running import Running, pool_of
from pivot.tests.flow_runs import PATIENCE, assert_nothing_is_torn, clean_environment, config_of, fingerprint
from pivot.tests.flows.test_writers import both, part
from pivot.tests.models.chat_server import ChatServer

distributed = pytest.importorskip("distributed", reason="needs distributed; make dev installs it")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray; make dev installs it")

CONFIG = config_of(12, rollouts=2)
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}

TRIMMING = "MALLOC_TRIM_THRESHOLD_"

WAITS_FOR_ANOTHER = """
mkdir -p "$0/$PPID"
until [ $(ls "$0" | wc -l) -gt 1 ]; do sleep 0.05; [ $((waits += 1)) -lt 6000 ] || mkdir -p "$0/nobody"; done
echo $PPID
"""
"""Program that ends once two workers run it, however long the second takes to start; it gives up after minutes."""

pytestmark = pytest.mark.xdist_group("engines")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Bytes of the store when this process makes it alone."""
    root = tmp_path_factory.mktemp("alone") / "store"
    pivot.build(CONFIG, root)
    return fingerprint(root)


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes with a core each."""
    os.environ |= TOKEN | {"RAY_USAGE_STATS_ENABLED": "0"}  # read once, when it is imported
    from ray import cluster_utils

    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    cluster.add_node(**NODE)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Any]:
    """A Dask scheduler with two worker processes."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster


@pytest.fixture(params=[pytest.param("ray", marks=needs_ray), "dask"])
def cluster(request: pytest.FixtureRequest) -> tuple[str, str]:
    """An engine and the address of a cluster that is there."""
    if request.param == "ray":
        return "ray", request.getfixturevalue("two_nodes").address
    return "dask", request.getfixturevalue("two_workers").scheduler_address


class AfterShards(Reporter):
    """Calls a function once after a number of shards."""

    def __init__(self, shards: int, act: Callable[[], None]) -> None:
        self._left, self._act = shards, act

    def advance(self, stage: str, amount: int) -> None:
        self._left -= stage == "rollout"
        if self._left == 0:
            self._left = -1_000_000
            self._act()


def _build(pool: WorkerPool, root: Path, reporter: Reporter) -> None:
    build_store(root, make_config(CONFIG), pool, reporter)


def _finished(root: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of every file of a table, by name; they differ for a rebuilt file."""
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in root.rglob("*.parquet")}


# The same bytes


def test_a_cluster_makes_the_bytes_of_one_process(
    cluster: tuple[str, str],
    whole: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Catch a byte that depends on the process, and finished shards that are lost with a node, which Ray loses here."""
    engine, address = cluster
    nodes = request.getfixturevalue("two_nodes") if engine == "ray" else None
    before: dict[str, tuple[int, int]] = {}

    def kill() -> None:
        before.update(_finished(tmp_path / "store"))
        if nodes is not None:
            nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)

    monkeypatch.chdir(tmp_path)  # a relative folder is meant from here, wherever workers were started
    with pool_of({"engine": engine, "address": address, "workers": 0}, ["sokoban"], Path("store")) as pool:
        assert pool.workers == 2
        workers = set(
            pool.stream(subprocess.check_output, [(["sh", "-c", WAITS_FOR_ANOTHER, str(tmp_path / "present")],)] * 8)
        )
        assert len(workers) == 2
        with pytest.raises(ConfigError, match=r"unknown setting sokoban\.boxen") as caught:
            list(pool.stream(env_config, [("sokoban", {"boxen": 2})]))
        assert "core/plugins.py" in str(caught.value.__cause__), "the traceback of the worker comes along"
        _build(pool, Path("store"), AfterShards(3, kill))
    if nodes is not None:
        nodes.add_node(**NODE)
    _assert_equal_and_kept(tmp_path / "store", whole, before)


@pytest.mark.parametrize(
    "cluster", [pytest.param("ray", marks=[needs_ray, pytest.mark.operations]), "dask"], indirect=True
)
def test_served_episodes_and_labels_are_made_by_the_cluster(cluster: tuple[str, str], tmp_path: Path) -> None:
    engine, address = cluster
    with ChatServer(both, keeps_bodies=False) as server:
        model = part(server, max_concurrency=4)
        config = config_of(4, rollouts=2, policy=model, teacher=model)
        pivot.build(config, tmp_path / "alone")
        server.log.most_in_flight = 0
        pivot.build(config, tmp_path / "many", workers=0, engine=engine, address=address)
        assert server.log.most_in_flight <= 4
    assert fingerprint(tmp_path / "many") == fingerprint(tmp_path / "alone")


@pytest.mark.operations
def test_a_dead_worker_costs_its_shards(whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRIMMING, raising=False)  # Dask sets it here, too, when it starts other workers
    before: dict[str, tuple[int, int]] = {}

    def kill() -> None:
        before.update(_finished(tmp_path / "store"))
        os.kill(victim, signal.SIGKILL)

    with pool_of({"engine": "dask", "workers": 2}, ["sokoban"], tmp_path / "store") as pool:
        victim = pool.submit(os.getpid).result()
        assert pool.submit(os.getenv, TRIMMING).result() is None, "every freed picture is given back"
        _build(pool, tmp_path / "store", AfterShards(3, kill))
    assert not psutil.pid_exists(victim)
    _assert_equal_and_kept(tmp_path / "store", whole, before)


def _assert_equal_and_kept(root: Path, whole: dict[str, str], before: dict[str, tuple[int, int]]) -> None:
    assert fingerprint(root) == whole
    after = _finished(root)
    again = {name for name, mark in before.items() if after[name] != mark}
    # Shards in progress at the kill are made twice: at most PREFETCH_PER_CORE per node, two nodes.
    assert 3 <= len(before) < len(after) / 2, "the kill came in the middle"
    assert len({Path(name).stem for name in again}) <= 2 * PREFETCH_PER_CORE


# Refusals


@pytest.mark.parametrize(
    ("limit", "address", "most"),
    [
        pytest.param(3, "tcp://127.0.0.1:9", 3, id="a cluster that others use"),
        pytest.param(3, "", 3 * PREFETCH_PER_CORE, id="one of our own"),
        pytest.param(0, "tcp://127.0.0.1:9", PREFETCH_PER_CORE, id="no limit, one core"),
    ],
)
def test_calls_wait_in_the_cluster_up_to_their_limit(limit: int, address: str, most: int, tmp_path: Path) -> None:
    waiting: list[bytes] = []

    def send(order: bytes) -> tuple["Future[bytes]", Callable[[], Any]]:
        waiting.append(order)
        return Future(), lambda: None

    pool = ClusterPool(send, lambda: 1, tmp_path, limit, own=not address)
    results = pool.stream(abs, [(number,) for number in range(-20, 0)])
    threading.Thread(target=next, args=(results,), daemon=True).start()  # it waits for an answer that never comes
    deadline = time.monotonic() + PATIENCE
    while len(waiting) < most and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(waiting) == most


def test_a_variable_of_the_worker_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIVOT_HERE", "PIVOT_THERE"):
        monkeypatch.setenv(name, "of the driver")
    order = packed(os.getenv, ("PIVOT_HERE",), tmp_path)
    other = packed(os.getenv, ("PIVOT_THERE",), tmp_path)
    monkeypatch.setenv("PIVOT_HERE", "of the worker")
    monkeypatch.delenv("PIVOT_THERE")
    assert [pickle.loads(carry_out(each))[0] for each in (order, other)] == ["of the worker", "of the driver"]


def test_a_worker_without_the_store_refuses_its_calls(tmp_path: Path) -> None:
    assert pickle.loads(carry_out(packed(abs, (-3,), tmp_path / "none yet")))[0] == 3
    (tmp_path / "run.json").write_text("{}")
    order = packed(abs, (-3,), tmp_path)
    assert pickle.loads(carry_out(order))[0] == 3
    for content in ("{ }", None):
        (tmp_path / "run.json").unlink() if content is None else (tmp_path / "run.json").write_text(content)
        _, error, _ = pickle.loads(carry_out(order))
        assert isinstance(error, StoreError)
        assert re.search(r"does not share the store: it finds another run\.json at .*, or none", str(error))


def test_every_room_of_the_package_is_in_the_digest() -> None:
    declared = tomllib.loads((OURS / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert {name.split(".")[1] for name in declared if "." in name} == set(ROOMS)


def test_a_change_of_any_file_changes_the_digest(tmp_path: Path) -> None:
    copy, roots = tmp_path / "pivot", sorted(path.name for path in OURS.glob("*.py"))
    for room in ROOMS:
        shutil.copytree(OURS / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in roots:
        shutil.copy(OURS / name, copy)
    before = source_digest(copy)
    assert before == source_digest(OURS), "a wheel and a checkout of the same source are equal"
    for place in [*(copy / name for name in roots), *(next((copy / room).rglob("*.py")) for room in ROOMS)]:
        source = place.read_bytes()
        place.write_bytes(source + b"\n")
        assert source_digest(copy) != before, place
        place.write_bytes(source)
    (copy / "flows/engines/extra.py").touch()
    assert source_digest(copy) != before
    (copy / "flows/engines/extra.py").unlink()
    assert source_digest(copy) == before


def test_an_order_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    theirs = {**versions_here(), CODE: "another", "pyarrow": "25.0"}
    monkeypatch.setattr(orders, "versions_here", lambda: theirs)
    order = packed(abs, (-3,), tmp_path)
    monkeypatch.undo()
    _, error, _ = pickle.loads(carry_out(order))
    assert isinstance(error, ConfigError)
    assert re.search(r"a worker on .* has other versions .*PIVOT's source .*pyarrow .*here 25\.0", str(error))
    assert pickle.loads(order)[0] == theirs


@pytest.mark.parametrize(
    ("engine", "address", "message"),
    [
        ("ray", "127.0.0.1:9", "nothing answers at 127.0.0.1:9 .*expected a Ray cluster"),
        pytest.param(
            *("ray", "ray://127.0.0.1:{port}", "no Ray cluster can be used at ray://127"), marks=pytest.mark.operations
        ),  # Ray waits for half a minute
        ("ray", "127.0.0.1:many", "Port could not be cast"),
        ("dask", "tcp://127.0.0.1:9", "nothing answers at .*expected a Dask scheduler"),
        ("dask", "foo", "no Dask scheduler with workers can be used at foo: missing port number"),
        ("local", "127.0.0.1:9", "the engine local has no cluster"),
        ("dusk", "", "unknown engine 'dusk'; did you mean 'dask'\\? registered: dask, local, ray"),
    ],
)
def test_a_wrong_address_is_reported_in_seconds(engine: str, address: str, message: str, tmp_path: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer

    if engine == "ray":
        pytest.importorskip("ray")  # the time does not include its import
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        began = time.monotonic()
        running: Running = {"engine": engine, "address": address.format(port=server.server_port), "workers": 0}
        with pytest.raises(PivotError, match=message), pool_of(running, ["sokoban"], tmp_path):
            pass
        server.shutdown()
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_missing_package_is_reported_with_the_line_that_installs_it(
    engine: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    missing = pytest.raises(PivotError, match=rf"pip install 'pivot-vlm\[{engine}\]'")
    with missing, pool_of({"engine": engine, "workers": 0}, [], tmp_path):
        pass


# Interrupted runs end, and leave no process and no file behind

SCRIPT = """
import json, sys
import pivot

if __name__ == "__main__":
    pivot.build(json.loads(sys.argv[1]), sys.argv[2], workers=2, engine=sys.argv[3])
"""


@pytest.mark.operations
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("engine", "how"),
    [pytest.param("ray", signal.SIGINT, marks=needs_ray), ("dask", signal.SIGINT), ("dask", signal.SIGKILL)],
    ids=str,
)
def test_a_stopped_run_leaves_nobody_and_goes_on(engine: str, how: int, whole: dict[str, str], tmp_path: Path) -> None:
    root = tmp_path / "store"
    command = [sys.executable, "-c", SCRIPT, json.dumps(CONFIG), str(root), engine]
    environment = {name: text for name, text in clean_environment().items() if name not in ("HOME", *TOKEN)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        while not list(root.glob(".receipts/rollout/**/*.json")) and run.poll() is None:
            time.sleep(0.02)
        assert run.poll() is None, run.stderr and run.stderr.read()
        if how == signal.SIGINT:
            os.killpg(run.pid, how)  # a terminal sends Ctrl-C to the whole process group
        else:
            run.send_signal(how)
        said = run.stderr.read() if run.stderr else ""
    if how == signal.SIGINT:
        assert said.count("Traceback") == 1 and said.endswith("KeyboardInterrupt\n"), said
    ends = time.monotonic() + PATIENCE
    while (left := _session(run.pid)) and time.monotonic() < ends:
        time.sleep(0.1)
    assert left == []
    assert_nothing_is_torn(root)
    pivot.build(CONFIG, root)
    assert fingerprint(root) == whole


def _session(leader: int) -> list[str]:
    """Name the processes of a session that are still at work."""
    left: list[str] = []
    for process in psutil.process_iter(["name", "status"]):
        try:
            if os.getsid(process.pid) == leader and process.info["status"] != psutil.STATUS_ZOMBIE:
                left.append(process.info["name"])
        except ProcessLookupError:
            continue
    return left
