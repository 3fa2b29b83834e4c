"""Action language of the tabletop: up to two primitives per turn, separated by a pipe.

``pick(x,y,z)``, ``place(x,y,z)`` and ``push(x1,y1,z1,x2,y2,z2)`` take whole millimetres. An answer is parsed from the
left. The first part that is not a primitive (unknown name, wrong number of arguments, an argument that is not a whole
number) is void, and so are all parts after it, and any third part. If the first part is void, the answer has no usable
action.

The name of an action is its primitives in normal form, ``pick(107,64,20)|place(0,-185,120)``, with the coordinates of
the answer, limited to +-``LARGEST``. Before execution, coordinates are clipped to the workspace of the task.
"""

import re
from dataclasses import dataclass

from .tasks import Limits

ARITY = {"pick": 3, "place": 3, "push": 6}
"""Number of coordinates per primitive."""
MOST_PRIMITIVES = 2
UNUSABLE = "empty"
LARGEST = 99_999
"""Limit of parsed coordinates, which keeps names short; every workspace is far smaller."""

_CALL = re.compile(r"\s*([a-z_]+)\s*\(([^()|]*)\)\s*")
_INTEGER = re.compile(r"\s*([+-]?)([0-9]+)\s*")


@dataclass(frozen=True, slots=True)
class Primitive:
    """One call: a name of :data:`ARITY` and its coordinates, whole millimetres."""

    name: str
    arguments: tuple[int, ...]

    def __str__(self) -> str:
        """Return the normal form."""
        return f"{self.name}({','.join(map(str, self.arguments))})"

    def clipped(self, workspace: Limits) -> "Primitive":
        """Return the primitive with every coordinate inside the workspace."""
        limits = workspace * (len(self.arguments) // 3)
        inside = (min(max(value, low), high) for value, (low, high) in zip(self.arguments, limits, strict=True))
        return Primitive(self.name, tuple(inside))


def read_primitives(answer: str) -> tuple[tuple[Primitive, ...], str | None]:
    """Return the primitives of an answer, at most two, and why the rest is void (None if nothing is void)."""
    primitives: list[Primitive] = []
    # A limited split bounds the cost of an answer that consists of pipes.
    for part in answer.split("|", MOST_PRIMITIVES):
        if len(primitives) == MOST_PRIMITIVES:
            return tuple(primitives), f"more than {MOST_PRIMITIVES} primitives"
        read = _read(part)
        if isinstance(read, str):
            return tuple(primitives), read
        primitives.append(read)
    return tuple(primitives), None


def join(primitives: tuple[Primitive, ...]) -> str:
    """Return the name of the action that consists of these primitives."""
    return "|".join(map(str, primitives)) or UNUSABLE


def _read(part: str) -> Primitive | str:
    """Return the primitive, or why the text is not one."""
    call = _CALL.fullmatch(part)
    if call is None:
        return "not a call"
    name, inside = call.groups()
    if name not in ARITY:
        return "unknown name"
    texts = inside.split(",", max(ARITY.values()))
    if len(texts) != ARITY[name]:
        return "wrong number of coordinates"
    numbers = [_INTEGER.fullmatch(text) for text in texts]
    if any(number is None for number in numbers):
        return "a coordinate is not a whole number"
    return Primitive(name, tuple(_value(*number.groups()) for number in numbers if number is not None))


def _value(sign: str, digits: str) -> int:
    digits = digits.lstrip("0") or "0"
    size = LARGEST if len(digits) > len(str(LARGEST)) else int(digits)
    return -size if sign == "-" else size
