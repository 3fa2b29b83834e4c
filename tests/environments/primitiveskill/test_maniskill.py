"""The real ManiSkill against the embedded table: the expert, equal outcomes, exact rollback, and pictures.

``make test`` runs a small part, ``make test WHAT=maniskill`` (PIVOT_MANISKILL_ALL=1) the sizes that are promised.
"""

import importlib.util
import os
import random
import sys
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from pivot.core.errors import ConfigError
from pivot.environments.primitiveskill.actions import Primitive, read_primitives
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig, PrimitiveSkillEnv
from pivot.environments.primitiveskill.expert import expert_action
from pivot.environments.primitiveskill.maniskill.world import ManiSkillWorld
from pivot.environments.primitiveskill.state import EMBEDDED, MANISKILL, SkillState
from pivot.environments.primitiveskill.tasks import KINDS, TARGETS, Point, Scene, reached
from pivot.environments.primitiveskill.world import CAMERAS, Camera
from pivot.tests.environments.primitiveskill import maniskill_parity as parity

pytestmark = [
    pytest.mark.maniskill,
    pytest.mark.skipif(
        importlib.util.find_spec("mani_skill") is None, reason="needs ManiSkill; use make test WHAT=maniskill"
    ),
]
ALL = os.environ.get("PIVOT_MANISKILL_ALL") == "1"
SEEDS, SEQUENCES, ROLLBACKS = (50, 200, 20) if ALL else (10, 10, 2)
EQUAL = 0.98
"""Least share of sequences with equal outcomes."""
TURNS = 6
full = pytest.mark.skipif(not ALL, reason="starts another process; make test WHAT=maniskill runs it")


@pytest.fixture(scope="module")
def simulator() -> Iterator[ManiSkillWorld]:
    world = ManiSkillWorld()
    yield world
    world.close()


@pytest.fixture(scope="module")
def env(simulator: ManiSkillWorld) -> Iterator[PrimitiveSkillEnv]:
    made = PrimitiveSkillEnv(PrimitiveSkillConfig(backend="maniskill", image_format="png"))
    made._world = simulator  # one process serves all tests
    yield made


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.timeout(3000)
def test_the_expert_solves_every_seed(simulator: ManiSkillWorld, task: str) -> None:
    """Catch a level that no one can solve in the real simulator, or a skill that misses what its plan names."""
    kind, unsolved = KINDS[task], []
    for seed in range(SEEDS):
        simulator.load(parity.level(task, seed, MANISKILL))
        for _ in range(TURNS):
            for primitive in read_primitives(expert_action(kind, simulator.scene))[0]:
                simulator.execute(primitive.clipped(kind.workspace))
                if reached(kind, simulator.scene):
                    break
            if reached(kind, simulator.scene):
                break
        else:
            unsolved.append((seed, simulator.scene))
    assert not unsolved


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.timeout(3000)
def test_equal_primitives_have_equal_outcomes(simulator: ManiSkillWorld, task: str) -> None:
    """Catch a rule of the tabletop that the real simulator does not follow."""
    report = parity.measure(task, range(SEQUENCES), simulator)
    sys.stdout.write(f"\n{task}: {report.share:.1%} of {SEQUENCES} equal, {report.primitives} commands\n")
    sys.stdout.writelines(f"{difference}\n" for difference in report.differences)
    assert report.share >= EQUAL, "\n".join(report.differences)
    assert report.primitives > 2 * SEQUENCES
    assert report.succeeded > 0.3 * SEQUENCES


def test_a_planted_difference_is_found(simulator: ManiSkillWorld) -> None:
    """One level differs in the simulator: the first successful pick shows it."""
    run = parity.disturbed_run("stack", 0)
    x, y, z = run.start.scene.positions["red cube"]
    pick = Primitive("pick", (round(x), round(y), round(z)))
    moved = {**run.start.scene.positions, "red cube": (-x, -y, z)}
    elsewhere = SkillState(MANISKILL, "stack", Scene(moved, None, None), run.start.achieved)

    class Misled(ManiSkillWorld):
        def load(self, state: SkillState) -> None:
            super().load(elsewhere)

    misled = Misled()
    misled._process = simulator._process
    _, _, index = parity.compare(parity.Run(run.start, ((pick,),)), parity.TabletopWorld(), misled)
    assert index == 0


@pytest.mark.parametrize("number", range(ROLLBACKS))
@pytest.mark.timeout(600)
def test_going_back_is_exact(env: PrimitiveSkillEnv, number: int) -> None:
    """From every snapshot of an episode the same actions lead to the same states, rewards and pixels."""
    task = list(KINDS)[number % len(KINDS)]
    rng = random.Random(f"rollback-{number}")
    start = parity.level(task, 1000 + number, MANISKILL)
    frame, _ = env.reset(options={"state": start.text()})
    snapshots, records, actions = [env.snapshot()], [(frame.tobytes(), env.state_text(), 0.0)], []
    for _ in range(TURNS if ALL else 4):
        action = "|".join(map(str, parity._disturbed_turn(rng, start.kind, env.state.scene, 15)))
        frame, reward, success, truncated, _ = env.step(action)
        actions.append(action)
        records.append((frame.tobytes(), env.state_text(), reward))
        snapshots.append(env.snapshot())
        if success or truncated:
            break
    assert len({pixels for pixels, _, _ in records}) > 1
    for back in rng.sample(range(len(snapshots)), len(snapshots)):
        frame = env.restore(snapshots[back])
        assert (frame.tobytes(), env.state_text()) == records[back][:2]
        for action, record in zip(actions[back:], records[back + 1 :], strict=True):
            frame, reward, *_ = env.step(action)
            assert (frame.tobytes(), env.state_text(), reward) == record


