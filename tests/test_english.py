"""Check the two rules of plain English in CONTRIBUTING.md that a program can check: docstrings and glossary words."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

OPENING = re.compile(r"(Of|That|By|What|Whether it|How)\b")
"""Openings of a docstring that hide its verb or noun."""

GLOSSARY = {
    "pending, incomplete": r"(?<![\".])(?<!def )\bow(?:ed|es)\b",  # `"owed"` is a stored name, `.owed` an alias
    "pre-flight check": r"\bmeeting\b",
    "scheduler, assign": r"\bdealers?\b|\bdeals out\b",
    "report, log, show": r"\btold\b|\btells? (?:of|what|whether|that|how)\b",
    "prefetch, precompute": r"\bbeforehand\b|\bat hand\b",
    "rebuilt, recomputed, re-executed": r"\banew\b|\bmade again\b",
    "is stored with, is in": r"\bstands? beside\b|\blies? (?:in|under|beside)\b",
    "fix": r"\bmend(?:s|ed|ing)?\b",
    "resume, append": r"\bgo(?:es)? on with\b|\btakes? up\b",
    "without garbage-collection pauses": r"\bsteadily\b",
    "name the thing": r"\bthose (?:that|who)\b|\bwhoever\b",
    "the page of the docs": r"\bspec sections?\b",
    "not a, invalid": r"\bis no (?!longer|more|other)\w+",
}
"""Words to write, each with a pattern of the words that it replaces."""

PARTICIPLES = {"found", "held", "known", "told", "asked", "wanted", "given", "owed"}
"""Names that do not say what they are: write the noun."""

VERSIONED_TEXTS = ("/prompt.py", "/prompts.py", "environments/svg/player.py")
"""Files with texts that are stored data: their wording changes with their version alone."""

OUTSIDE = ("build", "dist", "runs", "docs")
ROOMS = sorted(
    room.name
    for room in ROOT.iterdir()
    if room.is_dir() and room.name[0] != "." and room.name not in OUTSIDE and any(room.rglob("*.py"))
)


def _files(room: str) -> list[Path]:
    if room == "root":
        return sorted(ROOT.glob("*.py"))
    if room == "docs":
        return sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")])
    return sorted(path for path in (ROOT / room).rglob("*.py") if path != Path(__file__).resolve())


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring of a module, its classes and functions, and its attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    text = statement.value.value
                    if isinstance(text, str):
                        yield statement.lineno, text


def _stored_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def _problems(path: Path) -> list[str]:
    """Return what breaks the rules in a Python or Markdown file, each with its line."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    patterns = {} if name.endswith(VERSIONED_TEXTS) else GLOSSARY
    glossary = [
        f"{name}:{number}: {match[0]!r}; write: {better}"
        for number, line in enumerate(text.splitlines(), 1)
        for better, pattern in patterns.items()
        for match in re.finditer(pattern, line, flags=re.IGNORECASE)
    ]
    if path.suffix != ".py":
        return glossary
    tree = ast.parse(text)
    openings = [
        f"{name}:{number}: a docstring begins with {match[0]!r}"
        for number, docstring in _docstrings(tree)
        if (match := OPENING.match(docstring.strip()))
    ]
    names = [f"{name}:{number}: the name {each!r}" for number, each in _stored_names(tree) if each in PARTICIPLES]
    return glossary + openings + names


@pytest.mark.parametrize("room", [*ROOMS, "root", "docs"])
def test_a_room_is_written_in_plain_english(room: str) -> None:
    assert [line for path in _files(room) for line in _problems(path)] == []
