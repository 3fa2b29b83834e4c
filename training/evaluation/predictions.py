"""The file of predictions, ``predictions.jsonl``: a header, then one row per item; the form of every submission.

``predictions.schema.json`` describes both as JSON Schema. A file is accepted whole or refused with the line of its
first mistake; nothing in it is guessed. A reply in a row is read strictly and leniently; whatever it holds, reading
ends with an answer or a typed problem. Strict: after thoughts (``<think>...</think>``) the reply is exactly one JSON
object with the requested fields. Lenient: the object may be in prose or in a code fence, may have further fields, and
words may differ in case. A reply with two different answers has none in either reading.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field, fields
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from ...core.errors import TrainingError
from ...core.messages import without_thoughts
from ...core.plugins import expectation
from ...core.storage import open_storage
from ...labeling.prose import is_refusal
from ...labeling.target import MAX_TARGET_CHARS
from ..records import lines_of
from .items import Benchmark, Item, Question

SCHEMA = Path(__file__).with_name("predictions.schema.json")
"""JSON Schema of a header and of a row."""

MAX_LINE_BYTES = 1_000_000
"""Longest line that is read: a reply of 64 thousand characters, escaped, takes less."""

_UNSEEN = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
NAME = rf"^[^\s{_UNSEEN}][^{_UNSEEN}]*$"
"""Names: one line of visible text."""
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Status = Literal["answered", "refused", "unanswered"]
Amount = Annotated[float, Field(ge=0, le=1e12)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Score = Annotated[float, Field(ge=-1e100, le=1e100)]
Word = Annotated[str, Field(max_length=100)]
Chance = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True, config=STRICT)
class Header:
    """First line of a file: which benchmark was answered, by which model, and with which settings."""

    fingerprint: str
    name: Annotated[str, Field(pattern=NAME, max_length=200)]
    """Name in tables; it is data, and no name has a meaning."""
    version: str
    questions: Annotated[tuple[Question, ...], Field(min_length=1)]
    """Questions that were answered, each for every item of its environments."""
    environments: tuple[str, ...]
    """Environments that were answered."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Everything that decided the replies, such as model, shots, pictures and sampling."""

    def covers(self, item: Item) -> bool:
        """Whether the file has to hold a row about an item."""
        return item.question in self.questions and item.env in self.environments

    def line(self) -> str:
        """Return the header as a line of the file."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True, config=STRICT)
class Prediction:
    """Row about one item."""

    id: str
    status: Status = "answered"
    """``refused``: the model declined; ``unanswered``: a reply is missing."""
    reply: str | None = None
    """The model's raw reply."""
    credit: tuple[Score, ...] | None = None
    """For items ``credit``, in place of a reply: the credit of each turn, any scale, higher is better."""
    value: tuple[Score, ...] | None = None
    """With ``credit``: value of the state after each turn; by default the running sum of ``credit``."""
    reach: tuple[Chance, ...] | None = None
    """Next to ``credit``: probability that the goal is within reach after each turn, for the calibration."""
    detail: str | None = None
    """Reason why a reply is missing."""
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    seconds: Amount | None = None
    cost: Amount | None = None
    left_out: Annotated[tuple[Word, ...], Field(max_length=100)] | None = None
    """Fields of the request that the server refused, so that they were left out."""

    def line(self) -> str:
        """Return the row as a line of the file, without empty fields."""
        row = {name: value for name, value in asdict(self).items() if value not in (None, ())}
        return json.dumps(row, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Predictions:
    """A checked file."""

    header: Header
    rows: Mapping[str, Prediction]
    """Row by id; one for every item that the header covers."""


def read_predictions(path: Path, benchmark: Benchmark) -> Predictions:
    """Read a file and check it against a benchmark.

    Raises:
        TrainingError: a line is invalid, twice, or missing; or the file answers another benchmark.
    """
    lines = _lines(path)
    where, line = next(lines, (f"{path}", b""))
    if not line:
        raise TrainingError(f"{path} is empty; expected a header, then one row per item of the benchmark")
    header = header_of(line, where, benchmark)
    rows: dict[str, Prediction] = {}
    places: dict[str, str] = {}
    for where, line in lines:
        row = row_of(line, where, benchmark)
        if row.id in rows:
            raise _refusal(where, f"item {row.id} a second time, after {places[row.id]}", "one row per item")
        if not header.covers(benchmark.items[row.id]):
            raise _refusal(where, f"item {row.id}", "an item of the header's questions and environments")
        rows[row.id], places[row.id] = row, where
    missing = [name for name, item in benchmark.items.items() if header.covers(item) and name not in rows]
    if missing:
        raise TrainingError(
            f"{path}: found no row of item {missing[0]} (missing: {len(missing)}), expected one per item; write a row "
            'with "status": "unanswered" where a model gave no reply'
        )
    return Predictions(header, rows)


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a file, each with its number; a line of any length takes bounded memory."""
    storage = open_storage(path.parent)
    if storage.stat(path.name) is None:
        raise TrainingError(f"{path} is not a file; expected one of predictions (JSONL)")
    for number, line in enumerate(lines_of(storage, path.name, MAX_LINE_BYTES + 1), 1):
        where = f"{path}, line {number}"
        if len(line) > MAX_LINE_BYTES:
            raise _refusal(where, f"more than {MAX_LINE_BYTES} bytes", "at most so many; cut the reply")
        yield where, line


def _read(kind: TypeAdapter[Any], names: Iterable[str], line: bytes, where: str) -> Any:
    """Return the record of a line.

    Raises:
        TrainingError: the line is not JSON, or a field is unknown, missing, or of a wrong type.
    """
    try:
        record = kind.validate_json(line)
        json.loads(line, object_pairs_hook=_refuse_repeats, parse_constant=_refuse_constant, parse_float=_finite)
        return record
    except NotFiniteError as error:
        raise _refusal(where, f"the number {str(error)[:80]}", "finite numbers") from None
    except RepeatedError as error:
        raise _refusal(where, f"the field {str(error)[:80]!r} twice", "every field once") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        mistake, name = problem["type"], ".".join(map(str, problem["loc"]))
        if mistake == "json_invalid":
            raise _refusal(where, f"no JSON ({problem.get('ctx', {}).get('error')})", "one object per line") from None
        if mistake == "unexpected_keyword_argument":
            raise _refusal(where, f"the field {name!r}", f"fields of: {', '.join(names)}") from None
        if mistake.startswith("missing"):
            raise _refusal(where, f"no field {name!r}", "one") from None
        value = f"{str(problem['input'])[:80]!r} in {name}" if name else f"a {type(problem['input']).__name__}"
        raise _refusal(where, value, expectation(problem)) from None


_HEADERS, _ROWS = TypeAdapter(Header), TypeAdapter(Prediction)
_HEADER_FIELDS, _ROW_FIELDS = ([each.name for each in fields(kind)] for kind in (Header, Prediction))


def header_of(line: bytes, where: str, benchmark: Benchmark) -> Header:
    """Return the checked header of a file.

    Raises:
        TrainingError: the line is not a header, or is the header of a different benchmark.
    """
    header: Header = _read(_HEADERS, _HEADER_FIELDS, line, where)
    if header.version != benchmark.facts["version"]:
        raise _refusal(where, f"version {header.version!r}", f"{benchmark.facts['version']!r}")
    if header.fingerprint != benchmark.fingerprint:
        expected = f"{benchmark.fingerprint!r}, that of {benchmark.root}"
        raise _refusal(where, f"the fingerprint {header.fingerprint!r}", expected)
    if not header.environments or not {*header.environments} <= {*benchmark.environments}:
        allowed = ", ".join(benchmark.environments)
        raise _refusal(where, f"environments {list(header.environments)!r}", f"some of {allowed}")
    for name in ("questions", "environments"):
        if len(chosen := getattr(header, name)) != len({*chosen}):
            raise _refusal(where, f"{name} {list(chosen)!r}", "each once")
    return header


def row_of(line: bytes, where: str, benchmark: Benchmark) -> Prediction:
    """Return a checked row.

    Raises:
        TrainingError: the row is invalid.
    """
    row: Prediction = _read(_ROWS, _ROW_FIELDS, line, where)
    item = benchmark.items.get(row.id)
    if item is None:
        raise _refusal(where, f"the id {row.id[:80]!r}", "the id of an item of the benchmark")
    series = {name: getattr(row, name) for name in ("credit", "value", "reach") if getattr(row, name) is not None}
    for name, values in series.items():
        if item.question != "credit":
            raise _refusal(where, f"{name} of an item {item.question}", "a reply")
        if len(values) != item.num_steps:
            raise _refusal(where, f"{len(values)} numbers in {name}", f"{item.num_steps}, one per turn")
    if series and "credit" not in series:
        raise _refusal(where, f"{next(iter(series))} without credit", "credit, which these accompany")
    if row.status == "answered" and (row.reply is None) == ("credit" not in series):
        content = "neither reply nor credit" if row.reply is None else "both a reply and credit"
        raise _refusal(where, f"{content} of an answered item", "one of them")
    if row.status != "answered" and series:
        raise _refusal(where, f"credit of an item that is {row.status}", "none")
    return row


def _refusal(where: str, what: str, expected: str) -> TrainingError:
    return TrainingError(f"{where}: found {what}, expected {expected}; {SCHEMA.name} describes the file")


# Replies

Reader = Literal["strict", "lenient"]
READERS: tuple[Reader, ...] = ("strict", "lenient")

FIELDS: Mapping[Question, tuple[str, ...]] = {
    "twin": ("pivot_step", "failure_mode"),
    "locate": ("pivot_step", "failure_mode"),
    "safe": ("safe_actions",),
    "credit": ("reach",),
}
GUIDANCE = "failure_reason"
"""Field next to ``pivot_step`` that the strict reader allows, too: Analyzers of ``pivot train sft`` write guidance."""

MOST_OBJECTS = 64
"""Most openings of a brace that the lenient reader tries."""

Problem = Literal["too_long", "empty", "refused", "not_json", "several", "wrong_fields", "wrong_type", "out_of_range"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of a readable reply."""

    pivot_step: int | None = None
    failure_mode: str | None = None
    safe_actions: frozenset[str] = frozenset()
    reach: tuple[float, ...] = ()


class UnreadableError(ValueError):
    """A reply without a readable answer; ``problem`` is the reason, for counting."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem: Problem = problem


def read_answer(text: str, item: Item, reader: Reader) -> Answer | Problem:
    """Return the answer in a reply to an item, or the reason why there is none."""
    if len(text) > MAX_TARGET_CHARS:
        return "too_long"
    answer = without_thoughts(text)
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
        if not isinstance(value, dict) or value.keys() - ({GUIDANCE} if "pivot_step" in names else set()) != names:
            raise UnreadableError("wrong_fields")
        return value
    objects = [value for value in _objects(text) if names <= value.keys()]
    answers = {json.dumps({name: value[name] for name in names}, sort_keys=True): value for value in objects}
    if not answers:
        raise UnreadableError("not_json")
    if len(answers) > 1:
        raise UnreadableError("several")
    return next(iter(answers.values()))


class NotFiniteError(ValueError):
    """A number in JSON that is not finite; the message is its text."""


def _refuse_constant(text: str) -> Any:
    raise NotFiniteError(text)


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise NotFiniteError(text)
    return number


class RepeatedError(ValueError):
    """A JSON object that has a field twice; the message is its name."""


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedError(next(name for name in names if names.count(name) > 1))
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
    if item.question in ("twin", "locate"):
        step, mode = _step(fields["pivot_step"], item, reader), _word(fields["failure_mode"], reader)
        if (step is None) != (mode is None):
            raise UnreadableError("wrong_type")
        if mode is not None and mode not in item.choices:
            raise UnreadableError("out_of_range")
        return Answer(pivot_step=step, failure_mode=mode)
    if item.question == "safe":
        named = fields["safe_actions"]
        if not isinstance(named, list):
            raise UnreadableError("wrong_type")
        actions = [_word(each, reader) for each in named]
        if len({*actions}) != len(actions) or not {*actions} <= {*item.choices}:
            raise UnreadableError("out_of_range")
        return Answer(safe_actions=frozenset(map(str, actions)))
    return Answer(reach=_chances(fields["reach"], item.num_steps))


def _step(value: Any, item: Item, reader: Reader) -> int | None:
    if reader == "lenient" and isinstance(value, str):
        word = value.strip().lower()
        value = None if word in ("null", "none") else int(word) if re.fullmatch("[0-9]{1,6}", word) else value
    if value is None:
        return None
    if type(value) is not int:  # bool is an int to isinstance, and 3.0 is not a step index
        raise UnreadableError("wrong_type")
    if not 0 <= value < item.num_steps:
        raise UnreadableError("out_of_range")
    return value


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
