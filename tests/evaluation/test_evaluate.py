"""Evaluation on one's own dataset and its command: items, planted Analyzers, changed pictures, bad rows and options."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pivot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pivot.core.errors import ConfigError, TrainingError
from pivot.core.images import decode, encode_jpeg, encode_png
from pivot.labeling.target import Vocabulary, parse_target
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.cli.test_hostile_server import TEXT, obeys_nothing
from pivot.tests.evaluation.conftest import CHART
from pivot.tests.models.chat_server import MODEL, pictures_of, served
from pivot.tests.training.analyzers import answered, asked, reads, sees, served_backend
from pivot.training.analyzer import Analyzer, case_of_record
from pivot.training.evaluation import tables
from pivot.training.evaluation.config import AnalyzerEvaluationConfig, RecordChoice
from pivot.training.evaluation.controls import blank, exchanged
from pivot.training.evaluation.dataset import chosen_rows, items_of_dataset
from pivot.training.evaluation.items import Benchmark, canonical_level, open_benchmark
from pivot.training.evaluation.run import (
    ITEMS,
    PREDICTIONS,
    EvaluationReport,
    case_of_item,
    evaluate_analyzer,
    training_run,
)
from pivot.training.records import LABEL_COLUMNS, SHOWN_COLUMNS, absolute_source, find_files, open_records

Reply = Callable[[dict[str, Any]], dict[str, Any]]
TRAIN = RecordChoice(side="train", learned=False)


def config_of(store: Path, url: str, out: Path, **fields: Any) -> AnalyzerEvaluationConfig:
    """An evaluation on the training split against a test server, without the call cache."""
    service = {"base_url": url, "cache": "", "tries": 1, "max_concurrency": 4}
    raw = {"model": MODEL, "data": str(store), "out": out, "side": "train", "learned": False, "service": service}
    return AnalyzerEvaluationConfig(**raw | fields)


def evaluated(store: Path, reply: Reply, out: Path, **fields: Any) -> EvaluationReport:
    with served(reply) as server:
        return evaluate_analyzer(config_of(store, server.url, out, **fields))


def replies(out: Path) -> list[str]:
    """The stored replies, in the order of the items."""
    lines = (out / PREDICTIONS).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["reply"] for line in lines[1:]]


def cells(report: EvaluationReport, task: str) -> dict[str, Any]:
    """The cells of a task, by environment."""
    return {cell["env"]: cell for cell in report.result["cells"] if cell["task"] == task}


def value(cell: Any, name: str, reader: str = "strict") -> float:
    return cell["figures"][reader][name]["value"]


def items_in(store: Path, out: Path, choice: RecordChoice = TRAIN, env: str = "all") -> Benchmark:
    return items_of_dataset(open_records(str(store), env), choice, out)


def test_items_are_the_prompts_pictures_and_targets_of_the_dataset(small_store: Path, tmp_path: Path) -> None:
    records, made = open_records(str(small_store)), items_in(small_store, tmp_path)
    rows = [*zip(records.rows("train", LABEL_COLUMNS), records.rows("train", SHOWN_COLUMNS), strict=True)]
    assert len(made.items) == len(rows) > 20
    analyzer = Analyzer(served_backend("http://127.0.0.1:9/v1"))
    for item, (row, shown) in zip(made.items.values(), rows, strict=True):
        case, truth = case_of_record(shown), made.truths[item.item_id]
        asked_for = [analyzer.request(each) for each in (case_of_item(item, made.pictures(item)), case)]
        assert asked_for[0].messages == asked_for[1].messages and asked_for[0].images == asked_for[1].images
        assert made.pictures(item) == (shown["images"][0]["bytes"],)
        assert item.item_id == f"locate/full/{row['env']}/{row['episode_id']}" and item.choices == case.modes
        target = parse_target(row["completion"][0]["content"][0]["text"])
        assert (truth.pivot_step, truth.failure_mode) == (target.pivot_step, target.failure_mode)
        assert truth.level == canonical_level(row)
        assert item.prompt.endswith(item.action_log)
    assert open_benchmark(tmp_path).fingerprint == made.fingerprint == items_in(small_store, tmp_path).fingerprint
    assert made.facts["levels_on_both_sides"] == 0
    assert {each["name"] for each in made.baselines() if each["cells"]} == {"majority", "level posterior"}
    unwanted, again = made.baselines(), items_in(small_store, tmp_path, RecordChoice(side="train"))
    assert again.baselines() != unwanted, "with boosted trees, baselines are measured again"


def test_only_a_model_that_uses_pictures_notices_a_different_one(small_store: Path, tmp_path: Path) -> None:
    """Exchanged collages change only what a model sees, not its text: the control of the figures on images."""
    for name, reply in (("reads", reads), ("sees", sees)):
        evaluated(small_store, reply, tmp_path / name)
        report = evaluated(small_store, reply, tmp_path / f"{name}-exchanged", pictures="exchanged")
        assert report.result["name"] == f"{MODEL}, pictures exchanged"
    assert replies(tmp_path / "reads") == replies(tmp_path / "reads-exchanged")
    seen, elsewhere = replies(tmp_path / "sees"), replies(tmp_path / "sees-exchanged")
    assert sum(a != b for a, b in zip(seen, elsewhere, strict=True)) > len(seen) / 2


def test_a_perfect_analyzer_is_perfect_and_a_constant_one_is_the_majority(small_store: Path, tmp_path: Path) -> None:
    made = items_in(small_store, tmp_path / "items")
    truth = {(item.prompt, *made.pictures(item)): made.truths[name] for name, item in made.items.items()}

    def knows(body: dict[str, Any]) -> dict[str, Any]:
        target = truth[asked(body)[0], pictures_of(body)[0]]
        return answered(target.pivot_step or 0, target.failure_mode or "", "guidance is allowed")

    perfect = evaluated(small_store, knows, tmp_path / "perfect")
    for cell in perfect.result["cells"]:
        figures = cell["figures"]["strict"].values()
        assert all(share["value"] == 1.0 for share in figures if share is not None) and not cell["problems"]
    always = evaluated(small_store, lambda body: answered(0, asked(body)[2][0]), tmp_path / "always")
    for env, cell in cells(always, "pivot").items():
        truths = [each for name, each in made.truths.items() if made.items[name].env == env]
        first = next(item.choices[0] for item in made.items.values() if item.env == env)
        assert value(cell, "correct") == pytest.approx(sum(each.pivot_step == 0 for each in truths) / len(truths))
        both = sum((each.pivot_step, each.failure_mode) == (0, first) for each in truths) / len(truths)
        assert value(cell, "both") == pytest.approx(both)
        guesses = [1 / item.num_steps for item in made.items.values() if item.env == env]
        assert cell["chance"] == pytest.approx(sum(guesses) / len(guesses)), "every answer is a step"


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> dict[Vocabulary, Path]:
    """A store of drawings with the certificate's names of failure modes, and one with the paper's."""
    folder = tmp_path_factory.mktemp("drawings")
    config = {"environments": {"svg": {"tasks": 10, "settings": {}}}, "rollouts": 2, "validation_fraction": 0.5}
    stores: dict[Vocabulary, Path] = {"certificate": folder / "certificate", "paper": folder / "paper"}
    for vocabulary, store in stores.items():
        pivot.build(config | {"target_vocabulary": vocabulary}, store)
    return stores


@pytest.mark.parametrize("spoken", ["certificate", "paper"])
def test_an_analyzer_is_asked_and_scored_with_the_mode_names_of_the_dataset(
    drawings: dict[Vocabulary, Path], spoken: Vocabulary, tmp_path: Path
) -> None:
    """Baselines are scored with these mode names; an Analyzer trained on others is refused."""
    native = items_in(drawings[spoken], tmp_path / "native", env="svg")
    truth = {(item.prompt, *native.pictures(item)): native.truths[name] for name, item in native.items.items()}

    def knows(body: dict[str, Any]) -> dict[str, Any]:
        target = truth[asked(body)[0], pictures_of(body)[0]]
        return answered(target.pivot_step or 0, target.failure_mode or "")

    report = evaluated(drawings[spoken], knows, tmp_path / "out", env="svg")
    assert value(cells(report, "pivot")["svg"], "both") == 1.0
    (majority,) = [each for each in report.baselines if each["name"] == "majority"]
    modes = {each.failure_mode for each in native.truths.values()}
    assert (modes == {"timeout"}) == (spoken == "paper")
    (cell,) = [cell for cell in majority["cells"] if cell["task"] == "mode"]
    assert (value(cell, "correct") == 1.0) == (spoken == "paper"), "in the paper there is one word to say"
    other = "certificate" if spoken == "paper" else "paper"
    folder = tmp_path / "run"
    (folder / "final").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"config": {}, "target_vocabulary": other}), encoding="utf-8")
    with pytest.raises(TrainingError, match=f"expected the {other}'s names, .*--target-vocabulary {other}"):
        evaluated(drawings[spoken], knows, tmp_path / "refused", env="svg", model=str(folder / "final"))


def test_levels_on_both_sides_are_counted(small_store: Path, tmp_path: Path) -> None:
    leaking = dataset(small_store, tmp_path / "leaking")
    for path in (leaking / "sokoban").glob("train-*"):
        shutil.copy(path, path.with_name(path.name.replace("train", "validation")))
    report = evaluated(leaking, reads, tmp_path / "out", env="sokoban", side="validation")
    levels = {truth.level for truth in open_benchmark(tmp_path / "out" / ITEMS).truths.values()}
    assert report.result["levels_on_both_sides"] == len(levels) > 1
    assert f"**{len(levels)} levels are in the other split" in (tmp_path / "out" / "table.md").read_text("utf-8")


def test_choices(small_store: Path, tmp_path: Path) -> None:
    records = open_records(str(small_store))
    everything, others = chosen_rows(records, TRAIN)
    few, _ = chosen_rows(records, RecordChoice(side="train", limit=3))
    assert [sum(row["env"] == env for row in few) for env in ("sokoban", "frozenlake")] == [3, 3]
    assert {row["episode_id"] for row in few} <= {row["episode_id"] for row in everything}
    full, _ = chosen_rows(records, RecordChoice(side="train", full_length=True))
    assert all(row["num_steps"] == row["horizon"] for row in full) and len(full) < len(everything)
    shown = items_in(small_store, tmp_path).examples
    assert {each.item.item_id.rpartition("/")[2] for each in shown} <= {row["episode_id"] for row in others}
    counts: list[int] = []

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        counts.append(len(body["messages"]))
        return reads(body)

    evaluated(small_store, reply, tmp_path / "shots", shots=1, limit=2)
    assert counts == [3] * 4, "one worked example before the question"


def test_a_picture_that_cannot_be_read_names_its_record(small_store: Path, tmp_path: Path) -> None:
    folder = dataset(small_store, tmp_path / "copy")
    change(folder, images=[{"bytes": b"no picture", "path": None}])
    with pytest.raises(TrainingError, match=r"record .*: its picture cannot be read"):
        items_in(folder, tmp_path / "items", env="sokoban")


# Hostile data


def dataset(store: Path, target: Path) -> Path:
    shutil.copytree(store / "dataset", target)
    return target


def change(folder: Path, **columns: Any) -> Path:
    """Set columns of Sokoban's first training file to other values, equal in all rows."""
    name = min(path for path in (folder / "sokoban").glob("train-*") if pq.read_metadata(path).num_rows)
    table = pq.read_table(name)
    for column, value in columns.items():
        kind = table.schema.field(column).type if not isinstance(value, pa.Array) else value.type
        values = value if isinstance(value, pa.Array) else pa.array([value] * table.num_rows, kind)
        table = table.set_column(table.column_names.index(column), column, values)
    pq.write_table(table, name)
    return name


