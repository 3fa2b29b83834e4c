"""Navigation in embedded rooms: the contract, and the rules of turns by hand and by a second implementation."""

import json
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot.core.errors import ConfigError, LevelError
from pivot.environments.navigation.environment import NavigationConfig, NavigationEnv
from pivot.environments.navigation.moves import Floor, direction, fewest_steps, steps_to_target
from pivot.environments.navigation.state import (
    Finish,
    NavigationState,
    Part,
    Pose,
    Room,
    RoomObject,
    Target,
    parse_room,
    parse_state,
    room_json,
)
from pivot.solvers.navigation.room import Pose as SolverPose
from pivot.solvers.navigation.room import read_state
from pivot.testing import EnvironmentContract

ACTIONS = ("moveahead", "moveback", "moveright", "moveleft", "rotateright", "rotateleft", "lookup", "lookdown")
PLAIN = Finish("#c0c0c0", "plain")


def box(low: tuple[int, int, int], high: tuple[int, int, int]) -> Part:
    return Part(low, high, "box", "#804020", "wood")


def level(
    parts: tuple[Part, ...] = (),
    start: tuple[float, float] = (1.0, 1.0),
    target: tuple[float, float] = (5.5, 1.0),
    rotation: int = 0,
    size: tuple[int, int, int] = (6000, 2600, 6000),
) -> str:
    x, z = round(1000 * target[0]), round(1000 * target[1])
    apple = RoomObject(
        "Apple|1", "Apple", (Part((x - 60, 0, z - 60), (x + 60, 40, z + 60), "ellipsoid", "#c02020", "plain"),)
    )
    things = RoomObject("Things|1", "Things", parts)
    room = Room(size, PLAIN, PLAIN, PLAIN, (apple, things) if parts else (apple,))
    expected = Target("Apple", "Apple|1", target[0], 0.02, target[1])
    return NavigationState(
        "embedded", "by-hand", Pose(start[0], 0.9, start[1], rotation, 0), expected, room_json(room)
    ).text()


LEVEL = level()


def changed(*path: str | int, value: Any) -> str:
    data = json.loads(level((box((3000, 0, 3000), (3500, 800, 3500)),)))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(data)


class TestNavigationContract(EnvironmentContract):
    env_type = NavigationEnv
    settings = ({}, {"horizon": 6, "min_steps": 2, "max_steps": 5, "image_format": "png"})
    actions = tuple((name, None) for name in ACTIONS)
    answers: ClassVar = {name: (name, None) for name in ACTIONS}
    garbage = ("", "moveahead moveahead", "moveahead, lookup", "move ahead", "forward", "go moveahead", "{}", "0")
    bad_states: ClassVar = {
        "": "not JSON",
        "[" * 100_000: "not JSON",
        "[]": "object",
        "{}": "backend",
        '"' + "x" * 1_000_001 + '"': "at most",
        changed("backend", value="unity"): "'unity'",
        changed("backend", value="thor"): "room is",
        changed("goal", value=1): "goal",
        changed("scene", value=""): "scene",
        changed("agent", "rotation", value=45): "rotation",
        changed("agent", "horizon", value=90): "horizon",
        changed("agent", "position", "x", value=1.00001): "millimetres",
        changed("agent", "position", "x", value=float("inf")): "number",
        changed("agent", "position", "x", value=True): "number",
        changed("agent", "position", "x", value=7.0): "outside",
        changed("agent", "position", "y", value=2.0): "outside",
        changed("target", "id", value="Pear|1"): "not among",
        changed("room", "size", "x", value=0.5): "at least 1000",
        changed("room", "objects", value={}): "list",
        changed("room", "objects", 0, "parts", value=[]): "at least one part",
        changed("room", "objects", 0, "parts", 0, "max", value=[0, 0]): "three",
        changed("room", "objects", 0, "parts", 0, "max", value=[0, 0, 0]): "below",
        changed("room", "objects", 0, "parts", 0, "colour", value="red"): "hex",
        changed("room", "objects", 0, "parts", 0, "shape", value="torus"): "'torus'",
        changed("room", "floor", "surface", value="lava"): "'lava'",
    }
    equal_states = ((LEVEL, json.dumps(json.loads(LEVEL), indent=1)), (LEVEL, LEVEL.replace('"x":1.0,', '"x":1,')))
    bad_settings = (
        ({"horizon": 0}, "horizon"),
        ({"min_steps": 9, "max_steps": 5}, "min_steps=9"),
        ({"horizon": 3}, "horizon=3"),
        ({"image_format": "gif"}, "image_format"),
    )
    info_keys = frozenset({"moved", "last_action_success", "action_is_valid", "dist", "remaining_turns", "success"})
    reward_range = (-0.1, 9.9)
    seeds = (0, 1)
    gym_id = "pivot/Navigation-v0"


