"""Two stores side by side: the right numbers, the right sign, intervals that hold the truth, pairing that pays."""

import json
import random
from pathlib import Path

import numpy as np
import pivot
import pytest
from pivot.datasets.parts import load_store
from pivot.errors import ConfigError
from pivot.insight.compare import MEASURES, compare_stores
from pivot.intervals import middle, resampled_means, sums_by_level
from pivot.tests.cli.command_line import run

RUNS = {"sokoban": {"tasks": 12, "settings": {}}, "frozenlake": {"tasks": 12, "settings": {}}}


def _built(root: Path, skill: float, **fields: object) -> Path:
    habits = {env: {"skill": skill, "evenness": 0.5} for env in RUNS}
    policy = {"name": "scripted", "options": {"habits": habits}}
    pivot.build({"environments": RUNS, "policy": policy} | fields, root)
    return root


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a policy that rarely succeeds."""
    return _built(tmp_path_factory.mktemp("weak") / "store", -2.0)


@pytest.fixture(scope="module")
def strong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same levels, with a policy that often does."""
    return _built(tmp_path_factory.mktemp("strong") / "store", 3.0)


def test_the_numbers_are_those_of_pandas(weak: Path, strong: Path) -> None:
    compared = {(each.env, each.measure): each for each in compare_stores(weak, strong)}
    for side, root in (("old", weak), ("new", strong)):
        frames = load_store(root)
        episodes, labels = frames.episodes.collect().to_pandas(), frames.labels.collect().to_pandas()
        failures = labels.merge(episodes, on="episode_id")
        failures["lead"] = (failures.num_steps - 1 - failures.pivot_step) / failures.num_steps
        failures["slack"] = [one["budget_before"] - one["before"] if one else None for one in failures.certificate]
        groups = episodes.groupby(["env", "group_id"]).agg(
            all_fail=("failed", "all"),
            returns=("episode_return", lambda some: some.round(8).nunique()),
            n=("env", "size"),
        )
        assert set(groups.n) == {8}
        for env in RUNS:
            mine, lost = episodes[episodes.env == env], failures[failures.env == env]
            expected = {
                "success": 1 - mine.failed.astype(int).mean(),
                "return": mine.episode_return.mean(),
                "all-fail groups": groups.loc[env].all_fail.mean(),
                "σ = 0 groups": (groups.loc[env].returns == 1).mean(),
                "pivot step": lost.pivot_step.mean(),
                "slack at the pivot": lost.slack.astype(float).mean(),
                "turns after the pivot": lost.lead.mean(),
                "labels accepted": lost.accepted.astype(float).mean(),
            } | {f"mode {mode}": share for mode, share in lost.failure_mode.value_counts(normalize=True).items()}
            assert set(expected) >= set(MEASURES)
            for name, value in expected.items():
                estimate = getattr(compared[env, name], side)
                assert estimate.value == pytest.approx(value), name
                assert estimate.low - 1e-12 <= value <= estimate.high + 1e-12


def test_a_better_policy_shows_and_the_sign_turns_with_the_sides(weak: Path, strong: Path) -> None:
    forth = {(each.env, each.measure): each for each in compare_stores(weak, strong)}
    back = {(each.env, each.measure): each for each in compare_stores(strong, weak)}
    for env in RUNS:
        success = forth[env, "success"]
        assert success.paired
        assert success.clear
        assert success.difference is not None
        assert success.difference.low > 0
        turned = back[env, "success"].difference
        assert turned is not None
        assert (turned.value, turned.low, turned.high) == pytest.approx(
            (-success.difference.value, -success.difference.high, -success.difference.low)
        )


def test_a_store_does_not_differ_from_itself(weak: Path) -> None:
    for each in compare_stores(weak, weak):
        assert each.difference is not None
        assert (each.difference.value, each.difference.low, each.difference.high, each.clear) == (0, 0, 0, False)


def test_other_levels_are_drawn_on_their_own(weak: Path, tmp_path: Path) -> None:
    other = _built(tmp_path / "other", -2.0, seed=1)
    compared = {(each.env, each.measure): each for each in compare_stores(weak, other)}
    difference = compared["sokoban", "success"].difference
    assert not compared["sokoban", "success"].paired
    assert difference is not None
    assert difference.low < difference.high


def test_nothing_in_common_is_refused(weak: Path, tmp_path: Path) -> None:
    pivot.build({"environments": {"sokoban": {"tasks": 1, "settings": {}}}}, tmp_path / "one")
    pivot.build({"environments": {"frozenlake": {"tasks": 1, "settings": {}}}}, tmp_path / "two")
    with pytest.raises(ConfigError, match="expected an environment that is in both"):
        compare_stores(tmp_path / "one", tmp_path / "two")
    assert {each.env for each in compare_stores(tmp_path / "one", weak)} == {"sokoban"}


def test_the_command_shows_and_gives_out(weak: Path, strong: Path) -> None:
    shown = run("compare", weak, strong)
    assert "mode deadlock" in shown
    assert "*" in shown
    rows = json.loads(run("compare", weak, strong, "--format", "json"))
    assert [(row["env"], row["measure"]) for row in rows] == [
        (each.env, each.measure) for each in compare_stores(weak, strong)
    ]
    assert run("compare", weak, strong, "--format", "csv").count("\n") == len(rows) + 1


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Levels differ much, rollouts of one level little: an interval over episodes would be far too narrow."""
    rng = random.Random(5)
    by_level = by_episode = 0
    for trial in range(300):
        chances = [rng.betavariate(0.4, 0.4) for _ in range(60)]
        values = [float(rng.random() < chance) for chance in chances for _ in range(8)]
        levels = [str(level) for level in range(60) for _ in range(8)]
        low, high = middle(resampled_means(*sums_by_level(values, levels), seed=trial, resamples=400))
        by_level += low <= 0.5 <= high
        alone = [str(place) for place in range(len(values))]
        low, high = middle(resampled_means(*sums_by_level(values, alone), seed=trial, resamples=400))
        by_episode += low <= 0.5 <= high
    assert 0.91 <= by_level / 300 <= 0.99
    assert by_episode / 300 < 0.75


def test_one_seed_draws_the_same_places() -> None:
    sums, counts = np.arange(5.0), np.ones(5)
    assert np.array_equal(resampled_means(sums, counts, 3), resampled_means(sums, counts, 3))
    assert np.allclose(resampled_means(sums + 1, counts, 3) - resampled_means(sums, counts, 3), 1)
    assert not np.array_equal(resampled_means(sums, counts, 3), resampled_means(sums, counts, 4))
