"""Levels and episodes of Stage II: which levels an update plays, and how they are rolled out and played again.

Levels come from the run's seed as in a build; a stable hash of a level says on which side of the split it is, so no
level that is validated on is ever trained on. An episode that ended in an error is owed twice, then dropped.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from ... import plugins
from ...datasets.config import env_config, environment
from ...datasets.split import TRAIN, split_by_task
from ...environments.base import EnvConfig, PivotEnv, Task
from ...errors import PolicyError, TrainingError
from ...identity import derive_seed, sample_below
from ...plugins import Settings
from ...rollouts.base import Episode, Policy, Reply, Status, StudentPrompt, TaskRollouts, Turn
from ...rollouts.loop import roll_out_tasks
from ...rollouts.plan import plan_tasks
from ..evaluation.metrics import Share, share
from ..ranks import ALONE, Ranks
from .config import RlConfig

TRIES = 2
"""How often an episode that ended in an error is played again."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The environment of a run, and its levels on both sides."""

    env: type[PivotEnv]
    config: EnvConfig
    prompt: StudentPrompt
    train: tuple[Task, ...]
    validation: tuple[Task, ...]
    places: tuple[int, ...] = ()
    """Of the training levels in the plan of all levels."""

    def drawn(self, number: int, config: RlConfig) -> list[int]:
        """Return which training levels update ``number`` plays, by place: different ones, a function of the seed."""
        rng = random.Random(derive_seed("levels", config.seed, number))
        return sample_below(rng, len(self.train), config.prompts)


def plan_levels(config: RlConfig) -> Levels:
    """Make the levels of a run.

    Raises:
        TrainingError: there are fewer than an update asks for.
        PluginError, ConfigError, GenerationError: there is no such environment, or its settings cannot be used.
    """
    kind = environment(config.env)
    settings = env_config(config.env, config.settings)
    kind.check_ready(settings)
    count = config.levels or kind.profile.default_tasks
    listed = kind.fixed_tasks(settings)
    tasks = plan_tasks(kind, settings, config.seed, min(count, len(listed)) if listed is not None else count)
    sides = split_by_task([kind.canonical_state(task.initial_state) for task in tasks], config.held_out)
    places = tuple(place for place, side in enumerate(sides) if side == TRAIN)
    if len(places) < config.prompts:
        raise TrainingError(
            f"{config.env}: found {len(places)} training levels among {len(tasks)}, expected at least the "
            f"{config.prompts} of one update; raise --levels, or lower --prompts"
        )
    prompt: StudentPrompt = plugins.load("prompts", config.env)
    held_out = tuple(task for task, side in zip(tasks, sides, strict=True) if side != TRAIN)
    return Levels(kind, settings, prompt, tuple(tasks[place] for place in places), held_out, places)


PLANNED_BY = ("env", "settings", "seed", "levels", "held_out")
"""Fields of a run that decide its levels and their sides."""


def are_planned_alike(one: RlConfig, other: RlConfig) -> bool:
    """Whether two runs have the same levels on the same sides."""
    return all(getattr(one, name) == getattr(other, name) for name in PLANNED_BY)


def without_seen(levels: Levels, trained: Levels) -> Levels:
    """Return levels without the held-out ones that a run, planned with other settings, trained on.

    Raises:
        TrainingError: none is left.
    """
    if levels.env is not trained.env:
        return levels
    seen = {levels.env.canonical_state(task.initial_state) for task in trained.train}
    unseen = tuple(task for task in levels.validation if levels.env.canonical_state(task.initial_state) not in seen)
    if levels.validation and not unseen:
        raise TrainingError(
            f"{levels.env.profile.name}: found {len(levels.validation)} held-out levels, the run was trained on all of "
            "them, expected one that it has not seen; leave --levels and --seed away, or take more --levels"
        )
    return replace(levels, validation=unseen)


