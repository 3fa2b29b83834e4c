"""``pivot view``: the viewer served to this machine alone; each page is made on request.

The server answers only the names that the viewer requests; none of them is a path on disk. A request must name this
server as its host, so that a foreign page whose name resolves to this machine is refused. Nothing can be changed
through it, and every answer repeats the policy that no page may load anything from elsewhere.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Protocol
from urllib.parse import urlsplit

from ...core.errors import ConfigError, PivotError
from ...core.images import CODECS
from ...core.storage import Address
from ...datasets.store.nights import nights_of, placed_shards
from .contents import CHUNK, Contents, Selection, contents
from .overview import overview
from .pages import Page, ShardPages
from .plain import json_text, script
from .site import ASSETS, OTHER, asset

HOST = "127.0.0.1"
SHARDS_KEPT = 3
"""Shards that are kept in memory: the one that is looked at and its neighbours."""
PAGES_KEPT = 3 * CHUNK

TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}


def _media_types() -> dict[str, str]:
    return TYPES | {each.suffix: each.mime for each in CODECS.values()}


HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types pivot"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Site(Protocol):
    """Pages by name."""

    def content(self, name: str) -> bytes | None:
        """Return a file of the site; None where there is none.

        Raises:
            StoreError: what it shows cannot be read.
        """
        ...


class LiveSite:
    """Answers names of the static site from the store."""

    def __init__(self, root: Address, selection: Selection, other: Address | None = None) -> None:
        """List the selected episodes, also of a second store; see :func:`.contents.contents` for errors."""
        self._root = root
        self._nights = nights_of(root)
        self._shards = placed_shards(self._nights)
        self.contents: Contents = contents(root, self._nights, selection)
        self._other = None if other is None else LiveSite(other, selection)
        if self._other is not None:
            self.contents.record["other"] = self._other.contents.record["name"]
        self._open: OrderedDict[int, ShardPages] = OrderedDict()
        self._recent: OrderedDict[tuple[int, int], Page] = OrderedDict()
        self._lock = Lock()

    def content(self, name: str) -> bytes | None:
        """Return the file of the static site of this name; None where there is none.

        Raises:
            StoreError: a file of the store is missing or torn by now.
        """
        if name in ASSETS:
            return asset(name)
        if self._other is not None and name.startswith(OTHER):
            return self._other.page(name.removeprefix(OTHER), OTHER)
        return self.page(name)

    def page(self, name: str, prefix: str = "") -> bytes | None:
        """Return a file of this store; ``prefix`` is how the names of its scripts begin."""
        with self._lock:  # an environment is stepped by one thread at a time
            for pattern, answer in self._answers:
                match = re.fullmatch(pattern, name, re.ASCII)
                if match:
                    content = answer(*match.groups())
                    if content is None or not name.endswith(".js"):
                        return content
                    return script(prefix + name.removesuffix(".js"), content.decode("ascii"))
        return None

    @cached_property
    def _answers(self) -> list[tuple[str, Callable[..., bytes | None]]]:
        suffix = "|".join(re.escape(each.suffix) for each in CODECS.values())
        return [
            (r"(contents|overview)\.(?:js|json)", self._whole),
            (r"plots/([a-z_]{1,40}\.svg)", self._plot),
            (r"episodes/\d{1,9}/(\d{1,9})\.json", self._page),
            (r"pages/\d{1,9}/(\d{1,9})\.js", self._chunk),
            (rf"frames/(\d{{1,9}})/(\d{{1,9}})\.(?:{suffix})", self._frame),
            (rf"(frames/(\d{{1,9}})/[cprtw](\d{{1,9}})-\d{{1,9}}\.(?:{suffix}))", self._drawn),
        ]

    @cached_property
    def _overview(self) -> tuple[str, dict[str, bytes]]:
        record, pictures = overview(self._root, self._nights)
        return json_text(record), pictures

    @cached_property
    def _list(self) -> str:
        return json_text(self.contents.record)

    def _whole(self, name: str) -> bytes:
        return (self._list if name == "contents" else self._overview[0]).encode("ascii")

    def _plot(self, name: str) -> bytes | None:
        return self._overview[1].get(f"plots/{name}")

    def _made(self, shard: int, row: int) -> Page:
        """Return a page, made now or recently: its pictures are requested one by one."""
        place = shard, row
        if place not in self._recent:
            self._recent[place] = self._pages(shard).page(row)
            if len(self._recent) > PAGES_KEPT:
                self._recent.popitem(last=False)
        self._recent.move_to_end(place)
        return self._recent[place]

    def _text(self, index: int) -> str:
        return json_text(self._made(*self.contents.places[index]).record)

    def _page(self, number: str) -> bytes | None:
        index = int(number)
        return self._text(index).encode("ascii") if index < len(self.contents.places) else None

    def _chunk(self, number: str) -> bytes | None:
        first = int(number) * CHUNK
        numbers = range(first, min(first + CHUNK, len(self.contents.places)))
        if not numbers:
            return None
        return f"[{','.join(map(self._text, numbers))}]".encode("ascii")

    def _frame(self, shard: str, place: str) -> bytes | None:
        if int(shard) not in self._shown_shards:
            return None
        return self._pages(int(shard)).picture(int(place))

    def _drawn(self, name: str, shard: str, row: str) -> bytes | None:
        if (int(shard), int(row)) not in self._shown:
            return None
        draw = self._made(int(shard), int(row)).drawn.get(name)
        return None if draw is None else draw()

    @cached_property
    def _shown_shards(self) -> set[int]:
        return {shard for shard, _ in self.contents.places}

    @cached_property
    def _shown(self) -> set[tuple[int, int]]:
        return set(self.contents.places)

    def _pages(self, number: int) -> ShardPages:
        if number not in self._open:
            made = ShardPages(*self._shards[number], number, draw_plans=True)
            self._open[number] = made
            if len(self._open) > SHARDS_KEPT:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(number)
        return self._open[number]

    def close(self) -> None:
        """Close the environments that rendered pictures."""
        if self._other is not None:
            self._other.close()
        while self._open:
            self._open.popitem()[1].close()


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is refused by the base class."""

    server: "ViewServer"  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version = "pivot"
    sys_version = ""

    def do_GET(self) -> None:
        """Send a page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Send the headers of a page."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        status, kind, body = self._found()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _found(self) -> tuple[HTTPStatus, str, bytes]:
        plain = "text/plain; charset=utf-8"
        if self.headers.get("Host") not in self.server.names:
            return HTTPStatus.MISDIRECTED_REQUEST, plain, b"this server answers to its own address only\n"
        name = urlsplit(self.path).path.removeprefix("/") or "index.html"
        try:
            body = self.server.site.content(name)
        except PivotError as error:
            self.server.report(str(error))
            return HTTPStatus.INTERNAL_SERVER_ERROR, plain, f"{error}\n".encode(errors="replace")
        if body is None:
            return HTTPStatus.NOT_FOUND, plain, b"no such page\n"
        return HTTPStatus.OK, _media_types().get(name.rpartition(".")[2], plain), body

    def log_message(self, format: str, *args: object) -> None:
        """Print no line per request."""


class ViewServer(ThreadingHTTPServer):
    """The viewer on a port of this machine."""

    daemon_threads = True

    def __init__(self, site: Site, port: int, report: Callable[[str], None]) -> None:
        """Bind the port, any free one for 0; ``report`` gets the messages of errors.

        Raises:
            ConfigError: the port cannot be used.
        """
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"port {port} of {HOST} cannot be used ({error}); choose another --port") from error
        self.site, self.report = site, report
        self.names = {f"{host}:{self.server_port}" for host in (HOST, "localhost")}

    @property
    def address(self) -> str:
        """Address of the viewer."""
        return f"http://{HOST}:{self.server_port}/"
