"""FrozenLake: the contract, gymnasium's pixels and moves, the map generator; rewards as settings of all games."""

import json
import random
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pivot
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv as GymnasiumLake
from pivot.core.errors import ConfigError, GenerationError
from pivot.core.identity import digest
from pivot.environments import grid
from pivot.environments.base import EnvConfig
from pivot.environments.frozenlake.environment import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.navigation.environment import NavigationConfig
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig
from pivot.environments.sokoban.environment import SokobanConfig, SokobanEnv
from pivot.testing import EnvironmentContract
from pivot.tests.stores import problems, read_rows, rewrite_manifest

MAP = "SFFF\nFHFH\nFFFH\nHFFG"


class TestFrozenLakeContract(EnvironmentContract):
    unmoved_is_unchanged = True
    env_type = FrozenLakeEnv
    settings = ({}, {"size": 8, "cell": 32, "horizon": 20}, {"size": 2, "frozen_probability": 0.0, "horizon": 3})
    actions = tuple((name, None) for name in grid.ACTIONS)
    answers: ClassVar = {name: (name, None) for name in grid.ACTIONS}
    garbage = ("", "move up", "up up", "up, left", "up|left", "north", "0", "<b>up</b>", "u" * 65536, "up\x00")
    bad_states: ClassVar = {
        "": "empty",
        "SFFX": "'X' in row 0, column 3",
        "SFF\nFG": "row 1",
        "SFF \nFFG": "' ' in row 0, column 3",
        "\nSFF\nFFG": "row 1",
        "FFF\nFFG": "0 start cells",
        "SFS\nFFG": "2 start cells",
        "SFF\nFFF": "no goal cell",
        MAP + "\n@ 4 0": "outside the 4x4 map",
        "SF\nFF\nFG\n@ 1 2": "outside the 3x2 map",
        MAP + "\n@ 1": "'@ 1'",
        MAP + "\n@ -1 0": "'@ -1 0'",
        MAP + "\n@ 1 1\n@ 1 2": "'@'",
        "S" + "F" * 70 + "G": "1x72 cells",
        "F" * 100_000: "100000 characters",
    }
    equal_states = ((MAP, f"{MAP}\n\n"), (MAP, MAP.replace("\n", "\r\n")), (MAP, MAP + "\n@ 0 0"))
    bad_settings = (
        ({"horizon": 0}, "horizon"),
        ({"size": 1}, "size"),
        ({"frozen_probability": 1.5}, "frozen_probability"),
        ({"cell": 4}, "cell"),
    )
    info_keys = frozenset({"moved", "remaining_turns", "success"})
    reward_range = (-0.1, 9.9)
    gym_id = "pivot/FrozenLake-v0"


def play(env: FrozenLakeEnv, state: str, *names: str) -> list[tuple[float, bool, bool, dict[str, Any]]]:
    env.reset(options={"state": state})
    return [env.step(env.encode_action(name))[1:] for name in names]


def test_moves_are_those_of_gymnasium_step() -> None:
    to_gymnasium = {"left": 0, "down": 1, "right": 2, "up": 3}
    env = FrozenLakeEnv(FrozenLakeConfig(size=5, horizon=40))
    for seed in range(60):
        rng = random.Random(seed)
        env.reset(seed=seed)
        level = env.state_text().split("\n")
        lake = GymnasiumLake(desc=level, is_slippery=False)
        lake.reset(seed=seed)
        over = False
        while not over:
            name = rng.choice(grid.ACTIONS)
            cell, reward, ended, _, _ = lake.step(to_gymnasium[name])
            _, mine, terminated, truncated, info = env.step(env.encode_action(name))
            lines = env.state_text().split("\n")
            assert lines[:5] == level
            position = divmod(int(cell), 5)
            assert lines[5:] == ([] if level[position[0]][position[1]] == "S" else ["@ {} {}".format(*position)])
            assert terminated == ended
            assert info["success"] == (reward == 1)
            assert mine == (9.9 if reward == 1 else -0.1)
            over = terminated or truncated


