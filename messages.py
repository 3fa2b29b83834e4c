"""What a model is shown: chat messages whose pictures are named by frame id, and the pictures themselves."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PromptMessages:
    """A rendered prompt: chat messages whose images are named by frame id."""

    template: str
    version: str
    messages: tuple[dict[str, Any], ...]
    """``{"role": ..., "content": [{"type": "text", "text": ...} | {"type": "image", "frame_id": ...}]}``."""
    prompt_hash: str


@dataclass(frozen=True, slots=True)
class EncodedFrame:
    """A frame as stored: its id is the SHA-256 over shape and decoded RGB (spec section 9)."""

    frame_id: str
    width: int
    height: int
    format: str
    image: bytes


REPLY_LIMIT_BYTES = 64 * 1024
"""Longest reply that is read and stored by default, in UTF-8 bytes; ``profile.reply_limit`` may say otherwise."""


def cut_reply(text: str, limit_bytes: int = REPLY_LIMIT_BYTES) -> str:
    """Return the longest start of ``text`` that fits into ``limit_bytes`` of UTF-8 and ends with a whole character.

    Lone surrogates, which UTF-8 cannot hold and which a JSON reply may contain, become ``?``.
    """
    if len(text) <= limit_bytes and text.isascii():
        return text
    # A character takes at least one byte, so the slice bounds the work by the limit and not by the reply.
    encoded = text[:limit_bytes].encode("utf-8", errors="replace")
    return encoded[:limit_bytes].decode("utf-8", errors="ignore")
