"""Log, prompt, guidance and filter of PrimitiveSkill labels."""

import random
import re
from dataclasses import replace

import pytest
from pivot.datasets.describe import certificate_text, reference_text
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.labeling.action_log import log_lines
from pivot.labeling.analyzer import analyzer_prompt, analyzer_text
from pivot.labeling.base import Draft, FailedEpisode, GuidanceRequest, Objection
from pivot.labeling.domains.primitiveskill import PrimitiveSkillFactsFilter, would_serve
from pivot.labeling.filters import GuidanceFilter, OutcomeFilter, TargetFilter
from pivot.labeling.target import build_target
from pivot.labeling.vocabulary import target_modes
from pivot.labeling.writers.prompt import facts, guidance_text
from pivot.labeling.writers.template import TemplateWriter
from pivot.solvers.base import Case, Verdict
from pivot.solvers.primitiveskill.solver import PrimitiveSkillSolver
from pivot.tests.primitiveskill_episodes import PRINTED, SOME_ACTIONS, log, observation, printed_episode, random_log

PROFILE = PrimitiveSkillEnv.profile
BOTH, PUSH = SOME_ACTIONS[4], SOME_ACTIONS[3]
TOLD = {
    "align": observation("align", (120, -80, 20), (110, 150, 20)),
    "place": observation("place", (-50, -50, 20), (-60, 60, 20)),
    "stack": observation("stack", (0, 0, 20), (100, 100, 20), (-90, -90, 20)),
    "drawer": observation("drawer", (-120, 150, 35)),
}


def failed(case: Case, task: str) -> FailedEpisode:
    count = len(case.actions)
    return FailedEpisode(
        episode_id="episode-v1-x",
        env="primitiveskill",
        env_version="1",
        env_config={"horizon": case.horizon},
        task_id="primitiveskill-x-1",
        instruction=KINDS[task].instruction,
        initial_state=case.initial_state,
        horizon=case.horizon,
        actions=case.actions,
        payloads=[None] * count,
        rewards=[-0.1] * count,
        infos=case.steps,
        action_valid=[True] * count,
        frame_ids=[f"frame{t}" for t in range(count + 1)],
        observations=case.observations,
    )


def told(case: Case, task: str) -> Case:
    return replace(case, observations=[TOLD[task]] * len(case.actions))


def verdict(case: Case) -> Verdict:
    answer = PrimitiveSkillSolver().certify([case])[0]
    assert isinstance(answer, Verdict)
    return answer


def request(case: Case, task: str) -> GuidanceRequest:
    episode = failed(case, task)
    return GuidanceRequest(PROFILE, episode, verdict(case), analyzer_prompt(PROFILE, episode))


def guidance(case: Case, task: str) -> str:
    return TemplateWriter().write([request(case, task)])[0].text


def objection(case: Case, task: str, text: str, rule: type = PrimitiveSkillFactsFilter) -> Objection | None:
    answer = verdict(case)
    target = build_target(answer.pivot_step, answer.failure_mode, text)
    return rule().check(failed(case, task), Draft(answer, text, target, PrimitiveSkillSolver()))


def test_the_log_has_the_printed_form() -> None:
    printed = printed_episode()
    assert log_lines(PROFILE.log_fields, printed.actions, printed.steps) == PRINTED.splitlines()
    assert PRINTED.splitlines()[0] == "step 0: action=empty legal=false remaining_stages=2 remaining_turns=5"


def test_the_analyzer_is_told_the_modes_and_what_they_mean() -> None:
    text = analyzer_text(PROFILE, failed(printed_episode(), "align"))
    assert text.endswith(PRINTED)
    assert "3x2 grid" in text
    assert "[0, 5]" in text
    assert "exactly one of: timeout, format, wrong_target, order_error." in text
    assert "Line the two cubes up along the y-axis" in text
    for words in ("more stages of the task are open than turns are left", "(action=empty)", "nothing had been picked"):
        assert words in text
    assert target_modes(PROFILE, "paper") == PROFILE.failure_modes


EMPTY = [("empty", 2)] * 6
THREE = [(BOTH, 3)] * 6


