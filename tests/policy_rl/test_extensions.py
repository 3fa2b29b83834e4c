"""Arms, objectives and estimators of another package, and credit per turn: two files, and no change of PIVOT."""

import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError, PluginError, PolicyError, TrainingError
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import Policy
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.training.lake import run, short, torch
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.advantages import group
from pivot.training.policy_rl.config import make_rl_config
from pivot.training.policy_rl.extensions.advantages import complete_episodes, estimator_of
from pivot.training.policy_rl.extensions.objectives import objective_of
from pivot.training.policy_rl.learner import ScoredTurn
from pivot.training.policy_rl.levels import plan_levels, roll_out
from pivot.training.policy_rl.losses import gap_opd

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
import pivot
from pivot.rollouts.base import Episode, TaskRollouts
from pivot.solvers.base import Unsolved
from pivot.training.policy_rl import advantages
from pivot.training.policy_rl.advantages import credit_advantages
from pivot.training.policy_rl.config import settings_of_episodes

pytestmark = pytest.mark.train
EXAMPLE = Path(__file__).resolve().parents[1] / "external" / "objective"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed in a folder of its own."""
    assert len([path for path in EXAMPLE.iterdir() if path.is_file()]) == 2
    source = Path(shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "objective"))
    target = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--target", target, source], check=True)
    return target


@pytest.fixture(autouse=True)
def installed(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Find the example among the plugins, and draw no curves."""
    monkeypatch.syspath_prepend(str(package))
    for cached in (plugins.registered, plugins.load):
        cached.cache_clear()
    yield
    for cached in (plugins.registered, plugins.load):
        cached.cache_clear()


