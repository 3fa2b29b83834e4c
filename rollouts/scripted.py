"""The embedded stand-in for a model: a seeded expert that is often wrong, dithers, and writes bad format.

It exists so that everything downstream runs on episodes shaped like a weak model's: about one in five succeeds,
rollouts of one level resemble each other, and every failure mode and every kind of unusable reply occurs. It looks at
the live state through the solver's distance map, which no real policy may; its rows are marked as a stand-in's.

Randomness is a function of ids: the level's part of its text, the episode's of its id, the turn's of its seed.
"""

import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import plugins
from ..environments.base import EnvProfile, Task
from ..errors import CertifyError, ConfigError
from ..identity import derive_seed
from ..solvers.base import DistanceMap, ExactSolver
from .base import Policy, Reply, Turn

VERSION = "1"
"""Goes up when the default habits or their use change: the replies, and so the episode ids, are then others."""

MISREAD_LOSS = 6.0
"""Score lost on a misread level: from a score of 0 it takes the expert moves from one in two to one in fourteen."""

CACHED_LEVELS = 8
"""Levels whose distances are kept. Episodes come level by level, and a large room's map takes 10 MB."""


class Habits(BaseModel):
    """How the stand-in plays one environment. Rates are probabilities a turn."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    skill: float = 0.0
    """Mean of the skill score; a score x means an expert move with probability ``(1 + x / (1 + abs(x))) / 2``."""
    misread: float = Field(default=0.3, ge=0, le=1)
    """Share of levels whose picture all rollouts misread: their score falls by ``MISREAD_LOSS``."""
    episode_spread: float = Field(default=0.5, ge=0)
    """Standard deviation of the part of the score that belongs to one rollout."""
    evenness: float = Field(default=0.0, ge=0)
    """Gain of score a move of the shortest solution beyond three. Short plans are solved more often anyway; this keeps
    the success rate of a run from depending much on which levels its seed draws."""
    blunder: float = Field(default=0.1, ge=0, le=1)
    """Chance of a move that loses the level, where such a move is at hand."""
    hesitation: float = Field(default=0.4, ge=0, le=1)
    """Share of the moves that are neither expert nor blunder which cost nothing but time: a step aside, or into a wall.
    The rest is drawn from all moves."""
    bad_format: float = Field(default=0.06, ge=0, le=1)
    """Replies in one of the six bad formats, each as often as the others."""
    shouting: float = Field(default=0.03, ge=0, le=1)
    """Replies whose action is in capitals, which the grammar accepts."""


DEFAULT_HABITS: dict[str, Habits] = {
    # Tuned over twelve run seeds at the default task counts to the paper's untrained model: 17.8 % and 20.3 % success,
    # with a deviation between seeds of 1.3 and 1.5 points. In Sokoban a box is seldom next to a trap while turns are
    # left, so nearly every chance to blunder has to be taken for a quarter of the failures to be deadlocks; falling
    # into a hole is easy, a blunder now and then makes a third of FrozenLake's.
    "sokoban": Habits(skill=-1.75, misread=0.2, evenness=0.8, blunder=0.8, hesitation=0.75),
    "frozenlake": Habits(skill=-1.3, misread=0.25, evenness=0.5, blunder=0.06, hesitation=0.6),
}
OTHER_HABITS = Habits()
"""For environments that bring a solver of their own."""

_TEN_WORDS = struct.Struct("<10I")

_LOOKING = (
    "Looking at the picture first.",
    "Let me see where I am.",
    "I check what is around me.",
    "The goal is not far from here.",
    "I compare my cell with the goal.",
    "Step by step.",
)
_PLANNING = (
    "Going {move} seems to bring me closer.",
    "The way {move} looks open, so I take it.",
    "If I go {move} now, the rest should follow.",
    "{move} is the natural next move.",
    "I would rather go {move} than wait.",
    "Nothing speaks against {move}.",
    "My plan starts with {move}.",
)
_CLOSING = ("", " I must watch the edges.", " There are few turns left.", " I am fairly sure.", " It may be a detour.")


class ScriptedPolicy(Policy):
    """The noisy expert; settings an environment in :class:`Habits`."""

    name: ClassVar[str] = "scripted"
    is_stand_in: ClassVar[bool] = True

    def __init__(self, habits: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Take the default habits, changed where ``habits`` (environment -> field -> number) says so.

        Raises:
            ConfigError: an unknown field, or a number out of range.
        """
        self._habits = dict(DEFAULT_HABITS)
        self._changes = {env: dict(changes) for env, changes in (habits or {}).items()}
        for env, changes in self._changes.items():
            fields = self._habits.get(env, OTHER_HABITS).model_dump() | dict(changes)
            try:
                self._habits[env] = Habits(**fields)
            except ValidationError as error:
                problem = error.errors()[0]
                raise ConfigError(
                    f"policy scripted, habits of {env}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}; "
                    f"known fields: {', '.join(Habits.model_fields)}"
                ) from error
        self._levels: OrderedDict[tuple[str, str, int], _Level] = OrderedDict()

    @property
    def config(self) -> dict[str, Any]:
        """Version and changed habits: all that decides the replies.

        The default habits go with the version, so that a new environment's habits leave the ids of the others alone.
        """
        return {"version": VERSION, "habits": self._changes}

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the same turn always gets the same answer.

        Raises:
            ConfigError: the environment's solver offers no distances to play by.
        """
        profile = turn.env.profile
        habits = self._habits.get(profile.name, OTHER_HABITS)
        level = self._level(profile, turn.task, turn.env.config.horizon)
        draws = _uniforms(turn.seed)
        move = self._choose(level, habits, turn, draws)
        spoken = move.upper() if draws[0] < habits.shouting else move
        thought = (
            f"{_pick(_LOOKING, draws[1])} {_pick(_PLANNING, draws[2]).format(move=move)}{_pick(_CLOSING, draws[3])}"
        )
        if draws[4] < habits.bad_format:
            return Reply(_badly(profile.answer_tag, thought, spoken, _pick(level.actions, draws[6]), draws[5]))
        return Reply(f"<think>{thought}</think><{profile.answer_tag}>{spoken}</{profile.answer_tag}>")

    def _choose(self, level: "_Level", habits: Habits, turn: Turn, draws: Sequence[float]) -> str:
        options = level.options(turn.env.state_text())
        score = (
            habits.skill
            + habits.evenness * (level.shortest - 3)
            - (MISREAD_LOSS if level.clarity < habits.misread else 0.0)
            + habits.episode_spread * level.form_of(turn.episode_id)
        )
        if options.fatal and draws[9] >= 1 - habits.blunder:
            return _pick(options.fatal, draws[8])
        if options.best and 2 * draws[7] < 1 + score / (1 + abs(score)):
            return _pick(options.best, draws[8])
        if options.idle and draws[9] < habits.hesitation:
            return _pick(options.idle, draws[8])
        return _pick(level.actions, draws[8])

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
    """What can be done in one state."""

    best: tuple[str, ...]
    """Moves of a shortest solution; empty when there is no solution, or none is known."""
    idle: tuple[str, ...]
    """Other moves after which the task can still be solved, time permitting: steps aside and into walls."""
    fatal: tuple[str, ...]
    """Moves after which it cannot be solved any more; empty when that is so already."""


class _Level:
    """What the stand-in knows about one level. Without distances it knows nothing and plays at random."""

    def __init__(self, profile: EnvProfile, initial_state: str, horizon: int) -> None:
        solver_type = plugins.load("solvers", profile.name)
        if not issubclass(solver_type, ExactSolver):
            raise ConfigError(
                f"the scripted policy plays by exact distances, which the solver of {profile.name} does not offer; "
                "choose another policy for this environment"
            )
        self.actions: tuple[str, ...] = solver_type.actions
        self.clarity = _uniforms(derive_seed("level", profile.name, initial_state))[0]
        self._options: dict[str, _Options] = {}
        self._forms: dict[str, float] = {}
        try:
            # What cannot be solved within the horizon is lost anyway; the limit keeps large rooms cheap.
            self._map: DistanceMap | None = solver_type().distance_map(initial_state, depth_limit=horizon)
            shortest = self._map.distance(initial_state)
        except CertifyError:
            self._map, shortest = None, None
        self.shortest = horizon if shortest is None else shortest

    def form_of(self, episode: str) -> float:
        """Return how well an episode goes: nearly normal, mean 0, deviation 1."""
        form = self._forms.get(episode)
        if form is None:
            form = self._forms[episode] = _bell(_uniforms(derive_seed(episode, "form")))
        return form

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


def _uniforms(seed: int) -> list[float]:
    """Return ten numbers in [0, 1), a function of ``seed`` on every machine."""
    words = _TEN_WORDS.unpack(blake2b(b"%d" % seed, digest_size=_TEN_WORDS.size).digest())
    return [word * 2.0**-32 for word in words]


def _bell(draws: Sequence[float]) -> float:
    """Return a nearly normal number of mean 0 and deviation 1: a sum of uniforms needs no library function."""
    return (sum(draws[:6]) - 3.0) * 2.0**0.5


def _pick(choices: Sequence[str], draw: float) -> str:
    return choices[int(draw * len(choices))]


def _badly(tag: str, thought: str, move: str, other: str, draw: float) -> str:
    """Write a reply in one of six bad formats; only the first still has a usable action."""
    kinds = (
        f"{thought}\n<{tag}>{move}</{tag}>",
        f"<think>{thought}</think>{move}",
        f"<think>{thought}</think><{tag}>{move}, {other}</{tag}>",
        f"<think>{thought}</think><{tag}>go {move}</{tag}>",
        "",
        f"<think>{thought} <{tag}>{move}</{tag}></think>",
    )
    return _pick(kinds, draw)
