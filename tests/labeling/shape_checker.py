"""An independent judge of sentences about the shapes of two pictures: own rasters, own regions, own measures.

Nothing of ``pivot`` is used. CairoSVG draws both documents; a region is flooded pixel by pixel, where the product
erodes and labels; a claim holds if the measures agree with its numbers within the width of an edge.
"""

import colorsys
import io
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import cairosvg
from PIL import Image, ImageFilter

SIDE = 256
Colour = tuple[int, int, int]
_SHAPE = r"(?P<name>[a-z-]+) shape \((?P<colour>#\w{6}), (?P<share>[\d.]+%) of the picture\)"
_AT = r"(?P<at>\d+%/\d+%)"
_THERE = r"(?P<there>\d+%/\d+%)"
CLAIMS = {
    "missing": (
        rf"The drawing of step \d+ lacks the (?P<name>[a-z-]+) shape at {_AT} from left/top: "
        r"(?P<colour>#\w{6}), (?P<share>[\d.]+%) of the target\.",
        rf"The target has one {_SHAPE} at {_AT} from left/top that step \d+ did not draw\.",
        r"At step \d+, add the (?P<name>[a-z-]+) shape that is missing: (?P<colour>#\w{6}), "
        rf"(?P<share>[\d.]+%) of the picture, at {_AT} from left/top\.",
        rf"At step \d+, draw the missing {_SHAPE} at {_AT} from left/top\.",
    ),
    "recoloured": (
        rf"At step \d+ the shape at {_AT} from left/top \((?P<share>[\d.]+%) of the picture\) was "
        r"(?P<otherwise>[a-z-]+) \((?P<other>#\w{6})\), not (?P<name>[a-z-]+) \((?P<colour>#\w{6})\)\.",
        r"The target is (?P<name>[a-z-]+) \((?P<colour>#\w{6})\) on (?P<share>[\d.]+%) of the picture at "
        rf"{_AT} from left/top, where step \d+ drew (?P<otherwise>[a-z-]+) \((?P<other>#\w{{6}})\)\.",
        rf"At step \d+, make the shape at {_AT} from left/top \((?P<share>[\d.]+%) of the picture\) "
        r"(?P<name>[a-z-]+) \((?P<colour>#\w{6})\), not (?P<otherwise>[a-z-]+) \((?P<other>#\w{6})\)\.",
        rf"At step \d+, give the shape at {_AT} from left/top \((?P<share>[\d.]+%) of the picture\) the "
        r"(?P<name>[a-z-]+) (?P<colour>#\w{6}) in place of the (?P<otherwise>[a-z-]+) (?P<other>#\w{6})\.",
    ),
    "moved": (
        rf"Step \d+ drew the {_SHAPE} at {_THERE} from left/top, not at {_AT}\.",
        rf"The target has the {_SHAPE} at {_AT} from left/top, and step \d+ drew it at {_THERE}\.",
        rf"At step \d+, move the {_SHAPE} from {_THERE} to {_AT} from left/top\.",
        rf"At step \d+, put the {_SHAPE} at {_AT} from left/top, not at {_THERE}\.",
    ),
    "resized": (
        rf"The (?P<name>[a-z-]+) shape \((?P<colour>#\w{{6}})\) at {_AT} from left/top takes (?P<share>[\d.]+%) of the "
        r"target, but (?P<drawn>[\d.]+%) of the drawing of step \d+\.",
        rf"Step \d+ drew the (?P<name>[a-z-]+) shape \((?P<colour>#\w{{6}})\) of the target at {_AT} from left/top on "
        r"(?P<drawn>[\d.]+%) of the picture, not (?P<share>[\d.]+%)\.",
        rf"At step \d+, let the (?P<name>[a-z-]+) shape \((?P<colour>#\w{{6}})\) at {_AT} from left/top take "
        r"(?P<share>[\d.]+%) of the picture, not (?P<drawn>[\d.]+%)\.",
        rf"At step \d+, draw the (?P<name>[a-z-]+) shape \((?P<colour>#\w{{6}})\) at {_AT} from left/top on "
        r"(?P<share>[\d.]+%) of the picture in place of (?P<drawn>[\d.]+%)\.",
    ),
    "extra": (
        rf"The drawing of step \d+ has one {_SHAPE} at {_AT} from left/top that the target lacks\.",
        rf"Step \d+ drew one {_SHAPE} at {_AT} from left/top, where the target has none\.",
        rf"At step \d+, leave out the {_SHAPE} at {_AT} from left/top\.",
        rf"At step \d+, draw no {_SHAPE} at {_AT} from left/top\.",
    ),
    "part": (
        r"The drawing of step \d+ differs most from the target in the (?P<row>\w+) (?P<column>\w+) of the picture\.",
        r"Of nine parts of the picture, the (?P<row>\w+) (?P<column>\w+) differs most from the target at step \d+\.",
        r"At step \d+, redraw the (?P<row>\w+) (?P<column>\w+) of the picture, where the drawing differs most from the "
        r"target\.",
        r"At step \d+, correct the (?P<row>\w+) (?P<column>\w+) of the picture first, where the drawing is farthest "
        r"from the target\.",
    ),
}
_DEGREES = {
    "red": 0,
    "orange": 28,
    "yellow": 55,
    "green": 120,
    "turquoise": 180,
    "blue": 225,
    "purple": 275,
    "pink": 320,
}


