"""The embedded tabletop's kinematics: a planted case for every rule, and what must hold whatever is done."""

from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pivot.environments.primitiveskill.actions import ARITY, Primitive, read_primitives
from pivot.environments.primitiveskill.levels import draw_level
from pivot.environments.primitiveskill.state import EMBEDDED, SkillState, parse_state
from pivot.environments.primitiveskill.table.hand import (
    FINGER_HALF_WIDTH,
    FINGER_THICK,
    GRASP_DEPTH,
    GRASP_X_SLACK,
    GRASP_Y_SLACK,
    OPEN,
    PALM_ABOVE,
    TIP_BELOW,
)
from pivot.environments.primitiveskill.table.tabletop import EDGE, HELD_ABOVE, Table, TabletopWorld
from pivot.environments.primitiveskill.tasks import (
    CABINET_BOXES,
    DRAWER_BOXES,
    DRAWER_HOME,
    KINDS,
    TABLE_HOME,
    Box,
    Point,
    Scene,
)

HALF = 20.0
X_LIMIT = HALF + FINGER_HALF_WIDTH - GRASP_X_SLACK
Y_LIMIT = OPEN - HALF + GRASP_Y_SLACK["cube"]
Z_LIMIT = HALF + TIP_BELOW - GRASP_DEPTH
FRONT = DRAWER_BOXES[-1]
TRAY_FLOOR = DRAWER_BOXES[0][1][2]
IN_TRAY = TRAY_FLOOR + 35.0


def table(task: str, *at: Point, drawer: float | None = None) -> Table:
    return Table(KINDS[task], Scene(dict(zip(KINDS[task].things, at, strict=True)), None, drawer))


def do(on: Table, actions: str) -> Scene:
    """Execute primitives, any number of them, and return the scene; it must be a state of rest every time."""
    for part in actions.split("|"):
        [primitive], void = read_primitives(part)
        assert void is None
        on.execute(primitive)
        assert Table(on.kind, on.scene).problem() is None
    return on.scene


def cubes(scene: Scene) -> list[Point]:
    return list(scene.positions.values())


FAR = (140.0, 190.0, 20.0)


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
        assert (scene.held == "red cube") is grasped, (axis, off)
        if not grasped:
            assert scene.positions["red cube"] == (0.0, 0.0, 20.0)


def test_a_grasped_thing_is_centred_along_y_and_keeps_its_offset_otherwise() -> None:
    scene = do(table("align", (0.0, 0.0, 20.0), FAR), "pick(-5,7,23)")
    x, y, z = TABLE_HOME
    assert scene.positions == {"red cube": (x + 5, y, z - 3), "green cube": FAR}
    assert do(table("align", (0.0, 0.0, 20.0), FAR), "pick(-5,7,23)|place(40,40,23)").positions["red cube"] == (
        45.0, 40.0, 20.0,
    )  # fmt: skip


def test_the_nearer_of_two_is_grasped() -> None:
    two = ((-21.0, 0.0, 20.0), (21.0, 0.0, 20.0))
    assert do(table("align", *two), "pick(-3,0,20)").held == "red cube"
    assert do(table("align", *two), "pick(3,0,20)").held == "green cube"
    for tower in (((0.0, 0.0, 20.0), (0.0, 0.0, 60.0)), ((0.0, 0.0, 60.0), (0.0, 0.0, 20.0))):
        scene = do(table("align", *tower), "pick(0,0,40)")
        assert all(at[2] > 300 for at in cubes(scene))


def test_a_neighbour_under_a_finger_stops_the_hand() -> None:
    # A finger comes down on green, 40 mm high: the tips stay above red.
    scene = do(table("align", (0.0, 0.0, 20.0), (0.0, OPEN + 5 + HALF, 20.0)), "pick(0,0,20)")
    assert scene.held is None
    room = OPEN + FINGER_THICK + HALF
    scene = do(table("align", (0.0, 0.0, 20.0), (0.0, room, 20.0)), "pick(0,0,20)")
    assert scene.held == "red cube"


