"""Credit per turn in Stage II: its equation against a reference in float64, its runs, and what is refused."""

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
from pivot.tests.training.lake import run, short
from pivot.training.policy_rl import advantages, loop
from pivot.training.policy_rl.advantages import credit_advantages, group
from pivot.training.policy_rl.config import settings_of_episodes
from pivot.training.policy_rl.levels import plan_levels, roll_out

pytestmark = pytest.mark.train
EPS = 1e-6


@pytest.fixture(scope="module")
def rollouts() -> list[TaskRollouts]:
    """Episodes of 12 levels, good and bad."""
    levels = plan_levels(short("none", settings={"size": 4, "horizon": 9}, levels=20))
    return roll_out(levels, levels.train[:12], ScriptedPolicy(), 4)


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


def test_the_samples_have_the_advantages_of_their_turns(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    kept, scored = loop.group, loop.score_turns
    monkeypatch.setattr(loop, "group", lambda *inputs: seen.append(kept(*inputs)) or seen[-1])
    monkeypatch.setattr(loop, "score_turns", lambda turns, *rest: seen.append(turns) or scored(turns, *rest))
    run(tmp_path / "run", player, arm="vanilla_grpo", credit="progress", updates=1)
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
