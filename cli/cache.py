"""``pivot cache``: what the call cache holds."""

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import CacheError, ConfigError
from ..models.cache import CallCache
from ..models.service import default_cache
from .console import out, show_table
from .options import path_argument


def cache(
    file: Annotated[Path | None, path_argument("File of the cache (default: the one of all runs).", "FILE")] = None,
    last: Annotated[int, typer.Option("--last", help="Show the N most recently cached responses.", min=0)] = 0,
) -> None:
    """Show the cached responses: their number and tokens per model.

    A build calls a model only for responses that are not in the cache; --refresh calls it anyway, --no-cache does not
    use the cache. The cache is an SQLite database: remove the file to empty it.

    [bold]Examples[/]

    pivot cache

    pivot cache --last 3
    """
    path = file or Path(default_cache())
    if file is None and not path.exists():
        out.print(f"no answers are kept yet ({path}); builds with a model's policy or teacher keep them")
        return
    if not path.is_file():
        raise ConfigError(f"no call cache at {path}; builds with a model's policy or teacher make one")
    try:
        calls = CallCache(path)
    except CacheError as error:
        raise ConfigError(f"FILE: {error}") from error
    try:
        counts, latest = calls.counts(), calls.latest(last)
    finally:
        calls.close()
    show_table(
        f"{path} ({path.stat().st_size / 1e6:.1f} MB)",
        ["model", "checkpoint", "role", "answers", "prompt tokens", "reply tokens", "newest"],
        [
            [
                *(each.model, each.served_as or "unknown", each.role, each.answers),
                *(each.prompt_tokens, each.completion_tokens, each.newest),
            ]
            for each in counts
        ],
    )
    for facts, answer in latest:
        sampling = ", ".join(f"{name} {value}" for name, value in facts["sampling"].items())
        out.print(
            f"\n{facts['model'].get('model')}, prompt {facts['prompt_hash'][:12]}, seed {facts['seed']}, {sampling}"
        )
        out.print(repr(answer["text"][:2000]), soft_wrap=True)
