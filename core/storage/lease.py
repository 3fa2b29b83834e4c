"""The writer's lock in an object store: an object that its holder renews, so that a killed holder's lock expires.

Only conditional writes change the lock: it is created if it does not exist, or written over exactly the version that
was read. The server's clock decides whether a lease has expired: its time of the last write of the lock is compared
with its time of an object that we write now; clocks of machines are never compared. A holder renews its lease before
each write, unless it just did, so every write is finished before another process can acquire the lock; a late renewal
succeeds only if no other process has acquired it.

Workers of the holder (pool processes, also on other machines) get the token of the lease with the address of the store.
They read the lock regularly, and stop when it has another holder or is no longer renewed.
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
from ..processes import seconds

LOCK = ".lock"
SECONDS = 120.0
"""Duration of a lease after a renewal: longer than any write takes with all its retries, which endure a minute in which
the object store refuses requests (status 503)."""
VARIABLE = "PIVOT_LEASE_SECONDS"
"""Environment variable that overrides ``SECONDS``; every writer of a store must use the same value."""
TICKS = 2.0
"""Seconds to wait after a lease expired: servers give times in whole seconds."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object, as conditional writes name it."""

    e_tag: str | None
    version: str | None


class LockObject(Protocol):
    """Operations of an object store that a lease needs. All raise StoreError if the store cannot be used."""

    def read(self) -> tuple[bytes, Version, datetime] | None:
        """Return content, version and time of the last write of the lock; None if it does not exist."""
        ...

    def write(self, content: bytes, over: Version | None) -> Version | None:
        """Create the lock, or overwrite version ``over``; return None if another version exists."""
        ...

    def server_time(self) -> datetime:
        """Return the time of the server's clock."""
        ...