def test_closing_the_fingers_shoves_a_neighbour_aside() -> None:
    # Red is grasped off its middle, 15 mm along y; green is beside it, out of the fingers' way.
    on = table("align", (8.0, 0.0, 20.0), (40.0, 45.0, 20.0))
    scene = do(on, "pick(0,15,20)")
    assert scene.held == "red cube"
    assert scene.positions["green cube"] == (40.0, 55.0, 20.0)


@pytest.mark.parametrize(
    ("dx", "dy", "slips"), [(8.7, 15, 0), (-8.7, 15, 0), (12.7, 0, 0), (12.7, 10, 0.88), (-12.7, -10, -0.88)]
)
def test_a_cube_that_is_shoved_far_off_its_middle_slips_farther(dx: float, dy: float, slips: float) -> None:
    on = table("align", (dx, dy, 20.0), (100.0, 150.0, 20.0))
    scene = do(on, "pick(0,0,20)")
    assert scene.held == "red cube"
    assert scene.positions["red cube"][0] - KINDS["align"].home[0] == pytest.approx(dx + slips, abs=0.001)


def test_an_apple_does_not_slip() -> None:
    scene = do(table("drawer", (-288.0, 110.0, 35.0)), "pick(-300,100,35)")
    assert scene.held == "apple"
    assert scene.positions["apple"][0] - KINDS["drawer"].home[0] == 12.0


def test_closing_fingers_shove_what_else_they_reach() -> None:
    # Green is too far off along x to be held, but the fingers reach its corner.
    scene = do(table("align", (0.0, 0.0, 20.0), (41.0, 15.0, 20.0)), "pick(15,0,20)")
    assert scene.held == "red cube"
    assert scene.positions["green cube"] == (41.0, 0.0, 20.0)


@pytest.mark.parametrize(("hand", "held"), [((-120, 150), True), ((-120, 165), False), ((-120, 135), False)])
def test_the_apple_is_grasped_in_the_middle(hand: tuple[int, int], held: bool) -> None:
    off = int(OPEN - 35 + GRASP_Y_SLACK["apple"])
    y = 150 + (0 if held else (off + 1) * (1 if hand[1] > 150 else -1))
    scene = do(table("drawer", (-120.0, 150.0, 35.0), drawer=180.0), f"pick({hand[0]},{y},35)")
    assert (scene.held == "apple") is held
    if held:
        assert scene.positions["apple"] == DRAWER_HOME


# --- stacks ----------------------------------------------------------------------------------------------------------

TOWER = ((0.0, 0.0, 20.0), (3.0, -4.0, 60.0), (-5.0, 2.0, 100.0))


def test_what_stands_on_a_grasped_thing_rides_along() -> None:
    on = table("stack", *TOWER)
    scene = do(on, "pick(3,-4,60)")
    x, y, _ = TABLE_HOME
    assert scene.held == "green cube"
    # The hand is stopped by the cube on top and grasps green higher up; the fingers reach both.
    purple, green = scene.positions["purple cube"], scene.positions["green cube"]
    assert scene.positions["red cube"] == TOWER[0]
    assert green[:2] == (x, y)
    assert [a - b for a, b in zip(purple, green, strict=True)] == [-8.0, 0.0, 40.0]
    assert min(green[2], purple[2]) > HELD_ABOVE["stack"]
    scene = do(on, "place(100,-50,30)")
    assert scene.held is None
    assert scene.positions["green cube"] == (100.0, -50.0, 20.0)
    assert scene.positions["purple cube"] == (92.0, -50.0, 60.0)


def test_the_lowest_of_three_is_out_of_reach_for_the_fingers() -> None:
    # The hand comes down on the top of the tower: its fingers then end beside the middle one.
    assert do(table("stack", *TOWER), "pick(0,0,20)").held == "green cube"
    two = (TOWER[0], TOWER[1], FAR)
    assert do(table("stack", *two), "pick(0,0,20)").held == "red cube"


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


