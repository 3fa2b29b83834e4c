"""The stand-in's player of puzzles: a seeded expert that is often wrong, dithers, and writes bad format.

It chooses by the exact distances of the environment's solver. The quality of a move depends on the level, the episode
and the turn, so rollouts of one level resemble each other.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from ..core import plugins
from ..core.data import load_data
from ..core.errors import CertifyError, ConfigError
from ..core.identity import derive_seed
from ..solvers.base import DistanceMap, ExactSolver
from .base import EnvProfile, Task, actions_per_turn
from .grid import GridEnv
from .player import Player, PlayerHabits, bell, pick, uniforms
from .turns import Reply, Turn

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

    def __init__(self, env: str, changes: Mapping[str, Any]) -> None:
        """Set the habits; see the base class."""
        super().__init__(env, changes)
        self._levels: OrderedDict[tuple[str, str, int], _Level] = OrderedDict()

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
        level = self._level(profile, turn.task, turn.env.config.horizon * actions_per_turn(turn.env.config))
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
        options = level.options(state)
        score = (
            habits.skill
            + habits.evenness * (level.shortest - 3)
            - (MISREAD_LOSS if level.clarity < habits.misread else 0.0)
            + habits.episode_spread * level.form_of(episode_id)
        )
        if options.fatal and draws[9] >= 1 - habits.blunder:
            return pick(options.fatal, draws[8])
        if options.best and 2 * draws[7] < 1 + score / (1 + abs(score)):
            return pick(options.best, draws[8])
        if options.idle and draws[9] < habits.hesitation:
            return pick(options.idle, draws[8])
        return pick(level.actions, draws[8])

    def _level(self, profile: EnvProfile, task: Task, horizon: int) -> "_Level":
        key = (profile.name, task.initial_state, horizon)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = _Level(profile, task.initial_state, horizon)
            if len(self._levels) > CACHED_LEVELS:
                self._levels.popitem(last=False)
        else:
            self._levels.move_to_end(key)
        return level


@dataclass(frozen=True, slots=True)
class _Options:
    """The moves of one state by their quality."""

    best: tuple[str, ...]
    """Moves of a shortest solution; empty if the state has none, or none is known."""
    idle: tuple[str, ...]
    """Other moves after which the task can still be solved, given enough turns: steps aside and into walls."""
    fatal: tuple[str, ...]
    """Moves after which the task can no longer be solved; empty if it already cannot."""


class _Level:
    """The stand-in's knowledge of one level. Without distances it plays at random."""

    def __init__(self, profile: EnvProfile, initial_state: str, horizon: int) -> None:
        solver_type = plugins.load("solvers", profile.name)
        if not issubclass(solver_type, ExactSolver):
            raise ConfigError(
                f"the scripted policy plays by exact distances, which the solver of {profile.name} does not offer; "
                "register a player for it, or choose another policy for this environment"
            )
        self.actions = solver_type.actions_of(initial_state)
        self.clarity = uniforms(derive_seed("level", profile.name, initial_state))[0]
        self._options: dict[str, _Options] = {}
        self._forms: dict[str, float] = {}
        try:
            # States beyond the horizon are lost anyway; the limit keeps large rooms cheap.
            self._map: DistanceMap | None = solver_type().distance_map(initial_state, depth_limit=horizon)
            shortest = self._map.distance(initial_state)
        except CertifyError:
            self._map, shortest = None, None
        self.shortest = horizon if shortest is None else shortest

    def form_of(self, episode: str) -> float:
        """Return the quality of an episode: nearly normal, mean 0, deviation 1."""
        form = self._forms.get(episode)
        if form is None:
            form = self._forms[episode] = bell(uniforms(derive_seed(episode, "form")))
        return form

    def is_solved(self, state: str) -> bool:
        """Return whether a state is known to be a success."""
        return self._map is not None and self._map.distance(state) == 0

    def options(self, state: str) -> _Options:
        """Return the moves worth making in a state."""
        options = self._options.get(state)
        if options is None:
            options = self._options[state] = self._find_options(state)
        return options

    def _find_options(self, state: str) -> _Options:
        distances = [None] * len(self.actions) if self._map is None else self._map.after_each_action(state)
        moves = [
            (move, distance) for move, distance in zip(self.actions, distances, strict=True) if distance is not None
        ]
        if not moves:
            return _Options((), (), ())
        fewest = min(distance for _, distance in moves)
        return _Options(
            best=tuple(move for move, distance in moves if distance == fewest),
            idle=tuple(move for move, distance in moves if distance > fewest),
            fatal=tuple(move for move, distance in zip(self.actions, distances, strict=True) if distance is None),
        )
