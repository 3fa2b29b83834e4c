"""Navigation, PrimitiveSkill and SVG through the whole pipeline: build, verify, bytes, pictures, views for people."""

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pivot
import pytest
from PIL import Image
from pivot.collage import collage, collage_layout, panel
from pivot.core.images import decode, encode_jpeg
from pivot.core.progress import Reporter
from pivot.datasets.export.card import card_text
from pivot.datasets.export.describe import find_episode
from pivot.datasets.store.store import Store
from pivot.datasets.verify.verify import verify_store
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.environments.svg.sandbox.pool import Outcome
from pivot.flows.engines.local import InProcess
from pivot.flows.relabel import relabel_store
from pivot.tests.cli.command_line import run
from pivot.tests.stores import Rows, copy_store, need_at_pivots, problems, read_rows

RUNS: dict[str, dict[str, Any]] = {
    "navigation": {"tasks": 4, "rollouts": 3, "seed": 2},
    "primitiveskill": {"tasks": 9, "rollouts": 4, "seed": 20},
    "svg": {"tasks": 3, "rollouts": 5},
}
"""Two levels in both splits; levels of all four tasks; three targets."""
FEWEST = {"navigation": 4, "primitiveskill": 24, "svg": 14}
"""Least number of labels of each store."""
GRIDS = {"navigation": (25, 5, 5), "primitiveskill": (6, 3, 2)}
"""Tiles, columns and rows of a collage."""


