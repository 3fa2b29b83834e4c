"""What the log of a failed PrimitiveSkill episode tells: stages, where things were, what would have served.

Guidance writers take their advice from here, and the factual filter what it holds a text against. The action that would
have served is the perfect player's, asked for the scene that the observation text describes; it is advice, no proof.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..environments.primitiveskill import KINDS, Scene, TaskKind, reached
from ..errors import LevelError
from ..rollouts.scripted._primitiveskill_expert import expert_action
from ..solvers.primitiveskill import HELD_ABOVE, read_observation
from .base import FailedEpisode

GRASP_COUNTS = {"place": ("red cube",), "stack": ("red cube", "purple cube"), "drawer": ("apple",)}
"""Things whose grasp is a stage in itself: where no stage was achieved, they were never in the hand."""


def task_of(initial_state: str) -> TaskKind | None:
    """Return what is fixed about the task of a state text; None where the text names no task."""
    try:
        return KINDS.get(json.loads(initial_state)["task"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # the solver or the replay rule says so


def open_stages(episode: FailedEpisode) -> list[int]:
    """Return how many stages were open after each step that logs it."""
    return [count for info in episode.infos if type(count := info.get("remaining_stages")) is int]


def would_serve(episode: FailedEpisode, step: int) -> str | None:
    """Return the action that a perfect player would have taken at a step; None where the log does not tell."""
    kind = task_of(episode.initial_state)
    if kind is None or not 0 <= step < len(episode.observations):
        return None
    return _would_serve(kind.name, episode.observations[step])


@lru_cache(maxsize=1 << 12)
def _would_serve(task: str, observation: str) -> str | None:
    kind = KINDS[task]
    try:
        at, opening = read_observation(task, observation)
    except LevelError:
        return None
    high = [thing for thing, (_, _, z) in zip(kind.things, at, strict=True) if z > HELD_ABOVE[task]]
    held = min(high, key=lambda thing: at[kind.things.index(thing)][2], default=None)
    positions = {thing: (float(x), float(y), float(z)) for thing, (x, y, z) in zip(kind.things, at, strict=True)}
    scene = Scene(positions, held, float(opening) if task == "drawer" else None)
    # Within the rounding the goal may seem reached; then nothing can be advised.
    return None if reached(kind, scene) else expert_action(kind, scene)


def manipulation_facts(episode: FailedEpisode, step: int) -> list[str]:
    """Return facts for a teacher, a sentence each: the task's stages, where things were, what would have served."""
    kind = task_of(episode.initial_state)
    if kind is None:
        return []
    stages = "; ".join(kind.stages)
    found = [f"Stages of the task, each counted once it has been achieved: {stages}."]
    if step < len(episode.observations) and episode.observations[step]:
        told = "; ".join(episode.observations[step].splitlines()[1:])
        found.append(f"Told before step {step}, in the order {_order(kind)}: {told}.")
    if (action := would_serve(episode, step)) is not None:
        found.append(f"An action that would have served at step {step}: {action}.")
    return found


def _order(kind: TaskKind) -> str:
    fixed: dict[str, Sequence[Any]] = {"place": ("left target", "right target"), "drawer": ("middle of the tray",)}
    return ", ".join((*kind.things, *fixed.get(kind.name, ())))


__all__ = ["GRASP_COUNTS", "manipulation_facts", "open_stages", "task_of", "would_serve"]
