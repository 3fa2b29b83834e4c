"""Actions of a rollout under a misconception: they change the table, but are rarely the requested ones.

Every fault is a pure function of the state, the perfect player's plan and numbers in [0, 1). Most of them take hold of
something and put it where it does not belong, so that a later picture looks different; a few touch nothing.
"""

from collections.abc import Callable, Sequence

from ..turns import pick
from .actions import Primitive, read_primitives
from .expert import expert_action
from .state import SkillState
from .tasks import Scene, tray_centre

Plan = tuple[Primitive, ...]

GRASPING = ("confused", "mirrored", "beside", "carried off", "slow")
"""Faults that grasp objects."""
HANDS_OFF = ("nudge", "no grasp", "babble")
"""Faults that never grasp."""
FRUITLESS = ("distracted", "nudge", "babble")
"""Misconceptions at levels that every rollout fails: objects move, no stage is achieved."""

ASIDE = ((70, 0), (-70, 0), (60, 85), (-60, -85), (60, 60), (-60, 60))
"""Offset of an object from its right place, x and y, millimetres."""
LOW = 28
"""Height at which a cube is released, and at which a push touches it."""


def expert_plan(state: SkillState, scene: Scene | None = None) -> Plan:
    """Return the perfect player's next action."""
    return read_primitives(expert_action(state.kind, scene or state.scene))[0]


def misled(state: SkillState, fault: str, lasting: Sequence[float], draws: Sequence[float], t: int) -> Plan:
    """Return the next action under a misconception; ``lasting`` are numbers of the rollout, ``draws`` of the turn."""
    plan = expert_plan(state)
    ways: dict[str, Callable[[], Plan]] = {
        "confused": lambda: _confused(state, plan),
        "mirrored": lambda: _mirrored(state, plan),
        "beside": lambda: _beside(state, plan, pick(ASIDE, lasting[0])),
        "carried off": lambda: _carried_off(state, draws),
        "slow": lambda: _slow(state, plan, t, draws),
        "nudge": lambda: _nudge(state, draws),
        "no grasp": lambda: _without_grasp(plan, draws),
        "distracted": lambda: _distracted(state, draws),
        "babble": lambda: plan,
    }
    return ways[fault]()


def _mirrored(state: SkillState, plan: Plan) -> Plan:
    """Return the plan with left and right confused, or front and back if that makes no difference."""
    if state.kind.name == "align":
        return _placed(plan, lambda _, y: (80 if y > 0 else -80, y))
    return _placed(plan, lambda x, y: (x, -y if abs(y) > 45 else y + 90))


def _beside(state: SkillState, plan: Plan, by: tuple[int, int]) -> Plan:
    """Return the plan with objects put next to their target; the tray is wide."""
    far = 2 if state.kind.name == "drawer" else 1
    return _placed(plan, lambda x, y: (x + far * by[0], y + far * by[1]))


def _placed(plan: Plan, move: Callable[[int, int], tuple[int, int]]) -> Plan:
    """Return the plan with the picked object put elsewhere; a push stops short."""
    return tuple(_elsewhere(primitive, move) for primitive in plan)


