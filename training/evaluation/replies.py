"""Readers of replies, strict and lenient: whatever a reply holds, reading ends with an answer or a typed problem.

Strict: after thoughts (``<think>...</think>``) the reply is exactly one JSON object with the asked fields. Lenient: the
object may be in prose or in a code fence, may have further fields, and words may differ in case. A reply with two
different answers has none in either reading, and neither has a list of candidates.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...labeling.prose import is_refusal
from ...labeling.target import MAX_TARGET_CHARS
from .items import Item, Question

Reader = Literal["strict", "lenient"]
READERS: tuple[Reader, ...] = ("strict", "lenient")

FIELDS: Mapping[Question, tuple[str, ...]] = {
    "locate": ("pivot_step", "failure_mode"),
    "safe": ("safe_action",),
    "credit": ("reach",),
}
OPTIONAL: Mapping[Question, frozenset[str]] = {
    "locate": frozenset({"failure_reason"}),
    "safe": frozenset(),
    "credit": frozenset(),
}
"""Fields that the strict reader allows, too: Analyzers of ``pivot train sft`` also write guidance."""

MOST_OBJECTS = 64
"""Most openings of a brace that the lenient reader tries."""

_THOUGHT = re.compile(r"\A.*</think>", re.DOTALL)

Problem = Literal["too_long", "empty", "refused", "not_json", "several", "wrong_fields", "wrong_type", "out_of_range"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of a readable reply."""

    pivot_step: int | None = None
    failure_mode: str | None = None
    safe_action: str = ""
    reach: tuple[float, ...] = ()


class UnreadableError(ValueError):
    """A reply without an answer; ``problem`` is what can be counted."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem: Problem = problem


def read_answer(text: str, item: Item, reader: Reader) -> Answer | Problem:
    """Return the answer in a reply to an item, or the reason why there is none."""
    if len(text) > MAX_TARGET_CHARS:
        return "too_long"
    answer = _THOUGHT.sub("", text, count=1).strip()
    if not answer:
        return "empty"
    try:
        return _content(_fields(answer, item.question, reader), item, reader)
    except UnreadableError as error:
        return "refused" if error.problem == "not_json" and is_refusal(answer) else error.problem


def _fields(text: str, question: Question, reader: Reader) -> dict[str, Any]:
    names = set(FIELDS[question])
    if reader == "strict":
        try:
            value = _DECODER.decode(text)
        except (ValueError, RecursionError):
            raise UnreadableError("not_json") from None
        if not isinstance(value, dict) or value.keys() - OPTIONAL[question] != names:
            raise UnreadableError("wrong_fields")
        return value
    objects = [value for value in _objects(text) if names <= value.keys()]
    answers = {json.dumps({name: value[name] for name in names}, sort_keys=True): value for value in objects}
    if not answers:
        raise UnreadableError("not_json")
    if len(answers) > 1:
        raise UnreadableError("several")
    return next(iter(answers.values()))


def _refuse_constant(_: str) -> Any:
    raise ValueError


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_repeats, parse_constant=_refuse_constant)


def _objects(text: str) -> list[dict[str, Any]]:
    """Return the outermost JSON objects in a text."""
    objects: list[dict[str, Any]] = []
    start = text.find("{")
    for _ in range(MOST_OBJECTS):
        if start < 0:
            return objects
        end = start + 1
        try:
            value, end = _DECODER.raw_decode(text, start)
            objects.append(value)
        except (ValueError, RecursionError):
            pass
        start = text.find("{", end)
    raise UnreadableError("several")


def _content(fields: Mapping[str, Any], item: Item, reader: Reader) -> Answer:
    if item.question == "locate":
        step, mode = _step(fields["pivot_step"], item, reader), _word(fields["failure_mode"], reader)
        if (step is None) != (mode is None):
            raise UnreadableError("wrong_type")
        if mode is not None and mode not in item.choices:
            raise UnreadableError("out_of_range")
        return Answer(pivot_step=step, failure_mode=mode)
    if item.question == "safe":
        action = _word(fields["safe_action"], reader)
        if action is None or action not in item.choices:
            raise UnreadableError("out_of_range")
        return Answer(safe_action=action)
    return Answer(reach=_chances(fields["reach"], item.num_steps))


def _step(value: Any, item: Item, reader: Reader) -> int | None:
    if reader == "lenient" and isinstance(value, str):
        value = None if value.strip().lower() in ("null", "none") else _whole(value)
    if value is None:
        return None
    if type(value) is not int:  # bool is an int to isinstance, and 3.0 is not a step index
        raise UnreadableError("wrong_type")
    if not 0 <= value < item.num_steps:
        raise UnreadableError("out_of_range")
    return value


def _whole(text: str) -> Any:
    return int(text) if re.fullmatch(r"\s*[0-9]{1,6}\s*", text, re.ASCII) else text


def _word(value: Any, reader: Reader) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise UnreadableError("wrong_type")
    if reader == "strict":
        return value
    word = value.strip().lower()
    return None if word in ("null", "none") else word


def _chances(value: Any, count: int) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise UnreadableError("wrong_type")
    if len(value) != count:
        raise UnreadableError("out_of_range")
    if not all(type(each) in (int, float) for each in value):
        raise UnreadableError("wrong_type")
    if not all(0 <= each <= 1 for each in value):
        raise UnreadableError("out_of_range")
    return tuple(map(float, value))
