"""The child process that holds ManiSkill, with a stand-in that hangs, dies and answers nonsense. Needs no ManiSkill."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pivot.core.errors import ConfigError, LevelError, SimulatorError
from pivot.environments.primitiveskill import environment
from pivot.environments.primitiveskill.actions import Primitive
from pivot.environments.primitiveskill.maniskill.process import START_SECONDS, STEP_SECONDS, ManiSkillProcess
from pivot.environments.primitiveskill.maniskill.world import ManiSkillWorld
from pivot.environments.primitiveskill.prompt import PROMPT
from pivot.environments.primitiveskill.state import EMBEDDED, MANISKILL
from pivot.rollouts.base import Status, StopReason
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.environments.primitiveskill.maniskill_parity import level

STAND_IN = Path(__file__).with_name("maniskill_stand_in.py")
PICK = Primitive("pick", (1, 2, 20))
Start = Callable[[str], ManiSkillProcess]


@pytest.fixture(autouse=True)
def deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long enough for an interpreter to start on a busy machine."""
    monkeypatch.setenv(STEP_SECONDS, "300")
    monkeypatch.setenv(START_SECONDS, "300")
    monkeypatch.setattr(ManiSkillWorld, "has_started", False)  # each test begins as in a fresh interpreter


@pytest.fixture
def started() -> list[ManiSkillProcess]:
    return []


@pytest.fixture
def start_as(
    tmp_path: Path, started: list[ManiSkillProcess], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Start]:
    """Return the command that starts a stand-in in a mode; steps of one that hangs time out after a second."""

    def of(mode: str) -> Start:
        if mode.endswith(("-hang", "-huge")):
            monkeypatch.setenv(STEP_SECONDS, "1")

        def start(physics: str) -> ManiSkillProcess:
            started.append(ManiSkillProcess(physics, [sys.executable, "-S", str(STAND_IN), mode, str(tmp_path)]))
            return started[-1]

        return start

    return of


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_healthy_process(start_as: Callable[[str], Start], started: list[ManiSkillProcess]) -> None:
    world = ManiSkillWorld(start=start_as("well"))
    state = level("align", 1, MANISKILL)
    world.load(state)
    assert world.scene == state.scene
    key = world.frame_key()
    frame = world.draw()
    assert frame.shape == (420, 420, 3)
    assert world.draw() is frame
    world.execute(PICK)
    assert world.scene.positions["red cube"][0] == state.scene.positions["red cube"][0] + 1
    assert world.frame_key() != key
    world.load(state)
    assert (world.scene, world.frame_key()) == (state.scene, key)
    world.close()
    world.close()
    assert not alive(started[0].pid)


FAULTS = ("die", "text", "list", "half", "failed")
ALWAYS = ["load-die", *(f"execute-{how}" for how in (*FAULTS, "hang", "huge")), "draw-half"]
LATER = [*(f"load-{how}" for how in (*FAULTS, "hang", "huge")), *(f"draw-{how}" for how in FAULTS)]


@pytest.mark.parametrize(
    "mode", [*ALWAYS, *(pytest.param(mode, marks=pytest.mark.long) for mode in LATER if mode not in ALWAYS)]
)
def test_misbehaving_again_and_again_is_an_error_and_leaves_no_process(
    start_as: Callable[[str], Start], started: list[ManiSkillProcess], mode: str
) -> None:
    """Catch a fault that counts as an answer, and a process that stays; a first picture has the time of a start."""
    world = ManiSkillWorld(start=start_as(mode))
    begin = time.monotonic()
    with pytest.raises(SimulatorError, match="given up after 2 restarts") as error:
        world.load(level("align", 1, MANISKILL))
        world.execute(PICK)
        world.draw()
    assert time.monotonic() - begin < 200
    assert len(started) == 3
    assert not any(alive(process.pid) for process in started)
    if mode.endswith("die"):
        assert "status 3" in str(error.value)
        assert "Segmentation of something" in str(error.value)


