"""Test the study of arms on a small network: exact success, one start for all arms, and a Teacher that is wrong."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from pivot.benchmarks.learning import small
from pivot.benchmarks.learning.ledger import Ledger
from pivot.benchmarks.learning.small_arms import ARMS, CONTROLS
from pivot.benchmarks.learning.worlds import World, exact_success, explore
from pivot.datasets.store.config import env_config, environment
from pivot.environments.base import PivotEnv
from pivot.rollouts.plan import plan_tasks
from pivot.solvers.puzzles import ACTIONS

pytestmark = pytest.mark.train
GAMES = {"frozenlake": {"horizon": 5, "size": 3}, "sokoban": {"horizon": 4, "max_solution": 3}}


def _world(game: str, levels: int, **settings: Any) -> tuple[World, PivotEnv]:
    kind, config = environment(game), env_config(game, GAMES[game] | settings)
    tasks = plan_tasks(kind, config, 3, levels)
    return explore(kind, config, tasks), kind(config)


def _policy(world: World, seed: int = 0) -> Any:
    """Return random probabilities of four actions and, as what is missing from 1, of an unusable reply."""
    weights = np.random.default_rng(seed).dirichlet([0.6] * 5, len(world.states))
    return weights[:, :4]


def _by_hand(env: PivotEnv, policy_of: Callable[[str], Any]) -> float:
    """Return the success from the state of ``env`` by playing every sequence of actions, unusable ones included."""
    chances = policy_of(env.state_text())
    total = 0.0
    for action, chance in zip((*ACTIONS, "invalid"), [*chances, 1 - sum(chances)], strict=True):
        before = env.snapshot()
        _, _, ended, cut, info = env.step(env.encode_action(action))
        if info["success"]:
            total += chance
        elif not (ended or cut):
            total += chance * _by_hand(env, policy_of)
        env.restore(before)
    return total


@pytest.mark.parametrize("game", GAMES)
def test_exact_success_is_that_of_all_sequences_of_actions(game: str) -> None:
    world, env = _world(game, 3)
    policy = _policy(world)
    index = {state: place for place, state in enumerate(world.states)}
    values = exact_success(world, policy)
    for level, start in enumerate(world.starts):
        env.reset(options={"state": world.states[start]})
        assert values[level] == pytest.approx(_by_hand(env, lambda state: policy[index[state]]), abs=1e-12)


@pytest.fixture
def few_levels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reduce the study to runs that take a second."""
    monkeypatch.setattr(small, "LEVELS", 60)
    small.setup.cache_clear()
    yield
    small.setup.cache_clear()


@pytest.mark.usefixtures("few_levels")
def test_all_arms_of_a_seed_start_alike_and_no_other_seed_does() -> None:
    figures = {
        name: small.train("frozenlake", ARMS[name], 0, 4) for name in ("vanilla_grpo", "witness_pivot", "oracle_1")
    }
    curves = [each["curve"] for each in figures.values()]
    assert curves[0][0] == curves[1][0] == curves[2][0]
    assert len({tuple(curve) for curve in curves}) == 3, "and then each goes its way"
    assert small.LOW <= figures["oracle_1"]["train_curve"][0] <= small.HIGH
    assert small.train("frozenlake", ARMS["vanilla_grpo"], 0, 4)["curve"] == curves[0], (
        "a run is a function of its seed"
    )
    assert small.train("frozenlake", ARMS["vanilla_grpo"], 1, 4)["curve"][0] != curves[0][0]


@pytest.mark.usefixtures("few_levels")
def test_silenced_groups_teach_grpo_nothing() -> None:
    whole, most, every = (small.train("frozenlake", ARMS["vanilla_grpo"], 0, 8, share) for share in (0.0, 0.9, 1.0))
    assert len(set(every["curve"])) == 1, "no advantage, and no distance from the reference"
    assert whole["silent"] < 0.3
    assert "silenced" not in whole
    assert most["silenced"] == 0.9, "a row says what was done to its groups"
    assert 0.8 < most["silent"] < every["silent"] == 1
    assert len({*map(tuple, (whole["curve"], most["curve"], every["curve"]))}) == 3
    taught = small.train("frozenlake", ARMS["oracle"], 0, 8, 1.0)
    assert len(set(taught["curve"])) > 1, "the Teacher's loss is left"


@pytest.mark.usefixtures("few_levels")
def test_a_planted_wrong_pivot_is_seen_in_the_figures() -> None:
    """The ideal Teacher tells every pivot; one whose hints name a random other step falls below chance."""
    right = small.train("frozenlake", ARMS["oracle"], 0, 3)["gap_detects_pivot"]
    wrong = small.train("frozenlake", replace(ARMS["oracle"], named="random"), 0, 3)["gap_detects_pivot"]
    nothing = small.train("frozenlake", ARMS["empty"], 0, 3)["gap_detects_pivot"]
    assert right > 0.99
    assert wrong < 0.49, "an episode of one step has no other, so this is not far below"
    assert nothing == 0.5


def test_controls_differ_by_the_step_alone() -> None:
    for name, control in CONTROLS.items():
        one, other = ARMS[name], ARMS[control]
        assert (one.weight, one.objective, one.hint, one.corrects) == (
            other.weight,
            other.objective,
            other.hint,
            other.corrects,
        )
        assert (one.named, one.step) != (other.named, other.step)


@pytest.mark.usefixtures("few_levels")
def test_a_run_goes_on_where_its_file_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [("frozenlake", ARMS["vanilla_grpo"], seed, 1, 0.0) for seed in range(2)]
    trained: list[int] = []
    monkeypatch.setattr(small, "ProcessPoolExecutor", InThisProcess)
    monkeypatch.setattr(small, "_one", lambda job: trained.append(job[2]) or small.train(*job))
    path = tmp_path / "small.jsonl"
    small.run(jobs[:1], path, 1)
    small.run(jobs, path, 1)
    assert trained == [0, 1]
    assert [row["seed"] for row in Ledger(path, small.PROTOCOL).rows()] == [0, 1]


class InThisProcess:
    """A pool without processes."""

    def __init__(self, workers: int) -> None:
        del workers

    def __enter__(self) -> "InThisProcess":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, work: Any, items: Any) -> Any:
        return map(work, items)

    def submit(self, work: Any, item: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(item))
        return done
