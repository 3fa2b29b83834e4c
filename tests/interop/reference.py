"""PIVOT's own rollouts of given replies, with which the loops of other trainers are compared."""

from collections.abc import Mapping, Sequence
from typing import Any

import pivot
from pivot.core.images import decode, frame_id
from pivot.core.plugins import Settings
from pivot.datasets.store.config import env_config, environment
from pivot.environments.base import Task
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import Episode, Policy, TaskRollouts
from pivot.rollouts.loop import roll_out_tasks
from pivot.solvers.base import Unsolved


class Parrot(Policy):
    """A policy that gives prepared replies, one per turn."""

    config_type = Settings
    name = "parrot"

    def __init__(self, replies: Sequence[str]) -> None:
        super().__init__(Settings())
        self.replies = replies

    @property
    def config(self) -> dict[str, Any]:
        return {}

    async def reply(self, turn: Turn) -> Reply:
        return Reply(self.replies[turn.t] if turn.t < len(self.replies) else "")


def own_rollout(
    env: str, task: Task, replies: Sequence[str], settings: Mapping[str, Any] | None = None
) -> TaskRollouts:
    """Return the record of the same replies in PIVOT's loop; turns without a reply have an empty one."""
    (record,) = roll_out_tasks(environment(env), env_config(env, dict(settings or {})), [task], Parrot(replies), 1)
    return record


def shown_frames(record: TaskRollouts) -> list[str]:
    """The hashes of the pictures in the prompts of an episode, decoded from what a model gets, in order."""
    (episode,) = record.episodes
    hashes = []
    for step in episode.steps:
        for message in record.prompts[step.prompt_hash].messages:
            parts = message["content"] if isinstance(message["content"], list) else []
            named = [part["frame_id"] for part in parts if part["type"] == "image"]
            hashes += [frame_id(decode(record.frames[name].image)) for name in named]
    return hashes


def facts(episode: Episode) -> tuple[Any, ...]:
    """Return the fields that must be equal in two records of one episode."""
    steps = [
        (step.action, step.action_valid, step.reply_outcome, step.frame_id, step.next_frame_id)
        for step in episode.steps
    ]
    return episode.rewards, episode.episode_return, episode.success, episode.stop_reason, episode.actions, steps


def scores_of(episode: Episode, rule: str = "progress") -> list[float]:
    """The credit of a whole episode from the columns that a store has of it, without the log."""
    row = {name: getattr(episode, name) for name in ("initial_state", "actions", "horizon", "env_config")}
    (turns,) = pivot.credit(episode.env, [row], rule=rule)
    assert not isinstance(turns, Unsolved)
    return [turn.score for turn in turns]