@full
def test_another_process_ends_at_the_same_place(simulator: ManiSkillWorld) -> None:
    run = parity.disturbed_run("stack", 7)
    start = SkillState(MANISKILL, "stack", run.start.scene, run.start.achieved)
    other = ManiSkillWorld()
    try:
        here, there = (
            ([moment.scene for moment in parity.follow(world, start, run.primitives)], world.draw().tobytes())
            for world in (simulator, other)
        )
    finally:
        other.close()
    assert here == there


def free_spot(state: SkillState) -> tuple[int, int]:
    """Return x and y that are far from every thing."""
    spots = [(x, y) for x in (-80, 20, 120) for y in (-180, -60, 60, 180)]
    places = state.scene.positions.values()
    return max(spots, key=lambda spot: min(abs(spot[0] - at[0]) + abs(spot[1] - at[1]) for at in places))


@pytest.mark.parametrize(("dx", "dz"), [(0, 0), (9, -6), (-12, 10)])
def test_the_tool_arrives_where_it_was_sent(simulator: ManiSkillWorld, dx: int, dz: int) -> None:
    """A cube grasped off its middle in x and z keeps this offset from the hand, and has it after a place."""
    state = parity.level("stack", 3, MANISKILL)
    simulator.load(state)
    kind, (x, y, z) = state.kind, state.scene.positions["red cube"]
    pick = Primitive("pick", (round(x) + dx, round(y), round(z) + dz))
    off = pick.arguments[0] - x
    simulator.execute(pick)
    assert simulator.scene.in_hand == "red cube"
    assert simulator.scene.positions["red cube"] == pytest.approx(
        (kind.home[0] - off, kind.home[1], kind.home[2] - dz), abs=0.4
    )
    there = free_spot(state)
    simulator.execute(Primitive("place", (*there, 20 + max(dz, 0) + 5)))
    assert simulator.scene.positions["red cube"] == pytest.approx((there[0] - off, there[1], 20), abs=0.6)


def test_a_held_state_can_be_loaded(simulator: ManiSkillWorld) -> None:
    state = parity.level("stack", 5, MANISKILL)
    in_hand = {**state.scene.positions, "purple cube": state.kind.home}
    simulator.load(SkillState(MANISKILL, "stack", Scene(in_hand, "purple cube", None), (False, False, True)))
    there = free_spot(state)
    simulator.execute(Primitive("place", (*there, 30)))
    assert simulator.scene.in_hand is None
    assert simulator.scene.positions["purple cube"] == pytest.approx((*there, 20), abs=1)


HUES = {"red cube": 0, "green cube": 1, "apple": 0}
"""The channel that is strongest in the picture of a thing."""


def pixel_of(point: Point, camera: Camera) -> tuple[int, int]:
    """Return row and column at which a camera of the contract sees a point."""
    eye, to = np.array(camera.eye), np.array(camera.looked_at)
    ahead = (to - eye) / np.linalg.norm(to - eye)
    right = np.cross(ahead, [0, 0, 1])
    right /= np.linalg.norm(right)
    up = np.cross(right, ahead)
    offset = np.array(point) - eye
    depth, middle = offset @ ahead, camera.side / 2
    scale = middle / np.tan(camera.field_of_view / 2)
    return round(middle - scale * (offset @ up) / depth), round(middle + scale * (offset @ right) / depth)


def well_apart(state: SkillState) -> bool:
    """Return whether the objects are far enough apart that none hides another in the picture."""
    columns = sorted(pixel_of(at, CAMERAS["near"][state.task])[1] for at in state.scene.positions.values())
    return all(right - left > 15 for left, right in pairwise(columns))


@pytest.mark.parametrize("task", ["align", "place", "drawer"])
def test_both_pictures_show_a_thing_where_it_is(simulator: ManiSkillWorld, task: str) -> None:
    state = next(state for seed in range(99) if well_apart(state := parity.level(task, seed, MANISKILL)))
    simulator.load(state)
    table = parity.TabletopWorld()
    table.load(SkillState(EMBEDDED, task, state.scene, state.achieved))
    for frame in (simulator.draw(), table.draw()):
        for name, at in state.scene.positions.items():
            row, column = pixel_of(at, CAMERAS["near"][task])
            colour = frame[row, column].astype(int)
            assert int(colour.argmax()) == HUES[name], (name, colour)
            assert colour.max() - np.median(colour) > 25, (name, colour)
    if task == "place":
        pixels = [tuple(simulator.draw()[pixel_of(at, CAMERAS["near"][task])]) for at in TARGETS.values()]
        assert all(np.abs(np.subtract(one, other, dtype=int)).max() > 40 for one, other in pairwise(pixels))


@full
def test_the_check() -> None:
    assert "draws 420x420 frames" in ManiSkillWorld().check()


def test_without_a_driver_the_message_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.setenv(name, "/nonexistent.json")
    monkeypatch.setattr(ManiSkillWorld, "has_started", False)  # one that never started is not started again
    with pytest.raises(ConfigError, match=r"Vulkan.*mesa-vulkan-drivers"):
        ManiSkillWorld().check()
