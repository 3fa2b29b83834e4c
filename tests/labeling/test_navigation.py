"""Log, prompt, guidance and filter of navigation labels, from the printed log and from random rooms."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pivot.environments.base import EnvProfile
from pivot.labeling.action_log import log_lines
from pivot.labeling.analyzer import analyzer_prompt, analyzer_text
from pivot.labeling.base import Draft, FailedEpisode, GuidanceRequest, Objection
from pivot.labeling.domains.navigation import NavigationFactsFilter
from pivot.labeling.filters import GuidanceFilter, OutcomeFilter, TargetFilter
from pivot.labeling.target import build_target
from pivot.labeling.vocabulary import target_modes
from pivot.labeling.writers.template import TemplateWriter
from pivot.solvers.base import Case, Verdict
from pivot.solvers.navigation.solver import NavigationSolver
from pivot.tests.navigation_episodes import printed_episode, thor_state, walks

PROFILE = EnvProfile(
    name="navigation",
    version="1",
    backend="embedded",
    answer_tag="action",
    unusable_action="invalid",
    failure_modes=("format", "blocked", "stagnation", "budget"),
    state_format="navigation-json-1",
    log_fields=("moved", "last_action_success", "action_is_valid", "dist", "remaining_turns"),
    task_description="Navigation: find an object in a furnished room.",
    default_tasks=120,
)


def failed(case: Case) -> FailedEpisode:
    count = len(case.actions)
    return FailedEpisode(
        episode_id="episode-v1-x",
        env="navigation",
        env_version="1",
        env_config={"horizon": case.horizon},
        task_id="navigation-x-1",
        instruction="navigate to the Bread in the room and be as close as possible to it",
        initial_state=case.initial_state,
        horizon=case.horizon,
        actions=case.actions,
        payloads=[None] * count,
        rewards=[-0.1] * count,
        infos=case.steps,
        action_valid=[True] * count,
        frame_ids=[f"frame{t}" for t in range(count + 1)],
    )


def verdict(case: Case, **options: Any) -> Verdict:
    answer = NavigationSolver(**options).certify([case])[0]
    assert isinstance(answer, Verdict)
    return answer


def guidance(case: Case, answer: Verdict) -> str:
    episode = failed(case)
    request = GuidanceRequest(PROFILE, episode, answer, analyzer_prompt(PROFILE, episode))
    return TemplateWriter().write([request])[0].text


def objection(case: Case, answer: Verdict, text: str, rule: type = NavigationFactsFilter) -> Objection | None:
    target = build_target(answer.pivot_step, answer.failure_mode, text)
    return rule().check(failed(case), Draft(answer, text, target, NavigationSolver()))


def test_the_log_has_the_printed_form() -> None:
    printed = printed_episode()
    lines = log_lines(PROFILE.log_fields, printed.actions, printed.steps)
    assert lines[0] == (
        "step 0: action=moveright moved=false last_action_success=false action_is_valid=true dist=2.87 "
        "remaining_turns=24"
    )
    # A distance that was not measured is left out.
    assert lines[12] == (
        "step 12: action=invalid moved=false last_action_success=false action_is_valid=true remaining_turns=12"
    )
    assert lines[24].endswith("dist=2.82 remaining_turns=0")


def test_the_analyzer_is_told_the_modes_and_what_they_mean() -> None:
    text = analyzer_text(PROFILE, failed(printed_episode()))
    assert "5x5 grid" in text
    assert "[0, 24]" in text
    assert "exactly one of: format, blocked, stagnation, budget." in text
    for words in ("half a metre", "within 1.5 m", "dist can be trusted", "0.1 m over the five steps"):
        assert words in text
    assert target_modes(PROFILE, "paper") == PROFILE.failure_modes


@pytest.mark.parametrize(
    ("options", "avoid", "command"),
    [
        (
            {},
            "Avoid turns that bring the target no nearer: after this turn the 2.82 m to the target take at least 3 "
            "moves, with 2 turns left.",
            "At step 22, do not choose rotateright; take the move that shortens the way to the target most.",
        ),
        (
            {"threshold": 1.0},
            "Avoid walking into what stands in the way, since a stopped move costs its turn: after this turn the "
            "2.82 m to the target take at least 4 moves, with 3 turns left.",
            "At step 21, do not run into what is in the way with moveahead; go around it.",
        ),
    ],
)
def test_guidance_for_the_printed_log(options: dict[str, Any], avoid: str, command: str) -> None:
    assert guidance(printed_episode(), verdict(printed_episode(), **options)) == f"{avoid} {command}"


def test_guidance_of_random_walks_passes_every_rule() -> None:
    seen: set[tuple[str, bool, bool]] = set()
    for case in walks(11, 250):
        answer = verdict(case)
        text = guidance(case, answer)
        seen.add((answer.failure_mode, answer.witness is not None, answer.fallback))
        for rule in (NavigationFactsFilter, OutcomeFilter, GuidanceFilter, TargetFilter):
            assert objection(case, answer, text, rule) is None, text
        if answer.witness:
            assert f"{answer.witness[0]}" in text.partition(f"At step {answer.pivot_step}")[2]
        assert "reached" not in text
    assert {mode for mode, *_ in seen} == set(PROFILE.failure_modes)
    assert len(seen) >= 10


def test_guidance_for_a_hopeless_start() -> None:
    case = Case(thor_state(20.0), ["invalid"], 25, [{"dist": 20.0}])
    text = guidance(case, verdict(case))
    assert text == (
        "Avoid losing any turn on so long a way: the 20.00 m to the target take at least 37 moves, and only 25 turns "
        "were given. At step 0, do not count on invalid: nothing there kept the target in reach."
    )


ARRIVALS = [
    "The agent reached the bread.",
    "At step 3 the agent had reached its target, so stop there.",
    "After step 3 the robot arrived at the goal.",
    "The target was found at step 4; do not walk on.",
    "It stopped next to the bread and then turned away.",
    "The task was completed at step 22.",
    "the Bread WAS reached",
    "You made it to the loaf of bread? No: it made it to the bread.",
    "The bread has been found, so keep still at step 22.",
    "It walked to the left and reached the bread.",
    "The agent stood right in front of the bread.",
    "The attempt succeeded.",
]
NO_ARRIVALS = [
    "",
    "Reach the bread in time.",
    "The agent never reached the bread.",
    "The agent has not reached the bread.",
    "Move ahead until you have reached the target.",
    "The target was not reached.",
    "The target was never found.",
    "Avoid detours: the bread is 2.8 m away.",
    "Turn towards the bread so that the target is reached.",
    "Once the target is found, approach it.",
    "The episode ended before the agent reached the bread.",
    "It could have reached the target.",
    "The agent did not get to the bread.",
    "It failed to reach the target.",
    "The agent nearly reached the goal.",
    "The agent is in front of the counter, and the bread is behind it.",
    "The agent found the counter.",
    "If the bread is reached, stop.",
]


@pytest.mark.parametrize("text", ARRIVALS)
def test_a_claimed_arrival_is_refused(text: str) -> None:
    printed = printed_episode()
    found = objection(printed, verdict(printed), text, OutcomeFilter)
    assert found is not None
    assert found.kind == "claims_success"


@pytest.mark.parametrize("text", NO_ARRIVALS)
def test_advice_and_denials_are_no_claims(text: str) -> None:
    printed = printed_episode()
    assert objection(printed, verdict(printed), text, OutcomeFilter) is None


def test_the_name_of_the_target_is_read_from_the_state() -> None:
    text = "The agent stood beside the alarm clock."
    printed = printed_episode()
    assert objection(printed, verdict(printed), text, OutcomeFilter) is None
    state = json.loads(printed.initial_state)
    state["target"]["type"] = "AlarmClock"
    assert (
        objection(replace(printed, initial_state=json.dumps(state)), verdict(printed), text, OutcomeFilter) is not None
    )
    for broken in ("", "[]", "{}", "[" * 100_000):
        assert objection(replace(printed, initial_state=broken), verdict(printed), text, OutcomeFilter) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("At step 22 the agent bumped into a wall.", "claims_blocked"),
        ("Rotating brought the bread closer.", "claims_progress"),
        ("Rotate right at step 22.", "bad_action"),
        ("At step 22 the agent moved ahead.", "other_action"),
        ("Plenty of turns were left.", "denies_turns_ran_out"),
        ("Walk ahead at step 22.", None),
        ("The agent rotated right at step 22.", None),
    ],
)
def test_the_log_decides_what_may_be_said(text: str, kind: str | None) -> None:
    printed = printed_episode()
    found = objection(printed, verdict(printed), text)
    assert (found and found.kind) == kind


@pytest.mark.timeout(10)
def test_a_hostile_text_takes_no_time() -> None:
    printed = printed_episode()
    for piece in ("reached the ", "is now ", "to a ", "the bread ", "found "):
        for rule in (NavigationFactsFilter, OutcomeFilter, GuidanceFilter):
            objection(printed, verdict(printed), piece * 2_000, rule)
