"""The second search of the puzzles; `tests/testing` shows that it finds every altered field of a label."""

import math
import random
from dataclasses import replace

import pytest
from pivot.core.errors import CertifyError
from pivot.environments.sokoban.environment import SokobanEnv
from pivot.solvers import puzzle_rules as games
from pivot.solvers.base import Case, Verdict, prove, prover_of
from pivot.solvers.frozenlake.solver import FrozenLakeSolver
from pivot.solvers.puzzle_provers import PuzzleSettings, SokobanProver
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.tests.solvers import level_makers, solver_oracle

ORDER = solver_oracle.ORDER


def failures(count: int, seed: int, boxes: int = 1, side: int = 6) -> list[Case]:
    rng = random.Random(seed)
    cases = []
    while len(cases) < count:
        grid = level_makers.room(side, side, 0.2, rng)
        text = level_makers.sokoban_level(grid, boxes, rng.choice((None, 40, 100)), rng)
        horizon = rng.randint(3, 12)
        length, skill = rng.choice((horizon, rng.randint(1, horizon))), rng.choice((0.3, 0.9))
        if actions := solver_oracle.play(solver_oracle.sokoban(text), length, skill, rng):
            cases.append(Case(text, actions, horizon))
    return cases


def test_an_equally_short_later_plan_is_found() -> None:
    case = Case("SFF\nFFF\nFFG", ["invalid"], 9)
    right = FrozenLakeSolver().certify([case])[0]
    assert isinstance(right, Verdict)
    assert right.witness == ("down", "down", "right", "right")
    problems = prove("frozenlake", case, replace(right, witness=("down", "right", "down", "right"))).problems
    assert len(problems) == 1
    assert "action 1 of the witness is 'right'" in problems[0]


@pytest.mark.parametrize(("boxes", "side", "count"), [(2, 7, 30), (3, 8, 4)])
def test_several_boxes_are_proved(boxes: int, side: int, count: int) -> None:
    cases = failures(count, boxes, boxes, side)
    for case, answer in zip(cases, SokobanSolver().certify(cases), strict=True):
        assert isinstance(answer, Verdict)
        assert prove("sokoban", case, answer).problems == ()


@pytest.mark.parametrize("few", [0, games.FEW_NUMBERS])
@pytest.mark.parametrize("boxes", [1, 2])
def test_distances_are_those_of_an_unbounded_search(boxes: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check every state of an episode in both searches, whatever was left out: in time, stated, and too deep."""
    monkeypatch.setattr(games, "FEW_NUMBERS", few)
    counts = {True: 0, False: 0}
    for case in failures(60, 8, boxes):
        oracle = solver_oracle.sokoban(case.initial_state)
        game, state = games.BoxGame(case.initial_state, case.horizon), None
        for t, (place, action) in enumerate(
            zip(solver_oracle.replay(oracle, case.actions), [None, *case.actions], strict=True)
        ):
            state = game.start if state is None else game.after(state, str(action))
            right = oracle.distance.get(place)
            for budget in range(case.horizon - t + 1):
                in_time = right is not None and right <= budget
                assert game.in_time(state, budget) == in_time
                counts[in_time] += 1
            assert game.distance(state) == right
            for limit in (0, 5, right or 7, (right or 7) - 1):
                reached = right is not None and right <= limit
                assert game.distance(state, limit) == (right if reached else math.inf)
    assert min(counts.values()) > 100


def test_large_rooms_are_proved() -> None:
    """Ten by ten cells with four boxes have tens of millions of states; a proof looks at few of them."""
    settings = {"rows": 10, "cols": 10, "boxes": 4, "max_solution": 12, "horizon": 20}
    env = SokobanEnv.from_settings(settings)
    rng = random.Random(4)
    cases = []
    for seed in range(3):
        level = SokobanEnv.make_task(env.config, seed).initial_state
        cases += [Case(level, [rng.choice(ORDER) for _ in range(20)], 20) for _ in range(3)]
    check = prover_of("sokoban")
    assert check is not None
    labelled = 0
    for case, answer in zip(cases, SokobanSolver().certify(cases), strict=True):
        if isinstance(answer, Verdict):
            labelled += 1
            assert check.prove(case, answer).holds, (case, answer)
            facts = answer.certificate
            wrong = replace(answer, certificate=replace(facts, after=(facts.after or 3) + 1))
            assert check.prove(case, wrong).problems
    assert labelled >= 6


def test_what_cannot_be_proved_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    case = failures(1, 2)[0]
    verdict = SokobanSolver().certify([case])[0]
    assert isinstance(verdict, Verdict)
    for bad in (replace(case, initial_state="#"), replace(case, initial_state="?")):
        assert "could not be re-proved" in prove("sokoban", bad, verdict).problems[0]
    for bad in (replace(case, actions=["jump"]), replace(case, actions=[]), replace(case, horizon=0)):
        assert "not an episode" in prove("sokoban", bad, verdict).problems[0]
    solved = Case("######\n#@ $.#\n######", ["right", "right", "up"], 9)
    assert "over after 2 of 3" in prove("sokoban", solved, verdict).problems[0]
    fallen = Case("SH\nFG", ["right", "up"], 9)
    assert "over after 1 of 2" in prove("frozenlake", fallen, verdict).problems[0]
    monkeypatch.setattr(games, "FEW_NUMBERS", 0)
    monkeypatch.setattr(games, "MAX_NUMBERS", 10)
    assert "more than 10 states" in str(prove("sokoban", case, verdict).undecided)
    monkeypatch.undo()
    small = SokobanProver(settings=PuzzleSettings(max_states=10)).prove(case, verdict)
    assert "more than 10 states" in str(small.undecided)
    assert not small.holds and not small.problems
    assert prover_of("chess") is None
    with pytest.raises(CertifyError, match="'chess' has no prover"):
        prove("chess", case, verdict)