@pytest.mark.parametrize(
    ("task", "turns", "avoid", "command"),
    [
        (
            "align",
            EMPTY,
            "Avoid answers without a pick, place or push that can be carried out: after this turn 2 stages are open "
            "with 1 turn left.",
            "At step 4, do not leave the answer without a command (empty); take pick(120,-80,20)|place(0,-80,28).",
        ),
        (
            "stack",
            THREE,
            "Avoid picking and placing beside the thing or the place that is meant, which achieves nothing: after this "
            "turn 3 stages are open with 2 turns left.",
            f"At step 3, do not answer {BOTH}; take pick(0,0,20)|place(100,100,68) instead.",
        ),
        (
            "drawer",
            [(PUSH, 2)] * 6,
            "Avoid placing or pushing before anything has been picked up: after this turn 2 stages are open with 1 "
            "turn left.",
            f"At step 4, do not answer {PUSH}; take pick(-120,150,35)|place(-300,-180,195) instead.",
        ),
        (
            "place",
            [("pick(1,2,20)", 3), *[(PUSH, 2)] * 5],
            "Avoid turns that achieve less than the turns left demand: after this turn 2 stages are open with 1 turn "
            "left.",
            f"At step 4, do not answer {PUSH}; take pick(-50,-50,20)|place(80,-100,28) instead.",
        ),
        (
            "drawer",
            [(BOTH, 0)] * 6,
            "Avoid taking achieved stages for the goal: all of them had been achieved, and yet not everything was in "
            "its place at the end.",
            f"At step 5, do not answer {BOTH}; take pick(-120,150,35)|place(-300,-180,195) instead.",
        ),
        (
            "place",
            [("pick(-50,-50,20)|place(80,-100,28)", 3)] * 6,
            "Avoid picking and placing beside the thing or the place that is meant, which achieves nothing: after this "
            "turn 3 stages are open with 2 turns left.",
            "At step 3, pick(-50,-50,20)|place(80,-100,28) comes too late; take such a turn from the first step on.",
        ),
        (
            "drawer",
            [(BOTH, 1), (BOTH, 1)],
            "Avoid stopping on the way: when the log ends, 1 stage and 4 turns are left.",
            f"At step 1, do not answer {BOTH}; take pick(-120,150,35)|place(-300,-180,195) instead.",
        ),
    ],
)
def test_template_phrases(task: str, turns: list[tuple[str, int]], avoid: str, command: str) -> None:
    case = told(log(task, turns), task)
    assert guidance(case, task) == f"{avoid} {command}"
    text = guidance(replace(case, observations=()), task)
    assert text.startswith(avoid)
    assert "pick up what is still in a wrong place" in text or "comes too late" not in command


def test_a_start_with_too_few_turns() -> None:
    case = told(log("place", [(BOTH, 3)] * 2, horizon=2), "place")
    assert guidance(case, "place") == (
        "Avoid losing any turn on such a task: it has 3 open stages, and only 2 turns were given. "
        f"At step 0, do not count on {BOTH}: there were fewer turns than stages from the start."
    )


def test_template_guidance_passes_every_rule() -> None:
    rng = random.Random(11)
    texts = set()
    for _ in range(400):
        case = random_log(rng)
        task = re.findall(r'"task": "(\w+)"', case.initial_state)[0]
        text = guidance(case, task)
        for rule in (PrimitiveSkillFactsFilter, GuidanceFilter, TargetFilter, OutcomeFilter):
            assert objection(case, task, text, rule) is None, text
        texts.add(text)
    assert len(texts) > 150


def test_what_would_have_served_needs_a_told_scene() -> None:
    case = told(log("stack", THREE), "stack")
    assert would_serve(failed(case, "stack"), 3) == "pick(0,0,20)|place(100,100,68)"
    held = observation("stack", (-150, 0, 350), (100, 100, 20), (-90, -90, 20))
    carried = replace(case, observations=[held] * 6)
    assert would_serve(failed(carried, "stack"), 0) == "place(100,100,68)|pick(-90,-90,20)"
    done = observation("stack", (100, 100, 60), (100, 100, 20), (100, 100, 100))
    for texts in ((), ["what?"] * 6, [done] * 6):
        assert would_serve(failed(replace(case, observations=texts), "stack"), 3) is None
    assert would_serve(failed(case, "stack"), 6) is None
    assert would_serve(failed(replace(case, initial_state="[]"), "stack"), 3) is None


def test_a_teacher_is_told_stages_places_and_what_would_have_served() -> None:
    case = told(log("place", [(BOTH, 3)] * 6), "place")
    found = facts(request(case, "place"))
    assert "Stages open before step 3: 3, with 3 turns left; after it: 3, with 2 turns left." in found
    assert (
        "Stages of the task, each counted once it has been achieved: red cube grasped; red cube on its target; green "
        "cube grasped." in found
    )
    assert any("in the order red cube, green cube, left target, right target: Object positions" in f for f in found)
    assert "An action that would have served at step 3: pick(-50,-50,20)|place(80,-100,28)." in found
    text = guidance_text(request(case, "place"))
    assert "remaining_stages=3" in text
    assert all(f"- {fact}" in text for fact in found)
    bare = facts(request(replace(case, observations=()), "place"))
    assert not any("would have served" in fact or "Told before" in fact for fact in bare)


