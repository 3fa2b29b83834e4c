"""``pivot prune`` and ``pivot cache``: old nights, and cached answers of models."""

from contextlib import closing
from pathlib import Path

from rich.filesize import decimal

from ..core.errors import CacheError, ConfigError
from ..flows import prune as pruning
from ..models.cache import CallCache
from ..models.service import default_cache
from .console import ProgressBars, err, out, show_table
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, PathField


class PruneOptions(Options):
    """Options of ``pivot prune``."""

    root: AddressField
    """A folder of nights, or its s3:// address."""
    keep: str
    """Nights to keep: days such as 14d, or a number such as 30."""
    owner: str | None = None
    """Only nights of this owner; needed where nights have several."""
    now: bool = False
    """Remove files at once, not on a later day."""
    yes: bool = False
    """Also remove more than half of the nights."""
    dry_run: bool = False
    """Only show what would be removed."""


FLAGS = {"root": Flag(argument="DIR"), "keep": Flag(metavar="RULE")}


@from_config(Form("prune", PruneOptions, FLAGS), file=False)
def prune(options: PruneOptions) -> None:
    """Remove old nights with their reports.

    Nights are the finished stores in DIR that are named by a day (2026-01-31). Nothing else is removed, and the newest
    night never; a night that a run writes is left alone. An old night is marked first: readers leave it out, and the
    next prune on a later day removes it. Until then, rename its .removed-DAY.json to manifest.json to have it back.

    [bold]Examples[/]

    pivot prune runs/nightly --keep 14d --dry-run

    pivot prune runs/nightly --keep 30
    """
    with ProgressBars() as bars:
        pruned = pruning.prune(**dict(options), reporter=bars)
    for line in pruned.kept:
        err.print(f"kept: {line}", soft_wrap=True)
    rows = [[each.kind, each.address, each.files, decimal(each.bytes)] for each in pruned.removals]
    if rows:
        show_table("To do" if options.dry_run else "Done", ["what", "where", "files", "size"], rows)
    said = [f"{decimal(pruned.bytes)} removed"] * bool(pruned.bytes)
    said += [f"{pruned.marked} nights marked, which the next prune on a later day removes"] * bool(pruned.marked)
    text = ", ".join(said) or "nothing to remove"
    out.print(f"{text}; with --dry-run nothing was changed" if rows and options.dry_run else text, soft_wrap=True)


class CacheOptions(Options):
    """Options of ``pivot cache``."""

    file: PathField | None = None
    """File of the cache; by default the one of all runs."""


@from_config(Form("cache", CacheOptions, {"file": Flag(argument="FILE")}), file=False)
def cache(options: CacheOptions) -> None:
    """Show the cached responses: their number and tokens per model.

    A build calls a model only for responses that are not in the cache; --refresh calls it anyway, --no-cache does not
    use the cache. The cache is an SQLite database: remove the file to empty it.

    [bold]Example[/]

    pivot cache
    """
    path = options.file or Path(default_cache())
    if options.file is None and not path.exists():
        out.print(f"no answers are kept yet ({path}); builds with a model's policy or teacher keep them")
        return
    if not path.is_file():
        raise ConfigError(f"no call cache at {path}; builds with a model's policy or teacher make one")
    try:
        calls = CallCache(path)
    except CacheError as error:
        raise ConfigError(f"FILE: {error}") from error
    with closing(calls):
        counts = calls.counts()
    show_table(
        f"{path} ({path.stat().st_size / 1e6:.1f} MB)",
        ["model", "checkpoint", "role", "answers", "prompt tokens", "reply tokens", "newest"],
        [[model, served_as or "unknown", *more] for model, served_as, *more in counts],
    )
