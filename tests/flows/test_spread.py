"""Rollouts against a model server on several workers: one limit in all, equal bytes, and a lost worker costs little."""

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError, PivotError, PolicyError, ServerGoneError, StoreError
from pivot.core.progress import Silent
from pivot.datasets.store.config import make_config
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.store import Store
from pivot.datasets.store.usage import model_usage
from pivot.environments.sokoban import SokobanEnv
from pivot.environments.turns import Reply
from pivot.flows.engines.base import Workers, open_pool
from pivot.flows.engines.local import execute_with
from pivot.flows.pipeline import BuildResult, build_store, plan
from pivot.flows.spread import connection, remote, scheduler, shards
from pivot.flows.spread.connection import ConnectionLostError
from pivot.models.base import Sent
from pivot.rollouts.policies import ModelPolicy
from pivot.rollouts.policies.example import example_turn
from pivot.tests.flow_runs import CLI, PATIENCE, assert_whole, clean_environment, config_of
from pivot.tests.flows.test_served_faults import config_at, one_in_three, tables_of
from pivot.tests.models.chat_server import FAULTS, MODEL, served, stop_after

TASKS = {"sokoban": 6, "frozenlake": 6}


class Threads:
    """A pool whose workers are threads of this process: a test sees into them, and none takes seconds to start."""

    hosts: tuple[str, ...] = ("127.0.0.1",)

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._executor = ThreadPoolExecutor(workers)

    def submit(self, call: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        # As between processes: nothing is shared.
        return self._executor.submit(call, *pickle.loads(pickle.dumps(arguments)))

    beside = submit

    def stop(self) -> None:
        """Do nothing: threads end by themselves."""

    def stream(self, call: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        for each in arguments:
            yield call(*each)


class Reports(Silent):
    """Adds up what a build reports of its rollouts."""

    def __init__(self) -> None:
        self.total, self.played = 0, 0
        self.shards: list[str] = []

    def start(self, stage: str, total: int) -> None:
        self.total = total if stage == "rollout" else self.total

    def advance(self, stage: str, amount: int) -> None:
        self.played += amount if stage == "rollout" else 0

    def stored(self, stage: str, shard: str, seconds: float, size: int, *, reused: bool) -> None:
        if stage == "rollout":
            self.shards.append(shard)


def build(config: dict[str, Any], root: Path, workers: int = 1, reports: Reports | None = None) -> BuildResult:
    """Build with so many threads."""
    return build_store(root, make_config(config), execute_with(Threads(workers)), reports or Reports())


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Lists the lines of workers that called, to see that the rollouts were spread and to cut them."""
    lines: list[Any] = []
    accept = connection.accept

    async def noted(*arguments: Any) -> Any:
        lines.append(await accept(*arguments))
        return lines[-1]

    monkeypatch.setattr("pivot.flows.spread.scheduler.accept", noted)
    return lines


# The same as in one process


def test_any_number_of_workers_makes_the_same_bytes_whatever_the_server_does(tmp_path: Path, spread: list[Any]) -> None:
    with served() as whole:
        build(config_at(whole, TASKS), tmp_path / "whole")
    kinds = tuple(kind for kind in FAULTS if kind != "hang")
    with served(fault=one_in_three(kinds)) as server:
        reports = Reports()
        config = config_at(server, TASKS)
        result = build(config, tmp_path / "store", 5, reports)
        for _ in range(5):  # pending, not lost
            result = build(config, tmp_path / "store", 2) if result.pending_episodes else result
        (usage,) = model_usage(Store.open(tmp_path / "store"))
        assert usage.tries >= server.log.requests > usage.requests
    assert (result.pending_episodes, reports.played) == (0, reports.total)
    assert len(spread) >= 4
    assert tables_of(tmp_path / "store") == tables_of(tmp_path / "whole")
    assert_whole(tmp_path / "store")


@pytest.mark.timeout(900)
def test_processes_play_and_one_asks(tmp_path: Path) -> None:
    with served(slots=8) as server:
        config = config_at(server, {"sokoban": 3, "frozenlake": 3}, rollouts=4, max_concurrency=8)
        build(config, tmp_path / "whole")
        server.log.most_in_flight, server.crowd = 0, 8
        resolved = make_config(config)
        with open_pool(Workers(count=3), list(resolved.environments), tmp_path / "store") as pool:
            build_store(tmp_path / "store", resolved, execute_with(pool), Silent())
        assert server.log.most_in_flight == 8
    assert tables_of(tmp_path / "store") == tables_of(tmp_path / "whole")


def test_there_is_one_limit_and_all_workers_together_reach_it(tmp_path: Path, spread: list[Any]) -> None:
    with served() as server:
        server.crowd = 16
        build(config_at(server, {"sokoban": 12}, max_concurrency=16), tmp_path, 4)
        assert server.log.most_in_flight == 16
    assert len(spread) == 3


def test_what_workers_hold_up_is_counted_apart_from_what_was_sent(tmp_path: Path, spread: list[Any]) -> None:
    with served(latency=1.0) as server:
        config = config_at(server, {"sokoban": 2}, rollouts=2, episode_seconds=1.5) | {"tasks_per_shard": 1}
        assert build(config, tmp_path, 3).pending_episodes == 4
        (usage,) = model_usage(Store.open(tmp_path))
        assert (usage.tries, usage.unanswered) == (server.log.requests, 4)
    assert len(spread) == 2
    assert all("longer than 1.5 s" in text for text in load_store(tmp_path).episodes.collect()["error"])


# A simulator that is slow


class Stuck(SokobanEnv):
    """Its first step takes until all of FrozenLake is stored, or ``patience`` is over; nobody else plays meanwhile in
    its worker."""

    frozenlake_is_stored = threading.Event()
    patience = 0.0

    def step(self, action: Any) -> Any:
        self.frozenlake_is_stored.wait(self.patience)
        type(self).patience = 0.0
        return super().step(action)


class Watching(Reports):
    """Lets the stuck simulator go when the last shard of FrozenLake is stored."""

    def stored(self, stage: str, shard: str, seconds: float, size: int, *, reused: bool) -> None:
        super().stored(stage, shard, seconds, size, reused=reused)
        if sum("frozenlake" in each for each in self.shards) == 3 and Stuck.patience:  # still in its first step
            Stuck.frozenlake_is_stored.set()


@pytest.mark.parametrize(("workers", "patience", "holds_up"), [(1, 2.0, True), (4, 60.0, False)])
def test_a_slow_simulator_holds_up_its_own_worker_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, patience: float, holds_up: bool
) -> None:
    load = plugins.load

    def stuck_sokoban(group: str, name: str) -> Any:
        return Stuck if (group, name) == ("environments", "sokoban") else load(group, name)

    monkeypatch.setattr(plugins, "load", stuck_sokoban)
    monkeypatch.setattr(Stuck, "frozenlake_is_stored", threading.Event())
    monkeypatch.setattr(Stuck, "patience", patience)
    with served() as server:
        config = config_at(server, {"sokoban": 3, "frozenlake": 9}, rollouts=4, max_concurrency=8)
        build(config, tmp_path, workers, Watching())
    assert Stuck.frozenlake_is_stored.is_set() is not holds_up


# Workers that are lost


def test_a_worker_whose_line_breaks_costs_its_shards_only(tmp_path: Path, spread: list[Any]) -> None:
    with served(latency=0.01) as server:
        # Of sixteen shards each of three workers has some left when three are stored.
        config = config_at(server, {"sokoban": 16}, rollouts=4, max_concurrency=8)
        config |= {"tasks_per_shard": 1}
        build(config, tmp_path / "whole", reports=(whole := Reports()))
        before = server.log.answered
        reports = Reports()
        stored = reports.stored

        def cut(*arguments: Any, **more: Any) -> None:
            stored(*arguments, **more)
            if len(reports.shards) == 3:
                spread[0]._writer.transport.abort()

        reports.stored = cut  # type: ignore[method-assign]
        result = build(config, tmp_path / "store", 4, reports)
        again = server.log.answered - before
    assert result.pending_episodes == 0
    assert reports.played == reports.total == whole.played
    assert sorted(reports.shards) == sorted(whole.shards)
    assert before < again < 2 * before
    assert tables_of(tmp_path / "store") == tables_of(tmp_path / "whole")


@pytest.mark.parametrize("lost", [0, 3, 8])
def test_a_shard_that_was_stored_before_its_worker_was_lost_counts_once(tmp_path: Path, lost: int) -> None:
    """The driver heard of all, some or no ends of its episodes, and not that the shard is stored."""
    build(config_of({"frozenlake": 4}, rollouts=4, tasks_per_shard=2), tmp_path)
    store, reports = Store.open(tmp_path), Reports()
    pending = shards.PendingShards(store, plan(store.run, Silent()), reports, None)
    for _ in range(lost):
        pending.ended()
    pending.give_back([], lost)
    assert pending.next() is None
    assert reports.played == pending.episodes == 16


def test_where_no_worker_can_call_the_run_plays_itself_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Threads, "hosts", ("pivot.invalid",))
    with served() as server:
        assert build(config_at(server, {"sokoban": 6}), tmp_path, 3).pending_episodes == 0
    assert "cannot reach the process that asks the model" in caplog.text
    assert "PIVOT_DRIVER_HOST" in caplog.text
    assert_whole(tmp_path)


def test_a_worker_that_lost_its_line_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one plays its shards by then; two writers would mix their files."""
    monkeypatch.setattr(remote, "store_rollouts", lambda *_: pytest.fail("it stored a shard"))
    worker = remote._RemoteLoop.__new__(remote._RemoteLoop)
    worker._connection = connection.Connection(None, None)  # type: ignore[arg-type]
    worker._connection.lost = True
    with pytest.raises(ConnectionLostError):
        worker.receive(None, [])  # type: ignore[arg-type]


# The end of a run


def test_a_server_that_goes_away_stops_all_workers_and_the_next_run_goes_on(tmp_path: Path, spread: list[Any]) -> None:
    with served(slots=4) as server:
        config = config_at(server, {"sokoban": 6}, rollouts=4, patience_seconds=1.0, max_concurrency=4)
        config |= {"tasks_per_shard": 1}
        build(config, tmp_path / "whole")
        gone = stop_after(server, server.log.answered // 2)
        began = time.monotonic()
        with pytest.raises(ServerGoneError, match=r"no answer from http://127.* finished episodes are kept"):
            build(config, tmp_path / "store", 3)
        assert time.monotonic() - began < 120  # of the 180 that a server gets by default
        gone.join()
        answered = server.log.answered
        server.start()
        assert build(config, tmp_path / "store", 3).pending_episodes == 0
    assert len(spread) == 4
    assert tables_of(tmp_path / "store") == tables_of(tmp_path / "whole")
    steps = len(load_store(tmp_path / "store").steps.collect())
    assert server.log.answered < answered + steps, "what was finished was kept"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ConfigError("the balance is spent"), (ConfigError, "the balance is spent")),
        (StoreError("the disk is full"), (StoreError, "the disk is full")),
    ],
    ids=["the model", "a worker"],
)
def test_an_error_that_ends_the_run_ends_it_for_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: PivotError,
    expected: tuple[type[PivotError], str],
) -> None:
    begun, early = threading.Event(), set[str]()

    async def refuse(self: ModelPolicy, turn: Any) -> Any:
        if len(early) < 3:  # one level for each of the workers that play
            early.add(turn.task.task_id)
        if turn.task.task_id in early:
            return await reply(self, turn)
        while not begun.is_set():
            await asyncio.sleep(0.01)
        raise raised

    def full(*arguments: Any) -> Any:
        begun.set()
        if isinstance(raised, StoreError):
            raise raised
        return store(*arguments)

    reply, store = ModelPolicy.reply, remote.store_rollouts
    if not isinstance(raised, StoreError):
        monkeypatch.setattr(ModelPolicy, "reply", refuse)
    monkeypatch.setattr(remote, "store_rollouts", full)
    with served(latency=0.01) as server, pytest.raises(expected[0], match=expected[1]):
        build(config_at(server, {"sokoban": 9}) | {"tasks_per_shard": 1}, tmp_path, 4)


