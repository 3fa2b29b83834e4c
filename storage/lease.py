"""One writer's lock in an object store: an object that its holder renews, and that a killed holder therefore loses.

The lock changes hands by conditional writes alone: it is created where there is none, or written over the very version
that was read. Whether a lease ran out is judged by the server's clock: by when it says that the lock was written, and
that something was that we write now; clocks of machines are never compared. A holder renews its lease before it writes
anything, unless it just did, so that whatever it writes is there before anybody else may write; a renewal that comes
late holds only if nobody took the lock meanwhile.

Processes that work for the holder (pool workers, also on other machines) get the lease's token with the address of the
store, look at the lock now and then, and stop when it is another's or is renewed no more.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from ..errors import StoreError

LOCK = ".lock"
SECONDS = 60.0
"""How long a lease lasts after a renewal: longer than any write takes with all its retries."""
VARIABLE = "PIVOT_LEASE_SECONDS"
"""Environment variable with another number of seconds; every writer of a store must use the same."""
TICKS = 2.0
"""Seconds by which a lease has to be over: servers tell time in whole seconds."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object, as conditional writes name it."""

    e_tag: str | None
    version: str | None


class LockObject(Protocol):
    """What a lease asks of an object store. All raise StoreError where the store cannot be used."""

    def read(self) -> tuple[bytes, Version, datetime] | None:
        """Content of the lock, its version, and when the server says that it was written; None without one."""
        ...

    def write(self, content: bytes, over: Version | None) -> Version | None:
        """Create it, or write over one version of it; None when there is one already, or another version."""
        ...

    def server_time(self) -> datetime:
        """What the server's clock says now."""
        ...


@dataclass(frozen=True, slots=True)
class Holding:
    """Content of the lock."""

    token: str
    """Of this lease; empty when nobody holds the lock."""
    process: int
    """Its number on ``host``."""
    started: str
    """When that process was started, as the system counts: a number may be given again."""
    host: str
    machine: str
    """The system in which the number counts; empty where that cannot be told."""
    renewals: int
    seconds: float

    @property
    def holder(self) -> str:
        """For people."""
        return f"{self.process} on {self.host}"

    def encode(self) -> bytes:
        """Return it as stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, content: bytes, address: str) -> "Holding":
        """Read it as stored.

        Raises:
            StoreError: it is something else.
        """
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"{address} is no lock of this version ({error}); when nothing writes the store, delete that object"
            ) from error

    @property
    def is_dead(self) -> bool:
        """Whether its process was on this very system and is no more: then nobody has to wait."""
        return bool(self.machine) and self.machine == _machine() and _started(self.process) != self.started


def _machine() -> str:
    """Name the system whose process numbers we see: one boot, one namespace of processes."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _started(process: int) -> str:
    """When a process was started; empty when there is none."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    return ""


class Lease:
    """The lock while this process holds it."""

    def __init__(self, lock: LockObject, address: str) -> None:
        """Take nothing yet; ``address`` is that of the store, for messages."""
        self._lock, self._address = lock, address
        seconds = float(os.environ.get(VARIABLE) or SECONDS)
        me = os.getpid()
        self._mine = Holding(uuid.uuid4().hex, me, _started(me), socket.gethostname(), _machine(), 0, seconds)
        self._version = Version(None, None)
        self._renewed = 0.0
        self._lost = ""
        self._one_at_a_time = threading.Lock()
        self._over = threading.Event()

    @property
    def token(self) -> str:
        """Names this lease in the addresses that workers get."""
        return self._mine.token

    def holder(self) -> str | None:
        """Who holds the lock, as far as this machine's clock can tell; None when nobody does."""
        there = self._lock.read()
        held = None if there is None else Holding.decode(there[0], f"{self._address}/{LOCK}")
        if there is None or held is None or not held.token or held.is_dead:
            return None
        age = (datetime.now(UTC) - there[2]).total_seconds()
        return held.holder if age <= held.seconds + TICKS else None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Take the lock, renew it until the end, and give it back.

        Raises:
            StoreError: another run holds it, or the server cannot keep two writers apart.
        """
        self._acquire()
        threading.Thread(target=self._renew_steadily, name="lease", daemon=True).start()
        _HELD[self.token] = self
        try:
            yield
        finally:
            del _HELD[self.token]
            self._over.set()
            self._release()

    def _acquire(self) -> None:
        for _ in range(2):
            there = self._lock.read()
            over = None
            if there is not None:
                content, over, written = there
                held = Holding.decode(content, f"{self._address}/{LOCK}")
                if held.token and not held.is_dead:
                    age = (self._lock.server_time() - written).total_seconds()
                    if age <= held.seconds + TICKS:
                        raise self._refused(held, age)
            if self._write(self._mine, over):
                self._check_server()
                return
        raise StoreError(f"{self._address} is being written by another run, which began just now; {_WAIT}")

    def _refused(self, held: Holding, age: float) -> StoreError:
        left = max(1, round(held.seconds + TICKS - age))
        return StoreError(
            f"{self._address} is being written by another run (process {held.holder}, seen {max(0, round(age))} s "
            f"ago); {_WAIT}; if it was killed, its lease ends within {left} s"
        )

    def _check_server(self) -> None:
        """See whether the server refuses what a second writer would do: some that speak S3 ignore conditions."""
        version = self._lock.write(self._mine.encode(), None)
        if version is not None:
            self._lock.write(replace(self._mine, token="").encode(), version)
            raise StoreError(
                f"the server of {self._address} overwrites objects that it was asked to create (it ignores "
                "If-None-Match), so two writers could not be kept apart; expected conditional writes as of Amazon S3 "
                "or MinIO: use a newer server, or build into a local folder and copy it there"
            )

    def _write(self, holding: Holding, over: Version | None) -> bool:
        """Write the lock over a version; what an answer that got lost had written counts as written."""
        sent = time.monotonic()
        version = self._lock.write(holding.encode(), over)
        if version is None:
            there = self._lock.read()
            if there is None or there[0] != holding.encode():
                return False
            version = there[1]
        self._mine, self._version, self._renewed = holding, version, sent
        return True

    def check(self) -> None:
        """See that the lock is ours for most of a lease from now on, before something is written.

        Raises:
            StoreError: it is not.
        """
        with self._one_at_a_time:
            if not self._lost and time.monotonic() - self._renewed > self._mine.seconds / 6:
                self._renew()
            if self._lost:
                raise StoreError(self._lost)

    def _renew(self) -> None:
        """Renew the lease, or learn that it is lost."""
        if self._write(replace(self._mine, renewals=self._mine.renewals + 1), self._version):
            return  # also late: over the version that we wrote, so nobody had it meanwhile
        there, silent = self._lock.read(), time.monotonic() - self._renewed
        other = f" to process {Holding.decode(there[0], self._address).holder}" if there is not None else ""
        self._lost = _lost(self._address, f"was renewed {silent:.0f} s ago and is lost{other}")

    def _renew_steadily(self) -> None:
        while not self._over.wait(self._mine.seconds / 4):
            with self._one_at_a_time:
                # What cannot be reached now may be in time yet: the next write tells.
                with contextlib.suppress(StoreError):
                    self._renew()
                if self._lost:
                    return

    def _release(self) -> None:
        """Give the lock back, unless it is another's by now."""
        with self._one_at_a_time, contextlib.suppress(StoreError):
            if not self._lost:
                self._lock.write(replace(self._mine, token="").encode(), self._version)


