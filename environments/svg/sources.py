"""Targets of the user: a folder of SVG files, or a column of a Hugging Face dataset.

Each process reads a source once. The digest of its documents is stored with the settings, so a seed always gives the
same target; if the documents change, the source is refused.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ...core.errors import ConfigError, GenerationError
from ..grid import pick
from .sandbox.pool import rasterise
from .sandbox.raster import MAX_DOCUMENT_BYTES, refusal

HUGGING_FACE = "hf:"
"""Prefix of a dataset, ``hf:DATASET:COLUMN``; anything else names a folder."""


@dataclass(frozen=True)
class Source:
    """Documents in a fixed order, without duplicates."""

    documents: tuple[str, ...]
    digest: str
    """32 hex digits of the hash of the documents in order."""

    def draw(self, rng: random.Random) -> str | None:
        """Return a random document, or None if it is blank or cannot be rendered."""
        document = self.documents[pick(rng, len(self.documents))]
        pixels = rasterise(document).pixels
        return None if pixels is None or (pixels == pixels[0, 0]).all() else document


def absolute(targets: str) -> str:
    """Return the source with an absolute path, so that it does not depend on the working directory."""
    return targets if targets.startswith(HUGGING_FACE) else str(Path(targets).expanduser().absolute())


@lru_cache(maxsize=4)
def load_source(targets: str) -> Source:
    """Read a folder (all ``*.svg`` below it, by path) or a dataset column (its ``train`` split, in order).

    Raises:
        ConfigError: the folder, dataset or column does not exist or contains no readable document.
    """
    if targets.startswith(HUGGING_FACE):
        texts = _column(targets)
    else:
        folder = Path(targets).expanduser()
        if not folder.is_dir():
            raise ConfigError(f"targets {targets!r} is not a folder; expected a folder of *.svg or hf:DATASET:COLUMN")
        texts = [_read(path) for path in sorted(folder.rglob("*.svg")) if path.is_file()]
    documents = tuple(dict.fromkeys(text for text in texts if isinstance(text, str) and refusal(text) is None))
    if not documents:
        raise ConfigError(
            f"targets {targets!r} has {len(texts)} entries, none of them text of 1 to {MAX_DOCUMENT_BYTES} bytes; "
            "expected SVG documents"
        )
    state = hashlib.sha256()
    for document in documents:
        state.update(hashlib.sha256(document.encode()).digest())
    return Source(documents, state.hexdigest()[:32])


def checked_source(targets: str, digest: str) -> Source:
    """Return the source of stored settings.

    Raises:
        ConfigError: see :func:`load_source`.
        GenerationError: its documents are not those of the settings.
    """
    source = load_source(targets)
    if source.digest != digest:
        raise GenerationError(
            f"targets {targets!r} changed: its documents have the digest {source.digest}, the settings say {digest}; "
            "restore the old documents, or build a new store"
        )
    return source


def _read(path: Path) -> str | None:
    """Return the text of a file, None if it is too large or not UTF-8."""
    if path.stat().st_size > MAX_DOCUMENT_BYTES:
        return None
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _column(targets: str) -> list[object]:
    name, _, column = targets.removeprefix(HUGGING_FACE).rpartition(":")
    if not name or not column:
        raise ConfigError(f"targets {targets!r} is incomplete; expected hf:DATASET:COLUMN")
    if name.startswith(("/", ".", "~")) and not Path(name).expanduser().exists():
        raise ConfigError(
            f"targets {targets!r}: the folder {name!r} does not exist"
        )  # datasets would blame the network
    from datasets import load_dataset  # noqa: PLC0415 - seconds of import that only this source pays for

    try:
        rows = load_dataset(str(Path(name).expanduser()) if name.startswith("~") else name, split="train")
    except Exception as error:  # many exception types: network, layout, permission
        raise ConfigError(
            f"the dataset {name!r} of targets {targets!r} cannot be loaded ({type(error).__name__}: {error}); it "
            "needs a train split, and the network unless it is a local folder"
        ) from error
    columns = rows.column_names or []
    if column not in columns:
        raise ConfigError(f"the dataset {name!r} has no column {column!r}; its columns: {', '.join(columns)}")
    return list(rows[column])
