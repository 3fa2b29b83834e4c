"""Logs of inspect_ai: ``*.eval``, a zip archive with one JSON file per sample, or ``*.json``, one file with all.

Read in UKGovernmentBEIS/inspect_ai: ``src/inspect_ai/log/_recorders/eval.py`` (``samples/ID_epoch_N.json``),
``src/inspect_ai/log/_log.py`` (``EvalSample``), ``src/inspect_ai/log/_condense.py`` (``attachment://HASH`` stands for
an entry of ``attachments``) and ``src/inspect_ai/_util/zipfile.py`` (members are compressed with zstd or deflate).
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, TypeAdapter

from ..core.errors import ConfigError
from ..core.plugins import Settings
from .base import (
    MOST_BYTES,
    Importer,
    Place,
    UnreadableError,
    files_of,
    folder_of,
    json_records,
    problem_of_file,
    validated,
)
from .chat import ChatSettings, Message, episode_of, message_of
from .episode import RecordedEpisode

_SAMPLE = re.compile(r"samples/[^/]+\.json")
_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{1,64})")
_HEADER = struct.Struct("<4s22xHH")
_ENCRYPTED, _ZSTD = 1, 93
_REPEATED = frozenset({"events", "input", "output", "timelines"})
"""Fields of a sample that repeat its messages, or hold the log of every call."""
_VERDICTS = {"C": True, "I": False, 1: True, 0: False}
"""Values of a score that say whether the sample succeeded."""


class _Sample(BaseModel):
    """The fields of a sample that are read; others are kept, but for those of ``_REPEATED``."""

    model_config = ConfigDict(extra="allow")

    id: int | str
    epoch: int = 1
    messages: list[dict[str, Any]] = []
    scores: dict[str, dict[str, Any]] | None = None
    metadata: dict[str, Any] = {}
    attachments: dict[str, str] = {}
    error: dict[str, Any] | None = None
    limit: dict[str, Any] | None = None


class _Log(BaseModel):
    """A log as one JSON file."""

    model_config = ConfigDict(extra="ignore")

    samples: list[Any]


_LOG = TypeAdapter(_Log)


class InspectImporter(Importer):
    """Reader of an ``.eval`` or ``.json`` file, or of all such files in a folder."""

    config_type: ClassVar[type[Settings]] = ChatSettings
    accepts_data_urls: ClassVar[bool] = True
    settings: ChatSettings

    def __init__(self, settings: Settings | None = None, **values: Any) -> None:
        """See the base class."""
        super().__init__(settings, **values)
        self._members: dict[str, list[zipfile.ZipInfo]] = {}
        self._samples: dict[str, list[Any]] = {}

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the samples of every archive, by name."""
        for file in files_of(source, ("*.eval", "*.json"), "name the log, or the folder of logs"):
            if problem := problem_of_file(source, file):
                yield Place(file.name, file.name, problem=problem)
                continue
            if file.suffix == ".json":
                log = json_records(_LOG, source, file, "a log of inspect_ai")
                if isinstance(log, Place):
                    yield log
                    continue
                self._samples[file.name] = log.samples
                for index in range(len(log.samples)):
                    yield Place(f"{file.name} sample {index + 1}", file.name, index)
                continue
            try:
                with zipfile.ZipFile(file) as archive:
                    infos = [each for each in archive.infolist() if _SAMPLE.fullmatch(each.filename)]
            except (OSError, zipfile.BadZipFile, ValueError) as error:
                if file == source:
                    raise ConfigError(
                        f"cannot read {file} as a log of inspect_ai: {error}; finish or repair it"
                    ) from error
                yield Place(file.name, file.name, problem=f"it cannot be read as a log of inspect_ai: {error}")
                continue
            self._members[file.name] = infos
            for index, info in enumerate(infos):
                yield Place(f"{file.name} {info.filename}", file.name, index)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one sample."""
        if place.problem:
            raise UnreadableError(place.problem)
        if place.path in self._samples:
            sample = _Sample.model_validate(self._samples[place.path][place.offset])
        else:
            text = _content(folder_of(source) / place.path, self._members[place.path][place.offset])
            sample = validated(TypeAdapter(_Sample), text)
        attachments = _Attachments(sample.attachments)
        messages = [_message(each, attachments) for each in sample.messages]
        kept = {name: value for name, value in (sample.model_extra or {}).items() if name not in _REPEATED}
        kept |= {"scores": sample.scores, "error": sample.error, "limit": sample.limit}
        facts = {"success": _success(sample.scores), **sample.metadata, "inspect": kept}
        name = f"{sample.id}_epoch_{sample.epoch}"
        return episode_of(messages, {**facts, "id": name}, self.settings)


def _content(path: Path, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member, which may unpack to at most ``MOST_BYTES``.

    Raises:
        UnreadableError: it is larger, encrypted, damaged, or compressed in another way.
    """
    try:
        with path.open("rb") as file:
            file.seek(info.header_offset)
            magic, name, extra = _HEADER.unpack(file.read(_HEADER.size))
            file.seek(name + extra, 1)
            packed = file.read(min(info.compress_size, MOST_BYTES))
        if magic != b"PK\x03\x04" or info.flag_bits & _ENCRYPTED:
            raise UnreadableError("the archive is damaged or encrypted")
        if info.compress_type == zipfile.ZIP_STORED:
            content = packed
        elif info.compress_type == zipfile.ZIP_DEFLATED:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, MOST_BYTES + 1)
        elif info.compress_type == _ZSTD:
            content = pa.input_stream(pa.py_buffer(packed), compression="zstd").read(MOST_BYTES + 1)
        else:
            raise UnreadableError(f"found compression {info.compress_type}, expected none, deflate or zstd")
    except (OSError, struct.error, zlib.error) as error:
        raise UnreadableError(f"the archive is damaged: {error}") from error
    if len(content) > MOST_BYTES:
        raise UnreadableError(f"the sample unpacks to more than {MOST_BYTES >> 20} MiB")
    return content


class _Attachments:
    """Attachments of a sample, which make at most ``MOST_BYTES`` characters of its messages."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts, self._left = texts, MOST_BYTES

    def put_into(self, value: Any) -> Any:
        """Replace references to attachments in a text; a reference to a missing one is kept.

        Raises:
            UnreadableError: the messages would become too long.
        """
        if not isinstance(value, str):
            return value
        self._left -= sum(len(self._texts.get(name, "")) for name in _ATTACHMENT.findall(value))
        if self._left < 0:
            raise UnreadableError(f"its messages have more than {MOST_BYTES >> 20} MiB with their attachments in place")
        return _ATTACHMENT.sub(lambda match: self._texts.get(match[1], match[0]), value)


def _message(raw: Mapping[str, Any], attachments: _Attachments) -> Message:
    """Return a message with its attachments in place."""
    content = raw.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    return message_of({**raw, "content": [_part(part, attachments) for part in parts]}, [])


def _part(part: Any, attachments: _Attachments) -> dict[str, Any]:
    """Return a part of a message with its attachments in place."""
    if not isinstance(part, dict):
        raise UnreadableError(f"found a part of type {type(part).__name__}, expected an object")
    return {name: attachments.put_into(value) for name, value in part.items()}


def _success(scores: Mapping[str, Mapping[str, Any]] | None) -> bool | None:
    """Return the success by the only score; None for several scores, and for one that is neither right nor wrong."""
    values = [score.get("value") for score in (scores or {}).values()]
    return _VERDICTS.get(values[0]) if len(values) == 1 and isinstance(values[0], str | int | float) else None
