"""Credit per turn in Stage II: its equation against a reference in float64, its runs, and what is refused."""

import random
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

import pivot
from pivot.core.errors import TrainingError
from pivot.rollouts.base import Episode, TaskRollouts
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Unsolved
from pivot.tests.training.lake import lines_of, save_grammatical, short, weights_in
from pivot.training.policy_rl import advantages, loop
from pivot.training.policy_rl.advantages import credit_advantages, group
from pivot.training.policy_rl.config import settings_of_episodes
from pivot.training.policy_rl.levels import plan_levels, roll_out
from pivot.training.policy_rl.losses import TokenBatch, Weights, stage_two_loss

pytestmark = pytest.mark.train
EPS = 1e-6


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A player on disk that only knows the grammar."""
    return save_grammatical(tmp_path_factory.mktemp("player") / "start")


@pytest.fixture(scope="module")
def rollouts() -> list[TaskRollouts]:
    """Episodes of 12 levels, good and bad."""
    levels = plan_levels(short("none", settings={"size": 4, "horizon": 9}, levels=20))
    return roll_out(levels, levels.train[:12], ScriptedPolicy(), 4)


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no curves: a picture takes as long as an update here."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)


def _run(out: Path, player: Path, *, resume: bool = False, **fields: Any) -> list[dict[str, Any]]:
    loop.train(loop.prepare(short(player, **fields)), out, resume=resume)
    return lines_of(out)


def _score(episode: Episode, rule: str) -> list[float]:
    """The scores of an episode by the stored needs alone; the last state's is that of the label's certificate."""
    needs: list[int | None] = [step.need for step in episode.steps]
    last = pivot.credit("frozenlake", [episode.log()])[0]
    assert not isinstance(last, Unsolved)
    needs.append(last[-1].need_after)
    scores, lost = [], False
    for t, (before, after) in enumerate(pairwise(needs)):
        left = episode.horizon - 1 - t
        within = after is not None and after <= left
        if rule == "progress":
            if before is not None and after is not None:
                scores.append(float(before - after))
            else:
                scores.append(float((after is not None) - (before is not None)))
        elif rule == "slack":
            scores.append(float(left - after) if after is not None and within else -1.0)
        else:
            scores.append(-1.0 if not within and not lost else 0.0)
        lost = lost or not within
    return scores


@pytest.mark.parametrize("rule", ["progress", "slack", "pivot"])
def test_the_advantage_of_a_turn_is_that_of_its_episode_and_its_scaled_credit(
    rule: str, rollouts: list[TaskRollouts]
) -> None:
    plain = group(rollouts, short("none"))
    config = short("none", credit=rule, credit_weight=0.7)
    groups = group(rollouts, config)
    assert groups.advantages == plain.advantages and not plain.figures()
    everything: list[float] = []
    for task in rollouts:
        scores = {each.episode_id: _score(each, rule) for each in task.episodes}
        flat = [score for own in scores.values() for score in own]
        everything += flat
        mean, deviation = fmean(flat), pstdev(flat)
        for name, own in scores.items():
            for t, score in enumerate(own):
                part = 0.0 if deviation == 0 else 0.7 * (score - mean) / (deviation + EPS)
                assert groups.of_turn(name, t) == pytest.approx(plain.advantages[name] + part, abs=1e-9)
                assert plain.of_turn(name, t) == plain.advantages[name]
    assert groups.figures() == {"credit": pytest.approx(fmean(everything)), "uncredited": 0}


def test_loss_and_gradient_equal_a_reference_that_loops_over_turns(rollouts: list[TaskRollouts]) -> None:
    torch: Any = pytest.importorskip("torch")
    groups, draw = group(rollouts, short("none", credit="progress")), random.Random(4)
    tokens = [
        (groups.of_turn(each.episode_id, step.t), draw.uniform(-3, 0), draw.uniform(-0.5, 0.5))
        for task in rollouts[:3]
        for each in task.episodes
        for step in each.steps
        for _ in range(2)
    ]
    advantages_, old, drift = (torch.tensor(column, dtype=torch.float64) for column in zip(*tokens, strict=True))
    student = (old + drift).requires_grad_()
    count, everything = len(tokens), torch.ones(len(tokens), dtype=torch.bool)
    batch = TokenBatch(old, old, old, advantages_, everything, ~everything)
    loss = stage_two_loss(
        student, batch, valid_count=count, active_count=0, weights=Weights(0.2, 0.0, 0.0, 5.0, "printed")
    )
    loss.total.backward()
    total, gradient = 0.0, []
    for advantage, _, difference in tokens:
        ratio = 2.718281828459045**difference
        clamped = min(max(ratio, 0.8), 1.2)
        total -= min(ratio * advantage, clamped * advantage) / count
        gradient.append(-ratio * advantage / count if ratio * advantage <= clamped * advantage else 0.0)
    assert loss.total.item() == pytest.approx(total, abs=1e-12)
    torch.testing.assert_close(student.grad, torch.tensor(gradient, dtype=torch.float64), atol=1e-12, rtol=0)


def test_equal_scores_give_no_credit_and_an_unsolved_level_costs_nothing_but_its_own(
    rollouts: list[TaskRollouts], monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes = [task.episodes for task in rollouts[:3]]
    parts, _, unsolved = credit_advantages(episodes, "progress")
    assert unsolved == 0 and set(parts) == {each.episode_id for group in episodes for each in group}
    real_credit = advantages.credit

    def limited(env: str, rows: Any, rule: Any) -> Any:
        answers = real_credit(env, rows, rule=rule)
        return [Unsolved("solver_limit", "too many states") if 4 <= n < 8 else each for n, each in enumerate(answers)]

    monkeypatch.setattr(advantages, "credit", limited)
    fewer, _, unsolved = credit_advantages(episodes, "progress")
    assert unsolved == 4
    assert fewer == {name: own for name, own in parts.items() if name not in {each.episode_id for each in episodes[1]}}
    groups = group(rollouts[:3], short("none", credit="progress"))
    for each in episodes[1]:
        assert groups.of_turn(each.episode_id, 0) == groups.advantages[each.episode_id]
    monkeypatch.setattr(advantages, "credit", lambda env, rows, rule: real_credit(env, rows, rule=lambda turn: 0.3))
    same, mean, _ = credit_advantages(episodes, "progress")
    assert mean == pytest.approx(0.3) and {value for own in same.values() for value in own} == {0.0}


def test_a_run_with_credit_resumes(player: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"arm": "vanilla_grpo", "credit": "progress", "updates": 2, "save_every": 1}
    whole = _run(tmp_path / "whole", player, **fields)
    assert all(line["grad_norm"] > 0 and line["uncredited"] == 0 and line["credit"] is not None for line in whole)
    _run(tmp_path / "parts", player, **{**fields, "updates": 1})
    assert _run(tmp_path / "parts", player, resume=True, **fields) == whole
    one, other = (weights_in(tmp_path / name / "final") for name in ("whole", "parts"))
    assert all((one[name] == other[name]).all() for name in one)


def test_the_samples_have_the_advantages_of_their_turns(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    kept, scored = loop.group, loop.score_turns
    monkeypatch.setattr(loop, "group", lambda *inputs: seen.append(kept(*inputs)) or seen[-1])
    monkeypatch.setattr(loop, "score_turns", lambda turns, *rest: seen.append(turns) or scored(turns, *rest))
    _run(tmp_path / "run", player, arm="vanilla_grpo", credit="progress", updates=1)
    groups, turns = seen
    assert {turn.advantage for turn in turns} != {groups.advantages[turn.episode_id] for turn in turns}
    assert all(turn.advantage == groups.of_turn(turn.episode_id, turn.t) for turn in turns)


def test_what_has_no_exact_need_or_is_no_rule_is_refused(player: Path) -> None:
    with pytest.raises(TrainingError, match="proves no shortest plans"):
        loop.prepare(short(player, env="navigation", settings={}, credit="progress"))
    with pytest.raises(TrainingError, match="found 'best', expected one of: progress, slack, pivot"):
        short(player, credit="best")


def test_runs_without_credit_keep_their_episodes() -> None:
    assert "credit" not in settings_of_episodes(short("none"))
    assert settings_of_episodes(short("none", credit="slack"))["credit"] == "slack"
