"""``pivot report``: a store as a site that opens from disk."""

from pathlib import Path
from typing import Annotated

from ..api import reading as api
from .console import ProgressBars, out
from .options import StorePath, option

EnvironmentNames = Annotated[
    list[str] | None, option("Only this environment; again for more (default: all).", "--environment")
]
FailuresOnly = Annotated[bool, option("Leave out what succeeded or broke.", "--failures-only")]
Limit = Annotated[int | None, option("At most so many episodes of each environment, the first ones.", "--limit", min=1)]


def report(
    root: StorePath,
    target: Annotated[Path, option("Folder of the site; replaces a report that is there.", "--out")] = Path("report"),
    environment: EnvironmentNames = None,
    failures_only: FailuresOnly = False,
    limit: Limit = None,
    draw_plans: Annotated[
        bool,
        option("Draw plans that still worked also where a picture takes milliseconds (navigation).", "--draw-plans"),
    ] = False,
) -> None:
    """Write a store as a site to look at: filters, search, and every failure opened at its pivot.

    It needs no server and no network: open its index.html in a browser. Every page lies beside it as JSON. The overview
    has the pictures of pivot plot where the extra "plots" is installed.

    [bold]Examples[/]

    pivot report runs/first --out report

    pivot report runs/first --environment sokoban --failures-only --limit 200
    """
    with ProgressBars() as bars:
        contents = api.report(
            root,
            target,
            environments=tuple(environment or ()),
            failures_only=failures_only,
            limit=limit,
            draw_plans=draw_plans,
            reporter=bars,
        )
    count, stored = contents.record["count"], contents.record["stored"]
    out.print(f"{count} of {stored} episodes; open it: {target / 'index.html'}", soft_wrap=True)
