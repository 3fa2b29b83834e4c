"""Teachers that do not share the Student's weights, and runs of Stage II with adapters."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pivot.core.storage.local import LocalStorage
from pivot.tests.training.lake import lines_of, run, save_grammatical, short, torch, weights_in
from pivot.training.loading import add_adapters, load_adapters, load_weights, merged, without_adapters
from pivot.training.policy_rl import figures, loop
from pivot.training.policy_rl.config import settings_of_episodes
from pivot.training.policy_rl.learner import ScoredTurn, hindsight_figures
from pivot.training.policy_rl.losses import TokenBatch
from pivot.training.policy_rl.scoring import Row, TurnSample
from pivot.training.policy_rl.weights import MovingAverage

pytest.importorskip("peft")

pytestmark = pytest.mark.train


def _run(out: Path, player: Path, *, resume: bool = False, report: Any = lambda _: None, **fields: Any) -> list[Any]:
    return run(out, player, resume=resume, report=report, arm="oracle", opd=1.0, kl=0.0, **fields)


def test_a_teacher_of_the_start_or_of_a_checkpoint_does_not_move(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "settings_of_episodes", lambda _: {})  # the same seeds in all runs
    live = _run(tmp_path / "live", player)
    start = _run(tmp_path / "start", player, teacher_weights="start")
    frozen = _run(tmp_path / "frozen", player, teacher_model=str(player))
    none = _run(tmp_path / "none", player, teacher_weights="ema", teacher_decay=0.0)
    still = _run(tmp_path / "still", player, teacher_weights="ema", teacher_decay=1 - 2**-53)
    gaps = [[line["opd_gap"] for line in each] for each in (live, start, frozen, none, still)]
    assert [each[0] for each in gaps] == pytest.approx([gaps[0][0]] * 5, abs=1e-6), "all weights are those of the start"
    assert len({each[0] for each in gaps[1:]}) == 1
    assert gaps[0][1] == pytest.approx(gaps[3][1], abs=1e-6), "an average without memory is the Student"
    assert gaps[1][1] == gaps[2][1] == pytest.approx(gaps[4][1], abs=1e-6), "an average that never moves is the start"
    assert abs(gaps[0][1] - gaps[1][1]) > 1e-3
    assert live[1]["kl"] is None, "without a reference the distance to it is missing"


@pytest.mark.parametrize("lora", [False, True])
def test_a_resumed_average_is_that_of_a_whole_run(player: Path, tmp_path: Path, lora: bool) -> None:
    fields: dict[str, Any] = {"teacher_weights": "ema", "teacher_decay": 0.5, "save_every": 1, "lora": lora}
    whole = _run(tmp_path / "whole", player, updates=3, **fields)
    _run(tmp_path / "parts", player, updates=2, **fields)
    assert _run(tmp_path / "parts", player, updates=3, resume=True, **fields) == whole
    one, other = (weights_in(tmp_path / each / "final") for each in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_average_is_the_recursion_and_the_weights_come_back() -> None:
    model = torch.nn.Linear(3, 2).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    average = MovingAverage(model, optimizer, 0.75)
    expected = model.weight.detach().clone()
    for number in range(3):
        with torch.no_grad():
            model.weight += number + 1
        average.update()
        expected = 0.75 * expected + 0.25 * model.weight.detach()
    kept = model.weight.detach().clone()
    with average.around():
        torch.testing.assert_close(model.weight.detach(), expected, rtol=0, atol=1e-15)
    assert torch.equal(model.weight, kept)


def _turn(gap: float, at_pivot: bool) -> ScoredTurn:
    nothing, every = torch.zeros(2), torch.ones(2, dtype=torch.bool)
    tokens = TokenBatch(nothing, nothing, nothing + gap, nothing, every, every)
    row = Row(None, (1, 2))  # type: ignore[arg-type]
    return ScoredTurn(TurnSample("e", 0, row, row, 0.0, 0, at_pivot), tokens)


def test_an_informed_teacher_finds_the_pivot_unlikely() -> None:
    informed = hindsight_figures([_turn(-1.0, True), _turn(0.25, False), _turn(-0.25, False)], 5.0)
    assert informed["teacher_informed"] == pytest.approx(1.0)
    assert hindsight_figures([_turn(0.0, True), _turn(0.0, False)], 5.0)["teacher_informed"] == 0
    assert hindsight_figures([_turn(-0.5, True)], 5.0)["teacher_informed"] == pytest.approx(0.5)
    assert hindsight_figures([_turn(-0.5, False)], 5.0)["teacher_informed"] is None


def test_a_run_warns_once_of_an_uninformed_teacher(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[str] = []
    measured = figures.hindsight_figures
    monkeypatch.setattr(figures, "hindsight_figures", lambda *values: measured(*values) | {"teacher_informed": 0.03})
    _run(tmp_path / "run", player, report=reports.append)
    (warning,) = [each for each in reports if each.startswith("warning")]
    assert "teacher_informed +0.030 nats, expected 0.1 or more" in warning
    assert "--teacher-weights start" in warning


def test_ids_of_episodes_are_those_before_the_setting() -> None:
    assert "teacher_weights" not in settings_of_episodes(short("none"))
    assert settings_of_episodes(short("none", arm="oracle", teacher_weights="ema"))["teacher_weights"] == "ema"


def test_replies_beyond_the_context_are_refused(player: Path) -> None:
    with pytest.raises(loop.TrainingError, match="of the model's context; lower --max-tokens"):
        loop.prepare(short(player, max_tokens=10**7))


IDS = torch.arange(20)[None]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A player that answers with an action."""
    return save_grammatical(tmp_path_factory.mktemp("start"))


