"""Comparison of two stores: correct numbers and signs, intervals with the stated coverage, and the gain of pairing."""

import shutil
from pathlib import Path

import numpy as np
import pivot
import pytest
from pivot.core.errors import ConfigError
from pivot.core.intervals import Floats, Interval, difference
from pivot.datasets.store.nights import load_store
from pivot.insight import compare
from pivot.insight.compare import MEASURES, STARRED, Comparison, Measured, compare_measured, compare_stores
from pivot.tests.cli.command_line import run

RUNS = {"sokoban": {"tasks": 20, "settings": {}}, "frozenlake": {"tasks": 20, "settings": {}}}


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
    """A store of the same levels by a policy that often succeeds."""
    return _built(tmp_path_factory.mktemp("strong") / "store", 3.0)


def test_the_numbers_are_those_of_pandas(weak: Path, strong: Path) -> None:
    """Catch a measure that counts other rows than its name says."""
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


@pytest.mark.parametrize(("least", "clear"), [(STARRED - 1, False), (STARRED, True)])
def test_a_star_needs_enough_levels_with_values_in_each_store(least: int, clear: bool) -> None:
    """A measure of failures has values on few levels where a policy seldom fails."""
    shares = Interval(0.2, 0.1, 0.3), Interval(0.6, 0.5, 0.7), Interval(0.4, 0.2, 0.6)
    assert Comparison("sokoban", "pivot step", *shares, levels=200, common=200, least=least).clear == clear


def test_a_store_does_not_differ_from_itself(weak: Path) -> None:
    for each in compare_stores(weak, weak):
        assert each.difference is not None
        assert (each.difference.value, each.clear) == (0, False)
        assert each.difference.low <= 0 <= each.difference.high


def test_other_levels_are_not_paired(weak: Path, tmp_path: Path) -> None:
    """Catch a comparison that pairs levels which only have equal numbers."""
    other = _built(tmp_path / "other", -2.0, seed=1, environments={"frozenlake": RUNS["frozenlake"]})
    compared = {each.measure: each for each in compare_stores(weak, other)}
    success = compared["success"]
    assert (success.levels, success.common, success.paired) == (40, 0, False)
    assert success.difference is not None
    assert success.difference.low < success.difference.high
    assert "frozenlake: only 0 of 40 levels are in both stores" in run("compare", weak, other)
    assert "levels are in both" not in run("compare", weak, weak)


def test_planted_differences_are_in_the_interval_as_often_as_it_says() -> None:
    """Two stores of 100 equal levels; the new one fails a fifth less and has its pivots 0.7 steps later."""
    truth = {"success": 0.1, "pivot step": 0.7}
    hits = dict.fromkeys(truth, 0)
    for trial in range(300):
        rng = np.random.default_rng(trial)
        chances, steps = rng.beta(1, 1, 100), rng.normal(5, 2, 100)
        stores = [_planted(rng, factor * chances, steps + later) for factor, later in ((1.0, 0.0), (0.8, 0.7))]
        for each in compare_measured("lake", stores[0], stores[1]):
            assert each.difference is not None
            hits[each.measure] += each.difference.low <= truth[each.measure] <= each.difference.high
    assert all(0.92 <= count / 300 <= 0.98 for count in hits.values()), hits


def _planted(rng: np.random.Generator, chances: Floats, steps: Floats) -> Measured:
    """Return eight episodes per level that fail by chance, with pivots around the level's step."""
    failures = rng.binomial(8, chances)
    pivots = rng.normal(steps * failures, np.sqrt(failures))
    return Measured(
        frozenset(map(str, range(len(steps)))),
        {
            "success": {str(level): (8.0 - count, 8) for level, count in enumerate(failures)},
            "pivot step": {str(level): (pivots[level], count) for level, count in enumerate(failures) if count},
        },
    )


def test_levels_with_values_in_one_store_alone_weaken_the_pairing() -> None:
    assert compare._correlation({"a": 3.0, "b": 4.0}, {"b": 1.0}) == 4 / 5


