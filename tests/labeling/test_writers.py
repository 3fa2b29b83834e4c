"""A chat model as a teacher: what it is shown, which answers become guidance, and what happens to all the others."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pivot import plugins
from pivot.collage import collage
from pivot.errors import PolicyError, ServerGoneError
from pivot.images import decode, frame_id
from pivot.labeling.base import Draft, FailedEpisode, Filter, GuidanceRequest, Label, judge
from pivot.labeling.label import TEACHER, label_episodes
from pivot.labeling.texts import asked_claims
from pivot.labeling.writers.prompt import MAX_FIELD_CHARS, answer_schema, facts
from pivot.messages import PromptMessages, cut_reply
from pivot.models.base import CUT, ChatAnswer, ChatRequest
from pivot.records import to_row
from pivot.solvers.base import Certificate, Verdict
from pivot.tests.labeling.episodes import random_failures, record
from pivot.tests.labeling.teaching import Answers, PlantedTeacher, pictures, text_of

FILTERS: list[Filter] = [plugins.load("filters", name)() for name in plugins.names("filters")]
ROOM = "######\n#    #\n# $  #\n#@ . #\n#    #\n######"
"""The box has to go right, then down; pushed up to the wall it is lost."""


def dead() -> FailedEpisode:
    """Lost at step 3 by a push up; moving right kept the goal within reach."""
    episode = record("sokoban", ROOM, ["down", "right", "up", "up", *["invalid"] * 5])
    assert episode is not None
    return episode


def label(episode: FailedEpisode, answers: Answers, **changes: Any) -> tuple[Label, PlantedTeacher]:
    teacher = PlantedTeacher(answers)
    arguments: dict[str, Any] = {"frames": pictures([episode])} | changes
    solver = plugins.load("solvers", episode.env)()
    (made,) = label_episodes([episode], solver, teacher, FILTERS, "1", **arguments)
    return made, teacher


def honest() -> tuple[int, str, str]:
    """Pivot step, logged action and a good action of the dead room."""
    made, _ = label(dead(), lambda request: ChatAnswer("{}"))
    assert made.pivot_step is not None and made.feasible_actions
    return made.pivot_step, dead().actions[made.pivot_step], made.feasible_actions[0]


STEP, LOGGED, GOOD = honest()
BAD = next(each for each in ("up", "down", "left", "right") if each == LOGGED)
AVOID = "Avoid pushing the box against the wall above it."
TRUE_CLAIMS = {
    "target_reached": False,
    "turns_ran_out": False,
    "box_lost": True,
    "no_action": False,
    "action_repeated": True,
    "blocked": False,
    "progress": False,
}
USABLE: dict[str, Any] = {"action": GOOD, "claims": TRUE_CLAIMS, "avoid": AVOID}


def answer(**changes: Any) -> str:
    fields = {name: value for name, value in (USABLE | changes).items() if value is not None}
    return json.dumps(fields)


def test_the_model_is_shown_the_collage_the_log_and_the_facts() -> None:
    episode = dead()
    made, teacher = label(episode, lambda request: ChatAnswer(answer()))
    (request,) = teacher.model.requests
    (picture,) = request.images.values()
    frames = pictures([episode])
    expected = collage([decode(frames[key]) for key in episode.frame_ids[:-1]])
    assert picture.frame_id == frame_id(expected) == frame_id(decode(picture.image))
    assert request.messages[0]["content"][0] == {"type": "image", "frame_id": picture.frame_id}
    text = text_of(request)
    for said in (
        "3x3 grid",
        f"Pivot step: {STEP}.",
        "Failure mode: deadlock",
        f"Action at step {STEP}: up.",
        f"begins with: {GOOD}.",
        "step 0: action=down",
        "no number of actions is enough",
    ):
        assert said in text
    assert (request.role, request.t, request.sampling.temperature) == ("teacher", None, 0.0)
    assert request.json_schema is not None
    assert request.json_schema["properties"]["action"]["enum"] == list(made.feasible_actions or ())
    assert made.teacher_prompt_hash == request.prompt_hash == made.teacher_prompt.prompt_hash  # pyright: ignore


def test_a_usable_answer_becomes_the_guidance() -> None:
    made, teacher = label(dead(), lambda request: ChatAnswer(answer(), call={"prompt_tokens": 7, "latency": 0.5}))
    assert made.accepted and not made.reject_reasons
    assert made.failure_reason == f"At step {STEP}, choose {GOOD}. {AVOID}"
    assert json.loads(made.teacher_config or "") == {**teacher.config, "is_stand_in": False}
    (call,) = made.calls
    assert (call.role, call.prompt_tokens, call.latency, call.t) == ("teacher", 7, 0.5, None)
    assert call.answer == answer()


UNUSABLE: dict[str, tuple[ChatAnswer, str]] = {
    "empty": (ChatAnswer(""), "empty"),
    "blank": (ChatAnswer(" \n\t "), "empty"),
    "refusal field": (ChatAnswer("", refusal="I will not."), "refused"),
    "filtered": (ChatAnswer(answer(), "content_filter"), "refused"),
    "refusal": (ChatAnswer("I'm sorry, but I can't help with that."), "refused"),
    "refusal in JSON": (ChatAnswer(answer(avoid="As an AI language model I see no step.")), "refused"),
    "inability in JSON": (ChatAnswer(answer(avoid=f"I cannot assist with step {STEP}.")), "refused"),
    "cut": (ChatAnswer(answer()[:-5], CUT), "truncated"),
    "cut but whole": (ChatAnswer(answer(), CUT), "truncated"),
    "prose": (ChatAnswer(f"At step {STEP}, move {GOOD}."), "not_json"),
    "JSON and prose": (ChatAnswer(f"Here you are: {answer()}"), "not_json"),
    "half JSON": (ChatAnswer(answer()[:-1]), "not_json"),
    "deep": (ChatAnswer("[" * 50_000), "not_json"),
    "huge": (ChatAnswer("x" * 1_000_000), "too_long"),
    "list": (ChatAnswer(f"[{answer()}]"), "invalid"),
    "number": (ChatAnswer("7"), "invalid"),
    "null": (ChatAnswer("null"), "invalid"),
    "missing field": (ChatAnswer(answer(avoid=None)), "invalid"),
    "missing claims": (ChatAnswer(answer(claims=None)), "invalid"),
    "other claims": (ChatAnswer(answer(claims={"fell": False})), "invalid"),
    "claims in words": (ChatAnswer(answer(claims=TRUE_CLAIMS | {"box_lost": "yes"})), "invalid"),
    "untrue claim": (ChatAnswer(answer(claims=TRUE_CLAIMS | {"box_lost": False})), "contradictory"),
    "missing action": (ChatAnswer(answer(action=None)), "invalid"),
    "extra field": (ChatAnswer(answer(pivot_step=0)), "invalid"),
    "wrong type": (ChatAnswer(answer(avoid=["a"])), "invalid"),
    "empty field": (ChatAnswer(answer(avoid="  ")), "invalid"),
    "control characters": (ChatAnswer(answer(avoid="\0\x01")), "invalid"),
    "half a pair": (ChatAnswer('{"avoid": "\\ud800", "claims": {}, "action": "right"}'), "invalid"),
    "long field": (ChatAnswer(answer(avoid="a" * (MAX_FIELD_CHARS + 1))), "invalid"),
    "other step": (ChatAnswer(answer(avoid="At step 77, be careful.")), "untrue"),
    "success": (ChatAnswer(answer(avoid="The agent solved the room.")), "untrue"),
    "ran out of turns": (ChatAnswer(answer(avoid="Avoid detours: the agent ran out of turns.")), "untrue"),
    "fatal advice": (ChatAnswer(answer(avoid=f"Push {BAD} at step {STEP}.")), "untrue"),
    "markup": (ChatAnswer(answer(avoid="Avoid **this**.")), "untrue"),
    "another language": (ChatAnswer(answer(avoid="Evitez le mur de la salle.")), "untrue"),
    "fatal action": (ChatAnswer(answer(action=BAD)), "contradictory"),
    "unknown action": (ChatAnswer(answer(action="jump")), "contradictory"),
}


@pytest.mark.parametrize(("planted", "problem"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_answer_is_asked_for_again_and_then_rejected(planted: ChatAnswer, problem: str) -> None:
    made, teacher = label(dead(), lambda request: planted)
    assert not made.accepted
    (reason,) = [each for each in made.reject_reasons if each.name == TEACHER]
    assert reason.kind == problem
    assert len(reason.detail) < 500
    assert made.failure_reason == "" and json.loads(made.target or "")["failure_reason"] == ""
    assert len(teacher.model.requests) == len(made.calls) == (1 if problem == "refused" else 2)
    assert len({call.request_id for call in made.calls}) == len(made.calls)
    raw = cut_reply(planted.text or planted.refusal or "")
    assert [call.answer for call in made.calls] == [raw] * len(made.calls)
    json.dumps(to_row(made), ensure_ascii=False).encode()  # can be stored
    # Pivot, mode and proof do not depend on the teacher.
    assert (made.pivot_step, made.failure_mode) == (STEP, "deadlock") and made.certificate is not None


@pytest.mark.parametrize("problem", [name for name, (_, word) in UNUSABLE.items() if word != "refused"])
def test_the_second_try_is_told_what_was_wrong(problem: str) -> None:
    planted = UNUSABLE[problem][0]
    made, teacher = label(dead(), lambda request: ChatAnswer(answer()) if request.sample else planted)
    assert made.accepted
    assert made.failure_reason.endswith(AVOID)  # pyright: ignore[reportOptionalMemberAccess]
    first, second = teacher.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert [message["role"] for message in second.messages] == ["user", "assistant", "user"]
    assert "cannot be used" in text_of(second)
    assert (first.sample, second.sample) == (0, 1)
    assert first.prompt_hash != second.prompt_hash
    assert len(text_of(second)) < len(text_of(first)) + 4000
    assert made.teacher_prompt_hash == first.prompt_hash


CONTRADICTORY = {
    "success": ("The agent reached the goal.", "outcome"),
    "solved": ("Well done: the puzzle was solved.", "outcome"),
    "ran out of turns": ("Avoid detours: the agent ran out of turns.", "sokoban_facts"),
    "fatal advice": (f"At step {STEP}, push {BAD}.", "grid_advice"),
    "other step": ("Be careful at step 77.", "guidance"),
}


@pytest.mark.parametrize(("text", "rule"), CONTRADICTORY.values(), ids=CONTRADICTORY)
def test_a_contradictory_text_of_any_writer_is_rejected_by_a_filter(text: str, rule: str) -> None:
    made, _ = label(dead(), lambda request: ChatAnswer(answer()))
    verdict = solver_verdict()
    draft = Draft(verdict, f"{text} At step {STEP}, think.", "", plugins.load("solvers", "sokoban")())
    rules = [each for each in FILTERS if each.judges_text]
    assert made.accepted
    assert [reason.name for reason in judge(dead(), draft, rules)] == [rule]


def solver_verdict() -> Verdict:
    answer = plugins.load("solvers", "sokoban")().certify([dead().case()])[0]
    assert isinstance(answer, Verdict)
    return answer


def test_what_merely_retells_is_left_out() -> None:
    """Whether it is true, no rule can tell; the label keeps the command, and the advice beside it."""
    made, _ = label(dead(), lambda request: ChatAnswer(answer(avoid=f"The floor is grey and sunny. {AVOID}")))
    assert made.accepted
    assert made.failure_reason == f"At step {STEP}, choose {GOOD}. {AVOID}"
    made, _ = label(dead(), lambda request: ChatAnswer(answer(avoid="The crate slid into its place.")))
    assert made.accepted
    assert made.failure_reason == f"At step {STEP}, choose {GOOD}."


FORGIVEN = {
    "fence": f"```json\n{answer()}\n```",
    "plain fence": f"```\n{answer()}\n```",
    "space around": f"\n  {answer()} \n",
    "line breaks in a field": answer(avoid="Avoid pushing the box\nagainst the  wall above it."),
    "raw line break": answer(avoid="Avoid pushing the box~against the wall above it.").replace("~", "\n"),
    "capital action": answer(action=GOOD.upper()),
    "no full stop": answer(avoid=AVOID[:-1]),
}


@pytest.mark.parametrize("planted", FORGIVEN.values(), ids=FORGIVEN)
def test_what_does_not_change_the_meaning_is_forgiven(planted: str) -> None:
    made, teacher = label(dead(), lambda request: ChatAnswer(planted))
    assert made.accepted
    assert made.failure_reason == f"At step {STEP}, choose {GOOD}. {AVOID}"
    assert len(teacher.model.requests) == 1


def test_one_that_cannot_be_asked_is_unanswered_and_a_server_that_is_gone_ends_the_run() -> None:
    def fail(request: ChatRequest) -> ChatAnswer:
        raise PolicyError("no answer in 12 tries")

    made, _ = label(dead(), fail)
    assert [str(reason) for reason in made.reject_reasons if reason.name == TEACHER] == [
        "unanswered: no answer in 12 tries"
    ]

    def gone(request: ChatRequest) -> ChatAnswer:
        raise ServerGoneError("nobody there")

    with pytest.raises(ServerGoneError, match="nobody there"):
        label(dead(), gone)


@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
def test_facts_hold_for_random_failures(env: str) -> None:
    """A teacher that repeats the facts it was given is accepted, whatever the failure."""
    episodes = random_failures(env, 40, seed=5, cell=16)

    def repeat(request: ChatRequest) -> ChatAnswer:
        properties = (request.json_schema or {})["properties"]
        episode = next(each for each in episodes if each.episode_id == request.episode_id)
        verdict = solver.certify([episode.case()])[0]
        assert isinstance(verdict, Verdict)
        truths = {claim.name: truth for claim, truth in asked_claims(episode, verdict).items()}
        assert list(truths) == properties["claims"]["required"]
        fields: dict[str, Any] = {"claims": truths, "avoid": "Avoid what was fatal here."}
        if "action" in properties:
            fields["action"] = properties["action"]["enum"][0]
        return ChatAnswer(json.dumps(fields))

    teacher = PlantedTeacher(repeat)
    solver = plugins.load("solvers", env)()
    labels = label_episodes(episodes, solver, teacher, FILTERS, "1", frames=pictures(episodes))
    assert all(made.accepted for made in labels), [made.reject_reasons for made in labels if not made.accepted][:3]
    assert len({request.prompt_hash for request in teacher.model.requests}) > 20


def test_svg_facts_name_the_scores() -> None:
    profile = plugins.load("environments", "svg").profile
    certificate = Certificate(
        kind="convention",
        unit="score",
        budget_before=1,
        budget_after=0,
        before=None,
        after=None,
        reachable_after=None,
        raw_before=0.5,
        raw_after=0.42,
    )
    episode = replace(dead(), env="svg", actions=["svg", "svg"], infos=[{}, {}], frame_ids=["a", "b", "c"])
    request = GuidanceRequest(profile, episode, Verdict(1, "regression", certificate), PromptMessages("", "", "", ()))
    assert "Scores: before the last submission 0.50, of it 0.42; the target itself has 1." in facts(request)
    assert list(answer_schema(request)["properties"]) == ["claims", "avoid"]
