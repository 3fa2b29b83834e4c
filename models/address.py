"""Address and credentials of a model server: addresses are stored with their query, credentials never are.

The key comes from ``OPENAI_API_KEY``, or the variable that the service settings name. An address that holds a key, or a
name and password (``https://me:secret@host/v1``), is refused.
"""

import os
import re
from contextlib import suppress
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import getproxies

from ..core.errors import ConfigError, masked

KEY_VARIABLE = "OPENAI_API_KEY"
URL_VARIABLE = "OPENAI_BASE_URL"


def bare_url(url: str) -> str:
    """Return ``url`` without its fragment.

    The query, such as Azure's ``api-version``, stays and is sent with every request (:func:`split_query`).

    Raises:
        ConfigError: ``url`` is not an address of a web server, or holds a login or a key.
    """
    text = str(url).strip()
    refusal = ConfigError(
        f"base URL {text.rpartition('@')[2]!r} is not an address of a server; expected for example "
        "--base-url http://localhost:8000/v1"
    )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refusal from None  # its message holds the URL with its credentials
    scheme = parts.scheme.lower()
    if not host or scheme not in ("http", "https"):
        raise refusal
    bare_host = f"[{host}]" if ":" in host else host
    place = bare_host if port is None else f"{bare_host}:{port}"
    if masked(text) != text:
        raise ConfigError(
            f"base URL of {place} has a login or a key, which would be stored; give the server's key as {KEY_VARIABLE} "
            "instead"
        )
    query = parse_qsl(parts.query, keep_blank_values=True)
    return urlunsplit((scheme, place, parts.path.rstrip("/"), urlencode(query), ""))


def split_query(url: str) -> tuple[str, dict[str, str]]:
    """Return a bare base URL without its query, to which paths can be added, and the query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")), dict(parse_qsl(parts.query))


def api_key(variable: str = KEY_VARIABLE) -> str | None:
    """Return the key that an environment variable holds; None without one.

    Raises:
        ConfigError: the key cannot be sent, or a variable named by the user is not set.
    """
    key = os.environ.get(variable)
    if not key and variable != KEY_VARIABLE:
        raise ConfigError(
            f"{variable} should hold the key of a model server but is not set; set it, or name another variable with "
            "--key-variable"
        )
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            f"{variable} holds a line end, a space or a character that no key has (of {len(key)} characters); set "
            "it to the key alone"
        )
    return key or None


def secrets_of(variable: str) -> list[str]:
    """Return what may be sent and must not be shown: keys, also from ``variable``, and passwords of proxies."""
    secrets = [os.environ.get(name, "") for name in (KEY_VARIABLE, variable)]
    for proxy in getproxies().values():
        with suppress(ValueError):  # no address, which is an error of its own when it is used
            password = urlsplit(proxy).password or ""
            secrets += [password, unquote(password)]
    return [secret for secret in secrets if secret]


def censored(text: str, secrets: list[str]) -> str:
    """Return ``text`` with every secret replaced: servers quote keys in their error messages.

    A secret of less than eight characters may be part of a word, so it is replaced where it stands alone.
    """
    for secret in secrets:
        apart = "" if len(secret) >= 8 else r"(?<!\w)"
        text = re.sub(f"{apart}{re.escape(secret)}{apart.replace('<', '')}", "***", text)
    return masked(text)
