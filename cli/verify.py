"""``pivot verify``: check a store."""

from pydantic import Field

from ..core.errors import StoreError
from ..core.guard import expect_progress, limit_memory
from ..flows import verify as verification
from ..labeling.statements import count
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
    max_seconds: float = Field(default=600.0, ge=1)
    """Seconds that one shard, or one check of the whole store, may take, on Linux."""
    max_memory: int = Field(default=1024, ge=64)
    """MiB of memory that each process may take for it, on Linux."""


class _WatchedBars(ProgressBars):
    """Progress bars that end the command after a long time without progress."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        expect_progress(seconds)

    def __exit__(self, *error: object) -> None:
        expect_progress(0)
        super().__exit__(*error)

    def start(self, stage: str, total: int) -> None:
        """Show a new bar."""
        expect_progress(self._seconds)
        super().start(stage, total)

    def advance(self, stage: str, amount: int) -> None:
        """Move the bar on."""
        expect_progress(self._seconds)
        super().advance(stage, amount)


OPTIONS = Form("verify", VerifyOptions, {"root": Flag(argument="DIR")})


@from_config(OPTIONS, WORKERS)
def verify(options: VerifyOptions, workers: WorkerOptions) -> None:
    """Re-derive every label from the stored rows, and check that nothing was changed, removed or added.

    Levels and episode ids are derived from run.json again, rewards and frames from a replay, frame ids from pixels, and
    every label from a second, independent search. Of a rollback probe only the digests are compared. The exit status is
    1 when a problem was found. No path that run.json names is followed without --sources, so a store from elsewhere can
    be verified safely.

    [bold]Examples[/]

    pivot verify runs/first

    pivot verify runs/first --export runs/first-pairs
    """
    root = options.root
    limit_memory(options.max_memory)
    with _WatchedBars(options.max_seconds) as bars:
        report = verification.verify(
            root, sources=options.sources, export=options.export, reporter=bars, **workers.model_dump()
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
        raise StoreError(f"{count(len(report.problems), 'problem')} found in {root} (checked: {counts})")
    out.print(styled(("✓", "green"), f" {root} holds: {counts}"), soft_wrap=True)
    for line in report.scope() if report.files else ():
        out.print(styled(f"  {line}"), soft_wrap=True)
