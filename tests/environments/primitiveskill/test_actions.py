"""The action language of PrimitiveSkill: a table of hostile answers, each with its typed outcome and no exception."""

import json
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot.environments.primitiveskill.actions import LARGEST, Primitive, join, read_primitives
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.tests.tables import load_table

HOSTILE: dict[str, tuple[str, str, str | None]] = load_table(__file__, "hostile_answers.json")
"""Answers by name: the text, the name of the action that runs, and why the rest is void."""


def test_the_table_is_long_enough() -> None:
    assert len(HOSTILE) >= 40


@pytest.mark.parametrize(("answer", "name", "void"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_has_a_typed_outcome(answer: str, name: str, void: str | None) -> None:
    started = process_time()
    primitives, why = read_primitives(answer)
    assert (join(primitives), why) == (name, void)
    env = PrimitiveSkillEnv()
    parsed = env.parse_action(answer)
    assert process_time() - started < 2
    if name == "empty":
        assert parsed is None
    else:
        assert parsed is not None and parsed.payload is not None
        assert parsed.name == name
        assert json.loads(parsed.payload)["void"] == void
        assert env.encode_action(parsed.name, parsed.payload) == name
        assert name in env.action_space


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("pickplaceush(),|0123456789-+ \n.x\0١"), max_size=60))
def test_whatever_is_read_has_a_normal_form(answer: str) -> None:
    primitives, void = read_primitives(answer)
    assert len(primitives) <= 2
    assert primitives or void
    name = join(primitives)
    if primitives:
        assert read_primitives(name) == (primitives, None)
        assert join(read_primitives(name)[0]) == name
    assert PrimitiveSkillEnv().encode_action(name) == name


coordinates = st.integers(-LARGEST, LARGEST)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.lists(coordinates, min_size=6, max_size=6))
def test_clipping_keeps_what_is_inside_and_moves_the_rest_to_the_border(task: str, numbers: list[int]) -> None:
    limits = KINDS[task].workspace
    clipped = Primitive("push", tuple(numbers)).clipped(limits)
    for index, (before, after) in enumerate(zip(numbers, clipped.arguments, strict=True)):
        low, high = limits[index % 3]
        assert low <= after <= high
        assert after == (before if low <= before <= high else low if before < low else high)
    assert clipped.clipped(limits) == clipped
