"""Chats, one row each: ``messages``, ShareGPT's ``conversations``, or ``prompt`` and ``completion``, with ``images``.

Read in modelscope/ms-swift (``docs/source_en/Customization/Custom-dataset.md``: ``images`` are paths or addresses, one
per ``<image>`` in the texts) and hiyouga/LLaMA-Factory (``data/README.md``: the same columns, also as a JSON list, and
``conversations`` of ``from`` and ``value``). ``prompt`` and ``completion`` are those of TRL (``docs/source/
dataset_formats.md``, texts or messages) and of the ``results.jsonl`` that verifiers wrote in 2025. Pictures may also be
parts of a message (``image_url``), with data URLs. There are no rewards.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from ..core.plugins import Settings
from .base import Importer, Place, UnreadableError, files_of, folder_of, json_records, line_places, read_line, validated
from .chat import ChatSettings, episode_of, message_of
from .episode import RecordedEpisode


class _Row(BaseModel):
    """The fields of a row that are read; others are kept."""

    model_config = ConfigDict(extra="allow")

    messages: list[dict[str, Any]] | None = None
    conversations: list[dict[str, Any]] | None = None
    prompt: str | list[dict[str, Any]] | None = None
    completion: str | list[dict[str, Any]] | None = None
    images: list[str | dict[str, Any]] | None = None

    def chat(self, examples: int | None) -> list[dict[str, Any]]:
        """Return the messages of the row.

        Raises:
            UnreadableError: it has none, or replies in the prompt of which nobody says whether they were played.
        """
        if self.messages is not None:
            return self.messages
        if self.conversations is not None:
            return [_of_sharegpt(each) for each in self.conversations]
        if self.prompt is None or self.completion is None:
            raise UnreadableError("found a row without messages, conversations, or prompt and completion")
        before, after = _messages(self.prompt, "user"), _messages(self.completion, "assistant")
        replies = sum(each.get("role") == "assistant" for each in before)
        if replies and examples is None:
            raise UnreadableError(
                f"found {replies} replies in the prompt, which are examples or earlier turns; say --option examples=0 "
                f"if all were played, or examples={replies} if none were"
            )
        return before + after


_SPEAKERS = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "observation": "tool"}
"""Roles of ShareGPT under other names."""


def _of_sharegpt(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a message of ShareGPT as one of OpenAI's."""
    speaker, value = raw.get("from", raw.get("role")), raw.get("value", raw.get("content"))
    if speaker == "function_call":
        try:
            call = json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            call = None
        if not isinstance(call, dict):
            raise UnreadableError(f"found the function_call {str(value)[:60]!r}, expected a JSON object with a name")
        return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]}
    others = {name: each for name, each in raw.items() if name not in ("from", "value")}
    return {**others, "role": _SPEAKERS.get(str(speaker), str(speaker)), "content": value}


def _messages(part: str | list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": part}] if isinstance(part, str) else part


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
        for file in files_of(source, ("*.jsonl", "*.json"), "name the file with the chats"):
            if file.suffix != ".json":
                yield from line_places(source, file, file.name)
            elif isinstance(rows := json_records(_ROWS, source, file, "a JSON list of rows"), Place):
                yield rows
            else:
                self._lists[file] = rows
                yield from (Place(f"{file.name} row {number}", file.name, number) for number in range(len(rows)))

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one row."""
        rows = self._lists.get(folder_of(source) / place.path)
        if rows is None:
            return self._episode(validated(TypeAdapter(_Row), read_line(source, place)))
        row = rows[place.offset]
        if not isinstance(row, dict):
            raise UnreadableError(f"found a row of type {type(row).__name__}, expected an object")
        return self._episode(_Row.model_validate(row))

    def _episode(self, row: _Row) -> RecordedEpisode:
        images = [_name(image) for image in row.images or ()]
        total = len(images)
        messages = [message_of(raw, images) for raw in row.chat(self.settings.examples)]
        if images:
            raise UnreadableError(f"found {total} images, but <image> tags for {total - len(images)} of them")
        facts = row.model_extra or {}
        info = facts.get("info")
        return episode_of(messages, {**info, **facts} if isinstance(info, dict) else facts, self.settings)


def _name(image: str | dict[str, Any]) -> str:
    """Return the path or address of an entry of ``images``."""
    name = image if isinstance(image, str) else image.get("path") or image.get("url")
    if not isinstance(name, str):
        raise UnreadableError("found an image without path, expected a path or an object with one")
    return name
