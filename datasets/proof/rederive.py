"""Derive the rollouts of an older version's shard again around its stored replies, as this version makes them.

The stored replies are executed again, and every action must have the same effect as then. Ids, columns and texts become
those of this version. If an effect differs, nothing is derived, and the problems describe the difference.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from ...environments.base import Task
from ...messages import Call
from ...records import from_row, stored_fields, to_row
from ...rollouts.base import Episode, Status, StopReason, TaskRollouts
from ...rollouts.ids import episode_id, request_id
from ...rollouts.loop import roll_out_tasks
from ..config import Shard
from ..run import Run
from ..schema import STORE_TABLES, TableSchema
from ..tables import Rows, rollout_tables, steps_by_episode
from .compare import contrast
from .replay import StoredReplies

HAPPENED = ("goal_idx", "eval_set", "sample_idx", "instruction", "initial_state", "horizon", "num_steps", "status")
"""Columns of ``episodes`` that have to be equal; for complete ones also ``OUTCOME``."""
OUTCOME = ("episode_return", "success", "failed", "stop_reason")
DONE = ("action", "payload", "reward", "frame_id", "next_frame_id", "inside_frame_ids")
"""Columns of ``steps`` that have to be equal; for a model also ``prompt_hash``."""
_REPLY: dict[str, Any] = {"finish_reason": "stop", "response_token_ids": None, "response_logprobs": None}
"""Columns of a reply that a store may lack."""
_NEVER_LATER = "{name}: it has no column {column}, and its simulator draws nothing twice"


@dataclass(frozen=True, slots=True)
class Rederived:
    """The tables of a shard as this version makes them, or the problems that prevent it."""

    tables: dict[TableSchema, pa.Table]
    problems: list[str]


def stored_levels(episodes: Rows, rollouts: int) -> list[Task]:
    """Return the levels that the episodes of a shard were made from, in order."""
    return [Task(**{each.name: row[each.name] for each in fields(Task)}) for row in episodes[::rollouts]]


def rederive(run: Run, shard: Shard, tasks: Sequence[Task], stored: Mapping[TableSchema, Rows]) -> Rederived:
    """Derive a shard again.

    Args:
        run: the config of this version.
        shard: the shard.
        tasks: its levels, as this version makes them.
        stored: the rows of all its tables; other columns than today's are allowed.
    """
    env = run.env(shard.env)
    settings, rows = env.config.without_locations(), {schema.name: stored[schema] for schema in STORE_TABLES}
    if not settings.repeats_exactly or settings.tolerance:
        return _as_stored(stored)
    policy = run.policy()
    config = policy.config_for(env.name)
    if problems := _policy_problems(rows["episodes"], policy.name, config):
        return Rederived({}, problems)
    keys = [(task, sample) for task in tasks for sample in range(run.config.rollouts)]
    if len(keys) != len(rows["episodes"]):
        return Rederived({}, [f"{len(rows['episodes'])} episodes are stored, expected {len(keys)}"])
    ids = [
        episode_id(env.type.profile, settings, task, sample, policy_name=policy.name, policy_config=config)
        for task, sample in keys
    ]
    old_ids = [row["episode_id"] for row in rows["episodes"]]
    if policy.is_stand_in and ids != old_ids:
        place = next(place for place, each in enumerate(ids) if each != old_ids[place])
        return Rederived({}, [f"episode {old_ids[place]} has another id now, so {policy.name} would reply otherwise"])
    steps = steps_by_episode(rows["steps"])
    replies = {new: [_REPLY | row for row in steps.get(old, [])] for old, new in zip(old_ids, ids, strict=True)}
    rollouts = roll_out_tasks(
        env.type,
        settings,
        tasks,
        StoredReplies(policy, config, replies),
        run.config.rollouts,
        run_id=run.run_ids(shard),
        prompt=env.prompt,
    )
    derived = [episode for task in rollouts for episode in task.episodes]
    compared = DONE if policy.is_stand_in else (*DONE, "prompt_hash")
    problems = []
    for row, episode in zip(rows["episodes"], derived, strict=True):
        _keep_error(row, episode)
        problems += _differences(row, episode, steps.get(row["episode_id"], []), compared)
    if problems:
        return Rederived({}, problems)
    _keep_calls(rows["calls"], dict(zip(old_ids, ids, strict=True)), rollouts)
    return Rederived(rollout_tables(rollouts), [])


def _policy_problems(episodes: Rows, name: str, config: Mapping[str, Any]) -> list[str]:
    """Describe settings in the rows that differ from the run's policy, which may have later settings."""
    for row in episodes:
        stored = json.loads(row["policy_config"])
        if row["policy"] != name:
            return [f"episode {row['episode_id']}: {contrast('policy', row['policy'], name)}"]
        wrong = [key for key in stored if key not in config or config[key] != stored[key]]
        if wrong:
            return [f"episode {row['episode_id']}: {contrast(wrong[0], stored[wrong[0]], config.get(wrong[0]))}"]
    return []