def test_a_cube_may_lie_across_a_gap() -> None:
    scene = do(
        table("stack", (-90.0, -150.0, 20.0), (0.0, 0.0, 20.0), (50.0, 0.0, 20.0)), "pick(-90,-150,20)|place(25,0,90)"
    )
    assert scene.positions["red cube"] == (25.0, 0.0, 60.0)


def test_taking_away_the_support_lets_the_rest_fall() -> None:
    across = ((25.0, 0.0, 60.0), (0.0, 0.0, 20.0), (50.0, 0.0, 20.0))
    scene = do(table("stack", *across), "push(-40,-100,10,-40,100,10)")
    assert cubes(scene) == list(across)  # beside them
    scene = do(table("stack", *across), "push(60,-150,35,60,60,35)")
    assert scene.positions["red cube"] == (58.0, 0.0, 20.0)
    assert scene.positions["purple cube"][1] > 60
    assert scene.positions["green cube"] == (0.0, 0.0, 20.0)


def test_things_are_never_put_into_each_other_or_the_table() -> None:
    scene = do(table("align", (0.0, 0.0, 20.0), (100.0, 0.0, 20.0)), "pick(0,0,20)|place(100,0,10)")
    assert scene.positions["red cube"] == (100.0, 0.0, 60.0)
    assert (
        do(table("align", (0.0, 0.0, 30.0 - 10.0), FAR), "pick(0,0,40)|place(50,0,10)").positions["red cube"][2] == 20.0
    )


def test_opening_fingers_shove_a_neighbour_aside() -> None:
    on = table("align", (-90.0, -150.0, 20.0), (0.0, 0.0, 20.0))
    # Down there, the closed finger beside red just touches green; open, it reaches to y = -90 + OPEN + FINGER_THICK.
    y = -(HALF + FINGER_THICK + HALF)
    scene = do(on, f"pick(-90,-150,20)|place(0,{y:.0f},20)")
    assert scene.positions["red cube"] == (0.0, y, 20.0)
    assert scene.positions["green cube"] == (0.0, y + OPEN + FINGER_THICK + HALF, 20.0)


# --- a full hand, an empty hand --------------------------------------------------------------------------------------


def test_place_with_an_empty_hand_changes_nothing() -> None:
    on = table("align", (0.0, 0.0, 20.0), FAR)
    before = on.scene
    assert do(on, "place(0,0,20)|place(0,10,60)|place(140,190,20)") == before


def test_picking_twice_lets_go_where_the_hand_closes() -> None:
    start = ((0.0, -100.0, 20.0), (50.0, 100.0, 20.0))
    # Over green, what is held is set down on it, and is what the fingers close on again.
    scene = do(table("align", *start), "pick(0,-100,20)|pick(50,100,20)")
    assert scene.held == "red cube"
    assert scene.positions["green cube"] == start[1]
    # High above the table it falls out of reach.
    scene = do(table("align", *start), "pick(0,-100,20)|pick(-50,0,150)")
    assert scene.held is None
    assert scene.positions["red cube"] == (-50.0, 0.0, 20.0)
    # Down on the table it is picked up again.
    assert do(table("align", *start), "pick(0,-100,20)|pick(-50,0,20)").held == "red cube"


# --- pushing ---------------------------------------------------------------------------------------------------------


def test_a_pushed_cube_ends_before_the_fingers() -> None:
    start = ((0.0, 0.0, 20.0), FAR)
    scene = do(table("align", *start), "push(0,-80,20,0,60,20)")
    assert scene.positions["red cube"] == (0.0, 60 + FINGER_THICK + HALF, 20.0)
    scene = do(table("align", *start), "push(-80,0,20,30,0,20)")
    assert scene.positions["red cube"] == (30 + FINGER_HALF_WIDTH + HALF, 0.0, 20.0)
    scene = do(table("align", *start), "push(0,80,20,0,-60,20)")
    assert scene.positions["red cube"] == (0.0, -60 - FINGER_THICK - HALF, 20.0)
    assert scene.positions["green cube"] == FAR


