"""Teachers that do not share the Student's weights, and the figure that warns of one that knows nothing."""

from pathlib import Path
from typing import Any

import pytest
from pivot.tests.training.lake import run, short, torch, weights_in
from pivot.training.curves import curves_figure
from pivot.training.policy_rl import figures, loop
from pivot.training.policy_rl.config import settings_of_episodes
from pivot.training.policy_rl.learner import ScoredTurn, hindsight_figures
from pivot.training.policy_rl.losses import TokenBatch
from pivot.training.policy_rl.scoring import Row, TurnSample
from pivot.training.policy_rl.weights import MovingAverage

pytestmark = pytest.mark.train


def _run(out: Path, player: Path, *, resume: bool = False, report: Any = lambda _: None, **fields: Any) -> list[Any]:
    return run(out, player, resume=resume, report=report, arm="oracle", opd=1.0, kl=0.0, **fields)


def test_a_teacher_of_the_start_or_of_a_checkpoint_does_not_move(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "settings_of_episodes", lambda _: {})  # the same noise in all of them
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


def test_a_run_warns_once_of_a_teacher_that_knows_nothing(
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


def test_curves_name_their_axes_and_show_loss_return_and_the_gap_at_the_pivot() -> None:
    line = {
        "step": 1,
        "success": 0.5,
        "return": 0.1,
        "loss": 2.0,
        "opd_gap_pivot_action": -1.0,
        "seconds": {"score": 1},
    }
    figure = curves_figure([line, line | {"step": 2}], "title")
    drawn = {axes.get_title(): axes for axes in figure.axes}
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    for name in ("return of the rollouts", "loss", "gap of Teacher and Student"):
        assert drawn[name].lines, name