def test_a_loss_with_one_more_quantity_of_the_teacher_trains(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without sharpness the loss is the objective ``gap``; the quantity is the entropy, in whatever micro-batches."""
    monkeypatch.setattr(loop, "settings_of_episodes", lambda _: {})  # the same seeds in all runs
    common: dict[str, Any] = {"arm": "oracle", "updates": 1, "opd": 1.0}
    turns: list[ScoredTurn] = []
    update = loop.Learner.update

    def seen(learner: Any, scored: Any, number: int) -> Any:
        turns[:] = scored
        return update(learner, scored, number)

    monkeypatch.setattr(loop.Learner, "update", seen)
    (gap,) = run(tmp_path / "gap", player, opd_objective="gap", **common)
    (plain,) = run(tmp_path / "plain", player, opd_objective="confident", objective_set={"sharpness": 0}, **common)
    assert plain["loss_opd"] == gap["loss_opd"]
    (sharp,) = run(tmp_path / "sharp", player, opd_objective="confident", objective_set={"sharpness": 2}, **common)
    assert 0 != sharp["loss_opd"] != gap["loss_opd"]
    for turn in turns:
        entropy, active = turn.tokens.quantities["entropy"], turn.tokens.active
        assert entropy.shape == active.shape and turn.entropy is not None
        assert bool((entropy[active] >= 0).all()) and not bool(entropy[~active].any())
    (split,) = run(
        *(tmp_path / "split", player),
        **{"opd_objective": "confident", "objective_set": {"sharpness": 2}, "micro_batch_tokens": 70, **common},
    )
    assert split["loss_opd"] == pytest.approx(sharp["loss_opd"], rel=1e-3)
    objective = objective_of(short(player, opd_objective="confident"))
    (some,) = [each.tokens for each in turns if bool(each.tokens.active.any())][:1]
    logprobs = some.old.clone().requires_grad_()
    objective.loss(logprobs, some, short(player)).sum().backward()
    expected = some.old.clone().requires_grad_()
    (gap_opd(expected, some, 5.0) * (-some.quantities["entropy"]).exp()).sum().backward()
    torch.testing.assert_close(logprobs.grad, expected.grad)


def test_an_arm_of_another_package_shows_its_own_text(player: Path, tmp_path: Path) -> None:
    (line,) = run(tmp_path / "run", player, arm="verdict", updates=1)
    assert line["opd_active"] > 0
    assert "This attempt at frozenlake ended in failure: " in (tmp_path / "run" / "samples.txt").read_text()


class Wanderer(Policy):
    """A policy that goes one of two ways by turn and episode, and sometimes fails."""

    config_type = ScriptedPolicy.config_type
    name = "wanderer"
    config: dict[str, Any] = {}  # noqa: RUF012  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    async def reply(self, turn: Turn) -> Reply:
        if turn.episode_id.endswith("f"):
            raise PolicyError("not today")
        move = ("right", "down", "left")[(int(turn.episode_id[-1], 16) + turn.t) % 3]
        return Reply(f"<think></think><action>{move}</action>", token_ids=(1,))


def test_gigpo_compares_the_visits_of_a_state(player: Path) -> None:
    config = short(player, advantages="gigpo", advantages_set={"omega": 0.5}, gamma=0.9)
    levels = plan_levels(config)
    rollouts = roll_out(levels, levels.train[:3], Wanderer(), 8)
    grpo = group(rollouts, config).advantages
    estimates = estimator_of(config).advantages(rollouts, grpo, config)
    compared = 0
    for task in rollouts:
        episodes = complete_episodes([task])
        visits: dict[str, list[float]] = defaultdict(list)
        for episode in episodes:
            for t, step in enumerate(episode.steps):
                ahead = sum(0.9**k * reward for k, reward in enumerate(episode.rewards[t:]))
                visits[str(step.state)].append(ahead)
        for episode in episodes:
            for t, step in enumerate(episode.steps):
                same = visits[str(step.state)]
                ahead = sum(0.9**k * reward for k, reward in enumerate(episode.rewards[t:]))
                spread = pstdev(same)
                own = 0.5 * (ahead - fmean(same)) / spread if spread > 1e-9 else 0.0
                compared += own != 0.0
                assert estimates[episode.episode_id][t] == pytest.approx(grpo[episode.episode_id] + own, abs=1e-6)
    assert compared > 5
    plain = estimator_of(short(player)).advantages(rollouts, grpo, config)
    assert all(set(plain[name]) == {value} for name, value in grpo.items())
    other = estimator_of(short(player, advantages="negated")).advantages(rollouts, grpo, config)
    assert other == {name: [-value for value in values] for name, values in plain.items()}


def test_gigpo_trains(player: Path, tmp_path: Path) -> None:
    (line,) = run(tmp_path / "run", player, arm="vanilla_grpo", updates=1, advantages="gigpo")
    assert line["grad_norm"] > 0


def test_estimates_that_miss_a_turn_are_refused_with_the_package(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = short(player, advantages="gigpo")
    estimator: Any = estimator_of(config)
    monkeypatch.setattr(type(estimator), "advantages", type(estimator).advantages.__wrapped__)
    plain = type(estimator).advantages

    class Short(type(estimator)):
        """An estimator that omits the last turn of every episode."""

        def advantages(self, rollouts: Any, grpo: Any, config: Any) -> Any:
            return {name: values[:-1] for name, values in plain(self, rollouts, grpo, config).items()}

    levels = plan_levels(config)
    rollouts = roll_out(levels, levels.train[:1], Wanderer(), 4)
    grpo = group(rollouts, config).advantages
    with pytest.raises(PluginError, match=r"answered advantages\(\).*expected one advantage for each of its \d+ turns"):
        Short().advantages(rollouts, grpo, config)


def test_what_is_not_installed_is_refused_with_what_is(player: Path) -> None:
    for fields, message in (
        ({"arm": "none"}, "arm: found 'none', expected one of: .*verdict"),
        ({"opd_objective": "none"}, "opd_objective: found 'none', expected one of: .*confident"),
        ({"advantages": "none"}, "advantages: found 'none', expected one of: gigpo, grpo"),
    ):
        with pytest.raises(TrainingError, match=message):
            make_rl_config({"env": "frozenlake", "model": "m", **fields})
    with pytest.raises((TrainingError, ConfigError), match=r"sharpness: found -1\.0, expected 0\.0 or more"):
        objective_of(short(player, opd_objective="confident", objective_set={"sharpness": -1.0}))


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
