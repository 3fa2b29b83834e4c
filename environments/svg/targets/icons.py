"""Generator of icon-like SVG targets: a motif on an optional backdrop, in one of four drawing styles.

A motif is a recognisable object made of a few shapes: a house, a clock, a cloud with rain. It is a function from a pen
to elements within the view box of 96 x 96 units, drawn from back to front with a margin of about ten units. To add one,
write a function in ``nature``, ``signs`` or ``things``, add it to that module's ``MOTIFS``, and increase
:data:`GENERATOR`, since seeds then give different documents.

The style determines how shapes become elements (flat, outlined, line art, gradients); palette, sizes, details, tilt,
backdrop and small decorations are random, too. Documents contain no text. Every number in a document is an integer from
integer arithmetic, so a seed gives the same bytes on every machine.
"""

import random

from . import nature, signs, things
from .pen import PALETTES, STYLES, VIEW, Pen

GENERATOR = 1
"""Version of the generator, increased with every change of a seed's document; task ids depend on it."""

MOTIFS = {motif.__name__: motif for motif in (*nature.MOTIFS, *signs.MOTIFS, *things.MOTIFS)}
_NAMES = sorted(MOTIFS)


def draw_target(rng: random.Random) -> str:
    """Return a random document."""
    return draw_motif(Pen(rng).choose(_NAMES), rng)


def draw_motif(name: str, rng: random.Random) -> str:
    """Return a document with a motif (a key of ``MOTIFS``); everything else is random."""
    pen = Pen(rng)
    pen.palette = pen.choose(PALETTES)
    pen.style = pen.choose(STYLES)
    pen.width = pen.between(2, 4)
    backdrop = _backdrop(pen) if pen.chance(45) else []
    motif = MOTIFS[name](pen)
    decoration = _decoration(pen) if pen.chance(35) else []
    scale = 70 if backdrop else 100
    tilt = pen.between(-12, 12) if pen.chance(30) else 0
    if scale != 100 or tilt:
        centre = VIEW // 2
        steps = [f"translate({centre} {centre})"]
        steps += [f"rotate({tilt})"] if tilt else []
        steps += [f"scale(0.{scale})"] if scale != 100 else []
        motif = [pen.group(motif, transform=" ".join([*steps, f"translate(-{centre} -{centre})"]))]
    definitions = [pen.group(pen.definitions, tag="defs")] if pen.definitions else []
    body = "\n".join([*definitions, *backdrop, *motif, *decoration])
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {VIEW} {VIEW}">\n{body}\n</svg>\n'


def _backdrop(pen: Pen) -> list[str]:
    """Return a badge behind the motif; line art on it is filled with the badge's colour."""
    colour = pen.paper = pen.choose((pen.tint, pen.light, pen.tint))
    paint = pen.gradient(colour, pen.mix(colour, "#ffffff", 60)) if pen.chance(40) else colour
    kind = pen.choose(("disc", "tile", "diamond", "ring", "hexagon", "blob", "split"))
    corner = pen.between(4, 20)
    if kind == "tile":
        return [pen.element("rect", x=3, y=3, width=90, height=90, rx=corner, fill=paint)]
    if kind == "diamond":
        tile = pen.element("rect", x=16, y=16, width=64, height=64, rx=corner // 2, fill=paint)
        return [pen.group([tile], transform="rotate(45 48 48)")]
    if kind == "ring":
        return [pen.element("circle", cx=48, cy=48, r=43, fill=paint, stroke=pen.main, stroke_width=3 + corner // 5)]
    if kind == "split":
        upper = pen.element("path", d="M2 48A46 46 0 0 1 94 48Z", fill=paint)
        lower = pen.element("path", d="M2 48A46 46 0 0 0 94 48Z", fill=pen.mix(colour, pen.main, 25))
        return [upper, lower]
    outline = {
        "disc": "M2 48A46 46 0 0 1 94 48A46 46 0 0 1 2 48Z",
        "hexagon": "M48 2L88 25V71L48 94L8 71V25Z",
        "blob": "M50 4C74 2 94 22 92 48C90 76 76 92 50 92C22 92 4 76 5 48C6 24 26 6 50 4Z",
    }
    return [pen.element("path", d=outline[kind], fill=paint)]


def _decoration(pen: Pen) -> list[str]:
    """Return small marks in the corners: one symbol, used several times."""
    colour = pen.choose((pen.accent, pen.main, pen.ink))
    name = pen.identifier("d")
    marks = {
        "sparkle": pen.element("path", d="M0 -6L2 -2L6 0L2 2L0 6L-2 2L-6 0L-2 -2Z", fill=colour),
        "plus": pen.element("path", d="M0 -4V4M-4 0H4", stroke=colour, stroke_width=2, stroke_linecap="round"),
        "ring": pen.element("circle", r=3, fill="none", stroke=colour, stroke_width=2),
        "dot": pen.element("circle", r=2, fill=colour),
    }
    mark = marks[pen.choose(sorted(marks))]
    pen.definitions.append(pen.group([mark], tag="symbol", id=name, overflow="visible"))
    corners = [(10, 12), (86, 12), (10, 84), (86, 84), (20, 6), (78, 92)]
    count = pen.between(2, 3)
    uses = []
    for _ in range(count):
        x, y = corners.pop(pen.below(len(corners)))
        uses.append(pen.element("use", href=f"#{name}", x=x, y=y))
    return uses
