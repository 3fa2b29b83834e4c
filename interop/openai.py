"""Rows of ``messages`` and ``images``: OpenAI's chat format as ms-swift and LLaMA-Factory read it.

Read in modelscope/ms-swift (``docs/source_en/Customization/Custom-dataset.md``: ``images`` are paths or addresses, one
per ``<image>`` in the texts) and hiyouga/LLaMA-Factory (``data/README.md``: the same columns, also as a JSON list).
Pictures may also be parts of a message (``image_url``), with data URLs. There are no rewards.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ..core.errors import ConfigError
from ..core.plugins import Settings
from .base import (
    Importer,
    Place,
    UnreadableError,
    explained,
    folder_of,
    line_places,
    read_json_below,
    read_line,
    validated,
)
from .chat import ChatSettings, episode_of, message_of
from .episode import RecordedEpisode


class _Row(BaseModel):
    """The fields of a row that are read; others are kept."""

    model_config = ConfigDict(extra="allow")

    messages: list[dict[str, Any]]
    images: list[str | dict[str, Any]] | None = None


_ROWS = TypeAdapter(list[Any])


class OpenAIImporter(Importer):
    """Reader of ``*.jsonl`` files with one chat per line, or of a ``*.json`` file with a list of them."""

    config_type: ClassVar[type[Settings]] = ChatSettings
    accepts_data_urls: ClassVar[bool] = True
    settings: ChatSettings

    def __init__(self, settings: Settings | None = None, **values: Any) -> None:
        """See the base class."""
        super().__init__(settings, **values)
        self._lists: dict[Path, list[Any]] = {}

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the rows of the file, or of all files in the folder, by name."""
        files = sorted((*source.glob("*.jsonl"), *source.glob("*.json"))) if source.is_dir() else [source]
        if not files:
            raise ConfigError(f"{source} holds no *.jsonl or *.json file; name the file with the chats")
        for file in files:
            if file.suffix == ".json":
                yield from self._places_of_list(source, file)
            else:
                yield from line_places(source, file, file.name)

    def _places_of_list(self, source: Path, file: Path) -> Iterator[Place]:
        try:
            rows = self._lists[file] = validated(_ROWS, read_json_below(file.parent, file.name))
        except (UnreadableError, ValidationError) as error:
            reason = explained(error) if isinstance(error, ValidationError) else error
            if file == source:
                raise ConfigError(f"{file} is not a JSON list of rows: {reason}") from error
            yield Place(file.name, file.name, problem=f"it is not a JSON list of rows: {reason}")
            return
        for number in range(len(rows)):
            yield Place(f"{file.name} row {number}", file.name, number)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one row."""
        rows = self._lists.get(folder_of(source) / place.path)
        try:
            if rows is None:
                return self._episode(validated(TypeAdapter(_Row), read_line(source, place)))
            row = rows[place.offset]
            if not isinstance(row, dict):
                raise UnreadableError(f"found a row of type {type(row).__name__}, expected an object")
            return self._episode(_Row.model_validate(row))
        except ValidationError as error:
            raise explained(error) from error

    def _episode(self, row: _Row) -> RecordedEpisode:
        images = [_name(image) for image in row.images or ()]
        total = len(images)
        messages = [message_of(raw, images) for raw in row.messages]
        if images:
            raise UnreadableError(f"found {total} images, but <image> tags for {total - len(images)} of them")
        return episode_of(messages, row.model_extra or {}, self.settings)


def _name(image: str | dict[str, Any]) -> str:
    """Return the path or address of an entry of ``images``."""
    name = image if isinstance(image, str) else image.get("path") or image.get("url")
    if not isinstance(name, str):
        raise UnreadableError("found an image without path, expected a path or an object with one")
    return name
