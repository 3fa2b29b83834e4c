"""Where storages lie: a local folder is its path, a folder of an object store is its address as text.

Text becomes one or the other in :func:`parse_address` alone, at the doors of the program: a path would take one slash
out of ``s3://bucket/folder``.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path, PosixPath

from ..errors import ConfigError

SCHEMES = {"s3": "Amazon S3 or a server that speaks it", "gs": "Google Cloud Storage", "az": "Azure Blob Storage"}
"""Kinds of object stores by the beginning of their addresses."""

EXPECTED = "expected a folder, or an address such as s3://bucket/folder, gs://bucket/folder or az://container/folder"


@dataclass(frozen=True, slots=True)
class Url:
    """A folder of an object store, such as ``s3://bucket/folder``, without a slash at the end."""

    text: str
    lease: str = field(default="", compare=False, repr=False)
    """By which lease of a writer something may be written here; the lock of the storage gives it out."""

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
        """Which kind of object store: one of ``SCHEMES``."""
        return self.text.partition("://")[0]


class FollowedPath(PosixPath):
    """A local folder below which links are followed, because its user asked for it.

    The permission is part of the address, so that it reaches every process that works on the folder.
    """


Address = Path | Url

_allowed: set[str] = set()


def allow_links(text: str) -> None:
    """Let :func:`parse_address` allow links below a folder from now on, for callers that know its text alone."""
    _allowed.add(text)


def parse_address(text: str | Address, *, follow_links: bool = False) -> Address:
    """Tell a path from an address of an object store; what is one or the other already stays.

    With ``follow_links`` links below the folder are followed; object stores have none.

    Raises:
        ConfigError: it has the shape of an address, but is none of an object store that can be used.
    """
    if not isinstance(text, str):
        return FollowedPath(text) if follow_links and isinstance(text, Path) else text
    scheme, colon, rest = text.partition(":")
    if not colon or not (scheme in SCHEMES or rest.startswith("//")):
        return FollowedPath(text) if follow_links or text in _allowed else Path(text)
    if scheme not in SCHEMES:
        raise ConfigError(f"{text} is no place for a store (unknown scheme {scheme}://); {EXPECTED}")
    match = re.fullmatch(r"//([^/?#\s]+)((?:/[^/?#]+)*)/*", rest)
    if match is None or any(part in (".", "..") for part in match[2].split("/")):
        raise ConfigError(f"{text} is no address of an object store; {EXPECTED}")
    return Url(f"{scheme}://{match[1]}{match[2]}")
