"""The process inside the sandbox: reads SVG documents from stdin, writes rasters to stdout.

It starts as a script of its own, so nothing of the parent's memory is in it, imports CairoSVG, draws one document that
touches every lazy corner of the libraries, and then gives its rights away for good: no new file descriptor of any kind
(so no file and no socket can be opened, by whatever code), no written byte to a file, no new process, a bounded address
space. Each document gets a budget of processor time that the kernel enforces, also inside loops of C code.

A request is eight bytes of length and the document; an answer is one byte of :data:`STATUSES` and eight bytes of
length, then nothing or an explanation in UTF-8; pixels (BGRx, rows from the top) go into memory that both processes
share, which spares two copies through the pipe. The memory's descriptor and the budgets come as arguments.
"""

import base64
import gc
import io
import mmap
import os
import resource
import signal
import struct
import sys
import xml.etree.ElementTree
from typing import IO, Any

import cairocffi
import cairosvg.surface
import defusedxml
from PIL import Image

STATUSES = ("ok", "not_svg", "forbidden", "memory", "render_error")
"""Meaning of the first byte of an answer."""
HEADER = struct.Struct("<BQ")
LENGTH = struct.Struct("<Q")

_EXPLANATION = 300  # characters of an error that travel back
_TEXT_TAGS = frozenset({"text", "tspan", "textPath", "a", "tref"})


class _RawSurface(cairosvg.surface.PNGSurface):
    """A surface that hands over its pixels as they are, without a PNG in between."""

    def __init__(self, tree: Any, *arguments: Any, **options: Any) -> None:
        if tree.tag != "svg":
            raise _NotSvgError(f"the root element is <{str(tree.tag)[:60]}>, expected <svg>")
        super().__init__(tree, *arguments, **options)

    def draw(self, node: Any) -> None:
        """Draw a node; text in one family, whose files are open already."""
        if node.tag in _TEXT_TAGS:
            node["font-family"] = "sans-serif"
        super().draw(node)

    def finish(self) -> None:
        surface: Any = self.cairo
        surface.flush()
        if surface.get_stride() != 4 * surface.get_width():
            raise RuntimeError("cairo padded the rows of the surface")
        self.output.write(surface.get_data())
        surface.finish()


class _NotSvgError(Exception):
    pass


def render(document: bytes, side: int, picture: io.BytesIO | mmap.mmap) -> None:
    """Write ``side * side * 4`` bytes of the document on white to the start of ``picture``.

    Raises:
        Exception: whatever CairoSVG raises; :func:`answer` sorts it.
    """
    picture.seek(0)
    _RawSurface.convert(
        bytestring=document,
        unsafe=False,
        output_width=side,
        output_height=side,
        background_color="white",
        write_to=picture,
    )


def answer(document: bytes, side: int, picture: mmap.mmap) -> tuple[int, bytes]:
    """Draw one document and return the status and the explanation, if any."""
    try:
        render(document, side, picture)
        return 0, b""
    except (xml.etree.ElementTree.ParseError, _NotSvgError) as error:
        status, text = "not_svg", str(error)
    except defusedxml.DefusedXmlException as error:
        status, text = "forbidden", f"{type(error).__name__}: {error}"
    except MemoryError as error:
        status, text = "memory", str(error)
    except Exception as error:  # noqa: BLE001 - hostile input; the kind of error is the answer
        # Cairo reports its failed allocations as an exception of its own, with a status of that name.
        status = "memory" if "NO_MEMORY" in str(error) or "out of memory" in str(error) else "render_error"
        text = f"{type(error).__name__}: {error}"
    return STATUSES.index(status), text[:_EXPLANATION].encode("utf-8", "replace")


def _warm_document() -> bytes:
    """Return a document that makes the libraries load and open whatever they load late: fonts, codecs, url handlers."""
    tile = Image.new("RGB", (2, 2), "red")
    images = []
    for kind in ("PNG", "JPEG", "GIF"):
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


def _open_fonts() -> list[Any]:
    """Return the fonts that text can have, with their files open: cairo closes those that nobody holds."""
    context = cairocffi.Context(cairocffi.ImageSurface(cairocffi.FORMAT_ARGB32, 8, 8))
    fonts = []
    for slant in (cairocffi.FONT_SLANT_NORMAL, cairocffi.FONT_SLANT_ITALIC, cairocffi.FONT_SLANT_OBLIQUE):
        for weight in (cairocffi.FONT_WEIGHT_NORMAL, cairocffi.FONT_WEIGHT_BOLD):
            context.select_font_face("sans-serif", slant, weight)
            context.text_extents("Ag")
            fonts.append(context.get_scaled_font())
    return fonts


def _lock_in(address_space: int) -> None:
    """Give away every right that rendering does not need; there is no way back, hard limits are set too."""
    os.closerange(3, 1 << 16)
    limits = {"NOFILE": 3, "NPROC": 0, "FSIZE": 0, "CORE": 0, "AS": address_space}
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))


def serve(requests: IO[bytes], answers: IO[bytes], picture: mmap.mmap, side: int, seconds: float) -> None:
    """Answer documents until the parent closes the pipe. The timer's default action ends the process."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        document = requests.read(LENGTH.unpack(head)[0])
        signal.setitimer(signal.ITIMER_PROF, seconds)
        status, body = answer(document, side, picture)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(HEADER.pack(status, len(body)) + body)
        answers.flush()


def main() -> None:
    """Start up, give the rights away, say so, and serve."""
    side, address_space, memory, seconds = *map(int, sys.argv[1:4]), float(sys.argv[4])
    picture = mmap.mmap(memory, 4 * side * side)
    render(_warm_document(), side, picture)
    fonts = _open_fonts()
    gc.freeze()  # the libraries stay; only what documents leave behind is looked through
    _lock_in(address_space)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(HEADER.pack(0, 0))
    answers.flush()
    serve(requests, answers, picture, side, seconds)
    del fonts  # held until here


if __name__ == "__main__":
    main()
