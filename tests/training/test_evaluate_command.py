"""``pivot evaluate``: a server's model, a checkpoint of this machine, baselines, and contradictory options."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pivot.core.errors import ConfigError, TrainingError
from pivot.core.images import decode
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.cli.test_hostile_server import TEXT, obeys_nothing
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.training.analyzers import reads
from pivot.tests.training.conftest import CHART
from pivot.training.evaluation import run as evaluation
from pivot.training.evaluation import tables
from pivot.training.records import SHOWN_COLUMNS, absolute_source, open_records

pictures = pytest.mark.train
"""Needs matplotlib."""


@pictures
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


@pictures
def test_texts_of_a_server_are_shown_literally(small_store: Path, tmp_path: Path) -> None:
    def says(body: dict[str, Any]) -> dict[str, Any]:
        reason = json.dumps({"pivot_step": 0, "failure_mode": "timeout", "failure_reason": TEXT})
        return {"text": TEXT if len(server.log.bodies) % 2 else reason}

    common = ("--data", small_store, "--side", "train", "--no-cache", "--no-learned", "--out", tmp_path / "report")
    with served(says) as server:
        shown = run("evaluate", "analyzer", MODEL, *common, "--base-url", server.url)
    assert "replies that could not be read" in shown
    obeys_nothing(shown)


@pictures
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
    config = {"dataset": str(small_store), "configs": ["sokoban"]}
    (folder / "run.json").write_text(json.dumps({"config": config, "target_vocabulary": "paper"}), encoding="utf-8")
    run("evaluate", "analyzer", folder, "--side", "train", "--limit", "6", "--max-tokens", "6", "--no-learned")
    result = json.loads((folder / "evaluation" / "result.json").read_text(encoding="utf-8"))
    assert result["name"] == "run"
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
    trained = evaluation.training_run("run")
    assert trained is not None and open_records(trained["dataset"], "sokoban").files.manifest
    record["dataset_address"] = str(tmp_path / "moved")
    (tmp_path / "run" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert evaluation.training_run("run") == {"dataset": small_store.name}, "moved: named as the user wrote it"


@pictures
def test_baselines_are_shown_and_written(small_store: Path, tmp_path: Path) -> None:
    common = ("evaluate", "baselines", small_store, "--side", "train", "--no-learned")
    shown = run(*common, "--out", tmp_path)
    assert "majority, sokoban" in shown and "level posterior, frozenlake" in shown
    assert "| frozenlake | full | majority |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert len(json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["results"]) == 2
    assert "sokoban" not in run(*common, "--env", "frozenlake", "--full-length")


@pictures
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("--data", "nowhere/at/all"), TrainingError, "does not exist"),
        ((), ConfigError, "name some with --data"),
        (("--data", "STORE", "--env", "svg"), TrainingError, "it has: frozenlake, sokoban, all"),
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


@pytest.mark.skipif(find_spec("matplotlib") is not None, reason="everything is installed here")
def test_a_missing_package_is_reported_before_any_request(tmp_path: Path) -> None:
    error = error_of("evaluate", "analyzer", MODEL, "--base-url", "http://127.0.0.1:9/v1", "--out", tmp_path / "out")
    assert "pip install 'pivot-vlm[train]'" in str(error)


@pictures
def test_a_report_needs_a_place() -> None:
    assert "--out DIR" in str(
        error_of("evaluate", "analyzer", MODEL, "--no-learned", "--base-url", "http://127.0.0.1:9/v1")
    )
