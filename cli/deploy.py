"""``pivot deploy``: the file from which Prefect schedules builds, and a server and worker for it on this machine."""

import signal
from importlib.resources import files
from pathlib import Path

from pydantic import Field, model_validator

from ..core.errors import ConfigError
from ..core.storage import write_file
from ..flows.serve import named_server
from ..flows.serve import serve as run_worker
from .console import err, out
from .from_config import Form, from_config
from .options import Options, OutputField

FILE = "prefect.yaml"
ALERTS = "alerts.yaml"
HEAD = "#   "
"""Prefix of a line in the head of the file that contains a command."""


class DeployOptions(Options):
    """Options of ``pivot deploy``."""

    to: OutputField = Path(FILE)
    """File to write."""
    serve: bool = False
    """Serve it here until Ctrl-C: a Prefect server and a worker on loopback."""
    work: bool = False
    """Deploy it to the server of PREFECT_API_URL, and run its only worker here."""
    port: int = Field(default=4200, ge=1, le=65535)
    """Port of the server of --serve."""
    runs: int | None = Field(default=None, ge=1)
    """Maximum number of simultaneous runs of all deployments together; by default no limit."""
    rules: OutputField | None = None
    """Write alerts for Prometheus to this file instead."""

    @model_validator(mode="after")
    def _belong_together(self) -> "DeployOptions":
        if self.serve and self.work:
            raise ValueError(
                "--serve and --work: expected one of the two; --work uses a server that is already running"
            )
        if "port" in self.model_fields_set and not self.serve:
            raise ValueError(f"--port: found {self.port} without --serve, whose server has it; give both or neither")
        if self.rules is not None and len(self.model_fields_set) > 1:
            raise ValueError("--rules: writes alerts and nothing else; give it without other options")
        if self.runs is not None and not (self.serve or self.work):
            raise ValueError(
                "--runs: limits the worker of --serve or --work; give one of them, or a limit to `prefect worker start`"
            )
        return self


@from_config(Form("deploy", DeployOptions), file=False)
def deploy(options: DeployOptions) -> None:
    """Write prefect.yaml, which holds nightly builds and more, and show the commands that register it with Prefect.

    Five nightly builds, one per environment, whose folder and seed come from the scheduled date and which verify their
    store; and builds on demand, with a form on Prefect's pages. Edit folders and times in the file before deploying.

    With --serve the file is written if it is not there, and deployed; flows run in the folder that holds it. A run that
    Ctrl-C interrupted keeps its finished shards: start it again on Prefect's pages.

    With --work the server is one of your own, such as that of a container; its password is PREFECT_API_AUTH_STRING.

    [bold]Examples[/]

    pivot deploy

    pivot deploy --serve

    pivot deploy --serve --runs 2

    pivot deploy --rules pivot-alerts.yaml
    """
    target, serve, work, runs, rules = options.to, options.serve, options.work, options.runs, options.rules
    if work:
        named_server()
    shipped = files(__name__.partition(".")[0])
    if rules is not None:
        if rules.exists():
            raise ConfigError(f"{rules} exists; remove it, or name another file with --rules")
        write_file(rules, shipped.joinpath("flows", ALERTS).read_bytes())
        out.print(f"wrote {rules}; name it under rule_files of prometheus.yml", soft_wrap=True)
        return
    text = shipped.joinpath(FILE).read_text(encoding="utf-8")
    if not target.exists():
        write_file(target, text.encode())
        written = f"wrote {target}"
    elif serve or work:
        written = f"{target} is there"
    else:
        raise ConfigError(f"{target} exists; remove it, or name another file with --to")
    if serve or work:
        what = "starting a Prefect server and a worker" if serve else "deploying it to the server and starting a worker"
        err.print(f"{written}; {what} (half a minute)", soft_wrap=True)
        for each in (signal.SIGINT, signal.SIGTERM):  # a service manager's way to say Ctrl-C
            signal.signal(each, signal.default_int_handler)
        try:
            run_worker(target, options.port if serve else None, runs, _show_address)
        except KeyboardInterrupt:
            ended = "server and worker are ended" if serve else "the worker is ended"
            err.print(f"{ended}; start runs that were at work again", soft_wrap=True)
            return
    out.print(f"{written}; edit it, then, on the machine that shall work:")
    for line in text.splitlines():
        if line.startswith(HEAD):
            out.print(f"  {line.removeprefix(HEAD)}", soft_wrap=True)


def _show_address(address: str) -> None:
    out.print(f"deployments, runs and forms: {address}/deployments until Ctrl-C", soft_wrap=True)
