"""``pivot view`` and ``pivot plot``: a store in a browser, as a site on disk, and as pictures."""

import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from ..core.errors import ConfigError
from ..core.storage import write_file
from ..insight.plots import save_plots
from ..insight.report.contents import Selection
from ..insight.report.serve import ViewServer
from ..insight.report.site import Site
from ..insight.report.site import report as write_site
from ..insight.stats import make_folder
from .console import ProgressBars, out, show_error
from .opening import note_missing_code, note_unfinished
from .options import StorePath, option, path_option


def view(
    root: StorePath,
    target: Annotated[
        Path | None, path_option("Write the site to this folder instead; an older site is replaced.", "--out", "PATH")
    ] = None,
    environment: Annotated[
        list[str] | None, option("Only this environment (default: all). May be repeated.", "--env")
    ] = None,
    failures_only: Annotated[
        bool, option("Leave out successes and episodes with an error.", "--failures-only")
    ] = False,
    limit: Annotated[int | None, option("Maximum number of episodes per environment.", "--limit", min=1)] = None,
    port: Annotated[
        int | None, option("Port of this machine (default: any free one).", "--port", min=0, max=65535)
    ] = None,
    browser: Annotated[bool, option("Open a browser.", "--open/--no-open")] = True,
) -> None:
    """Look at a store in a browser: filters, search, and every failure opened at its pivot.

    Pages are made when they are asked for; only this machine can reach them, until Ctrl-C. On a machine without a
    browser forward the port, for example with ssh -L 8080:127.0.0.1:8080, and give --port 8080 --no-open.

    With --out the same pages are written as a site, which needs no server and no network: open its index.html. Every
    page is also there as JSON.

    [bold]Examples[/]

    pivot view runs/first

    pivot view runs/first --out site

    pivot view runs/first --env sokoban --failures-only --limit 200
    """
    names = tuple(environment or ())
    note_unfinished(root)
    if target is not None:
        if port is not None:
            raise ConfigError("--port: belongs to a server, and --out writes a site without one; leave one out")
        with ProgressBars() as bars:
            contents = write_site(
                root, target, environments=names, failures_only=failures_only, limit=limit, reporter=bars
            )
        note_missing_code(root)
        count, stored = contents.record["count"], contents.record["stored"]
        out.print(f"{count} of {stored} episodes; open it: {target / 'index.html'}", soft_wrap=True)
        return
    site = Site(root, Selection(names, failures_only, limit))
    note_missing_code(root)
    with ViewServer(site, port or 0, show_error) as server:
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
    note_unfinished(root)
    pictures = save_plots(root, style.value)
    make_folder(target)
    for name, content in pictures.items():
        write_file(target / name, content)
    out.print(f"wrote to {target}: {', '.join(pictures) or 'nothing, because no episode failed'}")
