"""Process in the sandbox: reads SVG documents from stdin, writes rasters to shared memory and outcomes to stdout.

It is a new process, without a copy of the parent's memory. It imports CairoSVG, renders a document that makes the
libraries load everything that they load lazily, and then drops its privileges irrevocably (``guards.py``). From then on
it cannot import modules, open fonts, or decode embedded pictures in formats other than :data:`DECODERS` and PNG. The
kernel enforces a limit of processor time per document, also inside C code.

A request is eight bytes of length and the document. An answer is a byte of :data:`STATUSES`, a byte that is 1 if the
worker can be used again, eight bytes of length, and an explanation in UTF-8, which may be empty. Pixels (BGRx, rows
from the top) are written to shared memory, which avoids two copies through the pipe. The descriptor of that memory and
the limits are arguments. The worker sends one answer before any request; its explanation names the active guards.

A worker can be used again unless cairo reported an error (such errors can persist in a font face); after any other
error, it can be used again only if text in every face still looks the same as at the start.
"""

import base64
import gc
import io
import mmap
import re
import signal
import struct
import sys
import unicodedata
import xml.etree.ElementTree
from functools import partial
from types import SimpleNamespace
from typing import IO, Any

import cairocffi
import cairosvg.image
import cairosvg.surface
import defusedxml
from PIL import Image, MpoImagePlugin, TiffImagePlugin, WebPImagePlugin

from .guards import confine

STATUSES = ("ok", "not_svg", "forbidden", "memory", "render_error")
"""Meanings of the first byte of an answer."""
HEADER = struct.Struct("<BBQ")
LENGTH = struct.Struct("<Q")
DECODERS = ("JPEG", "GIF", "WEBP", "BMP", "DIB", "PPM")
"""Formats of embedded pictures that Pillow decodes; cairo decodes PNG, CairoSVG renders SVG."""

_OUT_OF_MEMORY = 1  # expat's error number
_EXPLANATION = 300  # maximum length of an explanation, characters
_TEXT_TAGS = frozenset({"text", "tspan", "textPath", "a", "tref"})
_LOADED_EARLY = (unicodedata, MpoImagePlugin, TiffImagePlugin, WebPImagePlugin)  # modules that libraries import lazily
_DECLARED_ENCODING = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml\s+version\s*=\s*(?:"[^"]*"|'[^']*')\s+encoding\s*=\s*(["'])([^"']*)\1"""
)
_PRIVATE = re.compile(r"(?:/[\w.+-]+){2,}|\b0x[0-9a-fA-F]{5,}")  # paths of this machine, addresses in memory


class _OneFamily(cairosvg.surface.Surface):
    """Surface that renders all text in one font family, whose files are already open."""

    def draw(self, node: Any) -> None:
        if node.tag in _TEXT_TAGS:
            node["font-family"] = "sans-serif"
        super().draw(node)


class _RawSurface(_OneFamily, cairosvg.surface.PNGSurface):
    """Surface that returns its raw pixels instead of a PNG."""

    def __init__(self, tree: Any, *arguments: Any, **options: Any) -> None:
        if tree.tag != "svg":
            raise _NotSvgError(f"the root element is <{str(tree.tag)[:60]}>, expected <svg>")
        super().__init__(tree, *arguments, **options)

    def finish(self) -> None:
        surface: Any = self.cairo
        surface.flush()
        if surface.get_stride() != 4 * surface.get_width():
            raise RuntimeError("cairo padded the rows of the surface")
        self.output.write(surface.get_data())
        surface.finish()


class _PatternSurface(_OneFamily, cairosvg.surface.SVGSurface):
    """Surface for patterns and masks."""


# CairoSVG looks up both classes by these names.
cairosvg.surface.SVGSurface = _PatternSurface
cairosvg.image.Image = SimpleNamespace(open=partial(Image.open, formats=DECODERS))


class _NotSvgError(Exception):
    pass


def render(document: bytes, side: int, picture: io.BytesIO | mmap.mmap) -> None:
    """Render a UTF-8 document on white; write ``side * side * 4`` bytes to the start of ``picture``.

    Raises:
        Exception: any exception of CairoSVG; :func:`answer` classifies it.
    """
    declared = _DECLARED_ENCODING.match(document)
    if declared is not None:  # the document was re-encoded as UTF-8, whatever encoding it declares
        document = document[: declared.start(2)] + b"utf-8" + document[declared.end(2) :]
    picture.seek(0)
    _RawSurface.convert(
        bytestring=document,
        unsafe=False,
        output_width=side,
        output_height=side,
        background_color="white",
        write_to=picture,
    )


def answer(document: bytes, side: int, picture: mmap.mmap) -> tuple[str, str, bool]:
    """Render a document; return status, explanation, and whether its error may persist in this process."""
    status, text, sticks = "ok", "", False
    try:
        render(document, side, picture)
    except _NotSvgError as error:
        status, text = "not_svg", str(error)
    except xml.etree.ElementTree.ParseError as error:
        sticks = error.code == _OUT_OF_MEMORY
        status, text = "memory" if sticks else "not_svg", str(error)
    except defusedxml.DefusedXmlException as error:
        status, text = "forbidden", f"{type(error).__name__}: {error}"
    except MemoryError as error:
        status, text, sticks = "memory", str(error), True
    except cairocffi.CairoError as error:
        status, text, sticks = "render_error", f"cairo: {error}", True
    except Image.UnidentifiedImageError:
        status, text = "render_error", f"an embedded picture is in none of the formats PNG, {', '.join(DECODERS)}"
    except Exception as error:  # noqa: BLE001 - hostile input; the kind of error is the answer
        status, text = "render_error", f"{type(error).__name__}: {error}"
    return status, text, sticks


def _warm_document() -> bytes:
    """Return a document that makes the libraries load everything lazy: fonts, codecs, URL handlers."""
    tile = Image.new("RGB", (2, 2), "red")
    images = []
    for kind in ("PNG", *DECODERS):
        buffer = io.BytesIO()
        tile.save(buffer, kind)
        data = base64.b64encode(buffer.getvalue()).decode()
        images.append(f'<image width="4" height="4" href="data:image/{kind.lower()};base64,{data}"/>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 8 8">
      <style>rect {{ fill: hsl(10, 20%, 30%) }} @import url(none.css);</style>
      <defs><linearGradient id="a"><stop offset="0"/><stop offset="1" stop-color="rgb(1,2,3)"/></linearGradient>
      <clipPath id="c"><circle r="3"/></clipPath><mask id="m"><rect width="8" height="8"/></mask>
      <filter id="f"><feOffset dx="1"/></filter><pattern id="p" width="2" height="2"><path d="M0 0L1 1"/></pattern>
      <marker id="k"><path d="M0 0L1 1"/></marker><symbol id="s"><path d="M0 0A1 1 0 0 0 2 2Z"/></symbol></defs>
      <g clip-path="url(#c)" mask="url(#m)" filter="url(#f)" opacity=".5"><rect width="4" height="4"/></g>
      <path d="M0 0L1 1" fill="url(#a)" stroke="url(#p)" marker-end="url(#k)"/><use xlink:href="#s"/>
      <image href="none.png" width="1" height="1"/><image href="data:text/plain,x" width="1" height="1"/>
      {"".join(images)}<text y="4" font-size="4">Ag</text></svg>""".encode()


