"""Rewards as settings: defaults are neither stored nor part of ids, other rewards are stored and proved."""

import json
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.environments.base import EnvConfig
from pivot.environments.frozenlake.environment import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.navigation.environment import NavigationConfig
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig
from pivot.environments.sokoban.environment import SokobanConfig, SokobanEnv
from pivot.tests.stores import problems, read_rows, rewrite_manifest

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
    root = tmp_path / "store"
    runs = {name: {"tasks": 2, "settings": settings} for name, settings in OTHER.items()}
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