@dataclass(frozen=True)
class Region:
    """A flooded region: its pixels, mean colour, share and centre in per cent."""

    pixels: frozenset[int]
    colour: tuple[float, ...]
    share: float
    centre: tuple[float, float]


@lru_cache(maxsize=64)
def image(document: str) -> Image.Image:
    data = cairosvg.svg2png(document.encode(), output_width=SIDE, output_height=SIDE, background_color="white")
    return Image.open(io.BytesIO(data)).convert("RGB")


@lru_cache(maxsize=64)
def picture(document: str) -> list[Colour]:
    return pixels_of(image(document))


def pixels_of(shown: Image.Image) -> list[Colour]:
    data = shown.tobytes()
    return list(zip(data[::3], data[1::3], data[2::3], strict=True))


def far(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def around(at: int) -> Iterator[int]:
    y, x = divmod(at, SIDE)
    yield from (at + SIDE * down + right for down in (-1, 0, 1) for right in (-1, 0, 1)
                if 0 <= y + down < SIDE and 0 <= x + right < SIDE and (down or right))  # fmt: skip


@lru_cache(maxsize=64)
def regions(document: str) -> list[Region]:
    """Flood regions whose colour changes little; pixels at edges belong to the first region that they touch."""
    pixels, seen, found = picture(document), set[int](), list[Region]()
    most, least = (
        pixels_of(image(document).filter(kind(3))) for kind in (ImageFilter.MaxFilter, ImageFilter.MinFilter)
    )
    calm = [far(*pair) <= 8 for pair in zip(most, least, strict=True)]
    for start in range(SIDE * SIDE):
        if start in seen or not calm[start]:
            continue
        inside, queue = {start}, deque([start])
        while queue:
            at = queue.popleft()
            for n in (at - SIDE, at + SIDE, at - (at % SIDE > 0), at + (at % SIDE < SIDE - 1)):
                if 0 <= n < SIDE * SIDE and n not in inside and calm[n]:
                    inside.add(n)
                    queue.append(n)
        seen |= inside
        whole = inside | {n for at in inside for n in around(at)}
        if len(whole) < 0.003 * SIDE * SIDE:
            continue
        colour = tuple(sum(pixels[at][c] for at in inside) / len(inside) for c in range(3))
        x, y = (
            100 * (sum(f(at) for at in whole) / len(whole) + 0.5) / SIDE
            for f in (lambda at: at % SIDE, lambda at: at // SIDE)
        )
        found.append(Region(frozenset(whole), colour, 100 * len(whole) / SIDE / SIDE, (x, y)))
    return found


def claims(said: str, target: str, drawn: str) -> Iterator[tuple[str, bool]]:
    """Yield the claims of a sentence about shapes, with their truth; nothing where it makes none."""
    matches = ((kind, re.fullmatch(pattern, said)) for kind, patterns in CLAIMS.items() for pattern in patterns)
    for kind, match in matches:
        if match is not None:
            yield kind, holds(kind, match.groupdict(), target, drawn)
            return


def holds(kind: str, said: dict[str, str], target: str, drawn: str) -> bool:
    if kind == "part":
        return most_different(target, drawn, said["row"], said["column"])
    wanted, canvas = picture(target), picture(drawn)
    home = drawn if kind == "extra" else target
    colour = rgb(said["colour"])
    fitting = [
        r
        for r in regions(home)
        if far(r.colour, colour) <= 3 and is_at(r, said["at"]) and takes(r.share, said["share"])
    ]
    if not fitting or not is_called(said["name"], colour):
        return False
    region = fitting[0]
    same = sum(alike(wanted[at], canvas[at]) for at in region.pixels) / len(region.pixels)
    near = [
        r
        for r in regions(target if kind == "extra" else drawn)
        if far(r.colour, region.colour) <= 26 and min(r.colour) < 250
    ]
    if kind in ("missing", "extra"):
        return same <= 0.15 and not (kind == "extra" and near)
    if kind == "recoloured":
        other = rgb(said["other"])
        painted = sum(far(canvas[at], other) <= 40 for at in region.pixels) / len(region.pixels)
        return same <= 0.15 and painted > 0.5 and is_called(said["otherwise"], other)
    whole = joined(near, region)
    if kind == "moved":
        there = [r for r in whole if is_at(r, said["there"]) and 0.7 < r.share / region.share < 1.45]
        return bool(there) and any(abs(a - b) > 2 for a, b in zip(there[0].centre, region.centre, strict=True))
    sized = [r for r in whole if takes(r.share, said["drawn"])]
    return bool(sized) and max(sized[0].share / region.share, region.share / sized[0].share) > 1.2


def joined(near: list[Region], region: Region) -> list[Region]:
    """Return regions, and what the pieces within another region make together with each of them."""
    pieces = [r for r in near if len(r.pixels & region.pixels) > len(r.pixels) / 2]
    whole = [frozenset().union(*(r.pixels for r in {*pieces, each})) for each in near]
    centres = [
        tuple(
            100 * (sum(f(at) for at in w) / len(w) + 0.5) / SIDE for f in (lambda at: at % SIDE, lambda at: at // SIDE)
        )
        for w in whole
    ]
    return near + [Region(w, region.colour, 100 * len(w) / SIDE / SIDE, c) for w, c in zip(whole, centres, strict=True)]


def alike(one: Colour, other: Colour) -> bool:
    return far(one, other) <= 24 and (min(one) >= 250) == (min(other) >= 250)


def rgb(text: str) -> Colour:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:], 16)


def is_at(region: Region, place: str) -> bool:
    return all(abs(float(each[:-1]) - is_) <= 1.5 for each, is_ in zip(place.split("/"), region.centre, strict=True))


def takes(share: float, said: str) -> bool:
    return abs(float(said[:-1]) - share) <= 0.15 + 0.05 * share


def is_called(name: str, colour: Colour) -> bool:
    """Whether a colour may be called by a name: its hue within 40 degrees of the name's, or next to no hue."""
    hue, light, _ = colorsys.rgb_to_hls(*(each / 255 for each in colour))
    shade, _, word = name.rpartition("-")
    if word in ("black", "grey", "white"):
        return (
            max(colour) - min(colour) < 20
            and {"black": light < 0.25, "grey": 0.1 < light < 0.95, "white": light > 0.85}[word]
        )
    apart = abs(hue * 360 - _DEGREES["orange" if word == "brown" else word]) % 360
    return min(apart, 360 - apart) <= 46 and {"pale": light > 0.8, "dark": light < 0.3, "": 0.2 < light < 0.9}[shade]


def most_different(target: str, drawn: str, row: str, column: str) -> bool:
    sums = dict.fromkeys(((r, c) for r in ("upper", "middle", "lower") for c in ("left", "centre", "right")), 0)
    names = list(sums)
    for at, (one, other) in enumerate(zip(picture(target), picture(drawn), strict=True)):
        y, x = divmod(at, SIDE)
        sums[names[3 * min(y // 85, 2) + min(x // 85, 2)]] += sum(abs(a - b) for a, b in zip(one, other, strict=True))
    return sums[row, column] >= 0.98 * max(sums.values())
