"""The reply grammar: the action, if any, in a reply.

A reply is thought, then one pair of the environment's answer tag. Thought is everything up to the last closing think
tag, and everything from a think tag that is opened after it and never closed; the rest is *visible*. The opening tag
may be missing, because chat templates of thinking models end the prompt with it. The first
complete answer pair of the visible text, trimmed and (unless case matters) case-folded, must be exactly one action of
the environment's grammar. Replies are untrusted: a fixed number of substring searches makes the time linear in any
reply.

| reply | action runs | action_valid | outcome |
|---|---|---|---|
| closed think block, then a pair with one action (any case, padded) | yes | true | ok |
| the same with further pairs or chatter around the first pair | yes | true | ok |
| an answer pair inside the thought *and* one after it: only the later one is read | yes | true | ok |
| the same without the opening think tag, which the prompt ended with | yes | true | ok |
| no think tags, or an answer pair before a think tag that is never closed | yes | false | no_think |
| a closing think tag after an opening tag of the other name | yes | false | no_think |
| a pair holding no action, several, an unknown word, other tags, nothing | no | false | not_an_action |
| no complete pair in the visible text, but one in the thought | no | false | tag_in_think |
| no complete pair anywhere; an empty reply; tags with attributes, spaces or capitals | no | false | no_answer |

Tag names are matched exactly; ``think`` and the paper's longer ``redacted_thinking`` are both read, and the marks of
:data:`.THOUGHT_MARKS` as ``think``. A pair is an
opening tag and the next closing tag after it, so ``<action>a<action>b</action>`` holds ``a<action>b``: not an action.
"""

from collections.abc import Callable

from ..core.messages import REPLY_LIMIT_BYTES, THINK_TAGS, cut_reply, in_think_tags
from ..environments.base import ParsedAction
from ..environments.turns import ParsedReply, ReplyOutcome


def parse_reply(
    text: str,
    tag: str,
    parse_action: Callable[[str], ParsedAction | None],
    limit_bytes: int = REPLY_LIMIT_BYTES,
    *,
    keeps_case: bool = False,
) -> ParsedReply:
    """Read the action of a reply; the module docstring is the table of outcomes.

    Args:
        text: the raw reply.
        tag: name of the answer tag, ``profile.answer_tag``.
        parse_action: the environment's grammar, given the trimmed, case-folded text inside the first visible pair.
        limit_bytes: longer replies are cut before they are read.
        keeps_case: do not fold the case, for environments whose actions are documents.
    """
    text = in_think_tags(cut_reply(text, limit_bytes))
    start, end, has_block = visible_span(text)
    answer = _first_pair(text, tag, start, end)
    if answer is None:
        in_thought = _first_pair(text, tag, 0, start) is not None or _first_pair(text, tag, end, len(text)) is not None
        return ParsedReply(None, False, ReplyOutcome.TAG_IN_THINK if in_thought else ReplyOutcome.NO_ANSWER)
    answer = answer.strip()
    action = parse_action(answer if keeps_case else answer.casefold())
    if action is None:
        return ParsedReply(None, False, ReplyOutcome.NOT_AN_ACTION)
    return ParsedReply(action, has_block, ReplyOutcome.OK if has_block else ReplyOutcome.NO_THINK)


def answer_text(reply: str, tag: str) -> str | None:
    """Return the text inside the tags from which :func:`parse_reply` reads the action, or None."""
    text = in_think_tags(reply)
    start, end, _ = visible_span(text)
    return _first_pair(text, tag, start, end)


def visible_span(text: str) -> tuple[int, int, bool]:
    """Return start and end of the visible text, and whether a complete think block precedes it."""
    start, name = 0, None
    for candidate in THINK_TAGS:
        closing = f"</{candidate}>"
        position = text.rfind(closing, start)
        if position >= 0:
            start, name = position + len(closing), candidate
    opened = [each for each in THINK_TAGS if 0 <= text.find(f"<{each}>") < start]
    has_block = name is not None and (name in opened or not opened)
    end = len(text)
    for candidate in THINK_TAGS:
        position = text.find(f"<{candidate}>", start, end)
        if position >= 0:
            end = position
    return start, end, has_block


def _first_pair(text: str, tag: str, start: int, end: int) -> str | None:
    """Return the text inside the first complete pair of ``tag`` in ``text[start:end]``, or None."""
    opening = f"<{tag}>"
    inner = text.find(opening, start, end)
    if inner < 0:
        return None
    inner += len(opening)
    closing = text.find(f"</{tag}>", inner, end)
    return None if closing < 0 else text[inner:closing]
