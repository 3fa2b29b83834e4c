"""Log, prompt, guidance and filter of PrimitiveSkill labels."""

import random
import re
from dataclasses import replace

import pytest
from pivot.environments.primitiveskill import PrimitiveSkillConfig
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.environments.primitiveskill.expert import expert_action
from pivot.environments.primitiveskill.state import SkillState
from pivot.environments.primitiveskill.tasks import KINDS, START_OPENING, Point, Scene
from pivot.labeling.analyzer import analyzer_text
from pivot.labeling.base import FailedEpisode, GuidanceRequest
from pivot.labeling.domains import domain_of
from pivot.labeling.domains.primitiveskill import would_serve
from pivot.labeling.label import guidance_request
from pivot.labeling.target import target_modes
from pivot.labeling.writers.prompt import facts, guidance_text
from pivot.solvers.base import Case, Verdict
from pivot.solvers.primitiveskill.solver import PrimitiveSkillSolver
from pivot.tests.labeling import episodes
from pivot.tests.labeling.fact_checker import Checker
from pivot.tests.primitiveskill_episodes import PRINTED, SOME_ACTIONS, log, observation, printed_episode, random_log

PROFILE = PrimitiveSkillEnv.profile
BOTH, PUSH = SOME_ACTIONS[4], SOME_ACTIONS[3]


def failed(case: Case, task: str) -> FailedEpisode:
    return episodes.failed("primitiveskill", case, instruction=KINDS[task].instruction)


def observed(case: Case, task: str) -> Case:
    return replace(case, observations=[OBSERVED[task]] * len(case.actions))


def verdict(case: Case) -> Verdict:
    answer = PrimitiveSkillSolver().certify([case])[0]
    assert isinstance(answer, Verdict)
    return answer


def request(case: Case, task: str) -> GuidanceRequest:
    return guidance_request(PROFILE, failed(case, task), verdict(case))


def test_the_prompt_explains_the_modes_to_the_analyzer() -> None:
    text = analyzer_text(PROFILE, failed(printed_episode(), "align"))
    assert text.endswith(PRINTED) and "3x2 grid" in text
    assert "[0, 5]" in text and "exactly one of: timeout, format, wrong_target, order_error." in text
    assert "Line the two cubes up along the y-axis" in text
    for words in ("more stages of the task are open than turns are left", "(action=empty)", "nothing had been picked"):
        assert words in text
    assert target_modes(PROFILE, "paper") == PROFILE.failure_modes


AT: dict[str, dict[str, Point]] = {
    "align": {"red cube": (120, -80, 20), "green cube": (110, 150, 20)},
    "place": {"red cube": (-50, -50, 20), "green cube": (-60, 60, 20)},
    "stack": {"red cube": (0, 0, 20), "green cube": (100, 100, 20), "purple cube": (-90, -90, 20)},
    "drawer": {"apple": (-120, 150, 35)},
}
OBSERVED = {task: observation(task, *places.values()) for task, places in AT.items()}
THREE = [(BOTH, 3)] * 6
BEST = "best"
"""Placeholder for the action of a perfect player."""
RED_HOME, GREEN_ASIDE = "pick(-50,-50,20)|place(80,-100,28)", "pick(-60,60,20)|place(0,150,28)"
PUSH_RED = "push(80,-160,20,80,0,20)"
APPLE_OUT, APPLE_IN = "pick(-120,150,35)|place(-120,100,45)", "pick(-120,100,35)|place(-300,-180,195)"


def play(task: str, turns: list[str], *, places: dict[str, Point] | None = None, horizon: int = 6) -> Case:
    """Play on the embedded table and return the episode with its log."""
    places = places or AT[task]
    game = PrimitiveSkillEnv(PrimitiveSkillConfig(horizon=horizon))
    game.draw_frames = False
    scene = Scene(places, None, START_OPENING if task == "drawer" else None)
    level = SkillState("embedded", task, scene, (False,) * len(KINDS[task].stages)).text()
    _, info = game.reset(options={"state": level})
    case = Case(level, [], horizon, [], [])
    for turn in turns:
        action = expert_action(KINDS[task], game.state.scene) if turn == BEST else turn
        observed_before = info["observation_text"]
        _, _, success, _, info = game.step(action)
        assert not success
        names = ("legal", "remaining_stages", "remaining_turns")
        step = {name: info[name] for name in names}
        case = replace(
            case,
            actions=[*case.actions, action],
            steps=[*case.steps, step],
            observations=[*case.observations, observed_before],
        )
    return case