def test_an_unfinished_store_and_an_empty_side_are_refused(small_store: Path, tmp_path: Path) -> None:
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
        chosen_rows(open_records(str(empty), "sokoban"), RecordChoice())


def test_a_bad_row_is_refused_with_the_message_of_training(small_store: Path, tmp_path: Path) -> None:
    """The other bad rows are those of ``test_data``: training and evaluation read rows by one function."""
    change(folder := dataset(small_store, tmp_path / "copy"), images=[{"bytes": b"", "path": None}])
    with pytest.raises(TrainingError, match="row 0: found an empty image, expected exactly one image"):
        list(open_records(str(folder), "sokoban").rows("train", SHOWN_COLUMNS))
    change(log := dataset(small_store, tmp_path / "log"), action_log="step 0: action=up")
    with pytest.raises(TrainingError, match="found 1 steps in column action_log, expected 9"):
        list(open_records(str(log), "sokoban").rows("train", LABEL_COLUMNS))


rows = st.lists(
    st.tuples(st.sampled_from(("sokoban", "svg")), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=30
)


@given(rows, st.integers(0, 5))
def test_every_record_gets_the_collage_of_another_level(drawn: list[tuple[str, int, int]], seed: int) -> None:
    records = [{"env": env, "num_steps": steps} for env, steps, _ in drawn]
    levels = [f"{env} {level}" for env, _, level in drawn]
    partners = exchanged(records, levels, seed)
    assert partners == exchanged(records, levels, seed)
    for index, partner in enumerate(partners):
        others = [each for each, level in enumerate(levels) if level != levels[index]]
        same_env = [each for each in others if records[each]["env"] == records[index]["env"]]
        same_length = [each for each in same_env if records[each] == records[index]]
        assert partner in (same_length or same_env or [index])


def test_a_large_group_is_exchanged_evenly() -> None:
    records = [{"env": "sokoban", "num_steps": 9}] * 400
    partners = exchanged(records, [str(each // 8) for each in range(400)])
    assert max(partners.count(each) for each in set(partners)) <= 16
    assert len(set(partners)) > 200


@pytest.mark.parametrize("encode", [encode_png, encode_jpeg])
def test_a_blank_picture_keeps_its_size(encode: object) -> None:
    frame = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    picture = decode(blank(encode(frame)))  # pyright: ignore[reportCallIssue]
    assert picture.shape == frame.shape
    assert not picture.any()


# The command; marked tests need matplotlib


@pytest.mark.train
def test_a_server_is_evaluated_and_compared_with_its_blind_self(
    small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "results_chart", CHART)
    out, other = tmp_path / "report", tmp_path / "blank"
    common = ("evaluate", "analyzer", MODEL, "--data", small_store, "--side", "train", "--no-cache", "--no-learned")
    with served(reads) as server:
        run(*common, "--base-url", server.url, "--out", other, "--pictures", "blank")
        shown = run(*common, "--base-url", server.url, "--out", out)
    assert "log alone" in shown and "not fitted: boosted trees, sokoban: not wanted" in shown
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert {cell["env"] for cell in result["cells"]} == {"sokoban", "frozenlake"}
    assert result["settings"]["model"] == result["name"] == MODEL
    table = (out / "table.md").read_text(encoding="utf-8")
    assert f"| sokoban | full | {MODEL} |" in table and "| best on the log alone: " in table
    assert "both" in table and "split of" in table.splitlines()[0]
    run("benchmark", "table", out, other, "--data", out / "items", "--out", tmp_path / "table")
    both = (tmp_path / "table" / "table.md").read_text(encoding="utf-8")
    assert f"| sokoban | full | {MODEL}, pictures blank |" in both
    for folder in (out, tmp_path / "table"):
        pixels = decode((folder / "table.png").read_bytes())
        assert min(pixels.shape[:2]) > 200
        assert len({tuple(colour) for colour in pixels[::7, ::7].reshape(-1, 3).tolist()}) > 5


@pytest.mark.train
def test_texts_of_a_server_are_shown_literally(small_store: Path, tmp_path: Path) -> None:
    def says(body: dict[str, Any]) -> dict[str, Any]:
        reason = json.dumps({"pivot_step": 0, "failure_mode": "timeout", "failure_reason": TEXT})
        return {"text": TEXT if len(server.log.bodies) % 2 else reason}

    common = ("--data", small_store, "--side", "train", "--no-cache", "--no-learned", "--out", tmp_path / "report")
    with served(says) as server:
        shown = run("evaluate", "analyzer", MODEL, *common, "--base-url", server.url)
    assert "replies that could not be read" in shown
    obeys_nothing(shown)


@pytest.mark.train
def test_a_run_of_training_is_evaluated_in_this_process(small_store: Path, tmp_path: Path) -> None:
    """None of a random model's replies can be read, but all are counted and kept."""
    pytest.importorskip("transformers")
    from pivot.tests.models.tiny_vlm import save_tiny_vlm

    records = open_records(str(small_store), "sokoban")
    rows = list(records.rows("train", SHOWN_COLUMNS))
    texts = [part["text"] for row in rows for part in row["prompt"][0]["content"] if part["text"]]
    # Defaults from a run of `pivot train sft`: its checkpoint, its data, and a place for the report.
    folder = tmp_path / "run"
    save_tiny_vlm(folder / "final", texts)
    template = {"enable_thinking": False}
    config = {"dataset": str(small_store), "configs": ["sokoban"], "chat_template_kwargs": template}
    (folder / "run.json").write_text(json.dumps({"config": config, "target_vocabulary": "paper"}), encoding="utf-8")
    run("evaluate", "analyzer", folder, "--side", "train", "--limit", "6", "--max-tokens", "6", "--no-learned")
    result = json.loads((folder / "evaluation" / "result.json").read_text(encoding="utf-8"))
    assert result["name"] == "run" and result["settings"]["sampling"]["chat_template_kwargs"] == template
    for cell in result["cells"]:
        assert cell["env"] == "sokoban" and sum(cell["problems"].values()) == cell["records"] == 6


def test_a_run_with_a_relative_dataset_is_evaluated_from_any_folder(
    small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_store.parent)
    address = absolute_source(small_store.name)
    assert absolute_source("someone/something") == "someone/something"
    (tmp_path / "run" / "final").mkdir(parents=True)
    (tmp_path / "run" / "final" / "config.json").write_text("{}", encoding="utf-8")
    record: dict[str, Any] = {"config": {"dataset": small_store.name}, "dataset_address": address}
    (tmp_path / "run" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    trained = training_run("run")
    assert trained is not None and open_records(trained["dataset"], "sokoban").files.manifest
    record["dataset_address"] = str(tmp_path / "moved")
    (tmp_path / "run" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert training_run("run") == {"dataset": small_store.name}, "moved: named as the user wrote it"


@pytest.mark.train
def test_baselines_are_shown_and_written(small_store: Path, tmp_path: Path) -> None:
    common = ("evaluate", "baselines", small_store, "--side", "train", "--no-learned")
    shown = run(*common, "--out", tmp_path)
    assert "majority, sokoban" in shown and "level posterior, frozenlake" in shown
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| frozenlake | full | majority |" in table and "boosted trees, sokoban: not wanted" in table
    assert len(json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["results"]) == 2
    assert "sokoban" not in run(*common, "--env", "frozenlake", "--full-length")


@pytest.mark.train
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("--data", "nowhere/at/all"), TrainingError, "does not exist"),
        ((), ConfigError, "name some with --data"),
        (("--data", "STORE", "--pictures", "gone"), ConfigError, "expected one of shown, blank, exchanged"),
        (("--data", "STORE", "--side", "test"), ConfigError, "expected one of train, validation"),
        (("--data", "STORE", "--batch-size", "3"), ConfigError, "batch_size"),
    ],
)
def test_what_cannot_be_meant_is_said(
    small_store: Path, tmp_path: Path, arguments: tuple[str, ...], kind: type[Exception], message: str
) -> None:
    named = [str(small_store) if each == "STORE" else each for each in arguments]
    where = ("--base-url", "http://127.0.0.1:9/v1", "--no-cache", "--no-learned", "--out", tmp_path / "out")
    error = error_of("evaluate", "analyzer", MODEL, *where, *named)
    assert isinstance(error, kind)
    assert message in str(error)
    assert not (tmp_path / "out").exists(), "nothing is written"


@pytest.mark.train
def test_a_report_needs_a_place() -> None:
    assert "--out DIR" in str(
        error_of("evaluate", "analyzer", MODEL, "--no-learned", "--base-url", "http://127.0.0.1:9/v1")
    )