@pytest.mark.parametrize(("size", "cell"), [(4, 64), (3, 64), (8, 64), (4, 16), (6, 32), (5, 48), (4, 53), (3, 100)])
def test_pixels_equal_gymnasium_render(size: int, cell: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame", reason="gymnasium draws FrozenLake with pygame (pip install pygame)")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = FrozenLakeEnv(FrozenLakeConfig(size=size, cell=cell, frozen_probability=0.6))
    for seed in range(2):
        env.reset(seed=seed)
        level = env.state_text()
        lake = GymnasiumLake(desc=level.split("\n"), is_slippery=False, render_mode="rgb_array")
        # Gymnasium makes cells of 64 pixels, fewer on maps of more than eight; other sizes are asked for here.
        lake.window_size, lake.cell_size = (size * cell, size * cell), (cell, cell)
        lake.reset(seed=0)
        for last, position in product((None, 0, 1, 2, 3), range(size * size)):
            lake.s, lake.lastaction = position, last
            if last is not None and position % 5:
                continue  # the last action does not change the picture; a few cells are enough to know
            state = "{}\n@ {} {}".format(level, *divmod(position, size))
            frame, _ = env.reset(options={"state": state})
            assert np.array_equal(frame, np.asarray(lake.render())), (seed, last, position)


def test_the_map_of_a_seed_never_changes() -> None:
    """Task ids promise it: a change here needs a new environment version."""
    for size, golden in ((4, "7a2f24aebe35dce38b4fdd2b33d0964b"), (3, "89425a1044dabc6f0c7199dfdae82dda")):
        maps = [FrozenLakeEnv.make_task(FrozenLakeConfig(size=size), seed).initial_state for seed in range(200)]
        assert digest(maps) == golden


def test_hopeless_settings_say_what_to_change() -> None:
    config = FrozenLakeConfig(size=40, frozen_probability=0.0, max_tries=3)
    with pytest.raises(GenerationError, match=r"3 tries.*frozen_probability=0\.0.*size=40"):
        FrozenLakeEnv.make_task(config, 0)


def test_unknown_reset_options_and_actions_are_refused() -> None:
    env = FrozenLakeEnv()
    with pytest.raises(ConfigError, match="stat"):
        env.reset(options={"stat": MAP})
    env.reset(seed=0, options={"instruction": "Go home."})
    assert env.task_instruction == "Go home."
    with pytest.raises(ValueError, match="action 5"):
        env.step(5)
    with pytest.raises(ValueError, match="payload"):
        env.encode_action("up", "{}")


def test_a_map_of_another_size_changes_the_observation_space() -> None:
    env = FrozenLakeEnv(FrozenLakeConfig(cell=16))
    frame, _ = env.reset(options={"state": "SFFFFF\nFFFFFG"})
    assert frame.shape == env.observation_space.shape == (32, 96, 3)
    for level in ("SFFFFF\nFFFFFG\n@ 0 5", "S\nG"):
        assert play(env, level, "down")[0][1], "the player stands above the goal"


def test_a_lost_episode_is_over_after_it_was_restored() -> None:
    env = FrozenLakeEnv()
    env.reset(options={"state": "SHF\nFFF\nFFG"})
    env.step(env.encode_action("right"))
    other = FrozenLakeEnv()
    other.reset(seed=1)
    other.restore(env.snapshot())
    with pytest.raises(gymnasium.error.ResetNeeded):
        other.step(0)


DIGESTS = {
    SokobanConfig: "4a2dbb28",
    FrozenLakeConfig: "2225c709",
    NavigationConfig: "64483a4e",
    PrimitiveSkillConfig: "957978f2",
}
"""Digests of the default settings, which are part of task ids."""

OTHER: dict[str, dict[str, Any]] = {
    "sokoban": {"step_reward": -0.2, "box_on_reward": 3.0, "box_off_reward": -2.5, "success_reward": 7.0},
    "frozenlake": {"step_reward": -0.25, "success_reward": 1.0},
    "navigation": {"step_reward": 0.0, "success_reward": 1.0},
    "primitiveskill": {"step_reward": -1.0, "stage_reward": 0.5, "success_reward": 4.0},
}


@pytest.mark.parametrize(("kind", "digest"), DIGESTS.items())
def test_default_rewards_leave_ids_and_stored_settings_as_they_were(kind: type[EnvConfig], digest: str) -> None:
    assert kind.model_validate({}).digest() == digest
    defaults = {name: kind.model_fields[name].get_default() for name in kind.added}
    assert defaults
    assert kind.model_validate(defaults).model_dump() == kind.model_validate({}).model_dump()


@pytest.mark.parametrize("name", sorted(SokobanConfig.added - SokobanConfig.locations))
def test_another_value_is_stored_and_changes_ids(name: str) -> None:
    value = {"actions_per_turn": 2, "levels_digest": "0123456789abcdef"}.get(name, 0.5)
    config = SokobanConfig.model_validate({name: value})
    assert config.decisive()[name] == value
    assert config.digest() != SokobanConfig().digest()
    assert SokobanEnv.from_settings(config.decisive()).config == config


def test_sokoban_pays_for_boxes_on_and_off_targets() -> None:
    env = SokobanEnv(SokobanConfig.model_validate({"horizon": 5, **OTHER["sokoban"]}))
    env.reset(options={"state": "########\n#@$. .$#\n########"})
    rewards = [env.step(env.encode_action(name))[1] for name in ("right", "right", "left")]
    assert rewards == pytest.approx([-0.2 + 3.0, -0.2 - 2.5, -0.2])


def test_frozenlake_pays_for_the_goal() -> None:
    env = FrozenLakeEnv(FrozenLakeConfig.model_validate(OTHER["frozenlake"]))
    env.reset(options={"state": "SFG"})
    assert [env.step(env.encode_action("right"))[1] for _ in range(2)] == [-0.25, -0.25 + 1.0]


def test_a_store_with_other_rewards_is_proved(tmp_path: Path) -> None:
    """Catch a verification that does not play with the rewards of the store's own settings."""
    root = tmp_path / "store"
    runs = {name: {"tasks": 1, "settings": settings} for name, settings in OTHER.items()}
    pivot.build({"environments": runs, "rollouts": 2}, root)
    assert problems(root) == []
    for name, settings in OTHER.items():
        steps = read_rows(root, f"steps/{name}/00000.parquet")
        assert {row["reward"] for row in steps} & {settings["step_reward"], settings["step_reward"] + 0.5}, name
    run = json.loads((root / "run.json").read_text())
    del run["config"]["environments"]["frozenlake"]["settings"]["step_reward"]
    (root / "run.json").write_text(json.dumps(run))
    rewrite_manifest(root)
    assert any("frozenlake" in problem for problem in problems(root))
