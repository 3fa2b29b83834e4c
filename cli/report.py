"""``pivot report``, ``pivot view`` and ``pivot plot``: a store as a site on disk, in a browser, and as pictures."""

import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from ..core.storage import write_file
from ..insight.plots import save_plots
from ..insight.report.contents import Selection
from ..insight.report.serve import ViewServer
from ..insight.report.site import Site
from ..insight.report.site import report as write_site
from ..insight.stats import make_folder
from .console import ProgressBars, out, show_error
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
        contents = write_site(
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


def view(
    root: StorePath,
    port: Annotated[int, option("Port of this machine (default: any free one).", "--port", min=0, max=65535)] = 0,
    browser: Annotated[bool, option("Open a browser.", "--open/--no-open")] = True,
    environment: EnvironmentNames = None,
    failures_only: FailuresOnly = False,
    limit: Limit = None,
    other: Other = None,
) -> None:
    """Look at a store in a browser: the site of pivot report; pages are rendered on request.

    Only this machine can reach it; Ctrl-C ends it. On a machine without a browser forward the port, for example with
    ssh -L 8080:127.0.0.1:8080, and give --port 8080 --no-open.

    [bold]Examples[/]

    pivot view runs/first

    pivot view runs/second --with runs/first
    """
    site = Site(root, Selection(tuple(environment or ()), failures_only, limit, draw_plans=True), other)
    note_missing_code(root)
    with ViewServer(site, port, show_error) as server:
        out.print(f"{site.contents.record['count']} episodes at {server.address} until Ctrl-C", soft_wrap=True)
        if browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            out.print("")
        finally:
            site.close()


class PictureFormat(StrEnum):
    """Format of a picture."""

    PNG = "png"
    SVG = "svg"


def plot(
    root: StorePath,
    target: Annotated[Path, path_option("Folder for the pictures.", "--out", "PATH")] = Path("plots"),
    style: Annotated[PictureFormat, option("Format of the pictures.", "--format")] = PictureFormat.PNG,
) -> None:
    """Draw a store: return ladder, failure modes, pivot steps, slack; after a probe also its improvements.

    The plotting library comes with the extra "plots" of the package.

    [bold]Example[/]

    pivot plot runs/first --out plots
    """
    pictures = save_plots(root, style.value)
    make_folder(target)
    for name, content in pictures.items():
        write_file(target / name, content)
    out.print(f"wrote to {target}: {', '.join(pictures) or 'nothing, because no episode failed'}")
