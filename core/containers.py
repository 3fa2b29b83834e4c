"""Checks that a picture file holds nothing but the pixels that PIVOT decodes.

Other programs read more of a file than its pixels: they apply its orientation tag, blend its alpha channel, play its
second frame, show its comment. Files of a store contain only the chunks or segments that our encoders write; their
compressed bytes may differ between machines.
"""

import re
import zlib
from collections.abc import Iterator

PNG_SIGNATURE, JPEG_SIGNATURE = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_BLOCK = 1 << 20  # bytes that are inflated at a time
_SHOWN_CHUNKS = 60  # characters of a message
_MARKERS = {0xE0: "JFIF", 0xDB: "tables", 0xC0: "baseline", 0xC4: "tables", 0xDA: "scan"}
"""Segments of a baseline JPEG; programs display or apply any other one (Exif, comments, colour profiles)."""


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and body of each chunk of a PNG.

    Raises:
        IndexError: one is cut off, or its checksum is not that of its bytes: Pillow reads it, OpenCV does not.
    """
    index = len(PNG_SIGNATURE)
    while index < len(data):
        length = int.from_bytes(data[index : index + 4], "big")
        kind, body = data[index + 4 : index + 8], data[index + 8 : index + 8 + length]
        if len(body) < length or len(data) < index + length + 12:
            raise IndexError("its last chunk is cut off")
        if int.from_bytes(data[index + 8 + length : index + 12 + length], "big") != zlib.crc32(body, zlib.crc32(kind)):
            raise IndexError(f"the checksum of its chunk {kind.decode('ascii', 'replace')} is wrong")
        yield kind, body
        index += length + 12


def png_problem(data: bytes) -> str | None:
    """Return what a PNG file holds besides 8-bit indexed or RGB pixels, or None.

    Raises:
        IndexError: the file is cut off.
        zlib.error: its rows cannot be inflated.
    """
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
    width, height = (int.from_bytes(header[index : index + 4], "big") for index in (0, 4))
    bodies = dict(chunks)
    if bodies[b"IEND"] or len(header) != 13 or len(bodies.get(b"PLTE", b"")) % 3 or len(bodies.get(b"PLTE", b"")) > 768:
        return "its PNG has a header, palette or end of the wrong length"
    return _stream_problem(b"".join(body for kind, body in chunks if kind == b"IDAT"), width, height, indexed)


def _stream_problem(packed: bytes, width: int, height: int, indexed: bool) -> str | None:
    """Check that the rows inflate to the size of the picture and that no bytes follow them."""
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


def jpeg_problem(data: bytes) -> str | None:
    """Return what a JPEG file holds besides one baseline scan, or None.

    Raises:
        IndexError: the file is cut off.
    """
    index, scans = 2, 0
    while not scans:
        if data[index] != 0xFF:
            raise IndexError("a marker is missing")
        marker, length = data[index + 1], int.from_bytes(data[index + 2 : index + 4], "big")
        if marker not in _MARKERS or (marker == 0xE0 and data[index + 4 : index + 9] != b"JFIF\x00") or length < 2:
            return f"its JPEG holds the segment {marker:02X}"
        if marker == 0xE0 and length != 16:
            return "its JPEG holds a preview"
        scans += marker == 0xDA
        index += length + 2
    # Within the scan FF is followed by 00; the first FF followed by another byte must be the end marker.
    end = re.compile(rb"\xff[^\x00]").search(data, index)
    if end is None or end.group() != b"\xff\xd9":
        return "its JPEG has more than one scan, or no end"
    return f"its JPEG is followed by {len(data) - end.end()} bytes" if end.end() != len(data) else None
