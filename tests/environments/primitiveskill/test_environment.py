"""PrimitiveSkill on the embedded table: the contract, and turns, stages, rewards and success of the four tasks."""

import json
from collections import Counter
from importlib.metadata import PackageNotFoundError
from typing import Any, ClassVar

import numpy as np
import pytest
from pivot.core.errors import LevelError
from pivot.environments import backends
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig, PrimitiveSkillEnv, observation_text
from pivot.environments.primitiveskill.levels import CLEAR
from pivot.environments.primitiveskill.state import SkillState, parse_state
from pivot.environments.primitiveskill.tasks import KINDS, Point, Scene, reached, update_achieved
from pivot.testing import EnvironmentContract
from pydantic import ValidationError


def level(
    task: str,
    *at: Point,
    in_hand: str | None = None,
    drawer: float | None = None,
    achieved: tuple[bool, ...] | None = None,
) -> str:
    """Return the state text of a task with its objects at these positions."""
    kind = KINDS[task]
    scene = Scene(dict(zip(kind.things, at, strict=True)), in_hand, drawer)
    return SkillState("embedded", task, scene, achieved or (False,) * len(kind.stages)).text()


ALIGN = level("align", (120.0, -100.0, 20.0), (130.0, 120.0, 20.0))
HELD = level("align", (-150.0, 0.0, 350.0), (130.0, 120.0, 20.0), in_hand="red cube")
PLACE = level("place", (-40.0, -60.0, 20.0), (-20.0, 60.0, 20.0))
STACK = level("stack", (0.0, -100.0, 20.0), (100.0, 50.0, 20.0), (-60.0, 150.0, 20.0))
DRAWER = level("drawer", (-120.0, 150.0, 35.0), drawer=180.0)


def changed(text: str, *path: str | int, value: Any) -> str:
    data = json.loads(text)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(data)


def payload(*calls: tuple[str, list[int]], void: str | None = None) -> str:
    primitives = [{"arguments": numbers, "name": name} for name, numbers in calls]
    return json.dumps({"primitives": primitives, "void": void}, separators=(",", ":"))


PICK, PUSH = ("pick", [120, -100, 20]), ("push", [100, -180, 20, 150, 60, 20])
PLACE_THERE = ("place", [0, -100, 30])


