"""The line between the process that asks the model and one that plays: messages both ways, over TCP.

A message is a pickle behind its length. Before the first one both sides prove that they know the key of the run, each
by the HMAC of a number that the other one drew; nothing of a stranger is unpickled. What follows is as open as what the
clusters send between their nodes.
"""

import asyncio
import contextlib
import hmac
import pickle
import secrets
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ...errors import PivotError
from ...rollouts.base import Reply, Turn
from ..engines.reach import DRIVER_HOST, LOOPBACK
from ..stages import RolloutJob, ShardResult

PATIENCE_SECONDS = 10.0
"""For a connection, and for each word of the introduction."""

_LENGTH, _NUMBER, _PROOF = 8, 32, 32
_WORKER, _DRIVER = b"worker", b"driver"
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds and tries after which a machine that went without a word counts as gone; where the system has them."""


class NoLineError(PivotError):
    """The process that asks the model cannot be reached, or not any more."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the process that asks the model is called."""

    hosts: tuple[str, ...]
    """Names of its machine; the first that answers is taken."""
    port: int
    key: bytes = field(repr=False)


# What a worker says


@dataclass(frozen=True, slots=True)
class Want:
    """It can play more episodes."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A turn wants a reply."""

    number: int
    turn: Turn
    """Without its environment, and with no other pictures than those of the prompt."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """A turn wants none any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Ended:
    """An episode is over."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A shard is on disk."""

    result: ShardResult


Said = Want | Ask | Withdraw | Ended | Stored


# What it is told


@dataclass(frozen=True, slots=True)
class Dealt:
    """A shard to play; None when there will be no more."""

    job: RolloutJob | None
    share: int
    """Episodes that it may have in flight now."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a turn."""

    number: int
    reply: Reply | None
    error: Exception | None
    """What the policy raised instead."""
    tries: int
    """Requests that were sent for it, whatever became of it."""
    share: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Play no more; what is finished is to be kept."""


Told = Dealt | Answered | Stop


class Line:
    """One end of a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk over a connection whose other end is known."""
        self._reader, self._writer = reader, writer
        self.lost = False
        """Whether the other end is gone; what is said then is said to nobody."""

    async def receive(self) -> Any:
        """Wait for a message.

        Raises:
            NoLineError: the other end is gone.
        """
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH))
            return pickle.loads(await self._reader.readexactly(length))  # noqa: S301 - from who knows the key
        except (asyncio.IncompleteReadError, OSError) as error:
            self.lost = True
            self.refuse_lost(error)

    def refuse_lost(self, cause: BaseException | None = None) -> None:
        """Refuse to go on without the other end.

        Raises:
            NoLineError: it is gone.
        """
        if self.lost:
            raise NoLineError("the line between the process that asks the model and a worker is lost") from cause

    def send(self, message: Any) -> None:
        """Send a message; it goes out as the loop runs on."""
        if not self.lost:
            data = pickle.dumps(message)
            self._writer.write(len(data).to_bytes(_LENGTH) + data)

    async def close(self) -> None:
        """Send what waits, and let go."""
        with contextlib.suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()


def _proof(key: bytes, who: bytes, number: bytes) -> bytes:
    return hmac.digest(key, who + number, "sha256")


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def port_for(hosts: tuple[str, ...]) -> socket.socket:
    """As the driver: listen where workers that know this machine by these names reach it."""
    if hosts == (LOOPBACK,):
        return socket.create_server((LOOPBACK, 0))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


async def introduced(place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Line | None:
    """As the driver: have a caller prove that it is of the run, and prove it in turn; None for a stranger."""
    number = secrets.token_bytes(_NUMBER)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            writer.write(number)
            proof, theirs = await reader.readexactly(_PROOF), await reader.readexactly(_NUMBER)
            if not hmac.compare_digest(proof, _proof(place.key, _WORKER, number)):
                writer.close()
                return None
            writer.write(_proof(place.key, _DRIVER, theirs))
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):  # a time-out is an OSError, too
        writer.close()
        return None
    _keep_alive(writer)
    return Line(reader, writer)


@contextlib.asynccontextmanager
async def call(place: Place) -> AsyncIterator[Line]:
    """As a worker: call the driver.

    Raises:
        NoLineError: it is reached under none of its names.
    """
    told: list[str] = []
    for host in place.hosts:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                reader, writer = await asyncio.open_connection(host, place.port)
        except OSError as error:
            told.append(f"{host}: {error.strerror or type(error).__name__}")
            continue
        number, proof = secrets.token_bytes(_NUMBER), b""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                theirs = await reader.readexactly(_NUMBER)
                writer.write(_proof(place.key, _WORKER, theirs) + number)
                proof = await reader.readexactly(_PROOF)
        except (asyncio.IncompleteReadError, OSError):
            pass  # whoever it is, it proves nothing
        if hmac.compare_digest(proof, _proof(place.key, _DRIVER, number)):
            break
        told.append(f"{host}: somebody else")
        writer.close()
    else:
        raise NoLineError(
            f"a worker on {socket.gethostname()} does not reach the process that asks the model at port {place.port} "
            f"({'; '.join(told)}); open ports between the machines, or name this one in {DRIVER_HOST}"
        )
    _keep_alive(writer)
    line = Line(reader, writer)
    try:
        yield line
    finally:
        await line.close()
