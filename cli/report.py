"""``pivot report``: a store as a site that opens from disk."""

from pathlib import Path
from typing import Annotated

from ..insight.report import site
from .console import ProgressBars, out
from .opening import note_missing_code
from .options import StoreAddress, StorePath, address_option, option, path_option

EnvironmentNames = Annotated[
    list[str] | None, option("Only this environment (default: all). May be repeated.", "--env")
]
FailuresOnly = Annotated[bool, option("Leave out successes and episodes with an error.", "--failures-only")]
Limit = Annotated[int | None, option("Maximum number of episodes per environment (first N).", "--limit", min=1)]
Other = Annotated[
    StoreAddress | None, address_option("A second store to show beside the first one, level by level.", "--with")
]


def report(
    root: StorePath,
    target: Annotated[Path, path_option("Folder of the site; an existing report is replaced.", "--out", "PATH")] = Path(
        "report"
    ),
    environment: EnvironmentNames = None,
    failures_only: FailuresOnly = False,
    limit: Limit = None,
    draw_plans: Annotated[
        bool,
        option("Also render witness plans for environments with slow rendering (navigation).", "--draw-plans"),
    ] = False,
    other: Other = None,
) -> None:
    """Write a store as a site: filters, search, and every failure opened at its pivot.

    The site needs no server and no network: open its index.html in a browser. Every page is also there as JSON. The
    overview has the pictures of pivot plot if the extra "plots" is installed.

    [bold]Examples[/]

    pivot report runs/first --out report

    pivot report runs/first --env sokoban --failures-only --limit 200

    pivot report runs/second --with runs/first
    """
    with ProgressBars() as bars:
        contents = site.report(
            root,
            target,
            environments=tuple(environment or ()),
            failures_only=failures_only,
            limit=limit,
            draw_plans=draw_plans,
            other=other,
            reporter=bars,
        )
    note_missing_code(root)
    count, stored = contents.record["count"], contents.record["stored"]
    out.print(f"{count} of {stored} episodes; open it: {target / 'index.html'}", soft_wrap=True)
