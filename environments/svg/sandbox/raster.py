"""Result of rendering a document: a picture, or a typed reason why there is none."""

import hashlib
import mmap
from dataclasses import dataclass
from enum import StrEnum

import cv2
import numpy as np

from ...base import Frame

SIDE = 256
"""Width and height of a raster, pixels."""
MAX_DOCUMENT_BYTES = 512 * 1024
"""Maximum size of a document, bytes of UTF-8."""


class Outcome(StrEnum):
    """Outcome of rendering a document."""

    OK = "ok"
    EMPTY = "empty"  # only white space
    TOO_LARGE = "too_large"  # more than MAX_DOCUMENT_BYTES
    NOT_TEXT = "not_text"  # not UTF-8, contains NUL, or is compressed
    NOT_SVG = "not_svg"  # not well-formed XML, or the root is not <svg>
    FORBIDDEN = "forbidden"  # declares entities or refers to external ones
    TIMEOUT = "timeout"  # exceeds the limit of processor time
    MEMORY = "memory"
    RENDER_ERROR = "render_error"  # CairoSVG cannot draw it
    CRASHED = "crashed"  # the worker died


@dataclass(frozen=True, slots=True)
class Raster:
    """Picture of a document, or the reason why there is none."""

    outcome: Outcome
    pixels: Frame | None = None
    """Read-only RGB, uint8 (:data:`SIDE`, :data:`SIDE`, 3), on white; None unless the outcome is ``ok``."""
    detail: str = ""
    """Explanation for human readers; may differ between versions."""


def document_key(document: str) -> str:
    """Return the SHA-256 of the document's UTF-8 bytes, 64 hex digits; lone surrogates count as ``?``."""
    return hashlib.sha256(document.encode("utf-8", "replace")).hexdigest()


def refusal(document: str | bytes) -> Raster | None:
    """Return the outcome of a document that is rejected without a worker, or None."""
    if len(document) > MAX_DOCUMENT_BYTES:  # first, because the other checks take time in proportion to the length
        return Raster(Outcome.TOO_LARGE, detail=f"{len(document)} characters; at most {MAX_DOCUMENT_BYTES} bytes")
    try:
        data = document if isinstance(document, bytes) else document.encode()
        data.decode()
    except UnicodeError as error:
        reason = "it is compressed (svgz)" if document[:2] == b"\x1f\x8b" else str(error)[:200]
        return Raster(Outcome.NOT_TEXT, detail=f"the document is not UTF-8: {reason}")
    if b"\0" in data:
        return Raster(Outcome.NOT_TEXT, detail="the document contains a NUL character")
    if len(data) > MAX_DOCUMENT_BYTES:
        return Raster(Outcome.TOO_LARGE, detail=f"{len(data)} bytes; at most {MAX_DOCUMENT_BYTES}")
    return None if data.strip() else Raster(Outcome.EMPTY, detail="the document is empty")


def rgb(pixels: bytes | mmap.mmap) -> Frame:
    """Return the read-only RGB picture of :data:`SIDE` x :data:`SIDE` pixels in cairo's channel order, BGRx."""
    frame = np.empty((SIDE, SIDE, 3), np.uint8)
    cv2.cvtColor(np.frombuffer(pixels, np.uint8).reshape(SIDE, SIDE, 4), cv2.COLOR_BGRA2RGB, dst=frame)
    frame.flags.writeable = False
    return frame
