"""The proxy between us and a server: which one the environment names, and which failures are its own.

Behind ``HTTP_PROXY``, ``HTTPS_PROXY`` or ``ALL_PROXY`` a refusal may come from the proxy, and then no key, name or
address of the server mends it. To a server on HTTPS the proxy speaks before the server does, and the client says so; on
plain HTTP its answer looks like the server's, but for the status 407 and some headers. A login in the variable is never
shown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ...errors import ConfigError

LOGIN_WANTED = 407
SOCKS_PACKAGE = "socksio"
_SCHEMES = ("http", "https")
_SOCKS = ("socks5", "socks5h")
_OWN_HEADERS = ("x-squid-error", "proxy-authenticate")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, as a variable of the environment names it."""

    variable: str
    scheme: str
    place: str
    """Host and port."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tunnels: bool = True
    """Whether it only connects us (HTTPS), so that whatever is answered afterwards comes from the server."""

    def __str__(self) -> str:
        """Return what messages call it."""
        return f"the proxy {self.scheme}://{self.place} ({self.variable})"

    @property
    def is_socks(self) -> bool:
        """Whether it speaks SOCKS."""
        return self.scheme in _SOCKS

    def check(self) -> None:
        """See whether the client can use it.

        Raises:
            ConfigError: it cannot.
        """
        instead = "name an HTTP proxy there, or the server's host in NO_PROXY"
        if self.is_socks and find_spec(SOCKS_PACKAGE) is None:
            raise ConfigError(
                f"{self} speaks SOCKS, which needs a package that is not installed: pip install {SOCKS_PACKAGE}; or "
                f"{instead}"
            )
        if self.scheme not in (*_SCHEMES, *_SOCKS):
            raise ConfigError(f"{self} is of no kind that can be used (http, https, socks5); {instead}")

    def refusal(self, status: int, where: str) -> ConfigError:
        """Return the error for a proxy that does not let us through to the server at ``where``."""
        if status == LOGIN_WANTED:
            return ConfigError(
                f"{self} wants a login before it connects to {where} (status {status}); give it in {self.variable} as "
                "http://NAME:PASSWORD@HOST:PORT, or name the server's host in NO_PROXY"
            )
        return ConfigError(
            f"{self} refuses to connect to {where} (status {status}); have it allow that, or name the server's host in "
            "NO_PROXY"
        )


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy that the environment names for a server; None for a direct connection."""
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
        raise ConfigError(f"{variable} holds no address of a proxy; expected http://HOST:PORT") from None
    secrets = tuple(each for each in (parts.password, unquote(parts.password or "")) if each)
    return Proxy(variable, parts.scheme.lower(), place, secrets, tunnels)


def status_of(error: BaseException) -> int | None:
    """Return the status with which a proxy refused to connect us, from the client's error; None for another trouble."""
    cause = error.__cause__
    while cause is not None:
        if type(cause).__name__ in ("ClientHttpProxyError", "ProxyError"):
            status = getattr(cause, "status", None) or re.match(r"(\d{3})\b", str(cause))
            return int(status[1]) if isinstance(status, re.Match) else status
        cause = cause.__cause__
    return None


def is_about(error: BaseException) -> bool:
    """Whether a client's error is about the proxy, not the server."""
    cause = error.__cause__
    while cause is not None:
        if "Proxy" in type(cause).__name__:
            return True
        cause = cause.__cause__
    return False


def speaks(proxy: Proxy | None, status: int, headers: Mapping[str, str], body: Any) -> str:
    """Say who gave an error status: the proxy, perhaps the proxy, or nothing where it was the server."""
    if proxy is None or proxy.tunnels:
        return ""
    told = headers.get("proxy-status", "")
    if status == LOGIN_WANTED or "error=" in told or any(name in headers for name in _OWN_HEADERS):
        return str(proxy)
    return "" if isinstance(body, dict) else f"{proxy}, or the server behind it,"
