"""Episodes of the scripted stand-in in every environment, played once in a process for all tests."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from pivot.core import plugins
from pivot.core.identity import digest
from pivot.core.images import decode, encode_png
from pivot.environments.base import Frame, PivotEnv
from pivot.environments.navigation.environment import NavigationEnv
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.rollouts.base import Episode, TaskRollouts
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Case, Verdict

GRIDS = ("sokoban", "frozenlake")
BLACK = {side: encode_png(np.zeros((side, side, 3), np.uint8)) for side in (255, 300)}


class BlindRoom(NavigationEnv):
    """A room without pictures: habits depend on geometry alone."""

    def _picture(self) -> bytes:
        return BLACK[255]


class BlindTable(PrimitiveSkillEnv):
    """A table without pictures: habits depend on positions alone."""

    def _frame(self) -> Frame:
        return decode(BLACK[300])

    def encode_frame(self, frame: Frame) -> tuple[str, bytes]:
        return "png", BLACK[300]


@dataclass(frozen=True)
class Player:
    """Figures that the player of an environment was tuned to, over eight rollouts of some levels."""

    success: tuple[float, float]
    """Share of episodes that succeed; about that of the paper's untrained model."""
    least: float
    """Least share of failures of each mode; more were measured."""
    levels: int
    replies: int
    """Least number of different replies."""
    perfect: dict[str, Any]
    """Habits with which every episode succeeds."""
    blind: type[PivotEnv] | None = None
    seed: int = 0
    bad: dict[str, Any] = field(default_factory=dict[str, Any])


SKILL = {"skill": 1e9, "bad_format": 0}
GRID = SKILL | {"misread": 0, "blunder": 0}
SPREAD = {"level_spread": 0, "episode_spread": 0, "lost_heart": 0}
PLAYERS = {
    "sokoban": Player((0.148, 0.208), 0.2, 180, 1000, GRID),
    "frozenlake": Player((0.173, 0.233), 0.2, 216, 1000, GRID),
    "svg": Player((0.0, 0.03), 0.06, 9, 60, {"exact": 1, "broken": 0, "empty": 0, "baffled": 0}),
    "navigation": Player((0.33, 0.55), 0.08, 40, 100, SKILL | SPREAD, BlindRoom, 1, {"lost_heart": 2}),
    "primitiveskill": Player(
        (0.05, 0.2),
        0.08,
        120,
        1000,
        SKILL | {"level_spread": 0, "spoilt": 0, "shaking": 0, "baffled": 0},
        BlindTable,
        1,
        {"baffled": 2},
    ),
}


def rolled(
    env: str, count: int, policy: ScriptedPolicy | None = None, *, seed: int = 0, blind: Any = None, **options: Any
) -> list[TaskRollouts]:
    env_type = plugins.load("environments", env)
    config = env_type.config_type()
    double = 2 if env == "navigation" else 1  # two instructions per level
    tasks = plan_tasks(env_type, config, seed, count * double)[::double]
    return roll_out_tasks(blind or env_type, config, tasks, policy or ScriptedPolicy(), **options)


@lru_cache
def played(env: str) -> list[TaskRollouts]:
    player = PLAYERS[env]
    return rolled(env, player.levels, seed=player.seed, blind=player.blind)


def episodes_of(rollouts: list[TaskRollouts]) -> list[Episode]:
    return [episode for task in rollouts for episode in task.episodes]


def labels(env: str, failures: list[Episode]) -> list[Verdict]:
    cases = [
        Case(e.initial_state, e.actions, e.horizon, [s.info for s in e.steps], [s.observation_text for s in e.steps])
        for e in failures
    ]
    verdicts = plugins.load("solvers", env)().certify(cases)
    assert all(isinstance(verdict, Verdict) for verdict in verdicts)
    return verdicts


def texts(rollouts: list[TaskRollouts]) -> list[list[str]]:
    return [[step.response for step in episode.steps] for episode in episodes_of(rollouts)]


def digests() -> list[str]:
    return [digest(texts(rolled(env, 3 if env in GRIDS else 1, rollouts=2))) for env in PLAYERS]
