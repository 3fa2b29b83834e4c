"""The lock of an object store: one holder at a time, even if processes die, stall or lose answers, or clocks differ."""

import os
import random
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from pivot.core.errors import StoreError
from pivot.core.storage import lease
from pivot.core.storage.lease import Holding, Lease, Version, Watch

STORE = "s3://bucket/store"


class Server:
    """The lock object of a server with a clock of its own, far from ours."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.version = 0
        self.written = self.now = 0.0
        self.lost_answers = 0
        self.heeds_conditions = True

    def read(self) -> tuple[bytes, Version, datetime] | None:
        return (
            None if self.content is None else (self.content, Version(str(self.version), None), self._at(self.written))
        )

    def write(self, content: bytes, over: Version | None) -> Version | None:
        right = over == Version(str(self.version), None) if over else self.content is None
        if self.heeds_conditions and not right:
            return None
        self.content, self.version, self.written = content, self.version + 1, self.now
        if self.lost_answers:
            self.lost_answers -= 1
            return None  # the second try of the library finds another version
        return Version(str(self.version), None)

    def server_time(self) -> datetime:
        return self._at(self.now)

    @staticmethod
    def _at(seconds: float) -> datetime:
        return datetime(1999, 1, 1, tzinfo=UTC) + timedelta(seconds=int(seconds))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server, with this process's clock running as fast as the server's."""
    made = Server()
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: made.now + 777.0))
    return made


def _holder(server: Server, machine: str = "elsewhere") -> Lease:
    holder = Lease(server, STORE)
    holder._mine = replace(holder._mine, machine=machine, host=machine)
    return holder


def test_the_second_is_refused_until_the_first_gives_it_back(server: Server) -> None:
    with Lease(server, STORE).hold():
        server.now += 7
        with pytest.raises(StoreError) as raised, Lease(server, STORE).hold():
            pass
        assert f"{STORE} is being written by another run (process " in str(raised.value)
        assert "seen 7 s ago); wait for its end, or choose another --out" in str(raised.value)
        assert "if it was killed, its lease ends within 115 s" in str(raised.value)
    with Lease(server, STORE).hold():
        pass


def test_a_killed_writer_on_another_machine_loses_it_after_its_lease(server: Server) -> None:
    killed = _holder(server)
    killed._acquire()
    server.now += lease.SECONDS + lease.TICKS
    with pytest.raises(StoreError, match="its lease ends within 1 s"), Lease(server, STORE).hold():
        pass
    server.now += 1
    with Lease(server, STORE).hold():
        with pytest.raises(StoreError, match=r"was renewed 123 s ago and is lost to process .*wrote nothing more"):
            killed.check()
        with pytest.raises(StoreError, match="is lost"):
            killed.check()
        killed._release()  # has no effect
        with pytest.raises(StoreError, match="is being written by another run"), Lease(server, STORE).hold():
            pass


def test_a_reader_names_the_writer_until_its_lease_is_over(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    _holder(server)._acquire()
    for seconds, is_there in ((lease.SECONDS + lease.TICKS, True), (lease.SECONDS + lease.TICKS + 1, False)):
        clock = SimpleNamespace(now=lambda _, seconds=seconds: Server._at(seconds))
        monkeypatch.setattr(lease, "datetime", clock)
        assert (Lease(server, STORE).holder() is not None) == is_there


def test_a_killed_writer_of_this_machine_loses_it_at_once(server: Server) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        killed = Lease(server, STORE)
        killed._mine = replace(killed._mine, process=process.pid, started=lease._started(process.pid))
        killed._acquire()
        with pytest.raises(StoreError, match=rf"process {process.pid} on "), Lease(server, STORE).hold():
            pass
        process.kill()
    with Lease(server, STORE).hold():
        pass
    # Another process may later get the same id.
    again = Lease(server, STORE)
    again._mine = replace(again._mine, started="1")
    again._acquire()
    with Lease(server, STORE).hold():
        pass


def test_a_stalled_writer_goes_on_if_nobody_took_the_lock(server: Server) -> None:
    with Lease(server, STORE).hold():
        stalled = next(iter(lease._LEASES.values()))
        server.now += 10_000
        stalled.check()
        written = server.version
        server.now += 1
        stalled.check()
        assert server.version == written  # renewed just now


@pytest.mark.parametrize("lost", [1, 2])
def test_an_answer_that_got_lost_is_no_lost_lease(server: Server, lost: int) -> None:
    server.lost_answers = lost
    with Lease(server, STORE).hold():
        server.lost_answers = lost
        server.now += 30
        next(iter(lease._LEASES.values())).check()


def test_a_server_that_ignores_conditions_is_refused(server: Server) -> None:
    server.heeds_conditions = False
    with pytest.raises(StoreError, match="ignores If-None-Match"), Lease(server, STORE).hold():
        pass
    assert server.content is not None and Holding.decode(server.content, STORE).token == ""


def test_a_lock_of_something_else_is_named(server: Server) -> None:
    server.content = b"12345"
    with pytest.raises(StoreError, match=rf"{STORE}/\.lock is not a lock of this version"), Lease(server, STORE).hold():
        pass


def test_a_worker_stops_when_its_writer_is_gone(server: Server) -> None:
    writer = _holder(server)
    writer._acquire()
    worker = Watch(server, STORE, writer.token)
    for _ in range(20):
        server.now += 9
        writer.check()
        worker.check()
    server.now += 40
    worker.check()
    server.now += 61
    with pytest.raises(StoreError, match="is no longer renewed by process"):
        worker.check()
    server.now += 30
    with Lease(server, STORE).hold():
        with pytest.raises(StoreError, match="is lost to process"):
            worker.check()
        with pytest.raises(StoreError, match="is lost to process"):
            writer.check()


def test_never_two_writers_by_turns_and_stalls_of_any_length(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_machine", lambda: "another boot")
    owners: set[int] = set()
    for seed in range(150):
        chance, server.content = random.Random(seed), None
        runs: dict[int, Lease] = {}
        owner = None
        for _ in range(40):
            server.now += chance.choice([0.5, 5, 20, 70, 200])
            server.lost_answers = chance.choice([0, 0, 1])
            who = chance.randrange(3)
            if who not in runs:
                asking = _holder(server, f"machine {who}")
                try:
                    asking._acquire()
                except StoreError:
                    continue
                runs[who], owner = asking, who
                owners.add(who)
                continue
            try:
                runs[who].check()
            except StoreError:
                assert owner != who
                del runs[who]
                continue
            assert owner == who, "two write"
    assert owners == {0, 1, 2}


def test_only_a_process_of_this_system_is_seen_to_have_ended() -> None:
    """Process ids of another machine say nothing here: its lock has to expire."""
    ended = Holding("t", 2**22 + 1, "1", "host", lease._machine(), 0, 60.0)
    assert ended.is_dead and not replace(ended, machine="another boot").is_dead
    assert not replace(ended, machine="").is_dead
    here = os.getpid()
    assert not replace(ended, process=here, started=lease._started(here)).is_dead
