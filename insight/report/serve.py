"""``pivot view``: the viewer served to this machine alone; each page is made on request.

The server answers only the names that the viewer requests; none of them is a path on disk. A request must name this
server as its host, so that a foreign page whose name resolves to this machine is refused. Nothing can be changed
through it, and every answer repeats the policy that no page may load anything from elsewhere.
"""

import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from ...core.errors import ConfigError, PivotError
from ...core.images import CODECS
from .site import Site

HOST = "127.0.0.1"

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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error, unless a browser has left the page early."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Address of the viewer."""
        return f"http://{HOST}:{self.server_port}/"
