"""Whether a cluster is where it is said to be, told in seconds, where schedulers try for minutes; and the way back."""

import os
import socket
from urllib.parse import urlsplit

from ...errors import ConfigError

PATIENCE = 5.0
"""Seconds for a connection, and for the first word over it; a cluster is near."""

LOOPBACK = "127.0.0.1"
DRIVER_HOST = "PIVOT_DRIVER_HOST"
"""Environment variable: the name under which the nodes of a cluster reach the machine that a run is started on."""

_HELLO_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client begins HTTP/2 (RFC 9113, section 3.4), with empty settings."""


def refuse_unreachable(address: str, what: str, *, http2: bool = False) -> None:
    """Knock at ``address``, if it is one of a host and a port.

    Args:
        address: as it was given; one without a port is a word of the engine's own, such as Ray's ``auto``.
        what: what should be there.
        http2: it should speak HTTP/2, as every gRPC server does.

    Raises:
        ConfigError: the address is malformed, nobody listens there, or somebody else does.
    """
    try:
        host, port = _host_and_port(address)
    except ValueError as error:
        raise ConfigError(f"--address {address}: {error}; expected HOST:PORT of a {what}") from error
    if host is None or port is None:
        return
    try:
        with socket.create_connection((host, port), PATIENCE) as connection:
            other = http2 and not _speaks_http2(connection)
    except OSError as error:
        raise ConfigError(
            f"nothing answers at {address} ({error.strerror or error}), expected a {what}; start it, give its address "
            "with --address, or leave that out for workers on this machine"
        ) from error
    if other:
        raise ConfigError(f"what listens at {address} is no {what}; see to the port in --address")


def _host_and_port(address: str) -> tuple[str | None, int | None]:
    parts = urlsplit(address if "//" in address else f"//{address}")
    return parts.hostname, parts.port


def hosts_towards(address: str) -> tuple[str, ...]:
    """Return the names by which the nodes of the cluster at ``address`` may reach this machine; empty for a local one.

    Raises:
        ValueError: the address is malformed.
    """
    if not address:
        return (LOOPBACK,)
    if named := os.environ.get(DRIVER_HOST):
        return (named,)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        try:
            towards.connect((_host_and_port(address)[0], 1))  # sends nothing: it only chooses the way there
            near: str = towards.getsockname()[0]
        except OSError:  # the address is a word of the engine's own
            near = LOOPBACK
    return tuple(dict.fromkeys((near, socket.gethostname())))


def _speaks_http2(connection: socket.socket) -> bool:
    if os.environ.get("RAY_USE_TLS", "0") != "0":
        return True  # behind encryption; Ray itself has to find out
    connection.sendall(_HELLO_HTTP2)
    answer = b""
    while len(answer) < 4:  # the length of the first frame, three bytes, and its type
        try:
            part = connection.recv(16)
        except TimeoutError:
            return False
        if not part:
            return False
        answer += part
    return answer[3] == 4  # settings