def play(text: str, *actions: str) -> tuple[NavigationEnv, list[dict[str, Any]]]:
    env = NavigationEnv()
    env.draw_frames = False
    env.reset(options={"state": text})
    return env, [env.step(env.encode_action(action))[4] for action in actions]


def place(env: NavigationEnv) -> tuple[float, float, float, float]:
    pose = env.state.pose
    return pose.x, pose.z, pose.rotation, pose.horizon


def test_an_unusable_reply_is_logged_as_such() -> None:
    _, [info] = play(LEVEL, "invalid")
    assert info == {
        "moved": False, "last_action_success": False, "action_is_valid": False, "dist": 4.5, "remaining_turns": 24,
        "success": False,
    }  # fmt: skip


def test_success_is_exact_at_one_and_a_half_metres() -> None:
    env, infos = play(level(start=(3.0, 1.0), rotation=90), "moveahead", "moveahead")
    assert [info["dist"] for info in infos] == [2.0, 1.5]
    assert [info["success"] for info in infos] == [False, True]
    with pytest.raises(Exception, match="over"):
        env.step(0)


def test_exactly_one_and_a_half_metres_is_a_success() -> None:
    """With floats in metres, a third of the positions would be slightly farther."""
    rng = random.Random(22)
    for _ in range(500):
        x, z = rng.randint(0, 5000), rng.randint(0, 5000)
        dx, dz = rng.choice(((900, 1200), (1200, -900), (0, 1500), (-420, 1440)))
        for further, near in ((0, True), (1, False)):
            target = Target("A", "A", (x + dx) / 1000, 0.9, (z + dz + (further if dz > 0 else -further)) / 1000)
            state = NavigationState("embedded", "room", Pose(x / 1000, 0.9, z / 1000, 0, 0), target, "{}")
            assert (state.distance() <= 1.5) == near


coordinates = st.integers(0, 60).map(lambda n: 100 * n)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    x, z, y = draw(coordinates), draw(coordinates), draw(st.sampled_from([0, 40, 500, 1790, 1800]))
    wide, deep, tall = (
        draw(st.integers(1, 12)) * 100,
        draw(st.integers(1, 12)) * 100,
        draw(st.sampled_from([10, 50, 60, 700])),
    )
    return box((x, y, z), (x + wide, y + tall, z + deep))


def swept_way_is_free(room: Room, x: Fraction, z: Fraction, dx: int, dz: int) -> bool:
    """The rule again, by sampling the way in exact fractions: the agent's square at 51 places on it."""
    for n in range(51):
        cx, cz = x + dx * Fraction(n, 100), z + dz * Fraction(n, 100)
        west, east, south, north = (1000 * edge for c in (cx, cz) for edge in (c - Fraction(1, 5), c + Fraction(1, 5)))
        if west < 0 or south < 0 or east > room.size[0] or north > room.size[2]:
            return False
        for part in (part for thing in room.objects for part in thing.parts):
            tall = part.low[1] < 1800 and part.high[1] > 50
            beside = east <= part.low[0] or west >= part.high[0]
            if tall and not (beside or north <= part.low[2] or south >= part.high[2]):
                return False
    return True


