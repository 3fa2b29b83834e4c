"""The levels of a run, derived from its settings alone.

Level ``i`` depends on ``derive_seed(run_seed, env name, i)`` and on the levels before it, which it must not repeat.
Usually a level is one task; with several evaluation sets it is one task in each, next to each other. A task never
depends on the number of tasks, so a store grows by planning again with a larger count. ``verify`` makes the same plan
from ``run.json`` and compares it with the stored rows.
"""

from ..core.errors import GenerationError
from ..core.identity import derive_seed
from ..environments.base import EnvConfig, PivotEnv, Task

MAX_DRAWS = 1000
"""Draws per task. A level repeats with probability ``used / possible``; 1000 failed draws mean that practically every
level that the settings allow is in use (if 1 % of them were left: 4 in 100,000)."""


def plan_tasks(env_type: type[PivotEnv], config: EnvConfig, run_seed: int, count: int) -> list[Task]:
    """Return the first ``count`` tasks of a run: distinct ids, distinct levels, a prefix of every longer plan.

    Raises:
        GenerationError: the settings do not allow ``count`` distinct levels, or a level cannot be made at all.
        ConfigError: the settings name a list of tasks that cannot be read.
    """
    listed = env_type.fixed_tasks(config)
    if listed is not None:
        if count > len(listed):
            raise GenerationError(
                f"{env_type.profile.name}: {count} tasks asked for, its settings list {len(listed)}; ask for at most "
                "that many with --tasks"
            )
        return list(listed[:count])
    tasks: list[Task] = []
    used: set[str] = set()
    level = 0
    while len(tasks) < count:
        level_tasks = _distinct_level(env_type, config, run_seed, level, used, len(tasks))
        used.update(key for task in level_tasks for key in _keys(env_type, task))
        tasks += level_tasks
        level += 1
    return tasks[:count]


def _distinct_level(
    env_type: type[PivotEnv], config: EnvConfig, run_seed: int, index: int, used: set[str], planned: int
) -> tuple[Task, ...]:
    name = env_type.profile.name
    for draw in range(MAX_DRAWS):
        parts = (run_seed, name, index) if draw == 0 else (run_seed, name, index, draw)
        try:
            tasks = env_type.make_level(config, derive_seed(*parts))
        except GenerationError as error:
            raise GenerationError(f"level {index} (counted from 0): {error}") from error
        if used.isdisjoint(key for task in tasks for key in _keys(env_type, task)):
            return tasks
    raise GenerationError(
        f"{name}: no level for task {planned} (counted from 0) that differs from the {planned} before it in "
        f"{MAX_DRAWS} draws; these settings allow too few levels: ask for at most {planned} tasks or widen them "
        f"({config!r})"
    )


def _keys(env_type: type[PivotEnv], task: Task) -> tuple[str, str]:
    """Return what no other task may share; one level may be two tasks when its goal or its evaluation set differs."""
    place = f"{task.eval_set}:{task.goal_idx}"
    return f"task:{place}:{task.task_id}", f"level:{place}:{env_type.canonical_state(task.initial_state)}"
