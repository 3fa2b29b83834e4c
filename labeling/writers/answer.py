"""Read a teacher model's answer: the guidance text, or a typed reason why there is none.

The answer is untrusted text. It has to be one JSON object with exactly the fields asked for; a fence of a code block
around it is forgiven, because models cannot leave it off. The action has to be one that kept the goal in reach, every
declared claim has to be true, and the prose may contradict neither; whatever fails becomes a countable reason. The
guidance is then built: the command from the checked action, and of the prose the sentences that advise, name a sign or
repeat a fact. What merely retells the episode is left out, since no rule can tell whether it is true.
"""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from ...models.base import CUT, ChatAnswer
from ..base import GuidanceRequest
from ..claims import is_refusal
from ..domains import domain_of
from ..target import is_storable
from ..texts import asked_claims, supported, text_problem
from .prompt import ACTION, AVOID, CLAIMS, MAX_FIELD_CHARS, good_actions
from .template import facts_of

MAX_ANSWER_CHARS = 64 * 1024
"""Longer answers are refused unread."""

Problem = Literal["refused", "truncated", "empty", "too_long", "not_json", "invalid", "contradictory", "untrue"]

FINAL: frozenset[Problem] = frozenset({"refused"})
"""Problems after which asking again is no use."""

_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n```\Z", re.DOTALL)
_PARTS = re.compile(r"(?<=[.!?])\s+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_FIELD_CHARS)]


class GuidanceAnswer(BaseModel):
    """The fields of an answer; ``action`` is None where it was not asked for."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Annotated[str, Field(max_length=200)] | None = None
    claims: dict[str, bool]
    avoid: _Text

    @field_validator(AVOID)
    @classmethod
    def _plain(cls, text: str) -> str:
        """Refuse what no file can store; line breaks and other control characters become spaces."""
        if not is_storable(text):
            raise ValueError("holds half of a surrogate pair")
        plain = " ".join(_CONTROL.sub(" ", text).split())
        if not plain:
            raise ValueError("holds no text")
        return plain


@dataclass(frozen=True, slots=True)
class Unusable:
    """An answer that gives no guidance."""

    problem: Problem
    detail: str
    """What was found and what was expected; also told to the model when it is asked again."""


class AnswerReader:
    """Reads the answers to one request, each once: the call cache and the writer ask about the same one."""

    def __init__(self, request: GuidanceRequest) -> None:
        self._request = request
        self._last: tuple[ChatAnswer, str | Unusable] | None = None

    def read(self, answer: ChatAnswer) -> str | Unusable:
        """Return the guidance text of an answer, or why it has none."""
        if self._last is None or self._last[0] is not answer:
            self._last = (answer, read_answer(answer, self._request))
        return self._last[1]

    def is_usable(self, answer: ChatAnswer) -> bool:
        """Whether an answer gives guidance."""
        return isinstance(self.read(answer), str)


def read_answer(answer: ChatAnswer, request: GuidanceRequest) -> str | Unusable:
    """Return the guidance text of an answer, or why it has none."""
    text = answer.text.strip()
    if answer.refusal is not None or answer.finish_reason == "content_filter":
        return Unusable("refused", f"the teacher declined: {_excerpt(answer.refusal or text)}")
    if answer.finish_reason == CUT:
        return Unusable("truncated", "the answer was cut at the token limit; answer with fewer words")
    if not text:
        return Unusable("empty", "the answer holds no text; expected one JSON object")
    if len(text) > MAX_ANSWER_CHARS:
        return Unusable("too_long", f"{len(text)} characters, at most {MAX_ANSWER_CHARS} are read")
    parsed = _parse(text)
    if isinstance(parsed, Unusable):
        return Unusable("refused", f"the teacher declined: {_excerpt(text)}") if is_refusal(text) else parsed
    return _checked(parsed, request)


def _parse(text: str) -> GuidanceAnswer | Unusable:
    fenced = _FENCE.match(text)
    try:
        # Grammars of structured output let line breaks through inside a string; they become spaces below.
        value: Any = json.loads(fenced[1] if fenced else text, strict=False)
    except (ValueError, RecursionError) as error:
        return Unusable("not_json", f"{type(error).__name__}: {_excerpt(str(error))}; expected one JSON object")
    try:
        return GuidanceAnswer.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "the answer"
        return Unusable("invalid", f"{_excerpt(where)}: {_excerpt(problem['msg'])}")


def _checked(answer: GuidanceAnswer, request: GuidanceRequest) -> str | Unusable:
    if is_refusal(answer.avoid):
        return Unusable("refused", f"the teacher declined: {_excerpt(answer.avoid)}")
    problem = _action_problem(answer, request) or _claims_problem(answer, request)
    if problem is not None:
        return problem
    episode, verdict = request.episode, request.verdict
    objection = text_problem(episode, verdict, answer.avoid)
    if objection is not None:
        return Unusable("untrue", f"{AVOID}: {_excerpt(str(objection))}")
    domain = domain_of(episode.env)
    prose = [part for part in _PARTS.split(answer.avoid) if supported(domain, episode, verdict, part)]
    return " ".join([_command(answer, request), *map(_ended, prose)])


def _action_problem(answer: GuidanceAnswer, request: GuidanceRequest) -> Unusable | None:
    good = good_actions(request)
    if good and answer.action is None:
        return Unusable("invalid", f"{ACTION}: the field is missing; expected one of {', '.join(good)}")
    if not good and answer.action is not None:
        return Unusable("invalid", f"{ACTION}: the field was not asked for")
    if answer.action is None or answer.action.lower() in good:
        return None
    return Unusable(
        "contradictory",
        f"{ACTION} is {_excerpt(answer.action)!r}, but only {', '.join(good)} kept the goal within reach",
    )


def _claims_problem(answer: GuidanceAnswer, request: GuidanceRequest) -> Unusable | None:
    truths = {claim.name: truth for claim, truth in asked_claims(request.episode, request.verdict).items()}
    if answer.claims.keys() != truths.keys():
        found = ", ".join(sorted(answer.claims)) or "none"
        return Unusable("invalid", f"{CLAIMS} holds {_excerpt(found)}; expected exactly {', '.join(truths)}")
    wrong = [f"{name} is {str(truth).lower()}" for name, truth in truths.items() if answer.claims[name] is not truth]
    return Unusable("contradictory", f"{CLAIMS}: {', '.join(wrong)}") if wrong else None


def _command(answer: GuidanceAnswer, request: GuidanceRequest) -> str:
    """Return the command: the checked action, or what the facts advise where none is known to have served."""
    if answer.action is not None:
        return f"At step {request.verdict.pivot_step}, choose {answer.action.lower()}."
    return domain_of(request.episode.env).phrases(facts_of(request))[1]


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _excerpt(text: str) -> str:
    """Return the beginning of a text as it may be stored and shown: one line, valid Unicode."""
    plain = " ".join(_CONTROL.sub(" ", text[:400]).split())
    return plain.encode("utf-8", "replace").decode("utf-8")[:160]
