"""An S3-compatible server on loopback in its own process, and a connection to it that can be cut."""

import contextlib
import hashlib
import json
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pivot.core.storage import Address, Url, objects, open_storage
from pivot.core.storage.lease import LOCK
from pivot.tests.flow_runs import FREE_FOLDERS

BUCKET = "pivot-tests"
_SERVE = """
import logging, sys
logging.disable(logging.CRITICAL)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class ObjectServer:
    """The server, with one bucket."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with the address and the credentials of the server."""
        return environment(self.url)

    def store(self) -> Url:
        """An address that nothing has used yet."""
        return Url(f"s3://{BUCKET}/runs/{uuid4().hex[:8]}")


def environment(url: str) -> dict[str, str]:
    """Variables by which a server is found."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }


@contextlib.contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Start the server, or skip the test where moto or the library is missing."""
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    command = [sys.executable, "-c", _SERVE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        port = next(int(line) for line in lines if line.strip().isdigit())
        server = ObjectServer(port)
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/{BUCKET}", method="PUT")) as answer:
            assert answer.status == 200
        yield server
        process.stdin.close()
        process.terminate()


class Line:
    """A TCP connection to a server that breaks after a number of sent bytes, once or forever."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent = 0
        self.break_at: int | None = None
        self.stays_broken = False
        self.breaks = 0
        self._counting = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.breaks and self.stays_broken:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._port))
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        with contextlib.suppress(OSError), source, target:
            while part := source.recv(4096):
                room = self._room(len(part)) if up else len(part)
                target.sendall(part[:room])
                if room < len(part):
                    for end in (source, target):
                        end.shutdown(socket.SHUT_RDWR)
                    return

    def _room(self, size: int) -> int:
        """Count sent bytes, and return how many of these may still be sent before the connection breaks."""
        with self._counting:
            room = size if self.break_at is None else max(0, min(size, self.break_at - self.sent))
            if room < size:
                self.breaks += 1
                self.break_at = 0 if self.stays_broken else None
            else:
                self.sent += size
            return room


def promised(root: Address) -> dict[str, str]:
    """Return SHA-256 by name of the files of a store whose bytes must not depend on the machine."""
    storage = open_storage(root)
    kept = [name for name in storage.listing() if name.split("/")[0] not in FREE_FOLDERS]
    return {name: hashlib.sha256(storage.read_bytes(name)).hexdigest() for name in kept}


def release(root: Url) -> None:
    """Release a lock whose holder, this process, could not release it."""
    holding = json.loads(open_storage(root).read_bytes(LOCK))
    objects._library().put(objects._client(str(root)), LOCK, json.dumps(holding | {"token": ""}).encode())
