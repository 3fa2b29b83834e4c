"""What a picture's file holds beside the pixels that PIVOT decodes: nothing, in a store.

Other programs see more of a file than its pixels: they turn it by its orientation tag, blend its alpha, play its second
frame, show its comment. Files of a store have the few parts that our encoders write, whatever their compressed bytes,
which may differ between machines.
"""

import re
import zlib
from collections.abc import Iterator

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_BLOCK = 1 << 20
_SHOWN_CHUNKS = 60
_MARKERS = {0xE0: "JFIF", 0xDB: "tables", 0xC0: "baseline", 0xC4: "tables", 0xDA: "scan"}
"""Segments of a baseline JPEG; all else (Exif, comments, profiles) is shown or obeyed by somebody."""


def container_format(data: bytes) -> str:
    """Return ``png``, ``jpeg`` or ``webp`` by the first bytes, else ``unknown``."""
    if data.startswith(_PNG):
        return "png"
    if data.startswith(_JPEG):
        return "jpeg"
    return "webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else "unknown"


def container_problem(data: bytes, expected: str) -> str | None:
    """Say what a picture's file has that none of a store has; None where there is nothing.

    Args:
        data: the file.
        expected: the format that it should have, ``png`` or ``jpeg``.
    """
    actual = container_format(data)
    if actual != expected:
        return f"the picture is {actual}, expected {expected}"
    try:
        return _png_problem(data) if actual == "png" else _jpeg_problem(data)
    except (IndexError, zlib.error) as error:
        return f"the picture is damaged ({error})"


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(_PNG)
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        if len(body) < length or len(data) < place + length + 12:
            raise IndexError("its last chunk is cut off or no chunk")
        yield kind, body
        place += length + 12


def _png_problem(data: bytes) -> str | None:
    chunks = list(_chunks(data))
    kinds = [kind for kind, _ in chunks]
    if strange := [kind for kind in kinds if kind not in (b"IHDR", b"PLTE", b"IDAT", b"IEND")]:
        return f"its PNG holds the chunk {strange[0].decode('ascii', 'replace')}"
    header = chunks[0][1]
    indexed = header[9] == 3
    if header[8] != 8 or header[9] not in (2, 3) or any(header[10:13]):
        return f"its PNG has bit depth {header[8]} and colour type {header[9]}, expected 8 and 2 or 3"
    frame = [b"IHDR", *([b"PLTE"] if indexed else []), *[b"IDAT"] * kinds.count(b"IDAT"), b"IEND"]
    if kinds != frame or b"IDAT" not in kinds:
        return f"its PNG has the chunks {b' '.join(kinds)[:_SHOWN_CHUNKS].decode('ascii', 'replace')}"
    width, height = (int.from_bytes(header[place : place + 4], "big") for place in (0, 4))
    return _stream_problem(b"".join(body for kind, body in chunks if kind == b"IDAT"), width, height, indexed)


def _stream_problem(packed: bytes, width: int, height: int, indexed: bool) -> str | None:
    """Check that the compressed rows are as long as the picture, and that nothing follows them."""
    inflater, length, rest = zlib.decompressobj(), 0, packed
    expected = height * ((width if indexed else 3 * width) + 1)
    while rest and not inflater.eof and length <= expected:
        length += len(inflater.decompress(rest, _BLOCK))
        rest = inflater.unconsumed_tail
    if length != expected or inflater.unused_data or not inflater.eof:
        return (
            f"its PNG holds {length} bytes of rows, {len(inflater.unused_data)} after them; expected {expected}, none"
        )
    return None


def _jpeg_problem(data: bytes) -> str | None:
    place, scans = 2, 0
    while not scans:
        if data[place] != 0xFF:
            raise IndexError("a marker is missing")
        marker, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4], "big")
        if marker not in _MARKERS or (marker == 0xE0 and data[place + 4 : place + 9] != b"JFIF\x00") or length < 2:
            return f"its JPEG holds the segment {marker:02X}"
        if marker == 0xE0 and length != 16:
            return "its JPEG holds a preview"
        scans += marker == 0xDA
        place += length + 2
    # Within the scan FF is followed by 00; the first other one has to be the end.
    end = re.compile(rb"\xff[^\x00]").search(data, place)
    if end is None or end.group() != b"\xff\xd9":
        return "its JPEG has more than one scan, or no end"
    return f"its JPEG is followed by {len(data) - end.end()} bytes" if end.end() != len(data) else None
