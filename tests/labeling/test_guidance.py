"""Guidance is true by construction: an independent reader finds no false sentence in answers that keep the schema."""

import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from pivot.core import plugins
from pivot.labeling.base import Filter, Guidance, GuidanceRequest
from pivot.labeling.domains import Failure, domain_of
from pivot.labeling.filters import text_objection
from pivot.labeling.label import certify_episodes, guidance_requests, label_episodes
from pivot.labeling.statements import MOST_FACTS, Sentences, statement
from pivot.labeling.writers import TemplateWriter
from pivot.labeling.writers.answer import read_answer
from pivot.labeling.writers.prompt import answer_schema
from pivot.models.base import ChatAnswer, ChatRequest
from pivot.tests.labeling.episodes import random_failures
from pivot.tests.labeling.fact_checker import Checker
from pivot.tests.labeling.teaching import PlantedTeacher
from pivot.tests.labeling.test_agreement import BLACK, ENVIRONMENTS, failures, solver

FILTERS: list[Filter] = [plugins.load("filters", name)() for name in ("guidance", "target")]
MOVES_FOR_TURNS = r"(?:(?:every|each) (?:move|action)|changes nothing) (?:still )?costs a turn|\d moves?\b"
"""Pattern of sentences that are false if a turn has several moves."""
CHECKERS: dict[int, tuple[GuidanceRequest, Checker]] = {}
LIE = "Choose the action that lost it; the goal was reached, the box is free, and step 77 was perfect."


@lru_cache
def requests(env: str, levels: int, **options: Any) -> list[GuidanceRequest]:
    """Return the requests to a teacher about failures of the scripted policy, for a solver with these options."""
    episodes = failures(env, levels, blind=env in ("navigation", "primitiveskill"))
    return list(guidance_requests(certify_episodes(episodes, solver(env, **options)), "certificate", {}).values())


def checker(request: GuidanceRequest) -> Checker:
    """Return the cached reader of one request's failure: it searches once."""
    by_room = request.verdict.certificate.kind == "exact"
    new = Checker(request.episode, request.verdict.pivot_step, request.verdict.failure_mode, by_room=by_room)
    return CHECKERS.setdefault(id(request), (request, new))[1]


