"""Evaluation of records: planted Analyzers, pictures taken away, problems counted, guidance judged, rows refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.datasets.config import environment
from pivot.errors import TrainingError
from pivot.labeling.target import parse_target
from pivot.labeling.vocabulary import Vocabulary
from pivot.tests.models.chat_server import pictures_of, served
from pivot.tests.training.analyzers import answered, asked, reads, sees, served_backend
from pivot.training.analyzer import Analyzer
from pivot.training.analyzer_sft.samples import read_dataset
from pivot.training.evaluation.analyzer import Choice, Evaluation, evaluate, read_labels, worked_examples
from pivot.training.evaluation.guidance_checks import GuidanceJudge
from pivot.training.evaluation.report import no_reliability
from pivot.training.records import LABEL_COLUMNS, SHOWN_COLUMNS, Records, find_files, open_records

TRAIN = Choice(side="train")


def run(store: Path, reply: Callable[[dict[str, Any]], dict[str, Any]], choice: Choice = TRAIN) -> Evaluation:
    records = open_records(str(store))
    with served(reply) as server:
        return evaluate(records, Analyzer(served_backend(server.url)), choice, learned=False)


def steps(evaluation: Evaluation) -> list[int]:
    return [row["read_step"] for row in evaluation.readings]


def test_only_who_looks_notices_another_picture(small_store: Path) -> None:
    """The control behind every claim of seeing: exchanged collages change what is seen, and nothing that is read."""
    exchanged = Choice(side="train", pictures="exchanged")
    assert steps(run(small_store, reads)) == steps(run(small_store, reads, exchanged))
    seen, elsewhere = steps(run(small_store, sees)), steps(run(small_store, sees, exchanged))
    assert sum(a != b for a, b in zip(seen, elsewhere, strict=True)) > len(seen) / 2
    blank = run(small_store, lambda body: answered(0, asked(body)[2][0]), Choice(side="train", pictures="blank"))
    assert blank.summary["pictures"] == "blank"


def test_exchanged_collages_are_those_of_other_levels(small_store: Path) -> None:
    records = open_records(str(small_store))
    shown: dict[str, bytes] = {
        row["prompt"][0]["content"][1]["text"] + str(row["episode_id"]): row["images"][0]["bytes"]
        for row in records.rows("train", SHOWN_COLUMNS)
    }
    own = list(shown.values())
    got: list[bytes] = []

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        got.append(pictures_of(body)[0])
        return reads(body)

    run(small_store, reply, Choice(side="train", pictures="exchanged"))
    assert len(got) == len(own)
    assert set(got) <= set(own)


def test_a_perfect_analyzer_is_perfect_and_a_constant_one_is_the_majority(small_store: Path) -> None:
    records = open_records(str(small_store))
    truth = {}
    for row in records.rows("train", SHOWN_COLUMNS):
        text = next(part["text"] for part in row["prompt"][0]["content"] if part["text"])
        truth[text, row["images"][0]["bytes"]] = row["completion"][0]["content"][0]["text"]

    def knows(body: dict[str, Any]) -> dict[str, Any]:
        target = parse_target(truth[asked(body)[0], pictures_of(body)[0]])
        return answered(target.pivot_step, target.failure_mode, target.failure_reason)

    perfect = run(small_store, knows).summary["environments"]
    for figures in perfect.values():
        assert all(share["value"] == 1.0 for share in figures["shares"].values())
        assert figures["guidance"] == {"texts": figures["records"], "factual": figures["records"], "reasons": {}}
        assert figures["problems"] == {}
        for truth_row, row in figures["confusion"]["step"].items():
            assert set(row) == {truth_row} or all(not n for name, n in row.items() if name != truth_row)
        # All readings have the probability 0.25 and are right: off by 75 points.
        assert figures["reliability"]["expected_calibration_error"] == pytest.approx(0.75)
    always = run(small_store, lambda body: answered(0, asked(body)[2][0])).summary["environments"]
    labels = read_labels(records, TRAIN).rows
    for env, figures in always.items():
        mine = [row["pivot_step"] for row in labels if row["env"] == env]
        assert figures["shares"]["pivot exact"]["value"] == pytest.approx(mine.count(0) / len(mine))


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> dict[Vocabulary, Path]:
    """A store of drawings in the certificate's words for failure modes, and one in the paper's."""
    folder = tmp_path_factory.mktemp("drawings")
    config = {"environments": {"svg": {"tasks": 10, "settings": {}}}, "rollouts": 2, "validation_fraction": 0.5}
    stores: dict[Vocabulary, Path] = {"certificate": folder / "certificate", "paper": folder / "paper"}
    for vocabulary, store in stores.items():
        pivot.build(config | {"target_vocabulary": vocabulary}, store)
    return stores


@pytest.mark.parametrize("made_in", ["certificate", "paper"])
@pytest.mark.parametrize("taught", [None, "certificate", "paper"])
def test_an_analyzer_is_asked_and_scored_in_the_words_that_it_was_taught(
    drawings: dict[Vocabulary, Path], made_in: Vocabulary, taught: Vocabulary | None
) -> None:
    """The vocabulary of the store does not matter; baselines are scored in the same vocabulary."""
    records = open_records(str(drawings[made_in]), "svg", taught)
    spoken = taught or made_in
    native = open_records(str(drawings[spoken]), "svg")
    truth = {
        (row["prompt"][0]["content"][1]["text"], row["images"][0]["bytes"]): parse_target(
            row["completion"][0]["content"][0]["text"]
        )
        for row in native.rows("train", SHOWN_COLUMNS)
    }

    def knows(body: dict[str, Any]) -> dict[str, Any]:
        target = truth[asked(body)[0], pictures_of(body)[0]]
        return answered(target.pivot_step, target.failure_mode, "")

    with served(knows) as server:
        result = evaluate(records, Analyzer(served_backend(server.url)), TRAIN, learned=False)
    figures = result.summary["environments"]["svg"]
    assert result.summary["vocabulary"] == {"svg": spoken}
    assert figures["shares"]["joint"]["value"] == 1.0
    names = {name: row["mode"]["value"] for name, row in figures["baselines"].items()}
    labels = [row["failure_mode"] for row in read_labels(native, TRAIN).rows]
    if spoken == "paper":
        assert set(names.values()) == {1.0}, "there is one word to say"
        assert set(figures["by_mode"]) == {"timeout"}
    else:
        assert names["majority"] < 1.0
        assert set(figures["by_mode"]) == set(labels) != {"timeout"}


def test_unreadable_replies_are_wrong_and_counted(small_store: Path) -> None:
    """Garbage names the last step by the fallback: it must not be paid for that."""
    evaluation = run(small_store, lambda _: {"text": "I think step 3."})
    for env, figures in evaluation.summary["environments"].items():
        count = figures["records"]
        assert figures["problems"] == {"not_json": count}
        assert figures["shares"]["parsed"]["value"] == figures["shares"]["pivot exact"]["value"] == 0
        mine = [row for row in evaluation.readings if row["env"] == env]
        last = sum(row["pivot_step"] == row["read_step"] for row in mine) / count
        assert figures["shares"]["pivot, fallback counted"]["value"] == pytest.approx(last)
        assert figures["reliability"] is None
        assert no_reliability(figures) == "no reply could be read"
        readable = figures | {"shares": figures["shares"] | {"parsed": {"value": 0.5}}}
        assert "gives no probabilities" in no_reliability(readable)
        assert {column for row in figures["confusion"]["mode"].values() for column, n in row.items() if n} == {
            "unreadable"
        }


def test_guidance_is_held_against_the_facts(small_store: Path) -> None:
    rows = list(open_records(str(small_store), "sokoban").rows("train", LABEL_COLUMNS))
    judge = GuidanceJudge()
    for row in rows:
        good = parse_target(row["completion"][0]["content"][0]["text"]).failure_reason
        assert judge.objection(row, good) is None
        step = row["pivot_step"]
        for text, kind in (
            (f"At step {step} the puzzle was solved.", "unknown_sentence"),
            (good.replace(f"step {step}", f"step {step + 1}"), "untrue"),
        ):
            objection = judge.objection(row, text)
            assert objection is not None and objection.kind == kind


def test_levels_on_both_sides_are_counted(small_store: Path, tmp_path: Path) -> None:
    assert read_labels(open_records(str(small_store)), TRAIN).seen == 0
    leaking = dataset(small_store, tmp_path / "leaking")
    for path in (leaking / "sokoban").glob("train-*"):
        shutil.copy(path, path.with_name(path.name.replace("train", "validation")))
    labels = read_labels(open_records(str(leaking), "sokoban"), Choice())
    assert labels.seen == len(labels.rows) > 5


def test_choices(small_store: Path) -> None:
    records = open_records(str(small_store))
    everything = read_labels(records, TRAIN)
    few = read_labels(records, Choice(side="train", limit=3))
    assert [sum(row["env"] == env for row in few.rows) for env in few.environments] == [3, 3]
    assert {row["episode_id"] for row in few.rows} <= {row["episode_id"] for row in everything.rows}
    full = read_labels(records, Choice(side="train", full_length=True))
    assert all(row["num_steps"] == row["horizon"] for row in full.rows)
    assert len(full.rows) < len(everything.rows)
    shots = worked_examples(records, 2)
    assert {env: len(each) for env, each in shots.items()} == {"sokoban": 2, "frozenlake": 2}
    assert worked_examples(records, 0) == {}


# Hostile data


def dataset(store: Path, target: Path) -> Path:
    shutil.copytree(store / "dataset", target)
    return target


def change(folder: Path, **columns: Any) -> Path:
    """Give columns of the first training file of Sokoban other values, one for all rows."""
    name = min(path for path in (folder / "sokoban").glob("train-*") if pq.read_metadata(path).num_rows)
    table = pq.read_table(name)
    for column, value in columns.items():
        kind = table.schema.field(column).type if not isinstance(value, pa.Array) else value.type
        values = value if isinstance(value, pa.Array) else pa.array([value] * table.num_rows, kind)
        table = table.set_column(table.column_names.index(column), column, values)
    pq.write_table(table, name)
    return name


def read(records: Records) -> None:
    list(records.rows("train", LABEL_COLUMNS))
    list(records.rows("train", SHOWN_COLUMNS))


def spoken(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def test_hostile_datasets_are_typed_errors_that_name_file_and_row(small_store: Path, tmp_path: Path) -> None:
    picture = {"bytes": b"x", "path": None}
    damages: dict[str, tuple[dict[str, Any], str]] = {
        "no image": ({"images": []}, r"row 0: found 0 images, expected exactly one image, the collage"),
        "two images": ({"images": [picture, picture]}, r"row 0: found 2 images"),
        "an empty image": ({"images": [{"bytes": None, "path": None}]}, "row 0: found an empty image"),
        "a target outside": ({"pivot_step": 40}, r"row 0: found pivot_step 40, expected 0 to"),
        "another length": ({"num_steps": 3, "pivot_step": 0}, "as column num_steps says"),
        "no target": ({"completion": []}, r"row 0: found a completion that is not one text, expected the target"),
        "a broken target": (
            {"completion": [spoken("{}")]},
            r"row 0: found a target that cannot be read \(wrong_f",
        ),
        "a log of other steps": (
            {"action_log": "step 0: action=up"},
            "found 1 steps in column action_log, expected 9",
        ),
    }
    for name, (columns, message) in damages.items():
        folder = dataset(small_store, tmp_path / name)
        file = change(folder, **columns)
        with pytest.raises(TrainingError, match=message) as caught:
            read(open_records(str(folder), "sokoban"))
        assert str(file) in str(caught.value), name
        assert caught.value.status == 2
    torn = dataset(small_store, tmp_path / "torn")
    file = change(torn)
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(TrainingError, match="cannot be read as Parquet"):
        read(open_records(str(torn), "sokoban"))
    typed = dataset(small_store, tmp_path / "typed")
    file = change(typed)
    rows = pq.read_metadata(file).num_rows
    change(typed, pivot_step=pa.array(["1"] * rows))
    with pytest.raises(TrainingError, match="column pivot_step of table dataset has type string"):
        read(open_records(str(typed), "sokoban"))


def test_what_is_no_dataset_is_said(small_store: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="does not exist"):
        open_records(str(tmp_path / "nowhere"))
    with pytest.raises(TrainingError, match="holds no dataset"):
        open_records(str(tmp_path))
    with pytest.raises(TrainingError, match="no config 'svg'; it has: frozenlake, sokoban, all"):
        open_records(str(small_store), "svg")
    alone, of_store = find_files(str(small_store / "dataset")), find_files(str(small_store))
    assert alone is not None and of_store is not None
    assert alone.by_side == of_store.by_side
    assert alone.storage.address() == of_store.storage.address()
    unfinished = Path(shutil.copytree(small_store, tmp_path / "unfinished"))
    (unfinished / "manifest.json").unlink()
    with pytest.raises(TrainingError, match="its build did not finish"):
        open_records(str(unfinished))
    empty = dataset(small_store, tmp_path / "empty")
    for path in (empty / "sokoban").glob("validation-*"):
        path.unlink()
    with pytest.raises(TrainingError, match="has no validation record"):
        read_labels(open_records(str(empty), "sokoban"), Choice())


def test_levels_are_canonical(small_store: Path) -> None:
    labels = read_labels(open_records(str(small_store), "sokoban"), TRAIN)
    state = labels.rows[0]["initial_state"]
    assert labels.levels[0] == f"sokoban {environment('sokoban').canonical_state(state)}"


def test_training_and_evaluation_refuse_a_row_in_the_same_words(small_store: Path, tmp_path: Path) -> None:
    folder = dataset(small_store, tmp_path / "copy")
    change(folder, images=[{"bytes": b"", "path": None}])
    with pytest.raises(TrainingError, match="row 0: found an empty image, expected exactly one image") as trained:
        list(read_dataset(str(folder), ["sokoban"]).train)
    with pytest.raises(TrainingError) as evaluated:
        read(open_records(str(folder), "sokoban"))
    assert str(trained.value) == str(evaluated.value)
