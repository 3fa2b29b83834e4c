"""A proxy on the way to a model server: its refusals are its own, and its password is in no message."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pivot.cli.doctor import server_facts
from pivot.core.errors import ConfigError, ServerGoneError
from pivot.models.address import censored, secrets_of
from pivot.models.openai.connection import proxy_of
from pivot.models.openai.model import OpenAIModel
from pivot.models.service import Service
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.models.test_call_cache import REQUEST

PASSWORD = "pr0xy-passw0rd"
PLAIN, SECURE = "http://models.invalid/v1", "https://models.invalid/v1"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for each in (name, name.upper()):
            monkeypatch.setenv(each, "")
            monkeypatch.delenv(each)


@contextlib.contextmanager
def proxy(status: int, headers: str = "", body: str = "<html>no way</html>") -> Iterator[int]:
    """A proxy that gives every client the same answer; its port."""
    loop, ready, ports = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 {status} Said\r\n{headers}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write((head + body).encode())
            await writer.drain()
        writer.close()

    async def listen() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(listen(), loop).result()
    yield ports[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def message_of(work: Coroutine[Any, Any, Any]) -> str:
    """Return the error of work with a server."""
    with pytest.raises((ConfigError, ServerGoneError)) as raised:
        asyncio.run(work)
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


def outcome(url: str, **service: Any) -> str:
    """Return the error of a first request, within the time that a user waits."""

    async def ask() -> None:
        async with contextlib.aclosing(OpenAIModel(MODEL, None, Service(base_url=url, cache="", **service))) as model:
            await model.answer(replace(REQUEST))

    return message_of(ask())


def checked(url: str) -> str:
    """Return doctor's message about an unusable server."""
    return message_of(server_facts(MODEL, Service(base_url=url, cache="")))


@pytest.mark.parametrize("status", [407, 403, 502])
@pytest.mark.parametrize("url", [PLAIN, SECURE])
def test_a_refusal_on_the_way_names_the_proxy(url: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(status) as port:
        monkeypatch.setenv("ALL_PROXY", f"http://me:{PASSWORD}@127.0.0.1:{port}")
        said = outcome(url, patience_seconds=0.2)
        assert str(status) in said
        assert f"through the proxy http://127.0.0.1:{port} of ALL_PROXY, which NO_PROXY=HOST leaves out" in said
    assert "of ALL_PROXY" in outcome(url, patience_seconds=0.2)  # the server has stopped


@pytest.mark.parametrize("scheme", ["socks5", "socks4", "ftp"])
@pytest.mark.parametrize("url", [PLAIN, SECURE])
def test_a_proxy_that_cannot_be_used_is_one_message(scheme: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://me:{PASSWORD}@gate.invalid:1080")
    said = checked(url)
    assert "does not hold the address of a usable proxy" in said or "ALL_PROXY" in said


def test_another_variable_that_holds_no_address_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"gopher://me:{PASSWORD}@gate.invalid")
    assert "does not hold the address of a usable proxy" in checked(PLAIN)


def test_an_address_that_cannot_be_read_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", f"http://me:{PASSWORD}@[")
    assert "does not hold the address of a usable proxy" in checked(PLAIN)


def test_a_server_that_needs_no_proxy_is_reached_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert proxy_of("http://127.0.0.1:8000/v1") is not None
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1,.inside")
    for url in ("http://127.0.0.1:8000/v1", "https://a.inside/v1", "http://localhost/v1"):
        assert proxy_of(url) is None
    with served() as server:
        assert asyncio.run(server_facts(MODEL, Service(base_url=server.url, cache="")))["address"] == server.url


def test_a_password_that_a_proxy_quotes_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://me:p%40ssw0rd-of-gate@gate.invalid:8080")
    assert censored("no user me with p@ssw0rd-of-gate", secrets_of("KEY")) == "no user me with ***"
