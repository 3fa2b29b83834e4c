"""Read a teacher model's answer: a choice of offered statements with free prose, or a typed reason why there is none.

The answer is untrusted text. It has to be one JSON object with exactly the fields asked for; a fence of a code block
around it is forgiven, because models cannot leave it off. Whatever keeps the schema is a choice: the target is rendered
from it, and the prose, the one field that a model fills freely, is stored apart.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from ...core.messages import CUT
from ...models.base import ChatAnswer
from ..base import Guidance, GuidanceRequest
from ..prose import is_refusal
from ..statements import MOST_FACTS
from .prompt import ACTION, FACTS, MAX_PROSE_CHARS, PROSE, SIGN, WORDING

MAX_ANSWER_CHARS = 64 * 1024
"""Longer answers are refused unread."""

Problem = Literal["refused", "truncated", "empty", "too_long", "not_json", "invalid"]

FINAL: frozenset[Problem] = frozenset({"refused"})
"""Problems after which the model is not asked again."""

_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n```\Z", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Unusable:
    """An answer that gives no guidance."""

    problem: Problem
    detail: str
    """Finding and expectation; the model is shown both when it is asked again."""


def read_answer(answer: ChatAnswer, request: GuidanceRequest) -> Guidance | Unusable:
    """Return the choice and prose of an answer, or why it has none."""
    text = answer.text.strip()
    if answer.refusal is not None:
        return Unusable("refused", f"the teacher declined: {_excerpt(answer.refusal or text)}")
    if answer.finish_reason == CUT:
        return Unusable("truncated", "the answer was cut at the token limit; answer with fewer words")
    if len(text) > MAX_ANSWER_CHARS:
        return Unusable("too_long", f"{len(text)} characters, at most {MAX_ANSWER_CHARS} are read")
    return _parsed(text, request) if text else Unusable("empty", "the answer holds no text; expected one JSON object")


def _parsed(text: str, request: GuidanceRequest) -> Guidance | Unusable:
    fenced = _FENCE.match(text)
    try:
        # Grammars of structured output let line breaks through inside a string; they become spaces below.
        value = json.loads(fenced[1] if fenced else text, strict=False)
    except (ValueError, RecursionError) as error:
        if is_refusal(text):
            return Unusable("refused", f"the teacher declined: {_excerpt(text)}")
        return Unusable("not_json", f"{type(error).__name__}: {_excerpt(str(error))}; expected one JSON object")
    return _choice(value, request)


def _choice(value: Any, request: GuidanceRequest) -> Guidance | Unusable:
    offer = request.offer
    fields = tuple(field for field in (SIGN, FACTS, ACTION, WORDING, PROSE) if field != ACTION or offer.actions)
    if not isinstance(value, dict) or value.keys() != set(fields):
        names = ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
        return Unusable("invalid", f"found {_excerpt(names) or 'no field'}; expected the fields {', '.join(fields)}")
    chosen = value[FACTS]
    offered = {SIGN: offer.signs, FACTS: offer.facts, ACTION: offer.actions}
    if not isinstance(chosen, list) or not 0 < len(chosen) <= MOST_FACTS:
        return Unusable("invalid", f"{FACTS} is {_excerpt(repr(chosen))}; expected a list of 1 to {MOST_FACTS} names")
    actions = ((ACTION, value[ACTION]),) if offer.actions else ()
    for field, name in ((SIGN, value[SIGN]), *((FACTS, each) for each in chosen), *actions):
        names = [each.id for each in offered[field]]
        if name not in names:
            return Unusable("invalid", f"{field} is {_excerpt(repr(name))}; expected one of {', '.join(names)}")
    wording, prose = value[WORDING], value[PROSE]
    if type(wording) is not int or not isinstance(prose, str):
        return Unusable("invalid", f"{WORDING} has to be an integer and {PROSE} a text")
    return Guidance(
        _plain(prose)[:MAX_PROSE_CHARS], choice=offer.choice(value[SIGN], chosen, value.get(ACTION), wording)
    )


def _plain(text: str) -> str:
    """Return a text as it may be stored: one line, valid Unicode."""
    return " ".join(_CONTROL.sub(" ", text).split()).encode("utf-8", "replace").decode("utf-8")


def _excerpt(text: str) -> str:
    """Return the beginning of a text as it may be stored and shown."""
    return _plain(text[:400])[:160]
