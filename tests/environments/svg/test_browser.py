"""Documents as models write them, drawn as Chromium draws them: colours, shares, variables, paths with mistakes."""

import io
import random
import sys
from collections.abc import Callable

import cv2
import numpy as np
import pytest
from PIL import Image
from pivot.environments.svg.sandbox import css
from pivot.environments.svg.sandbox.pool import rasterise
from pivot.environments.svg.sandbox.process import Worker
from pivot.environments.svg.sandbox.raster import SIDE
from pivot.tests.insight.browsing import CHROMIUM

DOCUMENTS = 200


class Writer:
    """Random documents with everything that a picture of shapes can use."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def one_in(self, times: int) -> bool:
        return not self.chance.randrange(times)

    def number(self, low: float, high: float) -> float:
        return round(self.chance.uniform(low, high), 1)

    def some(self, count: int, low: float = 20, high: float = 230) -> str:
        return " ".join(str(self.number(low, high)) for _ in range(count))

    def colour(self) -> str:
        red, green, blue, share = *(self.chance.randrange(256) for _ in range(3)), self.chance.randrange(20, 100)
        hue, full, light = self.chance.randrange(360), self.chance.randrange(101), self.chance.randrange(101)
        forms = (
            f"#{red:02x}{green:02x}{blue:02x}",
            f"#{red:02x}{green:02x}{blue:02x}{share + 100:02x}",
            f"#{red >> 4:x}{green >> 4:x}{blue >> 4:x}",
            f"#{red >> 4:x}{green >> 4:x}{blue >> 4:x}9",
            f"rgb({red},{green},{blue})",
            f"rgb({red} {green} {blue})",
            f"rgb({red} {green} {blue} / {share}%)",
            f"rgba({red},{green},{blue},{share / 100})",
            f"hsl({hue},{full}%,{light}%)",
            f"hsl({hue} {full}% {light}%)",
            f"hsla({hue},{full}%,{light}%,{share / 100})",
            self.chance.choice(("tomato", "rebeccapurple", "SteelBlue", "teal")),
            f"var(--a, {self.chance.choice(('#f00', 'hsl(200 50% 40%)', 'navy'))})",
        )
        return self.chance.choice(forms)

    def share(self) -> str:
        value = self.chance.randrange(20, 100)
        return self.chance.choice((f"{value}%", str(value / 100)))

    def look(self) -> str:
        fill = self.colour()
        words = [f'style="fill:{fill}"' if self.one_in(3) else f'fill="{fill}"']
        optional: tuple[tuple[int, Callable[[], str]], ...] = (
            (3, lambda: f'opacity="{self.share()}"'),
            (3, lambda: f'fill-opacity="{self.share()}"'),
            (2, lambda: f'stroke="{self.colour()}" stroke-width="{self.number(1, 14)}"'),
            (4, lambda: 'paint-order="stroke"'),
            (5, lambda: f'stroke-dasharray="{self.some(2, 2, 20)}"'),
            (5, lambda: f'stroke-linejoin="{self.chance.choice(("round", "bevel", "miter"))}"'),
            (5, lambda: f'transform="rotate({self.number(-60, 60)} 128 128)"'),
            (5, lambda: f'transform="translate({self.some(2, -30, 30)}) scale({self.number(0.5, 1.4)})"'),
            (3, lambda: 'fill-rule="evenodd"'),
        )
        words += [write() for times, write in optional if self.one_in(times)]
        return " ".join({word.partition("=")[0]: word for word in words}.values())

    def path(self) -> str:
        commands = [f"M{self.some(2)}"]
        operands = {"L": 2, "H": 1, "V": 1, "C": 6, "Q": 4, "S": 4, "T": 2}
        for _ in range(self.chance.randrange(3, 9)):
            letter = self.chance.choice("LHVCQSTAZ")
            if letter == "A":
                flags = f"{self.chance.randrange(2)}{self.chance.choice((' ', ',', ''))}{self.chance.randrange(2)}"
                commands.append(f"A{self.some(2, 10, 80)} {self.number(0, 90)} {flags} {self.some(2)}")
            elif letter == "Z":
                commands.append("Z")
            elif self.one_in(2):
                commands.append(letter + self.some(operands[letter]))
            else:
                commands.append(letter.lower() + self.some(operands[letter], -60, 60))
        mistake = self.chance.choice(("X 5 5 L 10 10", " L 40", " L 10 10 20", " L abc", " C 1 2 3"))
        return ("" if self.one_in(3) else " ").join(commands) + (mistake if self.one_in(5) else "")

    def shape(self) -> str:
        kinds: tuple[Callable[[], str], ...] = (
            lambda: f'<rect x="{self.number(0, 150)}" y="99" width="90" height="70" rx="9" {self.look()}/>',
            lambda: f'<circle cx="{self.number(40, 220)}" cy="99" r="{self.number(8, 80)}" {self.look()}/>',
            lambda: f'<ellipse cx="{self.number(40, 220)}" cy="150" rx="{self.number(8, 80)}" {self.look()}/>',
            lambda: f'<polygon points="{self.some(2 * self.chance.randrange(3, 7))}" {self.look()}/>',
            lambda: f'<g opacity="{self.share()}">{self.shape()}{self.shape()}</g>',
            lambda: f'<path d="{self.path()}" {self.look()}/>',
        )
        return self.chance.choice(kinds)()

    def document(self) -> str:
        body, parts = "".join(self.shape() for _ in range(self.chance.randrange(2, 6))), ""
        if self.one_in(3):
            stops = (
                f'<stop offset="{at}%" stop-color="{self.colour()}" stop-opacity="{self.share()}"/>' for at in (0, 99)
            )
            parts += f'<linearGradient id="g">{"".join(stops)}</linearGradient>'
            body += f'<rect x="{self.number(0, 100)}" y="40" width="120" height="90" fill="url(#g)"/>'
        if self.one_in(3):
            rule, outer = self.chance.choice(("evenodd", "nonzero")), self.number(90, 130)
            line = f"M20 30h{outer}v{outer}h-{outer}zM60 70h30v30h-30z"
            parts += f'<clipPath id="c"><path d="{line}" clip-rule="{rule}"/></clipPath>'
            body += f'<g clip-path="url(#c)"><rect width="256" height="256" {self.look()}/></g>'
        if self.one_in(5):
            parts += (
                "<style>.k{fill:hsl(120 60% 40%); fill:none such; stroke:rgb(9 20 30 / 50%)} :root{--a:#08c}</style>"
            )
            body += '<circle class="k" cx="60" cy="60" r="20"/>'
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 256 256"><defs>{parts}</defs>{body}</svg>'


@pytest.mark.long
def test_documents_are_drawn_as_chromium_draws_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Pixels that differ clearly count where they fill at least a square of three: more than a smoothed edge."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    other: list[int] = []
    with Worker() as worker, sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": SIDE, "height": SIDE})
        for seed in range(DOCUMENTS):
            document = Writer(seed).document()
            shown = document.replace("<svg ", f'<svg width="{SIDE}" height="{SIDE}" style="display:block" ', 1)
            page.set_content(f'<body style="margin:0;background:white">{shown}</body>')
            theirs = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)
            ours = worker.draw(document).pixels
            if ours is None:
                other.append(seed)
                continue
            differ = (np.abs(theirs - ours).max(axis=2) > 40).astype(np.uint8)
            if cv2.erode(differ, np.ones((3, 3), np.uint8)).sum() > 8:
                other.append(seed)
    with capsys.disabled():
        sys.stdout.write(f"\n{len(other)} of {DOCUMENTS} documents are drawn otherwise than by Chromium: {other}\n")
    assert len(other) <= DOCUMENTS / 50


def drawn(body: str) -> np.ndarray:
    pixels = rasterise(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 256 256">{body}</svg>').pixels
    assert pixels is not None
    return pixels


RECT = '<rect width="256" height="256" {}/>'


@pytest.mark.parametrize(
    ("look", "colour"),
    [
        ('fill="rgb(255 0 0)"', (255, 0, 0)),
        ('fill="hsl(120 100% 50%)"', (0, 255, 0)),
        ('fill="#00f8"', (119, 119, 255)),
        ('fill="#0000ff80"', (127, 127, 255)),
        ('fill="var(--a,#f00)"', (255, 0, 0)),
        ('fill="var(--a)" style="--a: lime"', (0, 255, 0)),
        ('style="fill: red; fill: no colour"', (255, 0, 0)),
        ('fill="red" opacity="50%"', (255, 127, 127)),
        ('fill="red" fill-opacity="50%"', (255, 127, 127)),
        ('fill="red" opacity="much"', (255, 0, 0)),
        ('fill="url(#none) red"', (255, 0, 0)),
    ],
)
def test_colours_are_those_of_css(look: str, colour: tuple[int, int, int]) -> None:
    assert np.abs(drawn(RECT.format(look))[128, 128].astype(int) - colour).max() <= 1


def test_shapes_are_those_of_browsers() -> None:
    assert (drawn('<ellipse cx="128" cy="128" rx="60"/>')[128, 100] == 0).all(), "a missing radius equals the other one"
    clip = '<clipPath id="c"><path d="M0 0h256v256h-256zM90 90h80v80h-80z" clip-rule="evenodd"/></clipPath>'
    assert (drawn(clip + '<rect width="256" height="256" clip-path="url(#c)"/>')[128, 128] == 255).all()
    order = '<rect x="60" y="60" width="130" height="130" fill="red" stroke="blue" stroke-width="60" {}/>'
    assert tuple(drawn(order.format('paint-order="stroke"'))[128, 70]) == (255, 0, 0)
    assert tuple(drawn(order.format(""))[128, 70]) == (0, 0, 255)
    assert tuple(drawn(order.format('opacity="0.5"'))[128, 70]) == (127, 127, 255), "the fill under it does not show"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("M10 10L20,20 30-5z", "M 10 10 L 20 20 L 30 -5 z"),
        ("M0 0 20 20 X 5 5", "M 0 0 L 20 20"),
        ("m1.5.5 1e1-2", "m 1.5 .5 l 1e1 -2"),
        ("M0 0a5 5 0 0110 10", "M 0 0 a 5 5 0 0 1 10 10"),
        ("M0 0 L 10", "M 0 0"),
        ("L 10 10", ""),
        ("M0 0 Z 5 5", "M 0 0 Z"),
        ("", ""),
    ],
)
def test_a_path_is_read_up_to_its_first_mistake(text: str, read: str) -> None:
    assert css.path(text) == read
