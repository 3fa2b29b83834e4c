"""Levels and episodes of Stage II: the levels of each update, their rollouts, and validation.

Levels come from the run's seed as in a build. A stable hash of a level decides its split, so no held-out level is
trained on. An episode that ended in an error is played again up to twice, then dropped.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from ...core import plugins
from ...core.errors import PolicyError, TrainingError
from ...core.identity import derive_seed, sample_below
from ...core.intervals import LEAST, Interval, mean_of, sums_by_level
from ...core.plugins import Settings
from ...datasets.store.config import env_config, environment
from ...datasets.store.splits import TRAIN, split_by_task
from ...environments.base import EnvConfig, PivotEnv, Task
from ...environments.turns import Reply, StudentPrompt, Turn
from ...rollouts.base import Episode, Policy, Status, TaskRollouts
from ...rollouts.loop import roll_out_tasks
from ...rollouts.plan import plan_tasks
from ..evaluation.scores import Share, share
from ..ranks import ALONE, Ranks
from .config import RlConfig

TRIES = 2
"""Number of times that an episode that ended in an error is played again."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The environment of a run, and its levels in both splits."""

    env: type[PivotEnv]
    config: EnvConfig
    prompt: StudentPrompt
    train: tuple[Task, ...]
    validation: tuple[Task, ...]
    indices: tuple[int, ...] = ()
    """Index of each training level in the plan of all levels."""

    def sample(self, number: int, config: RlConfig) -> list[int]:
        """Return the indices of the training levels of update ``number``: different levels, a function of the seed."""
        rng = random.Random(derive_seed("levels", config.seed, number))
        return sample_below(rng, len(self.train), config.prompts)


def plan_levels(config: RlConfig) -> Levels:
    """Sample the levels of a run.

    Raises:
        TrainingError: the settings give fewer training levels than one update plays.
        PluginError, ConfigError, GenerationError: the environment does not exist, or its settings cannot be used.
    """
    kind = environment(config.env)
    settings = env_config(config.env, config.settings)
    kind.check_ready(settings)
    count, listed = config.levels or kind.profile.default_tasks, kind.fixed_tasks(settings)
    count = count if listed is None else min(count, len(listed))
    tasks = plan_tasks(kind, settings, config.seed, count)
    sides = split_by_task([kind.canonical_state(task.initial_state) for task in tasks], config.held_out)
    indices = tuple(index for index, side in enumerate(sides) if side == TRAIN)
    if len(indices) < config.prompts:
        raise TrainingError(
            f"{config.env}: found {len(indices)} training levels among {len(tasks)}, expected at least the "
            f"{config.prompts} of one update; raise --levels, or lower --prompts"
        )
    prompt: StudentPrompt = plugins.load("prompts", config.env)
    held_out = tuple(task for task, side in zip(tasks, sides, strict=True) if side != TRAIN)
    return Levels(kind, settings, prompt, tuple(tasks[index] for index in indices), held_out, indices)


def without_seen(levels: Levels, trained: Levels) -> Levels:
    """Return ``levels`` without the held-out levels that another run trained on.

    Args:
        levels: levels to evaluate on.
        trained: levels of that run; if they were planned alike, no level is on both sides.

    Raises:
        TrainingError: no held-out level is left.
    """
    if levels.env is not trained.env:
        return levels
    seen = {levels.env.canonical_state(task.initial_state) for task in trained.train}
    unseen = tuple(task for task in levels.validation if levels.env.canonical_state(task.initial_state) not in seen)
    if levels.validation and not unseen:
        raise TrainingError(
            f"{levels.env.profile.name}: found {len(levels.validation)} held-out levels, the run was trained on all of "
            "them, expected one that it has not seen; remove --levels and --seed, or raise --levels"
        )
    return replace(levels, validation=unseen)


def roll_out(
    levels: Levels, tasks: Sequence[Task], policy: Policy, rollouts: int, ranks: Ranks = ALONE, run_id: str = ""
) -> list[TaskRollouts]:
    """Roll out tasks, each process its share, and repeat episodes that ended in an error.

    Raises:
        ServerGoneError, ConfigError, PluginError: the policy or the environment cannot be used.
    """

    def play(chosen: Sequence[Task], only: set[str] | None = None) -> list[TaskRollouts]:
        return roll_out_tasks(
            levels.env, levels.config, chosen, policy, rollouts, only=only, run_id=run_id, prompt=levels.prompt
        )

    mine = ranks.share(tasks)
    records = play(mine) if mine else []
    for _ in range(TRIES):
        failed = {each.episode_id for task in records for each in task.episodes if each.status is Status.ERROR}
        if not failed:
            break
        records = [_merged(before, after) for before, after in zip(records, play(mine, failed), strict=True)]
    by_index = ranks.join({ranks.rank + index * ranks.count: record for index, record in enumerate(records)})
    return [by_index[index] for index in sorted(by_index)]