def make(root: Path, env: str) -> Path:
    fields = dict(RUNS[env])
    pivot.build({"environments": {env: {"tasks": fields.pop("tasks"), "settings": {}}}, **fields}, root)
    return root


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store of each environment; copy it before changing anything."""
    return {env: make(tmp_path_factory.mktemp(env) / "store", env) for env in RUNS}


def rows_of(root: Path, env: str, table: str) -> Rows:
    return read_rows(root, f"{table}/{env}/00000.parquet")


def records(root: Path, env: str) -> dict[str, Rows]:
    return {side: read_rows(root, f"dataset/{env}/{side}-00000.parquet") for side in ("train", "validation")}


def failures(root: Path, env: str) -> Rows:
    return [row for rows in records(root, env).values() for row in rows]


def steps_of(root: Path, env: str) -> dict[str, Rows]:
    steps: defaultdict[str, Rows] = defaultdict(list)
    for row in rows_of(root, env, "steps"):
        steps[row["episode_id"]].append(row)
    return steps


@pytest.mark.parametrize("env", RUNS)
def test_a_store_holds(stores: dict[str, Path], env: str) -> None:
    """Catch an environment whose store does not verify, or has too few failures to show anything."""
    report = verify_store(stores[env], Reporter())
    assert report.problems == []
    assert f"| {env} | {RUNS[env]['tasks']} |" in (stores[env] / "dataset/README.md").read_text()
    assert len(failures(stores[env], env)) == report.checked["training rows"] == report.checked["labels"] >= FEWEST[env]
    if env == "primitiveskill":
        kinds = {json.loads(row["initial_state"])["task"] for row in rows_of(stores[env], env, "episodes")}
        modes = {row["failure_mode"] for row in failures(stores[env], env)}
        assert (kinds, modes) == (set(KINDS), {"timeout", "format", "wrong_target", "order_error"})


@pytest.mark.parametrize("env", RUNS)
def test_the_same_build_gives_the_same_bytes(stores: dict[str, Path], env: str, tmp_path: Path) -> None:
    make(tmp_path / "again", env)
    files, again = (
        {name: record.sha256 for name, record in Store.open(root).manifest().items() if not name.startswith("calls/")}
        for root in (stores[env], tmp_path / "again")
    )
    assert files == again


# State and need of steps


def test_steps_of_navigation_hold_the_state_and_the_need(stores: dict[str, Path]) -> None:
    store = stores["navigation"]
    pivots, agreeing = need_at_pivots(store)
    assert pivots == agreeing > 0
    starts = {row["episode_id"]: json.loads(row["initial_state"]) for row in rows_of(store, "navigation", "episodes")}
    for row in rows_of(store, "navigation", "steps"):
        state = json.loads(row["state"])
        assert set(state) == {"agent"} and set(state["agent"]["position"]) == set("xyz")
        assert row["need"] >= 0
        assert row["t"] or state["agent"] == starts[row["episode_id"]]["agent"]


def test_steps_of_primitiveskill_hold_the_state_and_the_open_stages(stores: dict[str, Path]) -> None:
    store = stores["primitiveskill"]
    pivots, agreeing = need_at_pivots(store)
    assert pivots == agreeing > 0
    before: dict[str, int] = {}
    first: dict[str, str] = {}
    for row in rows_of(store, "primitiveskill", "steps"):
        assert row["need"] == before.get(row["episode_id"], row["need"])
        before[row["episode_id"]] = json.loads(row["info"])["remaining_stages"]
        assert row["need"] >= json.loads(row["state"])["achieved"].count(False)
        first.setdefault(row["episode_id"], row["observation_text"])
        heads = [line.split(":")[0] for line in row["observation_text"].split("\n")]
        assert heads == ["Workspace limits in mm", "Object positions in mm", "Other information"]
    for episode in rows_of(store, "primitiveskill", "episodes"):  # observations are those before each action
        thing = json.loads(episode["initial_state"])["objects"][0]["position"]
        assert f"[({','.join(str(round(value)) for value in thing)})" in first[episode["episode_id"]]


def test_steps_of_svg_hold_the_score_of_the_canvas_and_no_need(stores: dict[str, Path]) -> None:
    """Anything can still be drawn, so the need is null; components of the score have their own column."""
    rows = rows_of(stores["svg"], "svg", "steps")
    assert {row["need"] for row in rows} == {None}
    assert {row["state"] for row in rows if row["t"] == 0} == {"{}"}
    drawn = {row["episode_id"]: row for row in rows if row["t"] == 0 and row["submission_outcome"] == "ok"}
    later = [row for row in rows if row["t"] == 1 and row["episode_id"] in drawn]
    assert later
    for row in later:
        score = json.loads(drawn[row["episode_id"]]["info"])["average_score"]
        assert json.loads(row["state"])["scores"]["average"] == score
    for row in rows:
        info = json.loads(row["info"])
        assert not {"score_parts", "submission_outcome"} & info.keys()
        assert (row["submission_outcome"] == Outcome.OK) is info["valid_svg"]
        assert row["submission_outcome"] in set(Outcome)
        if row["score_parts"] is None:
            assert info["average_score"] == 0
        else:
            assert set(json.loads(row["score_parts"])) == {"colour", "edges", "structure"}
    assert any(row["score_parts"] for row in rows)


def test_splits_of_navigation_share_levels_but_not_groups(stores: dict[str, Path]) -> None:
    by_split: defaultdict[str, Rows] = defaultdict(list)
    for row in rows_of(stores["navigation"], "navigation", "episodes"):
        by_split[row["eval_set"]].append(row)
    base, common = by_split["base"], by_split["common_sense"]
    assert len(base) == len(common) == 6
    for column in ("task_id", "initial_state"):
        assert {row[column] for row in base} == {row[column] for row in common}
    for column in ("group_id", "episode_id", "instruction"):
        assert not {row[column] for row in base} & {row[column] for row in common}
    sides: defaultdict[str, set[str]] = defaultdict(set)
    for side, rows in records(stores["navigation"], "navigation").items():
        for row in rows:
            sides[row["initial_state"]].add(side)
    assert all(len(each) == 1 for each in sides.values()), "a level is on one side of the split, in both splits"


# Pictures


@pytest.mark.parametrize("env", GRIDS)
def test_collages_are_jpegs_of_what_was_seen(stores: dict[str, Path], env: str) -> None:
    store, steps = stores[env], steps_of(stores[env], env)
    frames = {row["frame_id"]: row["image"] for row in rows_of(store, env, "frames")}
    assert {row["format"] for row in rows_of(store, env, "frames")} == {"jpeg"}
    for row in failures(store, env):
        mine = steps[row["episode_id"]]
        seen = [decode(frames[step["frame_id"]]) for step in mine]
        layout = collage_layout(len(seen), seen[0].shape)
        assert (len(seen), layout.cols, layout.rows) == GRIDS[env]
        [image] = row["images"]
        assert image["bytes"] == encode_jpeg(collage(seen))
        assert row["panel"]["bytes"] == encode_jpeg(panel(seen, row["pivot_step"]))
        with Image.open(io.BytesIO(image["bytes"])) as picture:
            assert (picture.format, picture.size) == ("JPEG", (layout.width, layout.height))
            box = layout.tile(2)
            tile = np.asarray(picture)[box.y : box.y + box.height, box.x : box.x + box.width]
        assert np.abs(tile.astype(int) - seen[2]).mean() < 4
        shown = {name for step in mine for name in (step["frame_id"], step["next_frame_id"])}
        kept = len(image["bytes"]) + len(row["panel"]["bytes"])
        assert 2 * sum(len(frames[name]) for name in shown) + kept < 2_000_000


def test_lossless_frames_make_lossless_collages(tmp_path: Path) -> None:
    run = {"tasks": 2, "settings": {"image_format": "png"}}
    pivot.build({"environments": {"navigation": run}, "rollouts": 2, "seed": 2}, root := tmp_path / "png")
    assert problems(root) == []
    frames = {row["frame_id"]: row["image"] for row in rows_of(root, "navigation", "frames")}
    (file, *_) = root.glob("dataset/navigation/*.parquet")
    row = read_rows(root, file.relative_to(root).as_posix())[0]
    seen = [decode(frames[step["frame_id"]]) for step in steps_of(root, "navigation")[row["episode_id"]]]
    assert np.array_equal(decode(row["images"][0]["bytes"]), collage(seen))


def test_collage_and_panel_of_svg_show_target_and_drawings(stores: dict[str, Path]) -> None:
    frames = {row["frame_id"]: decode(row["image"]) for row in rows_of(stores["svg"], "svg", "frames")}
    steps = steps_of(stores["svg"], "svg")
    for row in failures(stores["svg"], "svg"):
        mine = steps[row["episode_id"]]
        target = frames[mine[0]["frame_id"]]
        drawings = [frames[step["next_frame_id"]] for step in mine]
        layout = collage_layout(3, target.shape, ["target", "step 0", "step 1"])
        picture = np.asarray(Image.open(io.BytesIO(row["images"][0]["bytes"])).convert("RGB"))
        for k, tile in enumerate([target, *drawings]):
            box = layout.tile(k)
            assert np.array_equal(picture[box.y : box.y + box.height, box.x : box.x + box.width], tile)
        shown = np.asarray(Image.open(io.BytesIO(row["panel"]["bytes"])).convert("RGB"))
        assert np.array_equal(shown, panel(drawings, row["pivot_step"]))


# Views for people


@pytest.mark.parametrize(
    ("env", "words", "hidden", "height"),
    [
        ("navigation", ("yaw",), "surface", 1400),  # people do not see the room's geometry
        ("primitiveskill", ("open with", "achieved: nothing"), "\0", 700),
    ],
)
def test_a_person_is_shown_what_was_asked_and_where(
    stores: dict[str, Path], env: str, words: tuple[str, ...], hidden: str, height: int
) -> None:
    row = failures(stores[env], env)[0]
    view = find_episode(Store.open(stores[env]), row["episode_id"])
    assert dict(view.facts())["asked for"] == view.episode["instruction"]
    assert view.figure().shape[0] >= height
    shown = " ".join(run("peek", stores[env], row["episode_id"]).split())
    target = json.loads(row["initial_state"]).get("target", {}).get("type", "")
    assert all(each in shown for each in (*words, target)) and hidden not in shown
    assert "Certificates against a better reference" in run("stats", stores[env])


def test_the_figure_of_svg_has_room_for_everything(stores: dict[str, Path]) -> None:
    view = find_episode(Store.open(stores["svg"]), failures(stores["svg"], "svg")[0]["episode_id"])
    picture = view.figure()
    assert picture.shape[0] >= collage_layout(3, (256, 256, 3), ["target", "step 0", "step 1"]).height
    assert (picture[:, -24:] == 255).all(), "nothing runs into the right margin"
    assert any("the last submission scored 0." in value for _, value in view.facts())


# Words, scorer and targets of SVG


def target_of(row: dict[str, Any]) -> dict[str, Any]:
    return json.loads(row["completion"][0]["content"][0]["text"])


def test_relabelling_changes_the_mode_names_of_targets_only(stores: dict[str, Path], tmp_path: Path) -> None:
    root = copy_store(stores["svg"], tmp_path / "paper")
    before = {row["episode_id"]: row for row in failures(root, "svg")}
    relabel_store(root, {"target_vocabulary": "paper"}, InProcess(), Reporter())
    assert problems(root) == []
    after = {row["episode_id"]: row for row in failures(root, "svg")}
    assert after.keys() == before.keys()
    for episode, row in after.items():
        old = before[episode]
        assert target_of(old)["failure_mode"] == old["failure_mode"] == row["failure_mode"]
        assert target_of(row) == target_of(old) | {"failure_mode": "timeout"}
        assert all(row[name] == old[name] for name in ("failure_mode_id", "certificate"))
        text = row["prompt"][0]["content"][1]["text"]
        assert "exactly one of: timeout, deadlock." in text and "stagnation" not in text
    assert "use the paper's words, timeout and deadlock" in (root / "dataset/README.md").read_text()
    assert "paper's words" not in (stores["svg"] / "dataset/README.md").read_text()


def test_card_and_rows_name_the_scorer(stores: dict[str, Path]) -> None:
    opened = Store.open(stores["svg"])
    card = card_text(opened, "dataset", opened.run_record(), opened.manifest(), True)
    (stand_ins,) = [line for line in card.splitlines() if "**Stand-ins**" in line]
    assert "scorer `pixel`" in stand_ins
    assert "in place of the perceptual scores of `dino+dreamsim`" in stand_ins
    rows = [*failures(stores["svg"], "svg"), *rows_of(stores["svg"], "svg", "episodes")]
    assert len({row["env_config"] for row in rows}) == 1
    settings = json.loads(rows[0]["env_config"])
    assert settings["scorer"] == "pixel" and settings["scorer_version"]
