"""How the stand-in commands the arm: it knows where everything is, and yet mixes up, misses, dawdles and babbles.

What is right at any moment is known from the scene (``primitiveskill_expert.py``). A rollout has a misconception that
colours its turns: it takes one thing for another, confuses left and right, aims beside things or above them, forgets
that something has to be grasped first, does one thing at a time, or answers with what is no command. Now and then it
sees clearly for a turn. Levels differ in how often that is, and some baffle every rollout.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from pydantic import Field

from ...environments.primitiveskill import (
    Primitive,
    PrimitiveSkillEnv,
    Scene,
    SkillState,
    join,
    read_primitives,
    tray_centre,
)
from ...errors import ConfigError
from ...identity import derive_seed
from ..base import Reply, Turn
from .player import Player, PlayerHabits, bell, pick, uniforms
from .primitiveskill_expert import expert_action

_LOOKING = (
    "I compare the list of positions with the picture.",
    "The things stand well apart.",
    "The gripper hangs above the table and is free to move.",
    "One of the positions is nearer to the camera than the others.",
    "I have to tell the positions apart by where they are.",
    "Left in the picture means a smaller y.",
)
_PLANNING = (
    "Next comes {plan}.",
    "With {plan} the next part should be done.",
    "I try {plan}.",
    "{plan} fits what was asked for.",
    "Then {plan}, and look again.",
)

FAULTS = ("confused", "mirrored", "beside", "above", "no grasp", "slow", "babble")
"""The misconceptions; ``_misled`` says what each does to a plan."""
WEIGHTS = (0.22, 0.13, 0.16, 0.08, 0.17, 0.14, 0.10)
"""How frequent each is among rollouts."""
FRUITLESS = ("above", "no grasp", "babble")
"""Those that never move a thing as wanted; what baffles a level is one of them."""


class PrimitiveSkillHabits(PlayerHabits):
    """How the stand-in commands the arm. Rates are probabilities a turn unless said otherwise."""

    # Near the rates of the paper's untrained model (8.9 % success, 46.2 % all-fail, 16.5 % sigma = 0): 364 tasks of
    # seed 0 give 9.8, 52.7 and 13.7 %.
    skill: float = -14.0
    """Mean of the skill score; a score x means a clear turn with probability ``(1 + x / (1 + abs(x))) / 2``."""
    level_spread: float = Field(default=0.15, ge=0)
    """Standard deviation of the part of the score that belongs to the level."""
    episode_spread: float = Field(default=1.3, ge=0)
    """The same for one rollout."""
    bad_format: float = Field(default=0.06, ge=0, le=1)
    """Replies without a usable action, or without a thought."""
    spoilt: float = Field(default=0.06, ge=0, le=1)
    """Turns whose second command is misspelt or one of three, so that part of the turn is void."""
    shaking: float = Field(default=6.0, ge=0)
    """Standard deviation of each coordinate, millimetres."""
    baffled: float = Field(default=0.14, ge=0, le=1)
    """Share of levels at which no rollout moves anything as wanted: their eight returns agree."""


class PrimitiveSkillPlayer(Player):
    """Commands the arm badly; see the module docstring."""

    config_type: ClassVar[type[PlayerHabits]] = PrimitiveSkillHabits
    settings: PrimitiveSkillHabits

    def reply(self, turn: Turn) -> Reply:
        """Answer one turn.

        Raises:
            ConfigError: the environment is another one.
        """
        habits, tag = self.settings, turn.env.profile.answer_tag
        if not isinstance(turn.env, PrimitiveSkillEnv):
            raise ConfigError("this player of the scripted policy plays primitiveskill only; choose another --policy")
        draws = uniforms(turn.seed)
        fault, baffled = self._fault(turn)
        state = turn.env.state
        if not baffled and 2 * draws[0] < 1 + self._score(turn):
            plan, fault = _expert(state), ""
        else:
            plan = _misled(state, fault, turn, draws)
        if not baffled:
            plan = self._shaken(plan, turn)
        name = join(plan)
        thought = f"{pick(_LOOKING, draws[1])} {pick(_PLANNING, draws[2]).format(plan=name.replace('|', ' and '))}"
        hopeless = fault == "babble"
        if hopeless or draws[4] < habits.bad_format:
            return Reply(_badly(tag, thought, name, draws[5], hopeless))
        if draws[6] < habits.spoilt and not baffled:
            name = _spoilt(plan, draws[7])
        return Reply(f"<think>{thought}</think><{tag}>{name}</{tag}>")

    def _fault(self, turn: Turn) -> tuple[str, bool]:
        """Return the misconception of the rollout, and whether the level baffles every rollout."""
        level = uniforms(derive_seed("primitiveskill riddle", turn.task.initial_state))
        draws = uniforms(derive_seed(turn.episode_id, "misconception"))
        if level[0] < self.settings.baffled:
            return pick(FRUITLESS, draws[1]), True
        left = draws[0] * sum(WEIGHTS)
        for fault, weight in zip(FAULTS, WEIGHTS, strict=True):
            left -= weight
            if left < 0:
                return fault, False
        return FAULTS[-1], False

    def _score(self, turn: Turn) -> float:
        """Return the skill of a rollout at a level, squeezed into (-1, 1)."""
        habits = self.settings
        level = bell(uniforms(derive_seed("primitiveskill difficulty", turn.task.initial_state)))
        form = bell(uniforms(derive_seed(turn.episode_id, "form")))
        score = habits.skill + habits.level_spread * level + habits.episode_spread * form
        return score / (1 + abs(score))

    def _shaken(self, plan: tuple[Primitive, ...], turn: Turn) -> tuple[Primitive, ...]:
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


def _expert(state: SkillState, scene: Scene | None = None) -> tuple[Primitive, ...]:
    return read_primitives(expert_action(state.kind, scene or state.scene))[0]


def _misled(state: SkillState, fault: str, turn: Turn, draws: Sequence[float]) -> tuple[Primitive, ...]:
    """Return what a rollout with a misconception does now."""
    plan = _expert(state)
    lasting = uniforms(derive_seed(turn.episode_id, "aim"))
    # Too far along x for the fingers, or along y; a thing that hangs in the hand gets there all the same.
    dx, dy = pick(((45, 0), (-45, 0), (0, 60), (0, -60), (40, 40)), lasting[0])
    ways: dict[str, Callable[[], tuple[Primitive, ...]]] = {
        "confused": lambda: _confused(state, plan),
        "mirrored": lambda: _moved(plan, lambda x, y, z: (x, -y, z)),
        "beside": lambda: _moved(plan, lambda x, y, z: (x + dx, y + dy, z)),
        "above": lambda: _moved(plan, lambda x, y, z: (x, y, max(z, 10) + 130)),
        "no grasp": lambda: _without_grasp(plan, draws),
        "slow": lambda: _slow(state, plan, turn.t, draws),
        "babble": lambda: plan,
    }
    return ways[fault]()


def _confused(state: SkillState, plan: tuple[Primitive, ...]) -> tuple[Primitive, ...]:
    """Return the plan with one thing taken for another, or with what is asked for taken the wrong way round."""
    kind, scene = state.kind, state.scene
    if kind.name == "align":
        # In line along the wrong axis.
        return tuple(
            Primitive("place", (p.arguments[1] // 2, p.arguments[0], p.arguments[2])) if p.name == "place" else p
            for p in plan
        )
    if kind.name == "drawer":
        x, y, z = (round(value) for value in tray_centre(scene.opening or 0.0))
        # The tray taken for the apple, or a drawer that is thought shut as soon as the apple is in it.
        if plan[0].name == "push":
            return _moved(plan, lambda px, py, pz: (px + 60, max(py, -30), pz))
        ax, ay, az = (round(value) for value in scene.positions["apple"])
        return Primitive("pick", (x, y, z)), Primitive("place", (ax, ay, az + 60))
    names = [*kind.things[1:], kind.things[0]]
    at = {name: scene.positions[other] for name, other in zip(kind.things, names, strict=True)}
    held = None if scene.held is None else kind.things[names.index(scene.held)]
    return _expert(state, Scene(at, held, scene.opening))


def _without_grasp(plan: tuple[Primitive, ...], draws: Sequence[float]) -> tuple[Primitive, ...]:
    """Return the plan without anything picked up: things are put down that nobody holds, or prodded from above."""
    there = [primitive for primitive in plan if primitive.name != "pick"]
    picked = [primitive for primitive in plan if primitive.name == "pick"]
    if picked and there and draws[8] < 0.3:
        (x, y, z), (ex, ey, _) = picked[0].arguments, there[0].arguments[:3]
        return (Primitive("push", (x, y, z + 60, ex, ey, z + 60)),)
    if not there:
        return (Primitive("place", picked[0].arguments),)
    return (there[0], there[0]) if draws[9] < 0.3 else (there[0],)


def _slow(state: SkillState, plan: tuple[Primitive, ...], t: int, draws: Sequence[float]) -> tuple[Primitive, ...]:
    """Return one command at a time, with a look from another side now and then."""
    if t and draws[8] < 0.55:
        (x, _), (y, _), (_, z) = state.kind.workspace
        return (Primitive("push", (x, y, z, x + 40, y + 40, z)),)
    return plan[:1]


def _moved(plan: tuple[Primitive, ...], move: Callable[[int, int, int], tuple[int, int, int]]) -> tuple[Primitive, ...]:
    """Return the plan with every point moved."""
    changed = []
    for primitive in plan:
        points = [primitive.arguments[start : start + 3] for start in range(0, len(primitive.arguments), 3)]
        changed.append(Primitive(primitive.name, tuple(value for point in points for value in move(*point))))
    return tuple(changed)


def _spoilt(plan: tuple[Primitive, ...], draw: float) -> str:
    """Write the turn so that part of it is void."""
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


def _badly(tag: str, thought: str, name: str, draw: float, hopeless: bool) -> str:
    """Write a reply in one of six bad formats; only the last still has a usable action."""
    kinds = (
        f"<think>{thought}</think>{name}",
        f"<think>{thought}</think><{tag}>take the cube and put it where it belongs</{tag}>",
        f"<think>{thought}</think><{tag}>grasp({name.split('(', 1)[-1]}</{tag}>",
        "",
        f"<think>{thought} <{tag}>{name}</{tag}></think>",
        f"{thought}\n<{tag}>{name}</{tag}>",
    )
    return pick(kinds[:-1] if hopeless else kinds, draw)


__all__ = ["PrimitiveSkillHabits", "PrimitiveSkillPlayer"]
