"""PrimitiveSkill through the whole pipeline: build, verify, load, pictures, the views for people."""

import io
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from pivot import build
from pivot.cli import app
from pivot.collage import collage, collage_layout, panel
from pivot.core.images import decode, encode_jpeg
from pivot.core.progress import Reporter
from pivot.datasets.export.describe import find_episode
from pivot.datasets.store.store import Store
from pivot.datasets.verify.verify import verify_store
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.tests.stores import Rows, need_at_pivots, read_rows
from typer.testing import CliRunner

from datasets import DatasetDict, load_dataset

SHARD = "primitiveskill/00000.parquet"
LABELS = f"labels/v1/{SHARD}"


def make(root: Path, tasks: int = 9, rollouts: int = 4, **settings: Any) -> Path:
    runs = {"primitiveskill": {"tasks": tasks, "settings": settings}}
    build({"environments": runs, "rollouts": rollouts, "seed": 20, "tasks_per_shard": 16}, root)
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine levels, four rollouts each."""
    return make(tmp_path_factory.mktemp("primitiveskill") / "store")


def records(root: Path) -> Rows:
    files = (f"dataset/primitiveskill/{side}-00000.parquet" for side in ("train", "validation"))
    return [row for name in files for row in read_rows(root, name)]


def test_a_store_holds(store: Path) -> None:
    report = verify_store(store, Reporter())
    assert report.problems == []
    assert len(records(store)) == report.checked["training rows"] == report.checked["labels"] >= 24
    tasks = {json.loads(row["initial_state"])["task"] for row in read_rows(store, f"episodes/{SHARD}")}
    assert tasks == set(KINDS)
    modes = {row["failure_mode"] for row in records(store)}
    assert modes == {"timeout", "format", "wrong_target", "order_error"}


def test_steps_tell_the_state_and_the_open_stages(store: Path) -> None:
    pivots, agreeing = need_at_pivots(store)
    assert pivots == agreeing > 0
    before: dict[str, int] = {}
    for row in read_rows(store, "steps/primitiveskill/00000.parquet"):
        assert row["need"] == before.get(row["episode_id"], row["need"])
        before[row["episode_id"]] = json.loads(row["info"])["remaining_stages"]
        assert row["need"] >= json.loads(row["state"])["achieved"].count(False)


def test_the_same_build_gives_the_same_bytes(store: Path, tmp_path: Path) -> None:
    make(tmp_path / "again")
    files, again = (
        {name: record.sha256 for name, record in Store.open(root).manifest().items() if not name.startswith("calls/")}
        for root in (store, tmp_path / "again")
    )
    assert files == again


def test_a_library_loads_it(store: Path, tmp_path: Path) -> None:
    loaded = cast(DatasetDict, load_dataset(str(store / "dataset"), "primitiveskill", cache_dir=str(tmp_path)))
    rows = [cast(dict[str, Any], row) for side in loaded.values() for row in side]
    assert len(rows) == len(records(store))
    for row in rows:
        assert (row["certificate"]["kind"], row["certificate"]["unit"]) == ("heuristic", "stages")
        target = json.loads(row["completion"][0]["content"][0]["text"])
        assert (target["pivot_step"], target["failure_mode"]) == (row["pivot_step"], row["failure_mode"])
        assert f"step {row['pivot_step']}" in target["failure_reason"]
        assert row["action_log"].startswith("step 0: action=")
        assert "remaining_stages=" in row["action_log"]
        [image] = row["images"]
        assert image.size[0] > 900


def test_collages_show_what_was_seen(store: Path) -> None:
    frames = {row["frame_id"]: row["image"] for row in read_rows(store, f"frames/{SHARD}")}
    assert {row["format"] for row in read_rows(store, f"frames/{SHARD}")} == {"jpeg"}
    steps: dict[str, Rows] = {}
    for row in read_rows(store, f"steps/{SHARD}"):
        steps.setdefault(row["episode_id"], []).append(row)
    for row in records(store):
        seen = [decode(frames[step["frame_id"]]) for step in steps[row["episode_id"]]]
        assert len(seen) == 6
        layout = collage_layout(6, seen[0].shape)
        assert (layout.cols, layout.rows) == (3, 2)
        [image] = row["images"]
        assert image["bytes"] == encode_jpeg(collage(seen))
        assert row["panel"]["bytes"] == encode_jpeg(panel(seen, row["pivot_step"]))
        with Image.open(io.BytesIO(image["bytes"])) as picture:
            box = layout.tile(2)
            tile = np.asarray(picture)[box.y : box.y + box.height, box.x : box.x + box.width]
        assert np.abs(tile.astype(int) - seen[2]).mean() < 4


def test_observations_are_stored_before_each_action(store: Path) -> None:
    for row in read_rows(store, f"steps/{SHARD}"):
        lines = row["observation_text"].split("\n")
        assert [line.split(":")[0] for line in lines] == [
            "Workspace limits in mm",
            "Object positions in mm",
            "Other information",
        ]
    first = {row["episode_id"]: row for row in read_rows(store, f"steps/{SHARD}") if row["t"] == 0}
    for episode in read_rows(store, f"episodes/{SHARD}"):
        thing = json.loads(episode["initial_state"])["objects"][0]["position"]
        assert (
            f"[({','.join(str(round(value)) for value in thing)})" in first[episode["episode_id"]]["observation_text"]
        )


def test_a_person_is_told_what_was_asked_and_where(store: Path) -> None:
    row = records(store)[0]
    view = find_episode(Store.open(store), row["episode_id"])
    assert dict(view.facts())["asked for"] in {kind.instruction for kind in KINDS.values()}
    assert view.figure().shape[0] >= 700
    shown = CliRunner().invoke(app, ["peek", str(store), row["episode_id"]])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "open with" in words
    assert "achieved: nothing" in words
    stats = CliRunner().invoke(app, ["stats", str(store)])
    assert stats.exit_code == 0, stats.output
    assert "Certificates against a better reference" in stats.output