class TestPrimitiveSkillContract(EnvironmentContract):
    env_type = PrimitiveSkillEnv
    settings = ({}, {"horizon": 3, "tasks": ("align", "drawer"), "image_format": "png"})
    actions = (
        ("pick(120,-100,20)|place(0,-100,30)", payload(PICK, PLACE_THERE)),
        ("push(100,-180,20,150,60,20)", payload(PUSH)),
        ("pick(120,-100,20)", payload(PICK, void="unknown name")),
    )
    answers: ClassVar = {
        "pick(120, -100, 20) | place(0, -100, 30)": actions[0],
        "push( 100,-180 ,20,\n150,60,+20 )": actions[1],
        "pick(120,-100,20)|grab(1,2,3)": actions[2],
    }
    garbage = ("", "up", "pick", "pick()", "pick 1,2,3", "pick(1,2)", "pick(1,2,3,4)", "drop(1,2,3)", "|", "{}", "[]")
    bad_states: ClassVar = {
        "": "not JSON",
        "[" * 9_000: "not JSON",
        "[]": "an object with",
        "{}": "an object with",
        '"' + "x" * 20_000 + '"': "at most",
        '{"a":' * 100 + "1" + "}" * 100: "an object with",
        "null": "an object with",
        changed(ALIGN, "goal", value=1): "goal is 1",
        changed(ALIGN, "backend", value="unity"): "'unity'",
        changed(ALIGN, "backend", value=["embedded"]): "backend is",
        changed(ALIGN, "task", value="sort"): "a task of align",
        changed(ALIGN, "task", value={}): "a task of align",
        changed(ALIGN, "task", value="stack"): "3 times true or false",
        changed(ALIGN, "held", value="apple"): "held is 'apple'",
        changed(ALIGN, "held", value=["red cube"]): "held is",
        changed(ALIGN, "held", value="red cube"): "what is held is above 250 mm",
        changed(HELD, "backend", value="maniskill"): "begins with an empty hand",
        changed(HELD, "objects", 0, "position", 0, value=0.0): "more than 100 mm from the hand",
        changed(ALIGN, "achieved", value=[True]): "2 times true or false",
        changed(ALIGN, "achieved", value=[0, 1]): "expected True or False",
        changed(ALIGN, "achieved", value=None): "2 times true or false",
        changed(ALIGN, "drawer", value=1.0): "expected None",
        changed(DRAWER, "drawer", value=None): "drawer is None",
        changed(DRAWER, "drawer", value=300.001): "expected 0 to 300",
        changed(DRAWER, "drawer", value=-1.0): "expected 0 to 300",
        changed(DRAWER, "drawer", value="half"): "expected 0 to 300",
        changed(ALIGN, "objects", value={}): "expected a list",
        changed(ALIGN, "objects", value=[1, 2]): "objects[0]",
        changed(ALIGN, "objects", 1, "name", value="red cube"): "expected a list of red cube, green cube",
        changed(ALIGN, "objects", 0, "position", value=[1.0, 2.0]): "three numbers",
        changed(ALIGN, "objects", 0, "position", value="here"): "three numbers",
        changed(ALIGN, "objects", 0, "position", 0, value=float("nan")): "expected millimetres in whole",
        changed(ALIGN, "objects", 0, "position", 0, value=10**400): "expected millimetres in whole",
        changed(ALIGN, "objects", 0, "position", 0, value=True): "expected millimetres in whole",
        changed(ALIGN, "objects", 0, "position", 0, value="1"): "expected millimetres in whole",
        changed(ALIGN, "objects", 0, "position", 0, value=0.0001): "whole micrometres",
        changed(ALIGN, "objects", 0, "position", 2, value=19.0): "does not rest",
        changed(ALIGN, "objects", 0, "position", 2, value=260.0): "what is held is above 250",
        changed(ALIGN, "objects", 0, "position", value=[120.0, 110.0, 20.0]): "green cube and red cube overlap",
        changed(ALIGN, "objects", 0, "position", value=[130.0, 145.0, 60.0]): "does not rest",
        changed(DRAWER, "objects", 0, "position", value=[-300.0, -400.0, 35.0]): "overlap",
        changed(DRAWER, "objects", 0, "position", value=[-300.0, -180.0, 150.0]): "does not rest",
    }
    equal_states = (
        (ALIGN, json.dumps(json.loads(ALIGN), indent=1)),
        (ALIGN, changed(ALIGN, "backend", value="maniskill")),
        (ALIGN, changed(ALIGN, "achieved", value=[True, False])),
        (ALIGN, changed(ALIGN, "objects", 0, "position", value=[120, -100, 20])),
    )
    bad_settings = (
        ({"horizon": 0}, "horizon"),
        ({"image_format": "gif"}, "image_format"),
        ({"backend": "unity"}, "backend"),
        ({"tasks": ()}, "expected one or more of align, place, stack, drawer"),
        ({"tasks": ("align", "sort")}, "expected one or more"),
        ({"tasks": 3}, "expected one or more"),
        ({"max_tries": 0}, "max_tries"),
    )
    info_keys = frozenset({"legal", "remaining_stages", "remaining_turns", "success", "observation_text"})
    reward_range = (-0.1, 15.9)
    seeds = tuple(range(5))
    gym_id = "pivot/PrimitiveSkill-v0"


def play(text: str, *actions: str) -> tuple[PrimitiveSkillEnv, list[tuple[float, bool, bool, dict[str, Any]]]]:
    """Play from a state; return the environment and reward, terminated, truncated, info of each turn."""
    env = PrimitiveSkillEnv()
    env.draw_frames = False
    env.reset(options={"state": text})
    results = []
    for action in actions:
        _, reward, terminated, truncated, info = env.step(env.encode_action(action))
        results.append((reward, terminated, truncated, info))
    return env, results