@settings(max_examples=100, deadline=None)
@given(
    st.lists(parts(), max_size=6),
    coordinates,
    coordinates,
    st.sampled_from([0, 90, 180, 270]),
    st.sampled_from(ACTIONS[:4]),
)
def test_blocked_moves_agree_with_a_second_implementation(
    solids: list[Part], x: int, z: int, rotation: int, action: str
) -> None:
    room = parse_room(json.dumps(json.loads(level(tuple(solids)))["room"], sort_keys=True, separators=(",", ":")))
    dx, dz = direction(action, rotation)
    arrived = Floor(room).step((x, z), (dx, dz))
    free = swept_way_is_free(room, Fraction(x, 1000), Fraction(z, 1000), dx, dz)
    assert arrived == ((x + 500 * dx, z + 500 * dz) if free else None)


@settings(max_examples=40, deadline=None)
@given(st.lists(parts(), max_size=6), st.lists(st.sampled_from([*ACTIONS, "invalid"]), min_size=1, max_size=24))
def test_the_solver_walks_like_the_environment(solids: list[Part], actions: list[str]) -> None:
    """The solver has its own rules: poses, rejected actions, metres and exact turns must be the environment's."""
    text = level(tuple(solids), start=(3.0, 3.0), target=(0.5, 0.5), rotation=90)
    env = NavigationEnv()
    env.draw_frames = False
    env.reset(options={"state": text})
    ours = Floor(parse_room(json.dumps(json.loads(text)["room"], sort_keys=True, separators=(",", ":"))))
    theirs = read_state(text, 1.5).room
    assert theirs is not None
    pose = SolverPose(0, 0, 90, 0)
    for action in actions:
        *_, terminated, _, info = env.step(env.encode_action(action))
        pose, done = theirs.after(pose, action)
        here = env.state.pose
        cell = round(1000 * here.x), round(1000 * here.z)
        assert cell == (3000 + 500 * pose.column, 3000 + 500 * pose.row)
        assert (here.rotation, here.horizon) == (pose.yaw, pose.horizon)
        assert done == info["last_action_success"]
        assert theirs.distance(pose) == info["dist"]
        assert theirs.turns(pose) == fewest_steps(ours.reachable(cell), (500, 500))
        assert (theirs.turns(pose) == 0) == terminated
        if terminated:
            break


def test_the_player_knows_the_exact_way() -> None:
    for seed in range(4):
        state = parse_state(NavigationEnv.make_task(NavigationConfig(), seed).initial_state)
        assert state.room_json is not None
        floor = Floor(parse_room(state.room_json))
        start = round(1000 * state.pose.x), round(1000 * state.pose.z)
        target = round(1000 * state.target.x), round(1000 * state.target.z)
        ways = steps_to_target(floor, start, target)
        for cell in list(ways)[::7]:
            assert ways[cell] == fewest_steps(floor.reachable(cell), target)


def test_a_refused_option_is_named() -> None:
    with pytest.raises(ConfigError, match="place"):
        NavigationEnv().reset(options={"place": 1})
    with pytest.raises(LevelError, match="snapshot"):
        NavigationEnv().restore(b"{}")


def test_lossless_frames_are_the_renderers_own() -> None:
    png, jpeg = NavigationEnv(NavigationConfig(image_format="png")), NavigationEnv()
    one, _ = png.reset(options={"state": LEVEL})
    other, _ = jpeg.reset(options={"state": LEVEL})
    assert png.encode_frame(one)[0] == "png"
    assert jpeg.encode_frame(other)[0] == "jpeg"
    assert 0 < np.abs(one.astype(int) - other).mean() < 4


def test_an_agent_that_trembles_has_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    env = NavigationEnv()
    env.reset(options={"state": LEVEL})

    class Trembling:
        state = env.state

        def act(self, _: str) -> bool:
            pose = self.state.pose
            self.state = self.state.at(replace(pose, x=pose.x + 0.0005))
            return False

    monkeypatch.setattr(env, "_world", Trembling())
    assert env._take(0) == (False, False)