@dataclass(frozen=True, slots=True)
class Holding:
    """Content of the lock."""

    token: str
    """Identifies the lease; empty if the lock is free."""
    process: int
    """Process id of the holder on ``host``."""
    started: str
    """Start time of that process in system ticks: process ids are reused."""
    host: str
    machine: str
    """Boot and process namespace in which the process id is valid; empty if unknown."""
    renewals: int
    seconds: float

    @property
    def holder(self) -> str:
        """Process and host, for messages."""
        return f"{self.process} on {self.host}"

    def encode(self) -> bytes:
        """Return the stored form."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, content: bytes, address: str) -> "Holding":
        """Read the stored form.

        Raises:
            StoreError: the content is invalid.
        """
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"{address} is not a lock of this version ({error}); if no run writes the store, delete that object"
            ) from error

    @property
    def is_dead(self) -> bool:
        """Whether its process ran on this system and has ended: then the lease need not expire first."""
        return bool(self.machine) and self.machine == _machine() and _started(self.process) != self.started


def _machine() -> str:
    """Return boot and process namespace of this process, within which process ids are unique."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _started(process: int) -> str:
    """Return the start time of a process; empty if it does not exist."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    return ""


def lease_seconds() -> float:
    """Return the value of ``VARIABLE``.

    Raises:
        ConfigError: the value is not a positive number.
    """
    return seconds(VARIABLE, SECONDS)


class Lease:
    """The lock, acquired and renewed by this process."""

    def __init__(self, lock: LockObject, address: str) -> None:
        """Prepare a lease without acquiring it; ``address`` is that of the store, for messages."""
        self._lock, self._address = lock, address
        seconds = lease_seconds()
        me = os.getpid()
        self._mine = Holding(uuid.uuid4().hex, me, _started(me), socket.gethostname(), _machine(), 0, seconds)
        self._version = Version(None, None)
        self._renewed = 0.0
        self._lost = ""
        self._one_at_a_time = threading.Lock()
        self._over = threading.Event()

    @property
    def token(self) -> str:
        """Token of this lease in the addresses of workers."""
        return self._mine.token

    def holder(self) -> str | None:
        """Return the holder of the lock, judged by this machine's clock; None if the lock is free."""
        there = self._lock.read()
        holding = None if there is None else Holding.decode(there[0], f"{self._address}/{LOCK}")
        if there is None or holding is None or not holding.token or holding.is_dead:
            return None
        age = (datetime.now(UTC) - there[2]).total_seconds()
        return holding.holder if age <= holding.seconds + TICKS else None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Acquire the lock, renew it within the context, and release it.

        Raises:
            StoreError: another run holds it, or the server cannot keep two writers apart.
        """
        self._acquire()
        threading.Thread(target=self._renew_regularly, name="lease", daemon=True).start()
        _LEASES[self.token] = self
        try:
            yield
        finally:
            del _LEASES[self.token]
            self._over.set()
            self._release()

    def _acquire(self) -> None:
        for _ in range(2):
            there = self._lock.read()
            over = None
            if there is not None:
                content, over, written = there
                holding = Holding.decode(content, f"{self._address}/{LOCK}")
                if holding.token and not holding.is_dead:
                    age = (self._lock.server_time() - written).total_seconds()
                    if age <= holding.seconds + TICKS:
                        raise self._refused(holding, age)
            if self._write(self._mine, over):
                self._check_server()
                return
        raise StoreError(f"{self._address} is being written by another run, which began just now; {_WAIT}")

    def _refused(self, holding: Holding, age: float) -> StoreError:
        left = max(1, round(holding.seconds + TICKS - age))
        return StoreError(
            f"{self._address} is being written by another run (process {holding.holder}, seen {max(0, round(age))} s "
            f"ago); {_WAIT}; if it was killed, its lease ends within {left} s"
        )

    def _check_server(self) -> None:
        """Check that the server refuses a second writer: some servers with an S3 interface ignore conditions."""
        version = self._lock.write(self._mine.encode(), None)
        if version is not None:
            self._lock.write(replace(self._mine, token="").encode(), version)
            raise StoreError(
                f"the server of {self._address} overwrites objects that it was asked to create (it ignores "
                "If-None-Match), so two writers could not be kept apart; expected conditional writes as of Amazon S3 "
                "or MinIO: use a newer server, or build into a local folder and copy it there"
            )

    def _write(self, holding: Holding, over: Version | None) -> bool:
        """Overwrite a version of the lock; a write whose response was lost counts as done."""
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
        """Check before a write that the lock is ours for most of a lease from now on.

        Raises:
            StoreError: another writer holds the lock, or the lease ends too soon.
        """
        with self._one_at_a_time:
            if not self._lost and time.monotonic() - self._renewed > self._mine.seconds / 6:
                self._renew()
            if self._lost:
                raise StoreError(self._lost)

    def _renew(self) -> None:
        """Renew the lease, or note that it is lost."""
        if self._write(replace(self._mine, renewals=self._mine.renewals + 1), self._version):
            return  # valid even if late: it replaced our own version, so no other process acquired the lock
        there, silent = self._lock.read(), time.monotonic() - self._renewed
        other = f" to process {Holding.decode(there[0], self._address).holder}" if there is not None else ""
        self._lost = _lost(self._address, f"was renewed {silent:.0f} s ago and is lost{other}")

    def _renew_regularly(self) -> None:
        while not self._over.wait(self._mine.seconds / 4):
            with self._one_at_a_time:
                # An unreachable server may answer the next renewal in time.
                with contextlib.suppress(StoreError):
                    self._renew()
                if self._lost:
                    return

    def _release(self) -> None:
        """Release the lock, unless another process has acquired it."""
        with self._one_at_a_time, contextlib.suppress(StoreError):
            if not self._lost:
                self._lock.write(replace(self._mine, token="").encode(), self._version)


class Watch:
    """A lease as seen by a worker of its holder."""

    def __init__(self, lock: LockObject, address: str, token: str) -> None:
        """Prepare without reading the lock."""
        self._lock, self._address, self._token = lock, address, token
        self._looked = self._since = float("-inf")
        self._seen: Holding | None = None
        self._one_at_a_time = threading.Lock()

    def check(self) -> None:
        """Check that the holder still has the lock and renews it.

        Raises:
            StoreError: the lock is lost, or its lease has ended.
        """
        with self._one_at_a_time:
            now = time.monotonic()
            if self._seen is not None and now - self._looked < self._seen.seconds / 6:
                return
            there = self._lock.read()
            holding = None if there is None else Holding.decode(there[0], self._address)
            if holding is None or holding.token != self._token:
                other = f" to process {holding.holder}" if holding is not None and holding.token else ""
                raise StoreError(_lost(self._address, f"is lost{other}"))
            if holding != self._seen:
                self._since = now
            elif now - self._since > holding.seconds / 2:
                raise StoreError(_lost(self._address, f"is no longer renewed by process {holding.holder}"))
            self._looked, self._seen = now, holding


_WAIT = "wait for its end, or choose another --out"

_LEASES: dict[str, Lease] = {}
"""Leases of this process, by token."""
_WATCHED: dict[str, Watch] = {}
"""Leases of other processes on whose behalf this one works, by token."""


def _lost(address: str, what: str) -> str:
    return (
        f"the lease of this run on {address} {what}; this run wrote nothing more; run the same command again when no "
        "other run writes there: finished shards are kept"
    )


def check_lease(token: str, address: str, lock: Callable[[], LockObject]) -> None:
    """Check the lease under which a write happens.

    Raises:
        StoreError: the lease is lost.
    """
    if token in _LEASES:
        _LEASES[token].check()
    else:
        _WATCHED.setdefault(token, Watch(lock(), address, token)).check()
