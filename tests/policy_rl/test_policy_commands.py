"""``pivot train rl``, ``evaluate policy`` and ``rehearse``: short runs from the command line, contradictory options."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pivot.core.errors import ConfigError
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.training.lake import save_grammatical
from pivot.training.evaluation.config import PolicyEvaluationConfig
from pivot.training.evaluation.policy import episode_config
from pivot.training.evaluation.scores import share
from pivot.training.policy_rl.config import make_rl_config
from pivot.training.policy_rl.hindsight.contexts import ARMS
from pivot.training.policy_rl.levels import measure, plan_levels, without_seen

pytestmark = pytest.mark.train

LAKE = ("--set", "size=2", "--set", "frozenlake.horizon=2", "--set", "cell=16", "--levels", "12", "--max-tokens", "8")


def test_a_policy_is_trained_measured_and_compared_with_another(tmp_path: Path) -> None:
    start, out = save_grammatical(tmp_path / "taught" / "final"), tmp_path / "run"
    (tmp_path / "taught" / "run.json").write_text('{"config": {"target_vocabulary": "paper"}}', encoding="utf-8")
    size = ("--prompts", "4", "--rollouts", "4", "--updates", "1", "--validation-episodes", "8")
    train = ("train", "rl", "frozenlake", "--model", start, "--out", out, "--arm", "oracle", *LAKE, *size)
    shown = run(*train)
    assert "update 1 of 1" in shown
    config = json.loads((out / "run.json").read_text(encoding="utf-8"))["config"]
    assert config["target_vocabulary"] == "paper", "as Stage I says"
    assert f"pivot evaluate policy {out}" in shown.replace("\n", "")
    assert "already complete" in run(*train, "--resume")
    assert "expected an empty folder" in str(error_of(*train))
    shown = run("evaluate", "policy", out)
    assert "held-out levels" in shown
    result = json.loads((out / "evaluation" / "policy.json").read_text(encoding="utf-8"))
    assert result["success"]["records"] >= 8
    assert result["env"] == "frozenlake"
    assert result["temperature"] == 0.4
    assert result["levels"] == 1
    assert (result["return"]["low"], result["return"]["high"]) == (None, None), "one level says nothing about others"
    wide = ("--set", "size=3", "--levels", "60", "--episodes", "1")
    assert "lake: 1 held-out levels" in run("evaluate", "policy", out, *wide)
    shutil.rmtree(out / "best", ignore_errors=True)
    assert "take --checkpoint final" in str(error_of("evaluate", "policy", out, "--checkpoint", "best"))
    problem = error_of("evaluate", "policy", out, "--levels", "6", "--seed", "4")  # the run was trained on that level
    assert "found 1 held-out levels, the run was trained on all of them" in str(problem)


def test_levels_that_a_run_was_trained_on_are_not_held_out() -> None:
    fields = {"env": "frozenlake", "model": "none", "levels": 30, "prompts": 1, "held_out": 0.3}
    trained = plan_levels(make_rl_config(fields))
    leaking = replace(trained, validation=(*trained.train[:2], *trained.validation))
    assert without_seen(leaking, trained).validation == trained.validation
    assert without_seen(trained, trained) == trained
    elsewhere = plan_levels(make_rl_config(fields | {"env": "sokoban", "levels": 8}))
    assert without_seen(elsewhere, trained) is elsewhere


def test_settings_of_an_evaluation_win_over_those_of_the_training() -> None:
    run = make_rl_config({"env": "sokoban", "model": "m", "settings": {"boxes": 1, "rows": 7}, "prompts": 1})
    config = episode_config(PolicyEvaluationConfig(model="m", settings={"boxes": 2}), run)
    assert config.settings == {"boxes": 2, "rows": 7}


def test_levels_that_are_played_several_times_are_the_independent_units() -> None:
    levels = plan_levels(make_rl_config({"env": "frozenlake", "model": "none", "levels": 20, "prompts": 1}))
    episodes = 8 * len(levels.validation)
    success = measure(levels, ScriptedPolicy(), episodes).success
    wins = round(success.value * episodes)
    alone = share([1.0] * wins + [0.0] * (episodes - wins), [str(number) for number in range(episodes)])
    assert success.high - success.low > 1.2 * (alone.high - alone.low)


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    train = ("train", "rl", "frozenlake", "--model", tmp_path, "--out", tmp_path / "run")
    problem = error_of(*train, "--arm", "nobody")
    assert isinstance(problem, ConfigError)
    assert str(problem).endswith(f"expected one of: {', '.join(sorted(ARMS))}")
    assert isinstance(error_of(*train, "--set", "sokoban.boxes=2"), ConfigError)
    assert "--opd-objective" in str(error_of(*train, "--opd-objective", "up"))
    assert "expected a frozen larger model (--teacher-model)" in str(error_of(*train, "--arm", "sdar"))
    assert "names no step" in str(error_of(*train, "--arm", "empty", "--opd-scope", "pivot"))
    assert "expected 'centred' or 'gap'" in str(error_of(*train, "--opd-scope", "pivot"))
    assert "nothing is distilled" in str(error_of(*train, "--arm", "sft_grpo", "--teacher-model", "larger"))
    both = ("--teacher-weights", "ema", "--teacher-model", "larger")
    assert "expected one of them" in str(error_of(*train, *both))
    assert "cannot load model" in str(error_of(*train, "--max-tokens", "600"))
    assert "name it with --env" in str(error_of("evaluate", "policy", tmp_path))


def test_a_tiny_rehearsal_runs_every_part(tmp_path: Path) -> None:
    """Catch a part of the rehearsal that fails on a machine without a GPU, or that reports nothing."""
    shown = run("rehearse", "--model", "tiny", "--out", tmp_path / "rehearsal.json")
    result = json.loads((tmp_path / "rehearsal.json").read_text())
    rows = {row["part"]: row for row in result["rows"]}
    assert [name for name, row in rows.items() if "failed" in row] == []
    assert [name for name, row in rows.items() if "skipped" in row] == ["II: flash_attn"]
    assert [row["updates"] for name, row in rows.items() if name.startswith("I:")] == [5, 5]
    for name in ("4 at a time", "8 at a time", "recomputed"):
        row = rows[f"II: {name}"]
        assert row["turns"] == (16 if name.startswith("8") else 8) and 0 <= row["idle"] < 1 and row["estimate_gib"] > 0
    empty = rows["II: arm empty"]
    assert empty["gap"] == 0.0
    assert 0.9 < empty["ratio_min"] <= 1 <= empty["ratio_max"] < 1.1  # rounded otherwise in other micro-batches
    assert rows["kill, resume"]["updates"] == [1, 2, 3] and rows["kill, resume"]["complete"]
    assert len(result["slow"]) == 3 and all(f"slow: {line}" in " ".join(shown.split()) for line in result["slow"])


@pytest.mark.parametrize(
    ("env", "updates", "prompts"), [("sokoban", 350, 16), ("navigation", 250, 8), ("frozenlake", 250, 16)]
)
def test_defaults_are_those_of_the_paper(env: str, updates: int, prompts: int) -> None:
    config = make_rl_config({"env": env, "model": "m"})
    assert (config.updates, config.prompts, config.rollouts) == (updates, prompts, 8)
    assert (config.clip, config.kl, config.opd, config.beta, config.lr) == (0.2, 0.01, 0.01, 5.0, 1e-6)
    assert (config.minibatch, config.max_tokens, config.gamma, config.validation_temperature) == (64, 512, 1.0, 0.4)
    assert make_rl_config({"env": env, "model": "m", "updates": 3}).updates == 3
