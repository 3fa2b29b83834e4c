"""SVG through the whole pipeline: build, verify, both vocabularies, pictures, card, command line."""

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pivot
import pytest
from PIL import Image
from pivot import build
from pivot.collage import collage_layout, panel
from pivot.core.errors import ConfigError, StoreError
from pivot.core.images import decode
from pivot.core.progress import Reporter
from pivot.datasets.export.card import card_text
from pivot.datasets.export.describe import find_episode
from pivot.datasets.store.config import make_config
from pivot.datasets.store.store import Store
from pivot.datasets.verify.verify import verify_store
from pivot.environments.svg.icons import draw_target
from pivot.environments.svg.sandbox.pool import Outcome
from pivot.flows.engines.local import InProcess
from pivot.flows.relabel import relabel_store
from pivot.tests import stores
from pivot.tests.cli.command_line import run_config
from pivot.tests.stores import Rows, copy_store, read_rows

DATASET = "dataset/svg/train-00000.parquet"
SHARD = "svg/00000.parquet"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks of five rollouts."""
    root = tmp_path_factory.mktemp("svg") / "store"
    build({"environments": {"svg": {"tasks": 3, "settings": {}}}, "rollouts": 5}, root)
    return root


def records(root: Path) -> Rows:
    return [row for side in ("train", "validation") for row in read_rows(root, f"dataset/svg/{side}-00000.parquet")]


def target_of(row: dict[str, Any]) -> dict[str, Any]:
    return json.loads(row["completion"][0]["content"][0]["text"])


def test_a_store_holds(store: Path) -> None:
    report = verify_store(store, Reporter())
    assert report.problems == []
    assert report.checked["labels"] >= 14
    assert len(records(store)) == report.checked["training rows"] == report.checked["labels"]


def test_steps_tell_the_score_of_the_canvas_and_need_nothing(store: Path) -> None:
    """Where anything can still be drawn, no amount is needed."""
    rows = read_rows(store, "steps/svg/00000.parquet")
    assert {row["need"] for row in rows} == {None}
    assert {row["state"] for row in rows if row["t"] == 0} == {"{}"}
    first = {row["episode_id"]: row for row in rows if row["t"] == 0 and row["submission_outcome"] == "ok"}
    later = [row for row in rows if row["t"] == 1 and row["episode_id"] in first]
    assert later
    for row in later:
        drawn = json.loads(first[row["episode_id"]]["info"])["average_score"]
        assert json.loads(row["state"])["scores"]["average"] == drawn


def test_the_same_build_gives_the_same_bytes(store: Path, tmp_path: Path) -> None:
    build({"environments": {"svg": {"tasks": 3, "settings": {}}}, "rollouts": 5}, tmp_path / "again")
    files, again = (
        {name: record.sha256 for name, record in Store.open(root).manifest().items() if not name.startswith("calls/")}
        for root in (store, tmp_path / "again")
    )
    assert files == again


# Pictures


def test_collage_and_panel_show_target_and_drawings(store: Path) -> None:
    frames = {row["frame_id"]: decode(row["image"]) for row in read_rows(store, f"frames/{SHARD}")}
    steps: dict[str, Rows] = {}
    for row in read_rows(store, f"steps/{SHARD}"):
        steps.setdefault(row["episode_id"], []).append(row)
    for row in records(store):
        mine = steps[row["episode_id"]]
        target = frames[mine[0]["frame_id"]]
        drawings = [frames[step["next_frame_id"]] for step in mine]
        labels = ["target", "step 0", "step 1"]
        layout = collage_layout(3, target.shape, labels)
        picture = np.asarray(Image.open(io.BytesIO(row["images"][0]["bytes"])).convert("RGB"))
        for k, tile in enumerate([target, *drawings]):
            box = layout.tile(k)
            assert np.array_equal(picture[box.y : box.y + box.height, box.x : box.x + box.width], tile)
        shown = np.asarray(Image.open(io.BytesIO(row["panel"]["bytes"])).convert("RGB"))
        assert np.array_equal(shown, panel(drawings, row["pivot_step"]))


def test_the_figure_has_room_for_everything(store: Path) -> None:
    picture = find_episode(Store.open(store), records(store)[0]["episode_id"]).figure()
    layout = collage_layout(3, (256, 256, 3), ["target", "step 0", "step 1"])
    assert picture.shape[0] >= layout.height
    assert (picture[:, -24:] == 255).all(), "nothing runs into the right margin"
    words = find_episode(Store.open(store), records(store)[0]["episode_id"]).facts()
    assert any("the last submission scored 0." in value for _, value in words)


# Vocabulary


def test_relabelling_changes_the_words_of_targets_only(store: Path, tmp_path: Path) -> None:
    root = copy_store(store, tmp_path / "paper")
    before = {row["episode_id"]: row for row in records(root)}
    relabel_store(root, {"target_vocabulary": "paper"}, InProcess(), Reporter())
    assert stores.problems(root) == []
    after = {row["episode_id"]: row for row in records(root)}
    assert after.keys() == before.keys()
    for episode, row in after.items():
        old = before[episode]
        assert target_of(old)["failure_mode"] == old["failure_mode"] == row["failure_mode"]
        assert target_of(row) == target_of(old) | {"failure_mode": "timeout"}
        assert row["failure_mode_id"] == old["failure_mode_id"]
        assert row["certificate"] == old["certificate"]
        text = row["prompt"][0]["content"][1]["text"]
        assert "exactly one of: timeout, deadlock." in text
        assert "stagnation" not in text
    assert "use the paper's words, timeout and deadlock" in (root / "dataset/README.md").read_text()
    assert "paper's words" not in (store / "dataset/README.md").read_text()


def test_an_unknown_vocabulary_is_refused() -> None:
    with pytest.raises(ConfigError, match="target_vocabulary"):
        make_config({"environments": {"svg": {"tasks": 1, "settings": {}}}, "target_vocabulary": "mine"})


# Card and rows name the scorer


def test_card_and_rows_name_the_scorer(store: Path) -> None:
    opened = Store.open(store)
    card = card_text(opened, "dataset", opened.run_record(), opened.manifest(), True)
    (stand_ins,) = [line for line in card.splitlines() if "**Stand-ins**" in line]
    assert "scorer `pixel`" in stand_ins
    assert "in place of the perceptual scores of `dino+dreamsim`" in stand_ins
    version = pivot.load_store(store).episodes.collect()["env_config"].unique().to_list()
    assert len(version) == 1
    for row in [*records(store), *read_rows(store, f"episodes/{SHARD}")]:
        settings = json.loads(row["env_config"])
        assert settings["scorer"] == "pixel"
        assert settings["scorer_version"]


def test_what_a_score_is_made_of_is_stored_apart(store: Path) -> None:
    scored = 0
    for row in read_rows(store, f"steps/{SHARD}"):
        info = json.loads(row["info"])
        assert not {"score_parts", "submission_outcome"} & info.keys()
        assert (row["submission_outcome"] == Outcome.OK) is info["valid_svg"]
        assert row["submission_outcome"] in set(Outcome)
        if row["score_parts"] is None:
            assert info["average_score"] == 0
            continue
        scored += 1
        assert set(json.loads(row["score_parts"])) == {"colour", "edges", "structure"}
    assert scored


def test_a_store_does_not_mix_scorers(store: Path, tmp_path: Path) -> None:
    root = copy_store(store, tmp_path / "store")
    other = {"tasks": 4, "settings": {"scorer": "dino+dreamsim"}}
    with pytest.raises(StoreError, match=r"settings of svg \(scorer"):
        build({"environments": {"svg": other}, "rollouts": 5}, root)


def _parquet_digests(root: Path) -> dict[str, str]:
    return {name: record.sha256 for name, record in Store.open(root).manifest().items() if name.endswith(".parquet")}


def test_a_store_follows_the_folder_of_its_targets(tmp_path: Path) -> None:
    folder, root = tmp_path / "icons", tmp_path / "store"
    folder.mkdir()
    for seed in range(3):
        (folder / f"{seed}.svg").write_text(draw_target(random.Random(seed)))

    def config() -> dict[str, Any]:
        settings = {"targets": str(folder)}
        return {"environments": {"svg": {"tasks": 2, "settings": settings}}, "rollouts": 2}

    build(config(), root)
    before = _parquet_digests(root)
    folder = folder.rename(tmp_path / "moved")
    assert build(config(), root).reused_shards == 1
    assert _parquet_digests(root) == before
    assert verify_store(root, Reporter()).problems == []


# Command line


def test_flags_for_targets_and_scorer_are_settings(tmp_path: Path) -> None:
    config = run_config("svg --tasks 1 --set svg.scorer=pixel --target-vocabulary paper")
    assert config.environments["svg"].settings["scorer"] == "pixel"
    assert config.target_vocabulary == "paper"
    with pytest.raises(ConfigError, match="unknown scorer 'guess'"):
        run_config("svg --tasks 1 --set svg.scorer=guess")
    with pytest.raises(ConfigError, match="not part of this build"):
        run_config("sokoban --tasks 1 --set svg.scorer=pixel")
    with pytest.raises(ConfigError, match="nowhere"):
        run_config(f"svg --tasks 1 --set svg.targets={tmp_path / 'nowhere'}")
