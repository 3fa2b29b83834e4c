"""Between records and rows: rollouts to the store's tables and back, stored rows to the labeller's view.

The order of rows is the order of tasks, samples and steps; frames and prompts stand in the order of first use. Equal
rollouts therefore give equal bytes.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ..environments.base import EnvConfig, EnvProfile, Task
from ..identity import canonical_json
from ..labeling.base import FailedEpisode, Label
from ..messages import EncodedFrame, PromptMessages
from ..rollouts.base import Episode, Policy, Status, Step, StopReason, TaskRollouts
from .run import Run
from .schema import CALLS, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, TableSchema

Rows = list[dict[str, Any]]


def shard_constants(run: Run, settings: EnvConfig, policy: Policy) -> dict[str, Any]:
    """Episode columns that are equal in a whole shard."""
    chosen = {} if settings.simulator is None else {"backend": settings.simulator}
    return chosen | {
        "run_id": run.run_id,
        "env_config": canonical_json(settings.decisive()),
        "horizon": settings.horizon,
        "policy": policy.name,
        "policy_config": canonical_json(policy.config),
    }


def rollout_tables(
    rollouts: Sequence[TaskRollouts], profile: EnvProfile, constants: dict[str, Any]
) -> dict[TableSchema, pa.Table]:
    """Turn one shard's rollouts into its five tables.

    ``constants`` holds the episode columns of :func:`shard_constants`.
    """
    episodes = [episode for task in rollouts for episode in task.episodes]
    shared = {
        "env": profile.name,
        "env_version": profile.version,
        "backend": profile.backend,
        "state_format": profile.state_format,
        **constants,
    }
    frames: dict[str, EncodedFrame] = {}
    prompts: dict[str, PromptMessages] = {}
    for task in rollouts:
        for episode in task.episodes:
            for step in episode.steps:
                for key in (step.frame_id, step.next_frame_id):
                    frames.setdefault(key, task.frames[key])
                prompts.setdefault(step.prompt_hash, task.prompts[step.prompt_hash])
    return {
        EPISODES: EPISODES.table([shared | _episode_row(episode) for episode in episodes]),
        STEPS: STEPS.table([_step_row(episode.episode_id, step) for episode in episodes for step in episode.steps]),
        FRAMES: FRAMES.table([_frame_row(frame) for frame in frames.values()]),
        PROMPTS: prompt_table(list(prompts.values())),
        CALLS: CALLS.table([_call_row(call) for task in rollouts for call in task.calls]),
    }


def _episode_row(episode: Episode) -> dict[str, Any]:
    task = episode.task
    return {
        "episode_id": episode.episode_id,
        "task_id": task.task_id,
        "goal_idx": task.goal_idx,
        "eval_set": task.eval_set,
        "seed": task.seed,
        "group_id": episode.group_id,
        "sample_idx": episode.sample_idx,
        "instruction": task.instruction,
        "initial_state": task.initial_state,
        "num_steps": len(episode.steps),
        "actions": episode.actions,
        "rewards": episode.rewards,
        "episode_return": episode.episode_return,
        "status": str(episode.status),
        "success": episode.success,
        "failed": episode.failed,
        "stop_reason": None if episode.stop_reason is None else str(episode.stop_reason),
        "error": episode.error,
    }


def _step_row(episode_id: str, step: Step) -> dict[str, Any]:
    return {
        "episode_id": episode_id,
        "t": step.t,
        "prompt_hash": step.prompt_hash,
        "observation_text": step.observation_text,
        "response": step.response,
        "finish_reason": step.finish_reason,
        "response_token_ids": step.response_token_ids,
        "response_logprobs": step.response_logprobs,
        "action": step.action,
        "payload": step.payload,
        "action_valid": step.action_valid,
        "moved": step.moved,
        "reward": step.reward,
        "remaining_turns": step.remaining_turns,
        "frame_id": step.frame_id,
        "next_frame_id": step.next_frame_id,
        "info": canonical_json(step.info),
        "score_parts": step.score_parts,
        "snapshot": step.snapshot,
    }


def _frame_row(frame: EncodedFrame) -> dict[str, Any]:
    return {
        "frame_id": frame.frame_id,
        "width": frame.width,
        "height": frame.height,
        "format": frame.format,
        "byte_size": len(frame.image),
        "image": frame.image,
    }


def _prompt_row(prompt: PromptMessages) -> dict[str, Any]:
    return {
        "prompt_hash": prompt.prompt_hash,
        "template": prompt.template,
        "version": prompt.version,
        "messages": canonical_json(list(prompt.messages)),
    }


def _call_row(call: dict[str, Any]) -> dict[str, Any]:
    return {name: call.get(name) for name in CALLS.names}


def stored_rollouts(tables: dict[TableSchema, pa.Table]) -> list[TaskRollouts]:
    """Rebuild the records of a stored shard, so that only its owed episodes need to run again."""
    frames = {
        row["frame_id"]: EncodedFrame(row["frame_id"], row["width"], row["height"], row["format"], row["image"])
        for row in tables[FRAMES].to_pylist()
    }
    prompts = {
        row["prompt_hash"]: PromptMessages(
            row["template"], row["version"], tuple(json.loads(row["messages"])), row["prompt_hash"]
        )
        for row in tables[PROMPTS].to_pylist()
    }
    steps = steps_by_episode(tables[STEPS].to_pylist())
    calls: dict[str, Rows] = {}
    for row in tables[CALLS].to_pylist():
        calls.setdefault(row["episode_id"], []).append(row)
    tasks: dict[tuple[str, int, str], TaskRollouts] = {}
    for row in tables[EPISODES].to_pylist():
        task = Task(
            task_id=row["task_id"],
            seed=row["seed"],
            initial_state=row["initial_state"],
            instruction=row["instruction"],
            goal_idx=row["goal_idx"],
            eval_set=row["eval_set"],
        )
        key = (task.task_id, task.goal_idx, task.eval_set)
        rollouts = tasks.setdefault(key, TaskRollouts(task, [], frames, prompts, []))
        rollouts.episodes.append(_stored_episode(row, task, steps.get(row["episode_id"], [])))
        rollouts.calls.extend(calls.get(row["episode_id"], []))
    return list(tasks.values())


def _stored_episode(row: dict[str, Any], task: Task, steps: Rows) -> Episode:
    return Episode(
        episode_id=row["episode_id"],
        group_id=row["group_id"],
        sample_idx=row["sample_idx"],
        task=task,
        steps=[_stored_step(step) for step in steps],
        status=Status(row["status"]),
        stop_reason=None if row["stop_reason"] is None else StopReason(row["stop_reason"]),
        success=row["success"],
        failed=row["failed"],
        error=row["error"],
    )


def _stored_step(row: dict[str, Any]) -> Step:
    values = {name: row[name] for name in STEPS.names if name != "episode_id"}
    for name in ("response_token_ids", "response_logprobs"):
        values[name] = None if values[name] is None else tuple(values[name])
    return Step(**values | {"info": json.loads(row["info"])})


def steps_by_episode(rows: Iterable[dict[str, Any]]) -> dict[str, Rows]:
    """Group step rows by episode, keeping their order."""
    grouped: dict[str, Rows] = {}
    for row in rows:
        grouped.setdefault(row["episode_id"], []).append(row)
    return grouped


FAILED_STEP_COLUMNS = (
    "episode_id",
    "observation_text",
    "action",
    "payload",
    "action_valid",
    "reward",
    "frame_id",
    "next_frame_id",
    "info",
)
"""Step columns that the labeller reads."""

FAILED_EPISODE_COLUMNS = (
    "episode_id",
    "env",
    "env_version",
    "env_config",
    "task_id",
    "instruction",
    "initial_state",
    "horizon",
    "actions",
    "rewards",
    "failed",
)
"""Episode columns that the labeller reads."""


def failed_episodes(episodes: pa.Table, steps: pa.Table) -> list[FailedEpisode]:
    """Return the failed, complete episodes of a shard as the labeller sees them, in stored order.

    An episode without steps (an error before the first reply) is never ``failed``, so every result has a last frame.
    """
    by_episode = steps_by_episode(steps.select(FAILED_STEP_COLUMNS).to_pylist())
    settings: dict[str, dict[str, Any]] = {}
    found: list[FailedEpisode] = []
    for row in episodes.select(FAILED_EPISODE_COLUMNS).to_pylist():
        if not row["failed"]:
            continue
        mine = by_episode.get(row["episode_id"], [])
        if row["env_config"] not in settings:
            settings[row["env_config"]] = json.loads(row["env_config"])
        found.append(
            FailedEpisode(
                episode_id=row["episode_id"],
                env=row["env"],
                env_version=row["env_version"],
                env_config=settings[row["env_config"]],
                task_id=row["task_id"],
                instruction=row["instruction"],
                initial_state=row["initial_state"],
                horizon=row["horizon"],
                actions=row["actions"],
                payloads=[step["payload"] for step in mine],
                rewards=row["rewards"],
                infos=[json.loads(step["info"]) for step in mine],
                action_valid=[step["action_valid"] for step in mine],
                frame_ids=[step["frame_id"] for step in mine] + [step["next_frame_id"] for step in mine[-1:]],
                observations=[step["observation_text"] for step in mine],
            )
        )
    return found


def label_table(labels: Sequence[Label]) -> pa.Table:
    """Turn labels into their table."""
    return LABELS.table([label.row() for label in labels])


def label_prompt_table(labels: Sequence[Label]) -> pa.Table:
    """Turn the prompts of labels, the Analyzer's and the teacher's, into rows of the ``prompts`` table."""
    shown = [label.teacher_prompt for label in labels if label.teacher_prompt is not None]
    return prompt_table([*(label.prompt for label in labels), *shown])


def label_call_table(labels: Sequence[Label]) -> pa.Table:
    """Turn the teacher's requests into rows of the ``calls`` table."""
    return CALLS.table([_call_row(dict(call)) for label in labels for call in label.calls])


def prompt_table(prompts: Sequence[PromptMessages]) -> pa.Table:
    """Turn rendered prompts into rows of the ``prompts`` table, once per hash."""
    distinct = {prompt.prompt_hash: prompt for prompt in prompts}
    return PROMPTS.table([_prompt_row(prompt) for prompt in distinct.values()])
