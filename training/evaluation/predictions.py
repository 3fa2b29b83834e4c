"""The file of predictions, ``predictions.jsonl``: a header, then one row per item; the form of every submission.

``predictions.schema.json`` describes both as JSON Schema. A file is accepted whole or refused with the line of its
first mistake; nothing in it is guessed.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from ...errors import TrainingError
from ...storage import open_storage
from .items import QUESTIONS, VERSION, Benchmark, Item, Question

SCHEMA = Path(__file__).with_name("predictions.schema.json")
"""JSON Schema of a header and of a row."""

MAX_LINE_BYTES = 1_000_000
"""Longest line that is read: a reply of 64 thousand characters, escaped, takes less."""

Status = Literal["answered", "refused", "unanswered"]
STATUSES: tuple[Status, ...] = ("answered", "refused", "unanswered")


@dataclass(frozen=True, slots=True)
class Header:
    """First line of a file: which benchmark was answered, by which model, and with which settings."""

    fingerprint: str
    name: str
    """Name in tables."""
    version: str = VERSION
    questions: tuple[Question, ...] = QUESTIONS
    """Questions that were answered, each for every item of its environments."""
    environments: tuple[str, ...] = ()
    """Environments that were answered."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Everything that decided the replies, such as model, shots, pictures and sampling."""

    def covers(self, item: Item) -> bool:
        """Whether the file has to hold a row about an item."""
        return item.question in self.questions and item.env in self.environments

    def line(self) -> str:
        """Return the header as a line of the file."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Row about one item."""

    id: str
    status: Status = "answered"
    """``refused``: the model declined; ``unanswered``: a reply is missing."""
    reply: str | None = None
    """The reply as the model wrote it."""
    credit: tuple[float, ...] | None = None
    """For items ``credit``, in place of a reply: the credit of each turn, any scale, higher is better."""
    value: tuple[float, ...] | None = None
    """Next to ``credit``: worth of the state after each turn; by default the running sum of ``credit``."""
    reach: tuple[float, ...] | None = None
    """Next to ``credit``: probability that the goal is within reach after each turn, for the calibration."""
    detail: str | None = None
    """Reason why a reply is missing."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    left_out: tuple[str, ...] = ()
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
    where, record = next(lines, (f"{path}", None))
    if record is None:
        raise TrainingError(f"{path} is empty; expected a header, then one row per item of the benchmark")
    header = header_of(record, where, benchmark)
    rows: dict[str, Prediction] = {}
    places: dict[str, str] = {}
    for where, record in lines:
        row = row_of(record, where, benchmark)
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


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the lines of a file as JSON, each with its number; a line of any length takes bounded memory."""
    storage = open_storage(path.parent)
    if storage.stat(path.name) is None:
        raise TrainingError(f"{path} does not exist; expected a file of predictions (JSONL)")
    with storage.open(path.name) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            where = f"{path}, line {number}"
            if len(line) > MAX_LINE_BYTES:
                raise _refusal(where, f"more than {MAX_LINE_BYTES} bytes", "at most so many; cut the reply")
            try:
                yield where, json.loads(line.decode(), parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as error:
                raise _refusal(where, f"no JSON ({error or 'nested too deeply'})", "one object per line") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def header_of(record: Any, where: str, benchmark: Benchmark) -> Header:
    """Return the checked header of a file.

    Raises:
        TrainingError: it is not a header, or that of another benchmark.
    """
    _check_names(record, where, Header, ("fingerprint", "name", "version", "questions", "environments"))
    if record["version"] != benchmark.facts["version"]:
        raise _refusal(where, f"version {record['version']!r}", f"{benchmark.facts['version']!r}")
    if record["fingerprint"] != benchmark.fingerprint:
        expected = f"{benchmark.fingerprint!r}, that of {benchmark.root}"
        raise _refusal(where, f"the fingerprint {record['fingerprint']!r}", expected)
    if not (isinstance(record["name"], str) and record["name"]):
        raise _refusal(where, f"the name {record['name']!r}", "a text")
    for field_name, allowed in (("questions", QUESTIONS), ("environments", benchmark.environments)):
        listed = record[field_name]
        if not isinstance(listed, list) or not listed or any(each not in allowed for each in cast(list[Any], listed)):
            raise _refusal(where, f"{field_name} {listed!r}", f"some of {', '.join(allowed)}")
    if not isinstance(record.get("settings", {}), dict):
        raise _refusal(where, "settings that are not an object", "an object")
    lists = {name: tuple(record[name]) for name in ("questions", "environments")}
    return Header(**{**record, **lists})


def row_of(record: Any, where: str, benchmark: Benchmark) -> Prediction:
    """Return a checked row.

    Raises:
        TrainingError: it is invalid.
    """
    _check_names(record, where, Prediction, ("id",))
    name = record["id"]
    item = benchmark.items.get(name) if isinstance(name, str) else None
    if item is None:
        raise _refusal(where, f"the id {str(name)[:80]!r}", "the id of an item of the benchmark")
    status = record.get("status", "answered")
    if status not in STATUSES:
        raise _refusal(where, f"the status {str(status)[:40]!r}", f"one of {', '.join(STATUSES)}")
    numbers: dict[str, Any] = {}
    for field_name, fits in _NUMBERS.items():
        if (value := record.get(field_name)) is not None and not fits(value):
            raise _refusal(where, f"{field_name} {value!r}", "a finite number of 0 or more")
    for field_name in ("credit", "value", "reach"):
        if (value := record.get(field_name)) is not None:
            if item.question != "credit":
                raise _refusal(where, f"{field_name} of an item {item.question}", "a reply")
            numbers[field_name] = _series(value, field_name, where, item)
    if "credit" not in numbers and numbers:
        raise _refusal(where, f"{next(iter(numbers))} without credit", "credit, which these accompany")
    reply = record.get("reply")
    if not (reply is None or isinstance(reply, str)):
        raise _refusal(where, f"a reply of type {type(reply).__name__}", "a text")
    if status == "answered" and (reply is None) == ("credit" not in numbers):
        content = "neither reply nor credit" if reply is None else "both a reply and credit"
        raise _refusal(where, f"{content} of an answered item", "one of them")
    if status != "answered" and numbers:
        raise _refusal(where, f"credit of an item that is {status}", "none")
    return Prediction(**{**record, **numbers, "left_out": tuple(record.get("left_out") or ())})


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_amount(value: Any) -> bool:
    return _is_finite(value) and value >= 0


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


_NUMBERS: Mapping[str, Callable[[Any], bool]] = {
    "prompt_tokens": _is_count,
    "completion_tokens": _is_count,
    "seconds": _is_amount,
    "cost": _is_amount,
}


def _series(value: Any, name: str, where: str, item: Item) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != item.num_steps:
        content = f"{len(value)} numbers" if isinstance(value, list) else type(value).__name__
        raise _refusal(where, f"{content} in {name}", f"{item.num_steps}, one per turn")
    for each in cast(list[Any], value):
        if not _is_finite(each) or (name == "reach" and not 0 <= each <= 1):
            expected = "a probability from 0 to 1" if name == "reach" else "a finite number"
            raise _refusal(where, f"{str(each)[:40]} in {name}", expected)
    return tuple(map(float, value))


def _check_names(record: Any, where: str, kind: type[Any], required: Iterable[str]) -> None:
    if not isinstance(record, dict):
        raise _refusal(where, f"a {type(record).__name__}", "an object")
    names = {each.name for each in fields(kind)}
    if unknown := sorted(record.keys() - names):
        raise _refusal(where, f"the field {unknown[0]!r}", f"fields of: {', '.join(sorted(names))}")
    if missing := [name for name in required if name not in record]:
        raise _refusal(where, f"no field {missing[0]!r}", "one")


def _refusal(where: str, what: str, expected: str) -> TrainingError:
    return TrainingError(f"{where}: found {what}, expected {expected}; {SCHEMA.name} describes the file")
