"""The main rules of the embedded tabletop's kinematics; test_tabletop_properties.py has plays that need them all."""

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
from pivot.environments.primitiveskill.tasks import DRAWER_BOXES, DRAWER_HOME, TABLE_HOME
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


def test_the_nearer_of_two_is_grasped() -> None:
    two = ((-21.0, 0.0, 20.0), (21.0, 0.0, 20.0))
    assert do(table("align", *two), "pick(-3,0,20)").in_hand == "red cube"
    assert do(table("align", *two), "pick(3,0,20)").in_hand == "green cube"
    for tower in (((0.0, 0.0, 20.0), (0.0, 0.0, 60.0)), ((0.0, 0.0, 60.0), (0.0, 0.0, 20.0))):
        scene = do(table("align", *tower), "pick(0,0,40)")
        assert all(at[2] > 300 for at in cubes(scene))


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


# --- pushing ---------------------------------------------------------------------------------------------------------


def test_a_push_takes_along_what_stands_on_top() -> None:
    scene = do(table("align", (5.0, 12.0, 60.0), (0.0, 0.0, 20.0)), "push(0,-150,35,0,0,35)")
    y = FINGER_THICK + HALF
    assert scene.positions == {"red cube": (5.0, y + 12, 60.0), "green cube": (0.0, y, 20.0)}


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


def test_an_apple_on_the_rim_rolls_off() -> None:
    for x, y in ((-185, -150), (-415, -150), (-300, -50)):
        scene = do(table("drawer", (-120.0, 150.0, 35.0), drawer=180.0), f"pick(-120,150,35)|place({x},{y},300)")
        assert scene.positions["apple"][2] in (35.0, IN_TRAY)