def summary(results: list[tuple[float, bool, bool, dict[str, Any]]]) -> list[tuple[float, int, bool]]:
    """Return reward, remaining stages and success of each turn."""
    return [(round(reward, 6), info["remaining_stages"], info["success"]) for reward, _, _, info in results]


# --- the four tasks --------------------------------------------------------------------------------------------------


def test_align() -> None:
    env, results = play(ALIGN, "pick(120,-100,20)|place(0,-100,40)", "pick(130,120,20)", "place(10,120,20)")
    assert summary(results) == [(1.9, 1, False), (-0.1, 1, False), (11.9, 0, True)]
    assert env.state.scene.positions == {"red cube": (0.0, -100.0, 20.0), "green cube": (10.0, 120.0, 20.0)}
    assert results[-1][1:3] == (True, False)


def test_align_needs_both_cubes_on_the_line_at_the_end() -> None:
    moved_away = ("pick(120,-100,20)|place(0,-100,20)", "pick(0,-100,20)|place(-60,-100,20)")
    env, results = play(ALIGN, *moved_away, "pick(130,120,20)|place(0,120,20)", "pick(-60,-100,20)|place(0,-100,20)")
    # The second and the third turn: a stage once achieved stays so, but both have to be there at once.
    assert summary(results) == [(1.9, 1, False), (-0.1, 1, False), (1.9, 0, False), (9.9, 0, True)]
    assert env.state.achieved == (True, True)
    env.reset(options={"state": changed(env.state_text(), "objects", 1, "position", 0, value=50.0)})
    assert env.state.achieved == (True, True)


def test_place() -> None:
    turns = ("pick(-40,-60,20)", "place(80,-100,20)", "pick(-20,60,20)|place(-20,-60,20)")
    _, results = play(PLACE, *turns, "pick(-20,-60,20)|place(80,100,20)")
    assert summary(results) == [(1.9, 2, False), (1.9, 1, False), (1.9, 0, False), (9.9, 0, True)]


def test_in_place_green_counts_only_after_red() -> None:
    _, results = play(PLACE, "pick(-20,60,20)|place(80,100,20)", "pick(-40,-60,20)|place(80,-100,20)")
    # Success needs no stage: green was grasped too early to count.
    assert summary(results) == [(-0.1, 3, False), (13.9, 1, True)]
    _, results = play(PLACE, "pick(-40,-60,20)|place(-90,-60,20)", "pick(-20,60,20)")
    assert summary(results) == [(1.9, 2, False), (-0.1, 2, False)]


def test_stack() -> None:
    _, results = play(STACK, "pick(0,-100,20)|place(100,50,80)", "pick(-60,150,20)|place(100,50,130)")
    assert summary(results) == [(3.9, 1, False), (11.9, 0, True)]


def test_drawer() -> None:
    env, results = play(DRAWER, "pick(-120,150,35)|place(-300,-180,250)", "push(-300,60,150,-300,-260,150)")
    assert summary(results) == [(3.9, 0, False), (9.9, 0, True)]
    scene = env.state.scene
    assert scene.opening == 0.0
    assert scene.positions["apple"] == (-300.0, -360.0, 115.0)


def test_the_picture_shows_an_empty_drawer_that_was_pushed() -> None:
    env = PrimitiveSkillEnv()
    before, _ = env.reset(options={"state": DRAWER})
    key = env.frame_key()
    after, *_ = env.step(env.encode_action("push(-300,60,150,-300,-260,150)"))
    assert env.state.scene.opening == 0.0
    assert env.state.scene.positions["apple"] == (-120.0, 150.0, 35.0)
    assert not np.array_equal(before, after)
    assert env.frame_key() != key, "a rollout does not keep the picture of before"


