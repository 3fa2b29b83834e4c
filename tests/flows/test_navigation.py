"""Navigation through the whole pipeline: build, verify, splits, pictures in the format of the frames, bytes."""

import io
import json
from pathlib import Path
from typing import Any

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
from pivot.tests.stores import Rows, need_at_pivots, read_rows
from typer.testing import CliRunner

SHARD = "navigation/00000.parquet"


def make(root: Path, **settings: Any) -> Path:
    build({"environments": {"navigation": {"tasks": 4, "settings": settings}}, "rollouts": 3, "seed": 2}, root)
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two levels in both splits, three rollouts each."""
    return make(tmp_path_factory.mktemp("navigation") / "store")


def records(root: Path) -> dict[str, Rows]:
    return {side: read_rows(root, f"dataset/navigation/{side}-00000.parquet") for side in ("train", "validation")}


def failures(root: Path) -> Rows:
    return [row for rows in records(root).values() for row in rows]


def test_a_store_holds(store: Path) -> None:
    report = verify_store(store, Reporter())
    assert report.problems == []
    assert len(failures(store)) == report.checked["training rows"] == report.checked["labels"] >= 4


def test_steps_tell_where_the_agent_is_and_what_it_needs(store: Path) -> None:
    pivots, agreeing = need_at_pivots(store)
    assert pivots == agreeing > 0
    for row in read_rows(store, f"steps/{SHARD}"):
        state = json.loads(row["state"])
        assert set(state) == {"agent"} and set(state["agent"]["position"]) == set("xyz")
        assert row["need"] >= 0
    starts = {row["episode_id"]: json.loads(row["initial_state"]) for row in read_rows(store, f"episodes/{SHARD}")}
    for row in read_rows(store, f"steps/{SHARD}"):
        if row["t"] == 0:
            assert json.loads(row["state"])["agent"] == starts[row["episode_id"]]["agent"]


def test_the_same_build_gives_the_same_bytes(store: Path, tmp_path: Path) -> None:
    make(tmp_path / "again")
    files, again = (
        {name: record.sha256 for name, record in Store.open(root).manifest().items() if not name.startswith("calls/")}
        for root in (store, tmp_path / "again")
    )
    assert files == again


def test_splits_share_levels_but_not_groups(store: Path) -> None:
    episodes = read_rows(store, f"episodes/{SHARD}")
    assert len(episodes) == 12
    by_split: dict[str, Rows] = {}
    for row in episodes:
        by_split.setdefault(row["eval_set"], []).append(row)
    base, common = by_split["base"], by_split["common_sense"]
    assert {row["task_id"] for row in base} == {row["task_id"] for row in common}
    assert {row["initial_state"] for row in base} == {row["initial_state"] for row in common}
    assert not {row["group_id"] for row in base} & {row["group_id"] for row in common}
    assert not {row["episode_id"] for row in base} & {row["episode_id"] for row in common}
    assert not {row["instruction"] for row in base} & {row["instruction"] for row in common}
    sides: dict[str, set[str]] = {}
    for side, rows in records(store).items():
        for row in rows:
            sides.setdefault(row["initial_state"], set()).add(side)
    assert all(len(each) == 1 for each in sides.values()), "a level is on one side of the split, in both splits"


def frames_of(root: Path) -> tuple[dict[str, bytes], dict[str, Rows]]:
    frames = {row["frame_id"]: row["image"] for row in read_rows(root, f"frames/{SHARD}")}
    steps: dict[str, Rows] = {}
    for row in read_rows(root, f"steps/{SHARD}"):
        steps.setdefault(row["episode_id"], []).append(row)
    return frames, steps


def test_collages_are_five_by_five_jpegs_of_what_was_seen(store: Path) -> None:
    frames, steps = frames_of(store)
    assert {row["format"] for row in read_rows(store, f"frames/{SHARD}")} == {"jpeg"}
    for row in failures(store):
        seen = [decode(frames[step["frame_id"]]) for step in steps[row["episode_id"]]]
        assert len(seen) == 25
        layout = collage_layout(25, seen[0].shape)
        assert (layout.cols, layout.rows) == (5, 5)
        [image] = row["images"]
        assert image["bytes"] == encode_jpeg(collage(seen))
        assert row["panel"]["bytes"] == encode_jpeg(panel(seen, row["pivot_step"]))
        with Image.open(io.BytesIO(image["bytes"])) as picture:
            assert picture.format == "JPEG"
            assert picture.size == (layout.width, layout.height)
            box = layout.tile(7)
            tile = np.asarray(picture)[box.y : box.y + box.height, box.x : box.x + box.width]
        assert np.abs(tile.astype(int) - seen[7]).mean() < 4


def test_an_episode_takes_two_megabytes_at_most(store: Path) -> None:
    frames, steps = frames_of(store)
    for row in failures(store):
        shown = {name for step in steps[row["episode_id"]] for name in (step["frame_id"], step["next_frame_id"])}
        pictures = len(row["images"][0]["bytes"]) + len(row["panel"]["bytes"])
        assert 2 * sum(len(frames[name]) for name in shown) + pictures < 2_000_000


def test_lossless_frames_make_lossless_collages(tmp_path: Path) -> None:
    root = make(tmp_path / "png", image_format="png")
    assert verify_store(root, Reporter()).problems == []
    frames, steps = frames_of(root)
    row = failures(root)[0]
    seen = [decode(frames[step["frame_id"]]) for step in steps[row["episode_id"]]]
    assert np.array_equal(decode(row["images"][0]["bytes"]), collage(seen))


def test_a_person_is_told_what_was_asked_and_where(store: Path) -> None:
    row = failures(store)[0]
    view = find_episode(Store.open(store), row["episode_id"])
    assert dict(view.facts())["asked for"] == view.episode["instruction"]
    shown = CliRunner().invoke(app, ["peek", str(store), row["episode_id"]])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert json.loads(row["initial_state"])["target"]["type"] in words
    assert "yaw" in words
    assert "surface" not in words, "people do not see the room's geometry"
    assert view.figure().shape[0] >= 1400
