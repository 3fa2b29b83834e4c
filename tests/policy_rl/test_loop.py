"""Runs of Stage II: their files, settings, schedules, trackers, estimates, and errors on the way."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
from pivot.benchmarks.learning.stage2 import lessons
from pivot.core.errors import PivotError, TrainingError
from pivot.datasets.store.schema import STORE_TABLES
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.cli.command_line import error_of
from pivot.tests.cli.command_line import run as command
from pivot.tests.training.lake import lines_of, run, short, torch, weights_in
from pivot.training.curves import draw_curves
from pivot.training.encode import Encoder
from pivot.training.evaluation.scores import Share
from pivot.training.loading import load_weights
from pivot.training.memory import estimate_rl
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.advantages import group, training_return
from pivot.training.policy_rl.config import RECIPES, make_rl_config
from pivot.training.policy_rl.learner import learning_rate, roc_area
from pivot.training.policy_rl.levels import measure, plan_levels, roll_out
from pivot.training.policy_rl.losses import clipped_surrogate, is_clipped
from pivot.training.policy_rl.scoring import SAMPLED, Row, Scorer, entropy
from pivot.training.policy_rl.weights import VisionCache
from pivot.training.trackers import flat_metrics

pytestmark = pytest.mark.train


def test_a_run_leaves_what_people_and_programs_need(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "draw_curves", draw_curves)
    out = tmp_path / "run"
    messages: list[str] = []
    config = short(player, arm="mp", validation_episodes=4, validate_every=1)
    shares = iter([Share(each, 0.0, 1.0, 8) for each in (0.1, 0.3, 0.2)])
    monkeypatch.setattr(loop, "measure", lambda *these: dataclasses.replace(measure(*these), success=next(shares)))
    result = loop.train(loop.prepare(config), out, report=messages.append)
    lines = lines_of(out)
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert {"validation"} == lines[0].keys() - {"step"}
    last = lines[-1]
    for name in ("success", "zero_variance", "opd_gap", "opd_gate", "opd_active", "kl", "clip_share"):
        assert isinstance(last[name], float), name
    assert last["analyzer_unreadable"] == 1.0, "a model that never saw Stage I falls back, and is counted"
    assert last["generator_difference"] < 1e-5
    assert last["placeholders"] == 0
    assert 0 < last["opd_active"] <= 1
    assert last["episodes"] == 16
    assert [message[:13] for message in messages if message.startswith("update")] == ["update 1 of 2", "update 2 of 2"]
    assert result.last["step"] == 2
    for name, success in (("best", 0.3), ("final", 0.2)):
        assert f"last measured: {success:.3f} of 8" in (out / name / "README.md").read_text(encoding="utf-8")
    for schema in STORE_TABLES:
        table = pl.read_parquet(out / "rollouts" / schema.name / "frozenlake" / "00001.parquet")
        assert table.columns == list(schema.names)
    assert "context of the Teacher" in (out / "samples.txt").read_text(encoding="utf-8")
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "final" / "README.md").exists()
    assert json.loads((out / "run.json").read_text(encoding="utf-8"))["config"]["arm"] == "mp"
    before, after = weights_in(player), weights_in(out / "final")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    again = loop.train(loop.prepare(config), out, resume=True)
    assert again.already_complete


def test_extensions_are_marked_and_run(player: Path, tmp_path: Path) -> None:
    (pivot,) = run(tmp_path / "pivot", player, arm="oracle", updates=1, opd_objective="centred", opd_scope="pivot")
    (every,) = run(tmp_path / "all", player, arm="oracle", updates=1, opd_objective="gap")
    assert 0 < pivot["opd_active"] < every["opd_active"]


def test_a_folder_of_another_run_is_refused(player: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", player, updates=1)
    with pytest.raises(TrainingError, match="expected an empty folder"):
        run(tmp_path / "run", player, updates=1)
    with pytest.raises(TrainingError, match="was started with arm"):
        run(tmp_path / "run", player, updates=2, arm="oracle", resume=True)
    assert [line["step"] for line in run(tmp_path / "run", player, updates=2, resume=True)] == [1, 2]


def test_a_longer_run_that_was_killed_before_its_end_is_not_complete(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    run(out, player, updates=1)
    first = (out / "final" / "model.safetensors").read_bytes()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop.Run, "_save_final", killed)
        run(out, player, updates=2, resume=True)
    assert lines_of(out)[-1]["step"] == 2
    run(out, player, updates=2, resume=True)
    assert (out / "final" / "model.safetensors").read_bytes() != first


def test_no_level_to_hold_out_is_reported() -> None:
    levels = plan_levels(short("none", levels=40))
    three = dataclasses.replace(levels, validation=levels.validation[:3])
    assert measure(three, ScriptedPolicy(), 5).success.records == 6  # two of each
    with pytest.raises(TrainingError, match="found no held-out level"):
        measure(dataclasses.replace(levels, validation=()), ScriptedPolicy(), 8)


def test_a_gradient_that_is_no_number_stops_the_run(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "group", lambda rollouts, config: _poisoned(group(rollouts, config)))
    with pytest.raises(TrainingError, match="gradient became nan in update 1"):
        run(tmp_path / "run", player)


def _poisoned(groups: Any) -> Any:
    for name in groups.advantages:
        groups.advantages[name] = float("nan")
    return groups


def test_too_few_levels_are_refused() -> None:
    with pytest.raises(TrainingError, match="raise --levels, or lower --prompts"):
        plan_levels(short("none", prompts=12))


def test_no_validation_level_is_trained_on() -> None:
    levels = plan_levels(short("none", levels=40))
    train, validation = ({task.initial_state for task in side} for side in (levels.train, levels.validation))
    assert validation and not train & validation
    config = short("none")
    drawn = [tuple(levels.sample(number, config)) for number in range(1, 30)]
    assert all(len(set(ids)) == config.prompts for ids in drawn)
    assert len(set(drawn)) == len(drawn)


def test_returns_of_training_take_the_penalty_and_the_discount() -> None:
    levels = plan_levels(short("none"))
    (task,) = roll_out(levels, levels.train[:1], ScriptedPolicy(), 1)
    (episode,) = task.episodes
    assert training_return(episode, 1.0, 0.1) == pytest.approx(episode.episode_return)
    episode.steps[0].action_valid = False
    assert training_return(episode, 1.0, 0.1) == pytest.approx(episode.episode_return - 0.1)
    expected = sum(0.5**t * reward for t, reward in enumerate(episode.rewards)) - 0.2
    assert training_return(episode, 0.5, 0.2) == pytest.approx(expected)
    episode.steps[1].action_valid = False
    assert training_return(episode, 0.5, 0.2) == pytest.approx(expected - 0.1)


def test_the_area_of_a_detector() -> None:
    assert roc_area([3.0, 1.0, 2.0], [True, False, False]) == 1.0
    assert roc_area([1.0, 1.0, 0.0], [True, False, False]) == 0.75, "ties count half"
    assert roc_area([1.0], [True]) is None


# Settings


def test_the_upper_clipping_range_is_its_own() -> None:
    old = torch.zeros(5, dtype=torch.float64)
    ratios = torch.tensor([0.7, 0.9, 1.15, 1.25, 1.4], dtype=torch.float64)
    gains = torch.ones(5, dtype=torch.float64)
    values = clipped_surrogate(ratios.log(), old, gains, 0.2, 0.3)
    assert values.tolist() == pytest.approx([-0.7, -0.9, -1.15, -1.25, -1.3])
    assert is_clipped(ratios.log(), old, gains, 0.2, 0.3).tolist() == [False] * 4 + [True]
    assert is_clipped(ratios.log(), old, gains, 0.2).tolist() == [False] * 3 + [True] * 2
    losses = clipped_surrogate(ratios.log(), old, -gains, 0.2, 0.3)
    assert losses.tolist() == pytest.approx([0.8, 0.9, 1.15, 1.25, 1.4])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_learning_rates_rise_and_fall(schedule: str) -> None:
    config = short("none", updates=10, warmup=4, lr=1.0, schedule=schedule)
    rates = [learning_rate(config, number) for number in range(1, 11)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    falls = [rates[index] - rates[index + 1] for index in range(3, 9)]
    if schedule == "constant":
        assert rates[3:] == [1.0] * 7
    else:
        assert min(falls) > 0 and rates[-1] > 0
        assert learning_rate(config, 11) == pytest.approx(0.0, abs=1e-12)
    assert learning_rate(short("none", lr=0.5), 1) == 0.5, "by default it is constant from the first update"


def test_the_entropy_is_that_of_the_whole_distribution(player: Path) -> None:
    model, processor = load_weights(str(player), None, torch.float32)
    scorer = Scorer(Encoder(processor))
    prompts = [prompt for prompt, _ in lessons(plan_levels(short(player)), scorer)][:2]
    rows = [Row(prompt, tuple(scorer.encoder.reply_tokens("<think></think>"))) for prompt in prompts]
    measured = scorer.measured(model, rows, VisionCache(model), entropy)
    count = sum(len(row.tokens) for row in rows)
    every = torch.arange(model.get_output_embeddings().out_features).repeat(count, 1)
    with torch.no_grad():
        values = scorer(model, rows, candidates=every).double()
    expected = [-sum(math.exp(each) * each for each in row if each > -math.inf) for row in values[:, 1:].tolist()]
    assert torch.cat([each["entropy"] for each in measured]).tolist() == pytest.approx(expected, rel=1e-4)
    assert torch.equal(torch.cat([each[SAMPLED] for each in measured]), values[:, 0].float())


def test_a_falling_rate_is_used_and_cannot_be_prolonged(player: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"arm": "vanilla_grpo", "schedule": "linear", "warmup": 1, "save_every": 1}
    lines = run(tmp_path / "run", player, updates=2, **fields)
    assert [line["lr"] for line in lines] == [1e-3, 5e-4]
    with pytest.raises(TrainingError, match="was started with updates 2, found 3"):
        run(tmp_path / "run", player, updates=3, resume=True, **fields)


def test_a_large_epsilon_of_adam_keeps_unused_tokens_still(player: Path, tmp_path: Path) -> None:
    """Adam normalises almost-zero gradients to full steps, which moves embeddings of tokens that no reply contains."""
    moved: list[float] = []
    for epsilon in (1e-8, 1.0):
        prepared = loop.prepare(short(player, arm="vanilla_grpo", updates=1, adam_epsilon=epsilon))
        rows = prepared.model.get_input_embeddings().weight
        before = rows.detach().clone()
        loop.train(prepared, tmp_path / str(epsilon))
        moved.append((rows.detach() - before).norm(dim=1).median().item())
    assert 0 < moved[1] < moved[0] / 10


def test_every_update_has_the_figures_of_its_policy_and_its_cost(player: Path, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", player, arm="vanilla_grpo", updates=1)
    raw = json.loads((tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert raw["tokens_per_second"] > 0 and raw["peak_memory"] > 2**27
    (line,) = lines
    assert 0.1 < line["entropy"] < torch.tensor(4.0).log().item(), "four moves are open, and nearly nothing else"
    assert 1 <= line["reply_tokens"] <= line["reply_tokens_max"] <= 8
    assert 0 < line["ratio_min"] <= 1 <= line["ratio_max"]
    assert line["lr"] == 1e-3


def test_a_run_cannot_get_shorter_and_saves_the_tokenizer_of_its_start(player: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", player, arm="vanilla_grpo", updates=2)
    first, last = (json.loads((each / "tokenizer.json").read_text()) for each in (player, tmp_path / "run" / "final"))
    assert last["padding"] == first["padding"] is None
    with pytest.raises(TrainingError, match=r"--updates 1: found .*checkpoint-2, expected .*--updates 2"):
        (tmp_path / "run" / "final" / "config.json").unlink()
        run(tmp_path / "run", player, arm="vanilla_grpo", updates=1, resume=True)


def test_metrics_have_flat_names() -> None:
    line = {"step": 3, "success": 0.5, "kl": None, "seconds": {"rollout": 1.5}, "validation": {"success": {"low": 0}}}
    assert flat_metrics(line) == {"success": 0.5, "seconds/rollout": 1.5, "validation/success/low": 0}


def test_a_tracker_gets_every_line_and_is_ended(player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Accelerator:
        def __init__(self, **settings: Any) -> None:
            assert settings["log_with"] == ["wandb"]

        def init_trackers(self, name: str) -> None:
            calls.append(name)

        def log(self, values: Any, step: int) -> None:
            calls.append((step, values["success"]))

        def end_training(self) -> None:
            calls.append("end")

    monkeypatch.setattr("accelerate.Accelerator", Accelerator)
    monkeypatch.setattr(loop, "check_trackers", lambda _: None)
    lines = run(tmp_path / "run", player, arm="vanilla_grpo", updates=2, report_to=("none", "wandb"))
    assert calls == ["run", *((line["step"], line["success"]) for line in lines), "end"]


def test_a_missing_tracker_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(TrainingError, match=r"--report-to: tracker 'no_such_tracker' is not installed"):
        loop.prepare(short("nowhere", report_to=("no_such_tracker",)))


# Estimates and recipes


def test_the_estimate_has_the_parts_of_stage_two(player: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # five tries take 20 s
    transformers: Any = pytest.importorskip("transformers")
    model = transformers.AutoModelForImageTextToText.from_pretrained(player)
    count = sum(each.numel() for each in model.parameters())
    full = estimate_rl(short(player))
    assert full.parts["weights"] == full.parts["reference"] == full.parts["gradients"] == 4 * count
    assert full.parts["optimizer"] == 8 * count
    text = model.config.get_text_config()
    per_token = 2 * text.num_hidden_layers * text.num_key_value_heads * 4
    per_token *= getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    assert full.parts["generation, keys and values"] == 16 * (2048 + 8) * per_token
    assert "reference" not in estimate_rl(short(player, kl=0.0)).parts
    assert estimate_rl(short(player, arm="oracle", teacher_weights="ema")).parts["teacher"] == 4 * count
    assert estimate_rl(short(player, arm="oracle", teacher_model=str(player))).parts["teacher"] == 4 * count
    assert estimate_rl(short(player, lora=True)).total < full.total
    from_hub = {"recipe": "qwen2.5-vl-3b", "model": "no/student", "teacher_model": "no/teacher", "arm": "sdar"}
    with pytest.raises(TrainingError, match="cannot read the config of no/teacher"):
        estimate_rl(make_rl_config({"env": "sokoban", **from_hub}))


def test_recipes_and_files_set_every_field_and_a_dry_run_writes_nothing(player: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("arm: oracle\nlr: 0.5\nsettings: {size: 3}\nclip_high: 0.28\nreport_to: [none]\n", encoding="utf-8")
    out = tmp_path / "run"
    common = ("train", "rl", "frozenlake", "--model", player, "--out", out, "--dry-run")
    shown = command(*common, "--recipe", "tiny", "--config", file, "--rollouts", "3")
    assert "optimizer" in shown and "generation" in shown and "nothing was written" in shown
    assert not out.exists()
    config = make_rl_config({"env": "sokoban", "model": "m", "recipe": "tiny", "rollouts": 3})
    assert (config.updates, config.prompts, config.rollouts, config.lr) == (4, 2, 3, 1e-4)
    shown = command("train", "rl", "sokoban", "--model", "not/here", "--recipe", "qwen2.5-vl-3b", "--dry-run")
    assert "3,754" in shown or "3,755" in shown
    with pytest.raises(PivotError, match=r"no recipe 'large', expected a file or one of: qwen2\.5-vl-3b, tiny"):
        raise error_of(*common, "--recipe", "large")
    assert {path.stem for path in RECIPES.iterdir()} == {"qwen2.5-vl-3b", "tiny"}