def test_values_of_a_single_level_give_no_difference() -> None:
    """One failing level says nothing about others: an interval of width 0 would be starred."""
    stores = [Measured(frozenset("ab"), {"pivot step": {"a": (total, 1)}}) for total in (3.0, 5.0)]
    (one,) = compare_measured("lake", stores[0], stores[1])
    assert one.old is not None
    assert (one.old.value, one.difference, one.clear) == (3.0, None, False)
    # Where the intervals are lopsided, each bound of a difference is as far as the facing bounds of both.
    assert difference(Interval(2, 1, 6), Interval(9, 6, 21), 0.0) == Interval(7, 7 - 5, 7 + np.hypot(12, 1))


def test_a_mode_that_a_store_never_has_is_zero_where_it_fails_and_unknown_where_it_does_not() -> None:
    failures = {"a": (3.0, 1), "b": (4.0, 2), "c": (1.0, 1)}
    drift = {"a": (1.0, 1), "b": (2.0, 2), "c": (1.0, 1)}
    lost = Measured(frozenset("abc"), {"pivot step": failures, "mode drift": drift})
    other, perfect = Measured(frozenset("abc"), {"pivot step": failures}), Measured(frozenset("abc"), {})
    for side, value in ((other, 0.0), (perfect, None)):
        (mode,) = [each for each in compare_measured("lake", lost, side) if each.measure == "mode drift"]
        assert (mode.new and mode.new.value) == value
        assert (mode.difference is None) == (value is None)


def test_nothing_in_common_is_refused(weak: Path, tmp_path: Path) -> None:
    for env in RUNS:
        pivot.build({"environments": {env: {"tasks": 1, "settings": {}}}, "rollouts": 2}, tmp_path / env)
    with pytest.raises(ConfigError, match="expected an environment that is in both"):
        compare_stores(tmp_path / "sokoban", tmp_path / "frozenlake")
    assert {each.env for each in compare_stores(tmp_path / "sokoban", weak)} == {"sokoban"}


def test_the_command_shows_modes_and_stars(weak: Path, strong: Path) -> None:
    shown = run("compare", weak, strong)
    assert "mode deadlock" in shown
    assert "*" in shown


@pytest.mark.parametrize("rate", [0.02, 0.2, 0.5])
@pytest.mark.parametrize("levels", [3, 6, 10, 20, 60])
def test_equal_runs_rarely_get_a_star(levels: int, rate: float) -> None:
    """Two runs of one policy on the same levels; below 20 levels never."""
    rng = np.random.default_rng(levels)
    stars, trials = 0, 700
    for _ in range(trials):
        chances = rng.beta(4 * rate, 4 * (1 - rate), levels)
        names = frozenset(map(str, range(levels)))
        sides = [
            Measured(names, {"success": {str(level): (float(won), 8) for level, won in enumerate(wins)}})
            for wins in (rng.binomial(8, chances), rng.binomial(8, chances))
        ]
        stars += compare_measured("lake", *sides)[0].clear
    # Three standard errors of the simulation beside the 6 % that are promised.
    assert stars / trials <= (0.06 + 0.027 if levels >= 20 else 0)


def test_levels_that_only_differ_in_settings_are_paired(weak: Path, tmp_path: Path) -> None:
    """A different turn limit or reward changes the id of a task, but not the level."""
    runs = {"frozenlake": {"tasks": 20, "settings": {"step_reward": -0.2}}}
    other = _built(tmp_path / "other", -2.0, environments=runs)
    for each in compare_stores(weak, other):
        assert each.paired and each.common == 20
    assert "levels are in both" not in run("compare", weak, other)


def test_tasks_of_one_level_are_summed(tmp_path: Path) -> None:
    for seed in range(2):
        runs = {"frozenlake": {"tasks": 8, "settings": {"size": 2}}}
        _built(tmp_path / str(seed), -2.0, environments=runs, seed=seed)
    lake = compare.measured(tmp_path)["frozenlake"]
    assert len(lake.levels) < 16
    assert sum(count for _, count in lake.sums("return").values()) == 16 * 8


def test_instructions_of_one_room_are_levels(tmp_path: Path) -> None:
    pivot.build({"environments": {"navigation": {"tasks": 2}}, "rollouts": 2}, tmp_path / "first")
    (pivots,) = pivot.query(tmp_path / "first", "SELECT count(*) FROM pivots").row(0)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    rooms = compare.measured(tmp_path)["navigation"]
    assert len(rooms.levels) == 2
    assert sum(count for _, count in rooms.sums("pivot step").values()) == 2 * pivots > 0