@pytest.mark.timeout(900)
def test_a_receipt_that_cannot_be_read_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = shards.rollout_job

    def torn(*arguments: Any) -> Any:
        if arguments[1].first > 3:
            raise StoreError("it is torn")
        return job(*arguments)

    monkeypatch.setattr(shards, "rollout_job", torn)
    with served() as server, pytest.raises(StoreError, match="it is torn"):
        build(config_at(server, {"sokoban": 9}, rollouts=2), tmp_path, 3)


@pytest.mark.timeout(900)
def test_the_end_of_a_run_reaches_a_worker_that_waits_for_a_shard(tmp_path: Path, spread: list[Any]) -> None:
    with served(latency=0.01) as server:
        reports, stored = Reports(), threading.Event()
        reports.stored = lambda *_, **__: stored.set()  # type: ignore[method-assign]
        server.fault = lambda key, tried: "401" if stored.is_set() else None
        config = config_at(server, {"sokoban": 4}, max_concurrency=4, patience_seconds=2.0)
        with pytest.raises(ServerGoneError, match=r"no answer from .* status 401"):  # with three levels to go, of four
            build(config, tmp_path, 3, reports)
    assert len(spread) == 2


@pytest.mark.timeout(900)
def test_a_turn_is_answered_whatever_becomes_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is withdrawn in the same breath, too: its worker waits to hear how many requests were sent."""
    heard: list[Any] = []

    async def withdraw(endpoint: connection.Endpoint) -> None:
        policy = example_turn()
        async with connection.call(endpoint) as to_driver:
            to_driver.send(connection.TurnRequest(7, replace(policy, env=None)))
            to_driver.send(connection.CancelRequest(7))
            heard.append(await to_driver.receive())

    monkeypatch.setattr(scheduler, "play", lambda store, endpoint: asyncio.run(withdraw(endpoint)))
    with served(latency=5.0) as server, pytest.raises(NeverPlayedError):
        monkeypatch.setattr("pivot.flows.served._roll_out_here", _never)
        build(config_at(server, {"sokoban": 2}) | {"tasks_per_shard": 1}, tmp_path, 2)
    (answer,) = heard
    assert (answer.number, answer.reply, answer.sent) == (7, None, Sent())


class NeverPlayedError(Exception):
    """The driver would play shards that no worker played."""


def _never(shards: Any) -> None:
    raise NeverPlayedError


def test_an_error_that_cannot_travel_is_the_episodes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class LockedError(PolicyError):
        def __init__(self) -> None:
            super().__init__("busy")
            self.lock = threading.Lock()

    async def refuse(self: ModelPolicy, turn: Any) -> Any:
        raise LockedError

    monkeypatch.setattr(ModelPolicy, "reply", refuse)
    with served() as server:
        assert build(config_at(server, {"sokoban": 3}, rollouts=2), tmp_path, 3).pending_episodes == 6
    assert {"RuntimeError: LockedError: busy"} == set(load_store(tmp_path).episodes.collect()["error"])


@pytest.mark.timeout(900)
def test_a_reply_that_cannot_travel_is_the_episodes_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def locked(self: ModelPolicy, turn: Any) -> Any:
        return Reply("<think>a</think><action>up</action>", call={"latency": threading.Lock()})

    monkeypatch.setattr(ModelPolicy, "reply", locked)
    with served() as server:
        assert build(config_at(server, {"sokoban": 3}, rollouts=2), tmp_path, 3).pending_episodes == 6
    assert all("cannot be sent to another process" in text for text in load_store(tmp_path).episodes.collect()["error"])


@pytest.mark.operations
@pytest.mark.timeout(900)
def test_ctrl_c_keeps_what_is_finished_and_leaves_no_process(tmp_path: Path) -> None:
    with served(latency=0.1, slots=16) as server:
        arguments = ["build", "sokoban", "--tasks", "24", "--rollouts", "8", "--policy", "openai", "--model", MODEL]
        command = [*CLI, *arguments, "--base-url", server.url, "--out", tmp_path / "store", "--workers", "3"]
        process = subprocess.Popen(
            [*map(str, command), "--no-cache", "--max-concurrency", "16"],
            env=clean_environment() | {"OPENAI_API_KEY": "k"},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started = psutil.Process(process.pid)
        while server.log.answered < 400 and process.poll() is None:
            time.sleep(0.05)
        children = started.children(recursive=True)
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, output + errors
        assert "Traceback" not in output + errors
        psutil.wait_procs(children, timeout=PATIENCE)
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        kept = list((tmp_path / "store" / "episodes").rglob("*.parquet"))
        assert kept, "episodes were finished by then"
        assert not (tmp_path / "store" / "manifest.json").exists()


# Strangers


class Planted:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_strangers_at_the_port_are_heard_out_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: list[Any]
) -> None:
    monkeypatch.setattr(connection, "PATIENCE_SECONDS", 3.0)
    planted = pickle.dumps(Planted(tmp_path / "taken in"))
    message = len(planted).to_bytes(8) + planted
    connections: list[socket.socket] = []
    start = asyncio.start_server

    async def visited(called: Any, *where: Any, **more: Any) -> Any:
        server = await start(called, *where, **more)
        if "sock" not in more:
            return server  # of the model
        at = server.sockets[0].getsockname()
        assert at[0] == "127.0.0.1", "nobody else's machine reaches it"

        def knock() -> None:
            for said in (message, b"GET / HTTP/1.1\r\n\r\n", bytes(64) + message, b"", os.urandom(100_000)):
                connections.append(socket.create_connection(at, 5))
                connections[-1].sendall(said)

        await asyncio.to_thread(knock)
        return server

    monkeypatch.setattr(asyncio, "start_server", visited)
    with served() as server:
        assert build(config_at(server, {"sokoban": 6}), tmp_path / "store", 3).pending_episodes == 0
    for each in connections:
        each.close()
    assert not (tmp_path / "taken in").exists()
    assert len(connections) == 5
    assert len([each for each in spread if each is not None]) == 2


def test_a_worker_does_not_take_another_program_for_the_run(tmp_path: Path) -> None:
    planted = pickle.dumps(Planted(tmp_path / "taken in"))
    message = len(planted).to_bytes(8) + planted

    async def call_one() -> None:
        async def pretend(reader: Any, writer: Any) -> None:
            writer.write(bytes(64) + message)

        server = await asyncio.start_server(pretend, "127.0.0.1", 0)
        endpoint = connection.Endpoint(("127.0.0.1",), server.sockets[0].getsockname()[1], b"k" * 32)
        async with connection.call(endpoint):
            pytest.fail("it was taken in")

    with pytest.raises(ConnectionLostError, match="another program answers"):
        asyncio.run(call_one())
    assert not (tmp_path / "taken in").exists()


def test_a_key_is_not_shown() -> None:
    assert "sesame" not in repr(connection.Endpoint(("here",), 1, b"sesame"))
