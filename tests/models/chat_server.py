"""A chat completions server for tests: replies are a function of the request, faults a function of request and try.

It speaks plain HTTP/1.1 on asyncio streams, so that it can do what no framework lets one do: cut a body short, send it
a byte at a time, hang up, never answer, or disappear for a while. It can also hold requests for a fixed time in a fixed
number of slots.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pivot.models.openai.model import refused_fields
from pivot.models.preflight import SEED

MODEL = "tiny"
HUGE = 100_000_000
"""Bytes of a reply of the fault ``endless``."""

FAULTS = ("500", "503", "429", "hang", "drop", "cut body", "wrong json", "html", "no choices", "slow", "reset")
"""Faults that replace the answer to a try; ``slow`` is an answer, sent piece by piece."""

_CALL = {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
_OLD_CALL = {"content": None, "function_call": {"name": "f"}}
_LOST = "<think>lost</think><action>left</action>"
BROKEN_OFF: dict[str, dict[str, Any]] = {
    "abort": {"text": "", "finish_reason": "abort"},
    "abort after an action": {"text": _LOST, "finish_reason": "abort"},
    "error": {"text": "<think>", "finish_reason": "error"},
    "filtered": {"text": _LOST, "finish_reason": "content_filter"},
    "tool call": {"text": "", "message": _CALL, "finish_reason": "tool_calls"},
    "tool call and stop": {"text": "", "message": _CALL, "finish_reason": "stop"},
    "old tool call": {"text": "", "message": _OLD_CALL, "finish_reason": "stop"},
    "nothing": {"text": " ", "finish_reason": None},
    "typed abort": {"text": _LOST, "finish_reason": {"type": "abort", "message": "gone"}},
    "a word of nobody": {"text": _LOST, "finish_reason": "repetition"},
}
"""Faults under status 200: answers that neither the model nor the token limit ended."""


def number_of(*parts: Any) -> int:
    """A number that is a function of the parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big")


