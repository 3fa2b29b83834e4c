"""Levels of one's own from files: texts as the communities of the puzzles write them, JSON, and JSON lines.

A text file holds levels with whatever their authors write around them: titles, numbers, authors, comments, solutions.
Every block of lines that consist of cells alone is a level; the environment says what such a line looks like. What is
not a level is refused with its line and the reason.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..core.errors import ConfigError, LevelError

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a file, bytes."""
SUFFIXES = (".txt", ".xsb", ".sok", ".json", ".jsonl")
"""Suffixes of the files of a folder that are read; a file that is named is read with any."""
LEVEL_KEYS = ("level", "desc", "map", "initial_state", "board")
"""Keys of a JSON object that may hold a level, in the order in which they are looked for."""

_COMMENT, _COMMENT_END = re.compile(r"(?i)\s*comment:\s*"), re.compile(r"(?i)\s*comment[-_ ]end:?\s*")


class Reads(Protocol):
    """A class of environments whose levels people write."""

    @classmethod
    def level_row(cls, line: str) -> str | None:
        """Return the row of a level that a line of a text file holds; None for a line of anything else."""

    @classmethod
    def own_level(cls, text: str) -> tuple[str, str]:
        """Return the state text of a level that somebody wrote, and the text that equal levels share.

        Raises:
            LevelError: the text is not a level.
        """
        ...


class OwnLevel(NamedTuple):
    """A level of a file."""

    text: str
    """State text, as the environment reads it."""
    digest: str
    """Digest of the level without the walls around it: equal for equal puzzles, wherever they stand."""
    place: str
    """Where it was found, such as ``levels.txt line 12``."""


class Collection(NamedTuple):
    """The levels of some files, and what was refused."""

    levels: tuple[OwnLevel, ...]
    """Distinct levels in the order of the files."""
    repeated: int
    """Number of levels that were there before, by their digest."""
    refused: tuple[str, ...]
    """Parts of the files that are not levels: file, line and reason."""


@lru_cache(maxsize=8)
def read_collection(env: type[Reads], name: str) -> Collection:
    """Read the levels of a file, or of all files with known suffixes below a folder.

    Args:
        env: environment of the levels.
        name: path of the file or folder.

    Raises:
        ConfigError: nothing can be read, or no level is found; the message says what was refused.
    """
    root = Path(name)
    levels: dict[str, OwnLevel] = {}
    refused: list[str] = []
    count = 0
    for path in _paths(root):
        shown = path.name if path == root else str(path.relative_to(root))
        for line, part in _parts(_text(path), path.suffix.lower(), env.level_row):
            place = f"{shown} line {line}"
            try:
                if isinstance(part, LevelError):
                    raise part
                level, core = env.own_level(part)
            except LevelError as error:
                refused.append(f"{place}: {error}")
                continue
            count += 1
            digest = sha256(core.encode()).hexdigest()[:16]
            levels.setdefault(digest, OwnLevel(level, digest, place))
    if not levels:
        reasons = f"; the first of {len(refused)} refused: {refused[0]}" if refused else ""
        raise ConfigError(f"levels {name}: found no level{reasons}")
    return Collection(tuple(levels.values()), count - len(levels), tuple(refused))


def files_digest(name: str) -> str:
    """Return a digest of the bytes of a file, or of all files that are read below a folder.

    Raises:
        ConfigError: nothing can be read.
    """
    digest = sha256()
    for path in _paths(Path(name)):
        digest.update(sha256(_bytes(path)).digest())
    return digest.hexdigest()[:16]


def _paths(root: Path) -> list[Path]:
    """Return a file, or the files of a folder that are read, in order."""
    if not root.is_dir():
        return [root]
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise ConfigError(f"levels {root}: found no file that ends in {', '.join(SUFFIXES)}")
    return paths


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"levels {path}: longer than {MAX_BYTES >> 20} MB; split it")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"levels {path} cannot be read: {error.strerror}") from error


def _text(path: Path) -> str:
    """Return the text of a file: UTF-8, or Latin-1, which old collections use for names."""
    data = _bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _parts(text: str, suffix: str, row_of: Callable[[str], str | None]) -> Iterator[tuple[int, Any]]:
    """Yield line and text of each level of a file, or the reason why a part is none."""
    if suffix == ".json":
        try:
            yield from ((1, each) for each in _levels_in(json.loads(text)))
        except (ValueError, RecursionError) as error:
            yield 1, LevelError(f"not JSON: {error}")
    elif suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    yield from ((number, each) for each in _levels_in(json.loads(line)))
                except (ValueError, RecursionError) as error:
                    yield number, LevelError(f"not JSON: {error}")
    else:
        yield from _blocks(text, row_of)


def _levels_in(data: Any) -> Iterator[Any]:
    """Yield the levels of a JSON value: a text, rows, an object that holds one, or a list of these."""
    if isinstance(data, dict):
        inner = next((data[key] for key in LEVEL_KEYS if data.get(key)), data.get("levels"))
        if inner is None:
            yield LevelError(f"an object without {', '.join(LEVEL_KEYS)} or levels; it has {', '.join(data)[:80]}")
        else:
            yield from _levels_in(inner)
    elif isinstance(data, str):
        yield data
    elif isinstance(data, list) and data and all(isinstance(row, str) and "\n" not in row for row in data):
        yield "\n".join(data)
    elif isinstance(data, list) and data and all(_is_row(row) for row in data):
        yield "\n".join(map("".join, data))
    elif isinstance(data, list) and data:
        for each in data:
            yield from _levels_in(each)
    else:
        yield LevelError(f"found {type(data).__name__}, expected a text, a list of rows, or an object with one")


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and bool(row) and all(isinstance(cell, str) and len(cell) == 1 for cell in row)


def _blocks(text: str, row_of: Callable[[str], str | None]) -> Iterator[tuple[int, Any]]:
    """Yield first line and rows of each block of lines that consist of cells."""
    block: list[str] = []
    begin, comment = 0, 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        row = None if comment else row_of(line)
        if comment:
            comment = 0 if _COMMENT_END.fullmatch(line) else comment
        elif _COMMENT.fullmatch(line):
            comment = number
        elif row is not None:
            begin = begin if block else number
            block.append(row)
            continue
        if block:
            yield begin, "\n".join(block)
            block = []
    if comment:
        yield comment, LevelError("a comment that does not end; expected a line 'Comment-End:'")