def _config(start: Path, **fields: Any) -> Any:
    return short(start, **({"lora": True, "lora_rank": 4, "lr": 1e-2, "prompts": 2, "save_every": 1} | fields))


def _scores(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


def test_weights_with_without_and_merged(start: Path, tmp_path: Path) -> None:
    model, _ = load_weights(str(start), None, torch.float32)
    plain = _scores(deepcopy(model))
    add_adapters(model, rank=4, alpha=8, seed=0)
    trained = [each for each in model.parameters() if each.requires_grad]
    assert trained and torch.equal(_scores(model), plain), "new adapters change nothing"
    with torch.no_grad():
        for each in trained:
            each.add_(0.05 * torch.randn_like(each))
    moved = _scores(model)
    assert (moved - plain).abs().max() > 0.1
    with without_adapters(model):
        assert torch.equal(_scores(model), plain)
    assert torch.equal(_scores(model), moved) and all(each.requires_grad for each in trained)
    assert (_scores(merged(model, str(start), None)) - moved).abs().max() < 1e-4
    model.save_pretrained(tmp_path)
    again, _ = load_weights(str(start), None, torch.float32)
    add_adapters(again, rank=4, alpha=8, seed=1)
    load_adapters(again, tmp_path)
    assert torch.equal(_scores(again), moved)


def test_equal_seeds_give_equal_adapters_and_frozen_weights_may_be_half(start: Path) -> None:
    models = [load_weights(str(start), None, torch.bfloat16)[0] for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        add_adapters(model, rank=4, alpha=8, seed=seed)
    values = [torch.cat([each.flatten() for each in model.parameters() if each.requires_grad]) for model in models]
    assert torch.equal(values[0], values[1]) and not torch.equal(values[0], values[2])
    kinds = {(each.requires_grad, each.dtype) for each in models[0].parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}


def test_a_run_trains_adapters_alone_and_goes_on_where_it_was(start: Path, tmp_path: Path) -> None:
    loop.train(loop.prepare(_config(start)), tmp_path / "whole")
    loop.train(loop.prepare(_config(start, updates=1)), tmp_path / "cut")
    LocalStorage(tmp_path / "cut").delete("final")
    loop.train(loop.prepare(_config(start)), tmp_path / "cut", resume=True)
    assert lines_of(tmp_path / "cut") == lines_of(tmp_path / "whole")
    first, last = lines_of(tmp_path / "whole")
    assert first["grad_norm"] > 0 and last["kl"] > 0, "the reference is the model without its adapters"
    before, whole, cut = (weights_in(folder) for folder in (start, tmp_path / "whole/final", tmp_path / "cut/final"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    changed = {name for name in before if not torch.equal(before[name], whole[name])}
    assert changed and all("_proj" in name and "visual" not in name for name in changed)
    kept = LocalStorage(tmp_path / "whole").listing("checkpoints/checkpoint-2")
    adapters = next(stat.bytes for name, stat in kept.items() if name.endswith("adapter_model.safetensors"))
    assert adapters < (start / "model.safetensors").stat().st_size / 2
    assert not any(name.endswith("/model.safetensors") for name in kept)


def test_in_bfloat16_adapters_learn_over_half_weights(start: Path, tmp_path: Path) -> None:
    config = _config(start, precision="bf16", updates=1, arm="empty")
    prepared = loop.prepare(config)
    loop.train(prepared, tmp_path)
    (line,) = lines_of(tmp_path)
    assert line["grad_norm"] > 0 and line["generator_difference"] < 0.05 and line["opd_gap"] == 0
    assert {each.dtype for each in weights_in(tmp_path / "final").values()} == {torch.float32}