class Watch:
    """A lease as a process sees it that works for the holder."""

    def __init__(self, lock: LockObject, address: str, token: str) -> None:
        """Look at nothing yet."""
        self._lock, self._address, self._token = lock, address, token
        self._looked = self._since = float("-inf")
        self._seen: Holding | None = None
        self._one_at_a_time = threading.Lock()

    def check(self) -> None:
        """See that the lock is still the holder's, and still renewed.

        Raises:
            StoreError: it is not.
        """
        with self._one_at_a_time:
            now = time.monotonic()
            if self._seen is not None and now - self._looked < self._seen.seconds / 6:
                return
            there = self._lock.read()
            held = None if there is None else Holding.decode(there[0], self._address)
            if held is None or held.token != self._token:
                other = f" to process {held.holder}" if held is not None and held.token else ""
                raise StoreError(_lost(self._address, f"is lost{other}"))
            if held != self._seen:
                self._since = now
            elif now - self._since > held.seconds / 2:
                raise StoreError(_lost(self._address, f"is renewed no more by process {held.holder}"))
            self._looked, self._seen = now, held


_WAIT = "wait for its end, or choose another --out"

_HELD: dict[str, Lease] = {}
"""Leases of this process, by token."""
_WATCHED: dict[str, Watch] = {}
"""Leases for whose holders this process works, by token."""


def _lost(address: str, what: str) -> str:
    return (
        f"the lease of this run on {address} {what}; nothing more was written; run the same command again when no "
        "other run writes there: finished shards are kept"
    )


def check_lease(token: str, address: str, lock: Callable[[], LockObject]) -> None:
    """See that the lease by which something is to be written still holds.

    Raises:
        StoreError: it does not.
    """
    if token in _HELD:
        _HELD[token].check()
    else:
        _WATCHED.setdefault(token, Watch(lock(), address, token)).check()
