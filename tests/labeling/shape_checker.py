"""An independent judge of sentences about the shapes of two pictures: own rasters, own regions, own measures.

Nothing of ``pivot`` is used. CairoSVG draws both documents; regions are joined from runs of pixels, row by row; a claim
holds if the measures agree with its numbers within the width of an edge.
"""

import colorsys
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import cairosvg
import numpy as np
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
_HUES = ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink")
_DEGREES: dict[str, int] = dict(zip(_HUES, (0, 28, 55, 120, 180, 225, 275, 320), strict=True))


@dataclass(frozen=True, eq=False)
class Region:
    """A region of similar pixels with its edge: mask, mean colour, share and centre in per cent."""

    mask: np.ndarray
    colour: np.ndarray

    @property
    def share(self) -> float:
        return 100 * float(self.mask.mean())

    @property
    def centre(self) -> tuple[float, ...]:
        return tuple(100 * (float(at.mean()) + 0.5) / SIDE for at in np.nonzero(self.mask)[::-1])


@lru_cache(maxsize=64)
def image(document: str) -> Image.Image:
    sink, data = io.BytesIO(), document.encode()
    cairosvg.svg2png(data, write_to=sink, output_width=SIDE, output_height=SIDE, background_color="white")
    return Image.open(sink).convert("RGB")


@lru_cache(maxsize=64)
def picture(document: str) -> np.ndarray:
    return np.asarray(image(document)).astype(int)


def far(one: Any, other: Any) -> Any:
    return np.abs(np.asarray(one) - np.asarray(other)).max(axis=-1)


@lru_cache(maxsize=64)
def regions(document: str) -> list[Region]:
    """Join runs of similar pixels from row to row; an edge belongs to every region that it touches."""
    most, least = (
        np.asarray(image(document).filter(kind(3))).astype(int)
        for kind in (ImageFilter.MaxFilter, ImageFilter.MinFilter)
    )
    parents, numbers, above = [0], np.zeros((SIDE, SIDE), int), list[tuple[int, int, int]]()

    def root(number: int) -> int:
        while parents[number] != number:
            number = parents[number]
        return number

    for y, row in enumerate(far(most, least) <= 8):
        bounds = np.flatnonzero(np.diff(np.concatenate(([0], row, [0])))).reshape(-1, 2)
        runs = list[tuple[int, int, int]]()
        for start, stop in bounds.tolist():
            parents.append(number := len(parents))
            for first, last, other in above:
                if first < stop and start < last:
                    parents[root(other)] = root(number)
            numbers[y, start:stop] = number
            runs.append((start, stop, number))
        above = runs
    numbers = np.array([root(number) for number in range(len(parents))])[numbers]
    all_regions = list[Region]()
    for number in set(np.unique(numbers)) - {0}:
        inside = np.pad(numbers == number, 1)
        if inside.sum() > 50:
            mask = np.any([inside[y : y + SIDE, x : x + SIDE] for y in range(3) for x in range(3)], axis=0)
            all_regions.append(Region(mask, picture(document)[numbers == number].mean(axis=0)))
    return [region for region in all_regions if region.share >= 0.3]


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
    aim, canvas, colour = picture(target), picture(drawn), rgb(said["colour"])
    fitting = [
        region
        for region in regions(drawn if kind == "extra" else target)
        if far(region.colour, colour) <= 3 and is_at(region, said["at"]) and takes(region.share, said["share"])
    ]
    if not fitting or not is_called(said["name"], colour):
        return False
    region = fitting[0]
    same = ((far(aim, canvas) <= 24) & ((aim.min(axis=2) >= 250) == (canvas.min(axis=2) >= 250)))[region.mask].mean()
    others = regions(target if kind == "extra" else drawn)
    near = [each for each in others if far(each.colour, region.colour) <= 26 and each.colour.min() < 250]
    if kind in ("missing", "extra"):
        return same <= 0.15 and not (kind == "extra" and near)
    if kind == "recoloured":
        other = rgb(said["other"])
        painted = (far(canvas, other) <= 40)[region.mask].mean()
        return same <= 0.15 and painted > 0.5 and is_called(said["otherwise"], other)
    pieces = [each.mask for each in near if (each.mask & region.mask).sum() > each.mask.sum() / 2]
    whole = [*near, *(Region(np.any([*pieces, each.mask], axis=0), each.colour) for each in near)]
    if kind == "moved":
        there = [each for each in whole if is_at(each, said["there"]) and 0.7 < each.share / region.share < 1.45]
        return any(far(each.centre, region.centre) > 2 for each in there)
    sized = [each for each in whole if takes(each.share, said["drawn"])]
    return any(max(each.share / region.share, region.share / each.share) > 1.2 for each in sized)


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
    sums = np.abs(picture(target) - picture(drawn)).sum(axis=2)
    lines = [0, 85, 170, SIDE]
    parts = [[sums[y:below, x:right].sum() for x, right in pairwise(lines)] for y, below in pairwise(lines)]
    named = parts[("upper", "middle", "lower").index(row)][("left", "centre", "right").index(column)]
    return named >= 0.98 * np.max(parts)
