"""Addresses of storages: a path for a local folder, a :class:`Url` for a folder of an object store.

Only :func:`parse_address` turns text into an address, where it enters the program: ``Path`` would drop a slash of
``s3://bucket/folder``.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from .. import plugins
from ..errors import ConfigError

EXPECTED = "expected a folder, or an address such as s3://bucket/folder, gs://bucket/folder or az://container/folder"


@dataclass(frozen=True, slots=True)
class Url:
    """A folder of an object store, such as ``s3://bucket/folder``, without a slash at the end."""

    text: str
    lease: str = field(default="", compare=False, repr=False)
    """Lease under which a writer may write here; :meth:`Storage.lock` sets it."""

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> "Url":
        return Url(f"{self.text}/{name}", self.lease)

    @property
    def parent(self) -> "Url":
        """The folder above."""
        return Url(self.text.rpartition("/")[0])

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.text.rpartition("/")[2]

    @property
    def scheme(self) -> str:
        """Name of the storage (group ``pivot.storages``), such as ``s3``."""
        return self.text.partition("://")[0]


Address = Path | Url


def parse_address(text: str | Address) -> Address:
    """Return text as a path, or as the address of an object store; a path or :class:`Url` is returned as it is.

    Raises:
        ConfigError: the text has a scheme, but it is not a valid address of a supported object store.
    """
    if not isinstance(text, str):
        return text
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "hub":
        raise ConfigError(
            f"{text} is a dataset of the Hugging Face hub, expected a folder or the address of an object store; build "
            f"into a folder, then publish it: pivot push DIR {text}"
        )
    schemes = plugins.names("storages") if colon else []
    if not colon or not (scheme in schemes or rest.startswith("//")):
        return Path(text)
    if scheme not in schemes:
        raise ConfigError(
            f"{text} cannot hold a store (unknown scheme {scheme}://, registered: {', '.join(schemes)}); {EXPECTED}"
        )
    if "@" in rest.removeprefix("//").partition("/")[0]:
        raise ConfigError(f"{text} holds a login, expected the bucket alone; give keys as environment variables")
    match = re.fullmatch(r"//([^/?#\s]+)((?:/[^/?#]+)*)/*", rest)
    if match is None or any(part in (".", "..") for part in match[2].split("/")):
        raise ConfigError(f"{text} is not an address of an object store; {EXPECTED}")
    return Url(f"{scheme}://{match[1]}{match[2]}")
