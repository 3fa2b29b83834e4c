"""Read what browsers understand and CairoSVG does not: colours of CSS, variables, shares, paths with mistakes.

Values are brought into forms that CairoSVG draws rightly; a value that a browser would ignore is removed, so that its
default counts. Runs in the worker that draws.
"""

import re
from typing import Any

import tinycss2
from tinycss2 import color4

SHARES = ("opacity", "fill-opacity", "stroke-opacity", "stop-opacity", "flood-opacity")
PAINTS = ("fill", "stroke", "stop-color", "flood-color", "lighting-color", "color")
_VARIABLE = re.compile(r"var\(\s*(--[\w-]+)\s*(?:,((?:[^()]|\([^()]*\))*))?\)")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(rf"\s*,?\s*({_NUMBER})")
_FLAG = re.compile(r"\s*,?\s*([01])")
_COMMAND = re.compile(r"\s*([MmZzLlHhVvCcSsQqTtAa])")
_OPERANDS = {"m": 2, "l": 2, "t": 2, "h": 1, "v": 1, "c": 6, "s": 4, "q": 4, "a": 7, "z": 0}
_FLAGS = (3, 4)
"""Places of the flags of an arc, which need no separator."""
_FALLBACK = re.compile(r"(url\([^)]*\))\s*(.*)", re.DOTALL)


def rgba(text: str) -> tuple[float, float, float, float] | None:
    """Return a colour of CSS, each part from 0 to 1; None if it is none."""
    colour: Any = color4.parse_color(text)
    if colour is None or isinstance(colour, str):  # currentcolor
        return None
    red, green, blue, alpha = (
        min(1.0, max(0.0, part or 0.0)) for part in [*colour.to("srgb").coordinates, colour.alpha]
    )
    return red, green, blue, alpha


def declarations(content: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the usual and the important declarations of a style, with variables and without colours that are none."""
    usual, important = list[tuple[str, str]](), list[tuple[str, str]]()
    for each in tinycss2.parse_declaration_list(content):
        if each.type == "declaration" and (not each.name.startswith("-") or each.name.startswith("--")):
            value = tinycss2.serialize(each.value).strip()
            name = each.name if each.name.startswith("--") else each.lower_name
            if name not in PAINTS or "var(" in value or _is_paint(value):
                (important if each.important else usual).append((name, value))
    return usual, important


def normalise(node: Any) -> None:
    """Bring the attributes of an element, with the inherited ones, into forms that CairoSVG knows."""
    for name, value in [(name, value) for name, value in node.items() if isinstance(value, str) and "var(" in value]:
        _replace(node, name, _with_variables(value, node))
    for name in [name for name in SHARES if name in node]:
        _replace(node, name, _share(str(node[name])))
    for name in [name for name in PAINTS if name in node and not _is_paint(str(node[name]))]:
        del node[name]
    if "d" in node:
        node["d"] = path(node["d"])
    if node.tag == "ellipse":
        for name, other in (("rx", "ry"), ("ry", "rx")):
            if node.get(name, "auto") == "auto" and node.get(other, "auto") != "auto":
                node[name] = node[other]


def _replace(node: Any, name: str, value: str | None) -> None:
    if value is None:
        del node[name]
    else:
        node[name] = value


def _with_variables(text: str, node: Any, depth: int = 0) -> str | None:
    """Replace ``var(--name, fallback)``; None if a name is unknown and has no fallback."""
    while match := _VARIABLE.search(text):
        value = node.get(match[1], match[2])
        if value is None or depth > 8:
            return None
        value = _with_variables(value, node, depth + 1)
        if value is None:
            return None
        text = text[: match.start()] + value.strip() + text[match.end() :]
    return text.strip()


def _share(text: str) -> str | None:
    match = re.fullmatch(rf"\s*({_NUMBER})\s*(%?)\s*", text)
    return None if match is None else repr(min(1.0, max(0.0, float(match[1]) / (100 if match[2] else 1))))


def _is_paint(text: str) -> bool:
    text = text.strip()
    if match := _FALLBACK.fullmatch(text):
        text = match[2].strip() or "none"
    return (
        text.lower() in ("none", "currentcolor", "inherit", "context-fill", "context-stroke") or rgba(text) is not None
    )


def path(text: str) -> str:
    """Return the commands of a path up to its first mistake, as browsers draw it, in plain writing."""
    words: list[str] = []
    place, command = 0, ""
    while True:
        letter = _COMMAND.match(text, place)
        if letter is not None:
            command, place = letter[1], letter.end()
        elif not command or command in "zZ":
            break
        if not words and command not in "mM":
            break
        operands: list[str] = []
        start = place
        for index in range(_OPERANDS[command.lower()]):
            flag = command in "aA" and index in _FLAGS
            match = (_FLAG if flag else _TOKEN).match(text, place)
            if match is None:
                return " ".join(words)
            operands.append(match[1])
            place = match.end()
        words += [command, *operands]
        if letter is None and place == start:
            break
        command = {"m": "l", "M": "L"}.get(command, command)
    return " ".join(words)
