"""Between records and rows: rollouts to the store's tables and back, stored rows to the labeller's view.

The order of rows is the order of tasks, samples and steps; frames and prompts stand in the order of first use. Equal
rollouts therefore give equal bytes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from ...core.errors import StoreError
from ...core.messages import Call, EncodedFrame, PromptMessages
from ...core.records import from_row, to_row
from ...environments.base import Task
from ...labeling.base import Label
from ...labeling.episode import PLAYED, FailedEpisode, inside_frames
from ...rollouts.base import Episode, Step, TaskRollouts
from ...solvers.base import Certificate, Verdict
from .rows import check_steps
from .schema import CALLS, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, TableSchema

Rows = list[dict[str, Any]]


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
                prompts.setdefault(step.prompt_hash, task.prompts[step.prompt_hash])
    return {
        EPISODES: EPISODES.table(list(map(to_row, episodes))),
        STEPS: STEPS.table([to_row(step) for episode in episodes for step in episode.steps]),
        FRAMES: FRAMES.table(list(map(to_row, frames.values()))),
        PROMPTS: prompt_table(list(prompts.values())),
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
FAILURE_STEP_COLUMNS = [
    "episode_id",
    "observation_text",
    "payload",
    "action_valid",
    "frame_id",
    "next_frame_id",
    "inside_frame_ids",
    "info",
    "finish_reason",
    "reply_outcome",
    "submission_outcome",
]
"""Columns of steps that :func:`failed_episodes` reads."""


IMPORT_COLUMNS = ["episode_id", "evidence"]
"""Columns of imports that :func:`failed_episodes` reads."""


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


def failed_episodes(episodes: pa.Table, steps: pa.Table, imports: pa.Table | None = None) -> list[FailedEpisode]:
    """Return the failed, complete episodes of a shard as the labeller sees them, in stored order.

    ``imports`` has the columns ``IMPORT_COLUMNS`` of imported episodes; None for rollouts of PIVOT itself. An episode
    without steps (an error before the first reply) is never ``failed``, so every result has a last frame.
    """
    columns = {name: steps[name].to_pylist() for name in FAILURE_STEP_COLUMNS}
    by_episode: dict[str, list[int]] = {}
    for index, name in enumerate(columns["episode_id"]):
        by_episode.setdefault(name, []).append(index)
    confirmed = None if imports is None else evidence_by_episode(imports)
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
        failed.append(
            FailedEpisode(
                **row | {"env_config": settings[text]},
                payloads=cells["payload"],
                infos=[infos[info] for info in cells["info"]],
                action_valid=cells["action_valid"],
                frame_ids=cells["frame_id"] + cells["next_frame_id"][-1:],
                inside=inside_frames(cells["inside_frame_ids"]),
                observations=cells["observation_text"],
                reply_outcomes=cells["reply_outcome"],
                finish_reasons=cells["finish_reason"],
                submission_outcomes=cells["submission_outcome"],
                evidence=PLAYED if confirmed is None else confirmed.get(row["episode_id"], ()),
            )
        )
    return failed


def evidence_by_episode(imports: pa.Table) -> dict[str, tuple[str, ...]]:
    """Return what confirms each imported episode; an empty tuple where nothing does."""
    rows = imports.select(IMPORT_COLUMNS).to_pylist()
    return {row["episode_id"]: tuple(row["evidence"] or ()) for row in rows if row["episode_id"] is not None}


def label_table(labels: Sequence[Label]) -> pa.Table:
    """Turn labels into their table."""
    return LABELS.table(list(map(to_row, labels)))


def label_prompt_table(labels: Sequence[Label]) -> pa.Table:
    """Turn the prompts of labels, the Analyzer's and the teacher's, into rows of the ``prompts`` table."""
    shown = [label.teacher_prompt for label in labels if label.teacher_prompt is not None]
    return prompt_table([*(label.prompt for label in labels), *shown])


def label_call_table(labels: Sequence[Label]) -> pa.Table:
    """Turn the teacher's requests into rows of the ``calls`` table."""
    return CALLS.table([to_row(call) for label in labels for call in label.calls])


def prompt_table(prompts: Sequence[PromptMessages]) -> pa.Table:
    """Turn rendered prompts into rows of the ``prompts`` table, once per hash."""
    distinct = {prompt.prompt_hash: prompt for prompt in prompts}
    return PROMPTS.table(list(map(to_row, distinct.values())))


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
