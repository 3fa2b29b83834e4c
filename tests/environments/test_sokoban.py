"""Sokoban: the contract, the rules by hand, the generator and the pictures."""

import hashlib
import time
from typing import Any, ClassVar

import pytest
from pivot.core.errors import GenerationError, LevelError
from pivot.core.identity import digest
from pivot.environments import grid
from pivot.environments.sokoban.environment import SokobanConfig, SokobanEnv
from pivot.environments.sokoban.sprites import tiles
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.testing import EnvironmentContract

LEVEL = "######\n#@   #\n# $. #\n#   $#\n#  . #\n######"
GOLDEN_FRAME = "b3651af5ffc6dd7a"
GOLDEN_TILES = "8ae9d19dbe3bd8d0"
TUBE = "######\n#@$. #\n######"


class TestSokobanContract(EnvironmentContract):
    unmoved_is_unchanged = True
    env_type = SokobanEnv
    settings = (
        {},
        {"rows": 8, "cols": 9, "boxes": 2, "min_solution": 3, "max_solution": 12, "horizon": 20, "cell": 16},
        {"rows": 13, "cols": 13, "boxes": 3, "horizon": 15, "cell": 16},
    )
    actions = tuple((name, None) for name in grid.ACTIONS)
    answers: ClassVar = {name: (name, None) for name in grid.ACTIONS}
    garbage = ("", "push up", "up up", "up, left", "up|left", "north", "1", "<b>up</b>", "u" * 65536, "up\x00")
    bad_states: ClassVar = {
        "": "empty",
        "\n \n": "empty",
        "-_\n-": "empty",
        "####\n#@x#\n####": "'x' in row 1, column 2",
        LEVEL.replace("@", " "): "0 players",
        LEVEL.replace(" $.", "@$."): "2 players",
        LEVEL.replace("$", " "): "no box",
        LEVEL.replace(".", " "): "2 boxes but 0 targets",
        LEVEL[:-6] + "# ####": "open at row 5, column 1",
        TUBE.replace("@$. #", "@$. "): "open at row 1, column 5",
        TUBE + "\n  $.": "open at row 3",
        ("#" * 70 + "\n") * 3: "3x70",
        "#" * 100_000: "100000 characters",
    }
    equal_states = (
        (LEVEL, f"\n\n{LEVEL}\n"),
        (LEVEL, "\n".join(f"   {line}  " for line in LEVEL.split("\n"))),
        (LEVEL, LEVEL.replace(" ", "-")),
        (LEVEL, f"---\n{LEVEL}\n_"),
        (LEVEL, LEVEL.replace("\n", "\r\n")),
        ("#####\n#@$.#\n####", "#####\n#@$.#\n#### "),
    )
    bad_settings = (
        ({"horizon": 0}, "horizon"),
        ({"cell": 15}, "cell"),
        ({"boxes": 0}, "boxes"),
        ({"rows": 2}, "rows"),
        ({"min_solution": 6, "max_solution": 5}, "min_solution=6 is larger than max_solution=5"),
        ({"rows": 4, "cols": 4, "boxes": 3}, "a 4x4 room has 4 cells inside its walls, too few for boxes=3"),
    )
    info_keys = frozenset({"moved", "remaining_turns", "success"})
    reward_range = (-1.1, 10.9)
    gym_id = "pivot/Sokoban-v0"


def play(
    state: str, *names: str, horizon: int = 9
) -> tuple[SokobanEnv, list[tuple[float, bool, bool, dict[str, Any]]]]:
    env = SokobanEnv(SokobanConfig(horizon=horizon))
    env.reset(options={"state": state})
    return env, [env.step(env.encode_action(name))[1:] for name in names]


def test_pushing_on_and_off_and_solving_by_hand() -> None:
    env, steps = play("#######\n#@$.$.#\n#######", "right", "right", "left", "invalid")
    assert [step[0] for step in steps] == [-0.1 + 1.0, -0.1, -0.1, -0.1]
    assert [step[3]["moved"] for step in steps] == [True, False, True, False]
    assert env.state_text() == "#######\n#@ *$.#\n#######"

    env, steps = play("########\n#@*.$. #\n########", "right", "right")
    assert [step[0] for step in steps] == [-0.1, -0.1], "from target to target; then against a box"
    assert env.state_text() == "########\n# +*$. #\n########"

    env, steps = play("#######\n#@* . #\n# $.  #\n#######", "right", "right", "left", "left", "down", "right")
    assert [step[0] for step in steps] == [-0.1 - 1.0, -0.1 + 1.0, -0.1, -0.1, -0.1, -0.1 + 1.0 + 10.0]
    assert steps[-1][1:] == (True, False, {"moved": True, "remaining_turns": 3, "success": True})
    assert env.state_text() == "#######\n# . * #\n# @*  #\n#######"


def test_walls_and_second_boxes_stop_the_player() -> None:
    env, steps = play("#######\n#@$$..#\n#######", "right", "up", "left", "down")
    assert [(step[0], step[3]["moved"]) for step in steps] == [(-0.1, False)] * 4
    assert env.state_text() == "#######\n#@$$..#\n#######"


def test_a_turn_has_moved_if_one_of_its_moves_has() -> None:
    env = SokobanEnv(SokobanConfig(actions_per_turn=2))
    env.reset(options={"state": "######\n#@ $.#\n#    #\n######"})
    turns = [env.step(env.encode_action(turn))[-1]["moved"] for turn in ("down|down", "down|right", "down|down")]
    assert turns == [True, True, False]


