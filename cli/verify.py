"""``pivot verify``: prove a store again."""

from typing import Annotated

import typer
from rich.markup import escape

from ..datasets.proof.verify import verify_store
from ..datasets.store import Store
from ..errors import StoreError
from ..flows.engines.local import available_cores, worker_pool
from ..storage import open_storage
from ..storage.commit import settle
from .console import ProgressBars, err, out
from .options import StorePath

_SHOWN_PROBLEMS = 20


def verify(
    root: StorePath,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Worker processes (default: one a core).")] = 0,
) -> None:
    """Prove every label again from the stored rows, and check that nothing was changed, removed or added.

    Levels and episode ids are derived anew from run.json, rewards and frames from a replay, frame ids from pixels, and
    every label from a second, independent search. The exit status is 1 when a problem was found.

    [bold]Example[/]

    pivot verify runs/first
    """
    settle(open_storage(root))
    environments = list(Store.open(root).config.environments)
    with worker_pool(workers or available_cores(), environments) as pool, ProgressBars() as bars:
        report = verify_store(root, bars, pool.stream)
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        err.print(f"[red]✗[/] {escape(problem)}", soft_wrap=True)
    if len(report.problems) > _SHOWN_PROBLEMS:
        err.print(f"… and {len(report.problems) - _SHOWN_PROBLEMS} more problems")
    counts = ", ".join(f"{number} {name}" for name, number in report.checked.items())
    if report.unproved:
        counts += f" ({report.unproved} of them unproved: no independent search decided them)"
    if report.problems:
        raise StoreError(f"{len(report.problems)} problems found in {root} (checked: {counts})")
    out.print(f"[green]✓[/] {root} holds: {counts}", soft_wrap=True)
