"""``pivot verify``, ``pivot stats`` and ``pivot peek``: the commands that read a store."""

import csv
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ...datasets.config import environment
from ...datasets.describe import EpisodeView, find_episode
from ...datasets.schema import LABELS
from ...datasets.store import Store
from ...datasets.verify import verify_store
from ...datasets.views import VIEWS, query
from ...errors import ConfigError, StoreError
from ...images import encode_png
from ..commit import settle
from ..execution import available_cores, worker_pool
from .console import ProgressBars, err, out, show_table

StorePath = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished store.")]

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
    settle(root)
    environments = list(Store.open(root).config.environments)
    with worker_pool(workers or available_cores(), environments) as pool, ProgressBars() as bars:
        report = verify_store(root, bars, pool.stream)
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        err.print(f"[red]✗[/] {escape(problem)}", soft_wrap=True)
    if len(report.problems) > _SHOWN_PROBLEMS:
        err.print(f"… and {len(report.problems) - _SHOWN_PROBLEMS} more problems")
    counts = ", ".join(f"{number} {name}" for name, number in report.checked.items())
    if report.problems:
        raise StoreError(f"{len(report.problems)} problems found in {root} (checked: {counts})")
    out.print(f"[green]✓[/] {root} holds: {counts}", soft_wrap=True)


def stats(
    root: StorePath,
    sql: Annotated[
        str | None, typer.Option("--sql", metavar="QUERY", help=f"Run a query instead; views: {', '.join(VIEWS)}.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the result of --sql as CSV.")] = False,
) -> None:
    """Show failure modes, pivot steps, group rates and rejects, or run your own SQL over the store.

    [bold]Example[/]

    pivot stats runs/first --sql "select failure_mode, count(*) from failures group by 1"
    """
    Store.open(root)
    if as_csv and sql is None:
        raise ConfigError("--csv prints the result of a query; give one with --sql QUERY")
    if sql is not None:
        names, rows = query(root, sql)
        if as_csv:
            writer = csv.writer(sys.stdout)
            writer.writerow(names)
            writer.writerows(rows)
        else:
            show_table("", names, rows)
        return
    for title, statement in _OVERVIEW:
        names, rows = query(root, statement)
        if rows or title not in _SHOWN_WHEN_FILLED:
            show_table(title, names, rows) if rows else out.print(f"{title}: none")


_OVERVIEW = (
    (
        "Groups of eight rollouts",
        """SELECT env AS environment, episodes, round(100 * success_rate, 1) AS "success %", groups,
           short_blocks AS short, round(100 * all_fail_rate, 1) AS "all fail %",
           round(100 * sigma0_rate, 1) AS "σ = 0 %"
           FROM group_rates""",
    ),
    (
        "Failure modes",
        """SELECT env AS environment, failure_mode AS mode, count(*) AS failures,
           round(100 * count(*) / sum(count(*)) OVER (PARTITION BY env), 1) AS "share %",
           round(avg(pivot_step), 2) AS "mean pivot", round(avg(num_steps), 2) AS "mean steps"
           FROM failures WHERE failure_mode IS NOT NULL GROUP BY env, failure_mode ORDER BY env, failures DESC""",
    ),
    (
        "Pivot step",
        "PIVOT (SELECT env AS environment, failure_mode AS mode, pivot_step, failures FROM modes_by_step) "
        "ON pivot_step USING coalesce(sum(failures), 0)::INT GROUP BY environment, mode ORDER BY environment, mode",
    ),
    (
        "Certificates against a better reference",
        """SELECT env AS environment, kind, reference, failures, round(100 * agreement, 1) AS "same pivot %",
           round(100 * earlier / failures, 1) AS "earlier %", round(mean_delay, 2) AS "mean delay (steps)",
           round(mean_gap, 2) AS "mean gap before pivot"
           FROM bound_quality""",
    ),
    (
        "Rejected labels",
        "SELECT env AS environment, name AS reason, count(*) AS labels FROM rejects GROUP BY ALL ORDER BY ALL",
    ),
)


_SHOWN_WHEN_FILLED = {"Certificates against a better reference"}
"""Tables that most environments have nothing to say in."""


def peek(
    root: StorePath,
    episode: Annotated[
        str | None, typer.Argument(metavar="EPISODE_ID", help="Episode, or the beginning of its id (default: any).")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Write the collage with the label.")] = None,
    env: Annotated[str | None, typer.Option("--env", help="Environment of the default episode.")] = None,
) -> None:
    """Show one episode: its label, certificate and action log, and as a picture with --png.

    [bold]Examples[/]

    pivot peek runs/first

    pivot peek runs/first episode-v1-8285c5 --png failure.png
    """
    store = Store.open(root)
    view = find_episode(store, episode) if episode else _any_failure(store, env)
    out.print(f"[bold]{view.title}[/]")
    for name, value in view.facts():
        out.print(f"  [dim]{name}[/]")
        out.print(f"    {value}", markup=False)
    out.print("  [dim]action log[/]")
    for step, line in enumerate(view.log):
        out.print(f"    {line}" + ("   ← pivot" if step == view.pivot_step else ""), markup=False)
    out.print("  [dim]level[/]")
    described = environment(view.episode["env"]).describe_state(view.episode["initial_state"])
    for line in described.splitlines():
        out.print(f"    {line}", markup=False)
    if png is not None:
        picture = encode_png(view.figure())
        try:
            png.write_bytes(picture)
        except OSError as error:
            raise StoreError(f"cannot write {png}: {error.strerror}; choose another --png file") from error
        out.print(f"picture: {png}", soft_wrap=True)
    elif view.steps:
        out.print(f"see it: pivot peek {root} {view.episode['episode_id']} --png failure.png", soft_wrap=True)


def _any_failure(store: Store, env: str | None) -> EpisodeView:
    """The first accepted failure of the store, preferring one whose pivot is not its first step."""
    first: EpisodeView | None = None
    for shard in store.config.shards():
        if env is not None and shard.env != env:
            continue
        for row in store.read(LABELS, shard, ["episode_id", "accepted", "pivot_step"]).to_pylist():
            if row["accepted"] and row["pivot_step"] > 0:
                return EpisodeView(store, shard, row["episode_id"])
            if first is None:
                first = EpisodeView(store, shard, row["episode_id"])
    if first is None:
        known = ", ".join(store.config.environments)
        raise StoreError(f"{store.root} holds no failure of {env or 'any environment'}; it holds: {known}")
    return first
