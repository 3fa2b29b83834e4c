"""The SDK's client: one connection per concurrent request, without retries, and with a limit on the size of answers.

Redirects are not followed: a redirected request would arrive without its body, or carry our key elsewhere.
"""

import contextlib
import math
import time
import urllib.request
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from ...core.errors import ConfigError, PivotError
from ..address import api_key, split_query
from ..extras import need
from ..service import Service
from .wire import ANSWER_LIMIT_BYTES

NO_KEY = "none"
"""Sent if OPENAI_API_KEY is not set: local servers need no key, but the SDK requires one."""

CONNECT_SECONDS = 10.0
LONGEST_RETRY_AFTER = 600.0
"""Longest waiting time that is accepted from a server, seconds."""

_SPARE_CONNECTIONS = 8

_NO_PROXY = (
    "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY does not hold the address of a usable proxy; expected http://HOST:PORT, "
    "socks5://HOST:PORT with the package socksio, or the server's host in NO_PROXY"
)


def proxy_of(url: str) -> str | None:
    """Return the proxy for a server and the variable that names it, without its login; None for a direct connection.

    Raises:
        ConfigError: the variable does not hold an address.
    """
    server, named = urlsplit(url), urllib.request.getproxies()
    scheme = next((each for each in (server.scheme, "all") if named.get(each)), None)
    if scheme is None or urllib.request.proxy_bypass(server.netloc):
        return None
    address = named[scheme]
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError:
        raise ConfigError(_NO_PROXY) from None
    return f"{parts.scheme.lower()}://{place} of {scheme.upper()}_PROXY"


def connect(service: Service, proxy: str | None = None) -> Any:
    """Return an ``AsyncOpenAI`` client for a server behind ``proxy``; nothing is sent yet.

    Raises:
        PluginError: the extra is not installed.
        ConfigError: the key cannot be sent, or the proxy cannot be used.
    """
    sdk, http = need("openai", "openai"), need("httpx2", "openai")
    base_url, query = split_query(service.base_url)
    connections = service.max_concurrency + _SPARE_CONNECTIONS
    # We limit the whole request: the SDK's limits hold for each read, which a slow stream never exceeds.
    timeout = http.Timeout(None, connect=CONNECT_SECONDS)
    # On aiohttp, which the extra installs, the SDK's client takes half the time of its default.
    # But it sends HTTP to proxies of every other kind, which then never answer.
    fast = find_spec("aiohttp") is not None and (proxy is None or proxy.startswith("http"))
    client_type = sdk.DefaultAioHttpClient if fast else sdk.DefaultAsyncHttpxClient
    try:
        client = client_type(
            limits=http.Limits(max_connections=connections, max_keepalive_connections=connections),
            timeout=timeout,
            follow_redirects=False,
            event_hooks={"response": [_bounding_hook(http)]},
        )
    except (ValueError, ImportError, http.InvalidURL):  # its message may hold the login
        raise ConfigError(_NO_PROXY) from None
    return sdk.AsyncOpenAI(
        api_key=api_key(service.key_variable) or NO_KEY,
        base_url=base_url,
        default_query=query,
        max_retries=0,
        timeout=timeout,
        default_headers={"Accept-Encoding": "identity"},  # short answers cost more to unpack than to send
        http_client=client,
    )


class LongAnswerError(Exception):
    """An answer longer than any model's, whose rest was not read."""


@contextlib.contextmanager
def transport_errors(sdk: Any) -> Iterator[None]:
    """Raise every failure below HTTP as ``APIConnectionError``: the SDK lets errors of aiohttp through.

    Time limits of ``asyncio.timeout`` and our own errors pass unchanged.
    """
    try:
        yield
    except (sdk.APIError, PivotError, TimeoutError):
        raise
    except Exception as error:
        raise sdk.APIConnectionError(message=str(error), request=None) from error


def _bounding_hook(http: Any) -> Any:
    """Return a hook that unpacks an answer and limits its length."""

    class BoundedStream(http.AsyncByteStream):
        """Stream that ends with an error beyond the limit, which counts unpacked bytes."""

        def __init__(self, stream: Any, encoding: str) -> None:
            self._stream = stream
            self._unpacker = None if encoding == "identity" else zlib.decompressobj(_ANY_HEADER)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for packed in self._stream:
                chunk = packed if self._unpacker is None else self._unpacker.decompress(packed, ANSWER_LIMIT_BYTES + 1)
                size += len(chunk)
                if size > ANSWER_LIMIT_BYTES:
                    raise LongAnswerError(f"an answer of more than {ANSWER_LIMIT_BYTES} bytes")
                yield chunk
            if self._unpacker is not None and not self._unpacker.eof:
                raise http.RemoteProtocolError("a compressed answer that is cut off")

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        encoding = response.headers.pop("content-encoding", "identity").strip().lower()
        if encoding not in _ENCODINGS:
            raise http.RemoteProtocolError(f"an answer compressed as {encoding[:40]!r}, which was not requested")
        response.stream = BoundedStream(response.stream, encoding)

    return bound


_ENCODINGS = frozenset({"identity", "gzip", "x-gzip", "deflate"})
"""Encodings that are understood; only the first is requested."""
_ANY_HEADER = 32 + zlib.MAX_WBITS
"""Window bits that make zlib detect gzip or deflate."""


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the waiting time in seconds of a Retry-After header (a number or a date); None without a readable one."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now)
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None
