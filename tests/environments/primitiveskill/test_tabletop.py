"""The embedded tabletop's kinematics: the main rules by hand, invariants under any commands; hostile answers."""

import hashlib
import json
from random import Random
from time import process_time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pivot.environments.primitiveskill.actions import ARITY, Primitive, join, read_primitives
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.environments.primitiveskill.levels import draw_level
from pivot.environments.primitiveskill.state import EMBEDDED, SkillState, parse_state
from pivot.environments.primitiveskill.table import hand as hands
from pivot.environments.primitiveskill.table.tabletop import EDGE, HELD_ABOVE, Table, TabletopWorld
from pivot.environments.primitiveskill.tasks import CABINET_BOXES, DRAWER_BOXES, KINDS, TABLE_HOME, Box, Point, Scene
from pivot.tests.tables import load_table

HALF = 20.0
X_LIMIT = HALF + hands.FINGER_HALF_WIDTH - hands.GRASP_X_SLACK
Y_LIMIT = hands.OPEN - HALF + hands.GRASP_Y_SLACK["cube"]
Z_LIMIT = HALF + hands.TIP_BELOW - hands.GRASP_DEPTH
FRONT = DRAWER_BOXES[-1]
TRAY_FLOOR = DRAWER_BOXES[0][1][2]
IN_TRAY = TRAY_FLOOR + 35.0
FAR = (140.0, 190.0, 20.0)


def table(task: str, *at: Point, drawer: float | None = None) -> Table:
    """Return the table of a task with its objects at these positions."""
    return Table(KINDS[task], Scene(dict(zip(KINDS[task].things, at, strict=True)), None, drawer))


def do(on: Table, actions: str) -> Scene:
    """Execute any number of primitives and return the scene; the table must be at rest after each."""
    for part in actions.split("|"):
        [primitive], void = read_primitives(part)
        assert void is None
        on.execute(primitive)
        assert Table(on.kind, on.scene).problem() is None
    return on.scene


def cubes(scene: Scene) -> list[Point]:
    """Return the positions of the objects, in the task's order."""
    return list(scene.positions.values())


# --- grasping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("axis", "limit"), [(0, X_LIMIT), (1, Y_LIMIT), (2, Z_LIMIT)], ids=["along x", "along y", "along z"]
)
def test_what_lies_between_the_fingers_is_grasped(axis: int, limit: float, sign: int) -> None:
    if axis == 2 and sign < 0:
        return  # the table is there
    for off, grasped in ((int(limit), True), (int(limit) + 1, False)):
        hand = [0, 0, 20]
        hand[axis] += sign * off
        scene = do(table("align", (0.0, 0.0, 20.0), FAR), f"pick({hand[0]},{hand[1]},{hand[2]})")
        assert (scene.in_hand == "red cube") is grasped, (axis, off)
        if not grasped:
            assert scene.positions["red cube"] == (0.0, 0.0, 20.0)


# --- stacks ----------------------------------------------------------------------------------------------------------

TOWER = ((0.0, 0.0, 20.0), (3.0, -4.0, 60.0), (-5.0, 2.0, 100.0))


def test_what_stands_on_a_grasped_thing_rides_along() -> None:
    on = table("stack", *TOWER)
    scene = do(on, "pick(3,-4,60)")
    x, y, _ = TABLE_HOME
    assert scene.in_hand == "green cube"
    # The hand is stopped by the cube on top and grasps green higher up; the fingers reach both.
    purple, green = scene.positions["purple cube"], scene.positions["green cube"]
    assert scene.positions["red cube"] == TOWER[0]
    assert green[:2] == (x, y)
    assert [a - b for a, b in zip(purple, green, strict=True)] == [-8.0, 0.0, 40.0]
    assert min(green[2], purple[2]) > HELD_ABOVE["stack"]
    scene = do(on, "place(100,-50,30)")
    assert scene.in_hand is None
    assert scene.positions["green cube"] == (100.0, -50.0, 20.0)
    assert scene.positions["purple cube"] == (92.0, -50.0, 60.0)


