"""Dumps of verl's trainer, ``rollout_data_dir`` (and ``validation_data_dir``), with the pictures that VAGEN adds.

Read in volcengine/verl ``verl/trainer/ppo/ray_trainer.py`` (``_dump_generations``: a file ``STEP.jsonl`` per update, a
line per rollout with ``input``, ``output``, ``gts``, ``score``, ``step`` and further columns of the reward) and in
mll-lab-nu/VAGEN ``vagen/ray_trainer.py`` and ``vagen/utils/image_dump_actor.py``: special tokens stay in the texts, and
``image_STEP/images_LINE/K.png`` are the pictures of a rollout in the order in which the model saw them, counted from 0.

Both texts together are the chat, rendered with the template of the model. Of ChatML its marks separate the messages;
where verl removed special tokens, lines that consist of a role do. The first picture, or a board in the text that the
agent was given before its first reply, gives the level; where both do, they have to agree. A dump has no seeds.
"""

import math
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from ..core.plugins import Settings
from .base import Importer, Place, UnreadableError, files_of, folder_of, line_places, read_line, validated
from .chat import ChatSettings, Message, episode_of, text_part
from .episode import RecordedEpisode

_ROLE = "(system|user|assistant|tool)"
_CHATML = re.compile(rf"<\|im_start\|>{_ROLE}\n?(.*?)(?=<\|im_start\|>|\Z)", re.DOTALL)
_PLAIN = re.compile(rf"^{_ROLE}$\n?(.*?)(?=^(?:system|user|assistant|tool)$|\Z)", re.DOTALL | re.MULTILINE)
_PICTURE = re.compile(r"<\|vision_start\|>(?:<\|(?:image|video)_pad\|>)*(?:<\|vision_end\|>)?|<image>")
_END = re.compile(r"<\|endoftext\|>|<\|im_end\|>")


class VerlSettings(ChatSettings):
    """Dialect of a dump."""

    template: Literal["auto", "chatml", "plain"] = "auto"
    """Marks between the messages: those of ChatML, or lines that consist of a role (special tokens removed)."""
    success: str = "traj_success"
    """Column that says whether the rollout succeeded; VAGEN's by default."""


class _Line(BaseModel):
    """The fields of a line that are read; others are kept."""

    model_config = ConfigDict(extra="allow")

    input: str
    output: str
    score: float | None = None
    step: int | None = None


class VerlImporter(Importer):
    """Reader of a folder of ``STEP.jsonl`` files, or of one."""

    config_type: ClassVar[type[Settings]] = VerlSettings
    settings: VerlSettings

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the lines of all dumps, by update."""
        for file in sorted(files_of(source, ["*.jsonl"], "name the rollout_data_dir of the trainer"), key=_update):
            yield from line_places(source, file, file.name)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one rollout."""
        line = validated(TypeAdapter(_Line), read_line(source, place))
        row = dict(line.model_extra or {})
        messages = self._messages(line, source, place)
        success = _success(row.get(self.settings.success))
        kept = {"score": line.score, "step": line.step}
        return episode_of(messages, {"success": success, **row, "id": place.label, "verl": kept}, self.settings)

    def _messages(self, line: _Line, source: Path, place: Place) -> list[Message]:
        text = line.input + line.output
        chatml = "<|im_start|>" in text if self.settings.template == "auto" else self.settings.template == "chatml"
        parts = (_CHATML if chatml else _PLAIN).findall(text)
        if not any(role == "assistant" for role, _ in parts):
            raise UnreadableError(
                f"found no {'<|im_start|>assistant' if chatml else 'line that is assistant'} in input and output; name "
                "the marks with --option template=chatml or plain"
            )
        # A prompt whose beginning was cut lacks messages, and with them the numbers of all later pictures.
        is_whole = text.lstrip().startswith("<|im_start|>" if chatml else ("system\n", "user\n"))
        folder = f"image_{PurePosixPath(place.path).stem}/images_{int(place.label.rpartition(' ')[2]) - 1}"
        messages: list[Message] = []
        number = 0
        for role, content in parts:
            words = _END.sub("", content)
            count = 0 if role == "assistant" else len(_PICTURE.findall(words))
            names = [f"{folder}/{number + index}.png" for index in range(count)] if is_whole else []
            number += count
            said = words if role == "assistant" else _PICTURE.sub("", words)
            texts = [words.strip()] if role == "assistant" else _PICTURE.split(words.strip())
            shown = zip_longest(
                map(text_part, texts), [{"type": "image", "image": each} for each in names or [""] * count]
            )
            parts = [part for pair in shown for part in pair if part and part.get("text", "-")]
            messages.append(Message(role, said.strip(), [each for each in names if _exists(source, each)], parts=parts))
        return messages


def _success(said: Any) -> bool | None:
    """Return the success column's value; None for NaN."""
    return bool(said) if isinstance(said, bool | int | float) and math.isfinite(said) else None


def _exists(source: Path, name: str) -> bool:
    return (folder_of(source) / name).is_file()


def _update(file: Path) -> tuple[int, str]:
    """Sort files by the number of the update that is their name."""
    return (int(file.stem) if file.stem.isdigit() else 0, file.name)


__all__ = ["VerlImporter", "VerlSettings"]
