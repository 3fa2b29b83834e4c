"""Figures on how much the failures of the scripted PrimitiveSkill player show in a collage."""

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from pivot.environments.base import Frame
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig, PrimitiveSkillEnv
from pivot.rollouts.base import Episode
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Case, Verdict
from pivot.solvers.primitiveskill.solver import PrimitiveSkillSolver


class Sketch(PrimitiveSkillEnv):
    """Return numbers instead of a picture: frames are equal if all positions are, to the mm."""

    def _frame(self) -> Frame:
        scene = self.state.scene
        values = [round(value) for at in scene.positions.values() for value in at]
        values += [round(scene.opening or 0), list(scene.positions).index(scene.in_hand) if scene.in_hand else -1]
        return np.frombuffer(np.array(values, np.int32).tobytes(), np.uint8).reshape(1, -1, 4)[:, :, :3].copy()

    def encode_frame(self, frame: Frame) -> tuple[str, bytes]:
        return "png", b""


Labelled = list[tuple[Episode, Verdict]]


def play(env_type: type[PrimitiveSkillEnv], levels: int, seed: int = 0) -> tuple[list[Episode], Labelled]:
    """Play eight rollouts per level; return them, and the failures with their verdicts."""
    config = PrimitiveSkillConfig()
    tasks = plan_tasks(env_type, config, seed, levels)
    groups = roll_out_tasks(env_type, config, tasks, ScriptedPolicy(), 8)
    episodes = [episode for group in groups for episode in group.episodes]
    failed = [episode for episode in episodes if episode.failed]
    verdicts = PrimitiveSkillSolver().certify(
        [
            Case(
                e.initial_state, e.actions, e.horizon, [s.info for s in e.steps], [s.observation_text for s in e.steps]
            )
            for e in failed
        ]
    )
    labelled = [(e, v) for e, v in zip(failed, verdicts, strict=True) if isinstance(v, Verdict)]
    assert len(labelled) == len(failed)
    return episodes, labelled


@dataclass(frozen=True)
class Scenes:
    """Shares of failures, 0 to 1."""

    all_equal: float
    """Collages whose tiles are all the same picture."""
    pivot_changes: float
    """Failures in which the action at the pivot changes the picture."""
    late_pivot_changes: float
    """Share of such failures among failures whose pivot is step 3 or 4."""
    progress: float
    """Failures in which at least one stage was achieved."""
    majority: float
    """The most frequent mode."""
    by_first_kind: float
    """Right guesses of the mode from the names of the primitives of step 0."""
    by_first_step: float
    """Right guesses of the mode from all facts of step 0 except positions: whether it ran, and its result."""


def first_kind(episode: Episode) -> Hashable:
    """The names of the primitives of step 0."""
    return tuple(re.findall(r"(pick|place|push)\(", episode.actions[0]))


def first_step(episode: Episode) -> Hashable:
    """Return the facts of step 0 except its positions."""
    step = episode.steps[0]
    facts = step.info["legal"], step.info["remaining_stages"], step.frame_id != step.next_frame_id
    return first_kind(episode), step.reply_outcome, facts


def guessed(labelled: Labelled, feature: Callable[[Episode], Hashable]) -> float:
    """Return how often the most frequent mode for a feature is right, on the failures that it was read from."""
    counts: dict[Hashable, Counter[str]] = {}
    for episode, verdict in labelled:
        counts.setdefault(feature(episode), Counter())[verdict.failure_mode] += 1
    return sum(max(modes.values()) for modes in counts.values()) / len(labelled)


def _stages(episode: Episode) -> int:
    return len(json.loads(episode.initial_state)["achieved"])


def scenes_of(labelled: Labelled) -> Scenes:
    """Measure failures."""

    def share(flags: Sequence[bool]) -> float:
        return sum(flags) / max(1, len(flags))

    def changes(episode: Episode, t: int) -> bool:
        return episode.steps[t].frame_id != episode.steps[t].next_frame_id

    return Scenes(
        all_equal=share([len({step.frame_id for step in e.steps}) == 1 for e, _ in labelled]),
        pivot_changes=share([changes(e, v.pivot_step) for e, v in labelled]),
        late_pivot_changes=share([changes(e, v.pivot_step) for e, v in labelled if v.pivot_step in (3, 4)]),
        progress=share([e.steps[-1].info["remaining_stages"] < _stages(e) for e, _ in labelled]),
        majority=guessed(labelled, lambda _: 0),
        by_first_kind=guessed(labelled, first_kind),
        by_first_step=guessed(labelled, first_step),
    )
