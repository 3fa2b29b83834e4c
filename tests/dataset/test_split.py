"""The split: the paper's sizes by episode; by task, a level never changes its split."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pivot.datasets.store.config import make_config
from pivot.datasets.store.dataset_rows import plan_split, shard_sides
from pivot.datasets.store.parquet import write_tables
from pivot.datasets.store.schema import DATASET, DATASET_EPISODES, EPISODES, LABELS
from pivot.datasets.store.splits import TRAIN, VALIDATION, level_position, split_by_episode, split_by_task
from pivot.datasets.store.store import Store
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.tests.stores import Rows, change_rows, copy_store, read_rows, schema_of, stored_rows, table_files

LEVELS = st.lists(st.integers(0, 400).map(lambda number: f"level {number}"), max_size=60)


@pytest.mark.parametrize(
    ("count", "train", "validation"),
    [(1170, 1053, 117), (1375, 1237, 138), (959, 863, 96), (1677, 1509, 168), (1719, 1547, 172)],
)
def test_by_episode_gives_the_table_of_the_paper(count: int, train: int, validation: int) -> None:
    for seed in range(3):
        assert Counter(split_by_episode(count, 0.1, seed, "sokoban")) == {TRAIN: train, VALIDATION: validation}


@given(st.integers(2, 3000), st.floats(0.01, 0.99), st.integers(0, 2**63 - 1))
def test_by_episode_is_exact_and_leaves_no_side_empty(count: int, fraction: float, seed: int) -> None:
    sides = split_by_episode(count, fraction, seed, "sokoban")
    assert len(sides) == count
    assert sides.count(VALIDATION) == min(max(round(fraction * count), 1), count - 1)
    assert sides == split_by_episode(count, fraction, seed, "sokoban")


def test_by_episode_depends_on_seed_and_environment() -> None:
    draws = [split_by_episode(500, 0.1, seed, env) for seed in (0, 1) for env in ("sokoban", "frozenlake")]
    assert len({tuple(draw) for draw in draws}) == 4


def test_by_episode_of_next_to_nothing() -> None:
    assert split_by_episode(0, 0.1, 0, "sokoban") == []
    assert split_by_episode(1, 0.1, 0, "sokoban") == [TRAIN]
    assert split_by_task([], 0.1) == []
    assert len(set(split_by_task(["a", "a", "a"], 0.1))) == 1


@given(LEVELS, st.sampled_from([0.1, 0.5, 0.9]))
def test_by_task_a_level_decides_alone_and_one_is_forced_if_a_side_is_empty(levels: list[str], fraction: float) -> None:
    """So neither order nor growth changes the split of a level, and all its episodes are on one side."""
    assume(len(set(levels)) > 1)
    sides = {level: VALIDATION if level_position(level) < fraction else TRAIN for level in levels}
    if len({*sides.values()}) == 1:
        # The one nearest to the boundary: the likeliest to stay where it is when the store grows.
        moved = min(sides, key=lambda level: abs(level_position(level) - fraction))
        sides[moved] = TRAIN if sides[moved] == VALIDATION else VALIDATION
    assert split_by_task(levels, fraction) == [sides[level] for level in levels]


def test_the_position_of_a_level_is_pinned() -> None:
    """The split of every published level depends on this number."""
    assert level_position("####\n#@ #\n####") == 0.5014914281200618


@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
def test_no_level_of_a_store_is_on_both_sides(small_store: Path, env: str) -> None:
    sides_of = dict[str, set[str]]()
    for name in table_files(small_store, env):
        if schema_of(name) in (DATASET, DATASET_EPISODES):
            side = Path(name).name.split("-")[0]
            for row in read_rows(small_store, name):
                sides_of.setdefault(row["initial_state"], set()).add(side)
    assert len(sides_of) == 3
    assert all(len(sides) == 1 for sides in sides_of.values())


def _sides(store: Store, env: str) -> dict[str, str]:
    """The split of every episode of an environment, in order."""
    split = plan_split(store)
    shards = [shard for shard in store.config.shards() if shard.env == env]
    return {episode: side for shard in shards for episode, side in shard_sides(store, shard, split[shard]).items()}


def test_one_level_under_two_task_ids_is_on_one_side(small_store: Path, tmp_path: Path) -> None:
    root = copy_store(small_store, tmp_path / "store")
    name = [name for name in table_files(root, "frozenlake") if name.startswith("episodes/")][1]
    level = stored_rows(root, "frozenlake", "episodes/")[0]["initial_state"]
    other = read_rows(root, name)[0]["task_id"]
    change_rows(root, name, lambda rows: [row | {"initial_state": level} for row in rows])
    sides = _sides(Store.open(root), "frozenlake")
    shared = [row for row in stored_rows(root, "frozenlake", "episodes/") if row["initial_state"] == level]
    tasks = {row["task_id"] for row in shared}
    assert other in tasks and len(tasks) == 2
    assert len({sides[row["episode_id"]] for row in shared}) == 1


LAKES = [f"SFF\nF{a}{b}\n{c}FG" for a in "FH" for b in "FH" for c in "FH"]


def test_a_level_without_a_record_fills_no_side(small_store: Path, tmp_path: Path) -> None:
    """The failures of the only held-out level are refused: one of the other levels has to be held out."""
    root, env = copy_store(small_store, tmp_path / "store"), "frozenlake"
    level_of = {row["episode_id"]: row["initial_state"] for row in stored_rows(root, env, "episodes/")}
    first, second, *_ = sorted(set(level_of.values()), key=level_position)

    def refuse(rows: Rows) -> Rows:
        return [row | {"accepted": row["accepted"] and level_of[row["episode_id"]] != first} for row in rows]

    for name in (each for each in table_files(root, env) if each.startswith("labels/")):
        change_rows(root, name, refuse)
    config = Store.open(root).config
    between = (level_position(first) + level_position(second)) / 2
    sides = _sides(Store(root, config.model_copy(update={"validation_fraction": between})), env)
    kept = [row["episode_id"] for row in stored_rows(root, env, "labels/") if row["accepted"]]
    assert {sides[episode] for episode in kept} == {TRAIN, VALIDATION}


@pytest.mark.parametrize("split", ["task", "episode"])
def test_whole_episodes_follow_their_level(tmp_path: Path, split: str) -> None:
    """Episodes without a record do so, too, even of a level that records could move to the other split."""
    levels = [level for level in LAKES if level_position(FrozenLakeEnv.canonical_state(level)) >= 0.1]
    runs = {"frozenlake": {"tasks": len(levels), "settings": {}}}
    store = Store(tmp_path, make_config({"environments": runs, "split": split}))
    (shard,) = store.config.shards()
    no_episode: dict[str, Any] = dict.fromkeys(EPISODES.names)
    no_label: dict[str, Any] = dict.fromkeys(LABELS.names)
    episodes = [
        no_episode | {"episode_id": f"{place}/{kind}", "initial_state": level}
        for place, level in enumerate(levels)
        for kind in ("record", "success", "rejected", "infeasible")
    ]
    labels = [
        no_label
        | {"episode_id": row["episode_id"], "accepted": "rejected" not in row["episode_id"]}
        | {"infeasible_at_start": "infeasible" in row["episode_id"]}
        for row in episodes
        if "success" not in row["episode_id"]
    ]
    tables = {EPISODES: EPISODES.table(episodes), LABELS: LABELS.table(labels)}
    write_tables(store.storage, [(store.table_file(schema, shard), schema, table) for schema, table in tables.items()])
    sides = _sides(store, "frozenlake")
    assert list(sides) == [row["episode_id"] for row in episodes]
    records = [side for episode, side in sides.items() if "record" in episode]
    assert records.count(VALIDATION) == 1
    held_out = {episode.split("/")[0] for episode, side in sides.items() if side == VALIDATION}
    assert len(held_out) == 1
    if split == "task":
        (place,) = held_out
        assert {side for episode, side in sides.items() if episode.startswith(f"{place}/")} == {VALIDATION}
    else:
        assert sum(side == VALIDATION for side in sides.values()) == 1
