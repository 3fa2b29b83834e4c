"""The reply grammar, input by input, and its running time on hostile input."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pivot.core.messages import REPLY_LIMIT_BYTES, cut_reply
from pivot.environments.base import ParsedAction
from pivot.environments.turns import ReplyOutcome
from pivot.rollouts.parser import parse_reply

OK, NO_THINK, NO_ANSWER = ReplyOutcome.OK, ReplyOutcome.NO_THINK, ReplyOutcome.NO_ANSWER
NOT_AN_ACTION, TAG_IN_THINK = ReplyOutcome.NOT_AN_ACTION, ReplyOutcome.TAG_IN_THINK
MOVES = ("up", "down", "left", "right")

T = "<think>the box is above me</think>"
FILL = "x" * REPLY_LIMIT_BYTES

CASES: list[tuple[str, str | None, ReplyOutcome]] = [
    # A think block and one action.
    (f"{T}<action>up</action>", "up", OK),
    (f"{T}<action>down</action>", "down", OK),
    (f"{T}\n<action> left </action>\n", "left", OK),
    (f"{T}<action>\n\tright\r\n</action>", "right", OK),
    (f"{T}<action>UP</action>", "up", OK),
    (f"{T}<action>Left</action>", "left", OK),
    (f"{T}<action>\u00a0up\u2003</action>", "up", OK),
    (f"{T}<action>\x1fup\x0b</action>", "up", OK),
    ("<think></think><action>up</action>", "up", OK),
    ("<think>\x00</think><action>up</action>", "up", OK),
    ("<redacted_thinking>hm</redacted_thinking><action>up</action>", "up", OK),
    (f"Sure! {T} so <action>up</action> it is.", "up", OK),
    (f"{T}" + "y" * 1000 + "<action>up</action>", "up", OK),
    # The first complete visible pair decides.
    (f"{T}<action>up</action><action>down</action>", "up", OK),
    (f"{T}<action>up</action><action>", "up", OK),
    (f"{T}</action><action>up</action>", "up", OK),
    (f"{T}<action>up</action></action>", "up", OK),
    (f"{T}<action>up</action><think>or down", "up", OK),
    (f"{T}<answer>down</answer><action>up</action>", "up", OK),
    # What stands before the last closing think tag is thought.
    ("<think>maybe <action>down</action></think><action>up</action>", "up", OK),
    ("<think>maybe <action></think><action>up</action>", "up", OK),
    ("<think>a<think>b</think>c</think><action>up</action>", "up", OK),
    ("<think>a</think><think>b</think><action>up</action>", "up", OK),
    ("<think>a</think>b</think><action>up</action>", "up", OK),
    ("<think>a</think><redacted_thinking>b</redacted_thinking><action>up</action>", "up", OK),
    ("<redacted_thinking>a<think>b</think></redacted_thinking><action>up</action>", "up", OK),
    # No complete think block: the action runs, the step is not valid.
    ("<action>up</action>", "up", NO_THINK),
    ("I go <action>up</action>", "up", NO_THINK),
    ("a</think><action>up</action>", "up", NO_THINK),
    ("<think>a</redacted_thinking><action>up</action>", "up", NO_THINK),
    ("<redacted_thinking>a</think><action>up</action>", "up", NO_THINK),
    ("</think><action>up</action><think>", "up", NO_THINK),
    ("<action>up</action><think>too late", "up", NO_THINK),
    ("<THINK>a</THINK><action>up</action>", "up", NO_THINK),
    ("< think>a</ think><action>up</action>", "up", NO_THINK),
    ("<thinking>a</thinking><action>up</action>", "up", NO_THINK),
    # Something in the pair that is not one action.
    (f"{T}<action></action>", None, NOT_AN_ACTION),
    (f"{T}<action>   </action>", None, NOT_AN_ACTION),
    (f"{T}<action>up down</action>", None, NOT_AN_ACTION),
    (f"{T}<action>up, down</action>", None, NOT_AN_ACTION),
    (f"{T}<action>up|down</action>", None, NOT_AN_ACTION),
    (f"{T}<action>upup</action>", None, NOT_AN_ACTION),
    (f"{T}<action>jump</action>", None, NOT_AN_ACTION),
    (f"{T}<action>up.</action>", None, NOT_AN_ACTION),
    (f'{T}<action>"up"</action>', None, NOT_AN_ACTION),
    (f"{T}<action>[up]</action>", None, NOT_AN_ACTION),
    (f"{T}<action>go up</action>", None, NOT_AN_ACTION),
    (f"{T}<action>up\x00</action>", None, NOT_AN_ACTION),
    (f"{T}<action>u\u200bp</action>", None, NOT_AN_ACTION),
    (f"{T}<action>\uff55\uff50</action>", None, NOT_AN_ACTION),
    (f"{T}<action>0</action>", None, NOT_AN_ACTION),
    (f"{T}<action>invalid</action>", None, NOT_AN_ACTION),
    (f"{T}<action><action>up</action>", None, NOT_AN_ACTION),
    (f"{T}<action>up<action>down</action>", None, NOT_AN_ACTION),
    (f"{T}<action><b>up</b></action>", None, NOT_AN_ACTION),
    (f"{T}<action>jump</action><action>up</action>", None, NOT_AN_ACTION),
    ("<action>jump</action>", None, NOT_AN_ACTION),
    # Answer pairs in the thought only.
    ("<think><action>up</action></think>", None, TAG_IN_THINK),
    ("<think>so <action>up</action></think> done", None, TAG_IN_THINK),
    ("<think>a</think><action>up</action></think>", None, TAG_IN_THINK),
    ("<action>up</action><think>a</think>", None, TAG_IN_THINK),
    ("<think>never closed <action>up</action>", None, TAG_IN_THINK),
    (f"{T}<think>again <action>up</action>", None, TAG_IN_THINK),
    ("<redacted_thinking><action>up</action></redacted_thinking>", None, TAG_IN_THINK),
    ("<think><action>up</action></think><action>down", None, TAG_IN_THINK),
    # No complete pair at all.
    ("", None, NO_ANSWER),
    ("   \n", None, NO_ANSWER),
    ("\x00\x01\x02", None, NO_ANSWER),
    ("up", None, NO_ANSWER),
    (T, None, NO_ANSWER),
    (f"{T}up", None, NO_ANSWER),
    (f"{T}<action>up", None, NO_ANSWER),
    (f"{T}up</action>", None, NO_ANSWER),
    (f"{T}</action>up<action>", None, NO_ANSWER),
    (f"{T}<answer>up</answer>", None, NO_ANSWER),
    (f"{T}<ACTION>up</ACTION>", None, NO_ANSWER),
    (f"{T}<action >up</action >", None, NO_ANSWER),
    (f'{T}<action type="move">up</action>', None, NO_ANSWER),
    (f"{T}<action/>up", None, NO_ANSWER),
    (f"{T}&lt;action&gt;up&lt;/action&gt;", None, NO_ANSWER),
    ("<think>a<action>up", None, NO_ANSWER),
    ("<think><action>up</think></action>", None, NO_ANSWER),
    # Cut at the limit, before anything is read.
    (f"{T}<action>up</action>{FILL}", "up", OK),
    (f"<think>{FILL}</think><action>up</action>", None, NO_ANSWER),
    (f"{T}<action>up</action>{FILL}</think><action>down</action>", "up", OK),
]


def grammar(answer: str) -> ParsedAction | None:
    return ParsedAction(answer) if answer in MOVES else None


@pytest.mark.parametrize(("text", "action", "outcome"), CASES, ids=range(len(CASES)))
def test_reply_table(text: str, action: str | None, outcome: ReplyOutcome) -> None:
    parsed = parse_reply(text, "action", grammar)
    assert (None if parsed.action is None else parsed.action.name) == action
    assert parsed.outcome is outcome
    assert parsed.action_valid is (outcome is OK)


def test_the_table_is_broad() -> None:
    assert len(CASES) >= 60
    assert {outcome for _, _, outcome in CASES} == set(ReplyOutcome) - {ReplyOutcome.UNUSED}  # of imports alone


def test_other_answer_tag() -> None:
    text = "<think>a</think><action>up</action><answer>down</answer>"
    assert parse_reply(text, "answer", grammar).action == ParsedAction("down")


def test_own_limit() -> None:
    text = f"<think>{'x' * 100}</think><action>up</action>"
    assert parse_reply(text, "action", grammar, limit_bytes=len(text)).action == ParsedAction("up")
    assert parse_reply(text, "action", grammar, limit_bytes=len(text) - 1).outcome is NO_ANSWER


@given(st.text(), st.integers(0, 200))
def test_cut_is_the_longest_whole_prefix(text: str, limit: int) -> None:
    kept = cut_reply(text, limit)
    assert text.startswith(kept)
    assert len(kept.encode()) <= limit
    if kept != text:
        assert len(text[: len(kept) + 1].encode()) > limit


def test_lone_surrogates_can_be_stored() -> None:
    assert cut_reply("a\ud800b") == "a?b"
    assert parse_reply("<think>\udfff</think><action>up</action>", "action", grammar).outcome is OK


PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<redacted_thinking>",
        "</redacted_thinking>",
        "<action>",
        "</action>",
        "up",
        "down",
        " ",
        "é",
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_agrees_with_a_scan_tag_by_tag(text: str) -> None:
    parsed = parse_reply(text, "action", grammar)
    action, valid = scanned(text)
    assert (None if parsed.action is None else parsed.action.name, parsed.action_valid) == (action, valid)
    assert (parsed.action is not None) is (parsed.outcome in (OK, NO_THINK))


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
            block = piece[2:] in opened
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


MEGABYTE = 1_000_000
HOSTILE = {
    "opening tags": "<action>" * (MEGABYTE // 8),
    "closing tags": "</action>" * (MEGABYTE // 9),
    "think tags": "<think>" * (MEGABYTE // 7),
    "closing think tags": "</think>" * (MEGABYTE // 8),
    "both think tags": "<think></redacted_thinking>" * (MEGABYTE // 27),
    "pairs": "<action>up</action>" * (MEGABYTE // 19),
    "unclosed after thought": "<think></think><action>" * (MEGABYTE // 23),
    "almost tags": "<action" * (MEGABYTE // 7),
    "angle brackets": "<" * MEGABYTE,
    "blank": " " * MEGABYTE,
    "blank answer": f"{T}<action>" + " " * MEGABYTE,
    "NUL": "\x00" * MEGABYTE,
    "control characters": "".join(map(chr, range(32))) * (MEGABYTE // 32),
    "combining marks": "a" + "\u0301" * MEGABYTE,
    "four-byte characters": "\U0001f9ca" * MEGABYTE,
    "surrogates": "\ud800" * MEGABYTE,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("limit", [REPLY_LIMIT_BYTES, 4 * MEGABYTE])
def test_hostile_replies_take_linear_time(name: str, limit: int) -> None:
    text = HOSTILE[name]
    best = min(timed(text, limit) for _ in range(3))
    # A quadratic scan of 1 MB takes minutes; the linear one takes a few milliseconds on a slow machine.
    assert best < 0.2


def timed(text: str, limit: int) -> float:
    started = process_time()
    parse_reply(text, "action", grammar, limit_bytes=limit)
    return process_time() - started
