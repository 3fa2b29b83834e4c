"""The stand-in's player of puzzles: a seeded expert that is often wrong, dithers, and writes bad format.

It chooses by the exact distances of the environment's solver. The quality of a move depends on the level, the episode
and the turn, so rollouts of one level resemble each other.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from pydantic import Field

from ..core import plugins
from ..core.data import load_data
from ..core.errors import CertifyError, ConfigError
from ..core.identity import derive_seed
from ..solvers.base import DistanceMap, ExactSolver
from .base import actions_per_turn
from .grid import GridEnv
from .turns import Player, PlayerHabits, Reply, Turn, bell, pick, uniforms

MISREAD_LOSS = 6.0
"""Score lost on a misread level: from a score of 0 it takes the expert moves from one in two to one in fourteen."""

CACHED_LEVELS = 8
"""Levels whose distances are cached. Episodes come level by level, and the map of a large room takes 10 MB."""


class Habits(PlayerHabits):
    """Habits of the stand-in in one puzzle. Rates are probabilities per turn."""

    skill: float = 0.0
    """Mean of the skill score; a score x means an expert move with probability ``(1 + x / (1 + abs(x))) / 2``."""
    misread: float = Field(default=0.3, ge=0, le=1)
    """Share of levels whose picture all rollouts misread: their score falls by ``MISREAD_LOSS``."""
    episode_spread: float = Field(default=0.5, ge=0)
    """Standard deviation of the part of the score that belongs to one rollout."""
    evenness: float = Field(default=0.0, ge=0)
    """Gain of score per move of the shortest solution beyond three. Short plans are solved more often anyway; the gain
    keeps the success rate of a run from depending much on its levels."""
    blunder: float = Field(default=0.1, ge=0, le=1)
    """Chance of a move that loses the level, if there is such a move."""
    hesitation: float = Field(default=0.4, ge=0, le=1)
    """Share of the remaining moves (neither expert nor blunder) that only cost time: a step aside, or into a wall. The
    others are sampled from all moves."""
    bad_format: float = Field(default=0.06, ge=0, le=1)
    """Share of replies in a bad format; the six formats are equally frequent."""
    shouting: float = Field(default=0.03, ge=0, le=1)
    """Share of replies whose action is in capitals, which the grammar accepts."""


DEFAULT_HABITS: dict[str, Habits] = {
    # Tuned over twelve run seeds at the default task counts to the paper's untrained model: 17.8 % and 20.3 % success,
    # with a deviation between seeds of 1.3 and 1.5 points. In Sokoban a box is seldom next to a trap while turns are
    # left, so nearly every chance to blunder has to be taken for a quarter of the failures to be deadlocks; falling
    # into a hole is easy, a blunder now and then makes a third of FrozenLake's.
    "sokoban": Habits(skill=-1.75, misread=0.2, evenness=0.8, blunder=0.8, hesitation=0.75),
    "frozenlake": Habits(skill=-1.3, misread=0.25, evenness=0.5, blunder=0.06, hesitation=0.6),
}
OTHER_HABITS = Habits()
"""Default habits, for environments of plugins."""

_TEXTS = load_data(__file__, "grid_player.yaml")


class GridPlayer(Player):
    """Noisy expert on exact distances."""

    config_type: ClassVar[type[PlayerHabits]] = Habits
    settings: Habits

    @classmethod
    def default_habits(cls, env: str) -> Habits:
        """Return the habits tuned for the environment; see the base class."""
        return DEFAULT_HABITS.get(env, OTHER_HABITS)

    def reply(self, turn: Turn) -> Reply:
        """Answer one turn.

        Raises:
            ConfigError: the environment's solver offers no distances to play by.
        """
        profile = turn.env.profile
        habits = self.settings
        most = turn.env.config.horizon * actions_per_turn(turn.env.config)
        level = _level(profile.name, turn.task.initial_state, most)
        draws = uniforms(turn.seed)
        move = ", ".join(self._moves(level, turn, draws))
        spoken = move.upper() if draws[0] < habits.shouting else move
        looking, planning, closing = (
            pick(_TEXTS[part], draw) for part, draw in zip(("looking", "planning", "closing"), draws[1:4], strict=True)
        )
        thought = f"{looking} {planning.format(move=move)}{closing}"
        tag = profile.answer_tag
        if draws[4] < habits.bad_format:
            other = pick(level.actions, draws[6])
            return Reply(pick(_TEXTS["badly"], draws[5]).format(tag=tag, thought=thought, move=spoken, other=other))
        return Reply(f"<think>{thought}</think><{tag}>{spoken}</{tag}>")

    def _moves(self, level: "_Level", turn: Turn, draws: Sequence[float]) -> list[str]:
        """Return the moves of a turn: as many as it may have, or up to the goal."""
        state, most = turn.env.state_text(), actions_per_turn(turn.env.config)
        moves = [self._choose(level, self.settings, turn.episode_id, state, draws)]
        while len(moves) < most and isinstance(turn.env, GridEnv):
            state = turn.env.text_after(moves)
            if level.is_solved(state):
                break
            draws = uniforms(derive_seed(turn.seed, "move", len(moves)))
            moves.append(self._choose(level, self.settings, turn.episode_id, state, draws))
        return moves

    def _choose(self, level: "_Level", habits: Habits, episode_id: str, state: str, draws: Sequence[float]) -> str:
        distances = [None] * len(level.actions) if level.map is None else level.map.after_each_action(state)
        after = dict(zip(level.actions, distances, strict=True))
        fewest = min((distance for distance in after.values() if distance is not None), default=None)
        best = [move for move, distance in after.items() if distance is not None and distance == fewest]
        # Other moves after which the task can be solved, given enough turns: steps aside and into walls.
        idle = [move for move, distance in after.items() if distance is not None and distance != fewest]
        fatal = [move for move, distance in after.items() if distance is None and best]
        score = (
            habits.skill
            + habits.evenness * (level.shortest - 3)
            - (MISREAD_LOSS if level.clarity < habits.misread else 0.0)
            + habits.episode_spread * bell(uniforms(derive_seed(episode_id, "form")))
        )
        if fatal and draws[9] >= 1 - habits.blunder:
            return pick(fatal, draws[8])
        if best and 2 * draws[7] < 1 + score / (1 + abs(score)):
            return pick(best, draws[8])
        if idle and draws[9] < habits.hesitation:
            return pick(idle, draws[8])
        return pick(level.actions, draws[8])


class _Level:
    """The stand-in's knowledge of one level. Without distances it plays at random."""

    def __init__(self, env: str, initial_state: str, horizon: int) -> None:
        solver_type = plugins.load("solvers", env)
        if not issubclass(solver_type, ExactSolver):
            raise ConfigError(
                f"the scripted policy plays by exact distances, which the solver of {env} does not offer; "
                "register a player for it, or choose another policy for this environment"
            )
        self.actions = solver_type.actions_of(initial_state)
        self.clarity = uniforms(derive_seed("level", env, initial_state))[0]
        try:
            # States beyond the horizon are lost anyway; the limit keeps large rooms cheap.
            self.map: DistanceMap | None = solver_type().distance_map(initial_state, depth_limit=horizon)
            shortest = self.map.distance(initial_state)
        except CertifyError:
            self.map, shortest = None, None
        self.shortest = horizon if shortest is None else shortest

    def is_solved(self, state: str) -> bool:
        """Return whether a state is known to be a success."""
        return self.map is not None and self.map.distance(state) == 0


_level = lru_cache(maxsize=CACHED_LEVELS)(_Level)
