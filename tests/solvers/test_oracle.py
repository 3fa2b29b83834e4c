"""The exact solvers against the plain oracle: every field of the verdict, over thousands of random episodes."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import product

import pytest
from pivot.solvers.base import Case, Solver, Unsolved, Verdict
from pivot.solvers.frozenlake.solver import FrozenLakeSolver
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.tests.solvers import level_makers, solver_oracle
from pivot.tests.solvers.solver_oracle import Game


def facts(verdict: Verdict) -> dict[str, object]:
    """Return the fields of a verdict that the oracle knows."""
    certificate = verdict.certificate
    assert (certificate.kind, certificate.unit) == ("exact", "moves")
    assert certificate.reachable_after == (certificate.after is not None)
    return {
        "pivot_step": verdict.pivot_step,
        "failure_mode": verdict.failure_mode,
        "fallback": verdict.fallback,
        "infeasible_at_start": verdict.infeasible_at_start,
        "before": certificate.before,
        "after": certificate.after,
        "budget_before": certificate.budget_before,
        "budget_after": certificate.budget_after,
        "witness": verdict.witness,
        "feasible_actions": verdict.feasible_actions,
    }


def compare(solver: Solver, games: list[tuple[str, Game]], rng: random.Random, horizons: tuple[int, int]) -> Counter:
    """Play one episode per game, label all in one batch, and compare every label with the oracle's."""
    cases, target = [], []
    for text, game in games:
        horizon = rng.randint(*horizons)
        length = horizon if rng.random() < 0.7 else rng.randint(1, horizon)
        actions = solver_oracle.play(game, length, rng.choice((0.0, 0.5, 0.8, 0.95)), rng)
        if actions is None:
            continue
        if solver.name == "frozenlake":
            rows = text.split("\n")
            tiles = [rows[state // 100][state % 100] for state in solver_oracle.replay(game, actions)]
            actions = actions[: tiles.index("H")] if "H" in tiles else actions
        cases.append(Case(text, actions, horizon))
        target.append(solver_oracle.expected(game, actions, horizon))
    seen = Counter()
    for case, answer, want in zip(cases, solver.certify(cases), target, strict=True):
        assert isinstance(answer, Verdict), (case, answer)
        assert facts(answer) == want, case
        seen[answer.failure_mode] += 1
        seen["fallback"] += answer.fallback
        seen["at start"] += answer.infeasible_at_start
        seen["late"] += answer.pivot_step > 0
    return seen


def sokoban_games(count: int, boxes: int, sides: tuple[int, int], seed: int) -> list[tuple[str, Game]]:
    rng = random.Random(seed)
    games = []
    while len(games) < count:
        height, width = rng.randint(*sides), rng.randint(*sides)
        grid = level_makers.room(
            height, width, rng.uniform(0.0, 0.4) if sides[1] == 6 else rng.uniform(0.25, 0.45), rng
        )
        if sum(line.count(" ") for line in grid) < 2 * boxes + 2:
            continue
        text = level_makers.sokoban_level(grid, boxes, rng.choice((None, 10, 60, 200)), rng)
        game = solver_oracle.sokoban(text)
        if game.d(game.start) > 0:
            games.append((text, game))
    return games


def test_one_box_in_small_rooms() -> None:
    seen = compare(SokobanSolver(), sokoban_games(4_000, 1, (6, 6), 1), random.Random(2), (1, 12))
    assert sum(seen[mode] for mode in SokobanSolver.modes) >= 4_000
    assert min(seen["timeout"], seen["deadlock"], seen["fallback"], seen["at start"], seen["late"]) >= 80, seen


def test_frozen_lakes() -> None:
    rng = random.Random(3)
    games = []
    for _ in range(5_000):
        text = level_makers.frozenlake_map(rng.randint(2, 8), rng.randint(1, 8), rng.uniform(0.0, 0.5), rng)
        games.append((text, solver_oracle.frozenlake(text)))
    seen = compare(FrozenLakeSolver(), games, rng, (1, 20))
    assert sum(seen[mode] for mode in FrozenLakeSolver.modes) >= 5_000
    assert min(seen["timeout"], seen["deadlock"], seen["fallback"], seen["at start"], seen["late"]) >= 100, seen


@pytest.mark.parametrize(
    ("boxes", "sides", "each", "seeds"),
    [
        (2, (6, 10), 5, range(2, 1502, 50)),
        (3, (8, 8), 5, range(3, 553, 50)),
        (3, (10, 10), 1, (1000, 1001, 1003, 1006, 1034, 1055)),  # three with more than 8,000 states to solve it from
        (1, (11, 20), 5, range(1, 301, 50)),
        (2, (11, 12), 5, range(2, 102, 50)),
    ],
    ids=["2 boxes to 10x10", "3 boxes in 8x8", "3 boxes in 10x10", "1 box to 20x20", "2 boxes to 12x12"],
)
def test_several_boxes(boxes: int, sides: tuple[int, int], each: int, seeds: Sequence[int]) -> None:
    """Four episodes a level, since to explore the level is what takes time."""
    seen = Counter()
    rng = random.Random(boxes)
    for seed in seeds:
        seen += compare(SokobanSolver(), 4 * sokoban_games(each, boxes, sides, seed), rng, (5, 90))
    assert sum(seen[mode] for mode in SokobanSolver.modes) >= 4 * each * len(seeds)
    assert min(seen["timeout"], seen["deadlock"], seen["late"]) >= 1, seen


@pytest.mark.long
def test_a_thousand_rooms_with_three_boxes() -> None:
    seen = Counter()
    rng = random.Random(77)
    for part in range(1_000):
        seen += compare(SokobanSolver(), sokoban_games(1, 3, (10, 10), 1_000_000 + part), rng, (20, 120))
    assert sum(seen[mode] for mode in SokobanSolver.modes) >= 1_000
    assert min(seen["timeout"], seen["deadlock"], seen["late"]) >= 100, seen


def test_witness_is_the_first_of_all_shortest_plans() -> None:
    """Against every word over the four actions, so that the oracle's own greedy choice is checked too."""
    checked = 0
    for text, game in sokoban_games(400, 1, (6, 6), 9):
        if not 0 < game.d(game.start) <= 6:
            continue
        answer = SokobanSolver().certify([Case(text, ["invalid"], 9)])[0]
        assert isinstance(answer, Verdict)
        for plan in (plan for length in range(7) for plan in product(solver_oracle.ORDER, repeat=length)):
            if game.d(solver_oracle.replay(game, plan)[-1]) == 0:
                assert answer.witness == plan
                break
        checked += 1
    assert checked >= 40


def test_a_tiny_cap_is_answered_and_never_guessed() -> None:
    games = sokoban_games(60, 2, (7, 7), 4)
    rng = random.Random(5)
    limited = 0
    for text, game in games:
        actions = solver_oracle.play(game, 15, 0.5, rng)
        if actions is None:
            continue
        for cap in (1, 30, 200, 1000):
            answer = SokobanSolver(max_states=cap).certify([Case(text, actions, 15)])[0]
            if isinstance(answer, Unsolved):
                assert answer.reason == "solver_limit"
                limited += 1
            else:
                assert facts(answer) == solver_oracle.expected(game, actions, 15), (cap, text, actions)
    assert limited >= 60
