"""Settings of Stage II that other trainers also have: schedules, trackers, estimates."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
transformers: Any = pytest.importorskip("transformers")

from pivot.benchmarks.learning.stage2 import lessons  # noqa: E402
from pivot.core.errors import PivotError, TrainingError  # noqa: E402
from pivot.tests.cli.command_line import error_of  # noqa: E402
from pivot.tests.cli.command_line import run as command  # noqa: E402
from pivot.tests.training.lake import run, short, torch  # noqa: E402
from pivot.training.encode import Encoder  # noqa: E402
from pivot.training.loading import load_weights  # noqa: E402
from pivot.training.memory import estimate_rl  # noqa: E402
from pivot.training.policy_rl import loop  # noqa: E402
from pivot.training.policy_rl.config import RECIPES, make_rl_config  # noqa: E402
from pivot.training.policy_rl.learner import learning_rate  # noqa: E402
from pivot.training.policy_rl.levels import plan_levels  # noqa: E402
from pivot.training.policy_rl.losses import clipped_surrogate, is_clipped  # noqa: E402
from pivot.training.policy_rl.scoring import SAMPLED, Row, Scorer, entropy  # noqa: E402
from pivot.training.policy_rl.weights import VisionCache  # noqa: E402
from pivot.training.trackers import flat_metrics  # noqa: E402

pytestmark = pytest.mark.train


def _run(out: Path, player: Path, *, resume: bool = False, **fields: Any) -> list[dict[str, Any]]:
    return run(out, player, resume=resume, arm="vanilla_grpo", **fields)


# Losses


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


# Runs


def test_a_falling_rate_is_used_and_cannot_be_prolonged(player: Path, tmp_path: Path) -> None:
    lines = _run(tmp_path / "run", player, updates=2, schedule="linear", warmup=1, save_every=1)
    assert [line["lr"] for line in lines] == [1e-3, 5e-4]
    with pytest.raises(TrainingError, match="was started with updates 2, found 3"):
        _run(tmp_path / "run", player, updates=3, schedule="linear", warmup=1, save_every=1, resume=True)


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
    lines = _run(tmp_path / "run", player, updates=1)
    raw = json.loads((tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert raw["tokens_per_second"] > 0 and raw["peak_memory"] > 2**27
    (line,) = lines
    assert 0.1 < line["entropy"] < torch.tensor(4.0).log().item(), "four moves are open, and nearly nothing else"
    assert 1 <= line["reply_tokens"] <= line["reply_tokens_max"] <= 8
    assert 0 < line["ratio_min"] <= 1 <= line["ratio_max"]
    assert line["lr"] == 1e-3


# Trackers


def test_a_run_cannot_get_shorter_and_saves_the_tokenizer_of_its_start(player: Path, tmp_path: Path) -> None:
    _run(tmp_path / "run", player, updates=2)
    first, last = (json.loads((each / "tokenizer.json").read_text()) for each in (player, tmp_path / "run" / "final"))
    assert last["padding"] == first["padding"] is None
    with pytest.raises(TrainingError, match=r"--updates 1: found .*checkpoint-2, expected .*--updates 2"):
        (tmp_path / "run" / "final" / "config.json").unlink()
        _run(tmp_path / "run", player, updates=1, resume=True)


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
    lines = _run(tmp_path / "run", player, updates=2, report_to=("none", "wandb"))
    assert calls == ["run", *((line["step"], line["success"]) for line in lines), "end"]


def test_tensorboard_gets_the_figures(player: Path, tmp_path: Path) -> None:
    events: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    lines = _run(tmp_path / "run", player, updates=2, report_to=("tensorboard",))
    (folder,) = {path.parent for path in (tmp_path / "run").rglob("events.out.tfevents*")}
    board = events.EventAccumulator(str(folder)).Reload()
    assert [each.value for each in board.Scalars("success")] == [line["success"] for line in lines]
    assert [each.step for each in board.Scalars("seconds/rollout")] == [1, 2]


def test_a_missing_tracker_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(TrainingError, match=r"--report-to: tracker 'no_such_tracker' is not installed"):
        loop.prepare(short("nowhere", report_to=("no_such_tracker",)))


# Estimates, recipes and files


def test_the_estimate_has_the_parts_of_stage_two(player: Path) -> None:
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
