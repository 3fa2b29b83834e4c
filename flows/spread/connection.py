"""Messages between the driver, which asks the model, and a worker, which plays, over TCP.

A message is its length followed by a pickle. Before the first message both sides prove that they know the key of the
run: each sends the HMAC of a random number from the other side, so nothing from a stranger is unpickled. Messages are
not encrypted, like the traffic between the nodes of a Ray or Dask cluster.
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

from ...core.errors import PivotError
from ...datasets.store.stages.base import ShardResult
from ...datasets.store.stages.rollout import RolloutJob
from ...environments.turns import Reply, Turn
from ...models.base import Sent
from ..engines.reach import DRIVER_HOST, LOOPBACK

PATIENCE_SECONDS = 10.0
"""Time limit for a connection and for each step of the handshake."""

_LENGTH, _NUMBER, _PROOF = 8, 32, 32
_WORKER, _DRIVER = b"worker", b"driver"
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds and tries after which a silent machine counts as gone, on systems that have these options."""


class ConnectionLostError(PivotError):
    """The driver cannot be reached, or the connection to it broke."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and key of the driver."""

    hosts: tuple[str, ...]
    """Names of the driver's machine; a worker uses the first that answers."""
    port: int
    key: bytes = field(repr=False)


# Messages from workers


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """Request for another shard."""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """Request for the reply to a turn."""

    number: int
    turn: Turn
    """The turn without its environment and with the pictures of its prompt alone."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Cancellation of a turn request."""

    number: int


@dataclass(frozen=True, slots=True)
class EpisodeOver:
    """Notice that an episode is over."""


@dataclass(frozen=True, slots=True)
class ShardStored:
    """Notice that a shard is stored."""

    result: ShardResult


FromWorker = WorkRequest | TurnRequest | CancelRequest | EpisodeOver | ShardStored


# Messages from the driver


@dataclass(frozen=True, slots=True)
class AssignShard:
    """Assignment of a shard to play; None when none is left."""

    job: RolloutJob | None
    share: int
    """Most concurrent episodes of the worker from now on."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """Outcome of a turn request."""

    number: int
    reply: Reply | None
    error: Exception | None
    """Error of the policy in place of a reply."""
    sent: Sent
    """Requests sent to the model for this turn, failed ones included."""
    share: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Order to stop playing; finished shards are kept."""


FromScheduler = AssignShard | TurnResult | Stop


class Connection:
    """One end of the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Wrap a connection after its handshake."""
        self._reader, self._writer = reader, writer
        self.lost = False
        """Whether the other end is gone; messages sent then are dropped."""

    async def receive(self) -> Any:
        """Wait for a message.

        Raises:
            ConnectionLostError: the connection broke.
        """
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH))
            return pickle.loads(await self._reader.readexactly(length))  # noqa: S301 - the sender proved that it knows the key
        except (asyncio.IncompleteReadError, OSError) as error:
            self.lost = True
            self.raise_if_lost(error)

    def raise_if_lost(self, cause: BaseException | None = None) -> None:
        """Raise if the connection broke.

        Raises:
            ConnectionLostError: the connection broke.
        """
        if self.lost:
            raise ConnectionLostError(
                "the connection between a worker and the process that asks the model broke"
            ) from cause

    def send(self, message: Any) -> None:
        """Queue a message; the event loop sends it."""
        if not self.lost:
            data = pickle.dumps(message)
            self._writer.write(len(data).to_bytes(_LENGTH) + data)

    async def close(self) -> None:
        """Send queued messages and close the connection."""
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


def listening_socket(hosts: tuple[str, ...]) -> socket.socket:
    """Return the driver's listening socket, reachable under ``hosts``."""
    if hosts == (LOOPBACK,):
        return socket.create_server((LOOPBACK, 0))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


async def accept(endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection | None:
    """Return the connection of a worker after the handshake, on the driver's side; None for a stranger."""
    number = secrets.token_bytes(_NUMBER)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            writer.write(number)
            proof, theirs = await reader.readexactly(_PROOF), await reader.readexactly(_NUMBER)
            if not hmac.compare_digest(proof, _proof(endpoint.key, _WORKER, number)):
                writer.close()
                return None
            writer.write(_proof(endpoint.key, _DRIVER, theirs))
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):  # TimeoutError is an OSError
        writer.close()
        return None
    _keep_alive(writer)
    return Connection(reader, writer)


@contextlib.asynccontextmanager
async def call(endpoint: Endpoint) -> AsyncIterator[Connection]:
    """Connect to the driver, on the worker's side.

    Raises:
        ConnectionLostError: the driver does not answer under any of its names.
    """
    failures: list[str] = []
    for host in endpoint.hosts:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                reader, writer = await asyncio.open_connection(host, endpoint.port)
        except OSError as error:
            failures.append(f"{host}: {error.strerror or type(error).__name__}")
            continue
        number, proof = secrets.token_bytes(_NUMBER), b""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                theirs = await reader.readexactly(_NUMBER)
                writer.write(_proof(endpoint.key, _WORKER, theirs) + number)
                proof = await reader.readexactly(_PROOF)
        except (asyncio.IncompleteReadError, OSError):
            pass  # not our driver: it proves nothing
        if hmac.compare_digest(proof, _proof(endpoint.key, _DRIVER, number)):
            break
        failures.append(f"{host}: another program answers")
        writer.close()
    else:
        raise ConnectionLostError(
            f"worker on {socket.gethostname()} cannot reach the process that asks the model at port {endpoint.port} "
            f"({'; '.join(failures)}); open ports between the machines, or name this one in {DRIVER_HOST}"
        )
    _keep_alive(writer)
    connection = Connection(reader, writer)
    try:
        yield connection
    finally:
        await connection.close()