def test_a_push_that_meets_nothing_moves_nothing() -> None:
    start = ((0.0, 0.0, 20.0), FAR)
    over = int(2 * HALF + TIP_BELOW)
    for push in (
        f"push(0,-80,{over},0,80,{over})",
        "push(31,-80,20,31,80,20)",
        "push(-80,36,20,80,36,20)",
        "push(0,-80,20,0,-80,20)",
    ):
        assert cubes(do(table("align", *start), push)) == list(start)


def test_a_push_moves_what_is_behind_too() -> None:
    scene = do(table("stack", (0.0, 0.0, 20.0), (10.0, 50.0, 20.0), (-100.0, 0.0, 20.0)), "push(0,-80,20,0,60,20)")
    red = 60 + FINGER_THICK + HALF
    assert cubes(scene) == [(0.0, red, 20.0), (10.0, red + 2 * HALF, 20.0), (-100.0, 0.0, 20.0)]


def test_a_push_takes_along_what_stands_on_top() -> None:
    scene = do(table("align", (5.0, 12.0, 60.0), (0.0, 0.0, 20.0)), "push(0,-150,35,0,0,35)")
    y = FINGER_THICK + HALF
    assert scene.positions == {"red cube": (5.0, y + 12, 60.0), "green cube": (0.0, y, 20.0)}


def test_the_upper_cube_can_be_pushed_off() -> None:
    high = int(2 * HALF + TIP_BELOW)
    scene = do(table("align", (0.0, 0.0, 60.0), (0.0, 0.0, 20.0)), f"push(-100,0,{high},0,0,{high})")
    assert scene.positions["green cube"] == (0.0, 0.0, 20.0)
    assert scene.positions["red cube"][2] == 20.0
    assert scene.positions["red cube"][0] >= 40


def test_a_hand_that_comes_down_on_a_cube_does_not_push_it() -> None:
    start = ((0.0, 0.0, 20.0), FAR)
    assert cubes(do(table("align", *start), "push(0,0,20,0,100,50)")) == list(start)
    assert cubes(do(table("align", *start), "push(0,0,60,0,100,10)"))[0] == (0.0, 0.0, 20.0)


def test_a_push_keeps_what_is_held() -> None:
    scene = do(table("align", (0.0, -100.0, 20.0), (0.0, 50.0, 20.0)), "pick(0,-100,20)|push(0,-60,25,0,40,25)")
    assert scene.held == "red cube"
    assert scene.positions["red cube"] == TABLE_HOME
    assert scene.positions["green cube"] == (0.0, 40 + HALF + FINGER_THICK + HALF, 20.0)


# --- the drawer ------------------------------------------------------------------------------------------------------

ON_FLOOR = (-300.0, -180.0, IN_TRAY)


def test_the_front_ends_before_the_fingers_and_takes_the_apple_along() -> None:
    on = table("drawer", ON_FLOOR, drawer=180.0)
    end = -120
    scene = do(on, f"push(-300,60,150,-300,{end},150)")
    opening = end - FINGER_THICK - FRONT[1][1]
    assert scene.opening == opening
    assert scene.positions["apple"] == (-300.0, -360.0 + opening, IN_TRAY)
    scene = do(on, "push(-200,60,150,-200,-600,150)")
    assert scene.opening == 0.0
    assert scene.positions["apple"] == (-300.0, -360.0, IN_TRAY)


def test_the_hand_above_the_front_moves_nothing() -> None:
    on = table("drawer", ON_FLOOR, drawer=180.0)
    before, z = on.scene, int(FRONT[1][2] + TIP_BELOW)
    assert do(on, f"push(-300,60,{z},-300,-150,{z})") == before


