"""``pivot peek``: one episode with its label."""

import contextlib

from pydantic import Field

from ..core.errors import StoreError
from ..core.images import encode_png
from ..core.storage import Address, write_file
from ..datasets.export.describe import EpisodeView, any_failure, find_episode
from ..datasets.store.config import environment
from ..datasets.store.nights import nights_of
from ..datasets.store.store import Store
from .console import out, quoted, styled
from .from_config import Flag, Form, from_config
from .opening import note_unfinished
from .options import AddressField, Options, PictureField


class PeekOptions(Options):
    """Options of ``pivot peek``."""

    root: AddressField
    """Folder of a store, or of several, or its s3:// address."""
    episode: str | None = Field(default=None, min_length=1)
    """Episode, by the beginning of its id or digest; by default any failure."""
    png: PictureField | None = None
    """Write the collage with the label to this file."""
    env: str | None = None
    """Environment of the default episode."""


FORM = Form("peek", PeekOptions, {"root": Flag(argument="DIR"), "episode": Flag(argument="EPISODE_ID")})


@from_config(FORM, file=False)
def peek(options: PeekOptions) -> None:
    """Show one episode: its label, certificate and action log, and as a picture with --png.

    [bold]Examples[/]

    pivot peek runs/first

    pivot peek runs/first episode-v1-8285c5 --png failure.png
    """
    root, png = options.root, options.png
    note_unfinished(root)
    view = view_of(root, options.episode, options.env)
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


def view_of(root: Address, episode: str | None, env: str | None) -> EpisodeView:
    """Find an episode in a store or in a folder of nights."""

    def seen_in(store: Store) -> EpisodeView:
        return find_episode(store, episode) if episode else any_failure(store, env)

    nights = [*nights_of(root, unfinished=True).values()]
    for store in nights:
        with contextlib.suppress(StoreError):
            return seen_in(store)
    return seen_in(nights[0])
