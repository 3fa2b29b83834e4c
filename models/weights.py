"""Identity of the weights behind a model name: a hub id with a revision, or the content of a local directory.

The next checkpoint may overwrite a directory while its path stays, so its revision is a digest of the files that decide
the answers. Hashing runs at the speed of the disk and is done once per process.
"""

import hashlib
from functools import lru_cache
from pathlib import Path

from ..core.errors import ConfigError

DECIDING = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model", ".tiktoken")
"""Suffixes of the files that decide the answers: weights, configs, chat template, tokenizer."""
LOCAL_PREFIX = "local-"


def is_local(model: str) -> bool:
    """Return whether ``model`` is a directory of this machine rather than a hub id."""
    return Path(model).is_dir()


def check_model(model: str) -> None:
    """Refuse a text that is neither a saved model on this machine nor possibly a hub id.

    Raises:
        ConfigError: it is a path that does not exist, or a directory without a model.
    """
    path = Path(model)
    if is_local(model):
        if not (path / "config.json").is_file():
            raise _not_saved(model)
    elif path.exists():
        raise ConfigError(f"{model} is a file, expected a hub id or a save_pretrained directory")
    elif model.startswith(("/", ".", "~")) or model.count("/") > 1:
        raise ConfigError(f"{model} does not exist; expected a hub id, as OWNER/NAME, or a save_pretrained directory")


def revision_of(model: str, revision: str | None) -> str | None:
    """Return the revision to store: ``revision`` if set, else the digest of a local directory, else None.

    Raises:
        ConfigError: ``model`` is a directory without a model.
    """
    if revision is not None or not is_local(model):
        return revision
    files = sorted(path for path in Path(model).rglob("*") if path.suffix in DECIDING and path.is_file())
    if not any(path.name == "config.json" for path in files):
        raise _not_saved(model)
    return LOCAL_PREFIX + _digest(
        tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files), model
    )


def _not_saved(model: str) -> ConfigError:
    return ConfigError(
        f"{model} holds no config.json, so it is not a saved model; expected a save_pretrained directory"
    )


@lru_cache(maxsize=32)
def _digest(files: tuple[tuple[str, int, int], ...], root: str) -> str:
    state = hashlib.sha256()
    for name, size, _ in files:
        state.update(f"{Path(name).relative_to(root).as_posix()}\0{size}\0".encode())
        with Path(name).open("rb") as source:
            state.update(hashlib.file_digest(source, "sha256").digest())
    return state.hexdigest()[:16]
