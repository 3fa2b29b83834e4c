"""PIVOT's own JSON lines, as :class:`~pivot.interop.recorder.Recorder` writes them: a file, or a folder of files."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import Field, TypeAdapter

from ..core.plugins import Settings
from .base import Importer, Place, files_of, line_places, read_line, validated
from .chat import ChatSettings, read_replies
from .episode import RecordedEpisode


class JsonlSettings(ChatSettings):
    """Settings of lines: the dialect of replies without recorded actions, and the words of recorded actions."""

    examples: int | None = Field(default=0, ge=0, le=64)
    """Turns at the beginning of every episode that are examples of the prompt and were not played."""


class JsonlImporter(Importer):
    """Reader of ``*.jsonl`` files with one episode per line; see ``episode.schema.json``."""

    config_type: ClassVar[type[Settings]] = JsonlSettings
    settings: JsonlSettings

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the lines of the file, or of all ``*.jsonl`` files in the folder, by name."""
        for file in files_of(source, ["*.jsonl"], "name the file, or the folder of a Recorder"):
            yield from line_places(source, file, file.name)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one line."""
        episode = validated(TypeAdapter(RecordedEpisode), read_line(source, place))
        for turn in episode.turns if self.settings.words else ():
            words = self.settings.vocabulary
            turn.actions = turn.actions and [
                words.get(str(each).strip().casefold(), each) if isinstance(each, str | int) else each
                for each in turn.actions
            ]
        read_replies(episode, self.settings)
        return episode
