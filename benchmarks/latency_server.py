"""A chat server with fixed latency and number of slots, in its own process, that counts its busy slots.

An embedded stand-in for a model: every request holds a slot for the same time and gets one of a few answers, by default
a move. Requests beyond the slots wait in line, as they do in vLLM. It is written on bare protocols, so that it takes
little of the processor that client and server share here.
"""

import asyncio
import json
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

MODEL = "fixed-latency"

Answer = tuple[str, Sequence[str]]
Coach = Callable[[dict[str, Any]], str]
"""Answers the body of a request that asks for JSON."""
_DIRECTIONS = ("up", "down", "left", "right")


def _completion(text: str, tokens: Sequence[str]) -> bytes:
    """Return an answer; with log-probabilities where its tokens are given."""
    logprobs = {"content": [{"token": token, "logprob": -0.25, "bytes": None, "top_logprobs": []} for token in tokens]}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "logprobs": logprobs if tokens else None,
    }
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [choice],
        "usage": {"prompt_tokens": 320, "completion_tokens": 20, "total_tokens": 340},
    }
    return _http(json.dumps(body).encode())


def _http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


MOVES = tuple((f"<think>I shall try {move} now.</think><action>{move}</action>", ()) for move in _DIRECTIONS)
"""Replies of a player: each a text, with its tokens if log-probabilities are requested."""
_MODELS = _http(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())


class _Slots:
    def __init__(self, slots: int, latency: float, answers: Sequence[bytes], coach: Coach | None) -> None:
        self.free, self.latency, self.answers, self.coach = slots, latency, answers, coach
        self.waiting: deque[_Client] = deque()
        self.changes: list[tuple[float, int]] = []
        """When a slot was taken (+1) or freed (-1), on the clock that all processes of the machine share."""
        self.answered = 0

    def ask(self, client: "_Client") -> None:
        if self.free:
            self.free -= 1
            self._take(client)
        else:
            self.waiting.append(client)

    def _take(self, client: "_Client") -> None:
        self.changes.append((time.monotonic(), +1))
        asyncio.get_running_loop().call_later(self.latency, self._done, client)

    def _done(self, client: "_Client") -> None:
        self.changes.append((time.monotonic(), -1))
        self.answered += 1
        client.answer(client.text or self.answers[(self.answered * 2654435761 % 2**32 >> 16) % len(self.answers)])
        if self.waiting:
            self._take(self.waiting.popleft())
        else:
            self.free += 1


class _Client(asyncio.Protocol):
    def __init__(self, slots: _Slots) -> None:
        self.slots, self.buffer = slots, bytearray()
        self.text = b""
        """The answer to the current request, if it does not come from the list."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end]).lower()
        start = head.find(b"content-length:")
        size = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
        if len(self.buffer) < end + 4 + size:
            return
        body = bytes(self.buffer[end + 4 :])
        self.buffer.clear()
        coach = self.slots.coach if b'"response_format"' in body else None
        self.text = b"" if coach is None else _completion(coach(json.loads(body)), ())
        if head.startswith(b"get"):
            self.answer(_MODELS)
        else:
            self.slots.ask(self)

    def answer(self, raw: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(raw)


async def _serve(connection: Any, slots: int, latency: float, answers: Sequence[Answer], coach: Coach | None) -> None:
    state = _Slots(slots, latency, [_completion(*answer) for answer in answers], coach)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Client(state), "127.0.0.1", 0, backlog=1024)
    connection.send(server.sockets[0].getsockname()[1])
    while await loop.run_in_executor(None, connection.recv) == "changes":
        connection.send(state.changes)
        state.changes = []


def _run(connection: Any, slots: int, latency: float, answers: Sequence[Answer], coach: Coach | None) -> None:
    asyncio.run(_serve(connection, slots, latency, answers, coach))


@dataclass(frozen=True, slots=True)
class LatencyServer:
    """A running server."""

    url: str
    slots: int
    connection: Any

    def changes(self) -> list[tuple[float, int]]:
        """Return and forget when slots were taken and freed."""
        self.connection.send("changes")
        return self.connection.recv()


@contextmanager
def latency_server(
    slots: int, latency: float, answers: Sequence[Answer] = MOVES, coach: Coach | None = None
) -> Iterator[LatencyServer]:
    """Run a server that cycles through ``answers``, and through ``coach`` for requests of JSON; times in seconds."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(theirs, slots, latency, answers, coach), daemon=True
    )
    process.start()
    try:
        yield LatencyServer(f"http://127.0.0.1:{ours.recv()}/v1", slots, ours)
    finally:
        ours.send("stop")
        process.join(10)
        process.kill()