def roll_out(
    levels: Levels, tasks: Sequence[Task], policy: Policy, rollouts: int, ranks: Ranks = ALONE, run_id: str = ""
) -> list[TaskRollouts]:
    """Play tasks, each process its share, and play those again that ended in an error.

    Raises:
        ServerGoneError, ConfigError, PluginError: no episode can go on.
    """

    def played(chosen: Sequence[Task], only: set[str] | None = None) -> list[TaskRollouts]:
        return roll_out_tasks(
            levels.env, levels.config, chosen, policy, rollouts, only=only, run_id=run_id, prompt=levels.prompt
        )

    mine = ranks.share(tasks)
    made = played(mine) if mine else []
    for _ in range(TRIES):
        owed = {each.episode_id for task in made for each in task.episodes if each.status is Status.ERROR}
        if not owed:
            break
        made = [_merged(before, after) for before, after in zip(made, played(mine, owed), strict=True)]
    by_place = ranks.join({ranks.rank + place * ranks.count: record for place, record in enumerate(made)})
    return [by_place[place] for place in sorted(by_place)]


class _FirstTurns(Policy):
    """Looks at the first turn of every episode and ends it there."""

    name = "first turns"
    config_type = Settings
    config: dict[str, Any] = {}  # noqa: RUF012  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, Turn] = {}

    async def reply(self, turn: Turn) -> Reply:
        self.turns[turn.episode_id] = turn
        raise PolicyError("nothing but the first turn was wanted")


def first_turns(levels: Levels, count: int) -> list[Turn]:
    """Return what a policy is shown first on some training levels."""
    policy, tasks = _FirstTurns(), levels.train[:count]
    records = roll_out_tasks(levels.env, levels.config, tasks, policy, 1, prompt=levels.prompt)
    return [policy.turns[each.episode_id] for record in records for each in record.episodes]


def _merged(before: TaskRollouts, after: TaskRollouts) -> TaskRollouts:
    """Return the record of a task with some of its episodes played again."""
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
    """How good a policy was on some levels."""

    success: Share
    mean_return: Share
    by_set: dict[str, Share]
    """Success by evaluation set, where there is more than one."""
    errors: int
    """Episodes that could not be finished; they are in no figure."""
    levels: int
    """Different ones."""

    def row(self) -> dict[str, Any]:
        """Return the figures as JSON data.

        Episodes of a single level say nothing about others: then success has the interval from 0 to 1, the return none.
        """
        unknown = {"low": None, "high": None} if self.levels == 1 else {}
        return {
            "success": self.success.row(),
            "return": self.mean_return.row() | unknown,
            "by_set": {name: each.row() for name, each in self.by_set.items()},
            "errors": self.errors,
        }


def measure(
    levels: Levels, policy: Policy, episodes: int, ranks: Ranks = ALONE, seed: int = 0
) -> tuple[Played, list[TaskRollouts]]:
    """Play held-out levels about equally often, ``episodes`` in all or a few more; return figures and records.

    Raises:
        TrainingError: there is no level to play, or not one episode could be finished.
    """
    tasks = levels.validation
    if not tasks:
        raise TrainingError(
            f"{levels.env.profile.name}: found no level that is held out, expected two different ones in all at least; "
            "raise --levels"
        )
    samples = max(1, ceil(episodes / len(tasks)))
    chosen = tasks[: ceil(episodes / samples)]
    records = roll_out(levels, chosen, policy, samples, ranks)
    complete = [each for task in records for each in task.episodes if each.status is Status.COMPLETE]
    errors = sum(len(task.episodes) for task in records) - len(complete)
    if not complete:
        reason = next((each.error for task in records for each in task.episodes), "there was none")
        raise TrainingError(
            f"no validation episode of {levels.env.profile.name} could be finished ({reason}), expected at least one; "
            "repair the environment, then go on with --resume"
        )

    def over(episodes: Sequence[Episode], values: Sequence[float]) -> Share:
        return share(values, [each.task_id for each in episodes], seed)

    wins = [float(bool(each.success)) for each in complete]
    by_set: dict[str, Share] = {}
    for name in sorted({each.eval_set for each in complete}):
        mine = [each for each in complete if each.eval_set == name]
        by_set[name] = over(mine, [float(bool(each.success)) for each in mine])
    returns = over(complete, [each.episode_return for each in complete])
    played = len({each.task_id for each in complete})
    return Played(over(complete, wins), returns, by_set if len(by_set) > 1 else {}, errors, played), records
