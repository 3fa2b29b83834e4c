"""PrimitiveSkill states, observations and episodes for tests: the paper's printed log, random logs, noisy play."""

import json
import random
from collections.abc import Sequence

from pivot.environments.primitiveskill.actions import Primitive, join, read_primitives
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.environments.primitiveskill.expert import expert_action
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.solvers.base import Case

STAGES = {"align": 2, "place": 3, "stack": 3, "drawer": 2}

PRINTED = """
step 0: action=empty legal=false remaining_stages=2 remaining_turns=5
step 1: action=empty legal=false remaining_stages=2 remaining_turns=4
step 2: action=empty legal=false remaining_stages=2 remaining_turns=3
step 3: action=empty legal=false remaining_stages=2 remaining_turns=2
step 4: action=empty legal=false remaining_stages=2 remaining_turns=1
step 5: action=pick(107,64,20)|place(0,-185,120) legal=true remaining_stages=1 remaining_turns=0
"""[1:-1]
"""The compact log of the paper's align episode."""

Point = tuple[float, float, float]


def state(task: str, achieved: Sequence[bool] | None = None) -> str:
    """Return a state text of a task with the fields that the solver reads."""
    flags = [False] * STAGES[task] if achieved is None else list(achieved)
    data = {"achieved": flags, "backend": "embedded", "drawer": None, "held": None, "objects": [], "task": task}
    return json.dumps(data)


def observation(task: str, *at: Point, opening: int = 180) -> str:
    """Return the observation text for these positions of the movable objects."""
    places = list(at)
    other = "a cube has sides of 40 mm"
    if task == "place":
        places += [(80, -100, 0), (80, 100, 0)]
    if task == "drawer":
        places.append((-300, -360 + opening, 150))
        other = f"the drawer is open by {opening} of 300 mm"
    shown = ",".join(f"({x},{y},{z})" for x, y, z in places)
    limits = "x -100 to 150, y -200 to 200, z 10 to 200"
    return f"Workspace limits in mm: {limits}\nObject positions in mm: [{shown}]\nOther information: {other}"


def printed_episode() -> Case:
    """The printed log as a case."""
    actions, steps = [], []
    for line in PRINTED.splitlines():
        fields: dict[str, str] = {}
        for word in line.split()[2:]:
            name, _, value = word.partition("=")
            fields[name] = value
        actions.append(fields["action"])
        steps.append(
            {
                "legal": fields["legal"] == "true",
                "remaining_stages": int(fields["remaining_stages"]),
                "remaining_turns": int(fields["remaining_turns"]),
            }
        )
    return Case(state("align"), actions, 6, steps)


def log(task: str, turns: Sequence[tuple[str, int]], horizon: int = 6, achieved: Sequence[bool] | None = None) -> Case:
    """Return an episode of turns, each an action and the stages open after it; without observations."""
    steps = [
        {"legal": action not in ("empty", "invalid"), "remaining_stages": left, "remaining_turns": horizon - 1 - t}
        for t, (action, left) in enumerate(turns)
    ]
    return Case(state(task, achieved), [action for action, _ in turns], horizon, steps)


SOME_ACTIONS = (
    "empty",
    "pick(1,-2,20)",
    "place(0,0,60)",
    "push(0,0,20,10,-10,20)",
    "pick(107,64,20)|place(0,-185,120)",
    "place(0,0,30)|pick(1,2,20)",
    "pick(1,2,20)|pick(3,4,20)",
    "push(0,0,20,1,1,20)|place(1,1,30)",
    "pick(1,2,20)|push(0,0,20,1,1,20)",
)


def random_log(rng: random.Random) -> Case:
    """A log that an episode may have, with observations of any positions or without."""
    task = rng.choice(list(STAGES))
    horizon = rng.choice((6, 6, 6, 2, 1, 9))
    left = STAGES[task]
    turns = []
    for _ in range(rng.choice((horizon, horizon, rng.randint(1, horizon)))):
        action = rng.choice(SOME_ACTIONS)
        if action != "empty" and left and rng.random() < 0.25:
            left -= rng.choice((1, 1, min(2, left)))
        turns.append((action, left))
    case = log(task, turns, horizon)
    if rng.random() < 0.2:
        return case
    texts = [
        observation(task, *random_places(rng, task), opening=rng.choice((0, 60, 101, 140, 145, 180))) for _ in turns
    ]
    return Case(case.initial_state, case.actions, horizon, case.steps, texts)


def random_places(rng: random.Random, task: str) -> list[Point]:
    """Positions for a task's things: on the table, in piles, in the hand, and now and then at odd heights."""
    heights = (35, 35, 90, 97, 98, 145, 275, 480) if task == "drawer" else (20, 20, 20, 60, 60, 100, 45, 86, 350, 390)
    spot = rng.randint(-100, 150), rng.randint(-200, 200)
    places = []
    for _ in KINDS[task].things:
        x, y = spot if rng.random() < 0.5 else (rng.randint(-100, 150), rng.randint(-200, 200))
        places.append((x + rng.randint(-20, 20), y + rng.randint(-20, 20), rng.choice(heights)))
    return places


def wild_action(rng: random.Random, env: PrimitiveSkillEnv, skill: float) -> str:
    """Return a turn of noisy play: perfect with noise, random near objects or anywhere, or half of one."""
    kind, scene = env.state.kind, env.state.scene
    perfect = read_primitives(expert_action(kind, scene))[0]
    if rng.random() < skill:
        amplitude = rng.choice((0, 0, 5, 15, 30))
        plan = [_noisy(rng, primitive, amplitude) for primitive in perfect]
    else:
        plan = [_anything(rng, env) for _ in range(2)]
        if rng.random() < 0.3:
            plan[rng.randrange(2)] = _noisy(rng, perfect[0], 3)
    if rng.random() < 0.25:
        plan = plan[:1]
    if rng.random() < 0.1:
        plan.reverse()
    return join(tuple(plan))


def _noisy(rng: random.Random, primitive: Primitive, amplitude: int) -> Primitive:
    return Primitive(primitive.name, tuple(n + rng.randint(-amplitude, amplitude) for n in primitive.arguments))


def _anything(rng: random.Random, env: PrimitiveSkillEnv) -> Primitive:
    name = rng.choice(("pick", "place", "push"))
    places = list(env.state.scene.positions.values())
    arguments: list[int] = []
    for _ in range(2 if name == "push" else 1):
        if rng.random() < 0.35:
            arguments += [rng.randint(*limits) for limits in env.state.kind.workspace]
        else:
            arguments += [round(value) + rng.randint(-25, 25) for value in rng.choice(places)]
    return Primitive(name, tuple(arguments))
