"""The stand-in's player of PrimitiveSkill: it knows where everything is and still fails, early or halfway.

The right action follows from the scene (``primitiveskill_expert.py``). Few rollouts are free of errors. Many others
begin well, until a misconception takes over, which a second one may replace: they confuse objects, or left and right,
put objects next to their target or away from it, shove objects, forget to grasp first, do one thing at a time, or reply
without a command (``primitiveskill_faults.py``). Some turns are free of the misconception. Levels differ in how often
that is, and at some levels every rollout fails.
"""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from ...core.data import load_data
from ...core.errors import ConfigError
from ...core.identity import derive_seed
from ..turns import Player, PlayerHabits, Reply, Turn, bell, pick, uniforms
from .actions import Primitive, join
from .environment import PrimitiveSkillEnv
from .faults import FRUITLESS, GRASPING, HANDS_OFF, Plan, expert_plan, misled

_TEXTS = load_data(__file__, "player.yaml")
WEIGHTS: dict[str, float] = _TEXTS["weights"]
"""Frequency of each misconception."""
LONGEST_SPELL = 4
"""Most turns until a misconception is replaced by another."""


class PrimitiveSkillHabits(PlayerHabits):
    """Habits of the stand-in in PrimitiveSkill. Rates are probabilities per turn unless stated otherwise."""

    # Near the rates of the paper's untrained model (8.9 % success, 46.2 % all-fail, 16.5 % sigma = 0).
    skill: float = -9.0
    """Mean skill score of levels; at a score x a rollout is free of errors with probability
    ``(1 + x / (1 + abs(x))) / 2``."""
    level_spread: float = Field(default=0.5, ge=0)
    """Standard deviation of the score over levels."""
    well_begun: float = Field(default=0.35, ge=0, le=1)
    """Share of the rollouts with errors whose first turn is right."""
    recovery: float = Field(default=0.03, ge=0, le=1)
    """Share of right turns during a misconception."""
    faithful: float = Field(default=0.5, ge=0, le=1)
    """Share of rollouts whose second misconception is of the same kind as the first: with or without grasping."""
    bad_format: float = Field(default=0.06, ge=0, le=1)
    """Share of replies without a usable action, or without a thought."""
    spoilt: float = Field(default=0.06, ge=0, le=1)
    """Share of turns whose second command is misspelt or followed by a third, so that part of the turn is void."""
    shaking: float = Field(default=6.0, ge=0)
    """Standard deviation of each coordinate, millimetres."""
    baffled: float = Field(default=0.16, ge=0, le=1)
    """Share of levels at which no rollout achieves a stage: their eight returns agree."""


class PrimitiveSkillPlayer(Player):
    """Imperfect operator of the arm; see the module docstring."""

    version: ClassVar[str] = "2"
    config_type: ClassVar[type[PlayerHabits]] = PrimitiveSkillHabits
    settings: PrimitiveSkillHabits

    def reply(self, turn: Turn) -> Reply:
        """Answer one turn.

        Raises:
            ConfigError: the environment is not primitiveskill.
        """
        habits, tag = self.settings, turn.env.profile.answer_tag
        if not isinstance(turn.env, PrimitiveSkillEnv):
            raise ConfigError("this player of the scripted policy plays primitiveskill only; choose another --policy")
        draws, state = uniforms(turn.seed), turn.env.state
        fault = self._fault(turn, draws[0])
        lasting = uniforms(derive_seed(turn.episode_id, "aim"))
        plan = expert_plan(state) if fault is None else misled(state, fault, lasting, draws, turn.t)
        plan = self._shaken(plan, turn)
        name = join(plan)
        planning = pick(_TEXTS["planning"], draws[2])
        thought = f"{pick(_TEXTS['looking'], draws[1])} {planning.format(plan=name.replace('|', ' and '))}"
        babbles = fault == "babble"
        if babbles or draws[4] < habits.bad_format:
            kind = pick(_TEXTS["badly"][: -1 if babbles else None], draws[5])
            return Reply(kind.format(tag=tag, thought=thought, name=name, rest=name.split("(", 1)[-1]))
        if draws[6] < habits.spoilt:
            name = _spoilt(plan, draws[7])
        return Reply(f"<think>{thought}</think><{tag}>{name}</{tag}>")

    def _fault(self, turn: Turn, draw: float) -> str | None:
        """Return the misconception of the rollout at this turn; None if the turn is right."""
        habits = self.settings
        riddle = uniforms(derive_seed("primitiveskill riddle", turn.task.initial_state))
        story = uniforms(derive_seed(turn.episode_id, "misconception"))
        baffled = riddle[0] < habits.baffled
        begin = 0
        if not baffled:
            if 2 * story[0] < 1 + self._score(turn):
                return None
            begin = int(story[1] < habits.well_begun)
            if turn.t < begin or draw < habits.recovery:
                return None
        first, second = self._two_faults(story, baffled)
        return first if turn.t < begin + 1 + int(LONGEST_SPELL * story[4]) else second

    def _two_faults(self, story: Sequence[float], baffled: bool) -> tuple[str, str]:
        """Return the first misconception of a rollout and the one that replaces it."""
        if baffled:
            return pick(FRUITLESS, story[2]), pick(FRUITLESS, story[3])
        first = _weighted(tuple(WEIGHTS), story[2])
        alike = GRASPING if first in GRASPING else HANDS_OFF
        return first, _weighted(alike if story[5] < self.settings.faithful else tuple(WEIGHTS), story[3])

    def _score(self, turn: Turn) -> float:
        """Return the skill of rollouts at a level, squeezed into (-1, 1)."""
        habits = self.settings
        level = bell(uniforms(derive_seed("primitiveskill difficulty", turn.task.initial_state)))
        score = habits.skill + habits.level_spread * level
        return score / (1 + abs(score))

    def _shaken(self, plan: Plan, turn: Turn) -> Plan:
        """Return the plan with coordinates a little off."""
        shaken = []
        for number, primitive in enumerate(plan):
            noise = (
                round(
                    self.settings.shaking * bell(uniforms(derive_seed(turn.episode_id, "hand", turn.t, number, axis)))
                )
                for axis in range(len(primitive.arguments))
            )
            shaken.append(Primitive(primitive.name, tuple(map(sum, zip(primitive.arguments, noise, strict=True)))))
        return tuple(shaken)


def _weighted(faults: Sequence[str], draw: float) -> str:
    """Return one of some misconceptions, sampled by their weights."""
    left = draw * sum(WEIGHTS[fault] for fault in faults)
    for fault in faults:
        left -= WEIGHTS[fault]
        if left < 0:
            return fault
    return faults[-1]


def _spoilt(plan: Plan, draw: float) -> str:
    """Return the reply of a turn whose second part is void."""
    first, rest = str(plan[0]), "|".join(map(str, plan[1:]))
    return pick(
        (
            f"{first}|move({first.split('(')[1]}",
            f"{first[:-1]},0)|{rest or first}",
            f"{first}|{rest or first}|{first}",
            f"{first}|{first.split(',', maxsplit=1)[0]})",
            f"{first.replace(',', '.5,', 1)}|{rest or first}",
        ),
        draw,
    )
