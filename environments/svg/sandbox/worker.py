"""Process that renders untrusted SVG documents: documents from stdin, pixels to shared memory, outcomes to stdout.

It is a new process, without a copy of the parent's memory and without its environment variables. CairoSVG fetches
nothing but ``data:`` addresses, embedded pictures are decoded in the formats :data:`DECODERS` and PNG alone, and the
process can neither write files nor exceed its memory. The kernel enforces a limit of processor time per document, also
inside C code.

A request is eight bytes of length and the document. An answer is a byte of :data:`STATUSES`, a byte that is 1 if the
worker can be used again, eight bytes of length, and an explanation in UTF-8, which may be empty. Pixels (BGRx, rows
from the top) are written to shared memory, which avoids two copies through the pipe. The descriptor of that memory and
the limits are arguments. The worker sends one answer before any request. It cannot be used again after an error of
cairo, which can persist in a font face, or after an out-of-memory error.
"""

import gc
import io
import mmap
import re
import resource
import signal
import struct
import sys
import xml.etree.ElementTree
from functools import partial
from types import SimpleNamespace
from typing import IO, Any

import cairocffi
import cairosvg.css
import cairosvg.image
import cairosvg.surface
import defusedxml
from cairosvg.url import parse_url
from PIL import Image

from .css import declarations, normalise, rgba

STATUSES = ("ok", "not_svg", "forbidden", "memory", "render_error")
"""Meanings of the first byte of an answer."""
HEADER = struct.Struct("<BBQ")
LENGTH = struct.Struct("<Q")
DECODERS = ("JPEG", "GIF", "WEBP", "BMP", "DIB", "PPM")
"""Formats of embedded pictures that Pillow decodes; cairo decodes PNG, CairoSVG renders SVG."""

_OUT_OF_MEMORY = 1  # expat's error number
_EXPLANATION = 300  # maximum length of an explanation, characters
_TEXT_TAGS = frozenset({"text", "tspan", "textPath", "a", "tref"})
_DECLARED_ENCODING = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml\s+version\s*=\s*(?:"[^"]*"|'[^']*')\s+encoding\s*=\s*(["'])([^"']*)\1"""
)
_PRIVATE = re.compile(r"(?:/[\w.+-]+){2,}|\b0x[0-9a-fA-F]{5,}")  # paths of this machine, addresses in memory


class _OneFamily(cairosvg.surface.Surface):
    """Surface that renders all text in one font family, whose files are already open, and all else as browsers do."""

    def draw(self, node: Any) -> None:
        if node.tag in _TEXT_TAGS:
            node["font-family"] = "sans-serif"
        normalise(node)
        clip = self.paths.get(parse_url(node.get("clip-path")).fragment)
        if clip is not None and "evenodd" in [
            clip.get("clip-rule"),
            *(each.get("clip-rule") for each in clip.children),
        ]:
            self.context.set_fill_rule(cairocffi.FILL_RULE_EVEN_ODD)  # for the clip alone: CairoSVG restores it
        shape = node.tag in cairosvg.surface.TAGS and not node.children
        both = shape and node.get("stroke", "none") != "none" and node.get("fill") != "none"
        opacity = float(node.pop("opacity", 1)) if both else 1.0
        if opacity < 1:  # opacity of fill and stroke together
            self.context.push_group()
        if both and node.get("paint-order", "").split()[:1] == ["stroke"]:
            fill, stroke = node.get("fill", "black"), node["stroke"]
            for node["fill"], node["stroke"] in (("none", stroke), (fill, "none")):
                super().draw(node)
        else:
            super().draw(node)
        if opacity < 1:
            self.context.pop_group_to_source()
            self.context.paint_with_alpha(opacity)
        self.context.set_fill_rule(cairocffi.FILL_RULE_WINDING)

    def map_color(self, string: str | None, opacity: float = 1) -> tuple[float, ...]:
        """Return a colour of CSS in cairo's form; black for an invalid one, as in CairoSVG."""
        if not string or string.strip().lower() == "none":
            return 0, 0, 0, 0
        red, green, blue, alpha = rgba(string) or (0.0, 0.0, 0.0, 1.0)
        return red, green, blue, alpha * opacity


class _RawSurface(_OneFamily, cairosvg.surface.PNGSurface):
    """Surface that returns its raw pixels instead of a PNG."""

    def __init__(self, tree: Any, *arguments: Any, **options: Any) -> None:
        if tree.tag != "svg":
            raise _NotSvgError(f"the root element is <{str(tree.tag)[:60]}>, expected <svg>")
        _normalise_stops(tree)
        super().__init__(tree, *arguments, **options)

    def finish(self) -> None:
        surface: Any = self.cairo
        surface.flush()
        if surface.get_stride() != 4 * surface.get_width():
            raise RuntimeError("cairo padded the rows of the surface")
        self.output.write(surface.get_data())
        surface.finish()


def _normalise_stops(node: Any) -> None:
    """Normalise the elements that are read without being drawn."""
    for child in node.children:
        if child.tag == "stop" or child.tag.startswith("fe"):
            normalise(child)
        _normalise_stops(child)


class _PatternSurface(_OneFamily, cairosvg.surface.SVGSurface):
    """Surface for patterns and masks."""


# CairoSVG looks up these by their names.
cairosvg.css.parse_declarations = declarations
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


_WARM = b"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><text y="7">Ag</text></svg>"""
"""Document that makes the libraries load fonts, which would otherwise count as processor time of the first document."""


def _send(answers: IO[bytes], status: str, sound: bool, text: str) -> None:
    body = _PRIVATE.sub("...", text)[:_EXPLANATION].encode("utf-8", "replace")
    answers.write(HEADER.pack(STATUSES.index(status), sound, len(body)) + body)
    answers.flush()


def serve(requests: IO[bytes], answers: IO[bytes], picture: mmap.mmap, side: int, seconds: float) -> None:
    """Answer documents until the parent closes the pipe. The timer's default action terminates the process."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        document = requests.read(LENGTH.unpack(head)[0])
        signal.setitimer(signal.ITIMER_PROF, seconds)
        status, text, sticks = answer(document, side, picture)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(answers, status, not sticks, text)


def main() -> None:
    """Load the libraries, set the limits of the process, report that it is ready, and serve."""
    side, address_space, memory, seconds = *map(int, sys.argv[1:4]), float(sys.argv[4])
    picture = mmap.mmap(memory, 4 * side * side)
    render(_WARM, 8, io.BytesIO())
    gc.freeze()  # exclude the libraries from garbage collection, which then only scans objects of documents
    for kind, limit in ((resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, address_space)):
        resource.setrlimit(kind, (limit, limit))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _send(answers, "ok", True, "")
    serve(requests, answers, picture, side, seconds)
