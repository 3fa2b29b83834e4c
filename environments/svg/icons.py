"""Generator of icon-like SVG targets: a motif on an optional backdrop, in one of four drawing styles.

A motif is a recognisable object of a few shapes: a house, a clock, a cloud with rain. It is data: ``motifs.yaml`` says
how it is written. To add one, append it there and increase :data:`GENERATOR`, since seeds then give different
documents. The style determines how shapes become elements (flat, outlined, line art, gradients); palette, sizes,
details, tilt, backdrop and small decorations are random, too. Documents contain no text. Every number in a document is
an integer from integer arithmetic, so a seed gives the same bytes on every machine.
"""

import random
import re
from collections.abc import Sequence
from typing import Any

from ...core.data import load_data
from ..drawings import evaluate
from ..grid import pick

GENERATOR = 2
"""Version of the generator, increased with every change of a seed's document; task ids depend on it."""

DRAWINGS: dict[str, list[Any]] = load_data(__file__, "motifs.yaml")
MOTIFS = sorted(name for name in DRAWINGS if not name.startswith("_"))

VIEW = 96
"""Side of the view box, user units."""
STYLES = ("flat", "outlined", "line", "gradient")
_CENTRE = f"{VIEW // 2} {VIEW // 2}"
_CORNERS = ((10, 12), (86, 12), (10, 84), (86, 84), (20, 6), (78, 92))
_SHAPES = {"path": "path", "box": "rect", "disc": "circle", "fill": "path", "slab": "rect", "dot": "circle"}
_PLACES = {
    "rect": ("x", "y", "width", "height", "rx"),
    "circle": ("cx", "cy", "r"),
    "ellipse": ("cx", "cy", "rx", "ry"),
}


def draw_target(rng: random.Random) -> str:
    """Return a random document."""
    return draw_motif(MOTIFS[pick(rng, len(MOTIFS))], rng)


def draw_motif(name: str, rng: random.Random) -> str:
    """Return a document with a motif, one of :data:`MOTIFS`; everything else is random."""
    pen = Pen(rng)
    backdrop = pen.backdrop() if pen.chance(45) else []
    motif = pen.drawing(DRAWINGS[name], {})
    decoration = pen.decoration() if pen.chance(35) else []
    tilt = pen.between(-12, 12) if pen.chance(30) else 0
    if backdrop or tilt:
        steps = [f"rotate({tilt} {_CENTRE})"] if tilt else []
        steps += [f"translate({_CENTRE}) scale(0.70) translate(-48 -48)"] if backdrop else []
        motif = [group(motif, transform=" ".join(steps))]
    definitions = [group(pen.definitions, "defs")] if pen.definitions else []
    body = "\n".join([*definitions, *backdrop, *motif, *decoration])
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {VIEW} {VIEW}">\n{body}\n</svg>\n'


