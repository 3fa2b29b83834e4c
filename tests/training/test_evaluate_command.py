"""``pivot evaluate``: a server's model, a checkpoint of this machine, baselines, and what cannot be meant."""

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pivot.errors import ConfigError, TrainingError
from pivot.images import decode
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.cli.test_hostile_server import TEXT, obeys_nothing
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.training.analyzers import reads
from pivot.training.analyzer import Analyzer, case_of_record
from pivot.training.evaluation import run as evaluation
from pivot.training.evaluation.analyzer import Choice, evaluate
from pivot.training.evaluation.report import put_into_card
from pivot.training.evaluation.run import make_backend
from pivot.training.records import SHOWN_COLUMNS, Records, absolute_source, open_records

pictures = pytest.mark.train
"""Needs matplotlib."""


@pictures
def test_a_server_is_evaluated_and_the_report_holds_everything(small_store: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "report", tmp_path / "blank"
    common = ("evaluate", "analyzer", MODEL, "--data", small_store, "--side", "train", "--no-cache", "--no-learned")
    with served(reads) as server:
        run(*common, "--base-url", server.url, "--out", other, "--pictures", "blank")
        shown = run(*common, "--base-url", server.url, "--out", out, "--beside", f"blank={other}", "--shots", "1")
        count = len(server.log.bodies[-1]["messages"])
    assert count == 3, "one worked example before the question"
    assert "majority" in shown and "blank" in shown
    summary = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))
    assert set(summary["environments"]) == {"sokoban", "frozenlake"}
    assert summary["analyzer"]["model"] == MODEL
    readings = [json.loads(line) for line in (out / "readings.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(readings) == summary["records"]
    for env, figures in summary["environments"].items():
        mine = [row for row in readings if row["env"] == env]
        exact = sum(row["problem"] is None and row["read_step"] == row["pivot_step"] for row in mine) / len(mine)
        assert figures["shares"]["pivot exact"]["value"] == pytest.approx(exact)
        assert "arithmetic" in figures["baselines"]
    table = (out / "evaluation.md").read_text(encoding="utf-8")
    assert "| sokoban | blank |" in table
    assert "expected calibration error" in table
    for name in ("accuracy.png", "confusion-sokoban.png", "reliability.png"):
        pixels = decode((out / name).read_bytes())
        assert min(pixels.shape[:2]) > 200
        assert len({tuple(colour) for colour in pixels[::7, ::7].reshape(-1, 3).tolist()}) > 5, f"{name} is empty"


@pictures
def test_what_a_server_says_is_shown_as_text(small_store: Path, tmp_path: Path) -> None:
    def says(body: dict[str, Any]) -> dict[str, Any]:
        reason = json.dumps({"pivot_step": 0, "failure_mode": "timeout", "failure_reason": TEXT})
        return {"text": TEXT if len(server.log.bodies) % 2 else reason}

    common = ("--data", small_store, "--side", "train", "--no-cache", "--no-learned", "--out", tmp_path / "report")
    with served(says) as server:
        shown = run("evaluate", "analyzer", MODEL, *common, "--base-url", server.url)
    assert "replies that could not be read" in shown
    obeys_nothing(shown)


@pictures
def test_a_run_of_training_is_evaluated_in_this_process(
    small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tiny random model: nothing it says can be read, but it was count and every reply is kept."""
    pytest.importorskip("transformers")
    from pivot.tests.models.tiny_vlm import save_tiny_vlm

    records = open_records(str(small_store), "sokoban")
    rows = list(records.rows("train", SHOWN_COLUMNS))
    texts = [part["text"] for row in rows for part in row["prompt"][0]["content"] if part["text"]]
    # What the command makes of a run of `pivot train sft`: its checkpoint, its data, and a place for the report.
    folder = tmp_path / "run"
    save_tiny_vlm(folder / "final", texts)
    words: list[Any] = []

    def opened(address: str, config: str, vocabulary: Any) -> Records:
        words.append(vocabulary)
        return open_records(address, config, vocabulary)

    monkeypatch.setattr(evaluation, "open_records", opened)
    config = {"dataset": str(small_store), "configs": ["sokoban"], "target_vocabulary": "paper"}
    (folder / "run.json").write_text(json.dumps({"config": config}), encoding="utf-8")
    run("evaluate", "analyzer", folder, "--side", "train", "--limit", "6", "--max-tokens", "6", "--no-learned")
    summary = json.loads((folder / "evaluation" / "evaluation.json").read_text(encoding="utf-8"))
    assert words == ["paper"], "as the run says"
    assert summary["name"] == "run"
    assert set(summary["environments"]) == {"sokoban"}
    assert sum(summary["environments"]["sokoban"]["problems"].values()) == summary["records"] == 6
    backend = make_backend("transformers", {"model": str(folder / "final"), "max_tokens": 6}, {})
    request = Analyzer(backend).request(case_of_record(rows[0]))
    answer = asyncio.run(backend.connect().answer(request))
    assert answer.tokens is not None and answer.logprobs is not None
    assert len(answer.tokens) == len(answer.logprobs) == 6
    assert answer.text in "".join(answer.tokens)


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
    trained = evaluation.training_run("run")
    assert trained is not None and open_records(trained["dataset"], "sokoban").files.manifest
    record["dataset_address"] = str(tmp_path / "moved")
    (tmp_path / "run" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert evaluation.training_run("run") == {"dataset": small_store.name}, "moved: named as the user wrote it"


def test_the_card_of_a_run_gets_the_accuracies(tmp_path: Path) -> None:
    hub: Any = pytest.importorskip("huggingface_hub")
    card = tmp_path / "run" / "final" / "README.md"
    shares = {name: {"value": value} for name, value in (("pivot exact", 0.52345), ("mode", 0.948), ("joint", 0.5))}
    summary = {"side": "validation", "environments": {"lake": {"records": 40, "levels": 5, "shares": shares}}}
    put_into_card(tmp_path / "run", summary)
    assert not card.exists(), "a checkpoint without a card gets none"
    card.parent.mkdir(parents=True)
    card.write_text("---\nlibrary_name: transformers\n---\n\n# PIVOT Analyzer\n", encoding="utf-8")
    for _ in range(2):
        put_into_card(tmp_path / "run", summary)
    text = card.read_text(encoding="utf-8")
    assert "model-index:" in text and text.endswith("# PIVOT Analyzer\n")
    results = hub.ModelCard(text).data.eval_results
    assert [(each.metric_name, each.metric_value) for each in results] == [
        ("pivot step, lake", 0.5234),
        ("failure mode, lake", 0.948),
        ("pivot step and failure mode, lake", 0.5),
    ]


def test_baselines_are_shown_and_written(small_store: Path, tmp_path: Path) -> None:
    common = ("evaluate", "baselines", small_store, "--side", "train", "--no-learned")
    shown = run(*common, "--out", tmp_path)
    assert "first unusable" in shown
    environments = json.loads((tmp_path / "baselines.json").read_text(encoding="utf-8"))["environments"]
    assert set(environments) == {"sokoban", "frozenlake"}
    shares = environments["frozenlake"]["shares"]
    assert shares["length"]["mode"]["value"] >= shares["majority"]["mode"]["value"]
    assert "| frozenlake | majority |" in (tmp_path / "baselines.md").read_text(encoding="utf-8")
    assert "sokoban" not in run(*common, "--config", "frozenlake", "--full-length")


@pictures
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("--data", "nowhere/at/all"), TrainingError, "does not exist"),
        ((), ConfigError, "name some with --data"),
        (("--suite", "--data", "x", "--limit", "3"), ConfigError, "remove --data, --limit"),
        (("--data", "STORE", "--config", "svg"), TrainingError, "it has: frozenlake, sokoban, all"),
        (("--data", "STORE", "--pictures", "gone"), ConfigError, "expected one of shown, blank, exchanged"),
        (("--data", "STORE", "--target-vocabulary", "my"), ConfigError, "expected one of certificate, paper"),
        (("--data", "STORE", "--side", "test"), ConfigError, "expected one of train, validation"),
        (("--data", "STORE", "--beside", "x"), ConfigError, "expected NAME=FOLDER"),
        (("--data", "STORE", "--beside", "x=/nowhere"), TrainingError, "holds no evaluation.json"),
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


@pytest.mark.skipif(find_spec("matplotlib") is not None, reason="everything is installed here")
def test_a_missing_package_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    error = error_of("evaluate", "analyzer", MODEL, "--base-url", "http://127.0.0.1:9/v1", "--out", tmp_path / "out")
    assert "pip install 'pivot-vlm[train]'" in str(error)


@pictures
def test_a_report_needs_a_place() -> None:
    assert "--out DIR" in str(
        error_of("evaluate", "analyzer", MODEL, "--no-learned", "--base-url", "http://127.0.0.1:9/v1")
    )


def test_an_evaluation_of_too_few_rows_is_noticed(small_store: Path) -> None:
    """A dataset that shrinks between its two readings."""

    class Forgetful:
        def read_all(self, cases: Any, _: Any) -> list[Any]:
            return list(cases)[1:]

    with pytest.raises(TrainingError, match="changed while it was read"):
        evaluate(open_records(str(small_store)), Forgetful(), Choice(side="train"))  # pyright: ignore[reportArgumentType]