def key_of(body: dict[str, Any]) -> str:
    """Return a hash of everything a reply may depend on: the messages, the seed and the sampling."""
    parts = {name: body.get(name) for name in ("messages", "seed", "temperature", "top_p", "max_tokens")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def walker(body: dict[str, Any]) -> dict[str, Any]:
    """A grid player that chooses a random direction, and sometimes breaks the reply format."""
    number = number_of(key_of(body))
    action = ("up", "down", "left", "right")[number % 4]
    text = f"<think>try {action}</think><action>{action}</action>"
    if number % 17 == 0:
        text = f"I would go {action}."
    tokens = [number % 1000 + index for index in range(5)]
    return {"text": text, "token_ids": tokens, "logprobs": [-0.25 * (index + 1) for index in range(5)]}


@dataclass
class ServerLog:
    """Record of the requests that reached the server."""

    requests: int = 0
    answered: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_in_flight: int = 0
    endless_bytes: int = 0
    """Bytes that clients read from endless replies."""


class ChatServer:
    """The server, on a thread of its own."""

    def __init__(
        self,
        reply: Callable[[dict[str, Any]], dict[str, Any]] = walker,
        *,
        fault: Callable[[str, int], str | None] = lambda key, tried: None,
        latency: float | Callable[[str], float] = 0.0,
        slots: int = 10_000,
        unknown_fields: frozenset[str] = frozenset(),
        retry_after: str = "0.05",
        key: str | None = None,
        prefix: str = "/v1",
        keeps_bodies: bool = True,
        notes_meetings: bool = False,
        refuses: Callable[[dict[str, Any]], "str | tuple[int, Any] | None"] = lambda body: None,
    ) -> None:
        self.reply, self.fault, self.latency, self.slots = reply, fault, latency, slots
        self.unknown_fields, self.retry_after, self.key, self.prefix = unknown_fields, retry_after, key, prefix
        self.keeps_bodies, self.notes_meetings, self.refuses = keeps_bodies, notes_meetings, refuses
        self.log = ServerLog()
        self.models = [MODEL]
        self.list_answer: tuple[int, Any] | None = None
        """Status and body in place of the list of models."""
        self.about_model: dict[str, Any] = {}
        """Additional fields of every entry of the list of models."""
        self.refusal = ""
        """Message of an error, in place of its status."""
        self.crowd = 0
        """Number of concurrent requests that must be waiting before any is answered."""
        self.stray_refusals = 0
        """Number of the next requests to refuse without a reason."""
        self._tried: Counter[str] = Counter()
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(slots)
        self._in_flight = 0
        self._port = 0
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._port}{self.prefix}"

    def __enter__(self) -> "ChatServer":
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._vanish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=2**24, backlog=1024)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _vanish(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def stop(self) -> None:
        """Drop every connection and take no new one."""
        self._call(self._vanish())

    def start(self) -> None:
        """Listen again at the same address."""
        self._call(self._listen())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client, or this server, hung up
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        if self.key is not None and headers.get("authorization") != self.key:
            message = f"wrong key: {headers.get('authorization', 'nothing')}"
            return await self._send(writer, 401, {"error": {"message": message, "code": "invalid_api_key"}})
        if (method, path) == ("GET", f"{self.prefix}/models"):
            models = {"data": [{"id": name, **self.about_model} for name in self.models]}
            return await self._send(writer, *(self.list_answer or (200, models)))
        if (method, path) != ("POST", f"{self.prefix}/chat/completions"):
            return await self._send(writer, 404, {"detail": "Not Found"})
        body = json.loads(raw)
        if body.get("seed") == SEED and not self.notes_meetings:
            return await self._send(writer, 200, completion({"model": body["model"]} | self._met(body)))
        self.log.requests += 1
        if self.keeps_bodies:
            self.log.bodies.append(body)
            self.log.headers.append(headers)
        refusal = self._refusal_of(body)
        if refusal is not None:
            status, answer = (400, {"error": {"message": refusal}}) if isinstance(refusal, str) else refusal
            return await self._send(writer, status, answer)
        self._in_flight += 1
        self.log.most_in_flight = max(self.log.most_in_flight, self._in_flight)
        try:
            return await self._answer(body, writer)
        finally:
            self._in_flight -= 1

    def _refusal_of(self, body: dict[str, Any]) -> str | tuple[int, Any] | None:
        """Return the message of a refusal, or its status and body; None to answer."""
        if self.stray_refusals:
            self.stray_refusals -= 1
            return "not now"
        unknown = sorted(self.unknown_fields & set(body))
        return f"unrecognised argument: {unknown[0]}" if unknown else self.refuses(body)

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        key = key_of(body)
        self._tried[key] += 1
        fault = self.fault(key, self._tried[key])
        if fault is not None:
            self.log.faults[fault] += 1
            if fault in BROKEN_OFF:
                return await self._send(writer, 200, completion({"model": body["model"]} | BROKEN_OFF[fault]))
            if fault != "slow":
                return await self._misbehave(fault, body, writer)
        async with self._slots:
            latency = self.latency if isinstance(self.latency, float | int) else self.latency(key)
            while self.log.most_in_flight < self.crowd:
                await asyncio.sleep(0.005)
            await asyncio.sleep(latency)
        self.log.answered += 1
        answer = completion({"model": body["model"]} | self.reply(body))
        return await self._send(writer, 200, answer, slow=fault == "slow")

    def _met(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a pre-flight check, which neither counts as a request nor gets a fault."""
        try:
            return self.reply(body)
        except (IndexError, KeyError):  # other requests of the check have no picture
            return {"text": ""}

    async def _misbehave(self, fault: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if fault.isdigit():
            header = f"Retry-After: {self.retry_after}\r\n" if fault == "429" else ""
            error = {"message": self.refusal or f"status {fault} on purpose"}
            return await self._send(writer, int(fault), {"error": error}, header=header)
        if fault == "hang":
            await asyncio.sleep(30)
            return False
        whole = json.dumps(completion({"model": body["model"]} | self.reply(body))).encode()
        if fault == "cut body":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(whole) + whole[: len(whole) // 2])
            await writer.drain()
        elif fault == "reset":
            writer.transport.abort()
        elif fault == "endless":
            await self._send_endless(writer)
        elif fault == "wrong json":
            return await self._raw(writer, 200, whole[:-7])
        elif fault == "html":
            return await self._raw(writer, 200, b"<html><body>Bad gateway</body></html>")
        elif fault == "no choices":
            return await self._send(writer, 200, {"choices": [], "usage": None})
        writer.close()
        return False  # "drop" and the rest: hang up

    async def _send_endless(self, writer: asyncio.StreamWriter) -> None:
        """Send a reply of a hundred megabytes, for as long as the client reads."""
        piece = b" " * 65_536
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % HUGE)
        for _ in range(HUGE // len(piece)):
            writer.write(piece)
            await writer.drain()
            self.log.endless_bytes += len(piece)

    async def _send(self, writer: asyncio.StreamWriter, status: int, data: dict[str, Any], **more: Any) -> bool:
        return await self._raw(writer, status, json.dumps(data).encode(), **more)

    async def _raw(self, writer: Any, status: int, body: bytes, header: str = "", *, slow: bool = False) -> bool:
        lines = (f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}")
        writer.write(("\r\n".join(lines) + f"\r\n{header}\r\n").encode())
        for start in range(0, len(body), 40) if slow else [0]:
            if slow:  # before a piece: after the last one, a client asks again while this request still counts
                await asyncio.sleep(0.01)
            writer.write(body[start : start + 40] if slow else body)
            await writer.drain()
        return True


def completion(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a chat completion in the form of vLLM."""
    message = {"role": "assistant", "content": reply["text"]} | reply.get("message", {})
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reply.get("finish_reason", "stop")}
    if reply.get("logprobs") is not None:
        pairs = zip(reply.get("tokens") or ["x"] * len(reply["logprobs"]), reply["logprobs"], strict=True)
        choice["logprobs"] = {"content": [{"token": text, "logprob": value} for text, value in pairs]}
    if reply.get("token_ids") is not None:
        choice["token_ids"] = reply["token_ids"]
    prompt = reply.get("prompt_tokens", 100)
    usage = {"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20}
    head = {"id": "x", "object": "chat.completion", "created": 0, "model": reply.get("model", MODEL)}
    return head | {"choices": [choice], "usage": usage}


def part(server: ChatServer, **service: Any) -> dict[str, Any]:
    """Return a policy or teacher of a config: the model of a server, without a cache."""
    settings = {"base_url": server.url, "cache": "", **service}
    return {"name": "openai", "options": {"model": MODEL}, "service": settings}


def pictures_of(body: dict[str, Any]) -> list[bytes]:
    """Return the pictures of a request."""
    parts = [part for message in body["messages"] for part in message["content"] if part["type"] == "image_url"]
    return [base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts]


@contextlib.contextmanager
def served(*arguments: Any, **settings: Any) -> Iterator[ChatServer]:
    """Run a server."""
    refused_fields.clear()  # an earlier server may have had the same port
    with ChatServer(*arguments, **settings) as server:
        yield server


def stop_after(server: ChatServer, answers: int) -> threading.Thread:
    """Stop a server after a number of further answers; return the function that does so."""
    last, stop = server.log.answered + answers, threading.Thread(target=server.stop)

    def fault(key: str, tried: int) -> None:
        if server.log.answered >= last and stop.ident is None:
            stop.start()

    server.fault = fault
    return stop