def test_a_cube_falls_straight_down_and_stays_while_its_centre_is_above_the_other() -> None:
    edge = HALF - EDGE["cube"] - 1
    on_green = {"red cube": (edge, 0.0, 60.0), "green cube": (0.0, 0.0, 20.0), "purple cube": FAR}
    start = ((-90.0, -150.0, 20.0), (0.0, 0.0, 20.0), FAR)
    scene = do(table("stack", *start), f"pick(-90,-150,20)|place({int(edge)},0,190)")
    assert scene.positions == on_green
    for x, y, beside in (
        (21, 0, (58.0, 0.0)),
        (-25, 0, (-58.0, 0.0)),
        (5, 30, (5.0, 58.0)),
        (-24, -29, (-24.0, -58.0)),
    ):
        scene = do(table("stack", *start), f"pick(-90,-150,20)|place({x},{y},100)")
        assert scene.positions["red cube"] == (*beside, 20.0)
        assert scene.positions["green cube"] == (0.0, 0.0, 20.0)


# --- the drawer ------------------------------------------------------------------------------------------------------

ON_FLOOR = (-300.0, -180.0, IN_TRAY)


def test_the_front_ends_before_the_fingers_and_takes_the_apple_along() -> None:
    on = table("drawer", ON_FLOOR, drawer=180.0)
    end = -120
    scene = do(on, f"push(-300,60,150,-300,{end},150)")
    opening = end - hands.FINGER_THICK - FRONT[1][1]
    assert scene.opening == opening
    assert scene.positions["apple"] == (-300.0, -360.0 + opening, IN_TRAY)
    scene = do(on, "push(-200,60,150,-200,-600,150)")
    assert scene.opening == 0.0
    assert scene.positions["apple"] == (-300.0, -360.0, IN_TRAY)


def test_an_apple_on_the_rim_rolls_off() -> None:
    for x, y in ((-185, -150), (-415, -150), (-300, -50)):
        scene = do(table("drawer", (-120.0, 150.0, 35.0), drawer=180.0), f"pick(-120,150,35)|place({x},{y},300)")
        assert scene.positions["apple"][2] in (35.0, IN_TRAY)


# --- any commands -----------------------------------------------------------------------------------------------------


def hardly_overlaps(one: Box, other: Box) -> bool:
    """Return whether boxes overlap by at most the tolerance of contact and rounding."""
    depth = min(min(one[1][axis], other[1][axis]) - max(one[0][axis], other[0][axis]) for axis in range(3))
    return depth <= 0.02


def boxes(scene: Scene) -> list[Box]:
    actual = []
    for name, (x, y, z) in scene.positions.items():
        half = 35.0 if name == "apple" else 20.0
        actual.append(((x - half, y - half, z - half), (x + half, y + half, z + half)))
    return actual


def furniture(scene: Scene) -> list[Box]:
    if scene.opening is None:
        return []
    slid = [
        ((low[0], low[1] + scene.opening, low[2]), (high[0], high[1] + scene.opening, high[2]))
        for low, high in DRAWER_BOXES
    ]
    return [*slid, *CABINET_BOXES]


def drawn(task: str, seed: int) -> SkillState:
    state = draw_level(Random(seed), EMBEDDED, (task,))
    assert state is not None
    return state


