"""Sentences about the shapes of two pictures, on drawings whose fault is known; an independent reader agrees."""

import re

import pytest
from pivot.labeling.domains import domain_of
from pivot.labeling.domains.svg_shapes import differences
from pivot.labeling.statements import Statement
from pivot.tests.labeling.shape_checker import claims

RED, BLUE, DOT = (
    '<rect x="10" y="20" width="30" height="40" fill="#d02020"/>',
    '<circle cx="70" cy="30" r="12" fill="#2040d0"/>',
    '<circle cx="50" cy="85" r="5" fill="#20a040"/>',
)
SENTENCES = domain_of("svg").sentences


def drawing(*shapes: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">{"".join(shapes)}</svg>'


TARGET = drawing(RED, BLUE, DOT)


def facts(drawn: str) -> list[Statement]:
    return [fact for fact, _ in differences(TARGET, drawn, 1)]


@pytest.mark.parametrize(
    ("drawn", "kind", "values"),
    [
        (drawing(RED, DOT), "missing", {"at": "70%/30%", "colour": "#2040d0", "name": "blue", "share": "4.4%"}),
        (drawing(RED, BLUE.replace("70", "55"), DOT), "moved", {"at": "70%/30%", "there": "55%/30%"}),
        (drawing(RED, BLUE.replace('"12"', '"6"'), DOT), "resized", {"share": "4.4%", "drawn": "1.1%"}),
        (drawing(RED, BLUE.replace("#2040d0", "#e0a010"), DOT), "recoloured", {"other": "#e0a010", "name": "blue"}),
        (
            drawing(RED, BLUE, DOT, '<rect x="80" y="70" width="15" height="20" fill="#111111"/>'),
            "extra",
            {"name": "black"},
        ),
    ],
)
def test_a_known_fault_is_named_and_its_negation_is_refuted(drawn: str, kind: str, values: dict[str, str]) -> None:
    ((fact, remedy),) = differences(TARGET, drawn, 1)
    assert fact.kind == kind and remedy.kind == f"fix_{kind}" and values.items() <= dict(fact.values).items()
    lies = {
        "at": "25%/75%",
        "there": "25%/75%",
        "share": "41%",
        "drawn": "41%",
        "colour": "#807f40",
        "other": "#807f40",
    }
    for each in (fact, remedy):
        for wording in range(2):
            said = SENTENCES.sentence(each, wording)
            assert list(claims(said, TARGET, drawn)) == [(kind, True)], said
            assert list(claims(said, TARGET, TARGET)) == [(kind, False)], said
            for name in lies.keys() & dict(each.values).keys():
                false = SENTENCES.sentence(
                    Statement(each.kind, tuple({**dict(each.values), name: lies[name]}.items())), wording
                )
                assert list(claims(false, TARGET, drawn)) == [(kind, False)], false


def test_at_most_three_differences_are_named_the_largest_first() -> None:
    drawn = drawing('<rect x="70" y="75" width="20" height="10" fill="#e0a010"/>')
    assert [dict(fact.values)["colour"] for fact in facts(drawn)] == ["#d02020", "#2040d0", "#e0a010"]


def test_a_difference_that_no_shape_explains_is_placed() -> None:
    drawn = drawing(RED, BLUE, DOT, '<path d="M 60 80 h 30" stroke="#000" stroke-width="1"/>')
    (fact,) = facts(drawn)
    assert fact.kind == "part_differs" and dict(fact.values)["row"] == "lower"
    said = SENTENCES.sentence(fact)
    assert list(claims(said, TARGET, drawn)) == [("part", True)]
    assert list(claims(re.sub("lower", "upper", said), TARGET, drawn)) == [("part", False)]


def test_nothing_is_said_of_a_document_that_is_not_drawn() -> None:
    assert differences(TARGET, "<svg", 1) == ()
