"""``pivot view`` and ``pivot plot``: a store in a browser, as a site on disk, and as pictures."""

import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from pydantic import Field

from ..core.errors import ConfigError
from ..core.storage import write_file
from ..insight.plots import save_plots
from ..insight.report.contents import Selection
from ..insight.report.serve import ViewServer
from ..insight.report.site import Site
from ..insight.report.site import report as write_site
from ..insight.stats import make_folder
from .console import ProgressBars, out, show_error
from .from_config import Flag, Form, from_config
from .opening import note_missing_code, note_unfinished
from .options import AddressField, Options, OutputField


class ViewOptions(Options):
    """Options of ``pivot view``."""

    root: AddressField
    """Folder of a store, or of nights, or its s3:// address."""
    out: OutputField | None = None
    """Write the site to this folder instead; an older site is replaced."""
    env: tuple[str, ...] = ()
    """Only this environment."""
    failures_only: bool = False
    """Leave out successes and episodes with an error."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of episodes per environment."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """Port of this machine; by default any free one."""
    open: bool = True
    """Open a browser."""


VIEW = Form("view", ViewOptions, {"root": Flag(argument="DIR")})


@from_config(VIEW, file=False)
def view(options: ViewOptions) -> None:
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
    root, target = options.root, options.out
    selection = Selection(options.env, options.failures_only, options.limit)
    note_unfinished(root)
    if target is not None:
        if options.port is not None:
            raise ConfigError("--port: belongs to a server, and --out writes a site without one; leave one out")
        with ProgressBars() as bars:
            contents = write_site(root, target, **asdict(selection), reporter=bars)
        note_missing_code(root)
        count, stored = contents.record["count"], contents.record["stored"]
        out.print(f"{count} of {stored} episodes; open it: {target / 'index.html'}", soft_wrap=True)
        return
    site = Site(root, selection)
    note_missing_code(root)
    with ViewServer(site, options.port or 0, show_error) as server:
        out.print(f"{site.contents.record['count']} episodes at {server.address} until Ctrl-C", soft_wrap=True)
        if options.open:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            out.print("")
        finally:
            site.close()


class PlotOptions(Options):
    """Options of ``pivot plot``."""

    root: AddressField
    """Folder of a store, or of nights, or its s3:// address."""
    out: OutputField = Path("plots")
    """Folder for the pictures."""
    format: Literal["png", "svg"] = "png"
    """Format of the pictures."""


@from_config(Form("plot", PlotOptions, {"root": Flag(argument="DIR")}), file=False)
def plot(options: PlotOptions) -> None:
    """Draw a store: return ladder, failure modes, pivot steps, slack; after a probe also its improvements.

    The plotting library comes with the extra "plots" of the package.

    [bold]Example[/]

    pivot plot runs/first --out plots
    """
    root, target = options.root, options.out
    note_unfinished(root)
    pictures = save_plots(root, options.format)
    make_folder(target)
    for name, content in pictures.items():
        write_file(target / name, content)
    out.print(f"wrote to {target}: {', '.join(pictures) or 'nothing, because no episode failed'}")
