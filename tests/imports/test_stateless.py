"""Episodes without a state: kept, counted, labelled by distances or by an Analyzer, and never in a store."""

import json
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.datasets.progress import Silent
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.errors import ConfigError, StoreError
from pivot.images import encode_png
from pivot.imports.stateless import estimate_folder
from pivot.models.base import ChatAnswer, ChatRequest
from pivot.tests.cli.command_line import run
from pivot.tests.labeling.teaching import PlantedBackend
from pivot.training.analyzer import Analyzer

from .recorded import episode, imports_of, write_lines


def _stateless(*actions: str, **fields: Any) -> dict[str, Any]:
    made = episode(*actions, success=False, truncated=True, **fields)
    del made["initial_state"]
    return made


def _pictured(folder: Path, made: dict[str, Any]) -> dict[str, Any]:
    """Add pictures that no level can be read from."""
    frame, _ = FrozenLakeEnv().reset(seed=3)
    for number, turn in enumerate(made["turns"]):
        changed = frame.copy()
        changed[0, number] ^= 255
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.png").write_bytes(encode_png(changed))
        turn["frame"] = f"{number}.png"
    return made


def _source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    won = {**_stateless("up", "up", id="won"), "success": True, "terminated": True, "truncated": False}
    return write_lines(
        source,
        episode(*["up"] * 4),
        _pictured(source, _stateless("up", "left", "up", "up", id="pictured")),
        _stateless("up", "up", "up", "up", id="without pictures"),
        won,
        b"{",
    )


def test_episodes_without_a_state_are_kept_and_counted(tmp_path: Path) -> None:
    result = pivot.import_rollouts(_source(tmp_path), tmp_path / "store")
    folder = tmp_path / "store-stateless"
    assert result.episodes == 1 and result.stateless == folder and result.stateless_labels == 0
    assert [problem.kept for problem in result.problems] == [True, True, True, False]
    lines = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["pictured", "without pictures", "won"]
    assert len(list((folder / "frames").iterdir())) == 4
    assert [row["left_out"] for row in imports_of(tmp_path / "store")] == [None, *["no_state"] * 3, "unreadable"]
    assert pivot.load_store(tmp_path / "store").labels.collect().height == 1
    again = pivot.import_rollouts(folder, tmp_path / "again")  # the folder is a source of its own
    assert again.build is None and len(again.problems) == 3


def test_the_command_counts_them_and_names_the_lost_ones(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", episode(*["up"] * 4), _stateless("up", "up", "up", "up"))
    shown = run("import", source, "--out", tmp_path / "store", "--stateless", tmp_path / "other")
    assert "1 episodes have no state" in shown and (tmp_path / "other" / "episodes.jsonl").exists()


def test_nothing_is_written_without_such_episodes(tmp_path: Path) -> None:
    result = pivot.import_rollouts(write_lines(tmp_path / "source", episode(*["up"] * 4)), tmp_path / "store")
    assert result.stateless is None and not (tmp_path / "store-stateless").exists()


def _answer(text: str) -> Any:
    tokens = tuple(text)
    chance = [-0.5 if char.isdigit() else 0.0 for char in tokens]
    return lambda request: ChatAnswer(text, token_ids=tuple(range(len(text))), logprobs=tuple(chance), tokens=tokens)


def test_an_analyzer_labels_failures_as_estimated(tmp_path: Path) -> None:
    pivot.import_rollouts(_source(tmp_path), tmp_path / "store")
    folder, requests = tmp_path / "store-stateless", []

    def answers(request: ChatRequest) -> ChatAnswer:
        requests.append(request)
        return _answer('{"pivot_step": 2, "failure_mode": "timeout", "failure_reason": ""}')(request)

    backend = PlantedBackend(answers)
    counts = estimate_folder(folder, Analyzer(backend), "planted", Silent())
    assert (counts.estimated, counts.unreadable, counts.proved, counts.left_out) == (1, 0, 0, 2)
    (label,) = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    assert (label["line"], label["id"], label["kind"]) == (1, "pictured", "estimated")
    assert (label["pivot_step"], label["failure_mode"], label["by"]) == (2, "timeout", {"analyzer": "planted"})
    assert label["probability"] == pytest.approx(0.6065, abs=1e-4)
    assert len(requests) == 1 and len(requests[0].images) == 1
    pivot.import_rollouts(tmp_path / "source", tmp_path / "store")  # nothing to do, so that the estimate stays
    assert json.loads((folder / "labels.jsonl").read_text()) == label
    bad = PlantedBackend(_answer("no idea"))
    assert estimate_folder(folder, Analyzer(bad), "bad", Silent()).unreadable == 1
    assert (folder / "labels.jsonl").read_text() == ""  # its earlier estimates are replaced
    with pytest.raises(ConfigError, match="holds no episodes"):
        estimate_folder(tmp_path, Analyzer(backend), "planted", Silent())


def test_labels_by_distance_stay_and_are_not_asked_about(tmp_path: Path) -> None:
    fields = {"env": "navigation", "env_config": {"horizon": 4}, "distances": [4.0, 4.0, 3.5, 3.5, 3.5]}
    made = _stateless("rotateleft", "moveahead", "lookup", "lookup", **fields)
    source = write_lines(tmp_path / "source", made, {**made, "distances": [4.0, 3.0]})
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert result.stateless is not None and result.stateless_labels == 1
    (label,) = [json.loads(line) for line in (result.stateless / "labels.jsonl").read_text().splitlines()]
    actions = [turn["actions"][0] for turn in made["turns"]]
    verdict = pivot.certify("navigation", actions=actions, horizon=4, distances=[4.0, 4.0, 3.5, 3.5, 3.5])
    assert (label["kind"], label["pivot_step"]) == ("lower_bound", verdict.pivot_step)

    def refuse(request: ChatRequest) -> ChatAnswer:
        raise AssertionError("an episode with a label by distances was asked about")

    counts = estimate_folder(result.stateless, Analyzer(PlantedBackend(refuse)), "planted", Silent())
    assert (counts.proved, counts.left_out) == (1, 1)
    assert json.loads((result.stateless / "labels.jsonl").read_text()) == label
    (result.stateless / "labels.jsonl").write_text("{")
    with pytest.raises(StoreError, match="delete the file"):
        estimate_folder(result.stateless, Analyzer(PlantedBackend(refuse)), "planted", Silent())