def test_the_printed_log() -> None:
    """The paper's log: five steps without effect, then red reaches the line with no turn left."""
    state = level("align", (107.0, 64.0, 20.0), (120.0, 190.0, 20.0))
    env, results = play(state, *["empty"] * 5, "pick(107,64,20)|place(0,-185,120)")
    log = [(info["legal"], info["remaining_stages"], info["remaining_turns"]) for *_, info in results]
    assert log == [(False, 2, 5), (False, 2, 4), (False, 2, 3), (False, 2, 2), (False, 2, 1), (True, 1, 0)]
    assert [result[1:3] for result in results] == [(False, False)] * 5 + [(False, True)]
    assert env.state.scene.positions["red cube"] == (0.0, -185.0, 20.0)


@pytest.mark.parametrize(
    ("text", "success"),
    [
        (level("align", (10.0, 0.0, 20.0), (-10.0, 100.0, 20.0)), True),
        (level("align", (10.001, 0.0, 20.0), (-10.0, 100.0, 20.0)), False),
        (level("align", (10.0, 0.0, 20.0), (-10.001, 100.0, 20.0)), False),
        (level("align", (0.0, 0.0, 60.0), (0.0, 0.0, 20.0)), False),  # z above 50
        (level("place", (80.0, -50.0, 20.0), (130.0, 100.0, 20.0)), True),
        (level("place", (80.0, -49.999, 20.0), (130.0, 100.0, 20.0)), False),
        (level("place", (80.0, -50.0, 20.0), (130.001, 100.0, 20.0)), False),
        (level("place", (110.0, -60.0, 20.0), (110.0, 60.0, 20.0)), True),
        (level("place", (110.0, -59.999, 20.0), (110.0, 60.0, 20.0)), False),
        (level("place", (80.0, 100.0, 20.0), (80.0, -100.0, 20.0)), False),  # each on the other's
        (level("stack", (19.999, 0.0, 60.0), (0.0, 0.0, 20.0), (0.0, 0.0, 100.0)), True),
        (level("stack", (12.0, 16.0, 60.0), (0.0, 0.0, 20.0), (12.0, 16.0, 100.0)), False),
        (level("stack", (12.0, 15.999, 60.0), (0.0, 0.0, 20.0), (12.0, 16.0, 100.0)), True),
        (level("stack", (0.0, 0.0, 60.0), (0.0, 0.0, 100.0), (0.0, 0.0, 20.0)), False),
        (level("stack", (0.0, 0.0, 60.0), (0.0, 0.0, 20.0), (100.0, 0.0, 20.0)), False),
        (level("drawer", (-300.0, -260.0, 115.0), drawer=100.0), True),
        (level("drawer", (-300.0, -259.999, 115.0), drawer=100.001), False),
        (level("drawer", (-120.0, 150.0, 35.0), drawer=0.0), False),
        (level("drawer", (-225.0, -335.0, 115.0), drawer=100.0), True),
    ],
)  # fmt: skip
def test_success_is_exact_at_its_limits(text: str, success: bool) -> None:
    env = PrimitiveSkillEnv()
    env.draw_frames = False
    _, info = env.reset(options={"state": text})
    assert info["success"] is success
    if success:
        with pytest.raises(Exception, match="over"):
            env.step("empty")
    else:
        assert env.step("empty")[2] is False


@pytest.mark.parametrize(
    ("task", "at", "in_hand"),
    [
        ("place", [(80.0, -100.0, 350.0), (80.0, 100.0, 20.0)], "red cube"),
        ("place", [(80.0, -100.0, 20.0), (80.0, 100.0, 350.0)], "green cube"),
        ("stack", [(0.0, 0.0, 60.0), (0.0, 0.0, 20.0), (0.0, 0.0, 350.0)], "purple cube"),
        ("stack", [(0.0, 0.0, 350.0), (0.0, 0.0, 20.0), (0.0, 0.0, 390.0)], "red cube"),
        ("drawer", [(-300.0, -360.0, 115.0)], "apple"),
    ],
)
def test_what_hangs_in_the_hand_is_not_where_it_belongs(task: str, at: list[Point], in_hand: str) -> None:
    kind = KINDS[task]
    places = dict(zip(kind.things, at, strict=True))
    opening = 0.0 if task == "drawer" else None
    none = (False,) * len(kind.stages)
    assert reached(kind, Scene(places, None, opening))
    assert not reached(kind, Scene(places, in_hand, opening))
    let_go = update_achieved(kind, Scene(places, None, opening), none)
    still_held = update_achieved(kind, Scene(places, in_hand, opening), none)
    assert let_go[1]
    assert still_held[1] == (in_hand not in ("red cube", "apple"))
    assert still_held[0] == (in_hand in ("red cube", "apple"))
    assert still_held[-1] == (in_hand == "purple cube")  # green counts only after red was released


