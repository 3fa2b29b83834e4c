"""The SDK's client as we use it: one connection a request in flight, no retries of its own, answers of bounded size."""

import math
import os
import time
from collections.abc import AsyncIterator, Mapping
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any

from ..address import KEY_VARIABLE, authorization
from ..extras import need
from ..service import Service
from .wire import ANSWER_LIMIT_BYTES

NO_KEY = "none"
"""Sent where OPENAI_API_KEY is not set: local servers want no key, but the SDK wants to send one."""

CONNECT_SECONDS = 10.0
LONGEST_RETRY_AFTER = 600.0
"""No server is obeyed longer than this, seconds."""

_SPARE_CONNECTIONS = 8


def connect(service: Service) -> Any:
    """Return an ``AsyncOpenAI`` client for a server; nothing is sent yet.

    Raises:
        PluginError: the extra is not installed.
    """
    sdk, http = need("openai", "openai"), need("httpx2", "openai")
    login = authorization(service.base_url)
    # Uncompressed: short answers cost more to unpack than to send.
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": login} if login else {})
    connections = service.max_concurrency + _SPARE_CONNECTIONS
    # The wall clock of a request is ours: the SDK's limits are for each read, which a slow stream never exceeds.
    timeout = http.Timeout(None, connect=CONNECT_SECONDS)
    # The SDK's client on aiohttp takes half the time of its default one; the extra brings it.
    client_type = sdk.DefaultAioHttpClient if find_spec("aiohttp") is not None else sdk.DefaultAsyncHttpxClient
    client = client_type(
        limits=http.Limits(max_connections=connections, max_keepalive_connections=connections),
        timeout=timeout,
        event_hooks={"response": [_bounding_hook(http)]},
    )
    return sdk.AsyncOpenAI(
        api_key=os.environ.get(KEY_VARIABLE) or NO_KEY,
        base_url=service.base_url,
        max_retries=0,
        timeout=timeout,
        default_headers=headers,
        http_client=client,
    )


def _bounding_hook(http: Any) -> Any:
    """Return a hook that limits how much of an answer is read, however long the server makes it."""

    class BoundedStream(http.AsyncByteStream):
        """Passes a stream on up to the limit."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > ANSWER_LIMIT_BYTES:
                    raise http.RemoteProtocolError(f"an answer of more than {ANSWER_LIMIT_BYTES} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        response.stream = BoundedStream(response.stream)

    return bound


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for, as number or date; None without a readable one."""
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
