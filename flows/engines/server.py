"""The Prefect server that runs are reported to: its address, and whether it answers.

A build needs no server. If one is configured, as for Prefect's own commands, the build is a flow run of it.
"""

import base64
import http.client
import os
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...core.errors import ConfigError
from ...core.processes import Child

API = "PREFECT_API_URL"
_QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
}


def quiet_prefect() -> None:
    """Keep Prefect offline and quiet; settings of the user win. Call this before Prefect is imported."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    for name in ("NO_PROXY", "no_proxy"):  # a temporary server is on this machine
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))


def configured_server() -> str | None:
    """Return the server of the environment or of the active Prefect profile, read without importing Prefect."""
    if url := os.environ.get(API):
        return url
    home = Path(os.environ.get("PREFECT_HOME") or Path("~/.prefect").expanduser())
    profiles: Mapping[str, Mapping[str, str]] = {}
    active = os.environ.get("PREFECT_PROFILE")
    with suppress(OSError, ValueError):  # Prefect itself reports a file that it cannot read
        content = tomllib.loads(Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml").read_text())
        profiles, active = content.get("profiles", {}), active or content.get("active")
    return profiles.get(active or "", {}).get(API)


def wait_for_server(url: str, limit: float = 0.0, server: Child | None = None) -> None:
    """Return once the server at ``url`` answers, at the latest after ``limit`` seconds.

    Args:
        url: its API.
        limit: seconds to wait; a server that runs already must answer at once.
        server: its process, if it was started here.

    Raises:
        ConfigError: it has ended, does not answer, or refuses the password.
    """
    deadline = time.monotonic() + limit
    while not _answers(url):
        if server is not None and server.status() is not None:
            raise ConfigError(f"the Prefect server ended: {server.last_words() or 'it left no message'}")
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"no Prefect server answers at {url} ({API}); start it with `prefect server start`, or unset {API}; "
                "a build runs without one with --no-prefect"
            )
        time.sleep(0.2)
    if server is None:
        _check_password(url)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - the user's address
            return True
    except urllib.error.HTTPError:
        return True  # it needs Prefect's credentials
    except (OSError, ValueError, http.client.HTTPException):
        return False


def _check_password(url: str) -> None:
    """Send one request that needs the password, because Prefect's client would fail with a traceback.

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
