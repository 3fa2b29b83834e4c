"""Runs of Stage II: their files, every arm, kills, and errors on the way."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pivot.core.errors import PolicyError, TrainingError
from pivot.datasets.store.schema import STORE_TABLES
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import Policy
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.training.lake import lines_of, run, short, torch, weights_in
from pivot.training.curves import draw_curves
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.advantages import group, training_return
from pivot.training.policy_rl.figures import outcomes
from pivot.training.policy_rl.hindsight.analysis import thinking_tokens
from pivot.training.policy_rl.learner import roc_area
from pivot.training.policy_rl.levels import measure, plan_levels, roll_out

pytestmark = pytest.mark.train


def test_a_run_leaves_what_people_and_programs_need(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "draw_curves", draw_curves)
    out = tmp_path / "run"
    messages: list[str] = []
    config = short(player, arm="mp", validation_episodes=4)
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


def test_the_teachers_distribution_is_distilled_alike_in_any_micro_batches(player: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"arm": "oracle", "updates": 1, "opd_objective": "distribution", "opd": 1.0, "lr": 1e-4}
    (one,) = run(tmp_path / "one", player, **fields)
    (split,) = run(tmp_path / "split", player, micro_batch_tokens=70, **fields)
    assert one["loss_opd"] > 0
    assert one["loss_opd"] == pytest.approx(split["loss_opd"], rel=1e-4)
    fields |= {"arm": "empty", "minibatch": 1000}
    (empty,) = run(tmp_path / "empty", player, **fields)
    assert abs(empty["loss_opd"]) < 1e-5, "a Teacher that sees the Student's prompt has its distribution"


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
    again = loop.train(loop.prepare(short(player, updates=2)), out, resume=True)
    assert not again.already_complete
    assert (out / "final" / "model.safetensors").read_bytes() != first


def test_no_level_to_hold_out_is_reported() -> None:
    levels = dataclasses.replace(plan_levels(short("none", levels=40)), validation=())
    with pytest.raises(TrainingError, match="found no held-out level"):
        measure(levels, None, 8)  # type: ignore[arg-type]


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
    assert validation
    assert not train & validation
    config = short("none")
    drawn = [tuple(levels.sample(number, config)) for number in range(1, 30)]
    assert all(len(set(ids)) == config.prompts for ids in drawn)
    assert len(set(drawn)) == len(drawn)


class Moody(Policy):
    """A policy that fails on some turns, always or a few times."""

    config_type = ScriptedPolicy.config_type
    name = "moody"
    config: dict[str, Any] = {}  # noqa: RUF012  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.asked: dict[str, int] = {}

    async def reply(self, turn: Turn) -> Reply:
        tries = self.asked[turn.episode_id] = self.asked.get(turn.episode_id, 0) + (turn.t == 0)
        if turn.episode_id.endswith(("0", "1", "2", "3", "4", "5")) and tries <= self.times:
            raise PolicyError("not today")
        return Reply("<think></think><action>up</action>", token_ids=(1,))


@pytest.mark.parametrize(("times", "errors"), [(2, False), (3, True)])
def test_an_episode_in_error_is_pending_twice_then_dropped_and_counted(times: int, errors: bool) -> None:
    config = short("none")
    levels = plan_levels(config)
    rollouts = roll_out(levels, levels.train[:4], Moody(times), 8)
    groups = group(rollouts, config)
    figures = outcomes(rollouts, groups)
    assert (figures["errors"] > 0) is errors
    assert figures["episodes"] + figures["errors"] == 32
    assert len(groups.advantages) == figures["episodes"]


def test_returns_of_training_take_the_penalty_and_the_discount() -> None:
    levels = plan_levels(short("none"))
    (task,) = roll_out(levels, levels.train[:1], Moody(0), 1)
    (episode,) = task.episodes
    assert training_return(episode, 1.0, 0.1) == pytest.approx(episode.episode_return)
    episode.steps[0].action_valid = False
    assert training_return(episode, 1.0, 0.1) == pytest.approx(episode.episode_return - 0.1)
    expected = sum(0.5**t * reward for t, reward in enumerate(episode.rewards)) - 0.2
    assert training_return(episode, 0.5, 0.2) == pytest.approx(expected)
    episode.steps[1].action_valid = False
    assert training_return(episode, 0.5, 0.2) == pytest.approx(expected - 0.1)


def test_thoughts_are_distinguished_from_actions() -> None:
    pieces = ["<think>", "a", "</thi", "nk>", "<action>", "up", "</action>"]

    def decode(tokens: Any) -> str:
        return "".join(pieces[token] for token in tokens)

    assert thinking_tokens(range(7), decode) == 4
    assert thinking_tokens([4, 5, 6], decode) == 0


def test_the_area_of_a_detector() -> None:
    assert roc_area([3.0, 1.0, 2.0], [True, False, False]) == 1.0
    assert roc_area([1.0, 1.0, 0.0], [True, False, False]) == 0.75, "ties count half"
    assert roc_area([1.0], [True]) is None
