"""Between records and rows: rollouts to the store's tables and back, stored rows to the labeller's view.

The order of rows is the order of tasks, samples and steps; frames and prompts stand in the order of first use. Equal
rollouts therefore give equal bytes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pyarrow.compute

from ...core.errors import StoreError
from ...core.messages import Call, EncodedFrame, PromptMessages, frames_in
from ...core.records import from_row, to_row
from ...environments.base import Task
from ...labeling.episode import PLAYED, STEP_COLUMNS, FailedEpisode
from ...rollouts.base import Episode, Step, TaskRollouts
from ...solvers.base import Certificate, Verdict
from .schema import CALLS, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, TableSchema

Rows = list[dict[str, Any]]
pc: Any = pyarrow.compute  # its functions are made when it is imported, unseen by a type checker


def rollout_tables(rollouts: Sequence[TaskRollouts]) -> dict[TableSchema, pa.Table]:
    """Turn one shard's rollouts into its five tables."""
    episodes = [episode for task in rollouts for episode in task.episodes]
    frames: dict[str, EncodedFrame] = {}
    prompts: dict[str, PromptMessages] = {}
    for task in rollouts:
        for episode in task.episodes:
            for step in episode.steps:
                for key in step.shown_frames:
                    frames.setdefault(key, task.frames[key])
                if step.prompt_hash and step.prompt_hash not in prompts:
                    prompt = prompts[step.prompt_hash] = task.prompts[step.prompt_hash]
                    for key in frames_in(prompt.messages):
                        frames.setdefault(key, task.frames[key])
    return {
        EPISODES: EPISODES.table(list(map(to_row, episodes))),
        STEPS: STEPS.table([to_row(step) for episode in episodes for step in episode.steps]),
        FRAMES: FRAMES.table(list(map(to_row, frames.values()))),
        PROMPTS: PROMPTS.table(list(map(to_row, prompts.values()))),
        CALLS: CALLS.table([to_row(call) for task in rollouts for call in task.calls]),
    }


def stored_rollouts(tables: dict[TableSchema, pa.Table]) -> list[TaskRollouts]:
    """Rebuild the records of a stored shard, so that only its pending episodes need to run again."""
    frames = {row["frame_id"]: from_row(EncodedFrame, row) for row in tables[FRAMES].to_pylist()}
    prompts = {row["prompt_hash"]: from_row(PromptMessages, row) for row in tables[PROMPTS].to_pylist()}
    steps = steps_by_episode(tables[STEPS].to_pylist())
    calls: dict[str, list[Call]] = {}
    for row in tables[CALLS].to_pylist():
        calls.setdefault(row["episode_id"], []).append(from_row(Call, row))
    tasks: dict[Task, TaskRollouts] = {}
    for row in tables[EPISODES].to_pylist():
        task = Task(**{each.name: row[each.name] for each in fields(Task)})
        rollouts = tasks.setdefault(task, TaskRollouts(task, [], frames, prompts, []))
        mine = [from_row(Step, step) for step in steps.get(row["episode_id"], [])]
        rollouts.episodes.append(from_row(Episode, row, steps=mine))
        rollouts.calls.extend(calls.get(row["episode_id"], []))
    return list(tasks.values())


def steps_by_episode(rows: Iterable[dict[str, Any]]) -> dict[str, Rows]:
    """Group step rows by episode, keeping their order."""
    grouped: dict[str, Rows] = {}
    for row in rows:
        grouped.setdefault(row["episode_id"], []).append(row)
    return grouped


_SHARED_COLUMNS = [each.name for each in fields(FailedEpisode) if each.name in EPISODES.names]
FAILURE_COLUMNS = [*_SHARED_COLUMNS, "failed"]
"""Columns of episodes that :func:`failed_episodes` reads."""
FAILURE_STEP_COLUMNS = ["episode_id", *STEP_COLUMNS]
"""Columns of steps that :func:`failed_episodes` reads."""


def parsed_cell(row: Mapping[str, Any], column: str) -> Any:
    """Parse a JSON text of a stored row.

    Raises:
        StoreError: the text is not valid JSON.
    """
    try:
        return json.loads(row[column])
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"column {column} of episode {row.get('episode_id')} cannot be read as JSON "
            f"({type(error).__name__}); pivot verify names what else is wrong with the store"
        ) from error


