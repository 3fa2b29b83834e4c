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
from typing import Any, NamedTuple

from ..core.errors import ConfigError, LevelError

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a file, bytes."""
SUFFIXES = (".txt", ".xsb", ".sok", ".json", ".jsonl")
"""Suffixes of the files of a folder that are read; a file that is named is read with any."""
REFUSED_SHOWN = 20
"""Maximum number of refused parts in a report."""
LEVEL_KEYS = ("level", "desc", "map", "initial_state", "board")
"""Keys of a JSON object that may hold a level, in the order in which they are looked for."""

_COMMENT, _COMMENT_END = re.compile(r"(?i)\s*comment:\s*"), re.compile(r"(?i)\s*comment[-_ ]end:?\s*")


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

    def report(self) -> Iterator[str]:
        """Yield lines that say how many levels there are, and what was refused."""
        again = f"; {self.repeated} more repeat one of them" if self.repeated else ""
        yield f"{len(self.levels)} level{'s' * (len(self.levels) > 1)} read{again}"
        yield from (f"  refused: {each}" for each in self.refused[:REFUSED_SHOWN])
        if more := self.refused[REFUSED_SHOWN:]:
            yield f"  and {len(more)} more"


class Files(NamedTuple):
    """Files with levels: their names below the folder, or the name of the only one, and their bytes."""

    parts: tuple[tuple[str, bytes], ...]

    @property
    def digest(self) -> str:
        """Digest of the bytes."""
        return sha256(b"".join(sha256(data).digest() for _, data in self.parts)).hexdigest()[:16]


def read_files(name: str) -> Files:
    """Read a file, or all files with known suffixes below a folder, in order.

    Raises:
        ConfigError: nothing can be read.
    """
    root = Path(name)
    return Files(
        tuple((path.name if path == root else str(path.relative_to(root)), _bytes(path)) for path in _paths(root))
    )


@lru_cache(maxsize=4)
def collection_of(
    files: Files, row_of: Callable[[str], str | None], level_of: Callable[[str], tuple[str, str]]
) -> Collection:
    """Return the levels in files.

    Args:
        files: the files.
        row_of: returns the row of a level that a line of a text file holds; None for a line of anything else.
        level_of: returns the state text of a level that somebody wrote, and the text that equal levels share; raises
            LevelError for a text that is not a level.

    Raises:
        ConfigError: no level is found; the message says what was refused.
    """
    levels: dict[str, OwnLevel] = {}
    refused: list[str] = []
    count = 0
    for name, data in files.parts:
        for line, part in _parts(_text(data), Path(name).suffix.lower(), row_of):
            place = f"{name} line {line}"
            try:
                if isinstance(part, LevelError):
                    raise part
                level, core = level_of(part)
            except LevelError as error:
                refused.append(f"{place}: {error}")
                continue
            count += 1
            digest = sha256(core.encode()).hexdigest()[:16]
            levels.setdefault(digest, OwnLevel(level, digest, place))
    if not levels:
        reasons = f"; the first of {len(refused)} refused: {refused[0]}" if refused else ""
        raise ConfigError(f"levels {', '.join(name for name, _ in files.parts)[:200]}: found no level{reasons}")
    return Collection(tuple(levels.values()), count - len(levels), tuple(refused))


def _paths(root: Path) -> list[Path]:
    """Return a file, or the files of a folder that are read, in order."""
    if not root.is_dir():
        return [root]
    try:
        paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    except OSError as error:
        raise ConfigError(f"levels {root} cannot be read: {error}") from error
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


def _text(data: bytes) -> str:
    """Return the text of a file: UTF-8, or Latin-1, which old collections use for names."""
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