def _elsewhere(primitive: Primitive, move: Callable[[int, int], tuple[int, int]]) -> Primitive:
    x, y, z = primitive.arguments[:3]
    if primitive.name == "place":
        return Primitive("place", (*move(x, y), z))
    if primitive.name == "push":
        ex, ey, ez = primitive.arguments[3:]
        return Primitive("push", (x, y, z, x + (ex - x) * 2 // 5, y + (ey - y) * 2 // 5, ez))
    return primitive


def _carry(scene: Scene, thing: str, spot: tuple[int, int, int]) -> Plan:
    """Return the commands that bring an object to a spot; an object in the hand is released there first."""
    if scene.in_hand == thing:
        return (Primitive("place", spot),)
    x, y, z = (round(value) for value in scene.positions[thing])
    return Primitive("pick", (x, y, z)), Primitive("place", spot)


def _confused(state: SkillState, plan: Plan) -> Plan:
    """Return the plan with two objects confused, or with its steps in the wrong order."""
    scene, things = state.scene, state.kind.things
    if state.kind.name == "drawer":
        x, y, z = (round(value) for value in tray_centre(scene.opening or 0.0))
        # The top of the cabinet taken for the tray.
        return _carry(scene, "apple", (x, y - 150, z + 60))
    if state.kind.name == "align":
        # In line along the wrong axis.
        return _placed(plan, lambda _, y: (y // 2 if abs(y) > 60 else 60, 0))
    ends = next((each.arguments[-3:] for each in plan if each.name != "pick"), (0, 0, LOW))
    meant = _meant(scene, plan) or things[0]
    other = things[(things.index(meant) + 1) % len(things)]
    return _carry(scene, other, (ends[0], ends[1], ends[2]))


def _meant(scene: Scene, plan: Plan) -> str | None:
    """Return the object that the plan handles: the one in the hand, or the one at the pick position."""
    if scene.in_hand is not None:
        return scene.in_hand
    spots = [primitive.arguments for primitive in plan if primitive.name == "pick"]
    at = {name: tuple(round(value) for value in place) for name, place in scene.positions.items()}
    return next((name for name in at if spots and at[name] == spots[0]), None)


def _carried_off(state: SkillState, draws: Sequence[float]) -> Plan:
    """Return the commands that move an object somewhere else."""
    scene, kind = state.scene, state.kind
    return _carry(scene, scene.in_hand or pick(kind.things, draws[8]), _spot(state, draws))


def _distracted(state: SkillState, draws: Sequence[float]) -> Plan:
    """Return the commands that handle an irrelevant object."""
    scene, kind = state.scene, state.kind
    if kind.name == "drawer":
        return _nudge(state, draws)
    thing = "green cube" if kind.name in ("place", "stack") else pick(kind.things, draws[8])
    return _carry(scene, scene.in_hand or thing, _spot(state, draws))


def _spot(state: SkillState, draws: Sequence[float]) -> tuple[int, int, int]:
    """Return a spot away from every target."""
    (x0, x1), (y0, y1), _ = state.kind.workspace
    y = y0 + 20 + int(draws[9] * (y1 - y0 - 40))
    if state.kind.name == "drawer":
        return x0 + 40 + int(draws[7] * (x1 - x0 - 80)), max(y, 60), 60
    # Away from the line of `align`, and from the targets.
    return pick((-85, -60, 40, 145), draws[7]), y, LOW


def _nudge(state: SkillState, draws: Sequence[float]) -> Plan:
    """Return a push through an object, from one side to the other."""
    scene, kind = state.scene, state.kind
    x, y, _ = (round(value) for value in scene.positions[pick(kind.things, draws[8])])
    dx, dy = pick(((0, 1), (0, -1), (1, 0), (-1, 0)), draws[9])
    reach = 25 + int(50 * draws[7])
    return (Primitive("push", (x - 75 * dx, y - 75 * dy, LOW, x + reach * dx, y + reach * dy, LOW)),)


def _without_grasp(plan: Plan, draws: Sequence[float]) -> Plan:
    """Return the plan without its picks: it places objects that are not in the hand."""
    there = [primitive for primitive in plan if primitive.name != "pick"]
    picked = [primitive for primitive in plan if primitive.name == "pick"]
    if not there:
        return (Primitive("place", picked[0].arguments),)
    if there[0].name == "push":
        return (Primitive("place", there[0].arguments[:3]),)
    return (there[0], there[0]) if draws[9] < 0.3 else (there[0],)


def _slow(state: SkillState, plan: Plan, t: int, draws: Sequence[float]) -> Plan:
    """Return one command at a time, sometimes an approach from another side."""
    if t and draws[8] < 0.5:
        (x, _), (y, _), (_, z) = state.kind.workspace
        return (Primitive("push", (x, y, z, x + 40, y + 40, z)),)
    return plan[:1]
