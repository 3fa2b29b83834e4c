"""Where a model server is, and who asks: addresses are stored, credentials never are.

The key comes from ``OPENAI_API_KEY``. A name and password inside a base URL (``https://me:secret@host/v1``) are taken
out of it before anything is stored, hashed or logged; they stay in the environment of this process and of the worker
processes that it starts, and are sent to that address only.
"""

import base64
import json
import os
from urllib.parse import unquote, urlsplit, urlunsplit

from ..errors import ConfigError

KEY_VARIABLE = "OPENAI_API_KEY"
URL_VARIABLE = "OPENAI_BASE_URL"
_LOGIN_VARIABLE = "PIVOT_SERVER_LOGINS"
"""JSON object from base URL to ``name:password``; set by this process for its workers."""


def bare_url(url: str) -> str:
    """Return ``url`` without name, password, query and fragment; a login in it is remembered for this process only.

    Raises:
        ConfigError: no address of a web server.
    """
    refusal = ConfigError(
        f"base URL {str(url).rpartition('@')[2]!r} is no address of a server; expected something like "
        "http://localhost:8000/v1"
    )
    try:
        parts = urlsplit(str(url).strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refusal from None  # its message holds the URL as it was given
    scheme = parts.scheme.lower()
    if not host or scheme not in ("http", "https"):
        raise refusal
    bare_host = f"[{host}]" if ":" in host else host
    place = bare_host if port is None else f"{bare_host}:{port}"
    bare = urlunsplit((scheme, place, parts.path.rstrip("/"), "", ""))
    if parts.username is not None or parts.password is not None:
        logins = _logins()
        logins[bare] = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        os.environ[_LOGIN_VARIABLE] = json.dumps(logins)
    return bare


def _logins() -> dict[str, str]:
    return json.loads(os.environ.get(_LOGIN_VARIABLE, "{}"))


def authorization(url: str) -> str | None:
    """Return the value of the Authorization header for a bare base URL where a login was given, else None."""
    login = _logins().get(url)
    return None if login is None else "Basic " + base64.b64encode(login.encode()).decode()


def secrets_of(url: str) -> list[str]:
    """Return every secret that goes with a bare base URL, for :func:`censored`."""
    login = _logins().get(url, "")
    found = [
        os.environ.get(KEY_VARIABLE, ""),
        login.partition(":")[2],
        (authorization(url) or "").removeprefix("Basic "),
    ]
    return [secret for secret in found if secret]


def censored(text: str, secrets: list[str]) -> str:
    """Return ``text`` with every secret replaced: servers quote keys in their error messages."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
