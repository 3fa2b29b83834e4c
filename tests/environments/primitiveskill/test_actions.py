"""The action language of PrimitiveSkill: a table of hostile answers, each with its typed outcome and no exception."""

import json
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot.environments.primitiveskill.actions import LARGEST, Primitive, join, read_primitives
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.environments.turns import ReplyOutcome
from pivot.rollouts.parser import parse_reply

CALL, NAME, COUNT, NUMBER, MANY = (
    "not a call",
    "unknown name",
    "wrong number of coordinates",
    "a coordinate is not a whole number",
    "more than 2 primitives",
)
P, Q = "pick(1,2,3)", "place(4,5,6)"
BIG = "9" * 20

HOSTILE: list[tuple[str, str, str, str | None]] = [
    # what it is, the answer, the name of the action that runs, why the rest is void
    ("nothing", "", "empty", CALL),
    ("spaces", " \t\n ", "empty", CALL),
    ("a NUL", "\0", "empty", CALL),
    ("a NUL after the name", "pick\0(1,2,3)", "empty", CALL),
    ("a NUL in a number", "pick(1\0,2,3)", "empty", NUMBER),
    ("a NUL after the call", "pick(1,2,3)\0", "empty", CALL),
    ("a NUL in the second part", f"{P}|place(4,5,6\0)", P, NUMBER),
    ("a pipe", "|", "empty", CALL),
    ("a leading pipe", f"|{P}", "empty", CALL),
    ("a trailing pipe", f"{P}|", P, CALL),
    ("two pipes", f"{P}||{Q}", P, CALL),
    ("a trailing pipe after two", f"{P}|{Q}|", f"{P}|{Q}", MANY),
    ("three primitives", f"{P}|{Q}|{P}", f"{P}|{Q}", MANY),
    ("nested pipes", "pick(1|2|3)", "empty", CALL),
    ("a pipe in the second call", f"{P}|place(4,|5,6)", P, CALL),
    ("nothing but pipes, a megabyte", "|" * 2**20, "empty", CALL),
    ("a first part, then a megabyte of pipes", P + "|" * 2**20, P, CALL),
    ("a hundred thousand primitives", "|".join([P] * 100_000), f"{P}|{P}", MANY),
    ("a full-width pipe", f"{P}｜{Q}", "empty", CALL),
    ("overflow", f"pick({BIG},-{BIG},0)", "pick(99999,-99999,0)", None),
    ("a megabyte of digits", f"pick({'9' * 2**20},2,3)", "pick(99999,2,3)", None),
    ("a megabyte of zeros", f"pick({'0' * 2**20}7,2,3)", "pick(7,2,3)", None),
    ("the largest number", f"pick({LARGEST},{-LARGEST},0)", "pick(99999,-99999,0)", None),
    ("one more", "pick(100000,-100000,0)", "pick(99999,-99999,0)", None),
    ("more digits than Python reads", f"pick({'1' * 5000},0,0)", "pick(99999,0,0)", None),
    ("minus zero", "pick(-0,+0,00)", "pick(0,0,0)", None),
    ("two signs", "pick(--1,2,3)", "empty", NUMBER),
    ("a sign apart", "pick(- 1,2,3)", "empty", NUMBER),
    ("a Unicode minus", "pick(−1,2,3)", "empty", NUMBER),
    ("not a number", "pick(nan,2,3)", "empty", NUMBER),
    ("infinity", "pick(inf,-inf,3)", "empty", NUMBER),
    ("a fraction", "pick(1.5,2,3)", "empty", NUMBER),
    ("a whole float", "pick(1.0,2,3)", "empty", NUMBER),
    ("an exponent", "pick(1e3,2,3)", "empty", NUMBER),
    ("hexadecimal", "pick(0x10,2,3)", "empty", NUMBER),
    ("an underscore", "pick(1_000,2,3)", "empty", NUMBER),
    ("Arabic digits", "pick(١,٢,٣)", "empty", NUMBER),
    ("full-width digits", "pick(１,２,３)", "empty", NUMBER),
    ("superscript digits", "pick(1²,2,3)", "empty", NUMBER),
    ("a Roman numeral", "pick(Ⅻ,2,3)", "empty", NUMBER),
    ("a full-width comma", "pick(1，2，3)", "empty", COUNT),
    ("full-width brackets", "pick（1,2,3）", "empty", CALL),
    ("no coordinates", "pick()", "empty", COUNT),
    ("commas alone", "pick(,,)", "empty", NUMBER),
    ("a trailing comma", "pick(1,2,3,)", "empty", COUNT),
    ("too few", "pick(1,2)", "empty", COUNT),
    ("too many", "pick(1,2,3,4)", "empty", COUNT),
    ("a huge number of them", f"pick({','.join(['1'] * 300_000)})", "empty", COUNT),
    ("three for a push", "push(1,2,3)", "empty", COUNT),
    ("six for a pick", "pick(1,2,3,4,5,6)", "empty", COUNT),
    ("a megabyte of commas", f"pick({',' * 2**20})", "empty", COUNT),
    ("an unknown name", "grab(1,2,3)", "empty", NAME),
    ("an unknown name, second", f"{P}|grab(1,2,3)", P, NAME),
    ("an unknown name, first", f"grab(1,2,3)|{P}", "empty", NAME),
    ("a megabyte of name", "a" * 2**20 + "(1,2,3)", "empty", NAME),
    ("a megabyte of name and no call", "a" * 2**20, "empty", CALL),
    ("a megabyte of spaces", " " * 2**20 + P + " " * 2**20, P, None),
    ("a megabyte of spaces and no call", "pick" + " " * 2**20, "empty", CALL),
    ("spaces in the call", "pick ( 1 , 2 , 3 )", P, None),
    ("odd spaces", "\u2003pick\u00a0(1,\u20282,\x1c3)", P, None),
    ("a zero-width space", "pick\u200b(1,2,3)", "empty", CALL),
    ("text before", f"I do {P}", "empty", CALL),
    ("text after", f"{P} now", "empty", CALL),
    ("two calls without a pipe", f"{P}{Q}", "empty", CALL),
    ("two calls and a semicolon", f"{P};{Q}", "empty", CALL),
    ("a nested call", "pick(pick(1,2,3),2,3)", "empty", CALL),
    ("a megabyte of brackets", "pick(" + "(" * 2**20 + ")" * 2**20, "empty", CALL),
    ("an open bracket", "pick(1,2,3", "empty", CALL),
    ("square brackets", "pick[1,2,3]", "empty", CALL),
    ("a tuple", "pick((1,2,3))", "empty", CALL),
    ("named arguments", "pick(x=1,y=2,z=3)", "empty", NUMBER),
    ("quotes", "pick('1','2','3')", "empty", NUMBER),
    ("capitals", "PICK(1,2,3)", "empty", CALL),  # replies are case-folded before
    ("a Cyrillic letter", "piсk(1,2,3)", "empty", CALL),
    ("a dotted name", "robot.pick(1,2,3)", "empty", CALL),
    ("the unusable action", "empty", "empty", CALL),
    ("a lone surrogate", "pick(\ud800,2,3)", "empty", NUMBER),
    ("markup", f"<b>{P}</b>", "empty", CALL),
    ("JSON", '{"name":"pick","arguments":[1,2,3]}', "empty", CALL),
]


def test_the_table_is_long_enough() -> None:
    assert len(HOSTILE) >= 40
    assert len({name for name, *_ in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize(("answer", "name", "void"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
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


@pytest.mark.parametrize("answer", [case[1] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_hostile_answer_in_a_reply_is_a_turn_like_any_other(answer: str) -> None:
    env = PrimitiveSkillEnv()
    env.draw_frames = False
    env.reset(seed=0)
    read = parse_reply(f"<think>.</think><answer>{answer}</answer>", "answer", env.parse_action)
    assert read.outcome in (ReplyOutcome.OK, ReplyOutcome.NOT_AN_ACTION, ReplyOutcome.NO_ANSWER)
    name = read.action.name if read.action else "empty"
    _, reward, *_, info = env.step(env.encode_action(name, read.action.payload if read.action else None))
    assert info["legal"] == (read.action is not None)
    assert -0.1 <= reward <= 15.9


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
