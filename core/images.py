"""Encode, decode and name pictures. A frame's id is a hash of what the model sees, not of the encoded bytes.

Puzzle frames have few colours, so the PNG writer indexes them and filters each row against the one above in a single
compiled pass, then deflates with ISA-L: fewer bytes than RGB in the same time, and an order of magnitude faster than
general writers. Encoded bytes are a function of the pixels and the installed ISA-L (whose output may differ between
processor families), in every process: ``make test WHAT=encoder`` encodes 100,000 pictures in 500. Ids are a function of
the pixels alone.
"""

import hashlib
import io
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from .errors import ImageError

# Not at the first picture: OpenCV sets an environment variable, and these are part of the states of gymnasium's games.
try:
    import cv2
    from isal import isal_zlib as _deflate
except ModuleNotFoundError:  # on a machine that only trains
    cv2 = None
    _deflate: Any = None

Frame = NDArray[np.uint8]
"""RGB, shape (height, width, 3)."""

PNG_SIGNATURE, JPEG_SIGNATURE = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"

MAX_PIXELS = 64_000_000
"""Largest picture that :func:`decode` opens; 192 MB of RGB."""

_COLOUR_RGB, _COLOUR_INDEXED = 2, 3
_FILTER_UP = 2
_LEVEL = 0
"""Compression level of ISA-L; levels 1 and 2 are not deterministic across processes."""
_MAX_COLOURS = 256
_KEPT_SCRATCH = 32_000_000  # bytes: enough for collages of renders
_SLOTS = 1024  # of the colour hash table: a power of two, and at most a quarter full


def check_frame(frame: Frame) -> Frame:
    """Return ``frame`` in C order.

    Raises:
        ImageError: it is not a non-empty uint8 array of shape (height, width, 3).
    """
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        actual = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
        raise ImageError(f"not an RGB frame: found {actual}, expected uint8 (height, width, 3); convert it first")
    if frame.size == 0:
        raise ImageError(f"empty frame: found shape {frame.shape}, expected at least 1x1 pixels")
    return np.ascontiguousarray(frame)


def frame_id(frame: Frame) -> str:
    """Return the public id of a frame: 64 hex digits of SHA-256.

    The hashed bytes are the ASCII text ``"{height}x{width}x3:"``, decimal and without padding, followed by
    ``height * width * 3`` bytes of RGB, row by row from the top, each row from the left, R then G then B. For a lossy
    format the frame is the decoded picture, ``frame_id(decode(data))``.

    Raises:
        ImageError: not an RGB frame.
    """
    frame = check_frame(frame)
    height, width = frame.shape[:2]
    state = hashlib.sha256(f"{height}x{width}x3:".encode("ascii"))
    state.update(frame.data)
    return state.hexdigest()