class _FirstTurns(Policy):
    """A policy that records the first turn of every episode and ends it there."""

    name = "first turns"
    config_type = Settings
    config: dict[str, Any] = {}  # noqa: RUF012  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, Turn] = {}

    async def reply(self, turn: Turn) -> Reply:
        self.turns[turn.episode_id] = turn
        raise PolicyError("only the first turn is needed")


def first_turns(levels: Levels, count: int) -> list[Turn]:
    """Return the first turn of the first ``count`` training levels."""
    policy, tasks = _FirstTurns(), levels.train[:count]
    records = roll_out_tasks(levels.env, levels.config, tasks, policy, 1, prompt=levels.prompt)
    return [policy.turns[each.episode_id] for record in records for each in record.episodes]


def _merged(before: TaskRollouts, after: TaskRollouts) -> TaskRollouts:
    """Return the record of a task in which the episodes of ``after`` replace those of ``before``."""
    again = {episode.episode_id: episode for episode in after.episodes}
    return TaskRollouts(
        before.task,
        [again.get(episode.episode_id, episode) for episode in before.episodes],
        before.frames | after.frames,
        before.prompts | after.prompts,
        [call for call in before.calls if call.episode_id not in again] + after.calls,
    )


@dataclass(frozen=True, slots=True)
class Played:
    """Success and return of a policy on some levels."""

    success: Share
    mean_return: Interval
    by_set: dict[str, Share]
    """Success by evaluation set; empty if there is only one."""
    errors: int
    """Episodes that could not be finished; the figures exclude them."""
    levels: tuple[str, ...]
    """Canonical states of the different levels of the figures, sorted."""

    def row(self) -> dict[str, Any]:
        """Return the figures as JSON data.

        Episodes of fewer than three levels do not generalise: the interval of success is then 0 to 1, that of the
        return null.
        """
        unknown = {"low": None, "high": None} if len(self.levels) < LEAST else {}
        return {
            "success": self.success.row(),
            "return": asdict(self.mean_return) | {"records": self.success.records} | unknown,
            "by_set": {name: each.row() for name, each in self.by_set.items()},
            "errors": self.errors,
        }


def measure(levels: Levels, policy: Policy, episodes: int, ranks: Ranks = ALONE) -> Played:
    """Play held-out levels about equally often, ``episodes`` in total or a few more; return the figures.

    Raises:
        TrainingError: no level is held out, or no episode could be finished.
    """
    tasks = levels.validation
    if not tasks:
        raise TrainingError(
            f"{levels.env.profile.name}: found no held-out level, expected at least two different levels in total; "
            "raise --levels"
        )
    samples = max(1, ceil(episodes / len(tasks)))
    chosen = tasks[: ceil(episodes / samples)]
    records = roll_out(levels, chosen, policy, samples, ranks)
    played = [each for task in records for each in task.episodes]
    complete = [each for each in played if each.status is Status.COMPLETE]
    if not complete:
        reason = next((each.error for each in played), "there was none")
        raise TrainingError(
            f"no validation episode of {levels.env.profile.name} could be finished ({reason}), expected at least one; "
            "repair the environment, then resume the run with --resume"
        )

    def over(episodes: Sequence[Episode], values: Sequence[float]) -> Share:
        return share(values, [each.task_id for each in episodes])

    by_set: dict[str, Share] = {}
    for name in sorted({each.eval_set for each in complete}):
        mine = [each for each in complete if each.eval_set == name]
        by_set[name] = over(mine, [float(bool(each.success)) for each in mine])
    success = over(complete, [float(bool(each.success)) for each in complete])
    sums = sums_by_level([each.episode_return for each in complete], [each.task_id for each in complete])
    returns = mean_of(*sums).amount()
    states = {levels.env.canonical_state(state) for state in {each.initial_state for each in complete}}
    sets, errors = by_set if len(by_set) > 1 else {}, len(played) - len(complete)
    return Played(success, returns, sets, errors, tuple(sorted(states)))