@st.composite
def sequences(draw: st.DrawFn) -> tuple[SkillState, list[Primitive]]:
    """Return a level and primitives at, near and far from where things are."""
    state = drawn(draw(st.sampled_from([*KINDS])), draw(st.integers(0, 2**32)))
    reference = [tuple(map(int, at)) for at in state.scene.positions.values()]
    reference += [(80, -100, 20), (0, 0, 60), (-300, -180, 150), (-300, 20, 150), (-300, -180, 300)]
    near = st.tuples(st.integers(-25, 25), st.integers(-25, 25), st.sampled_from([-10, 0, 0, 20, 40, 80]))
    place = st.one_of(
        st.tuples(st.sampled_from(reference), near).map(lambda pair: tuple(a + b for a, b in zip(*pair, strict=True))),
        st.tuples(*(st.integers(low, high) for low, high in state.kind.workspace)),
    )
    primitives = []
    for _ in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from(["pick", "place", "pick", "place", "push"]))
        numbers = [number for _ in range(ARITY[name] // 3) for number in draw(place)]
        primitives.append(Primitive(name, tuple(numbers)).clipped(state.kind.workspace))
    return state, primitives


@settings(max_examples=250, deadline=None)
@given(sequences())
def test_things_never_overlap_and_never_hover(case: tuple[SkillState, list[Primitive]]) -> None:
    state, primitives = case
    on = Table(state.kind, state.scene)
    for primitive in primitives:
        on.execute(primitive)
        scene = on.scene
        actual, around = boxes(scene), furniture(scene)
        for index, box in enumerate(actual):
            assert box[0][2] >= -0.01, "below the table"
            assert all(hardly_overlaps(box, other) for other in [*actual[:index], *around]), (primitive, scene)
        high = HELD_ABOVE[state.task]
        raised = [name for name, at in scene.positions.items() if at[2] > high]
        assert bool(raised) == (scene.in_hand is not None)
        assert scene.in_hand is None or scene.in_hand in raised
        for name, box in zip(scene.positions, actual, strict=True):
            bottoms = [other[1][2] for other in [*actual, *around]] + [0.0]
            assert name in raised or min(abs(box[0][2] - bottom) for bottom in bottoms) <= 0.02, "hovers"
        assert scene.opening is None or 0 <= scene.opening <= 300
        assert all(value == round(value * 1000) / 1000 for at in scene.positions.values() for value in at)


@settings(max_examples=120, deadline=None)
@given(sequences(), st.integers(0, 8))
def test_the_scene_is_all_there_is(case: tuple[SkillState, list[Primitive]], cut: int) -> None:
    """Commands have the same effect on a table loaded from the state text as on the table itself, twice."""
    state, primitives = case
    on = Table(state.kind, state.scene)
    for primitive in primitives[:cut]:
        on.execute(primitive)
    middle = SkillState(EMBEDDED, state.task, on.scene, state.achieved)
    world = TabletopWorld()
    world.load(parse_state(middle.text()))
    for primitive in primitives[cut:]:
        on.execute(primitive)
        world.execute(primitive)
        assert world.scene == on.scene
    again = Table(state.kind, state.scene)
    for primitive in primitives:
        again.execute(primitive)
    assert again.scene == on.scene


def test_random_plays_end_as_on_other_machines() -> None:
    """Every rule decides some of these scenes: a rule that changes is a new version of the environment."""
    rng, scenes = Random(3), hashlib.sha256()
    for number in range(600):
        state = drawn(rng.choice([*KINDS]), number)
        on = Table(state.kind, state.scene)
        if number % 2:  # stacked, the apple in the open drawer
            places: dict[str, Point] = {
                name: (20.0 + rng.randint(-15, 15), rng.randint(-15, 15), 20.0 + 40 * level)
                for level, name in enumerate(state.kind.things)
            }
            drawer = state.scene.opening is not None
            places = {"apple": (-300.0, -180.0, DRAWER_BOXES[0][1][2] + 35)} if drawer else places
            on = Table(state.kind, Scene(places, None, 180.0 if drawer else None))
        for _ in range(8):
            reference = [*cubes(on.scene), (80, -100, 20), (-300, -180, 150), (-300, 20, 150), (-300, -180, 300)]
            name = rng.choice(["pick", "pick", "place", "push", "push"])
            numbers = []
            for _ in range(ARITY[name] // 3):
                numbers += [int(value) + rng.randint(-30, 30) for value in rng.choice(reference)]
            on.execute(Primitive(name, tuple(numbers)).clipped(state.kind.workspace))
            scenes.update(repr(on.scene).encode())
    assert scenes.hexdigest() == "3be02777107bcb5b4c135e7df30dc7e928c991671b7e230243737318bfd5c878"


def small_steps(places: list[Point], hand: Point, end: Point, steps: int) -> list[Point]:
    """Push cubes the slow way: move the hand a little, then everything that is touched, and so on."""
    way = [(b - a) / steps for a, b in zip(hand, end, strict=True)]
    finger = ((-hands.FINGER_HALF_WIDTH, -hands.FINGER_THICK), (hands.FINGER_HALF_WIDTH, hands.FINGER_THICK))
    now = [list(at) for at in places]
    for step in range(1, steps + 1):
        x, y = hand[0] + way[0] * step, hand[1] + way[1] * step
        fronts = [(x + finger[0][0], y + finger[0][1], x + finger[1][0], y + finger[1][1])]
        moved: set[int] = set()
        while fronts:
            low_x, low_y, high_x, high_y = fronts.pop()
            for index, at in enumerate(now):
                hit = low_x < at[0] + 20 and at[0] - 20 < high_x and low_y < at[1] + 20 and at[1] - 20 < high_y
                if hit and index not in moved:
                    moved.add(index)
                    at[0] += way[0]
                    at[1] += way[1]
                    fronts.append((at[0] - 20, at[1] - 20, at[0] + 20, at[1] + 20))
    return [(at[0], at[1], at[2]) for at in now]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.tuples(*[st.integers(-100, 150), st.integers(-200, 200)] * 2))
def test_pushing_agrees_with_small_steps(seed: int, ends: tuple[int, int, int, int]) -> None:
    state = drawn("stack", seed)
    hand, end = (float(ends[0]), float(ends[1]), 20.0), (float(ends[2]), float(ends[3]), 20.0)
    places = cubes(state.scene)
    assume(all(abs(at[0] - hand[0]) > 32 or abs(at[1] - hand[1]) > 37 for at in places))
    on = Table(state.kind, state.scene)
    on.execute(Primitive("push", (ends[0], ends[1], 20, ends[2], ends[3], 20)))
    fine, finer = small_steps(places, hand, end, 2000), small_steps(places, hand, end, 3001)
    # Where even the slow way depends on the step, two corners just graze each other.
    assume(all(abs(a - b) < 1 for one, other in zip(fine, finer, strict=True) for a, b in zip(one, other, strict=True)))
    for one, other in zip(cubes(on.scene), finer, strict=True):
        assert all(abs(a - b) < 1.5 for a, b in zip(one, other, strict=True)), (places, hand, end, on.scene)


HOSTILE: dict[str, tuple[str, str, str | None]] = load_table(__file__, "hostile_answers.json")
"""Answers by name: the text, the name of the action that runs, and why the rest is void."""


@pytest.mark.parametrize(("answer", "name", "void"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_has_a_typed_outcome(answer: str, name: str, void: str | None) -> None:
    started = process_time()
    primitives, why = read_primitives(answer)
    assert (join(primitives), why) == (name, void)
    env = PrimitiveSkillEnv()
    parsed = env.parse_action(answer)
    assert process_time() - started < 2
    if name == "empty":
        assert parsed is None
    else:
        assert parsed is not None and parsed.payload is not None
        assert parsed.name == name
        assert json.loads(parsed.payload)["void"] == void
        assert env.encode_action(parsed.name, parsed.payload) == name
        assert name in env.action_space


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("pickplaceush(),|0123456789-+ \n.x\0١"), max_size=60))
def test_whatever_is_read_has_a_normal_form(answer: str) -> None:
    primitives, void = read_primitives(answer)
    assert len(primitives) <= 2
    assert primitives or void
    name = join(primitives)
    if primitives:
        assert read_primitives(name) == (primitives, None)
        assert join(read_primitives(name)[0]) == name
    assert PrimitiveSkillEnv().encode_action(name) == name
