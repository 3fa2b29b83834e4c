"""A set of honest and false texts, judged as the prose of a model whose typed fields are all true.

The ``held_out`` part was written after the rules, and none of them was changed for it. The false texts are wrong in the
step, the action, the cause, the outcome or a number, written in another language, or carry markup or orders; the honest
ones are paraphrases in many styles, reports among them. Every one comes with a right action and right claims, so that
only the reading of prose decides.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pivot.labeling.texts import asked_claims
from pivot.labeling.writers.answer import Unusable, read_answer
from pivot.models.base import ChatAnswer
from pivot.tests.labeling.guidance_cases import cases

TEXTS = [json.loads(line) for line in (Path(__file__).parent / "guidance_texts.jsonl").read_text().splitlines()]
ADVICE = "Avoid the move that was made here."


def answer(case: str, text: str, **wrong: Any) -> str:
    """What a model answers about a case: true fields around the text, but for those given."""
    request = cases()[case]
    fields: dict[str, Any] = {
        "claims": {claim.name: truth for claim, truth in asked_claims(request.episode, request.verdict).items()},
        "avoid": text,
    }
    if request.verdict.feasible_actions:
        fields["action"] = request.verdict.feasible_actions[0]
    return json.dumps(fields | wrong)


def outcome(case: str, text: str) -> str:
    """``refused``, or how much of the text stands behind the command: ``kept``, ``part`` or ``left_out``."""
    request = cases()[case]
    guidance = read_answer(ChatAnswer(answer(case, text)), request)
    if isinstance(guidance, Unusable):
        return "refused"
    whole = read_answer(ChatAnswer(answer(case, ADVICE)), request)
    assert isinstance(whole, str)
    command = whole.removesuffix(ADVICE)
    assert guidance == command.strip() or guidance.startswith(command)
    prose = guidance[len(command) :]
    return "left_out" if not prose else "kept" if len(prose) >= len(text.strip()) else "part"


def test_the_set_is_what_it_says() -> None:
    assert len(TEXTS) >= 400
    assert len({(row["case"], row["text"]) for row in TEXTS}) == len(TEXTS)
    assert {row["case"] for row in TEXTS} == set(cases())
    assert {request.episode.env for request in cases().values()} == {
        "sokoban",
        "frozenlake",
        "navigation",
        "primitiveskill",
        "svg",
    }
    false = sum(row["kind"] != "honest" for row in TEXTS)
    assert 0.45 <= false / len(TEXTS) <= 0.55
    assert sum(row["part"] == "held_out" for row in TEXTS) >= 160


@pytest.mark.parametrize("part", ["dev", "held_out"])
def test_false_texts_stay_out_and_honest_ones_cost_no_label(part: str) -> None:
    counts = {True: Counter[str](), False: Counter[str]()}
    for row in TEXTS:
        if row["part"] == part:
            counts[row["kind"] == "honest"][outcome(row["case"], row["text"])] += 1
    false, honest = counts[False], counts[True]
    assert false["kept"] + false["part"] <= 0.02 * false.total(), counts
    assert honest["refused"] <= 0.05 * honest.total(), counts
    # Prose that only retells is left out; most of what is honest stays all the same.
    assert honest["kept"] + honest["part"] >= 0.55 * honest.total(), counts


@pytest.mark.parametrize("case", cases())
def test_a_wrong_declaration_is_contradictory(case: str) -> None:
    request = cases()[case]
    truths = {claim.name: truth for claim, truth in asked_claims(request.episode, request.verdict).items()}
    assert truths["target_reached"] is False
    for name, truth in truths.items():
        wrong = read_answer(ChatAnswer(answer(case, ADVICE, claims=truths | {name: not truth})), request)
        assert isinstance(wrong, Unusable) and wrong.problem == "contradictory"
        assert name in wrong.detail
        missing = {other: told for other, told in truths.items() if other != name}
        absent = read_answer(ChatAnswer(answer(case, ADVICE, claims=missing)), request)
        assert isinstance(absent, Unusable) and absent.problem == "invalid"


@pytest.mark.timeout(20)
def test_a_hostile_text_takes_no_time() -> None:
    for case in ("sokoban_dead", "lake_slow", "walk_blocked", "skill_beside", "svg_same"):
        for piece in ("step 3 ", "the box ", "was the ", "all of the ", "not ", "move the box ", "a1 ", "<", "n't "):
            outcome(case, (piece * 400)[:395])
