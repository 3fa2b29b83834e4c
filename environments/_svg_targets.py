"""Icon-like SVG targets drawn from a random stream."""

import random

from ._grid import pick

GENERATOR = 1
"""Raised with every change of what a seed draws."""

_COLOURS = ("#d1495b", "#edae49", "#00798c", "#30638e", "#003d5b", "#66a182")


def draw_target(rng: random.Random) -> str:
    """Return one document."""
    shapes = []
    for _ in range(4 + pick(rng, 4)):
        x, y, size = 10 + pick(rng, 60), 10 + pick(rng, 60), 8 + pick(rng, 30)
        colour = _COLOURS[pick(rng, len(_COLOURS))]
        shapes.append(f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="{pick(rng, 9)}" fill="{colour}"/>')
    body = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 96">\n{body}\n</svg>\n'