def test_stages_and_success_are_seen_between_two_primitives() -> None:
    # Red is set on green and taken away again in one turn: the stage counts.
    start = level("stack", (-150.0, 0.0, 350.0), (0.0, 0.0, 20.0), (-90.0, 150.0, 20.0), in_hand="red cube")
    _, results = play(start, "place(0,0,70)|pick(0,0,60)")
    assert summary(results) == [(3.9, 1, False)]
    # Success ends the turn at once: what would undo it is not executed.
    _, results = play(level("align", (0.0, -100.0, 20.0), (60.0, 100.0, 20.0)), "pick(60,100,20)|place(0,100,20)")
    assert results[0][1]
    start = level("align", (0.0, -100.0, 20.0), (-150.0, 0.0, 350.0), in_hand="green cube")
    env, results = play(start, "place(0,100,20)|push(0,-180,20,0,180,20)")
    assert results[0][1]
    assert env.state.scene.positions["red cube"] == (0.0, -100.0, 20.0)


# --- turns -----------------------------------------------------------------------------------------------------------


def test_coordinates_are_clipped_to_the_workspace_of_the_task() -> None:
    far = "pick(120,-100,20)|place(99999,-99999,0)"
    env, _ = play(ALIGN, far)
    assert env.state.scene.positions["red cube"] == (150.0, -200.0, 20.0)
    assert json.loads(env.snapshot())["actions"] == [far]
    env, _ = play(DRAWER, "pick(-120,150,35)|place(0,900,9999)")
    assert env.state.scene.positions["apple"] == (-100.0, 200.0, 35.0)


def test_the_observation_is_three_lines() -> None:
    env = PrimitiveSkillEnv()
    texts = {}
    for task, text in (("align", ALIGN), ("place", PLACE), ("stack", STACK), ("drawer", DRAWER)):
        _, info = env.reset(options={"state": text})
        texts[task] = info["observation_text"]
        assert env.step("empty")[4]["observation_text"] == texts[task]
    assert texts["place"] == (
        "Workspace limits in mm: x -100 to 150, y -200 to 200, z 10 to 200\n"
        "Object positions in mm: [(-40,-60,20),(-20,60,20),(80,-100,0),(80,100,0)]\n"
        "Other information: a cube has sides of 40 mm"
    )
    assert texts["drawer"] == (
        "Workspace limits in mm: x -500 to -100, y -600 to 200, z 10 to 650\n"
        "Object positions in mm: [(-120,150,35),(-300,-180,150)]\n"
        "Other information: the drawer is open by 180 of 300 mm"
    )
    assert texts["align"].splitlines()[1] == "Object positions in mm: [(120,-100,20),(130,120,20)]"
    assert texts["stack"].splitlines()[1] == "Object positions in mm: [(0,-100,20),(100,50,20),(-60,150,20)]"
    scene = Scene({"apple": (-0.4, 0.5, 1.5)}, None, 0.4)
    assert "[(0,0,2),(-300,-360,150)]" in observation_text(KINDS["drawer"], scene)


