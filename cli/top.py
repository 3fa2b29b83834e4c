"""``pivot top``: the failures to look at first."""

from pathlib import Path
from typing import Annotated

from ..core.images import encode_png
from ..core.storage import write_file
from ..insight.top import instructive, reasons, stacked
from .console import out, quoted, styled
from .opening import note_unfinished
from .options import StorePath, option, path_option
from .peek import check_png, view_of


def top(
    root: StorePath,
    count: Annotated[int, option("Number of failures.", "-n", metavar="INTEGER", min=1, max=100)] = 5,
    png: Annotated[
        Path | None, path_option("Write their collages with the labels as one picture.", "--png", "FILE")
    ] = None,
    env: Annotated[str | None, option("Only this environment.", "--env", metavar="ENV")] = None,
) -> None:
    """Show the most instructive failures, of different modes, steps and levels.

    A failure is instructive if turns were to spare at its pivot, if one action alone was safe there, and if other
    rollouts of the same model solved the level, even from the same state. The view instructive has all of them:
    pivot stats DIR "FROM instructive".

    [bold]Examples[/]

    pivot top runs/first

    pivot top runs/first -n 3 --png failures.png
    """
    check_png(png)
    note_unfinished(root)
    rows = instructive(root, count, [] if env is None else [env])
    if not rows:
        out.print("no failure with a pivot that lost a task within reach" + ("" if env is None else f" in {env}"))
        return
    for number, row in enumerate(rows, 1):
        place = f"step {row['pivot_step']} of {row['num_steps']} ({row['fatal']})"
        out.print(styled((f"{number}. {row['env']}: {row['failure_mode']} at {place}", "bold")), soft_wrap=True)
        out.print(styled(f"   {reasons(row)}"), soft_wrap=True)
        out.print(styled((f"   pivot peek {quoted(root)} {row['episode_id']}", "dim")), soft_wrap=True)
    if png is not None:
        write_file(png, encode_png(stacked([view_of(root, row["episode_id"], None).figure() for row in rows])))
        out.print(f"picture: {png}", soft_wrap=True)
