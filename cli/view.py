"""``pivot view``: look at a store in a browser."""

import webbrowser
from typing import Annotated

from ..insight.report.contents import Selection
from ..insight.report.serve import ViewServer
from ..insight.report.site import Site
from .console import out, show_error
from .opening import note_missing_code
from .options import StorePath, option
from .report import EnvironmentNames, FailuresOnly, Limit, Other


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
