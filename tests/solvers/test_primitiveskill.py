"""Labels of PrimitiveSkill episodes: the printed log, rules, planted defects, bad episodes."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot import certify, certify_batch
from pivot.core.errors import CertifyError
from pivot.environments.primitiveskill.actions import ARITY as ENV_ARITY
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig, PrimitiveSkillEnv
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.solvers.base import Case, Unsolved, Verdict, prove
from pivot.solvers.primitiveskill.planner import THINGS
from pivot.solvers.primitiveskill.solver import ARITY, STAGES, UNUSABLE, PrimitiveSkillSolver
from pivot.testing import altered
from pivot.tests import primitiveskill_episodes as episodes
from pivot.tests.primitiveskill_episodes import SOME_ACTIONS, log, observation, printed_episode, random_log, state

PICK, PLACE, BOTH, PUSH = SOME_ACTIONS[1], SOME_ACTIONS[2], SOME_ACTIONS[4], SOME_ACTIONS[3]


def label(case: Case) -> Verdict:
    answer = PrimitiveSkillSolver().certify([case])[0]
    assert isinstance(answer, Verdict), answer
    assert prove("primitiveskill", case, answer).problems == ()
    return answer


def test_the_printed_log() -> None:
    """Five empty turns, then a pick and place with a stage gained: lost when one turn is left for two stages."""
    answer = label(printed_episode())
    assert (answer.pivot_step, answer.failure_mode, answer.secondary_modes) == (4, "format", ())
    assert (answer.fallback, answer.infeasible_at_start) == (False, False)
    assert (answer.witness, answer.feasible_actions) == (None, ())
    facts = answer.certificate
    assert (facts.kind, facts.unit, facts.reachable_after) == ("heuristic", "stages", None)
    assert (facts.budget_before, facts.budget_after, facts.before, facts.after) == (2, 1, 2, 2)
    assert (facts.raw_before, facts.raw_after) == (2.0, 2.0)
    assert (facts.reference_pivot, facts.reference_kind, facts.reference_before) == (None, None, None)
    shown = certify(
        "primitiveskill", printed_episode().initial_state, printed_episode().actions, 6, steps=printed_episode().steps
    )
    assert shown == answer


def test_a_batch_takes_what_was_observed_and_has_the_bound_of_a_single_call() -> None:
    config = PrimitiveSkillConfig(tasks=("stack",), horizon=2)
    env = PrimitiveSkillEnv(config)
    start = env.make_task(config, 1).initial_state
    _, first = env.reset(options={"state": start})
    infos = [env.step("empty")[-1] for _ in range(2)]
    row = {"initial_state": start, "actions": ["empty"] * 2, "horizon": 2, "steps": infos}
    row["observations"] = [each["observation_text"] for each in (first, infos[0])]
    alone = certify("primitiveskill", **row)
    assert certify_batch("primitiveskill", [row]) == [alone] and isinstance(alone, Verdict)
    assert alone.certificate.reference_kind == "lower_bound"


def test_solver_and_environment_agree_on_the_tasks() -> None:
    """The solver imports no environment; what it knows of the tasks is written down twice and compared here."""
    assert STAGES == episodes.STAGES == {"align": 2, "place": 3, "stack": 3, "drawer": 2}
    assert {name: len(kind.stages) for name, kind in KINDS.items()} == STAGES
    assert {name: kind.things for name, kind in KINDS.items()} == THINGS
    assert ARITY == ENV_ARITY
    profile = PrimitiveSkillEnv.profile
    assert PrimitiveSkillSolver.modes == profile.failure_modes and UNUSABLE[0] == profile.unusable_action
    assert profile.log_fields == ("legal", "remaining_stages", "remaining_turns")


def test_an_illegal_turn_with_words_fits_two_modes() -> None:
    """Our log never has one; an imported one may."""
    case = log("align", [("empty", 2)] * 4 + [(BOTH, 2)])
    case = replace(case, steps=[*case.steps[:4], {**case.steps[4], "legal": False}])
    answer = label(case)
    assert (answer.failure_mode, answer.secondary_modes) == ("format", ("wrong_target",))


def test_all_stages_but_no_success() -> None:
    turns = [(BOTH, 1), (BOTH, 0), (PUSH, 0), (PUSH, 0), (PUSH, 0), (BOTH, 0)]
    answer = label(log("drawer", turns))
    assert (answer.pivot_step, answer.fallback, answer.failure_mode) == (5, True, "wrong_target")
    assert (answer.certificate.before, answer.certificate.after) == (0, 0)


def test_more_stages_than_turns_from_the_start() -> None:
    answer = label(log("place", [(BOTH, 2), (BOTH, 1)], horizon=2))
    assert (answer.pivot_step, answer.infeasible_at_start, answer.fallback) == (0, True, False)
    answer = label(log("place", [(BOTH, 1), (BOTH, 1)], horizon=2, achieved=(True, False, False)))
    assert (answer.pivot_step, answer.infeasible_at_start) == (1, False)


def test_verdicts_of_random_logs_are_proved() -> None:
    rng = random.Random(5)
    modes = set()
    for _ in range(1500):
        case = random_log(rng)
        answer = label(case)
        modes.add(answer.failure_mode)
        facts = answer.certificate
        assert (facts.reference_pivot is None) == (not case.observations)
        if facts.reference_pivot is not None:
            assert facts.reference_kind == "lower_bound" and facts.reference_before in (1, 2)
    assert modes == set(PrimitiveSkillSolver.modes)


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_text_raises(action: str, message: str) -> None:
    base = log("stack", [(BOTH, 3)] * 6)
    for case in (replace(base, actions=[action, *base.actions[1:]]), replace(base, initial_state=action)):
        assert isinstance(PrimitiveSkillSolver().certify([case])[0], Verdict | Unsolved)
    assert label(replace(base, observations=[message] * 6)).certificate.reference_pivot is None


GOOD = log("stack", [(BOTH, 3)] * 6)
BAD = {
    "the episode has 0 actions": replace(GOOD, actions=[], steps=[]),
    "expected 1 to its horizon of 5": replace(GOOD, horizon=5),
    "the log has 5 steps for 6 actions": replace(GOOD, steps=GOOD.steps[:5]),
    "the log has 0 steps for 6 actions": replace(GOOD, steps=()),
    "unknown action 'up' at step 0": replace(GOOD, actions=["up", *GOOD.actions[1:]]),
    "unknown action 'pick(1,2)'": replace(GOOD, actions=["pick(1,2)", *GOOD.actions[1:]]),
    "unknown action 'pick(1,2,3)|": replace(GOOD, actions=["pick(1,2,3)|" * 2 + "pick(1,2,3)", *GOOD.actions[1:]]),
    "unknown action 'pick(1, 2, 3)'": replace(GOOD, actions=["pick(1, 2, 3)", *GOOD.actions[1:]]),
    "unknown action ''": replace(GOOD, actions=["", *GOOD.actions[1:]]),
    "remaining_stages of step 0 is None": replace(GOOD, steps=[{"legal": True}, *GOOD.steps[1:]]),
    "remaining_stages of step 0 is 4": replace(GOOD, steps=[{"legal": True, "remaining_stages": 4}, *GOOD.steps[1:]]),
    "remaining_stages of step 1 is 3": replace(GOOD, steps=[{"legal": True, "remaining_stages": 2}, *GOOD.steps[1:]]),
    "remaining_stages of step 0 is True": replace(
        GOOD, steps=[{"legal": True, "remaining_stages": True}, *GOOD.steps[1:]]
    ),
    "legal of step 0 is None": replace(GOOD, steps=[{"remaining_stages": 3}, *GOOD.steps[1:]]),
    "step 0 is logged as legal, but its action is empty": replace(GOOD, actions=["empty", *GOOD.actions[1:]]),
    "the state is not JSON": replace(GOOD, initial_state="SFFF"),
    "the state has task 'None'": replace(GOOD, initial_state="[]"),
    "the state has task 'cook'": replace(GOOD, initial_state=state("stack").replace("stack", "cook")),
    "achieved is [False], expected 3 times": replace(GOOD, initial_state=state("stack", [False])),
    "at most 10000 are read": replace(GOOD, initial_state=" " * 10_001),
}

READ_BY_CERTIFY = {"unknown action 'pick(1, 2, 3)'"}
"""Ways to write an action that stores never use, but people do."""


@pytest.mark.parametrize("problem", BAD)
def test_bad_episodes_are_answers(problem: str) -> None:
    answer = PrimitiveSkillSolver().certify([GOOD, BAD[problem], GOOD])
    assert isinstance(answer[0], Verdict) and answer[0] == answer[2]
    assert isinstance(answer[1], Unsolved) and answer[1].reason == "bad_episode"
    assert problem in answer[1].detail and not prove("primitiveskill", BAD[problem], answer[0]).holds
    case = BAD[problem]
    if problem in READ_BY_CERTIFY:
        assert certify("primitiveskill", case.initial_state, case.actions, case.horizon, steps=case.steps) == answer[0]
        return
    with pytest.raises(CertifyError, match="bad_episode"):
        certify("primitiveskill", case.initial_state, case.actions, case.horizon, steps=case.steps)


def test_a_deeply_nested_state_is_an_answer() -> None:
    for text in ("[" * 9_000, '{"task":' * 1_000):
        assert isinstance(PrimitiveSkillSolver().certify([replace(GOOD, initial_state=text)])[0], Unsolved)


def test_every_changed_field_is_found() -> None:
    rng = random.Random(8)
    checked = 0
    for case in [printed_episode(), *(random_log(rng) for _ in range(40))]:
        for name, wrong in altered(label(case), case, PrimitiveSkillSolver.modes, PrimitiveSkillSolver.actions):
            assert not prove("primitiveskill", case, wrong).holds, name
            checked += 1
    assert checked > 800


def test_observations_have_to_fit_the_actions() -> None:
    message = observation("stack", (0, 0, 20), (100, 100, 20), (-90, -90, 20))
    with_all = label(replace(GOOD, observations=[message] * 6))
    # Two turns are needed at the last step, for which one is left: the bound says so one step before.
    facts = with_all.certificate
    assert (with_all.pivot_step, facts.reference_pivot) == (3, 4)
    assert (facts.reference_before, facts.reference_after) == (2, 2)
    for texts in ([message] * 5, [message] * 5 + [""], [message] * 5 + [observation("place", (0, 0, 20), (9, 9, 20))]):
        assert label(replace(GOOD, observations=texts)).certificate.reference_pivot is None
