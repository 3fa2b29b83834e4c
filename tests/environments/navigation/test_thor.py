"""The AI2-THOR backend against real event classes and a controller that hangs, dies, raises and answers partially."""

import math

import numpy as np
import pytest

pytest.importorskip("ai2thor", reason="ai2thor is not installed; make dev installs it")

from pivot.core.errors import ConfigError, LevelError, SimulatorError
from pivot.environments.navigation.environment import NavigationConfig, NavigationEnv
from pivot.environments.navigation.state import NavigationState, Pose, Target
from pivot.environments.navigation.thor.process import STEP_SECONDS, ThorProcess
from pivot.environments.navigation.thor.world import COMMANDS, ThorWorld
from pivot.environments.navigation.world import ACTIONS
from pivot.tests.environments.navigation import thor_stand_in as stand_in
from pivot.tests.environments.navigation.thor_stand_in import StandInUnity

START = NavigationState(
    backend="thor",
    scene="FloorPlan11",
    pose=Pose(-1.5, 0.9, -0.9, 90.0, 0.0),
    target=Target("Bread", "Bread|+01.30|+00.98|-01.53", 1.2998923063278198, 0.9787495732307434, -1.5326441526412964),
)
BEGIN = 2
"""Calls that a load takes: the scene and the pose."""