def test_a_deadlocked_box_does_not_end_the_episode() -> None:
    _, steps = play("#####\n#@$ #\n# . #\n#####", "right", *["left"] * 8)
    assert not any(step[1] for step in steps)
    assert steps[-1][2]


def test_solving_at_the_last_turn_is_success_not_truncation() -> None:
    _, steps = play(TUBE, "right", horizon=1)
    assert steps == [(10.9, True, False, {"moved": True, "remaining_turns": 0, "success": True})]


def test_spare_targets_need_no_box() -> None:
    _, steps = play("#######\n#@$. .#\n#######", "right")
    assert steps[0][3]["success"]


def test_a_finished_state_can_be_shown_but_not_played() -> None:
    env, _ = play(TUBE, "right")
    frame, info = env.reset(options={"state": env.state_text()})
    assert info["success"]
    assert frame.shape == (96, 192, 3)
    with pytest.raises(Exception, match="reset"):
        env.step(0)


# --- the generator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 400),
        ({"rows": 8, "cols": 10, "boxes": 2, "min_solution": 6, "max_solution": 14}, 40),
        ({"rows": 10, "cols": 10, "boxes": 3, "min_solution": 4, "max_solution": 10}, 20),
        ({"rows": 13, "cols": 13, "boxes": 5, "min_solution": 2, "max_solution": 8}, 10),
        ({"rows": 3, "cols": 5, "max_solution": 1}, 5),
    ],
)
def test_generated_levels_have_what_was_asked_for(settings: dict[str, Any], count: int) -> None:
    config = SokobanConfig(**settings)
    env, solver, solutions = SokobanEnv(config), SokobanSolver(max_states=config.max_states), set()
    for seed in range(count):
        level = SokobanEnv.make_task(config, seed).initial_state
        frame, info = env.reset(options={"state": level})
        assert frame.shape == (config.rows * config.cell, config.cols * config.cell, 3)
        assert not info["success"]
        lines = level.split("\n")
        assert (len(lines), {len(line) for line in lines}) == (config.rows, {config.cols})
        ring = lines[0] + lines[-1] + "".join(line[0] + line[-1] for line in lines)
        assert set(ring) == {"#"}
        boxes, targets = sum(map(level.count, "$*")), sum(map(level.count, ".*+"))
        assert boxes == targets == config.boxes
        needed = solver.distance_map(level, config.max_solution).distance(level)
        assert needed is not None
        assert config.min_solution <= needed <= config.max_solution
        solutions.add(needed)
    if not settings:
        assert solutions == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("settings", "count", "golden"),
    [
        ({}, 200, "d9274ff2d0b8c1ebf483fbff890d7ec1"),
        ({"rows": 9, "cols": 9, "boxes": 3, "max_solution": 12}, 20, "e5989bcbf2ea4e7ec44e2e04af2c5e0f"),
    ],
)
def test_the_level_of_a_seed_never_changes(settings: dict[str, Any], count: int, golden: str) -> None:
    """Task ids promise it: a change here, or in the solver's sampling, needs a new environment version."""
    config = SokobanConfig(**settings)
    assert digest([SokobanEnv.make_task(config, seed).initial_state for seed in range(count)]) == golden


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"rows": 3, "cols": 5, "min_solution": 5}, "min_solution=5..max_solution=5"),
        ({"min_solution": 900, "max_solution": 1000}, "min_solution=900..max_solution=1000"),
        ({"rows": 13, "cols": 13, "boxes": 5, "max_solution": 60, "max_states": 50_000}, "max_states=50000"),
        ({"rows": 3, "cols": 40, "boxes": 30, "min_solution": 50, "max_solution": 60}, "boxes=30"),
    ],
)
def test_hopeless_settings_fail_fast_and_say_what_to_change(settings: dict[str, Any], part: str) -> None:
    started = time.process_time()
    with pytest.raises(GenerationError) as caught:
        SokobanEnv.make_task(SokobanConfig(**settings), 1)
    assert part in str(caught.value)
    assert time.process_time() - started < 10


def test_negative_seeds_are_refused() -> None:
    with pytest.raises(GenerationError, match="negative"):
        SokobanEnv.make_task(SokobanConfig(), -1)


def test_snapshots_of_something_else_are_refused() -> None:
    env = SokobanEnv()
    for bad in (b"", b"x\n" + LEVEL.encode(), b"10\n" + LEVEL.encode(), b"\xff\n", b"1\n####", b"9" * 5000 + b"\n"):
        with pytest.raises(LevelError):
            env.restore(bad)


# --- the pictures ----------------------------------------------------------------------------------------------------


def test_pixels_never_change() -> None:
    """Frame ids are hashes of pixels: a change here needs a new environment version."""
    for player, golden in (("@", GOLDEN_FRAME), ("+", "80fd4b9fb697105d")):
        frame, _ = SokobanEnv().reset(options={"state": f"######\n#{player}$. #\n#  * #\n######"})
        assert hashlib.sha256(frame.tobytes()).hexdigest()[:16] == golden
    assert hashlib.sha256(tiles(20).tobytes()).hexdigest()[:16] == GOLDEN_TILES
