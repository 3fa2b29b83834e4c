"""Navigation tasks from files in the published format: ``{"tasks": [{scene, agentPose, targetObjectType, ...}]}``.

Each file is a split with the name of the file (``base.json`` is ``base``). Tasks that differ only in the instruction
have the same state and task id, and are distinguished by their split. ``object_to_hide`` is ignored, as in the
published environment: it may even name the target.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, LevelError
from ...core.identity import derive_seed
from .state import THOR, NavigationState, Pose, Target, parse_state

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a task file, bytes."""


@lru_cache(maxsize=8)
def read_task_files(names: tuple[str, ...]) -> tuple[tuple[str, int, str, str], ...]:
    """Return split, seed, state text and instruction of every task: the first task of each file, then the second.

    Raises:
        ConfigError: a file cannot be read, has a different format, or shares its name with another file.
    """
    splits = [Path(name).stem for name in names]
    if repeated := sorted({split for split in splits if splits.count(split) > 1}):
        raise ConfigError(f"two task files are named {repeated[0]!r}; rename one, because file names are split names")
    files = [_tasks(Path(name)) for name in names]
    longest = max(map(len, files))
    return tuple(
        (split, *tasks[index])
        for index in range(longest)
        for split, tasks in zip(splits, files, strict=True)
        if index < len(tasks)
    )


def files_digest(names: tuple[str, ...]) -> str:
    """Return a digest of the tasks in the files.

    Raises:
        ConfigError: as for :func:`read_task_files`.
    """
    return hashlib.sha256(json.dumps(read_task_files(names)).encode()).hexdigest()[:16]


def _tasks(path: Path) -> list[tuple[int, str, str]]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"task file {path} is longer than {MAX_BYTES >> 20} MB")
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"task file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"task file {path} is not JSON: {error}") from error
    tasks = raw.get("tasks") if isinstance(raw, dict) else None
    if not isinstance(tasks, list) or not tasks:
        raise ConfigError(f"task file {path} has no list 'tasks'; expected the published EmbodiedBench format")
    return [_task(path, number, task) for number, task in enumerate(tasks)]


def _task(path: Path, number: int, task: Any) -> tuple[int, str, str]:
    try:
        pose = task["agentPose"]
        here, there = _point(pose["position"]), _point(task["target_position"])
        state = NavigationState(
            backend=THOR,
            scene=task["scene"],
            pose=Pose(*here, float(pose["rotation"]), float(pose["horizon"])),
            target=Target(task["targetObjectType"], task["targetObjectIds"], *there),
        )
        instruction = task["instruction"]
        text = parse_state(state.text()).text()
    except (KeyError, TypeError, ValueError, OverflowError, LevelError) as error:
        raise ConfigError(f"task {number} of {path}: {type(error).__name__}: {error}") from error
    if not isinstance(instruction, str) or not instruction.strip():
        raise ConfigError(f"task {number} of {path}: its instruction is {instruction!r}, expected a text")
    return derive_seed("navigation-task", text), text, instruction


def _point(data: dict[str, float]) -> tuple[float, float, float]:
    return float(data["x"]), float(data["y"]), float(data["z"])
