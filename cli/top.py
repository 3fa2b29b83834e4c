"""``pivot top``: the failures to look at first."""

from pydantic import Field

from ..core.errors import ConfigError
from ..core.images import encode_png
from ..core.storage import write_file
from ..datasets.store.nights import environments_of, nights_of
from ..insight.top import instructive, reasons, stacked
from .console import out, quoted, styled
from .from_config import Flag, Form, from_config
from .opening import note_unfinished
from .options import AddressField, Options, PictureField
from .peek import view_of


class TopOptions(Options):
    """Options of ``pivot top``."""

    root: AddressField
    """Folder of a store, or of several, or its s3:// address."""
    count: int = Field(default=5, ge=1, le=100)
    """Number of failures."""
    png: PictureField | None = None
    """Write their collages with the labels as one picture to this file."""
    env: str | None = None
    """Only this environment."""


@from_config(Form("top", TopOptions, {"root": Flag(argument="DIR"), "count": Flag("-n")}), file=False)
def top(options: TopOptions) -> None:
    """Show the most instructive failures, of different modes, steps and levels.

    A failure is instructive if turns were to spare at its pivot, if one action alone was safe there, and if other
    rollouts of the same model solved the level, even from the same state. The view instructive has all of them:
    pivot stats DIR "FROM instructive".

    [bold]Examples[/]

    pivot top runs/first

    pivot top runs/first -n 3 --png failures.png
    """
    root, png, env = options.root, options.png, options.env
    note_unfinished(root)
    if env is not None and env not in (stored := environments_of(nights_of(root, unfinished=True))):
        raise ConfigError(f"--env: found {env!r}, expected one of the store: {', '.join(stored)}")
    rows = instructive(root, options.count, [] if env is None else [env])
    if not rows:
        out.print("no failure has a pivot that lost a task within reach (labels come after all rollouts)")
        return
    for number, row in enumerate(rows, 1):
        place = f"step {row['pivot_step']} of 0 to {row['num_steps'] - 1}, by {row['fatal']}"
        out.print(styled((f"{number}. {row['env']}: {row['failure_mode']} at {place}", "bold")), soft_wrap=True)
        out.print(styled(f"   {reasons(row)}"), soft_wrap=True)
        out.print(styled((f"   pivot peek {quoted(root)} {row['episode_id']}", "dim")), soft_wrap=True)
    if png is not None:
        views = [view_of(root, row["episode_id"], None) for row in rows]
        whys = [f"{number}. {reasons(row)}" for number, row in enumerate(rows, 1)]
        write_file(png, encode_png(stacked([view.figure(why) for view, why in zip(views, whys, strict=True)])))
        out.print(f"picture: {png}", soft_wrap=True)
