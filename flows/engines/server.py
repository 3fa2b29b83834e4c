"""The Prefect server of one run: a silent child process that ends with the run.

Prefect can start a temporary server by itself, but that one writes tracebacks to the screen when it ends, dies of
Ctrl-C before the run has reported its end, and survives when the run is killed. Ours is the same application in a
session of its own, and ends when the pipe from its parent closes. If the user has a server (``PREFECT_API_URL``, in the
environment or in Prefect's own settings), the run reports to that one instead.
"""

import base64
import contextlib
import http.client
import os
import re
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ...core.errors import ConfigError, EngineError
from ...core.processes import Child

START_SECONDS = 120.0
"""Longest wait for the server of a run; it takes 5 s on an idle machine, 10 s with a new database."""

_LOOPBACK = "127.0.0.1"
_STACK_LINE = re.compile(r"File |<no Python frame>|(Current thread|Thread) 0x|Extension modules:|[~^]+$|Traceback ")
"""Beginning of a line in a report of a crash that says nothing of its cause."""
_private = False
_private_home = ""


def is_private() -> bool:
    """Whether runs of this process report to a temporary server, whose pages are never seen."""
    return _private


def quiet_prefect() -> None:
    """Keep Prefect offline and quiet; settings of the user win. Call this before Prefect is imported."""
    global _private_home  # noqa: PLW0603 - of the environment of this process
    if "PREFECT_HOME" not in os.environ:
        os.environ["PREFECT_HOME"] = _private_home = str(_home())
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")


def has_private_home() -> bool:
    """Whether ``PREFECT_HOME`` is the folder of private servers, not one that the user chose."""
    return bool(_private_home) and os.environ.get("PREFECT_HOME") == _private_home


def _home() -> Path:
    """Return a writable folder for the records of private servers, one per version of Prefect.

    Its database only migrates forward, and nobody reads the history of a private server.
    """
    name = f"prefect-{version('prefect')}"
    places = [Path(tempfile.gettempdir()) / f"pivot-{os.getuid()}-{name}"]
    with contextlib.suppress(RuntimeError):  # there may be no home folder
        places.insert(0, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pivot" / name)
    return first_writable(places)


def first_writable(places: Sequence[Path]) -> Path:
    """Create and return the first folder for Prefect's records that this user can write.

    Raises:
        ConfigError: none can be written.
    """
    for home in places:
        with contextlib.suppress(OSError):  # not writable: the next one
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(home, os.W_OK) and home.stat().st_uid == os.getuid():
                return home
    raise ConfigError(
        f"no folder for Prefect's records: neither {' nor '.join(map(str, places))} can be written; "
        "set PREFECT_HOME to a folder you may write to"
    )


@dataclass(frozen=True, slots=True)
class FlowServer:
    """The server that a run reports to."""

    url: str
    process: Child | None
    """None for a server of the user."""

    def wait(self, limit: float = START_SECONDS, *, patient: bool = False) -> None:
        """Return as soon as the server answers; a server of the user must answer at once, unless ``patient``.

        Raises:
            ConfigError: a server of the user does not answer, or refuses the password. EngineError: the other does not
                answer, or it ended.
        """
        deadline = time.monotonic() + limit
        while not _answers(self.url):
            if self.process is None:
                if patient and time.monotonic() < deadline:
                    time.sleep(0.5)
                    continue
                raise ConfigError(
                    f"no Prefect server answers at {self.url} (PREFECT_API_URL); start it with `prefect server start`, "
                    "or unset PREFECT_API_URL to run without one"
                )
            ended = self.process.status() is not None
            if ended or time.monotonic() > deadline:
                what = "ended at once" if ended else f"does not answer after {limit:.0f} s"
                said = self.process.last_words()
                if _STACK_LINE.match(said):  # the log itself could not be written to its end
                    said = ""
                full = "" if said or not ended else ", as on a full disk or at a limit of file sizes (ulimit -f)"
                raise EngineError(
                    f"the flow engine (a Prefect server on {_LOOPBACK}) {what}: {said or 'it left no message'}{full}; "
                    f"see that PREFECT_HOME={os.environ.get('PREFECT_HOME', '')} can be written and has room, and run "
                    "the same command again"
                )
            time.sleep(0.05)
        if self.process is None:
            _check_password(self.url)


def start_server() -> FlowServer:
    """Start a server for this process, or take the user's, and make Prefect in this process report to it.

    Returns at once; :meth:`FlowServer.wait` waits until the server is ready. Nothing stops it explicitly: Prefect sends
    its last events while the interpreter shuts down, and the server ends right after that.
    """
    # Imported here: Prefect takes a second to import, and only a build needs it.
    global _private  # noqa: PLW0603 - one server a process, as Prefect's own settings
    from prefect.context import refresh_global_settings_context  # noqa: PLC0415
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415

    chosen = PREFECT_API_URL.value()
    if chosen:
        return FlowServer(str(chosen), None)
    listener = socket.create_server((_LOOPBACK, 0))
    url = f"http://{_LOOPBACK}:{listener.getsockname()[1]}/api"
    command = [sys.executable, "-P", "-m", __name__, str(listener.fileno())]
    process = Child(command, "the flow engine", ConfigError, answers=False, pass_fds=[listener.fileno()])
    # Stays open as a bare descriptor, which no garbage collection closes, until this process is gone.
    os.dup(process.requests)
    listener.close()
    os.environ["PREFECT_API_URL"] = url
    _private = True
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), _LOOPBACK)))
    refresh_global_settings_context()
    return FlowServer(url, process)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - our own http address
            return True
    except urllib.error.HTTPError:
        return True  # it asks for credentials, which Prefect has
    except (OSError, ValueError, http.client.HTTPException):
        return False


def _check_password(url: str) -> None:
    """Send one request that needs the password, because those of Prefect's client fail with a traceback.

    Raises:
        ConfigError: the server refuses it.
    """
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY  # noqa: PLC0415 - takes a second

    if PREFECT_API_KEY.value():
        return  # Prefect's cloud
    password = str(PREFECT_API_AUTH_STRING.value() or "")
    request = urllib.request.Request(f"{url}/admin/version")  # noqa: S310 - the user's address
    if password:
        request.add_header("Authorization", f"Basic {base64.b64encode(password.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        if error.code != http.client.UNAUTHORIZED:
            return  # the run reports it
    except (OSError, http.client.HTTPException):
        return
    has = "the password in PREFECT_API_AUTH_STRING" if password else "requests without a password"
    raise ConfigError(
        f"the Prefect server at {url} refuses {has} (401); set PREFECT_API_AUTH_STRING to the value of the server's "
        "PREFECT_SERVER_API_AUTH_STRING, such as admin:PASSWORD"
    )


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


UNSEEN = (
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED",
    "PREFECT_SERVER_EVENTS_STREAM_OUT_ENABLED",
)
"""Settings of what nobody can see on a server without pages that ends with its run: automations, and a stream of events
that repeats the stored states of runs. They took a third of its time. The environment may switch them on."""


def serve(listener: socket.socket) -> None:
    """Serve Prefect's API on ``listener`` until the parent is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for name in UNSEEN:
        os.environ.setdefault(name, "false")
    import uvicorn  # noqa: PLC0415 - only the server's process needs it
    from prefect.server.api.server import create_app  # noqa: PLC0415

    app = create_app(ephemeral=True, final=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
