"""``pivot peek``: one episode with its label."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ConfigError, StoreError
from ..core.images import encode_png
from ..core.storage import Address, write_file
from ..datasets.export.describe import EpisodeView, any_failure, find_episode
from ..datasets.store.config import environment
from ..datasets.store.nights import nights_of
from ..datasets.store.store import Store
from .console import out, quoted, styled
from .opening import note_unfinished
from .options import StorePath, path_option


def peek(
    root: StorePath,
    episode: Annotated[
        str | None,
        typer.Argument(metavar="EPISODE_ID", help="Episode, by the beginning of its id or digest (default: any)."),
    ] = None,
    png: Annotated[Path | None, path_option("Write the collage with the label.", "--png", "FILE")] = None,
    env: Annotated[str | None, typer.Option("--env", help="Environment of the default episode.")] = None,
) -> None:
    """Show one episode: its label, certificate and action log, and as a picture with --png.

    [bold]Examples[/]

    pivot peek runs/first

    pivot peek runs/first episode-v1-8285c5 --png failure.png
    """
    check_png(png)
    if episode == "":
        raise ConfigError("EPISODE_ID: found an empty text, expected the beginning of an id; leave it out for any")
    note_unfinished(root)
    view = view_of(root, episode, env)
    if png is not None:
        write_file(png, encode_png(view.figure()))
    out.print(styled((view.title, "bold")))
    for name, value in view.facts():
        out.print(styled((f"  {name}", "dim")))
        out.print(styled(f"    {value}"))
    out.print(styled(("  action log", "dim")))
    for step, line in enumerate(view.log):
        out.print(styled(f"    {line}" + ("   ← pivot" if step == view.pivot_step else "")))
    out.print(styled(("  level", "dim")))
    described = environment(view.episode["env"]).describe_state(view.episode["initial_state"])
    for line in described.splitlines():
        out.print(styled(f"    {line}"))
    if png is not None:
        out.print(f"picture: {png}", soft_wrap=True)
    elif view.steps:
        out.print(f"see it: pivot peek {quoted(root)} {view.episode['episode_id']} --png failure.png", soft_wrap=True)


def check_png(png: Path | None) -> None:
    """Check the name of a picture before it is drawn.

    Raises:
        ConfigError: it has another suffix, or its folder is missing.
    """
    if png is not None and png.suffix.lower() not in ("", ".png"):
        raise ConfigError(f"--png: found {str(png)!r}, expected a name that ends in .png")
    if png is not None and not png.parent.is_dir():
        raise ConfigError(f"--png: found {str(png)!r}, expected a file in a folder that exists")


def view_of(root: Address, episode: str | None, env: str | None) -> EpisodeView:
    """Find an episode in a store or in a folder of nights."""

    def seen_in(store: Store) -> EpisodeView:
        return find_episode(store, episode) if episode else any_failure(store, env)

    nights = [*nights_of(root, unfinished=True).values()]
    for store in nights:
        with contextlib.suppress(StoreError):
            return seen_in(store)
    return seen_in(nights[0])
