"""PIVOT's own JSON lines, as :class:`~pivot.interop.recorder.Recorder` writes them: a file, or a folder of files."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import TypeAdapter, ValidationError

from ..core.errors import ConfigError
from ..core.plugins import Settings
from ..rollouts.dialect import Words
from .base import (
    Importer,
    Place,
    SourceSettings,
    UnreadableError,
    explained,
    line_places,
    read_line,
    validated,
)
from .episode import RecordedEpisode


class JsonlSettings(SourceSettings, Words):
    """Settings of lines."""


class JsonlImporter(Importer):
    """Reader of ``*.jsonl`` files with one episode per line; see ``episode.schema.json``."""

    config_type: ClassVar[type[Settings]] = JsonlSettings
    settings: JsonlSettings

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the lines of the file, or of all ``*.jsonl`` files in the folder, by name."""
        files = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
        if not files:
            raise ConfigError(f"{source} holds no *.jsonl file; name the file, or the folder of a Recorder")
        for file in files:
            yield from line_places(source, file, file.name)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one line."""
        try:
            episode = validated(TypeAdapter(RecordedEpisode), read_line(source, place))
        except ValidationError as error:
            raise explained(error) from error
        except RecursionError as error:
            raise UnreadableError("found JSON that is nested too deeply") from error
        for turn in episode.turns if self.settings.words else ():
            if turn.actions is not None:
                turn.actions = [
                    self.settings.vocabulary.get(str(each).strip().casefold(), each)
                    if isinstance(each, str | int)
                    else each
                    for each in turn.actions
                ]
        return episode
