"""Picture files in unusual forms: equal pixels to our decoder but not to other programs; and one with another pixel."""

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from pivot.core.images import decode, encode_png


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """Return a chunk of a PNG with its length and its checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of(width: int, height: int, rows: bytes = b"") -> bytes:
    """Return a PNG that states a size in RGB, whatever its compressed rows hold."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", rows) + png_chunk(b"IEND", b"")


def _saved(picture: Image.Image, format_name: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format_name, **options)
    return buffer.getvalue()


def _rotated(data: bytes) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: the viewer turns it by a quarter
    if data.startswith(b"\xff\xd8"):  # the coded pixels as they are
        body = b"Exif\x00\x00" + exif.tobytes().removeprefix(b"Exif\x00\x00")
        return data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:]
    return _saved(Image.fromarray(decode(data)), exif=exif)


def _with_alpha(data: bytes) -> bytes:
    picture = Image.fromarray(decode(data)).convert("RGBA")
    picture.putalpha(3)
    return _saved(picture)


def _animated(data: bytes) -> bytes:
    frame, inverted = Image.fromarray(decode(data)), Image.fromarray(255 - decode(data))
    return _saved(frame, save_all=True, append_images=[inverted], duration=100)


def _with_text(data: bytes) -> bytes:
    if data.startswith(b"\xff\xd8"):
        body = b"pivot_step: 0"
        return data[:2] + b"\xff\xfe" + struct.pack(">H", len(body) + 2) + body + data[2:]
    place = 8 + 25  # after signature and header
    return data[:place] + png_chunk(b"tEXt", b"Comment\x00pivot_step: 0") + data[place:]


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "turned by its orientation": _rotated,
    "with alpha": _with_alpha,
    "with a second frame": _animated,
    "with a comment": _with_text,
    "WebP": lambda data: _saved(Image.fromarray(decode(data)), "WEBP", lossless=True),
}


def one_pixel(image: bytes) -> bytes:
    """Return the picture with one pixel changed by one."""
    pixels = np.array(decode(image))
    pixels[pixels.shape[0] // 2, pixels.shape[1] // 3, 1] ^= 1
    return encode_png(pixels)