def test_refused_calls_say_so() -> None:
    env = PrimitiveSkillEnv()
    with pytest.raises(Exception, match="not begun"):
        env.state_text()
    env.reset(seed=1)
    for action in ("pick(1,2)", "pick(1, 2, 3)", "", "pick(100000,0,0)", "pick(-0,1,2)", 3, None):
        with pytest.raises(ValueError, match="not the name"):
            env.step(action)  # pyright: ignore[reportArgumentType]
    for name, text in (("empty", payload()), ("pick(1,2,3)", payload(PICK)), ("pick(1,2,3)", "{"), ("empty", "[]")):
        with pytest.raises(ValueError, match="payload"):
            env.encode_action(name, text)
    for snapshot in (b"{}", b"\xff", b"[]", b'{"actions":["pick(1,2)"],"start":null}', b'{"actions":1,"start":""}'):
        with pytest.raises(LevelError, match="snapshot"):
            env.restore(snapshot)
    long = json.dumps({"actions": ["empty"] * 7, "start": ALIGN}).encode()
    with pytest.raises(LevelError, match="7 turns, at most 6"):
        env.restore(long)
    with pytest.raises(LevelError, match="backend maniskill"):
        env.reset(options={"state": changed(ALIGN, "backend", value="maniskill")})


# --- levels and settings ---------------------------------------------------------------------------------------------


def test_levels_follow_the_table() -> None:
    config = PrimitiveSkillConfig()
    states = [parse_state(PrimitiveSkillEnv.make_task(config, seed).initial_state) for seed in range(364)]
    counts = Counter(state.task for state in states)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) > 70  # of 91 expected
    ranges = {
        "align": {"red cube": (100, 150, -200, 100), "green cube": (100, 150, 100, 200)},
        "place": dict.fromkeys(("red cube", "green cube"), (-100, 0, -100, 100)),
        "stack": dict.fromkeys(("red cube", "green cube", "purple cube"), (-100, 150, -200, 200)),
        "drawer": {"apple": (-150, -100, 100, 200)},
    }
    for state in states:
        scene = state.scene
        for name, (x, y, z) in scene.positions.items():
            low_x, high_x, low_y, high_y = ranges[state.task][name]
            assert (low_x <= x <= high_x, low_y <= y <= high_y) == (True, True)
            assert (x % 1, y % 1) == (0.5, 0.5)
            assert z == (35 if name == "apple" else 20)
        places = list(scene.positions.values())
        for index, one in enumerate(places):
            for other in places[:index]:
                assert abs(one[0] - other[0]) >= CLEAR[0] or abs(one[1] - other[1]) >= CLEAR[1]
        assert scene.opening == (180 if state.task == "drawer" else None)
        assert scene.in_hand is None
        assert not any(state.achieved)


def test_tasks_can_be_chosen() -> None:
    config = PrimitiveSkillConfig.model_validate({"tasks": ["stack", "align"]})
    assert config.tasks == ("align", "stack")
    assert config.digest() == PrimitiveSkillConfig(tasks=("align", "stack")).digest()
    actual = {PrimitiveSkillEnv.make_task(config, seed).instruction for seed in range(20)}
    assert actual == {KINDS["align"].instruction, KINDS["stack"].instruction}
    assert PrimitiveSkillConfig.model_validate({"tasks": "drawer"}).tasks == ("drawer",)


def test_the_table_is_named_as_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PrimitiveSkillConfig()
    assert "in place of ManiSkill" in config.stand_ins[0]
    assert (config.simulator, config.repeats_exactly, config.most_instances) == ("embedded", True, None)
    PrimitiveSkillEnv.check_ready(config)

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(backends, "version", missing)
    with pytest.raises(ValidationError, match=r"pip install 'pivot-vlm\[maniskill\]'"):
        PrimitiveSkillConfig(backend="maniskill")
    monkeypatch.setattr(backends, "version", lambda name: "3.0.1")
    other = PrimitiveSkillConfig(backend="maniskill")
    assert other.maniskill_version == "3.0.1"
    assert (other.stand_ins, other.simulator) == ((), "maniskill")
    assert (other.repeats_exactly, other.most_instances) == (False, 1)
    # The layout of a seed is the same in both.
    here = PrimitiveSkillEnv.make_task(config, 4).initial_state
    there = PrimitiveSkillEnv.make_task(other, 4).initial_state
    assert there == here.replace('"embedded"', '"maniskill"')
    assert PrimitiveSkillEnv.canonical_state(there) == here
