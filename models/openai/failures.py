"""Connection failures in plain words: what happened, and what to do."""

import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from .connection import CONNECT_SECONDS


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """A failed connection."""

    what: str
    advice: str = ""
    """Remedy; empty where the server only has to be started."""
    is_setup: bool = False
    """Whether waiting cannot help, because the address or a certificate is wrong."""


_CLOSED = (
    "it closed the connection without an answer",
    "look at its log; if it speaks HTTPS, write https:// in --base-url",
    False,
)
_KINDS: Mapping[type[BaseException], tuple[str, str, bool]] = {
    ssl.SSLCertVerificationError: (
        "its certificate is not valid: {reason}",
        "set SSL_CERT_FILE to the certificates of its issuer, or correct the host name in --base-url",
        True,
    ),
    ssl.SSLError: ("no HTTPS is spoken there: {reason}", "try http:// in --base-url", True),
    socket.gaierror: ("the host name {host!r} was not found: {reason}", "check the host name in --base-url", False),
    ConnectionRefusedError: ("connection refused: nothing listens at that port", "", False),
    ConnectionResetError: _CLOSED,
    TimeoutError: (
        f"no connection within {CONNECT_SECONDS:g} s",
        "check host, port and firewall, and that the server runs",
        False,
    ),
}
"""The fields of a :class:`ConnectionFailure` by the error of the operating system, the most specific one first."""


def connection_failure(error: BaseException, url: str) -> ConnectionFailure | None:
    """Return what a client's error means for the connection to ``url``; None for an unknown failure."""
    chain = [*_causes(error)][::-1]  # errors of aiohttp are kinds of those behind them, without their attributes
    for kind, (what, advice, is_setup) in _KINDS.items():
        for cause in chain:
            if isinstance(cause, kind):
                words = (getattr(cause, name, None) for name in ("verify_message", "reason", "strerror"))
                reason = next(filter(None, words), cause)
                return ConnectionFailure(what.format(reason=reason, host=urlsplit(url).hostname), advice, is_setup)
    if any("server disconnected" in str(cause).lower() for cause in chain):  # each library has an error of its own
        return ConnectionFailure(*_CLOSED)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors behind it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
