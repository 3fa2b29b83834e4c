"""The proxy between this process and a server, and the failures that it causes.

With ``HTTP_PROXY``, ``HTTPS_PROXY`` or ``ALL_PROXY`` a refusal may come from the proxy; no key, name or address of the
server fixes that. For HTTPS the proxy answers before the server, and the client reports that. For plain HTTP its
answer looks like the server's, apart from status 407 and some headers. A login in the variable is never shown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ...core.errors import ConfigError

LOGIN_WANTED = 407
SOCKS_PACKAGE = "socksio"
_SCHEMES = ("http", "https")
_SOCKS = ("socks5", "socks5h")
_OWN_HEADERS = ("x-squid-error", "proxy-authenticate")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that an environment variable names."""

    variable: str
    scheme: str
    place: str
    """Host and port."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tunnels: bool = True
    """Whether the proxy only opens a connection (HTTPS), so that every later answer comes from the server."""

    def __str__(self) -> str:
        """Return the proxy as messages show it."""
        return f"the proxy {self.scheme}://{self.place} ({self.variable})"

    @property
    def is_socks(self) -> bool:
        """Whether the proxy speaks SOCKS."""
        return self.scheme in _SOCKS

    def check(self) -> None:
        """Check that the client can use the proxy.

        Raises:
            ConfigError: the proxy cannot be used.
        """
        instead = "name an HTTP proxy there, or the server's host in NO_PROXY"
        if self.is_socks and find_spec(SOCKS_PACKAGE) is None:
            raise ConfigError(
                f"{self} speaks SOCKS, which needs a package that is not installed: pip install {SOCKS_PACKAGE}; or "
                f"{instead}"
            )
        if self.scheme not in (*_SCHEMES, *_SOCKS):
            raise ConfigError(f"{self} has an unsupported scheme (expected http, https or socks5); {instead}")

    def refusal(self, status: int, where: str) -> ConfigError:
        """Return the error for a proxy that refuses a connection to the server at ``where``."""
        if status == LOGIN_WANTED:
            return ConfigError(
                f"{self} requires a login to connect to {where} (status {status}); give it in {self.variable} as "
                "http://NAME:PASSWORD@HOST:PORT, or name the server's host in NO_PROXY"
            )
        return ConfigError(
            f"{self} refuses to connect to {where} (status {status}); allow that in the proxy, or name the server's "
            "host in NO_PROXY"
        )


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy for a server from the environment variables; None for a direct connection."""
    server, named = urlsplit(url), getproxies()
    if proxy_bypass(server.netloc):
        return None
    for scheme in (server.scheme, "all"):
        if address := named.get(scheme):
            return _read(f"{scheme.upper()}_PROXY", address, tunnels=server.scheme == "https")
    return None


def _read(variable: str, address: str, *, tunnels: bool) -> Proxy:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        place = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    except ValueError:
        raise ConfigError(f"{variable} does not hold the address of a proxy; expected http://HOST:PORT") from None
    secrets = tuple(each for each in (parts.password, unquote(parts.password or "")) if each)
    return Proxy(variable, parts.scheme.lower(), place, secrets, tunnels)


def status_of(error: BaseException) -> int | None:
    """Return the status with which a proxy refused a connection, from the client's error; None for other failures."""
    cause = error.__cause__
    while cause is not None:
        if type(cause).__name__ in ("ClientHttpProxyError", "ProxyError"):
            status = getattr(cause, "status", None) or re.match(r"(\d{3})\b", str(cause))
            return int(status[1]) if isinstance(status, re.Match) else status
        cause = cause.__cause__
    return None


def is_about(error: BaseException) -> bool:
    """Return whether a client's error concerns the proxy, not the server."""
    cause = error.__cause__
    while cause is not None:
        if "Proxy" in type(cause).__name__:
            return True
        cause = cause.__cause__
    return False


def speaks(proxy: Proxy | None, status: int, headers: Mapping[str, str], body: Any) -> str:
    """Return the sender of an error status: the proxy, "the proxy, or the server", or nothing for the server."""
    if proxy is None or proxy.tunnels:
        return ""
    status_text = headers.get("proxy-status", "")
    if status == LOGIN_WANTED or "error=" in status_text or any(name in headers for name in _OWN_HEADERS):
        return str(proxy)
    return "" if isinstance(body, dict) else f"{proxy}, or the server behind it,"