def test_the_drawer_slides_along_y_alone() -> None:
    on = table("drawer", (-120.0, 150.0, 35.0), drawer=180.0)
    # The side of the front, met by the hand: it stops there, also when it would go on along y.
    for side in ("push(-500,-140,100,-300,-140,100)", "push(-500,-130,100,-300,-180,100)"):
        assert do(on, side).opening == 180.0
    scene = do(on, "push(-300,60,150,-250,-100,150)")
    assert scene.opening == -100 - FINGER_THICK - FRONT[1][1]


def test_the_drawer_opens_from_inside_up_to_its_end() -> None:
    on = table("drawer", (-120.0, 150.0, 35.0), drawer=180.0)
    scene = do(on, "push(-300,-180,130,-300,0,130)")
    assert scene.opening == 0 + FINGER_THICK - FRONT[0][1]
    assert do(on, "push(-300,-100,130,-300,200,130)").opening == 300.0


def test_an_apple_let_go_above_the_tray_lies_on_its_floor() -> None:
    for x, y in ((-300, -180), (-240, -140), (-370, -150), (-340, -200)):
        scene = do(table("drawer", (-120.0, 150.0, 35.0), drawer=180.0), f"pick(-120,150,35)|place({x},{y},300)")
        assert scene.positions["apple"][2] == IN_TRAY


def test_an_apple_on_the_rim_rolls_off() -> None:
    for x, y in ((-185, -150), (-415, -150), (-300, -50)):
        scene = do(table("drawer", (-120.0, 150.0, 35.0), drawer=180.0), f"pick(-120,150,35)|place({x},{y},300)")
        assert scene.positions["apple"][2] in (35.0, IN_TRAY)


def test_an_apple_on_the_front_rolls_to_where_there_is_room() -> None:
    # The nearer way off the front is towards the cabinet, whose top is in the way.
    on = table("drawer", (-120.0, 150.0, 35.0), drawer=20.0)
    scene = do(on, "pick(-120,150,35)|place(-300,-230,300)")
    assert scene.positions["apple"] == (-300.0, FRONT[1][1] + 20 + 35, 35.0)


def test_the_cabinet_stops_what_is_pushed() -> None:
    scene = do(table("drawer", (-100.0, -400.0, 35.0), drawer=180.0), "push(0,-400,35,-300,-400,35)")
    assert scene.positions["apple"] == (CABINET_BOXES[0][1][0] + 35, -400.0, 35.0)


def test_an_apple_on_the_cabinet_stays_there() -> None:
    on = table("drawer", (-120.0, 150.0, 35.0), drawer=180.0)
    scene = do(on, "pick(-120,150,35)|place(-300,-400,300)")
    assert scene.positions["apple"] == (-300.0, -400.0, CABINET_BOXES[-1][1][2] + 35)
    assert do(on, "push(-300,60,150,-300,-300,150)").positions["apple"][1] == -400.0


# --- what must hold whatever is done ---------------------------------------------------------------------------------


def hardly_overlaps(one: Box, other: Box) -> bool:
    """Written again, with what rounding to micrometres and contact leave room for."""
    depth = min(min(one[1][axis], other[1][axis]) - max(one[0][axis], other[0][axis]) for axis in range(3))
    return depth <= 0.02


