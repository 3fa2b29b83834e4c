"""The picture of a document, or the typed reason why there is none."""

import hashlib
import mmap
from dataclasses import dataclass
from enum import StrEnum

import cv2
import numpy as np

from ...base import Frame

SIDE = 256
"""Pixels of a raster's side."""
MAX_DOCUMENT_BYTES = 512 * 1024
"""Largest document that is drawn, UTF-8."""


class Outcome(StrEnum):
    """What became of a document."""

    OK = "ok"
    EMPTY = "empty"  # nothing but white space
    TOO_LARGE = "too_large"  # more than MAX_DOCUMENT_BYTES
    NOT_TEXT = "not_text"  # not UTF-8, holds NUL, or is compressed
    NOT_SVG = "not_svg"  # not well-formed XML, or the root is not <svg>
    FORBIDDEN = "forbidden"  # declares entities or refers to external ones
    TIMEOUT = "timeout"  # needs more processor time than there is
    MEMORY = "memory"
    RENDER_ERROR = "render_error"  # CairoSVG cannot draw it
    CRASHED = "crashed"  # the worker died of it


@dataclass(frozen=True, slots=True)
class Raster:
    """The picture of a document, or why there is none."""

    outcome: Outcome
    pixels: Frame | None = None
    """Read-only RGB, :data:`SIDE` x :data:`SIDE`, on white; None unless the outcome is ``ok``."""
    detail: str = ""
    """The reason in words, for people; may differ between versions."""


def document_key(document: str) -> str:
    """Return the SHA-256 of the document's UTF-8, 64 hex digits; lone surrogates count as ``?``."""
    return hashlib.sha256(document.encode("utf-8", "replace")).hexdigest()


def refusal(document: str | bytes) -> Raster | None:
    """Return why a document is not even sent to a worker, or None."""
    if len(document) > MAX_DOCUMENT_BYTES:  # before anything that takes time in proportion
        return Raster(Outcome.TOO_LARGE, detail=f"{len(document)} characters; {MAX_DOCUMENT_BYTES} bytes are drawn")
    try:
        data = document if isinstance(document, bytes) else document.encode()
        data.decode()
    except UnicodeError as error:
        reason = "it is compressed (svgz)" if document[:2] == b"\x1f\x8b" else str(error)[:200]
        return Raster(Outcome.NOT_TEXT, detail=f"the document is not UTF-8: {reason}")
    if b"\0" in data:
        return Raster(Outcome.NOT_TEXT, detail="the document holds a NUL character")
    if len(data) > MAX_DOCUMENT_BYTES:
        return Raster(Outcome.TOO_LARGE, detail=f"{len(data)} bytes; at most {MAX_DOCUMENT_BYTES} are drawn")
    return None if data.strip() else Raster(Outcome.EMPTY, detail="the document is empty")


def rgb(pixels: bytes | mmap.mmap) -> Frame:
    """Return the read-only picture of :data:`SIDE` x :data:`SIDE` pixels in cairo's order of channels, BGRx."""
    frame = np.empty((SIDE, SIDE, 3), np.uint8)
    cv2.cvtColor(np.frombuffer(pixels, np.uint8).reshape(SIDE, SIDE, 4), cv2.COLOR_BGRA2RGB, dst=frame)
    frame.flags.writeable = False
    return frame
