"""The figures of the benchmark: oracle, planted errors, an independent scorer, and every way to cheat or err."""

import itertools
import json
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pivot.core.errors import TrainingError
from pivot.core.identity import below
from pivot.core.storage import open_storage
from pivot.labeling.target import MAX_TARGET_CHARS
from pivot.tests.evaluation.benchmark_oracle import figures
from pivot.tests.evaluation.stand_ins import Mixture, Oracle, StandIn, Uniform, draw, submit
from pivot.training.evaluation.controls import locate_reply, true_reply
from pivot.training.evaluation.items import QUESTIONS, VERSION, Benchmark, Item
from pivot.training.evaluation.predictions import (
    MAX_LINE_BYTES,
    SCHEMA,
    Header,
    Prediction,
    read_answer,
    read_predictions,
)
from pivot.training.evaluation.run import score_file
from pivot.training.evaluation.scores import MAIN, TASKS, chance, score
from pivot.training.evaluation.tables import best_baseline

pytestmark = pytest.mark.xdist_group("benchmark")
Rows = list[Any]


def write(path: Path, benchmark: Benchmark, rows: Rows, **header: Any) -> Path:
    """A file of predictions; a row may be a record, or a raw line. A field of the header that is None is left out."""
    first = asdict(Header(benchmark.fingerprint, "test", VERSION, QUESTIONS, tuple(benchmark.environments))) | header
    lines = [json.dumps({name: each for name, each in first.items() if each is not None}).replace('"1e400"', "1e400")]
    lines[0] += "\n"
    lines += [
        row if isinstance(row, str) else row.line() if isinstance(row, Prediction) else json.dumps(row) + "\n"
        for row in rows
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def scored(path: Path, benchmark: Benchmark, scripted: StandIn) -> dict[str, Any]:
    """Write the predictions of a stand-in to a file, and return its scores."""
    file = submit(path / "predictions.jsonl", benchmark, lambda _: scripted, "test")
    return score(benchmark, read_predictions(file, benchmark))


def test_the_oracle_has_every_point(benchmark: Benchmark, tmp_path: Path) -> None:
    result = scored(tmp_path, benchmark, Oracle(benchmark))
    assert {cell["task"] for cell in result["cells"]} == {"twin", "pivot", "mode", "safe", "credit"}
    for cell in result["cells"]:
        for reader in ("strict", "lenient"):
            values = {name: each["value"] for name, each in cell["figures"][reader].items() if each is not None}
            assert values == dict.fromkeys(values, pytest.approx(1.0, abs=1e-12)), cell
    assert any(truth.pivot_step is None for truth in benchmark.truths.values()), "some episodes were never lost"


def test_an_environment_without_failures_has_no_figures_of_modes(benchmark: Benchmark, tmp_path: Path) -> None:
    truths = {name: replace(truth, pivot_step=None, failure_mode=None) for name, truth in benchmark.truths.items()}
    safe = replace(benchmark, truths=truths)
    assert {cell["task"] for cell in scored(tmp_path, safe, Oracle(safe))["cells"]} == {*TASKS} - {"mode"}


def pairs_of(benchmark: Benchmark) -> list[list[Item]]:
    """Return the pairs of twin items."""
    pairs: dict[str, list[Item]] = {}
    for name, truth in benchmark.truths.items():
        if truth.pair:
            pairs.setdefault(truth.pair, []).append(benchmark.items[name])
    return list(pairs.values())


def test_twins_differ_by_picture_and_pivot_alone(benchmark: Benchmark) -> None:
    pairs = pairs_of(benchmark)
    assert {pair[0].env for pair in pairs} == set(benchmark.environments) and len(pairs) > 8
    for one, other in pairs:
        shown = {"item_id": "", "pictures": (), "pixels": ()}
        assert replace(one, **shown) == replace(other, **shown) and one.pixels != other.pixels
        truths = [benchmark.truths[item.item_id] for item in (one, other)]
        assert truths[0].pivot_step != truths[1].pivot_step and truths[0].level != truths[1].level


def test_two_guesses_are_a_pair_as_often_as_their_chance_says(benchmark: Benchmark) -> None:
    draws, hits, expected = 200, 0, 0.0
    for number, pair in itertools.product(range(draws), pairs_of(benchmark)):
        guesses = [draw(item, "guess", number) for item in pair]
        steps = [below(rng, item.num_steps + 1) for rng, item in zip(guesses, pair, strict=True)]
        hits += steps == [benchmark.truths[item.item_id].pivot_step for item in pair]
        expected += chance("twin", pair[0])
    assert abs(hits - expected) < 4 * expected**0.5 + 1


class Careless(StandIn):
    """A model whose answers are refused, missing, in prose, right or wrong in turn."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._mixture = Mixture(benchmark, 0.6)
        self._numbers = {name: number for number, name in enumerate(benchmark.items)}

    def reply(self, item: Item) -> str:
        return self._mixture.reply(item)

    def predict(self, item: Item) -> Prediction:
        number = self._numbers[item.item_id] % 11
        row = self._mixture.predict(item)
        if number == 0:
            return Prediction(item.item_id, "refused", detail="no")
        if number == 1:
            return Prediction(item.item_id, "unanswered")
        if number == 2 and row.reply is not None:
            return replace(row, reply=f"I think it is ```json\n{row.reply}\n```")
        return replace(row, reply="<think>{}</think> " + row.reply) if number == 3 and row.reply is not None else row


def check_figures(tmp_path: Path, benchmark: Benchmark, scripted: StandIn) -> None:
    """Compare every figure by the strict reader with that of the independent scorer."""
    seen = {
        (cell["task"], cell["env"], cell["log"], name): (share["value"], share["low"], share["high"])
        for cell in scored(tmp_path, benchmark, scripted)["cells"]
        for name, share in cell["figures"]["strict"].items()
        if share is not None
    }
    expected = figures(benchmark.root, tmp_path / "predictions.jsonl")
    assert seen.keys() == expected.keys() and seen
    for key, value in expected.items():
        assert seen[key][0] == pytest.approx(value[0], abs=1e-12), key
        assert seen[key][1:] == pytest.approx(value[1:], abs=1e-3), key  # our Student's t is rounded


@pytest.mark.parametrize("kind", [Oracle, Uniform, Careless])
def test_every_figure_is_that_of_an_independent_scorer(benchmark: Benchmark, tmp_path: Path, kind: Any) -> None:
    check_figures(tmp_path, benchmark, kind(benchmark))


def test_strict_and_lenient_readers_differ_by_prose_alone(benchmark: Benchmark, tmp_path: Path) -> None:
    class Chatty(Oracle):
        def predict(self, item: Item) -> Prediction:
            reply = f"Sure! Here it is:\n```json\n{self.reply(item)}\n```\nI hope this helps."
            return Prediction(item.item_id, reply=reply)

    for cell in scored(tmp_path, benchmark, Chatty(benchmark))["cells"]:
        assert cell["read"]["strict"]["value"] == 0.0 and cell["read"]["lenient"]["value"] == 1.0
        assert cell["figures"]["strict"][MAIN[cell["task"]]]["value"] == 0.0
        assert cell["figures"]["lenient"][MAIN[cell["task"]]]["value"] == 1.0


def test_silence_and_refusal_are_counted_apart_and_never_pay(benchmark: Benchmark, tmp_path: Path) -> None:
    class Silent(Oracle):
        def predict(self, item: Item) -> Prediction:
            return Prediction(item.item_id, "refused" if item.env == "sokoban" else "unanswered")

    for cell in scored(tmp_path, benchmark, Silent(benchmark))["cells"]:
        assert (cell["refused"]["value"], cell["unanswered"]["value"]) == (
            (1, 0) if cell["env"] == "sokoban" else (0, 1)
        )
        figures_of = cell["figures"]["lenient"]
        assert all(share is None or share["value"] in (0.0, -1.0) for share in figures_of.values())


def test_a_model_without_pictures_is_at_most_the_baseline_of_the_log(benchmark: Benchmark) -> None:
    baselines = benchmark.baselines()
    assert [each["name"] for each in baselines if each["cells"]] == ["majority", "level posterior"]
    for result in baselines:
        for cell in result["cells"]:
            best = best_baseline(baselines, cell)
            mine = cell["figures"]["lenient"][MAIN[cell["task"]]]
            assert best is not None and mine is not None
            most = best[1]["figures"]["lenient"][MAIN[cell["task"]]]["value"]
            assert mine["value"] <= most
            assert most < 1.0 or cell["task"] == "mode", "only a fall, which ends an episode early, shows in the log"


@pytest.mark.parametrize("name", ["level posterior", "a | b", "# $x_1$ <b>", "model:7b"])
def test_a_name_is_data(benchmark: Benchmark, tmp_path: Path, name: str) -> None:
    file = submit(tmp_path / "predictions.jsonl", benchmark, Oracle, name)
    report = score_file({"predictions": file, "data": benchmark.root})
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| sokoban | full |")]
    assert len(rows) == 6 and sum("best on the log alone: " in row for row in rows) == 3
    assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows[:2]}) == 1 and "\n#  " not in text
    assert [each["name"] for each in report.baselines] == [each["name"] for each in benchmark.baselines()]


# Wrong replies, and attempts to cheat


def of_kind(benchmark: Benchmark, question: str) -> Item:
    """Return the first item of a question that has a pivot and several steps."""
    return next(
        item
        for item in benchmark.items.values()
        if item.question == question and item.num_steps > 2 and benchmark.truths[item.item_id].pivot_step is not None
    )


CHEATS: dict[str, Callable[[str, Item], str]] = {
    "nothing": lambda right, item: "",
    "two answers": lambda right, item: right + locate_reply(None, None),
    "two answers in prose": lambda right, item: f"It is {right}. Or else {locate_reply(None, None)}",
    "all steps": lambda right, item: f'{{"pivot_step": {[*range(item.num_steps)]}, "failure_mode": "timeout"}}',
    "one answer per step": lambda right, item: "\n".join(locate_reply(t, "timeout") for t in range(item.num_steps)),
    "the prompt": lambda right, item: item.prompt,
    "the shape in the prompt": lambda right, item: '{"pivot_step": <integer or null>, "failure_mode": <one word>}',
    "NaN": lambda right, item: '{"pivot_step": NaN, "failure_mode": "timeout"}',
    "infinity": lambda right, item: '{"pivot_step": Infinity, "failure_mode": "timeout"}',
    "a fraction": lambda right, item: '{"pivot_step": 1.0, "failure_mode": "timeout"}',
    "true": lambda right, item: '{"pivot_step": true, "failure_mode": "timeout"}',
    "negative": lambda right, item: '{"pivot_step": -1, "failure_mode": "timeout"}',
    "beyond the last step": lambda right, item: f'{{"pivot_step": {item.num_steps}, "failure_mode": "timeout"}}',
    "a huge number": lambda right, item: f'{{"pivot_step": {"9" * 5000}, "failure_mode": "timeout"}}',
    "another mode": lambda right, item: '{"pivot_step": 1, "failure_mode": "bad luck"}',
    "all modes": lambda right, item: json.dumps({"pivot_step": 1, "failure_mode": list(item.choices)}),
    "a step without a mode": lambda right, item: '{"pivot_step": 1, "failure_mode": null}',
    "a mode without a step": lambda right, item: '{"pivot_step": null, "failure_mode": "timeout"}',
    "a field twice": lambda right, item: right[:-1] + ', "pivot_step": 0}',
    "no mode": lambda right, item: '{"pivot_step": 1}',
    "a list": lambda right, item: f"[{right}, {locate_reply(None, None)}]",
    "too long": lambda right, item: " " * MAX_TARGET_CHARS + right,
    "a hundred thousand braces": lambda right, item: "{" * 60_000,
    "deeply nested": lambda right, item: '{"a":' * 10_000,
    "a refusal": lambda right, item: "I'm sorry, but I can't help with that.",
    "the answer in thoughts alone": lambda right, item: f"<think>{right}</think>",
    "a thought that was cut off": lambda right, item: f"<think>Perhaps {right}, or rather",
    "a second thought that was cut off": lambda right, item: f"<think>So.</think><think>{right}",
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_reply_that_cheats_is_wrong_in_both_readings(benchmark: Benchmark, name: str) -> None:
    item = of_kind(benchmark, "locate")
    right = true_reply(item, benchmark.truths[item.item_id])
    for reader in ("strict", "lenient"):
        assert isinstance(read_answer(CHEATS[name](right, item), item, reader), str), reader
        assert not isinstance(read_answer(right, item, reader), str)


@pytest.mark.parametrize(
    "reply",
    [
        *('{"safe_actions": "up"}', '{"safe_actions": ["all"]}', '{"safe_actions": ["up", "up"]}'),
        *('{"safe_actions": null}', '{"safe_actions": [["up"]]}', '{"safe_actions": [null]}', '{"safe_action": "up"}'),
    ],
)
def test_a_list_of_offered_actions_is_asked_for(benchmark: Benchmark, reply: str) -> None:
    item = of_kind(benchmark, "safe")
    assert all(isinstance(read_answer(reply, item, reader), str) for reader in ("strict", "lenient"))
    right = true_reply(item, benchmark.truths[item.item_id])
    more = [read_answer(f'{right[:-1]}, "failure_reason": "so"}}', item, reader) for reader in ("strict", "lenient")]
    assert more[0] == "wrong_fields" and more[1] == read_answer(right, item, "strict")


@pytest.mark.parametrize("reach", ["[]", "[2]", "[NaN]", "0.5", '["1"]', "[true]", "null", "[1e999]"])
def test_one_probability_per_step_is_asked_for(benchmark: Benchmark, reach: str) -> None:
    item = of_kind(benchmark, "credit")
    if reach.startswith("[") and len(reach) > 2:
        reach = f"[{', '.join([reach[1:-1]] * item.num_steps)}]"
    assert all(isinstance(read_answer(f'{{"reach": {reach}}}', item, each), str) for each in ("strict", "lenient"))


def changed(rows: Rows, number: int, **fields: Any) -> Rows:
    """Return the rows with changed fields in one of them."""
    row = {**json.loads(rows[number].line()), **fields}
    return [*rows[:number], row, *rows[number + 1 :]]


FILES: dict[str, tuple[Callable[[Rows], Rows], dict[str, Any], str]] = {
    "a row twice": (lambda rows: [*rows, rows[2]], {}, "a second time, after"),
    "a row missing": (lambda rows: rows[:-1], {}, "found no row of item"),
    "no rows": (lambda rows: [], {}, "found no row of item"),
    "other fingerprint": (lambda rows: rows, {"fingerprint": "0" * 16}, "line 1: found the fingerprint"),
    "other version": (lambda rows: rows, {"version": "1"}, "line 1: found version"),
    "no name": (lambda rows: rows, {"name": ""}, "line 1: found '' in name, expected"),
    "a name of two lines": (lambda rows: rows, {"name": "a\n# b"}, "line 1: found 'a\\n# b' in name"),
    "a field twice": (lambda rows: [rows[0], ID_TWICE, *rows[2:]], {}, "line 3: found the field 'id' twice"),
    "a number left out": (lambda rows: changed(rows, 1, left_out=7), {}, "line 3: found '7' in left_out"),
    "a detail that is a number": (lambda rows: changed(rows, 1, detail=7), {}, "line 3: found '7' in detail"),
    "tokens of letters": (lambda rows: changed(rows, 1, prompt_tokens="many"), {}, "line 3: found 'many' in prompt"),
    "unknown question": (lambda rows: rows, {"questions": ("guess",)}, "line 1: found 'guess' in questions.0"),
    "no environments": (lambda rows: rows, {"environments": ()}, "line 1: found environments"),
    "a row beyond the header": (lambda rows: rows, {"questions": ("safe",)}, "line 2: found item"),
    "unknown id": (lambda rows: changed(rows, 1, id="locate/full/x/y"), {}, "line 3: found the id"),
    "an id that is a number": (lambda rows: changed(rows, 1, id=7), {}, "line 3: found '7' in id, expected a text"),
    "unknown field": (lambda rows: changed(rows, 1, answer=3), {}, "line 3: found the field 'answer'"),
    "unknown status": (lambda rows: changed(rows, 1, status="right"), {}, "line 3: found 'right' in status"),
    "a reply that is a number": (lambda rows: changed(rows, 1, reply=3), {}, "line 3: found '3' in reply"),
    "no reply": (lambda rows: changed(rows, 1, reply=None), {}, "line 3: found neither reply nor credit"),
    "credit of a pivot": (lambda rows: changed(rows, 1, credit=[1.0]), {}, "line 3: found credit of an item"),
    "negative seconds": (lambda rows: changed(rows, 1, seconds=-1), {}, "line 3: found '-1' in seconds"),
    "NaN": (lambda rows: [rows[0], '{"id": NaN}\n', *rows[2:]], {}, "line 3: found 'nan' in id"),
    "half a line": (lambda rows: [*rows[:-1], rows[-1].line()[:20]], {}, "found no JSON"),
    "a list": (lambda rows: [[1], *rows[1:]], {}, "line 2: found a list"),
    "an empty line": (lambda rows: [rows[0], "\n", *rows[1:]], {}, "line 3: found no JSON"),
    "a huge line": (lambda rows: [rows[0], "x" * (2 * MAX_LINE_BYTES), *rows[1:]], {}, "line 3: found more than"),
    "countless tokens": (lambda rows: changed(rows, 0, prompt_tokens=10**310), {}, "line 2: found"),
    "endless seconds": (lambda rows: changed(rows, 0, seconds=1e308), {}, "line 2: found"),
    "a long name left out": (lambda rows: changed(rows, 0, left_out=["x" * 900]), {}, "line 2: found"),
    "many names left out": (lambda rows: changed(rows, 0, left_out=["x"] * 101), {}, "line 2: found"),
    "a blank name": (lambda rows: rows, {"name": "   "}, "line 1: found '   ' in name"),
    "a name that turns the line": (lambda rows: rows, {"name": "a\u202eb"}, "in name"),
    "an environment twice": (lambda rows: rows, {"environments": ["x", "x"]}, "line 1: found environments ['x', 'x']"),
    "a setting NaN": (lambda rows: rows, {"settings": {"temperature": math.nan}}, "the number NaN, expected finite"),
    "a large setting": (lambda rows: rows, {"settings": {"temperature": "1e400"}}, "the number 1e400, expected finite"),
    **{
        f"a header without {name}": (lambda rows: rows, {name: None}, f"line 1: found no field '{name}'")
        for name in ("fingerprint", "name", "version", "questions", "environments")
    },
}
ID_TWICE = '{"id": "x", "id": "y", "status": "answered", "reply": "{}"}\n'


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cheats_is_refused_with_its_line(benchmark: Benchmark, tmp_path: Path, name: str) -> None:
    change, header, message = FILES[name]
    rows: Rows = [Oracle(benchmark).predict(item) for item in benchmark.items.values()]
    read_predictions(write(tmp_path / "right.jsonl", benchmark, rows), benchmark)
    with pytest.raises(TrainingError) as refusal:
        read_predictions(write(tmp_path / "wrong.jsonl", benchmark, change(rows), **header), benchmark)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"credit": [0.0]}, "found 1 numbers in credit"),
        ({"credit": [10**400]}, "in credit"),
        ({"reach": [2.0]}, "'2.0' in reach.0, expected at most 1"),
        ({"credit": None, "reply": None}, "neither reply nor credit"),
        ({"reply": "{}"}, "both a reply and credit"),
    ],
)
def test_credit_that_cheats_is_refused(
    benchmark: Benchmark, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    rows: Rows = [Oracle(benchmark).predict(item) for item in benchmark.items.values()]
    items = enumerate(benchmark.items.values())
    number, item = next((k, each) for k, each in items if each.question == "credit" and each.num_steps > 1)
    for name, value in fields.items():
        if isinstance(value, list) and len(value) == 1 and value != [0.0]:
            fields = {**fields, name: value * item.num_steps}
    if fields.get("reply", "") is None:
        fields = {**fields, "value": None, "reach": None}
    with pytest.raises(TrainingError) as refusal:
        read_predictions(write(tmp_path / "wrong.jsonl", benchmark, changed(rows, number, **fields)), benchmark)
    assert message in str(refusal.value) and f"line {number + 2}" in str(refusal.value)


def test_an_empty_and_a_missing_file_are_refused(benchmark: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="is not a file"):
        read_predictions(tmp_path / "none.jsonl", benchmark)
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(TrainingError, match="is empty"):
        read_predictions(tmp_path / "empty.jsonl", benchmark)


def test_a_file_that_breaks_while_it_is_read_is_refused(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a traceback when a connection to an object store breaks in the middle of a file of JSON lines."""
    write(tmp_path / "right.jsonl", benchmark, [Oracle(benchmark).predict(item) for item in benchmark.items.values()])
    lines = iter((tmp_path / "right.jsonl").read_bytes().splitlines(keepends=True)[:2])
    stream = Mock(readline=Mock(side_effect=[*lines, OSError("connection reset")]))
    monkeypatch.setattr(type(open_storage(tmp_path)), "open", lambda *_: nullcontext(stream))
    with pytest.raises(TrainingError, match=r"right.jsonl cannot be read \(connection reset\); try again"):
        read_predictions(tmp_path / "right.jsonl", benchmark)


def test_the_schema_accepts_what_the_reader_accepts(benchmark: Benchmark) -> None:
    library: Any = pytest.importorskip("jsonschema")
    check = library.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    rows = [json.loads(Careless(benchmark).predict(item).line()) for item in benchmark.items.values()]
    header = json.loads(Header(benchmark.fingerprint, "test", VERSION, QUESTIONS, ("sokoban",)).line())
    assert [row for row in (header, *rows) if not check.is_valid(row)] == []
    assert not check.is_valid({**rows[0], "answer": 3})
    assert not check.is_valid({**header, "questions": ["guess"]})
