"""The reply grammar, input by input, and its running time on hostile input."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pivot.core.messages import THOUGHT_MARKS, cut_reply
from pivot.environments.base import ParsedAction
from pivot.environments.turns import ReplyOutcome
from pivot.rollouts.dialect import Call, Dialect, read_reply
from pivot.rollouts.parser import parse_reply
from pivot.rollouts.replies import Said, Writer
from pivot.tests.models.thinking import FAMILIES
from pivot.tests.tables import load_table

MOVES = ("up", "down", "left", "right")

HOSTILE_REPLIES = load_table(__file__, "hostile_replies.json").values()
"""Replies that no normal model writes, by name."""
CASES: list[tuple[str, str | None, ReplyOutcome]] = [
    (text, action, ReplyOutcome(outcome))
    for group in (*load_table(__file__, "replies.json").values(), *(each.values() for each in HOSTILE_REPLIES))
    for text, action, outcome in group
]


def grammar(answer: str) -> ParsedAction | None:
    return ParsedAction(answer) if answer in MOVES else None


@pytest.mark.parametrize(("text", "action", "outcome"), CASES, ids=range(len(CASES)))
def test_reply_table(text: str, action: str | None, outcome: ReplyOutcome) -> None:
    started = process_time()
    parsed = parse_reply(text, "action", grammar)
    assert process_time() - started < 0.5
    assert (None if parsed.action is None else parsed.action.name) == action
    assert parsed.outcome is outcome
    assert parsed.action_valid is (outcome is ReplyOutcome.OK)


def test_own_limit() -> None:
    text = f"<think>{'x' * 100}</think><action>up</action>"
    assert parse_reply(text, "action", grammar, limit_bytes=len(text)).action == ParsedAction("up")
    assert parse_reply(text, "action", grammar, limit_bytes=len(text) - 1).outcome is ReplyOutcome.NO_ANSWER


@given(st.text(), st.integers(0, 200))
def test_cut_is_the_longest_whole_prefix(text: str, limit: int) -> None:
    kept = cut_reply(text, limit)
    assert text.startswith(kept)
    assert len(kept.encode()) <= limit
    if kept != text:
        assert len(text[: len(kept) + 1].encode()) > limit


TAGS = [f"<{slash}{name}>" for name in ("think", "redacted_thinking", "action") for slash in ("", "/")]
PIECES = st.sampled_from([*TAGS, "up", "down", " ", "é"])


@given(st.lists(PIECES, max_size=14).map("".join))
def test_agrees_with_a_scan_tag_by_tag(text: str) -> None:
    parsed = parse_reply(text, "action", grammar)
    action, valid = scanned(text)
    assert (None if parsed.action is None else parsed.action.name, parsed.action_valid) == (action, valid)
    assert (parsed.action is not None) is (parsed.outcome in (ReplyOutcome.OK, ReplyOutcome.NO_THINK))


def scanned(text: str) -> tuple[str | None, bool]:
    """Read the grammar as a list of tokens: what comes after the last closing think tag, up to a new opening one."""
    opened: set[str] = set()
    block = False
    visible: list[str] | None = []
    for piece in text.replace("<", "\n<").replace(">", ">\n").split("\n"):
        if piece in ("<think>", "<redacted_thinking>"):
            opened.add(piece[1:])
            visible = visible if visible is None else [*visible, "cut"]
        elif piece in ("</think>", "</redacted_thinking>"):
            block = piece[2:] in opened or not opened
            visible = []
        elif visible is not None:
            visible.append(piece)
    tokens = visible or []
    tokens = tokens[: tokens.index("cut")] if "cut" in tokens else tokens
    if "<action>" not in tokens:
        return None, False
    rest = tokens[tokens.index("<action>") + 1 :]
    if "</action>" not in rest:
        return None, False
    inside = "".join(rest[: rest.index("</action>")]).strip()
    return (inside, block) if inside in MOVES else (None, False)


@given(st.lists(PIECES, max_size=14).map("".join), st.sampled_from([*THOUGHT_MARKS.items()]))
def test_marks_of_all_families_are_read_as_think_tags(text: str, marks: tuple[str, str]) -> None:
    opening, closing = marks
    marked = text.replace("<think>", opening).replace("</think>", closing)
    assert parse_reply(marked, "action", grammar) == parse_reply(text, "action", grammar)


@pytest.mark.parametrize("name", FAMILIES)
def test_replies_of_thinking_models(name: str) -> None:
    family = FAMILIES[name]
    parsed = parse_reply(family.reply, "action", grammar)
    assert parsed.action is not None
    assert (parsed.action.name, parsed.action_valid) == ("up", family.is_thinking)
    assert list(read_reply(MOVES, "action", Dialect(), family.reply).actions) == ["up"]
    written = Writer(Dialect(), "action", MOVES).written("down", Said(family.reply), "up", "so")
    assert written is not None
    reply = family.reply.replace("up", "down")
    assert parse_reply(written.text, "action", grammar) == parse_reply(reply, "action", grammar)
    assert all((mark in written.text) == (mark in reply) for mark in THOUGHT_MARKS.values())


@pytest.mark.parametrize(
    "reply",
    [
        *('```json\n{"action": "up"}\n```', "hm\n```xml\n<action>up</action>\n```"),
        *('{1}: hm\nSay: {"why": "hm", "action": "up"}\n```', '<think>so</think>{"Move":"up"}'),
    ],
)
def test_a_reply_with_another_action_keeps_its_form(reply: str) -> None:
    written = Writer(Dialect(), "action", MOVES).written("down", Said(reply), "up", "so")
    assert written is not None and written.text == reply.replace("hm", "so").replace("up", "down")


@pytest.mark.parametrize("most", [1, 2, 3])
def test_actions_beyond_those_of_a_turn_count_as_dropped(most: int) -> None:
    words = ("up", "left", "down")
    text, dialect = "<action>up|left|down</action>", Dialect(separator="|", actions_per_turn=most)
    read = read_reply(MOVES, "action", dialect, text)
    assert (read.actions, read.dropped[: 3 - most]) == (words[:most], words[most:])
    assert Writer(dialect, "action", MOVES).names_exactly(Said(text), "|".join(words[:most])) == (most == 3)


def test_a_word_that_is_not_an_action_ends_a_turn_in_a_text_and_in_the_list_of_a_call() -> None:
    words, dialect = ["up", "jump", "down"], Dialect(separator=",", actions_per_turn=3)
    text = read_reply(MOVES, "action", dialect, f"<action>{','.join(words)}</action>")
    call = read_reply(MOVES, "action", dialect, "", [Call("move", {"moves": words})])
    assert (text.actions, text.dropped) == (call.actions, call.dropped) == (("up",), ("jump", "down"))
