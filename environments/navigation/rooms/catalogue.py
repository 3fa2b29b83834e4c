"""Furniture, small objects and finishes from the data file ``furniture.yaml``, which explains its language.

Only ``rng.random()`` is used, in the order of the data, so a seed gives the same items on every machine.
"""

import random
import re
from dataclasses import dataclass
from typing import Any

from ....core.data import load_data
from ...drawings import evaluate
from .parts import Item, between, shade

DATA: dict[str, Any] = load_data(__file__, "furniture.yaml")
KINDS: tuple[str, ...] = tuple(DATA["rooms"])
"""Kinds of rooms."""

Names = dict[str, Any]
"""Values of the names in expressions: numbers, and colours #rrggbb."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A class of small objects, each of which can be the target."""

    type: str
    use: str
    """Description that does not name the object."""
    kinds: tuple[str, ...]
    """Kinds of rooms that contain it."""
    on_floor: bool
    width: int
    depth: int
    lines: list[Any]

    def make(self, rng: random.Random) -> Item:
        """Return an object of the class in local coordinates."""
        return draw(self.lines, rng, dict(COLOURS), self.type)


def colour(text: str, names: Names) -> str:
    """Return a colour: a name, ``rrggbb``, or either times a percentage of its brightness."""
    base, _, percent = text.partition("*")
    value = names.get(base) or f"#{base}"
    return shade(value, int(percent)) if percent else value


COLOURS: Names = {name: colour(value, {}) for name, value in DATA["colours"].items()}


def _thing(name: str, data: dict[str, Any]) -> Thing:
    _, width, depth = data["draw"][0].split(" ")
    kinds = tuple(data["in"].split(", "))
    return Thing(name, data["use"], kinds, data.get("on_floor", False), int(width), int(depth), data["draw"])


THINGS = tuple(_thing(name, data) for name, data in DATA["things"].items())


def palette(rng: random.Random) -> Names:
    """Return the colours of a room."""
    wood, dark = choose(rng, DATA["woods"]).split(" ")
    names = {"wood": wood, "dark": dark}
    names |= {name: choose(rng, DATA[f"{name}s"]) for name in ("cloth", "accent", "front")}
    return COLOURS | {name: f"#{value}" for name, value in names.items()}


def choose(rng: random.Random, options: list[str]) -> str:
    """Return a random element."""
    return options[between(rng, 0, len(options) - 1, 1)]


def number(rng: random.Random, text: str, names: Names) -> int:
    """Return a random number of ``LOW..HIGH/STEP``."""
    low, _, rest = text.partition("..")
    high, _, step = rest.rpartition("/")
    return between(rng, evaluate(low, names), evaluate(high, names), int(step))


def furniture(name: str, rng: random.Random, names: Names, into: Item | None = None) -> Item:
    """Return a piece of furniture in local coordinates; ``names`` are the colours of the room."""
    return draw(DATA["furniture"][name], rng, dict(names), into=into)


def draw(lines: list[Any], rng: random.Random, names: Names, kind: str = "", into: Item | None = None) -> Item:
    """Return the item that lines describe, or add to ``into``."""
    item = into or Item(kind, 0, 0)
    for line in lines:
        _draw(": ".join(*line.items()) if isinstance(line, dict) else line, item, rng, names)
    return item


def _draw(text: str, item: Item, rng: random.Random, names: Names) -> None:
    """Execute a line."""
    if text.startswith("each "):
        head, body = text.split(": ", 1)
        values, _, most = head.partition(" take ")
        _, columns, *rows = values.split(" ")
        for row in rows[: evaluate(most, names) if most else None]:
            cells = (_cell(value, names) for value in row.split(","))
            _draw(body, item, rng, names | dict(zip(columns.split(","), cells, strict=True)))
    elif odds := re.match(r"(\d+)%: ", text):
        if rng.random() < int(odds[1]) / 100:
            _draw(text[odds.end() :], item, rng, names)
    else:
        for part in text.split(" ; "):
            _element(part.split(" "), item, rng, names)


def _cell(text: str, names: Names) -> int | str:
    return f"#{text}" if re.fullmatch("[0-9a-f]{6}", text) else evaluate(text, names)


def _element(words: list[str], item: Item, rng: random.Random, names: Names) -> None:
    match words:
        case ["type", name]:
            item.type = name
        case ["let", name, value]:
            names |= _let(name, value, rng, names)
        case ["size", width, depth]:
            item.width, item.depth = evaluate(width, names), evaluate(depth, names)
        case ["slot", *places]:
            x, y, z, width, depth = (evaluate(place, names) for place in places)
            item.slot(x, y, z, width, depth)
        case ["legs", height, thick, inset, paint]:
            item.legs(int(height), int(thick), int(inset), colour(paint, names))
        case [shape, paint, surface, *places]:
            x0, y0, z0, x1, y1, z1 = (evaluate(place, names) for place in places)
            item.add((x0, y0, z0), (x1, y1, z1), colour(paint, names), surface, shape)


def _let(name: str, value: str, rng: random.Random, names: Names) -> Names:
    if ".." in value:
        return {name: number(rng, value, names)}
    if value.endswith("%"):
        return {name: int(rng.random() < int(value[:-1]) / 100)}
    options = DATA.get(value) or (value.split("|") if "|" in value else None)
    if options is None:
        return {name: evaluate(value, names)}
    chosen = choose(rng, options).split(",")
    return {each: colour(text, names) for each, text in zip(name.split(","), chosen, strict=True)}
