"""Check within seconds that a cluster answers at its address."""

import os
import socket
from urllib.parse import urlsplit

from ...core.errors import ConfigError

PATIENCE = 5.0
"""Seconds for a connection, and for the first bytes over it."""

LOOPBACK = "127.0.0.1"

_HELLO_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""Client preface of HTTP/2 (RFC 9113, section 3.4), with empty settings."""


def refuse_unreachable(address: str, what: str, *, http2: bool = False) -> None:
    """Connect to ``address`` once, if it has a host and a port.

    Args:
        address: address as given; without a port it is a word of the engine, such as Ray's ``auto``.
        what: expected program, for messages.
        http2: whether it has to speak HTTP/2, as every gRPC server does.

    Raises:
        ConfigError: the address is malformed, or no such program answers there.
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
        raise ConfigError(f"the program at {address} is not a {what}; check the port in --address")


def _host_and_port(address: str) -> tuple[str | None, int | None]:
    parts = urlsplit(address if "//" in address else f"//{address}")
    return parts.hostname, parts.port


def _speaks_http2(connection: socket.socket) -> bool:
    if os.environ.get("RAY_USE_TLS", "0") != "0":
        return True  # encrypted: Ray itself reports another program
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