def test_both_pivots_in_words() -> None:
    answer = verdict(told(log("stack", THREE), "stack"))
    certificate = {name: getattr(answer.certificate, name) for name in answer.certificate.__slots__}
    assert certificate_text(certificate) == (
        "before the action 3 stages are open with 3 turns left; after it 3 stages are open with 2 (heuristic)"
    )
    assert reference_text(certificate) == (
        "the task was lost at step 4 at the latest; before the pivot action at least 2 turns are needed, after it at "
        "least 2 turns are needed (lower_bound)"
    )


# What a text may not claim

NOTHING = log("stack", THREE)
SOMETHING = log("stack", [(BOTH, 2), *[(PUSH, 2)] * 5])
ALL = log("drawer", [(BOTH, 0)] * 6)

CLAIMS = [
    (NOTHING, "stack", "At step 3 the tower was built.", "claims_success"),
    (NOTHING, "stack", "By step 3 the cubes were stacked, so stop there.", "claims_success"),
    (NOTHING, "stack", "The arm succeeded at step 3.", "claims_success"),
    (ALL, "drawer", "At step 5 the task was successfully completed.", "claims_success"),
    (NOTHING, "stack", "All stages were achieved before step 3.", "claims_stage_achieved"),
    (SOMETHING, "stack", "Every stage was completed by step 4.", "claims_all_stages"),
    (SOMETHING, "stack", "No stage was achieved before step 4.", "denies_stage_achieved"),
    (SOMETHING, "stack", "You never completed a stage; at step 4 pick first.", "denies_stage_achieved"),
    (NOTHING, "stack", "The red cube was picked up at step 3 and dropped.", "claims_stage_thing_grasped"),
    (NOTHING, "stack", "It picked up the purple cube at step 3.", "claims_stage_thing_grasped"),
    (NOTHING, "stack", "The reply was empty at step 3.", "claims_no_action"),
]
NO_CLAIMS = [
    (NOTHING, "stack", "At step 3, stop only once the tower is built."),
    (NOTHING, "stack", "The tower was never built; at step 3 pick the red cube first."),
    (NOTHING, "stack", "At step 3, act so that all stages are achieved in time."),
    (NOTHING, "stack", "No stage was achieved before step 3."),
    (NOTHING, "stack", "The red cube was not picked up at step 3."),
    (NOTHING, "stack", "The green cube was picked up at step 3."),
    (SOMETHING, "stack", "The red cube was picked up, but at step 4 time ran short."),
    (ALL, "drawer", "All stages were achieved, but at step 5 the drawer stood open."),
    (NOTHING, "stack", "At step 3, an empty reply would help nobody."),
    (
        replace(NOTHING, actions=["empty"] * 6, steps=[{**s, "legal": False} for s in NOTHING.steps]),
        "stack",
        "The reply was empty at step 3.",
    ),
    (NOTHING, "stack", ""),
]


@pytest.mark.parametrize(("case", "task", "text", "word"), CLAIMS)
def test_what_the_log_denies_is_refused(case: Case, task: str, text: str, word: str) -> None:
    found = objection(case, task, text, OutcomeFilter if word == "claims_success" else PrimitiveSkillFactsFilter)
    assert found is not None
    assert found.kind == word


@pytest.mark.parametrize(("case", "task", "text"), NO_CLAIMS)
def test_advice_denials_and_true_claims_pass(case: Case, task: str, text: str) -> None:
    assert objection(case, task, text) is None
    assert objection(case, task, text, OutcomeFilter) is None


def test_a_log_without_stages_or_task_denies_nothing() -> None:
    text = "All stages were achieved at step 3, and the red cube was picked up."
    episode = failed(NOTHING, "stack")
    draft = Draft(verdict(NOTHING), text, "", PrimitiveSkillSolver())
    for strange in (replace(episode, infos=[{}] * 6), replace(episode, initial_state="[" * 100_000)):
        found = PrimitiveSkillFactsFilter().check(strange, draft)
        assert found is None or found.kind.startswith("claims_")


@pytest.mark.timeout(10)
def test_a_hostile_text_takes_no_time() -> None:
    for piece in ("all of the ", "the cubes were now ", "no single stage ", "the red cube is already ", "was "):
        objection(NOTHING, "stack", piece * 2_000)