@pytest.mark.parametrize("how", ["empty", "nan", "other"])
def test_a_scene_that_cannot_be(start_as: Callable[[str], Start], how: str) -> None:
    world = ManiSkillWorld(start=start_as(f"execute-{how}"))
    world.load(level("align", 1, MANISKILL))
    with pytest.raises(SimulatorError, match="not a scene"):
        world.execute(PICK)


def test_a_picture_that_cannot_be(start_as: Callable[[str], Start]) -> None:
    world = ManiSkillWorld(start=start_as("small"))
    world.load(level("align", 1, MANISKILL))
    with pytest.raises(SimulatorError, match="expected 420x420"):
        world.draw()


@pytest.mark.parametrize("mode", ["once-execute-die", "once-execute-hang", "once-load-text", "once-draw-half"])
def test_another_process_goes_on_where_one_died(
    start_as: Callable[[str], Start], started: list[ManiSkillProcess], mode: str
) -> None:
    world, state = ManiSkillWorld(start=start_as(mode)), level("align", 1, MANISKILL)
    world.load(state)
    for number in range(3):
        world.execute(PICK)
        assert world.scene.positions["red cube"][0] == state.scene.positions["red cube"][0] + number + 1
    world.draw()
    assert len(started) == 2
    world.close()


def test_a_process_that_ends_elsewhere_is_not_gone_on_with(start_as: Callable[[str], Start]) -> None:
    world = ManiSkillWorld(start=start_as("drift"))
    world.load(level("align", 1, MANISKILL))
    world.execute(PICK)
    with pytest.raises(SimulatorError, match="when re-executed"):
        world.execute(PICK)


def test_what_is_missing_is_said(start_as: Callable[[str], Start]) -> None:
    with pytest.raises(ConfigError, match=r"pip install 'pivot-vlm\[maniskill\]'"):
        ManiSkillWorld(start=start_as("start-missing")).check()
    with pytest.raises(ConfigError, match=r"Vulkan.*mesa-vulkan-drivers"):
        ManiSkillWorld(start=start_as("start-failed")).check()
    with pytest.raises(ConfigError, match="does not work"):
        ManiSkillWorld(start=start_as("execute-die")).check()
    with pytest.raises(ConfigError, match="grasped nothing"):
        ManiSkillWorld(start=start_as("well")).check()
    with pytest.raises(ConfigError, match="flat"):
        ManiSkillWorld(start=start_as("flat")).check()


def test_a_failed_restart_leaves_the_episode_pending_and_the_run_alive(
    start_as: Callable[[str], Start], started: list[ManiSkillProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process dies in the second turn, and no other process ever starts."""
    start = start_as("gone")
    monkeypatch.setattr(
        environment, "ManiSkillWorld", lambda physics, camera: ManiSkillWorld(physics, start, camera=camera)
    )
    config = environment.PrimitiveSkillConfig(backend=MANISKILL, maniskill_version="3.0.1", tasks=("align",))
    task = environment.PrimitiveSkillEnv.make_task(config, 2)
    (rollouts,) = roll_out_tasks(environment.PrimitiveSkillEnv, config, [task], ScriptedPolicy(), 3, prompt=PROMPT)
    assert [(each.status, each.stop_reason) for each in rollouts.episodes] == [(Status.ERROR, StopReason.ENV_ERROR)] * 3
    assert [len(each.steps) > 0 for each in rollouts.episodes] == [True, False, False]
    for each in rollouts.episodes:
        assert str(each.error).startswith("SimulatorError: given up after 2 restarts: ManiSkill failed at 'start'")
    assert len(started) == 1


def test_without_maniskill_the_real_child_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mani_skill.py").write_text("raise ImportError('there is none')\n")
    (tmp_path / "sapien.py").write_text("raise ImportError('there is none')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(START_SECONDS, "60")
    with pytest.raises(ConfigError, match=r"pip install 'pivot-vlm\[maniskill\]'"):
        ManiSkillWorld().check()


def test_states_of_another_backend_are_refused(start_as: Callable[[str], Start]) -> None:
    world = ManiSkillWorld(start=start_as("well"))
    with pytest.raises(LevelError, match="embedded"):
        world.load(level("align", 1, EMBEDDED))
    with pytest.raises(RuntimeError, match="no state"):
        _ = world.scene