class Pen:
    """Writer of elements in a random palette and style."""

    def __init__(self, rng: random.Random) -> None:
        """Choose palette, style and width of outlines."""
        self._rng = rng
        self._colours: dict[str, str] = dict(
            zip(("ink", "main", "accent", "light", "tint"), self._choose(DRAWINGS["_palettes"]), strict=True)
        )
        self._colours["paper"] = "#ffffff"
        self._style = self._choose(STYLES)
        self._width = self.between(2, 4)
        self.definitions: list[str] = []

    def between(self, low: int, high: int) -> int:
        """Return a uniform integer in [low, high]."""
        return low + pick(self._rng, high - low + 1)

    def chance(self, percent: int) -> bool:
        """Return True with a probability of ``percent`` / 100."""
        return pick(self._rng, 100) < percent

    def _choose(self, items: Sequence[Any]) -> Any:
        return items[pick(self._rng, len(items))]

    def backdrop(self) -> list[str]:
        """Return a badge behind the motif; line art on it is filled with the badge's colour."""
        colour = self._colours["paper"] = self._colours[self._choose(("tint", "light", "tint"))]
        self._colours["paint"] = self._gradient(colour, mix(colour, "#ffffff", 60)) if self.chance(40) else colour
        return self.drawing(DRAWINGS["_backdrop"], {})

    def decoration(self) -> list[str]:
        """Return small marks in the corners: one symbol, used several times."""
        name = self._define(self.drawing(DRAWINGS["_decoration"], {}), "symbol", overflow="visible")
        corners, uses = list(_CORNERS), list[str]()
        for _ in range(self.between(2, 3)):
            x, y = corners.pop(pick(self._rng, len(corners)))
            uses.append(element("use", href=f"#{name}", x=x, y=y))
        return uses

    # --- the language of motifs.yaml ----------------------------------------------------------------------------------

    def drawing(self, entry: Any, names: dict[str, Any]) -> list[str]:
        """Return the elements of a motif: a list of lines, in which a nested list is a choice."""
        drawn: list[str] = []
        for line in entry:
            chosen = self._choose(line) if isinstance(line, list) else line
            text = ": ".join(*chosen.items()) if isinstance(chosen, dict) else chosen  # YAML reads `a: b` as a pair
            drawn += self._line(text, names)
        return drawn

    def _line(self, text: str, names: dict[str, Any]) -> list[str]:
        if odds := re.match(r"(\d+)% ", text):
            return self._line(text[odds.end() :], names) if self.chance(int(odds[1])) else []
        word = text.split(" ", 1)[0].rstrip(":")
        if word not in ("each", "turn", "mirror"):
            return [drawn for part in text.split(" ; ") for drawn in self._element(part, names)]
        head, body = text.split(": ", 1)
        head = self._filled(head, names)
        if word == "each":
            return self._each(head, body, names)
        parts = self._line(body, names)
        name = self._define(parts, "g")
        if word == "mirror":
            return [
                element("use", href=f"#{name}", **turn) for turn in ({}, {"transform": "translate(96 0) scale(-1 1)"})
            ]
        _, angles, x, y = head.split(" ")
        count = 0 if "," in angles else int(angles)
        degrees = [360 * k // count for k in range(count)] or [int(angle) for angle in angles.split(",") if angle]
        return [element("use", href=f"#{name}", transform=f"rotate({angle} {x} {y})") for angle in degrees]

    def _each(self, head: str, body: str, names: dict[str, Any]) -> list[str]:
        values, _, most = head.partition(" take ")
        _, columns, *rows = values.split(" ")
        if most:
            low, high = most.split("..")
            rows = rows[: self.between(int(low), int(high))]
        drawn: list[str] = []
        for row in rows:
            own = {name: _number(value) for name, value in zip(columns.split(","), row.split(","), strict=True)}
            drawn += self._line(body, names | own)
        return drawn

    def _filled(self, text: str, names: dict[str, Any]) -> str:
        """Replace what is in braces, from inside to outside."""
        while braces := re.search(r"\{([^{}]*)\}", text):
            inner = braces[1]
            if ".." in inner:
                low, high = inner.split("..")
                value = self.between(evaluate(low, names), evaluate(high, names))
            elif "|" in inner:
                value = self._choose(inner.split("|"))
            else:
                value = evaluate(inner, names)
            text = f"{text[: braces.start()]}{value}{text[braces.end() :]}"
        return text

    def _element(self, text: str, names: dict[str, Any]) -> list[str]:
        """Return the element of a line; none for ``let``."""
        kind, name, rest = self._filled(text, names).split(" ", 2)
        if kind == "let":
            names[name] = _number(rest)
            return []
        name, _, opacity = name.partition("@")
        colour, shown = self._colour(name), {"opacity": f"0.{opacity}"} if opacity else {}
        kind, width = kind.rstrip("0123456789"), kind.lstrip("abcdefghijklmnopqrstuvwxyz")
        if kind in ("line", "ring"):
            outline = {"fill": "none", "stroke": colour, "stroke_width": width or self._width}
            if kind == "line":
                return [element("path", d=rest, **outline, stroke_linecap="round", stroke_linejoin="round", **shown)]
            return [element("circle", **_places("circle", rest), **outline, **shown)]
        tag = _SHAPES[kind]
        places = {"d": rest} if tag == "path" else _places(tag, rest)
        paint = self._paint(colour) if kind in ("path", "box", "disc") else {"fill": colour}
        return [element("ellipse" if "ry" in places else tag, **places, **paint, **shown)]

    def _colour(self, name: str) -> str:
        """Return the value of a colour."""
        if "?" in name:
            style, _, options = name.partition("?")
            return self._colour(options.split("/")[style != self._style])
        kind, _, rest = name.partition(":")
        if kind == "pale":
            return self._colour(rest if self._style == "line" else "light~tint:50")
        base, _, mixed = name.partition("~")
        colour = self._colours.get(base, f"#{base}")
        if not mixed:
            return colour
        other, percent = mixed.split(":")
        return mix(colour, self._colour(other), int(percent))

    def _paint(self, colour: str) -> dict[str, str | int]:
        """Return the paint of a closed shape in the pen's style."""
        outline = {"stroke_width": self._width, "stroke_linejoin": "round"}
        if self._style == "outlined":
            return {"fill": colour, "stroke": self._colours["ink"], **outline}
        if self._style == "line":
            return {"fill": self._colours["paper"], "stroke": colour, **outline}
        if self._style == "gradient":
            return {"fill": self._gradient(mix(colour, "#ffffff", 30), mix(colour, "#000000", 15))}
        return {"fill": colour}

    def _gradient(self, start: str, end: str) -> str:
        """Return the paint of a new gradient, linear or radial."""
        stops = [element("stop", offset=0, stop_color=start), element("stop", offset=1, stop_color=end)]
        if self.chance(25):
            return f"url(#{self._define(stops, 'radialGradient')})"
        x, y = self._choose(((0, 1), (1, 1), (1, 0)))
        return f"url(#{self._define(stops, 'linearGradient', x1=0, y1=0, x2=x, y2=y)})"

    def _define(self, parts: Sequence[str], tag: str, **attributes: str | int) -> str:
        """Define an element around others for later use; return its id."""
        name = f"d{len(self.definitions)}"
        self.definitions.append(group(parts, tag, id=name, **attributes))
        return name


def element(tag: str, **attributes: str | int) -> str:
    """Return an empty element; underscores in attribute names become hyphens."""
    return f"<{tag}{_attributes(attributes)}/>"


def group(children: Sequence[str], tag: str = "g", **attributes: str | int) -> str:
    """Return an element around others."""
    return "\n".join([f"<{tag}{_attributes(attributes)}>", *children, f"</{tag}>"])


def mix(one: str, other: str, percent: int) -> str:
    """Return a mixture of two colours ``#rrggbb`` with ``percent`` of ``other``."""
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{(a * (100 - percent) + b * percent) // 100:02x}" for a, b in pairs)


def _attributes(attributes: dict[str, str | int]) -> str:
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())


def _places(tag: str, numbers: str) -> dict[str, str | int]:
    """Return the attributes of position and size; four numbers of a circle make an ellipse."""
    values = numbers.split(" ")
    names = _PLACES["ellipse" if tag == "circle" and len(values) == 4 else tag]
    return dict(zip(names, values, strict=False))


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text
