"""Over a hundred answers that no model server should give, byte by byte, and a server that gives them.

A fault is what follows a request on its connection: bytes with pauses between them, then the end of the connection, or
none. Its kind says what has to become of the request: tried ``again`` (nobody knows whether the next answer is
better), ``refused`` (one try, the request's own fault), a wrong ``set-up`` (the run ends with a message), or an
``answer`` after all, however odd it looks.
"""

import asyncio
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

MODEL = "tiny"
Kind = Literal["again", "refused", "set-up", "answer"]


@dataclass(frozen=True)
class Fault:
    """A faulty answer."""

    name: str
    kind: Kind
    parts: Sequence[bytes | float]
    """Bytes, and pauses in seconds."""
    after: Literal["ends", "hangs", "serves"] = "ends"
    """State of the connection after the answer."""


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def said(content: Any = "<action>up</action>", **choice: Any) -> dict[str, Any]:
    """A chat completion."""
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"} | choice
    return {"id": "1", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": usage}


GOOD = json.dumps(said()).encode()
MODELS = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
MANY = "9" * 400
BOMB_BYTES = 4_000_000
"""Unpacked size of a bomb; the tests allow an answer of half that size."""


def _transport() -> list[Fault]:
    def again(name: str, *parts: bytes | float) -> Fault:
        return Fault(name, "again", parts)

    def hangs(name: str, *parts: bytes | float) -> Fault:
        return Fault(name, "again", parts, "hangs")

    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    bomb = b" " * BOMB_BYTES
    extended = chunked + b"%x;a=b\r\n%b\r\n0\r\nX-T: 1\r\n\r\n" % (len(GOOD), GOOD)
    whole_chunk = b"%x\r\n%b\r\n" % (len(GOOD), GOOD)
    return [
        again("hangs up at once"),
        again("half a status line", b"HTTP/1.1 20"),
        again("plain words", b"hello, this is not a web server\r\n\r\n"),
        again("TLS handshake", b"\x16\x03\x03\x00\x7a\x02" + bytes(range(100))),
        again("HTTP/2 frames", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)),
        again("HTTP/0.9", GOOD),
        again("status in words", b"HTTP/1.1 fine OK\r\n\r\n" + GOOD),
        again("negative length", head + b"Content-Length: -5\r\n\r\n" + GOOD),
        again("length of 400 digits", head + b"Content-Length: " + MANY.encode() + b"\r\n\r\n" + GOOD),
        again("body shorter than said", head + b"Content-Length: 99999\r\n\r\n" + GOOD),
        hangs("body shorter, line stays open", head + b"Content-Length: 99999\r\n\r\n" + GOOD),
        again("negative chunk size", chunked + b"-5\r\n" + GOOD),
        again("chunk cut off", chunked + whole_chunk[:40]),
        again("no last chunk", chunked + whole_chunk),
        Fault("unknown transfer encoding", "answer", [head + b"Transfer-Encoding: rot13\r\n\r\n" + GOOD]),
        again("header without colon", b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n" + GOOD),
        again("header of a megabyte", head + b"X-Long: " + b"x" * 1_000_000 + b"\r\n\r\n" + GOOD),
        again("NUL in a header", head + b"X-Odd: a\x00b\r\n\r\n" + GOOD),
        again("says gzip, is none", http(GOOD, "200 OK", "Content-Encoding: gzip")),
        again("gzip cut off", http(gzip.compress(GOOD)[:-12], "200 OK", "Content-Encoding: gzip")),
        again("says deflate, is none", http(GOOD, "200 OK", "Content-Encoding: deflate")),
        again("unknown encoding", http(zlib.compress(GOOD), "200 OK", "Content-Encoding: rot13")),
        Fault("gzip bomb", "refused", [http(gzip.compress(bomb), "200 OK", "Content-Encoding: gzip")]),
        Fault("deflate bomb", "refused", [http(zlib.compress(bomb), "200 OK", "Content-Encoding: deflate")]),
        again("gzip bomb in gzip", http(gzip.compress(gzip.compress(bomb)), "200 OK", "Content-Encoding: gzip, gzip")),
        Fault("longer than allowed", "refused", [http(bomb)]),
        hangs("never answers"),
        hangs("a byte now and then", *[each for byte in head for each in (bytes([byte]), 0.05)]),
        again("only empty lines", b"\r\n" * 2000),
        again("continue for ever", b"HTTP/1.1 100 Continue\r\n\r\n" * 3000),
        Fault("switching protocols", "refused", [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\n\r\n" + GOOD]),
        Fault("continue, then the answer", "answer", [b"HTTP/1.1 100 Continue\r\n\r\n" + http(GOOD)]),
        Fault("gzip though not asked for", "answer", [http(gzip.compress(GOOD), "200 OK", "Content-Encoding: gzip")]),
        Fault("chunked", "answer", [chunked + whole_chunk + b"0\r\n\r\n"]),
        Fault("chunked, in single bytes", "answer", [chunked, *[b"1\r\n%c\r\n" % byte for byte in GOOD], b"0\r\n\r\n"]),
        Fault("chunk extensions and trailers", "answer", [extended]),
        Fault("ended by hanging up", "answer", [head + b"\r\n" + GOOD]),
        again("body longer than said", http(GOOD) + b"and more"),
        Fault("bytes above ASCII in a header", "answer", [http(GOOD, "200 OK", "X-Name: M\xfcller")]),
        Fault("no reason phrase", "answer", [http(GOOD, "200")]),
        Fault("text/html on good JSON", "answer", [http(GOOD).replace(b"application/json", b"text/html")]),
    ]


def _garbled() -> list[Fault]:
    def body(name: str, content: bytes, kind: Kind = "again") -> Fault:
        return Fault(name, kind, [http(content)], "serves")

    def data(name: str, content: Any, kind: Kind = "again") -> Fault:
        return body(name, json.dumps(content).encode(), kind)

    def logprobs(name: str, *values: str) -> Fault:
        items = ",".join(f'{{"token":"a","logprob":{value}}}' for value in values)
        text = json.dumps(said(logprobs="HERE")).replace('"HERE"', f'{{"content":[{items}]}}')
        return body(name, text.encode(), "answer")

    usage = json.dumps(said()).replace('"prompt_tokens": 5', f'"prompt_tokens": {MANY}')
    return [
        body("empty", b""),
        body("a web page", b"<html><body>It works!</body></html>"),
        body("two of them", GOOD + GOOD),
        body("server-sent events", b"data: " + GOOD + b"\n\ndata: [DONE]\n\n"),
        body("null", b"null"),
        body("a number of 5,000 digits", b"9" * 5000),
        body("a list", b"[" + GOOD + b"]"),
        body("an empty object", b"{}"),
        body("bytes that are no UTF-8", b'{"choices": "\xff\xfe"}'),
        body("brackets, 100,000 deep", b"[" * 100_000 + b"]" * 100_000),
        data("an error with status 200", {"error": {"message": "overloaded"}}),
        data("choices null", {"choices": None}),
        data("choices an object", {"choices": {"0": said()["choices"][0]}}),
        data("no choice", {"choices": []}),
        data("a choice of text", {"choices": ["up"]}),
        data("a choice without message", {"choices": [{"text": "up"}]}),
        data("message null", {"choices": [{"message": None}]}),
        data("content a number", said(5)),
        data("content null", said(None), "answer"),
        data("content in parts", said([{"type": "text", "text": "<action>up"}, {"text": "</action>"}]), "answer"),
        data("parts of odd types", said([None, 5, {"text": 7}, {"text": "up"}]), "answer"),
        data("NUL and surrogates", said("a\x00b\ud800"), "answer"),
        data("ANSI escapes and markup", said("\x1b[2J[bold]x[/bold]<script>"), "answer"),
        data("finish reason an object", said(finish_reason={"why": "stop"})),
        data("an abort", said(finish_reason="abort")),
        data("no finish reason", said(finish_reason=None), "answer"),
        data("a reply of a megabyte", said("up " * 350_000), "answer"),
        data("usage a list", said() | {"usage": [1, 2]}, "answer"),
        data("usage in words", said() | {"usage": {"prompt_tokens": "many", "completion_tokens": -4}}, "answer"),
        body("usage of 400 digits", usage.encode(), "answer"),
        data("model an object", said() | {"model": {"name": "x"}, "system_fingerprint": 7}, "answer"),
        logprobs("log-probability of 400 digits", f"-{MANY}"),
        logprobs("log-probability beyond floats", "-1e999", "0"),
        logprobs("log-probability not a number", "NaN"),
        logprobs("log-probability null", "null"),
        data("logprobs a text", said(logprobs="high"), "answer"),
        data("token ids of odd types", said(token_ids=[1.5, -3, None, "a"]), "answer"),
        body("token ids of 400 digits", json.dumps(said(token_ids=["N"])).replace('"N"', MANY).encode(), "answer"),
        body("twice the same key", GOOD[:-1] + b', "choices": []}'),
        body("a byte order mark", b"\xef\xbb\xbf" + GOOD, "answer"),
    ]


def _statuses() -> list[Fault]:
    def status(code: str, kind: Kind, body: bytes = b'{"error": {"message": "no"}}', *headers: str) -> Fault:
        name = f"{code} {headers[0] if headers else ''}{body[:24].decode('ascii', 'replace')}"
        return Fault(name, kind, [http(body, code, *headers)], "serves")

    quota = b'{"error": {"message": "spent", "code": "insufficient_quota"}}'
    odd = b'{"error": {"message": ["a"], "code": {"b": 1}, "type": 5, "param": []}}'
    return [
        status("204 No Content", "again", b""),
        status("301 Moved", "set-up", b"", "Location: /elsewhere"),
        status("308 Moved", "set-up", b"", "Location: http://[bad/"),
        status("400 Bad Request", "refused"),
        status("400 Bad Request", "refused", b""),
        status("400 Bad Request", "refused", odd),
        status("400 Bad Request", "refused", b'{"error": "just text"}'),
        status("400 Bad Request", "refused", b"[" * 100_000),
        status("400 Bad Request", "refused", b"\xff\xfe\x00"),
        status("401 Unauthorized", "set-up"),
        status("402 Payment Required", "refused"),
        status("403 Forbidden", "set-up", b"<html>denied by proxy</html>"),
        status("404 Not Found", "set-up"),
        status("405 Method Not Allowed", "set-up"),
        status("413 Payload Too Large", "refused"),
        status("418 Teapot", "refused"),
        status("422 Unprocessable", "refused"),
        status("429 Too Many", "again", b"", "Retry-After: -7"),
        status("429 Too Many", "again", b"", "Retry-After: 1e400"),
        status("429 Too Many", "again", b"", "Retry-After: soon"),
        status("429 Too Many", "again", b"", "Retry-After: Fri, 99 Foo 2099 25:61:61 GMT"),
        status("429 Too Many", "set-up", quota),
        status("500 Internal", "again"),
        status("502 Bad Gateway", "again", b"<html>nginx</html>"),
        status("503 Unavailable", "again", b""),
        status("529 Overloaded", "again"),
    ]


FAULTS = (*_transport(), *_garbled(), *_statuses())


class RawServer:
    """Server that gives fault ``number`` to requests below ``/number``, and a valid list of models.

    Below ``/all/number`` even the list of models has the fault.
    """

    def __init__(self) -> None:
        self.tried: Counter[int] = Counter()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "RawServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**24, backlog=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        """Address to which the number of a fault is added."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                size = re.search(r"\r\ncontent-length: *(\d+)", head.lower())
                await reader.readexactly(int(size[1]) if size else 0)
                words = head.split()[1].strip("/").split("/")
                everything = words[0] == "all"
                number = int(words[everything])
                if head.startswith("GET") and not everything:
                    writer.write(http(MODELS))
                    continue
                self.tried[number] += 1
                for part in FAULTS[number].parts:
                    if isinstance(part, bytes):
                        writer.write(part)
                        await writer.drain()
                    else:
                        await asyncio.sleep(part)
                if FAULTS[number].after == "ends":
                    return
                if FAULTS[number].after == "hangs":
                    await asyncio.sleep(3600)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
