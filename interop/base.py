"""The contract of an import format, and what every format reads with: bounded lines and bounded pictures.

A source is not trusted: names of pictures stay below its folder, files and lines have a largest size, and a picture is
refused by its header before it is decoded. One class and one entry point in the group ``pivot.importers`` add a format.
"""

import base64
import binascii
import codecs
import json
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..core.errors import ConfigError, ImageError, StoreError
from ..core.images import Frame, decode, frame_id
from ..core.plugins import Plugin, Settings
from .episode import RecordedEpisode

MOST_BYTES = 64 << 20
"""Maximum length of a line, and of a file that is read as a whole."""
MOST_PICTURE_BYTES = 16 << 20
_SCHEME = "data:"
_DATA_URL = f"{_SCHEME}image/"
_KNOWN_PICTURES = 4096


Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Place:
    """Location of one episode in a source."""

    label: str
    """Description for people, such as ``line 7``."""
    path: str = ""
    """File or folder, relative to the folder of the source."""
    offset: int = 0
    length: int = 0
    problem: str = ""
    """Reason why the place cannot be read, if it is known before reading."""


class UnreadableError(StoreError):
    """A place of a source that is not an episode of its format."""


class SourceSettings(Settings):
    """Settings of a source in every format."""

    evidence: Literal["audit", "declared"] = "audit"
    """``declared``: the source is read as it was played, by the user's own word, so that episodes which nothing
    confirms are labelled, too, and replies without an action are unusable turns."""
    generator: Literal["", "pivot"] = ""
    """``pivot``: the seeds of the source are those of PIVOT's generator."""


class Importer(Plugin, ABC):
    """Reader of one format of recorded episodes."""

    config_type: ClassVar[type[Settings]] = SourceSettings
    accepts_data_urls: ClassVar[bool] = False
    """Whether pictures may be in the text itself, as data URLs."""

    @abstractmethod
    def places(self, source: Path) -> Iterator[Place]:
        """Yield the places of all episodes of a source, in order, without parsing them.

        Raises:
            ConfigError: the source is not of this format.
        """

    @abstractmethod
    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one episode.

        Raises:
            UnreadableError: the place holds none; the message says what was found and what was expected.
            pydantic.ValidationError: a record is of another form.
        """

    def episode(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one episode; a record of another form is an UnreadableError that names the field."""
        try:
            return self.read(source, place)
        except ValidationError as error:
            raise explained(error) from error
        except RecursionError as error:
            raise UnreadableError("found JSON that is nested too deeply") from error


class Pictures:
    """Pixel ids of the pictures that a source names."""

    def __init__(self, source: Path, *, data_urls: bool) -> None:
        """Read pictures below the folder of ``source``."""
        self._folder, self._data_urls = folder_of(source), data_urls
        self._known: dict[str, str] = {}

    def frame_id(self, name: str) -> str:
        """Return the id of the pixels of a picture; see :func:`pivot.core.images.frame_id`.

        Raises:
            UnreadableError: it is missing, not a picture, too large, or outside the folder of the source.
        """
        key = name if len(name) < 200 else sha256(name.encode()).hexdigest()
        if key not in self._known:
            if len(self._known) >= _KNOWN_PICTURES:
                self._known.clear()
            self._known[key] = frame_id(self.frame(name))
        return self._known[key]

    def frame(self, name: str) -> Frame:
        """Return the pixels of a picture; the errors are those of :meth:`frame_id`."""
        data = self._decoded(name) if name.startswith(_SCHEME) else read_below(self._folder, name)
        try:
            return decode(data)
        except ImageError as error:
            raise UnreadableError(f"picture {name[:80]!r}: {error}") from error

    def _decoded(self, url: str) -> bytes:
        head, _, body = url.partition(",")
        if not self._data_urls:
            raise UnreadableError("found a picture as a data URL, which this format does not have; write it to a file")
        if not head.startswith(_DATA_URL) or not head.endswith(";base64") or len(body) * 3 // 4 > MOST_PICTURE_BYTES:
            raise UnreadableError(
                f"found the data URL {head[:60]!r} of {len(body)} characters, expected data:image/...;base64 of at "
                f"most {MOST_PICTURE_BYTES >> 20} MiB"
            )
        try:
            return base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise UnreadableError(f"a data URL is not base64: {error}") from error


def folder_of(source: Path) -> Path:
    """Return the folder that the names in a source are relative to."""
    return source if source.is_dir() else source.parent


