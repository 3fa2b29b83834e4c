"""Drawing tools of the motifs: a palette, a style, random integers, and elements as text."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ...grid import pick

VIEW = 96
"""Side of the view box, user units."""

STYLES = ("flat", "outlined", "line", "gradient")

PALETTES = (
    # ink, main, accent, light, tint
    ("#22313f", "#2e86ab", "#f6ae2d", "#f2f5f7", "#cfe8f3"),
    ("#3b1f2b", "#db504a", "#e3b505", "#fff4e6", "#f9d8c9"),
    ("#1b4332", "#40916c", "#f4a261", "#f1faee", "#d8f3dc"),
    ("#2b2d42", "#6d597a", "#e56b6f", "#fdf0f3", "#e6d9ec"),
    ("#14213d", "#3a5fa0", "#fca311", "#ffffff", "#dbe4f5"),
    ("#3d2c2e", "#a4632f", "#e9c46a", "#fff8ec", "#f3e1c8"),
    ("#0b3948", "#1b998b", "#ff6b6b", "#f0fffd", "#c9f2ec"),
    ("#33261d", "#e07a1f", "#3d8eb9", "#fff6e9", "#ffe3bf"),
    ("#1d1a31", "#5b4bb7", "#f78fb3", "#f7f5ff", "#ddd8f7"),
    ("#202020", "#5f6b6d", "#d7263d", "#f5f5f5", "#dde1e2"),
)

_Item = TypeVar("_Item")


@dataclass
class Pen:
    """Writer of elements in one palette and style."""

    rng: random.Random
    palette: tuple[str, str, str, str, str] = PALETTES[0]
    style: str = "flat"
    width: int = 3
    """Width of outlines, user units."""
    paper: str = "#ffffff"
    """Fill colour of line art: the colour of the background."""
    definitions: list[str] = field(default_factory=list)

    @property
    def ink(self) -> str:
        """Dark colour of outlines."""
        return self.palette[0]

    @property
    def main(self) -> str:
        """Colour of the largest shapes."""
        return self.palette[1]

    @property
    def accent(self) -> str:
        """Accent colour."""
        return self.palette[2]

    @property
    def light(self) -> str:
        """Almost white colour."""
        return self.palette[3]

    @property
    def tint(self) -> str:
        """Pale version of the main colour."""
        return self.palette[4]

    def pale(self, line: str) -> str:
        """Return an almost white colour for closed shapes, or ``line`` in styles that colour only outlines."""
        return line if self.style == "line" else self.mix(self.light, self.tint, 50)

    # --- chance ------------------------------------------------------------------------------------------------------

    def below(self, count: int) -> int:
        """Return a uniform integer in [0, count)."""
        return pick(self.rng, count)

    def between(self, low: int, high: int) -> int:
        """Return a uniform integer in [low, high]."""
        return low + pick(self.rng, high - low + 1)

    def chance(self, percent: int) -> bool:
        """Return True with a probability of ``percent`` / 100."""
        return pick(self.rng, 100) < percent

    def choose(self, items: Sequence[_Item]) -> _Item:
        """Return a random item."""
        return items[pick(self.rng, len(items))]

    # --- elements ----------------------------------------------------------------------------------------------------

    @staticmethod
    def element(tag: str, **attributes: str | int) -> str:
        """Return an empty element; underscores in attribute names become hyphens."""
        return f"<{tag}{_attributes(attributes)}/>"

    @staticmethod
    def group(children: Sequence[str], tag: str = "g", **attributes: str | int) -> str:
        """Return an element around others."""
        return "\n".join([f"<{tag}{_attributes(attributes)}>", *children, f"</{tag}>"])

    def shape(self, tag: str, colour: str, **attributes: str | int) -> str:
        """Return a closed shape of a colour in the pen's style."""
        if self.style == "outlined":
            paint: dict[str, str | int] = {"fill": colour, "stroke": self.ink, "stroke_width": self.width}
        elif self.style == "line":
            paint = {"fill": self.paper, "stroke": colour, "stroke_width": self.width}
        elif self.style == "gradient":
            paint = {"fill": self.gradient(self.mix(colour, "#ffffff", 30), self.mix(colour, "#000000", 15))}
        else:
            paint = {"fill": colour}
        if "stroke" in paint:
            paint["stroke_linejoin"] = "round"
        return self.element(tag, **attributes, **paint)

    def path(self, data: str, colour: str) -> str:
        """Return a closed path in the pen's style."""
        return self.shape("path", colour, d=data)

    def circle(self, x: int, y: int, radius: int, colour: str) -> str:
        """Return a disc in the pen's style."""
        return self.shape("circle", colour, cx=x, cy=y, r=radius)

    def box(self, x: int, y: int, width: int, height: int, colour: str, round_by: int = 0) -> str:
        """Return a rectangle in the pen's style."""
        if round_by:
            return self.shape("rect", colour, x=x, y=y, width=width, height=height, rx=round_by)
        return self.shape("rect", colour, x=x, y=y, width=width, height=height)

    def stroke(self, data: str, colour: str, width: int = 0, **attributes: str | int) -> str:
        """Return an open path with round ends, in every style."""
        return self.element(
            "path",
            d=data,
            fill="none",
            stroke=colour,
            stroke_width=width or self.width,
            stroke_linecap="round",
            stroke_linejoin="round",
            **attributes,
        )

    def dot(self, x: int, y: int, radius: int, colour: str) -> str:
        """Return a small disc without an outline, in every style."""
        return self.element("circle", cx=x, cy=y, r=radius, fill=colour)

    def turned(self, element: str, degrees: Sequence[int], x: int = 48, y: int = 48) -> list[str]:
        """Return copies of an element, rotated around a point: one definition, one use per angle."""
        name = self.identifier("s")
        self.definitions.append(self.group([element], id=name))
        return [
            self.element("use", href=f"#{name}", transform=f"rotate({angle} {x} {y})")
            if angle
            else self.element("use", href=f"#{name}")
            for angle in degrees
        ]

    def gradient(self, start: str, end: str) -> str:
        """Return the paint of a new gradient, linear or radial."""
        name = self.identifier("g")
        stops = [
            self.element("stop", offset=0, stop_color=start),
            self.element("stop", offset=1, stop_color=end),
        ]
        if self.chance(25):
            self.definitions.append(self.group(stops, tag="radialGradient", id=name))
        else:
            x, y = self.choose(((0, 1), (1, 1), (1, 0)))
            self.definitions.append(self.group(stops, tag="linearGradient", id=name, x1=0, y1=0, x2=x, y2=y))
        return f"url(#{name})"

    def identifier(self, letter: str) -> str:
        """Return an id that is new in the document."""
        return f"{letter}{len(self.definitions)}"

    @staticmethod
    def mix(one: str, other: str, percent: int) -> str:
        """Return a mixture of two colours ``#rrggbb`` with ``percent`` of ``other``."""
        channels = (
            (int(one[at : at + 2], 16) * (100 - percent) + int(other[at : at + 2], 16) * percent) // 100
            for at in (1, 3, 5)
        )
        return "#" + "".join(f"{channel:02x}" for channel in channels)


def _attributes(attributes: dict[str, str | int]) -> str:
    # Attributes such as viewBox have no hyphen; no attribute here has both a hyphen and an underscore.
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