def encode_png(frame: Frame) -> bytes:
    """Return the frame as a lossless PNG: indexed up to 256 colours, RGB above, every row with filter Up.

    Pillow writes it, in other bytes, where OpenCV, ISA-L or numba is missing, such as on a machine that only trains.

    Raises:
        ImageError: not an RGB frame.
    """
    frame = check_frame(frame)
    index_and_filter = _compiled_filter()
    if index_and_filter is None or cv2 is None:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()
    height, width = frame.shape[:2]
    # Of each pixel four bytes packed and one indexed; of each row one for its filter.
    memory = _working_memory(height * (5 * width + 1))
    packed, rest = memory[: height * width * 4], memory[height * width * 4 :]
    pixels = cv2.cvtColor(frame, cv2.COLOR_RGB2RGBA, dst=packed.reshape(height, width, 4)).view(np.uint32)[..., 0]
    colours = np.empty(_MAX_COLOURS, np.uint32)
    rows = rest.reshape(height, width + 1)
    used = index_and_filter(pixels, colours, rows)
    if used:
        palette = colours[:used].view(np.uint8).reshape(used, 4)[:, :3]
        return _png((width, height, _COLOUR_INDEXED), {b"PLTE": palette.tobytes()}, rows)
    rows, flat = memory[: height * (3 * width + 1)].reshape(height, 3 * width + 1), frame.reshape(height, -1)
    rows[:, 0] = _FILTER_UP
    rows[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
    return _png((width, height, _COLOUR_RGB), {}, rows)


def encode_jpeg(frame: Frame, quality: int = 90) -> bytes:
    """Return the frame as a baseline JPEG, for photo-like renders; what the model sees is ``decode`` of it.

    Raises:
        ImageError: not an RGB frame.
    """
    buffer = io.BytesIO()
    Image.fromarray(check_frame(frame)).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def decode(data: bytes) -> Frame:
    """Return the pixels of a picture file as RGB; alpha is dropped, orientation tags are not applied.

    The file is of one of :func:`readable_formats`.

    Pillow decodes, because trainers see the dataset through it, and because it is quiet and checks sizes first.

    Raises:
        ImageError: the bytes are no such picture, are torn, or hold more than ``MAX_PIXELS`` pixels.
    """
    names = [each.pillow for each in readable_formats().values()]
    try:
        with Image.open(io.BytesIO(data), formats=names) as picture:
            pixels = picture.width * picture.height
            frame = np.array(picture.convert("RGB")) if pixels <= MAX_PIXELS else None
    except Exception as error:  # untrusted bytes make decoders fail in many ways; the reason travels on
        is_unknown = isinstance(error, UnidentifiedImageError)  # its message contains a memory address
        reason = "unknown or damaged format" if is_unknown else f"{type(error).__name__}: {error}"
        raise ImageError(
            f"cannot decode a picture of {len(data)} bytes: {reason}; expected an intact {', '.join(names)} file"
        ) from error
    if frame is None:
        raise ImageError(f"picture of {pixels} pixels is too large: at most {MAX_PIXELS} are read; scale it down")
    return frame


@dataclass(frozen=True, slots=True)
class ImageFormat:
    """A format of picture files that :func:`decode` reads."""

    pillow: str
    """Pillow's name of the format: Pillow decodes, because trainers see the dataset through it."""
    mime: str
    """Media type, such as ``image/png``."""
    suffix: str
    """Ending of file names, without the dot."""
    beginning: re.Pattern[bytes]
    """Pattern of the first bytes of a file."""


@dataclass(frozen=True, slots=True)
class Codec(ImageFormat):
    """A format that frames, collages and panels are stored in; a new one is one entry of :data:`CODECS`."""

    encode: Callable[[Frame], bytes]
    """Return a file that :func:`decode` reads, in exactly the pixels of the frame if the codec is lossless."""
    lossless: bool


LOSSLESS = "png"
"""Codec of pictures that PIVOT composes itself, such as collages for a model."""

CODECS: dict[str, Codec] = {
    "png": Codec("PNG", "image/png", "png", re.compile(PNG_SIGNATURE), encode_png, lossless=True),
    "jpeg": Codec("JPEG", "image/jpeg", "jpg", re.compile(JPEG_SIGNATURE), encode_jpeg, lossless=False),
}
"""Codecs by the name in column ``format``. The module of a plugin environment may add its own when it is imported."""


def codec(name: str) -> Codec:
    """Return the codec of a name.

    Raises:
        ImageError: no codec has this name.
    """
    if name not in CODECS:
        raise ImageError(f"unknown picture format {name!r}: stores hold {', '.join(CODECS)}")
    return CODECS[name]


_WEBP = ImageFormat("WEBP", "image/webp", "webp", re.compile(rb"RIFF.{4}WEBP", re.DOTALL))


def readable_formats() -> dict[str, ImageFormat]:
    """Return the formats that :func:`decode` reads, by name; further decoders would only be attack surface.

    Stores hold the formats of :data:`CODECS`; WebP is read from data of other origin.
    """
    return {**CODECS, "webp": _WEBP}


def container_format(data: bytes) -> str:
    """Return the name of the format that the first bytes of a file are of, else ``unknown``."""
    return next((name for name, each in readable_formats().items() if each.beginning.match(data)), "unknown")


_scratch = threading.local()
"""Working memory of each thread, kept between pictures: fresh pages would cost more than the encoding itself."""


def _working_memory(size: int) -> NDArray[np.uint8]:
    """Return ``size`` bytes with undefined content, valid until the next call in this thread."""
    memory: NDArray[np.uint8] | None = getattr(_scratch, "memory", None)
    if memory is None or memory.size < size:
        memory = np.empty(size, np.uint8)
        if size <= _KEPT_SCRATCH:
            _scratch.memory = memory
    return memory[:size]


@cache
def _compiled_filter() -> Callable[..., int] | None:
    """Return the compiled filter; None if a package of the fast writer is missing."""
    try:
        from .compiled import compiled  # noqa: PLC0415 - imports numba, which readers of stores do without
    except ModuleNotFoundError:
        return None
    return None if _deflate is None else compiled(_index_and_filter)


def _index_and_filter(pixels: NDArray[np.uint32], colours: NDArray[np.uint32], filtered: NDArray[np.uint8]) -> int:
    """Write the PNG rows of the indexed picture into ``filtered`` (height, width + 1); return how many colours it has.

    ``pixels`` (height, width) holds one number a colour; ``colours`` receives them in order of first appearance.
    Returns 0 as soon as they do not fit: on a photo that is within the first rows.
    """
    height, width = pixels.shape
    slot_colour = np.zeros(_SLOTS, np.uint32)
    slot_index = np.full(_SLOTS, -1, np.int16)
    above = np.zeros(width, np.uint8)
    indices = np.zeros(width, np.uint8)
    used = 0
    row_above = pixels[0]
    previous = np.uint32(~pixels[0, 0])
    index = np.uint8(0)
    for y in range(height):
        row = pixels[y]
        out = filtered[y]
        out[0] = _FILTER_UP
        difference = np.uint32(0)
        for x in range(width):  # no early exit, so that it vectorises
            difference |= row[x] ^ row_above[x]
        row_above = row
        if y > 0 and difference == 0:
            out[1:] = 0
            continue
        for x in range(width):
            colour = row[x]
            if colour != previous:
                previous = np.uint32(colour)
                slot = ((np.int64(colour) * 2654435761) >> 16) & (_SLOTS - 1)
                while slot_index[slot] >= 0 and slot_colour[slot] != colour:
                    slot = (slot + 1) & (_SLOTS - 1)
                if slot_index[slot] < 0:
                    if used == len(colours):
                        return 0
                    slot_colour[slot] = colour
                    slot_index[slot] = used
                    colours[used] = colour
                    used += 1
                index = np.uint8(slot_index[slot])
            indices[x] = index
        for x in range(width):
            out[x + 1] = indices[x] - above[x]
        above, indices = indices, above
    return used


def _png(shape: tuple[int, int, int], more: Mapping[bytes, bytes], rows: Frame) -> bytes:
    """Return a PNG of ``shape`` (width, height, colour type) from its filtered rows, with ``more`` chunks."""
    width, height, colour_type = shape
    # Eight bits a sample; deflate, adaptive filters, not interlaced: the zeros.
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, colour_type, 0, 0, 0])
    parts = [PNG_SIGNATURE]
    for kind, body in ((b"IHDR", header), *more.items(), (b"IDAT", _deflate.compress(rows, _LEVEL)), (b"IEND", b"")):
        tagged = kind + body
        parts.append(len(body).to_bytes(4, "big") + tagged + _deflate.crc32(tagged).to_bytes(4, "big"))
    return b"".join(parts)