@pytest.mark.parametrize(
    ("task", "turns", "facts", "action"),
    [
        ("align", ["empty"] * 6, ["stages_left", "no_command"], "serve_reply pick(120,-80,20)|place(0,-80,28)"),
        ("stack", [BOTH] * 6, ["stages_left", "missed"], f"serve {BOTH} pick(0,0,20)|place(100,100,68)"),
        ("drawer", [PUSH] * 6, ["stages_left", "no_pick"], f"serve {PUSH} pick(-120,150,35)|place(-300,-180,195)"),
        # Two turns are missing: the apple is out, and the drawer is open.
        ("drawer", [APPLE_OUT, *[PUSH] * 5], ["no_turn_left", "no_stage"], f"every_turn {PUSH}"),
        ("drawer", [APPLE_OUT, *["empty"] * 5], ["no_turn_left", "no_command"], "every_reply"),
        ("drawer", [*["empty"] * 4, APPLE_OUT, APPLE_IN], ["all_stages"], "missing"),
        # The red cube was on its target and is brought back there in the last turn; the green cube is still missing.
        ("place", [RED_HOME, PUSH_RED, *["empty"] * 3, BEST], ["no_turn_left", "missed"], "too_late"),
        (
            "place",
            [RED_HOME, GREEN_ASIDE, *["empty"] * 4],
            ["all_stages", "no_command"],
            "serve_reply pick(0,150,20)|place(80,100,28)",
        ),
    ],
)
def test_statements(task: str, turns: list[str], facts: list[str], action: str) -> None:
    case = play(task, turns)
    offer = request(case, task).offer
    assert [each.kind for each in offer.facts][: len(facts)] == facts
    (offered,) = offer.actions
    said = " ".join([offered.kind, *(text for name, text in offered.values if name != "step")])
    assert said == action or (action == offered.kind == "too_late" and said.endswith(case.actions[5]))
    (blind,) = request(replace(case, observations=()), task).offer.actions
    assert blind.kind in ("every_turn", "every_reply", "missing")


def test_the_right_action_without_a_stage_is_no_mistake() -> None:
    """The green cube lies on the red one and has to go first, which is not a stage of the tower."""
    places: dict[str, Point] = {**AT["stack"], "green cube": (0, 0, 60)}
    case = play("stack", [*["empty"] * 3, BEST, "empty", "empty"], places=places)
    (offered,) = request(case, "stack").offer.actions
    assert (offered.kind, request(case, "stack").verdict.pivot_step) == ("still_right", 3)


def test_what_is_recommended_completes_the_task_in_time() -> None:
    """Nothing is recommended where the log contradicts the table, or where too few turns are left."""
    case = play("align", ["empty"] * 6)
    elsewhere = replace(case, observations=[observation("align", (50, -80, 20), (110, 150, 20))] * 6)
    assert [each.kind for each in request(elsewhere, "align").offer.actions] == ["every_reply"]
    lost = play("align", ["empty"] * 2, horizon=2)
    assert [each.kind for each in request(lost, "align").offer.actions] == ["serve_reply"]
    assert [each.kind for each in request(play("place", [BOTH], horizon=1), "place").offer.actions] == ["too_many"]


def test_a_start_with_too_few_turns() -> None:
    """More stages than turns are no proof: two turns are enough for three stages."""
    offer = request(play("place", [BOTH, BOTH], horizon=2), "place").offer
    assert [each.kind for each in (offer.facts[0], *offer.actions)] == ["stages_at_start", "serve"]
    blind = request(log("place", [(BOTH, 3)] * 2, horizon=2), "place").offer
    assert [each.kind for each in blind.actions] == ["too_many"]
    for case in (log("place", [(BOTH, 3)] * 2, horizon=2), log("place", [(BOTH, 0)] * 6)):  # hopeless; all achieved
        shown = facts(request(case, "place"))
        assert not [fact for fact in shown if fact.startswith("No ")]
    assert {"Pivot step: 5. It is the last step, by convention.", "Failure mode: wrong_target."} <= {*shown}


def test_everything_offered_about_random_logs_is_true() -> None:
    rng, sentences = random.Random(11), domain_of("primitiveskill").sentences
    texts = set()
    for number in range(400):
        case = random_log(rng)
        each_request = request(case, re.findall(r'"task": "(\w+)"', case.initial_state)[0])
        read = Checker(each_request.episode, each_request.verdict.pivot_step, each_request.verdict.failure_mode)
        offer = each_request.offer
        said = [sentences.sentence(each, number) for each in (*offer.signs, *offer.facts, *offer.actions)]
        assert [each for each in said if read.problem(each)] == []
        texts.add(" ".join(said))
    assert len(texts) > 150


def test_what_would_have_served_needs_an_observed_scene() -> None:
    case = observed(log("stack", THREE), "stack")
    assert would_serve(failed(case, "stack"), 3) == "pick(0,0,20)|place(100,100,68)"
    in_hand = observation("stack", (-150, 0, 350), (100, 100, 20), (-90, -90, 20))
    carried = replace(case, observations=[in_hand] * 6)
    assert would_serve(failed(carried, "stack"), 0) == "place(100,100,68)|pick(-90,-90,20)"
    done = observation("stack", (100, 100, 60), (100, 100, 20), (100, 100, 100))
    for texts in ((), ["what?"] * 6, [done] * 6):
        assert would_serve(failed(replace(case, observations=texts), "stack"), 3) is None
    assert would_serve(failed(case, "stack"), 6) is None
    assert would_serve(failed(replace(case, initial_state="[]"), "stack"), 3) is None


def test_a_teacher_is_shown_stages_places_and_what_would_have_served() -> None:
    case = observed(log("place", [(BOTH, 3)] * 6), "place")
    shown = facts(request(case, "place"))
    assert "Stages open before step 3: 3, with 3 turns left; after it: 3, with 2 turns left." in shown
    stages = "Stages of the task, each counted once it has been achieved: red cube grasped; red cube on its target; "
    assert f"{stages}green cube grasped." in shown
    assert any("in the order red cube, green cube, left target, right target: Object positions" in f for f in shown)
    assert "An action that would have served at step 3: pick(-50,-50,20)|place(80,-100,28)." in shown
    text = guidance_text(request(case, "place"))
    assert "remaining_stages=3" in text and all(f"- {fact}" in text for fact in shown)
    bare = facts(request(replace(case, observations=()), "place"))
    assert not any("would have served" in fact or "Given before" in fact for fact in bare)