def boxes(scene: Scene) -> list[Box]:
    found = []
    for name, (x, y, z) in scene.positions.items():
        half = 35.0 if name == "apple" else 20.0
        found.append(((x - half, y - half, z - half), (x + half, y + half, z + half)))
    return found


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
def sequences(draw: st.DrawFn, tasks: tuple[str, ...] = tuple(KINDS)) -> tuple[SkillState, list[Primitive]]:
    """Return a level and primitives at, near and far from where things are."""
    state = drawn(draw(st.sampled_from(tasks)), draw(st.integers(0, 2**32)))
    known = [tuple(map(int, at)) for at in state.scene.positions.values()]
    known += [(80, -100, 20), (0, 0, 60), (-300, -180, 150), (-300, 20, 150), (-300, -180, 300)]
    near = st.tuples(st.integers(-25, 25), st.integers(-25, 25), st.sampled_from([-10, 0, 0, 20, 40, 80]))
    place = st.one_of(
        st.tuples(st.sampled_from(known), near).map(lambda pair: tuple(a + b for a, b in zip(*pair, strict=True))),
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
        found, around = boxes(scene), furniture(scene)
        for index, box in enumerate(found):
            assert box[0][2] >= -0.01, "below the table"
            assert all(hardly_overlaps(box, other) for other in [*found[:index], *around]), (primitive, scene)
        high = HELD_ABOVE[state.task]
        raised = [name for name, at in scene.positions.items() if at[2] > high]
        assert bool(raised) == (scene.held is not None)
        assert scene.held is None or scene.held in raised
        for name, box in zip(scene.positions, found, strict=True):
            bottoms = [other[1][2] for other in [*found, *around]] + [0.0]
            assert name in raised or min(abs(box[0][2] - bottom) for bottom in bottoms) <= 0.02, "hovers"
        assert scene.opening is None or 0 <= scene.opening <= 300
        assert all(value == round(value * 1000) / 1000 for at in scene.positions.values() for value in at)


@settings(max_examples=120, deadline=None)
@given(sequences(), st.integers(0, 8))
def test_the_scene_is_all_there_is(case: tuple[SkillState, list[Primitive]], cut: int) -> None:
    """Going on from the state text gives what going on from the table gives, and the same again."""
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


@settings(max_examples=120, deadline=None)
@given(sequences(("stack",)))
def test_names_do_not_matter(case: tuple[SkillState, list[Primitive]]) -> None:
    """The same places under other names, in another order, come out the same."""
    state, primitives = case
    turned = dict(
        zip(state.kind.things, [state.scene.positions[name] for name in reversed(state.kind.things)], strict=True)
    )
    one, other = Table(state.kind, state.scene), Table(state.kind, Scene(turned, None, None))
    for primitive in primitives:
        one.execute(primitive)
        other.execute(primitive)
        assert cubes(one.scene) == list(reversed(cubes(other.scene)))


corners = (
    st.tuples(st.integers(-100, 150), st.integers(-200, -110)),
    st.tuples(st.integers(-100, 150), st.integers(110, 200)),
)


@settings(max_examples=60, deadline=None)
@given(*corners, *corners, st.booleans())
def test_what_is_done_on_either_side_does_not_depend_on_the_order(
    left: tuple[int, int], right: tuple[int, int], to_left: tuple[int, int], to_right: tuple[int, int], pushes: bool
) -> None:
    verb = "push({},{},30,{},{},30)" if pushes else "pick({},{},20)|place({},{},60)"
    before = 60 if pushes else 0
    one = verb.format(left[0] - before, left[1], *to_left)
    other = verb.format(right[0] - before, right[1], *to_right)
    start = ((float(left[0]), float(left[1]), 20.0), (float(right[0]), float(right[1]), 20.0))
    assert do(table("align", *start), f"{one}|{other}") == do(table("align", *start), f"{other}|{one}")


def small_steps(places: list[Point], hand: Point, end: Point, steps: int) -> list[Point]:
    """Push cubes the slow way: move the hand a little, then everything that is touched, and so on."""
    way = [(b - a) / steps for a, b in zip(hand, end, strict=True)]
    finger = ((-FINGER_HALF_WIDTH, -FINGER_THICK), (FINGER_HALF_WIDTH, FINGER_THICK))
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


def test_palm_and_fingers_fit_together() -> None:
    assert PALM_ABOVE - GRASP_DEPTH > 0 and TIP_BELOW >= GRASP_DEPTH
    assert X_LIMIT > 15 and Y_LIMIT > 15  # noise of the comparison with ManiSkill's physics
