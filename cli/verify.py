"""``pivot verify``: prove a store again."""

from typing import Annotated

import typer

from ..datasets.proof.verify import refuse_while_written, verify_store
from ..datasets.store import Store
from ..errors import StoreError
from ..flows.engines.base import Workers, open_pool
from ..insight.probe.proof import probe_problems
from .console import ProgressBars, err, out, styled
from .engines import WORKERS, ClusterAddress, EngineName
from .options import StorePath, option

_SHOWN_PROBLEMS = 20


def verify(
    root: StorePath,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources", help="Read what run.json names elsewhere, such as a folder of targets, to make levels again."
        ),
    ] = False,
    workers: Annotated[int, option(WORKERS, "--workers", min=0)] = 0,
    engine: EngineName = "local",
    address: ClusterAddress = "",
) -> None:
    """Prove every label again from the stored rows, and check that nothing was changed, removed or added.

    Levels and episode ids are derived anew from run.json, rewards and frames from a replay, frame ids from pixels, and
    every label from a second, independent search; retries of a rollback probe are played again. The exit status is 1
    when a problem was found. No path that run.json names is followed without --sources, so a store from elsewhere can
    be verified safely.

    [bold]Example[/]

    pivot verify runs/first
    """
    refuse_while_written(root)
    environments = list(Store.open(root).config.environments)
    with open_pool(Workers(engine, address, workers), environments, root, writes=False) as pool, ProgressBars() as bars:
        report = verify_store(root, bars, pool.stream, follow=sources)
    report.problems += probe_problems(Store.open(root), follow=sources)
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
