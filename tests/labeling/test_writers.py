"""A chat model as a teacher: its prompt, the answers that become guidance, and the handling of all others."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from pivot.collage import collage
from pivot.core import plugins
from pivot.core.errors import PolicyError, ServerGoneError
from pivot.core.images import decode, frame_id
from pivot.core.messages import CUT, cut_reply
from pivot.core.records import to_row
from pivot.labeling.base import FailedEpisode, Filter, Guidance, Label
from pivot.labeling.domains import domain_of
from pivot.labeling.label import TEACHER, guidance_request, label_episodes
from pivot.labeling.statements import Choice, statement
from pivot.labeling.writers.example import example_request
from pivot.labeling.writers.prompt import MAX_PROSE_CHARS, answer_schema, facts
from pivot.models.base import ChatAnswer, ChatRequest
from pivot.solvers.base import Certificate, Verdict
from pivot.tests.labeling.episodes import record
from pivot.tests.labeling.teaching import Answers, PlantedBackend, PlantedTeacher, pictures, text_of

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
    """Return pivot step, logged action and a safe action of the failure ``dead``."""
    made, _ = label(dead(), lambda request: ChatAnswer("{}"))
    assert made.pivot_step is not None and made.feasible_actions
    return made.pivot_step, dead().actions[made.pivot_step], made.feasible_actions[0]


STEP, LOGGED, GOOD = honest()
BAD = next(each for each in ("up", "down", "left", "right") if each == LOGGED)
PROSE = "The wall above the box is what to look at."
USABLE: dict[str, Any] = {
    "sign": "watch_walls",
    "facts": ["unsolvable", "at_wall"],
    "action": f"push:{GOOD}",
    "wording": 3,
    "prose": PROSE,
}


def answer(**changes: Any) -> str:
    fields = {name: value for name, value in (USABLE | changes).items() if value is not None}
    return json.dumps(fields)


TEXT = domain_of("sokoban").sentences.render(
    Choice(
        (
            statement("watch_walls"),
            statement("unsolvable", step=STEP, action=LOGGED),
            statement("at_wall", step=STEP, action=LOGGED),
            statement("push", step=STEP, action=LOGGED, instead=GOOD),
        ),
        3,
    ),
    "episode",
)


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
    offered = [f"push:{action}" for action in made.feasible_actions or ()]
    assert sorted(request.json_schema["properties"]["action"]["enum"]) == sorted(offered)
    for name in offered:
        assert f'  - "{name}": At step {STEP}, do not push {LOGGED}; move {name.split(":")[1]} instead.' in text
    assert made.teacher_prompt_hash == request.prompt_hash == made.teacher_prompt.prompt_hash  # pyright: ignore


def test_a_usable_answer_becomes_the_guidance() -> None:
    made, teacher = label(dead(), lambda request: ChatAnswer(answer(), call={"prompt_tokens": 7, "latency": 0.5}))
    assert made.accepted and not made.reject_reasons and made.failure_reason == made.guidance_facts == TEXT
    assert (made.guidance_source, made.guidance_prose) == ("facts", PROSE)
    assert json.loads(made.teacher_config or "") == {**teacher.config, "is_stand_in": False}
    (call,) = made.calls
    assert (call.role, call.prompt_tokens, call.latency, call.t) == ("teacher", 7, 0.5, None)
    assert call.answer == answer()


UNUSABLE: dict[str, tuple[ChatAnswer, str]] = {
    "empty": (ChatAnswer(""), "empty"),
    "refusal field": (ChatAnswer("", refusal="I will not."), "refused"),
    "refusal": (ChatAnswer("I'm sorry, but I can't help with that."), "refused"),
    "cut": (ChatAnswer(answer()[:-5], CUT), "truncated"),
    "cut but whole": (ChatAnswer(answer(), CUT), "truncated"),
    "prose": (ChatAnswer(f"At step {STEP}, move {GOOD}."), "not_json"),
    "half JSON": (ChatAnswer(answer()[:-1]), "not_json"),
    "deep": (ChatAnswer("[" * 50_000), "not_json"),
    "huge": (ChatAnswer("x" * 1_000_000), "too_long"),
    "list": (ChatAnswer(f"[{answer()}]"), "invalid"),
    "null": (ChatAnswer("null"), "invalid"),
    "missing field": (ChatAnswer(answer(prose=None)), "invalid"),
    "extra field": (ChatAnswer(answer(pivot_step=0)), "invalid"),
    "unknown sign": (ChatAnswer(answer(sign="watch_holes")), "invalid"),
    "a list for a name": (ChatAnswer(answer(sign=["watch_walls"])), "invalid"),
    "no fact": (ChatAnswer(answer(facts=[])), "invalid"),
    "too many facts": (ChatAnswer(answer(facts=["unsolvable"] * 4)), "invalid"),
    "facts in words": (ChatAnswer(answer(facts="unsolvable")), "invalid"),
    "fatal action": (ChatAnswer(answer(action=f"push:{BAD}")), "invalid"),
    "half a pair": (ChatAnswer(answer(action="\ud800")), "invalid"),
    "wording in words": (ChatAnswer(answer(wording="3")), "invalid"),
    "wording that is true": (ChatAnswer(answer(wording=True)), "invalid"),
}


@pytest.mark.parametrize(("planted", "problem"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_answer_is_asked_for_again_and_then_rejected(planted: ChatAnswer, problem: str) -> None:
    made, teacher = label(dead(), lambda request: planted)
    assert not made.accepted
    (reason,) = [each for each in made.reject_reasons if each.name == TEACHER]
    assert reason.kind == problem
    assert made.reject_reasons == (reason,)  # and no reason about the empty guidance
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
def test_the_second_request_names_the_problem(problem: str) -> None:
    planted = UNUSABLE[problem][0]
    made, teacher = label(dead(), lambda request: ChatAnswer(answer()) if request.sample else planted)
    assert made.accepted and made.failure_reason == TEXT
    first, second = teacher.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert [message["role"] for message in second.messages] == ["user", "assistant", "user"]
    assert "cannot be used" in text_of(second) and (first.sample, second.sample) == (0, 1)
    assert first.prompt_hash != second.prompt_hash and len(text_of(second)) < len(text_of(first)) + 4000
    assert made.teacher_prompt_hash == first.prompt_hash


FORGIVEN = {
    "fence": f"```json\n{answer()}\n```",
    "plain fence": f"```\n{answer()}\n```",
    "space around": f"\n  {answer()} \n",
    "a fact named twice": answer(facts=["unsolvable", "at_wall", "unsolvable"]),
    "a wording of another round": answer(wording=3 + 12),
    "prose with line breaks": answer(prose=PROSE.replace(" ", "\n  ")),
    "raw line break": answer(prose=PROSE.replace(" wall", "~wall")).replace("~", "\n"),
}


@pytest.mark.parametrize("planted", FORGIVEN.values(), ids=FORGIVEN)
def test_what_does_not_change_the_meaning_is_forgiven(planted: str) -> None:
    made, teacher = label(dead(), lambda request: ChatAnswer(planted))
    assert made.accepted and (made.failure_reason, made.guidance_prose) == (TEXT, PROSE)
    assert len(teacher.model.requests) == 1


@pytest.mark.parametrize(
    ("prose", "stored"),
    [("", None), ("\0\x01 ", None), ("half \ud800", "half ?"), ("a" * 9_000, "a" * MAX_PROSE_CHARS)],
)
def test_prose_of_any_shape_is_stored_and_never_rejects_a_choice(prose: str, stored: str | None) -> None:
    made, _ = label(dead(), lambda request: ChatAnswer(answer(prose=prose)))
    assert made.accepted and (made.failure_reason, made.guidance_prose) == (TEXT, stored)
    other, _ = label(dead(), lambda request: ChatAnswer(answer(prose=prose)), source="prose")
    assert (other.failure_reason, other.guidance_source) == ((stored, "prose") if stored else (TEXT, "facts"))
    json.dumps(to_row(made), ensure_ascii=False).encode()  # can be stored


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
    request = guidance_request(profile, episode, Verdict(1, "regression", certificate))
    assert "Scores: before the last submission 0.50, of it 0.42; the target itself has 1." in facts(request)
    assert list(answer_schema(request)["properties"]) == ["sign", "facts", "action", "wording", "prose"]


def test_only_the_reply_of_the_pivot_is_said_to_break_off() -> None:
    episode, kind = record("sokoban", ROOM, ["invalid"] * 9), plugins.load("solvers", "sokoban")
    assert episode is not None
    (verdict,) = kind().certify([episode.case()])
    profile = plugins.load("environments", "sokoban").profile
    for cut in (verdict.pivot_step, 8):
        ends = [CUT if step == cut else "stop" for step in range(9)]
        request = guidance_request(profile, replace(episode, finish_reasons=ends), verdict)
        assert any("broke off" in each for each in facts(request)) is (cut == verdict.pivot_step < 8)


def test_as_many_requests_are_under_way_as_the_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, running, most = PlantedTeacher(lambda _: ChatAnswer("")), 0, 0

    async def slow(_: object) -> Guidance:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0)
        running -= 1
        return Guidance()

    monkeypatch.setattr(teacher, "answer", slow)
    monkeypatch.setattr(PlantedBackend, "in_flight", 3)
    assert len(teacher.write([example_request(0)] * 8)) == 8
    assert most == 3