@pytest.fixture(autouse=True)
def never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each test as in a fresh interpreter."""
    monkeypatch.setattr(ThorWorld, "has_started", False)


def walk(world: ThorWorld, actions: list[str]) -> list[tuple[bool, Pose, bytes]]:
    return [(world.act(action), world.state.pose, world.draw().tobytes()) for action in actions]


WALK = ["moveahead", "moveahead", "rotateright", "moveleft", "lookdown", "moveback", "moveahead", "lookup"]


def undisturbed() -> list[tuple[bool, Pose, bytes]]:
    world = ThorWorld(StandInUnity())
    world.load(START)
    return walk(world, WALK)


# A controller without faults


def test_actions_are_sent_as_half_metres_and_degrees() -> None:
    assert set(COMMANDS) == set(ACTIONS)
    unity = StandInUnity()
    world = ThorWorld(unity)
    world.load(START)
    assert world.state == START
    assert [(worked, pose.x, pose.z) for worked, pose, _ in walk(world, ["moveahead", "moveleft", "moveback"])] == [
        (True, pytest.approx(-1.0, abs=1e-6), pytest.approx(-0.9, abs=1e-6)),
        (True, pytest.approx(-1.0, abs=1e-6), pytest.approx(-0.4, abs=1e-6)),
        (True, pytest.approx(-1.5, abs=1e-6), pytest.approx(-0.4, abs=1e-6)),
    ]
    assert [pose.rotation for _, pose, _ in walk(world, ["rotateright", "rotateleft", "rotateleft"])] == [180, 90, 0]
    tilts = [(worked, pose.horizon) for worked, pose, _ in walk(world, ["lookup", "lookup", "lookdown"])]
    assert tilts == [(True, -30), (False, -30), (True, 0)]
    assert unity.limits == {("start", 600), ("reset", 600), ("step", 60)}  # a scene takes as long as ten steps may
    assert len(unity.controllers) == 1


def test_loading_again_goes_back() -> None:
    world = ThorWorld(unity := StandInUnity())
    world.load(START)
    first = world.draw().tobytes()
    walk(world, WALK)
    world.load(START)
    assert (world.state, world.draw().tobytes()) == (START, first)
    assert len(unity.controllers) == 1
    world.close()
    assert unity.alive == 0
    world.load(START)
    assert len(unity.controllers) == 2


# Faults in the middle of an episode

RECOVERED = {
    "hang": stand_in.hang,
    "crash": stand_in.crash,
    "died": stand_in.died,
    "timed out": stand_in.timed_out,
    "broken pipe": stand_in.broken_pipe,
    "no position": stand_in.without("agent", "position"),
    "no x": stand_in.without("agent", "position", "x"),
    "no success": stand_in.without("lastActionSuccess"),
    "no agent": stand_in.without("agent"),
    "no horizon": stand_in.without("agent", "cameraHorizon"),
    "no frame": stand_in.with_frame(None),
    "small frame": stand_in.with_frame(np.zeros((300, 300, 3), np.uint8)),
    "float frame": stand_in.with_frame(np.zeros((255, 255, 3), np.float32)),
    "nan": stand_in.with_position(math.nan),
    "text": stand_in.with_position("here"),
    "nothing": lambda controller, what: object(),
}


@pytest.mark.parametrize("at", [0, 4, len(WALK) - 1])
@pytest.mark.parametrize("fault", list(RECOVERED))
def test_an_episode_goes_on_as_if_nothing_had_happened(fault: str, at: int) -> None:
    expected = undisturbed()
    unity = StandInUnity({BEGIN + at: RECOVERED[fault]})
    world = ThorWorld(unity)
    world.load(START)
    assert walk(world, WALK) == expected
    assert len(unity.controllers) == 2
    assert unity.alive == 1  # the broken process was ended


# Faults at the beginning


def test_restarts_are_counted_for_an_episode() -> None:
    """An episode that breaks its simulator again and again takes a bounded time."""
    unity = StandInUnity()
    world = ThorWorld(unity)
    world.load(START)
    walk(world, WALK[:2])
    for again in range(2):
        unity.faults = {unity.calls: stand_in.died}
        assert len(walk(world, ["rotateright"])) == 1
        assert len(unity.controllers) == again + 2
    unity.faults = {unity.calls: stand_in.died}
    with pytest.raises(SimulatorError, match="given up after 2 restarts"):
        world.act("rotateright")
    world.load(START)
    unity.faults = {unity.calls: stand_in.died}
    assert walk(world, WALK) == undisturbed()  # the next episode has its own


def test_a_state_that_cannot_be_loaded_leaves_the_world_as_it_was() -> None:
    expected = undisturbed()
    world = ThorWorld(unity := StandInUnity())
    world.load(START)
    before = walk(world, WALK[:4])
    for scene, x in (("FloorPlan99", 0.0), ("FloorPlan12", 5.0)):  # the second one after the scene was changed
        with pytest.raises(LevelError):
            world.load(NavigationState("thor", scene, Pose(x, 0.9, 0.0, 0.0, 0.0), START.target))
    assert (world.state.pose, world.draw().tobytes()) == before[-1][1:]
    assert before + walk(world, WALK[4:]) == expected
    assert len(unity.controllers) == 1


def test_an_unknown_scene_is_a_bad_level_and_no_fault() -> None:
    unity = StandInUnity()
    world = ThorWorld(unity)
    with pytest.raises(LevelError, match="FloorPlan99"):
        world.load(NavigationState("thor", "FloorPlan99", START.pose, START.target))
    with pytest.raises(LevelError, match="cannot stand"):
        world.load(NavigationState("thor", "FloorPlan11", Pose(5.0, 0.9, 0.0, 0.0, 0.0), START.target))
    with pytest.raises(LevelError, match="embedded"):
        world.load(NavigationState("embedded", "room", START.pose, START.target))
    assert len(unity.controllers) == 1
    world.load(START)
    assert world.state == START


def test_a_teleport_to_another_place_is_not_accepted() -> None:
    unity = StandInUnity({1: stand_in.with_position(1.0)})
    world = ThorWorld(unity)
    world.load(START)
    assert world.state == START
    assert len(unity.controllers) == 2


def test_deadlines_have_to_be_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv(STEP_SECONDS, wrong)
        with pytest.raises(ConfigError, match=STEP_SECONDS):
            ThorProcess()


# The check before a run


def test_a_sound_simulator_passes_the_check() -> None:
    unity = StandInUnity()
    assert ThorWorld(unity).check().startswith("AI2-THOR draws 255x255 frames")
    assert unity.alive == 0


@pytest.mark.parametrize(
    ("unity", "words"),
    [
        (StandInUnity(starts=[stand_in.no_build]), "no build exists"),
        (StandInUnity(starts=[stand_in.hang]), "did not answer"),
        (StandInUnity({0: stand_in.hang}), "did not answer 'Pass'"),
        (StandInUnity({0: stand_in.without("agent")}), "lacks 'agent'"),
        (StandInUnity({0: stand_in.with_frame(np.zeros((255, 255, 3), np.uint8))}), "flat colour"),
    ],
)
def test_an_unfit_simulator_is_found_before_a_run(unity: StandInUnity, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ThorWorld(unity).check()
    assert unity.alive == 0


# The environment around it


@pytest.fixture
def unity(monkeypatch: pytest.MonkeyPatch) -> StandInUnity:
    made = StandInUnity()
    monkeypatch.setattr("pivot.environments.navigation.environment.ThorWorld", lambda: ThorWorld(made))
    return made


def test_an_environment_walks_and_returns_in_ai2thor(unity: StandInUnity) -> None:
    env = NavigationEnv(NavigationConfig(backend="thor", image_format="png"))
    frame, info = env.reset(options={"state": START.text()})
    assert frame.shape == (255, 255, 3)
    assert info["dist"] == pytest.approx(2.8705, abs=1e-4)
    seen = []
    for name in ("moveahead", "invalid", "moveback", "moveback", "moveback", "rotateleft"):
        frame, reward, terminated, truncated, info = env.step(env.encode_action(name))
        seen.append([info["moved"], info["last_action_success"], info["action_is_valid"]])
        assert (reward, terminated, truncated) == (-0.1, False, False)
    assert seen[0] == seen[2] == seen[3] == [True] * 3
    assert [seen[1], *seen[4:]] == [[False, False, False], [False, False, True], [False, True, True]]
    snapshot, text = env.snapshot(), env.state_text()
    env.step(env.encode_action("moveahead"))
    again = env.restore(snapshot)
    assert np.array_equal(again, frame)
    assert env.state_text() == text
    with pytest.raises(LevelError, match="backend 'embedded'"):
        env.reset(options={"state": NavigationEnv.make_task(NavigationConfig(), 1).initial_state})
    with pytest.raises(LevelError, match="no embedded room"):
        NavigationEnv().reset(options={"state": START.text()})
    env.close()
    assert unity.alive == 0
