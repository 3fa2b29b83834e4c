"""Connection failures in plain words: what happened, and what to do."""

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .connection import CONNECT_SECONDS, LongAnswerError


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """A failed connection."""

    what: str
    advice: str = ""
    """Remedy; empty where the server only has to be started."""
    is_setup: bool = False
    """Whether waiting cannot help, because the address or a certificate is wrong."""


def connection_failure(error: BaseException, url: str) -> ConnectionFailure | None:
    """Return what a client's error means for the connection to ``url``; None for an unknown failure."""
    chain = [*_causes(error)][::-1]  # errors of aiohttp are kinds of those behind them, without their attributes
    for kind, describe in _KINDS.items():
        for cause in chain:
            if isinstance(cause, kind):
                return describe(cause, urlsplit(url))
    if any("server disconnected" in str(cause).lower() for cause in chain):  # each library has an error of its own
        return _closed(error, urlsplit(url))
    return None


def is_too_long(error: BaseException) -> bool:
    """Whether a client's error means that the answer was too long."""
    return any(isinstance(cause, LongAnswerError) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors behind it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _bad_certificate(cause: Any, _: SplitResult) -> ConnectionFailure:
    advice = "set SSL_CERT_FILE to the certificates of its issuer, or correct the host name in --base-url"
    return ConnectionFailure(
        f"its certificate is not valid: {getattr(cause, 'verify_message', '') or cause}", advice, is_setup=True
    )


def _no_https(cause: Any, _: SplitResult) -> ConnectionFailure:
    reason = getattr(cause, "reason", "") or cause
    return ConnectionFailure(f"no HTTPS is spoken there: {reason}", "try http:// in --base-url", is_setup=True)


def _unknown_host(cause: Any, server: SplitResult) -> ConnectionFailure:
    what = f"the host name {server.hostname!r} was not found: {getattr(cause, 'strerror', '') or cause}"
    return ConnectionFailure(what, "check the host name in --base-url")


def _refused(_: Any, __: SplitResult) -> ConnectionFailure:
    return ConnectionFailure("connection refused: nothing listens at that port")


def _closed(_: Any, server: SplitResult) -> ConnectionFailure:
    other = "; if it speaks HTTPS, write https:// in --base-url" if server.scheme == "http" else ""
    return ConnectionFailure("it closed the connection without an answer", f"look at its log{other}")


def _too_slow(_: Any, __: SplitResult) -> ConnectionFailure:
    advice = "check host, port and firewall, and that the server runs"
    return ConnectionFailure(f"no connection within {CONNECT_SECONDS:g} s", advice)


_KINDS: Mapping[type[BaseException], Callable[[Any, SplitResult], ConnectionFailure]] = {
    ssl.SSLCertVerificationError: _bad_certificate,
    ssl.SSLError: _no_https,
    socket.gaierror: _unknown_host,
    ConnectionRefusedError: _refused,
    ConnectionResetError: _closed,
    TimeoutError: _too_slow,
}
"""Descriptions by the error of the operating system, the most specific one first."""