def fields(schema: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return any answer that the schema allows."""
    assert schema["required"] == list(schema["properties"]) and schema["additionalProperties"] is False
    sign, facts, *actions, wording, prose = schema["properties"].values()
    assert prose["type"] == "string"
    return {
        "sign": rng.choice(sign["enum"]),
        "facts": rng.choices(facts["items"]["enum"], k=rng.randint(facts["minItems"], facts["maxItems"])),
        **({"action": rng.choice(actions[0]["enum"])} if actions else {}),
        "wording": rng.randint(wording["minimum"], wording["maximum"]),
        "prose": rng.choice(["", LIE, "\0\ud800 \n", "a" * prose["maxLength"], '"}', LIE[:40]]),
    }


def fuzz(env: str, count: int, levels: int, **options: Any) -> Counter[str]:
    """Count the outcomes of answers that keep the schema; print the problems of each."""
    rng, domain, figures = random.Random(env), domain_of(env), Counter[str]()
    for _ in range(count):
        request = rng.choice(requests(env, levels, **options))
        answer = read_answer(ChatAnswer(json.dumps(fields(answer_schema(request), rng))), request)
        assert isinstance(answer, Guidance) and answer.choice is not None, answer
        text = domain.sentences.render(answer.choice, str(rng.random()))
        false = checker(request).false_statements(text)
        objection = text_objection(text, request.episode, request.verdict, request.offer)
        differs = tuple(domain.sentences.read(text)) != answer.choice.statements
        figures.update(
            answers=1,
            sentences=len(answer.choice.statements),
            false_sentences=len(false),
            rejected=objection is not None,
            misread=differs,
        )
        if false or objection or differs:
            sys.stdout.write(f"{env}: {text}\n  false: {false}; rejected: {objection}\n")
    figures["failures"] = len(requests(env, levels, **options))
    return figures


def check_fuzz(count: int, levels: int) -> Counter[str]:
    figures = sum((fuzz(env, count, levels) for env in ENVIRONMENTS), Counter[str]())
    assert figures["answers"] == count * len(ENVIRONMENTS)
    assert (figures["false_sentences"], figures["rejected"], figures["misread"]) == (0, 0, 0)
    return figures


def test_no_answer_that_keeps_the_schema_says_anything_false() -> None:
    """Catch a sentence that a teacher can choose and that is false: two hundred random answers."""
    check_fuzz(40, 6)


@pytest.mark.parametrize("rule", ["budget", "earliest_event", "exact"])
def test_a_target_of_navigation_is_true_and_names_its_own_pivot_alone(rule: str) -> None:
    """The room often lost the goal before the pivot of the bound, but that step is the pivot of another rule."""
    figures = fuzz("navigation", 120, 6, pivot_rule=rule)
    assert (figures["false_sentences"], figures["rejected"], figures["misread"]) == (0, 0, 0)
    seen = Counter[str]()
    for request in requests("navigation", 6, pivot_rule=rule):
        sentences, offer, pivot = domain_of("navigation").sentences, request.offer, request.verdict.pivot_step
        for each in (*offer.signs, *offer.facts, *offer.actions):
            seen[each.kind] += 1
            said = " ".join(sentences.sentence(each, wording) for wording in range(4))
            assert set(re.findall(r"[Ss]tep (\d+)", said)) <= {str(pivot)}, said
    assert (rule == "budget") == (seen["lost_before"] > 5) and (rule == "exact") == (seen["goal_far"] > 5)


@pytest.mark.long
def test_no_answer_of_ten_thousand_says_anything_false() -> None:
    sys.stdout.write(f"\n{dict(check_fuzz(2_000, 24))}\n")


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_the_reader_finds_planted_falsehoods(env: str) -> None:
    """Plant a number that is one higher, a wrong step, and the logged action in place of the safe one."""
    rng, sentences, planted = random.Random(1), domain_of(env).sentences, Counter[str]()
    for request in requests(env, 6):
        read, offer = checker(request), request.offer
        for each in (*offer.facts, *offer.actions):
            said = sentences.sentence(each, rng.randrange(8))
            values = dict(each.values)
            for name in values.keys() & {"step", "turns", "moves", "stages", "metres", "before", "after"}:
                number, *rest = values[name].split()
                raised = str(int(number) + 1) if number.isdigit() else f"{float(number) + 1:.2f}"
                other = " ".join([raised, *rest])
                wrong = sentences.sentence(type(each)(each.kind, tuple(sorted((values | {name: other}).items()))))
                assert read.problem(wrong) is not None, wrong
                planted[name] += 1
            swapped = values | {"instead": values.get("action", "")}
            if each.kind in ("move", "push", "take") and env != "primitiveskill":
                wrong = sentences.sentence(type(each)(each.kind, tuple(sorted(swapped.items()))))
                assert read.problem(wrong) is not None, wrong
                planted["action"] += 1
            assert read.problem(said) is None, said
    assert planted.total() > 60


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_a_model_that_lies_in_every_free_field_enters_no_target(env: str) -> None:
    some = requests(env, 6)
    episodes = [each.episode for each in some]
    frames = {name: BLACK for episode in episodes for name in episode.frame_ids}
    rng = random.Random(2)

    def lie(request: ChatRequest) -> ChatAnswer:
        return ChatAnswer(json.dumps(fields(request.json_schema or {}, rng) | {"prose": LIE}))

    labels = label_episodes(episodes, solver(env), PlantedTeacher(lie), FILTERS, "1", frames=frames)
    for request, label in zip(some, labels, strict=True):
        assert label.accepted, label.reject_reasons
        assert (label.guidance_source, label.guidance_prose) == ("facts", LIE)
        assert not any(part in (label.target or "") for part in ("Choose the action that", "77", "perfect"))
        assert checker(request).false_statements(label.failure_reason or "") == []
    honest = {label.target for label in labels}
    prose = label_episodes(episodes, solver(env), PlantedTeacher(lie), [], "1", frames=frames, source="prose")
    assert {label.failure_reason for label in prose} == {LIE}
    assert {label.guidance_source for label in prose} == {"prose"}
    assert not honest & {label.target for label in prose}


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_texts_of_one_mode_are_no_template_of_one_sentence(env: str) -> None:
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for label in label_episodes([each.episode for each in requests(env, 6)], solver(env), TemplateWriter(), [], "1"):
        texts[label.failure_mode or ""].append(re.sub(r"[\d.]+", "#", label.failure_reason or ""))
    for mode, wordings in texts.items():
        assert len(set(wordings)) >= min(4, 0.5 * len(wordings)), mode


def test_statements_are_few_and_named_apart() -> None:
    for env in ENVIRONMENTS:
        for request in requests(env, 6):
            for part in (request.offer.signs, request.offer.facts, request.offer.actions):
                assert (part is request.offer.actions and env == "navigation") or 0 < len(part) < 10
                assert len({each.id for each in part}) == len(part)
            everything = domain_of(env).sentences.render(
                request.offer.choice(
                    request.offer.signs[0].id,
                    [each.id for each in request.offer.facts],
                    request.offer.actions[0].id if request.offer.actions else None,
                ),
                "seed",
            )
            assert len(domain_of(env).sentences.read(everything)) <= MOST_FACTS + 2


def test_an_environment_without_a_domain_gets_the_general_sentences() -> None:
    request = next(each for each in requests("frozenlake", 6) if each.verdict.failure_mode == "deadlock")
    offer = domain_of("elsewhere").offer(Failure(request.profile, request.episode, request.verdict))
    assert [each.kind for each in offer.facts][-1] == "turns_left"
    (action,) = offer.actions
    assert request.verdict.witness is not None
    assert (action.kind, dict(action.values)["instead"]) == ("take", request.verdict.witness[0])
    unknown = replace(request.verdict, certificate=replace(request.verdict.certificate, reachable_after=None))
    undecided = domain_of("elsewhere").offer(Failure(request.profile, request.episode, unknown))
    for part, kind in ((offer.signs, "look_ahead"), (offer.facts, "lost_for_good")):
        assert kind in [each.kind for each in part]
    assert not {"look_ahead", "lost_for_good"} & {each.kind for each in (*undecided.signs, *undecided.facts)}


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
def test_what_is_recommended_for_a_puzzle_begins_a_shortest_plan(env: str, most: int) -> None:
    """A separate search decides, for turns of one move and of several; no sentence confuses moves with turns."""
    long = {"actions_per_turn": most, "horizon": 5} if most > 1 else {}
    certified = certify_episodes(random_failures(env, 40, seed=most, **long), solver(env))
    sentences, recommended, joined, detours = domain_of(env).sentences, 0, 0, 0
    for request in guidance_requests(certified, "certificate", {}).values():
        read, offer = checker(request), request.offer
        for each in offer.actions:
            values = dict(each.values)
            recommended += "instead" in values
            joined += "|" in values.get("instead", "")
            assert "instead" not in values or read.is_best(values["instead"]), sentences.sentence(each)
        for each in (*offer.signs, *offer.facts, *offer.actions):
            for number in range(len(sentences.wordings[each.kind])):
                said = sentences.sentence(each, number)
                assert read.problem(said) is None, said
                assert most == 1 or not re.search(MOVES_FOR_TURNS, said), said
        verdict = request.verdict
        ran_out = verdict.failure_mode == "timeout" and not (verdict.fallback or verdict.infeasible_at_start)
        assert not ran_out or offer.facts[0].kind in ("too_few", "too_far")
        detours += len(verdict.feasible_actions) > len(offer.actions)
    assert recommended >= 40 and detours and (joined > 10) == (most > 1)


def test_no_two_kinds_share_a_wording() -> None:
    with pytest.raises(ValueError, match="'a' share the wording"):
        Sentences({"a": ("At step {step}, go {instead}.",), "b": ("At step {at}, go {way}.",)})


def test_values_that_are_equal_as_keys_give_different_statements() -> None:
    values: tuple[str | int, ...] = (1, True, "1.0", "1")
    assert [dict(statement("k", step=value).values)["step"] for value in values] == ["1", "True", "1.0", "1"]
