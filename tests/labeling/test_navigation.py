"""Log, prompt, guidance and filter of navigation labels, from the printed log and from random rooms."""

from dataclasses import replace
from typing import Any

import pytest
from pivot.environments.navigation import NavigationEnv
from pivot.labeling.analyzer import analyzer_text
from pivot.labeling.domains import Failure, domain_of
from pivot.labeling.label import certify_episodes, guidance_request, guidance_requests
from pivot.labeling.target import target_modes
from pivot.labeling.writers import prompt
from pivot.solvers.base import Case, Verdict
from pivot.solvers.navigation.solver import NavigationSolver
from pivot.tests.labeling.episodes import failed
from pivot.tests.labeling.fact_checker import Checker
from pivot.tests.navigation_episodes import printed_episode, thor_state, walks

PROFILE = NavigationEnv.profile


def verdict(case: Case, **options: Any) -> Verdict:
    answer = NavigationSolver(**options).certify([case])[0]
    assert isinstance(answer, Verdict)
    return answer


def test_the_prompt_explains_the_modes_to_the_analyzer() -> None:
    text = analyzer_text(PROFILE, failed("navigation", printed_episode()))
    assert "5x5 grid" in text and "[0, 24]" in text
    assert "exactly one of: format, blocked, stagnation, budget." in text
    for words in ("half a metre", "within 1.5 m", "dist can be trusted", "0.1 m over the five steps"):
        assert words in text
    assert target_modes(PROFILE, "paper") == PROFILE.failure_modes


def test_prompts_state_the_settings_of_the_solver() -> None:
    first = NavigationSolver(threshold=1.0, step=0.25, window=3, eps=0.4)
    solvers = (first, NavigationSolver(step=1.0), NavigationSolver())
    certified = [certify_episodes([failed("navigation", printed_episode())], each)[0] for each in solvers]
    request, *others = guidance_requests(certified, "certificate", {}).values()
    for words in ("0.25 m each", "within 1 m of", "0.4 m over the 3 steps"):
        assert words in str(certified[0].prompt.messages)
    assert "0.25 m each" in prompt.guidance_text(request)
    assert ["straight_way" in str(each.offer) for each in others] == [False, True]
    rules = [NavigationSolver(pivot_rule=rule).settings for rule in ("budget", "earliest_event", "exact")]
    assert len({domain_of("navigation", each).pivot for each in rules}) == 3


def kinds(case: Case, answer: Verdict) -> tuple[list[str], list[str]]:
    """Return the kinds of the facts and actions that are offered."""
    offer = domain_of("navigation").offer(Failure(PROFILE, failed("navigation", case), answer))
    return [each.kind for each in offer.facts], [each.kind for each in offer.actions]


@pytest.mark.parametrize(
    ("options", "facts"), [({}, ["far_after", "stagnant", "no_nearer"]), ({"threshold": 1.0}, ["far_after", "blocked"])]
)
def test_statements_about_the_printed_log(options: dict[str, Any], facts: list[str]) -> None:
    """Without a room no action is proved, and none is recommended."""
    stated, offered = kinds(printed_episode(), verdict(printed_episode(), **options))
    assert (stated[: len(facts)], offered) == (facts, [])


@pytest.mark.parametrize("lost", [21, 22])
def test_without_a_distance_on_both_sides_nothing_says_that_the_target_came_no_nearer(lost: int) -> None:
    case = printed_episode()
    log = [{**dict(each), "dist": None} if t == lost else each for t, each in enumerate(case.steps)]
    case = replace(case, steps=log)
    answer = verdict(case)
    assert answer.pivot_step == 22 and "no_nearer" not in kinds(case, answer)[0]


def test_a_teacher_reads_neither_a_rotation_as_idle_nor_a_bound_as_exact() -> None:
    case = printed_episode()
    for worked in (True, False):
        steps = [{**each, "moved": False, "last_action_success": worked} for each in case.steps]
        request = guidance_request(PROFILE, failed("navigation", replace(case, steps=steps)), verdict(case))
        assert any("it changed nothing" in each for each in prompt.facts(request)) is not worked
    assert "Needed before step 22: at least 3 turns; needed after it: at least 3 turns." in prompt.facts(request)


def test_everything_offered_about_random_walks_is_true() -> None:
    seen: set[tuple[str, bool, bool]] = set()
    sentences = domain_of("navigation").sentences
    for case in walks(11, 250):
        answer, episode = verdict(case), failed("navigation", case)
        seen.add((answer.failure_mode, answer.witness is not None, answer.fallback))
        offer = domain_of("navigation").offer(Failure(PROFILE, episode, answer))
        read = Checker(episode, answer.pivot_step, answer.failure_mode)
        for number, each in enumerate((*offer.signs, *offer.facts, *offer.actions)):
            said = sentences.sentence(each, number + answer.pivot_step)
            if each.kind not in ("far_after", "far_before", "too_far"):  # distances are printed to the centimetre
                assert read.problem(said) is None, said
        if answer.witness:
            assert answer.witness[0] in dict(offer.actions[0].values).values()
    assert {mode for mode, *_ in seen} == set(PROFILE.failure_modes) and len(seen) >= 10


def test_statements_about_a_hopeless_start() -> None:
    case = Case(thor_state(20.0), ["invalid"], 25, [{"dist": 20.0}])
    assert kinds(case, verdict(case)) == (["too_far", "unusable"], ["reply"])
