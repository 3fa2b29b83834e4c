"""Prompts of imported episodes: what the agent was sent for each turn, with its pictures."""

from typing import Any

from ..core.identity import canonical_json, digest
from ..core.messages import EncodedFrame, PromptMessages
from ..rollouts.policies.imported import RECORDED
from .base import MOST_BYTES, Pictures, UnreadableError
from .episode import RecordedEpisode, RecordedTurn


class Prompts:
    """Reader of the recorded prompts of an episode; each picture is encoded once."""

    def __init__(self, pictures: Pictures) -> None:
        """Read pictures with ``pictures``."""
        self._pictures = pictures
        self._frames: dict[str, EncodedFrame | None] = {}
        self._left = MOST_BYTES

    def of(self, turn: RecordedTurn) -> tuple[PromptMessages | None, dict[str, EncodedFrame]]:
        """Return the prompt of a turn and its pictures by frame id.

        The prompt is None where none was recorded, a picture of it cannot be read, or the prompts of the episode are
        longer than a line of a source may be.
        """
        frames: dict[str, EncodedFrame] = {}
        messages: list[dict[str, Any]] = []
        for message in turn.prompt:
            parts: list[dict[str, Any]] = []
            for part in message["content"]:
                if part["type"] == "text":
                    self._left -= len(part["text"])
                    parts.append(part)
                elif frame := self._frame(part["image"]):
                    frames[frame.frame_id] = frame
                    parts.append({"type": "image", "frame_id": frame.frame_id})
                else:
                    return None, {}
            messages.append({**message, "content": parts})
        if not messages or self._left < 0:
            return None, {}
        return PromptMessages(digest(messages), *RECORDED, tuple(messages)), frames

    def _frame(self, name: str) -> EncodedFrame | None:
        if name not in self._frames:
            try:
                self._frames[name] = EncodedFrame.encode(self._pictures.frame(name))
            except UnreadableError:
                self._frames[name] = None
        return self._frames[name]


def calls_of(episode: RecordedEpisode) -> str | None:
    """Return the tool calls in the replies in the form of the table ``imports``; None if there are none."""
    if not any(turn.calls or any("tool_calls" in each for each in turn.prompt) for turn in episode.turns):
        return None
    calls = [[{"name": call.name, "arguments": call.arguments} for call in turn.calls] for turn in episode.turns]
    return canonical_json(calls)
