"""The embedded tabletop's kinematics: a planted case for every rule."""

import pytest
from pivot.environments.primitiveskill.table.hand import (
    FINGER_HALF_WIDTH,
    FINGER_THICK,
    GRASP_DEPTH,
    GRASP_X_SLACK,
    GRASP_Y_SLACK,
    OPEN,
    TIP_BELOW,
)
from pivot.environments.primitiveskill.table.tabletop import EDGE, HELD_ABOVE
from pivot.environments.primitiveskill.tasks import CABINET_BOXES, DRAWER_BOXES, DRAWER_HOME, KINDS, TABLE_HOME
from pivot.tests.environments.primitiveskill.tabletops import cubes, do, table

HALF = 20.0
X_LIMIT = HALF + FINGER_HALF_WIDTH - GRASP_X_SLACK
Y_LIMIT = OPEN - HALF + GRASP_Y_SLACK["cube"]
Z_LIMIT = HALF + TIP_BELOW - GRASP_DEPTH
FRONT = DRAWER_BOXES[-1]
TRAY_FLOOR = DRAWER_BOXES[0][1][2]
IN_TRAY = TRAY_FLOOR + 35.0


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
        assert (scene.in_hand == "red cube") is grasped, (axis, off)
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
    assert do(table("align", *two), "pick(-3,0,20)").in_hand == "red cube"
    assert do(table("align", *two), "pick(3,0,20)").in_hand == "green cube"
    for tower in (((0.0, 0.0, 20.0), (0.0, 0.0, 60.0)), ((0.0, 0.0, 60.0), (0.0, 0.0, 20.0))):
        scene = do(table("align", *tower), "pick(0,0,40)")
        assert all(at[2] > 300 for at in cubes(scene))


def test_a_neighbour_under_a_finger_stops_the_hand() -> None:
    # A finger comes down on green, 40 mm high: the tips stay above red.
    scene = do(table("align", (0.0, 0.0, 20.0), (0.0, OPEN + 5 + HALF, 20.0)), "pick(0,0,20)")
    assert scene.in_hand is None
    room = OPEN + FINGER_THICK + HALF
    scene = do(table("align", (0.0, 0.0, 20.0), (0.0, room, 20.0)), "pick(0,0,20)")
    assert scene.in_hand == "red cube"


def test_closing_the_fingers_shoves_a_neighbour_aside() -> None:
    # Red is grasped off its middle, 15 mm along y; green is beside it, out of the fingers' way.
    on = table("align", (8.0, 0.0, 20.0), (40.0, 45.0, 20.0))
    scene = do(on, "pick(0,15,20)")
    assert scene.in_hand == "red cube"
    assert scene.positions["green cube"] == (40.0, 55.0, 20.0)


@pytest.mark.parametrize(
    ("dx", "dy", "slips"), [(8.7, 15, 0), (-8.7, 15, 0), (12.7, 0, 0), (12.7, 10, 0.88), (-12.7, -10, -0.88)]
)
def test_a_cube_that_is_shoved_far_off_its_middle_slips_farther(dx: float, dy: float, slips: float) -> None:
    on = table("align", (dx, dy, 20.0), (100.0, 150.0, 20.0))
    scene = do(on, "pick(0,0,20)")
    assert scene.in_hand == "red cube"
    assert scene.positions["red cube"][0] - KINDS["align"].home[0] == pytest.approx(dx + slips, abs=0.001)


def test_an_apple_does_not_slip() -> None:
    scene = do(table("drawer", (-288.0, 110.0, 35.0)), "pick(-300,100,35)")
    assert scene.in_hand == "apple"
    assert scene.positions["apple"][0] - KINDS["drawer"].home[0] == 12.0


def test_closing_fingers_shove_what_else_they_reach() -> None:
    # Green is too far off along x to be held, but the fingers reach its corner.
    scene = do(table("align", (0.0, 0.0, 20.0), (41.0, 15.0, 20.0)), "pick(15,0,20)")
    assert scene.in_hand == "red cube"
    assert scene.positions["green cube"] == (41.0, 0.0, 20.0)


@pytest.mark.parametrize(("hand", "in_hand"), [((-120, 150), True), ((-120, 165), False), ((-120, 135), False)])
def test_the_apple_is_grasped_in_the_middle(hand: tuple[int, int], in_hand: bool) -> None:
    off = int(OPEN - 35 + GRASP_Y_SLACK["apple"])
    y = 150 + (0 if in_hand else (off + 1) * (1 if hand[1] > 150 else -1))
    scene = do(table("drawer", (-120.0, 150.0, 35.0), drawer=180.0), f"pick({hand[0]},{y},35)")
    assert (scene.in_hand == "apple") is in_hand
    if in_hand:
        assert scene.positions["apple"] == DRAWER_HOME


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


def test_the_lowest_of_three_is_out_of_reach_for_the_fingers() -> None:
    # The hand comes down on the top of the tower: its fingers then end beside the middle one.
    assert do(table("stack", *TOWER), "pick(0,0,20)").in_hand == "green cube"
    two = (TOWER[0], TOWER[1], FAR)
    assert do(table("stack", *two), "pick(0,0,20)").in_hand == "red cube"


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
    assert scene.in_hand == "red cube"
    assert scene.positions["green cube"] == start[1]
    # High above the table it falls out of reach.
    scene = do(table("align", *start), "pick(0,-100,20)|pick(-50,0,150)")
    assert scene.in_hand is None
    assert scene.positions["red cube"] == (-50.0, 0.0, 20.0)
    # Down on the table it is picked up again.
    assert do(table("align", *start), "pick(0,-100,20)|pick(-50,0,20)").in_hand == "red cube"


# --- pushing ---------------------------------------------------------------------------------------------------------


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
    assert scene.in_hand == "red cube"
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
