"""``pivot verify``: check a store."""

from pydantic import Field

from ..core.errors import StoreError
from ..datasets.verify.limits import MEMORY, SECONDS, Limits, end_process
from ..flows import verify as verification
from .build import WORKERS
from .console import ProgressBars, err, out, styled
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, WorkerOptions

_SHOWN_PROBLEMS = 20


class VerifyOptions(Options):
    """Options of ``pivot verify``."""

    root: AddressField
    """Folder of a finished store, or its s3:// address."""
    sources: bool = False
    """Read paths that run.json names outside the store, such as a folder of targets, to derive levels again."""
    export: AddressField | None = None
    """Folder of an export of this store, or its s3:// address; every row of it is checked against the store, too."""
    max_seconds: float = Field(default=SECONDS, ge=1)
    """Seconds that one shard, or one check of the whole store, may take."""
    max_memory: int = Field(default=MEMORY, ge=64)
    """MiB of memory that each process may take for it, on Linux."""


OPTIONS = Form("verify", VerifyOptions, {"root": Flag(argument="DIR"), "sources": Flag(off="-")})


@from_config(OPTIONS, WORKERS)
def verify(options: VerifyOptions, workers: WorkerOptions) -> None:
    """Re-derive every label from the stored rows, and check that nothing was changed, removed or added.

    Levels and episode ids are derived from run.json again, rewards and frames from a replay, frame ids from pixels, and
    every label from a second, independent search; retries of a rollback probe are replayed. The exit status is 1
    when a problem was found. No path that run.json names is followed without --sources, so a store from elsewhere can
    be verified safely. A shard that takes more than the limits of time and memory is a problem.

    [bold]Examples[/]

    pivot verify runs/first

    pivot verify runs/first --export runs/first-pairs
    """
    root = options.root
    ends = end_process if workers.engine == "local" else None  # a process of a cluster is not ours to end
    limits = Limits(options.max_seconds, options.max_memory, ends)
    with ProgressBars() as bars:
        report = verification.verify(
            root,
            sources=options.sources,
            export=options.export,
            limits=limits,
            reporter=bars,
            **workers.model_dump(),
        )
    for note in report.notes:
        err.print(styled(("!", "yellow"), f" {note}"), soft_wrap=True)
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        err.print(styled(("✗", "red"), f" {problem}"), soft_wrap=True)
    if len(report.problems) > _SHOWN_PROBLEMS:
        err.print(f"… and {len(report.problems) - _SHOWN_PROBLEMS} more problems")
    counts = ", ".join(f"{number} {name}" for name, number in report.checked.items())
    if report.unproved:
        counts += f" ({report.unproved} of them unproved: no independent search decided them)"
    if report.problems:
        raise StoreError(f"{len(report.problems)} problems found in {root} (checked: {counts})")
    out.print(styled(("✓", "green"), f" {root} holds: {counts}"), soft_wrap=True)
    for line in report.scope() if report.files else ():
        out.print(styled(f"  {line}"), soft_wrap=True)
