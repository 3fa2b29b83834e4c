"""The plan of a build, and its summary."""

import shlex
from pathlib import Path

import polars as pl
import typer

from ..core.storage import Address
from ..datasets.store.config import RunConfig
from ..datasets.store.nights import load_store
from ..datasets.store.store import Store, StoreFrames
from ..datasets.store.usage import USAGE_HEADER, checkpoints, endings, left_out, usage_rows
from ..flows.pipeline import BuildResult
from ..labeling.base import UNANSWERED
from ..labeling.label import TEACHER
from .console import out, percent, resuming, show_table, warn

PENDING = 3
"""Exit status of a command that is complete but for pending episodes or answers; the next run makes them."""

NO_GUIDANCE = 4
"""Exit status of a finished command whose teacher gave no usable guidance for any label."""


def show_plan(config: RunConfig, root: Address, workers: int) -> None:
    """Print the plan of a build: its contents and its folder."""
    rows = [
        [name, run.tasks, run.tasks * config.rollouts, sum(shard.env == name for shard in config.shards())]
        for name, run in config.environments.items()
    ]
    show_table("Plan", ["environment", "tasks", "episodes", "shards"], rows)
    out.print(
        f"policy {config.policy.name}, teacher {config.teacher.name}, split by {config.split}, seed {config.seed}, "
        f"{workers} workers"
    )
    out.print(f"the store would be {root}; nothing was written")


def _show_usage(store: Store) -> None:
    usage = usage_rows(store)
    if usage:
        show_table("Models", USAGE_HEADER, usage)
    for line in (*left_out(store), *endings(store)):
        out.print(line, soft_wrap=True)
    for role, counts in checkpoints(store).items():
        several = ", ".join(f"{name!r} ({count})" for name, count in counts.items())
        warn(
            f"answers to the {role} come from {len(counts)} checkpoints: {several}; for one alone, build with --refresh"
        )


def _load_line(root: Address, config: str) -> str:
    """Return the call that loads one config; folders and the hub are loaded by name, other stores by files."""
    if isinstance(root, Path):
        return f'load_dataset("{root}/dataset", "{config}")'
    return f'load_dataset("parquet", data_files="{root}/dataset/{config}/train-*.parquet")'


def _next_commands(result: BuildResult) -> dict[str, str]:
    """Return commands for the next steps after a build, each with its purpose."""
    root, counts = shlex.quote(str(result.root)), result.environments
    hints = {f"pivot stats {root}": "failure modes, groups, rejects"}
    if any(each["failed"] for each in counts.values()):
        hints[f"pivot peek {root}"] = "one labelled failure (--png FILE for the picture)"
    hints[f"pivot verify {root}"] = "prove every label again"
    # A config without rows is left out, because the library cannot load it.
    records = [name for name, each in counts.items() if each["rows"]]
    whole = [f"{name}_episodes" for name, each in counts.items() if each["succeeded"] + each["failed"]]
    for config in (records or whole)[:1]:
        if not set("*?[") & set(str(result.root)):  # the library reads it as a pattern
            hints[_load_line(result.root, config)] = "in Python, with the datasets library"
    return hints


def show_result(result: BuildResult) -> None:
    """Print the summary table and the next commands.

    Raises:
        typer.Exit: episodes or answers are pending, or the teacher gave no usable guidance; its status is ``PENDING``
            or ``NO_GUIDANCE``.
    """
    rows = []
    for name, counts in result.environments.items():
        rows.append(
            [
                name,
                counts["episodes"],
                percent(counts["succeeded"], counts["succeeded"] + counts["failed"]),
                counts["failed"],
                counts["accepted"],
                counts["rejected"],
                counts["rows"],
            ]
        )
    root, store = result.root, Store.open(result.root)
    title = f"{root} (already complete)" if result.already_complete else str(root)
    show_table(title, ["environment", "episodes", "success", "failed", "accepted", "rejected", "training rows"], rows)
    _show_usage(store)
    if result.reused_shards and not result.already_complete:
        out.print(f"{result.reused_shards} of {result.shards} rollout shards were kept")
    for name, counts in result.environments.items():
        if counts["unproved"]:
            out.print(f"{counts['unproved']} labels of {name} are unproved: no independent search decided them")
    if result.pending_episodes:
        pending = f"{result.pending_episodes} episodes ended in an error, count in no share and are pending"
        out.print(resuming(f"{pending}: run the same build or import again to finish them"))
    if result.unanswered:
        again = "relabel --only-rejected" if store.is_imported else "build --out"
        line = f"{result.unanswered} labels got no answer from the teacher; ask again: pivot {again}"
        out.print(line, shlex.quote(str(root)), soft_wrap=True)
    if not result.is_whole:
        reason, times, total = _most_frequent_error(load_store(root))
        if total:
            out.print(f"the most frequent error, {times} of {total}: {reason}", soft_wrap=True)
    is_useless = _show_unusable_answers(result)
    hints = _next_commands(result)
    width = max(map(len, hints))
    out.print("\nnext:")
    for command, purpose in hints.items():
        out.print(f"  {command:<{width}}   {purpose}", soft_wrap=True)
    if not result.is_whole:
        raise typer.Exit(PENDING)
    if is_useless:
        raise typer.Exit(NO_GUIDANCE)


def _show_unusable_answers(result: BuildResult) -> bool:
    """Print how many answers of the teacher were unusable and why; return whether all of them were."""
    if not any(counts["rejected"] for counts in result.environments.values()):
        return False
    labels = load_store(result.root).labels.filter(pl.col("pivot_step").is_not_null())
    reasons = labels.select(pl.col("reject_reasons").explode().struct.unnest())
    unusable = reasons.filter((pl.col("name") == TEACHER) & (pl.col("kind") != UNANSWERED))
    kinds = unusable.group_by("kind").agg(pl.len(), pl.col("detail").min())
    rows = kinds.sort("len", "kind", descending=[True, False]).collect().rows()
    if not rows:
        return False
    unusable_count, total = sum(count for _, count, _ in rows), labels.select(pl.len()).collect().item()
    kind, count, detail = rows[0]
    out.print(
        f"the teacher gave no usable guidance for {unusable_count} of {total} labels; most frequent reason, {count} "
        f"times: {kind}, such as {detail!r}; once it answers, ask again: pivot relabel "
        f"{shlex.quote(str(result.root))} --only-rejected",
        soft_wrap=True,
    )
    return unusable_count == total


def _most_frequent_error(frames: StoreFrames) -> tuple[str, int, int]:
    """Return the most frequent reason of pending episodes and labels, its count, and the count of all."""
    episodes = frames.episodes.filter(pl.col("error").is_not_null()).select(pl.col("error").alias("reason"))
    reasons = frames.labels.select(pl.col("reject_reasons").explode().struct.unnest())
    labels = reasons.filter((pl.col("name") == TEACHER) & (pl.col("kind") == UNANSWERED)).select(reason="detail")
    counts = pl.concat([episodes, labels]).group_by("reason").len().sort("len", "reason", descending=[True, False])
    rows = counts.collect().rows()
    return (*rows[0], sum(times for _, times in rows)) if rows else ("", 0, 0)
