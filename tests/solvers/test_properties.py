"""Properties that hold for every episode: budgets, truncation, caps, bad episodes."""

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pivot.solvers.base import Case, ExactSolver, Unsolved, Verdict
from pivot.solvers.frozenlake.solver import FrozenLakeSolver
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.tests.solvers import level_makers, solver_oracle

SOLVERS: dict[str, ExactSolver] = {"sokoban": SokobanSolver(), "frozenlake": FrozenLakeSolver()}
WORDS = (*solver_oracle.ORDER, "invalid")


def random_level(env: str, seed: int) -> str:
    rng = random.Random(seed)
    if env == "frozenlake":
        return level_makers.frozenlake_map(rng.randint(2, 6), rng.randint(2, 6), rng.uniform(0, 0.4), rng)
    grid = level_makers.room(rng.randint(5, 7), rng.randint(5, 7), rng.uniform(0, 0.3), rng)
    boxes = 2 if sum(line.count(" ") for line in grid) > 8 and rng.random() < 0.3 else 1
    return level_makers.sokoban_level(grid, boxes, rng.choice((None, 20, 100)), rng)


def certify(env: str, text: str, actions: list[str], horizon: int) -> Verdict:
    answer = SOLVERS[env].certify([Case(text, actions, horizon)])[0]
    assume(isinstance(answer, Verdict))
    assert isinstance(answer, Verdict)
    return answer


envs = st.sampled_from(sorted(SOLVERS))
seeds = st.integers(0, 10**6)
plays = st.lists(st.sampled_from(WORDS), min_size=1, max_size=14)
many = settings(max_examples=400, deadline=None)


@many
@given(envs, seeds, plays, st.integers(0, 10))
def test_more_budget_moves_the_pivot_later_only(env: str, seed: int, actions: list[str], more: int) -> None:
    text = random_level(env, seed)
    tight = certify(env, text, actions, len(actions))
    loose = certify(env, text, actions, len(actions) + more)
    assert loose.pivot_step >= tight.pivot_step
    if not tight.infeasible_at_start:
        assert not loose.infeasible_at_start
    if tight.failure_mode == "deadlock" and not tight.infeasible_at_start:
        assert replace(loose, certificate=tight.certificate, feasible_actions=()) == replace(tight, feasible_actions=())


@many
@given(envs, seeds, plays, st.integers(0, 10))
def test_what_follows_the_pivot_does_not_matter(env: str, seed: int, actions: list[str], more: int) -> None:
    text = random_level(env, seed)
    whole = certify(env, text, actions, len(actions) + more)
    short = certify(env, text, actions[: whole.pivot_step + 1], len(actions) + more)
    assert short == whole


def test_a_fatal_push_after_the_budget_was_lost_is_a_timeout() -> None:
    """Both tests are made right after the pivot step."""
    level = "######\n#    #\n#. $ #\n#  @ #\n######"
    case = Case(level, ["invalid", "invalid", "up"], 5)
    lost, early = SokobanSolver().certify([case, replace(case, horizon=9)])
    assert isinstance(lost, Verdict)
    assert (lost.pivot_step, lost.failure_mode, lost.certificate.after) == (1, "timeout", 4)
    assert (lost.witness, lost.feasible_actions) == (("right", "up", "left", "left"), ("right",))
    assert isinstance(early, Verdict)
    assert (early.pivot_step, early.failure_mode, early.certificate.after) == (2, "deadlock", None)


def test_more_targets_than_boxes_and_boxes_behind_walls() -> None:
    solver = SokobanSolver()
    assert solver.distance_map("#######\n#.@$ .#\n#######").distance("#######\n#.@$ .#\n#######") == 2
    apart = "#######\n#@$.#*#\n#######"
    assert solver.distance_map(apart).distance(apart) == 1
    lost = "########\n#@$.#$.#\n########"
    assert solver.distance_map(lost).distance(lost) is None


def test_levels_wider_than_a_machine_word() -> None:
    for width in (61, 62, 63, 64, 65, 130):
        text = "\n".join(["#" * (width + 2), "#@$" + " " * (width - 3) + ".#", "#" * (width + 2)])
        turned = "\n".join("".join(column) for column in zip(*text.split("\n"), strict=True))
        for level, forward, backward in ((text, "right", "left"), (turned, "down", "up")):
            answer = SokobanSolver().certify([Case(level, [forward, backward, "invalid"], width - 1)])[0]
            assert isinstance(answer, Verdict)
            facts = answer.certificate
            assert (answer.pivot_step, facts.before, facts.after) == (1, width - 3, width - 2)
            assert answer.witness == (forward,) * (width - 3)


@pytest.mark.parametrize("env", sorted(SOLVERS))
def test_bad_episodes_are_answered(env: str) -> None:
    text = {"sokoban": "######\n#@ $.#\n######", "frozenlake": "SFF\nHFF\nFFG"}[env]
    cases = {
        "no actions": Case(text, [], 9),
        "unknown action 'jump' at step 1": Case(text, ["up", "jump"], 9),
        "3 actions, more than its horizon of 2": Case(text, ["up"] * 3, 2),
        "at most 1000000": Case(text, ["up"], 10**7),
    }
    if env == "frozenlake":
        cases["in a hole after 1 actions"] = Case(text, ["down", "up"], 9)
    for reason, answer in zip(cases, SOLVERS[env].certify(list(cases.values())), strict=True):
        assert isinstance(answer, Unsolved)
        assert answer.reason == "bad_episode"
        assert reason in answer.detail
    solved = {"sokoban": ["right", "right"], "frozenlake": ["right", "right", "down", "down", "up"]}[env]
    answer = SOLVERS[env].certify([Case(text, solved, 9)])[0]
    assert isinstance(answer, Unsolved)
    assert answer.reason == "not_a_failure"


def test_a_cap_is_answered_as_solver_limit() -> None:
    text = "########\n#  .  .#\n# $ $  #\n#   @  #\n########"
    answer = SokobanSolver(max_states=50).certify([Case(text, ["up", "down"], 40)])[0]
    assert isinstance(answer, Unsolved)
    assert answer.reason == "solver_limit"
    assert "50" in answer.detail
    assert SokobanSolver(max_states=50).config == {"max_states": 50}