def _health_document() -> bytes:
    """Return a document with text in every font face: directly, in a pattern and in a mask."""
    faces = [
        f'<text y="{8 * row + 7}" font-size="8" font-style="{slant}" font-weight="{weight}">Ag</text>'
        for row, (slant, weight) in enumerate(
            (slant, weight) for slant in ("normal", "italic", "oblique") for weight in ("normal", "bold")
        )
    ]
    text = "".join(faces)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48">{text}
      <pattern id="p" width="16" height="48" patternUnits="userSpaceOnUse">{text}</pattern>
      <mask id="m" maskUnits="userSpaceOnUse" x="0" y="0" width="48" height="48"><g fill="#fff">{text}</g></mask>
      <rect x="16" width="16" height="48" fill="url(#p)"/>
      <g mask="url(#m)"><rect width="48" height="48" fill="red"/></g></svg>""".encode()


_HEALTH = _health_document()


def health() -> bytes:
    """Return the picture of text in every face, or the name of the error if this process cannot render it."""
    picture = io.BytesIO()
    try:
        render(_HEALTH, 48, picture)
    except Exception as error:  # noqa: BLE001 - how it fails is what is compared
        return type(error).__name__.encode()
    return picture.getvalue()


def warm_up() -> list[Any]:
    """Trigger all lazy loading of the libraries; return the fonts, because cairo closes files of unreferenced fonts."""
    render(_warm_document(), 8, io.BytesIO())
    context = cairocffi.Context(cairocffi.ImageSurface(cairocffi.FORMAT_ARGB32, 8, 8))
    fonts = []
    for slant in (cairocffi.FONT_SLANT_NORMAL, cairocffi.FONT_SLANT_ITALIC, cairocffi.FONT_SLANT_OBLIQUE):
        for weight in (cairocffi.FONT_WEIGHT_NORMAL, cairocffi.FONT_WEIGHT_BOLD):
            context.select_font_face("sans-serif", slant, weight)
            context.text_extents("Ag")
            fonts.append(context.get_scaled_font())
    return fonts


def _send(answers: IO[bytes], status: str, sound: bool, text: str) -> None:
    body = _PRIVATE.sub("...", text)[:_EXPLANATION].encode("utf-8", "replace")
    answers.write(HEADER.pack(STATUSES.index(status), sound, len(body)) + body)
    answers.flush()


def serve(
    requests: IO[bytes], answers: IO[bytes], picture: mmap.mmap, side: int, seconds: float, healthy: bytes
) -> None:
    """Answer documents until the parent closes the pipe. The timer's default action terminates the process."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        document = requests.read(LENGTH.unpack(head)[0])
        signal.setitimer(signal.ITIMER_PROF, seconds)
        status, text, sticks = answer(document, side, picture)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        sound = status in ("ok", "not_svg", "forbidden") or (not sticks and health() == healthy)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(answers, status, sound, text)


def main() -> None:
    """Load the libraries, drop privileges, report the active guards, and serve."""
    side, address_space, memory, seconds = *map(int, sys.argv[1:4]), float(sys.argv[4])
    picture = mmap.mmap(memory, 4 * side * side)
    fonts = warm_up()
    healthy = health()
    gc.freeze()  # exclude the libraries from garbage collection, which then only scans objects of documents
    sys.meta_path.clear()  # a late import fails at once, without accessing files
    guards = confine(address_space)
    if health() != healthy:
        raise SystemExit("text cannot be rendered after the privileges were dropped")
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _send(answers, "ok", True, " ".join(guards))
    serve(requests, answers, picture, side, seconds, healthy)
    del fonts  # referenced until here