def failed_episodes(
    episodes: pa.Table, steps: pa.Table, confirmed: Mapping[str, tuple[str, ...]] | None = None
) -> list[FailedEpisode]:
    """Return the failed, complete episodes of a shard as the labeller sees them, in stored order.

    ``confirmed`` is the evidence for imported episodes; None for rollouts of PIVOT itself. An episode without steps (an
    error before the first reply) is never ``failed``, so every result has a last frame.
    """
    columns = {name: steps[name].to_pylist() for name in FAILURE_STEP_COLUMNS}
    by_episode: dict[str, list[int]] = {}
    for index, name in enumerate(columns["episode_id"]):
        by_episode.setdefault(name, []).append(index)
    settings: dict[str, dict[str, Any]] = {}
    infos: dict[str, Any] = {}
    failed: list[FailedEpisode] = []
    for row in episodes.filter(episodes["failed"]).select(_SHARED_COLUMNS).to_pylist():
        mine = by_episode.get(row["episode_id"], [])
        check_steps(row, mine)
        text = row["env_config"]
        if text not in settings:
            settings[text] = parsed_cell(row, "env_config")
        cells = {name: [column[index] for index in mine] for name, column in columns.items()}
        for info in cells["info"]:  # few are distinct
            if info not in infos:
                infos[info] = parsed_cell({"episode_id": row["episode_id"], "info": info}, "info")
        cells["info"] = [infos[info] for info in cells["info"]]
        evidence = PLAYED if confirmed is None else confirmed.get(row["episode_id"], ())
        failed.append(FailedEpisode.of(row | {"env_config": settings[text]}, cells, evidence))
    return failed


def stored_verdict(label: dict[str, Any]) -> Verdict:
    """Rebuild the verdict of a stored label row."""
    witness = label["witness"]
    return Verdict(
        pivot_step=label["pivot_step"],
        failure_mode=label["failure_mode"],
        certificate=Certificate(**label["certificate"]),
        secondary_modes=tuple(label["secondary_modes"] or ()),
        fallback=label["fallback"],
        infeasible_at_start=label["infeasible_at_start"],
        witness=None if witness is None else tuple(witness),
        feasible_actions=tuple(label["feasible_actions"] or ()),
        pivot_action=label["pivot_action"],
    )


# Cells that column types do not exclude: readers stop at the first invalid one, pivot verify finds all

VERIFY = "see what else is wrong with: pivot verify"

_OF_ACCEPTED = ("pivot_step", "failure_mode")
"""Columns that an accepted label must have and others may lack."""


def check_rows(address: str, schema: TableSchema, table: pa.Table, root: object, env: str | None = None) -> None:
    """Check the cells of a table, row by row.

    Args:
        address: its file, for messages.
        schema: its columns; ``table`` may have some of them.
        table: the rows.
        root: the store, for messages.
        env: environment of all rows, where the file belongs to one.

    Raises:
        StoreError: a cell is not one of its column.
    """
    problem = _problem(schema, table, env)
    if problem is not None:
        raise StoreError(f"{address}: {problem}; {VERIFY} {root}")


def _problem(schema: TableSchema, table: pa.Table, env: str | None) -> str | None:
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"a cell cannot be read ({error})"
    present = set(table.column_names)
    for column in schema.columns:
        if column.required and column.name in present and table[column.name].null_count:
            return f"column {column.name} holds nulls, expected a value in every row"
    if schema is LABELS and "pivot_step" in present:
        least = pc.min(table["pivot_step"]).as_py()
        if least is not None and least < 0:
            return f"a label has the pivot step {least}, expected none below 0"
    if schema is LABELS and "accepted" in present:
        for name in present.intersection(_OF_ACCEPTED):
            if pc.any(pc.and_(table["accepted"], table[name].is_null())).as_py():
                return f"column {name} of an accepted label is null, expected a value"
    if schema is EPISODES and env is not None and "env" in present:
        other = next((name for name in table["env"].unique().to_pylist() if name != env), None)
        if other is not None:
            return f"an episode has the environment {other!r}, expected {env!r}"
    return None


def check_steps(episode: Mapping[str, Any], steps: Sized, label: Mapping[str, Any] | None = None) -> None:
    """Check that an episode has one step per action, including the step that its label names.

    Raises:
        StoreError: a step is missing.
    """
    name, count = episode["episode_id"], len(steps)
    if len(episode["actions"]) != count:
        raise StoreError(f"episode {name} has {len(episode['actions'])} actions and {count} steps; {VERIFY}")
    pivot = None if label is None else label["pivot_step"]
    if pivot is not None and not 0 <= pivot < max(1, count):
        raise StoreError(f"the label of episode {name} names step {pivot}, expected one of its {count} steps; {VERIFY}")