def read_below(folder: Path, name: str, limit: int = MOST_PICTURE_BYTES) -> bytes:
    """Read a file below a folder.

    Raises:
        UnreadableError: the name leads elsewhere, or it is not a regular file of at most ``limit`` bytes.
    """
    path = PurePosixPath(name)
    if not name or "\\" in name or "\0" in name or path.is_absolute() or ".." in path.parts or "://" in name:
        raise UnreadableError(f"found the file name {name[:80]!r}, expected one relative to the folder of the source")
    try:
        real = (folder / path).resolve()
        if not real.is_relative_to(folder.resolve()):
            raise UnreadableError(f"the file {name[:80]!r} is a link that leads out of the folder of the source")
        status = real.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise UnreadableError(
                f"the file {name[:80]!r} has {status.st_size} bytes or is not a regular file; at most {limit >> 20} MiB"
            )
        return real.read_bytes()
    except OSError as error:
        raise UnreadableError(f"cannot read the file {name[:80]!r}: {error.strerror}") from error


def read_json_below(folder: Path, name: str) -> bytes:
    """Read a JSON file below a folder, without the mark of UTF-8 at its start; the errors are those above."""
    return read_below(folder, name, MOST_BYTES).removeprefix(codecs.BOM_UTF8)


def problem_of_file(source: Path, path: Path) -> str:
    """Return why a file of a source may not be opened; empty if it may, and for the source itself."""
    if path == source:
        return ""
    try:
        if not path.resolve().is_relative_to(folder_of(source).resolve()):
            return "it is a link that leads out of the folder of the source"
        return "" if stat.S_ISREG(path.stat().st_mode) else "it is not a regular file"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def files_of(source: Path, patterns: Sequence[str], advice: str) -> list[Path]:
    """Return a source that is a file, or the files of a folder that match one of some patterns, by name.

    Raises:
        ConfigError: the folder has none; the message ends with ``advice``.
    """
    files = sorted(path for each in patterns for path in source.glob(each)) if source.is_dir() else [source]
    if not files:
        raise ConfigError(f"{source} holds no {' or '.join(patterns)} file; {advice}")
    return files


def json_records(kind: TypeAdapter[Record], source: Path, file: Path, what: str) -> Record | Place:
    """Return the records of a JSON file that is read as a whole, or a place with the problem of one file of several.

    Raises:
        ConfigError: the file is the source, and it is not ``what``.
    """
    try:
        return validated(kind, read_json_below(file.parent, file.name))
    except (UnreadableError, ValidationError) as error:
        reason = f"it is not {what}: {explained(error) if isinstance(error, ValidationError) else error}"
        if file == source:
            raise ConfigError(f"cannot read {file}: {reason}") from error
        return Place(file.name, file.name, problem=reason)


def line_places(source: Path, path: Path, name: str) -> Iterator[Place]:
    """Yield a place for every line of a file that is not blank; longer lines than the limit carry the problem.

    Args:
        source: what the user named: the file itself, or its folder, out of which no file may lead.
        path: the file.
        name: its name relative to the folder of the source.

    Raises:
        ConfigError: the file cannot be read.
    """
    if problem := problem_of_file(source, path):
        yield Place(name, name, problem=problem)
        return
    try:
        with path.open("rb") as file:
            number, offset = 0, 0
            while line := file.readline(MOST_BYTES + 1):
                number += 1
                length, problem = len(line), ""
                while len(line) > MOST_BYTES and not line.endswith(b"\n"):
                    line = file.readline(MOST_BYTES + 1)
                    length += len(line)
                if length > MOST_BYTES:
                    problem = f"found a line of {length} bytes, expected at most {MOST_BYTES >> 20} MiB"
                elif b"\0" in line[:64]:
                    problem = "found binary data, expected a line of JSON"
                if problem or not line.isspace():
                    yield Place(f"{name} line {number}", name, offset, length, problem)
                offset += length
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give a readable SOURCE") from error


def read_line(source: Path, place: Place) -> bytes:
    """Read the bytes of a line.

    Raises:
        UnreadableError: it is too long, or gone.
    """
    if place.problem:
        raise UnreadableError(place.problem)
    try:
        with (folder_of(source) / place.path).open("rb") as file:
            file.seek(place.offset)
            line = file.read(place.length)
    except OSError as error:
        raise UnreadableError(f"cannot read it: {error.strerror}") from error
    if not line.endswith(b"\n") and not line.rstrip().endswith(b"}"):
        raise UnreadableError("the last line is torn: it ends in the middle of an object")
    return line.removeprefix(codecs.BOM_UTF8 if place.offset == 0 else b"").strip()


def validated(kind: TypeAdapter[Record], text: bytes) -> Record:
    """Return a record of JSON text; half of a surrogate pair, which no text can hold, becomes a question mark.

    Raises:
        pydantic.ValidationError: the text is not JSON, or does not fit.
    """
    try:
        return kind.validate_json(text)
    except ValidationError as error:
        if not any("hex escape" in each["msg"] for each in error.errors(include_url=False)):
            raise
        return kind.validate_json(json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace"))


def explained(error: ValidationError) -> UnreadableError:
    """Return an error that names the first invalid field of a record."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(each) for each in first["loc"])
    return UnreadableError(f"{where + ': ' if where else ''}{first['msg'][:300]}")