def _keep_error(row: Mapping[str, Any], episode: Episode) -> None:
    """Keep the stored error of an episode: a replay cannot cause it again."""
    if row["status"] == episode.status == Status.ERROR:
        episode.stop_reason = StopReason(row["stop_reason"])
        episode.error = row["error"]


def _differences(row: Mapping[str, Any], episode: Episode, steps: Rows, compared: Sequence[str]) -> list[str]:
    """Describe the first difference between an episode and its replay."""
    derived = to_row(episode)
    columns = HAPPENED if row["status"] == Status.ERROR else (*HAPPENED, *OUTCOME)
    problems = [
        contrast(name, row[name], derived[name]) for name in columns if name in row and row[name] != derived[name]
    ]
    for old, step in zip(steps, episode.steps, strict=False):  # other lengths differ in num_steps
        new = to_row(step)
        differing = [name for name in compared if name in old and old[name] != new[name]]
        if differing:
            problems.append(f"step {step.t}: {contrast(differing[0], old[differing[0]], new[differing[0]])}")
            break  # later differences follow from it
    if len(steps) != episode.num_steps and not problems:
        problems.append(f"{len(steps)} steps are stored, recomputed there are {episode.num_steps}")
    return [f"episode {row['episode_id']}: {problem}" for problem in problems[:1]]


def _keep_calls(calls: Rows, ids: Mapping[str, str], rollouts: Sequence[TaskRollouts]) -> None:
    """Replace the calls of the replay by the stored calls, under the new ids."""
    by_episode: dict[str, list[Call]] = {}
    for row in calls:
        call = renamed_call(row, ids[row["episode_id"]])
        by_episode.setdefault(call.episode_id, []).append(call)
    for task in rollouts:
        task.calls[:] = [call for each in task.episodes for call in by_episode.get(each.episode_id, [])]


def renamed_call(row: Mapping[str, Any], episode: str) -> Call:
    """Return a stored call of an episode whose id is another one now; columns that it lacks hold nulls."""
    t = row["t"]
    key = request_id(episode, t, row["role"]) if t is not None and row["episode_id"] != episode else row["request_id"]
    names = dict.fromkeys(each.name for each in stored_fields(Call))
    return from_row(Call, names | dict(row) | {"episode_id": episode, "request_id": key})


def _as_stored(stored: Mapping[TableSchema, Rows]) -> Rederived:
    """Keep the rows of a simulator whose pictures are not reproducible; later columns hold nulls."""
    problems = [
        _NEVER_LATER.format(name=schema.name, column=column.name)
        for schema, rows in stored.items()
        for column in schema.columns
        if rows and column.name not in rows[0] and not column.later
    ]
    if problems:
        return Rederived({}, problems)
    complete = {schema: [dict.fromkeys(schema.names) | row for row in rows] for schema, rows in stored.items()}
    return Rederived({schema: schema.table(rows) for schema, rows in complete.items()}, [])
