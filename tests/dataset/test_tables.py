"""Records to rows and back: nothing is lost, broken episodes, empty values and turns of several actions included."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pivot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.collage.layout import Box, make_layout, tile_box
from pivot.core.errors import PolicyError
from pivot.core.images import Frame, decode, frame_id
from pivot.core.plugins import Settings
from pivot.core.storage import LocalStorage
from pivot.datasets.export.base import LabelledShard
from pivot.datasets.export.dataset import DatasetExporter
from pivot.datasets.store.config import solver_type
from pivot.datasets.store.dataset_rows import FrameReader
from pivot.datasets.store.parquet import read_table, write_tables
from pivot.datasets.store.schema import CALLS, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, STORE_TABLES, TableSchema
from pivot.datasets.store.store import Store
from pivot.datasets.store.tables import (
    failed_episodes,
    rollout_tables,
    steps_by_episode,
    stored_rollouts,
    stored_verdict,
)
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import Policy, TaskRollouts
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.solvers.base import Case
from pivot.tests.corridor import CorridorConfig, CorridorEnv, CorridorPrompt
from pivot.tests.stores import Patient, Rows, build_small, change_rows, need_at_pivots, problems, read_rows

CONFIG = CorridorConfig(length=9, horizon=6)
TEXTS = ("plain", "", "ünï\u0000 \U0001f600 line\nbreak", '{"json": 1}')


class Moody(Policy):
    """Every kind of reply that a table must hold: with and without tokens, odd texts, and now and then none at all."""

    config_type = Settings
    name = "moody"

    @property
    def config(self) -> dict[str, Any]:
        return {}

    async def reply(self, turn: Turn) -> Reply:
        draw = turn.seed % 1000
        if draw < 80:
            raise PolicyError("the server said\nno ünï")
        text = f"<think>{TEXTS[draw % 4]}</think><action>{('left', 'right', 'right', 'jump')[draw // 4 % 4]}</action>"
        tokens = [None, (), (1, 2, 3), (7,)][draw // 16 % 4]
        logprobs = None if tokens is None or draw % 3 == 0 else tuple(-0.1 * token for token in tokens)
        call = {"cost": 0.5, "prompt_tokens": draw, "of_no_column": 1} if draw % 2 else {}
        return Reply(text, "length" if draw % 7 == 0 else "stop", tokens, logprobs, call)


@pytest.fixture(scope="module")
def rollouts() -> list[TaskRollouts]:
    """Ten tasks of six rollouts."""
    tasks = plan_tasks(CorridorEnv, CONFIG, 0, 10)
    return roll_out_tasks(CorridorEnv, CONFIG, tasks, Moody(), 6, run_id="run", prompt=CorridorPrompt())


@pytest.fixture(scope="module")
def tables(rollouts: list[TaskRollouts]) -> dict[TableSchema, pa.Table]:
    """Tables of the rollouts."""
    return rollout_tables(rollouts)


def test_tables_and_records_make_each_other(
    rollouts: list[TaskRollouts], tables: dict[TableSchema, pa.Table], tmp_path: Path
) -> None:
    stored = {}
    for schema, table in tables.items():
        write_tables(LocalStorage(tmp_path), [(f"{schema.name}.parquet", schema, table)])
        stored[schema] = read_table(LocalStorage(tmp_path), f"{schema.name}.parquet", schema)
    again = stored_rollouts(stored)
    assert [task.task for task in again] == [task.task for task in rollouts]
    for before, after in zip(rollouts, again, strict=True):
        assert after.episodes == before.episodes
        assert before.frames.items() <= after.frames.items()
        assert before.prompts.items() <= after.prompts.items()
    assert rollout_tables(again) == tables


def test_rows_stand_in_the_order_of_tasks_samples_and_steps(
    rollouts: list[TaskRollouts], tables: dict[TableSchema, pa.Table]
) -> None:
    episodes = tables[EPISODES].to_pylist()
    steps = tables[STEPS].to_pylist()
    assert [row["sample_idx"] for row in episodes] == [*range(6)] * 10
    place = {row["episode_id"]: index for index, row in enumerate(episodes)}
    order = [(place[row["episode_id"]], row["t"]) for row in steps]
    assert order == sorted(order)
    first_use = dict.fromkeys(key for row in steps for key in (row["frame_id"], row["next_frame_id"]))
    assert tables[FRAMES]["frame_id"].to_pylist() == list(first_use)
    assert tables[PROMPTS]["prompt_hash"].to_pylist() == list(dict.fromkeys(row["prompt_hash"] for row in steps))
    assert tables[CALLS].num_rows == sum(len(task.calls) for task in rollouts)


def test_rows_agree_with_each_other(tables: dict[TableSchema, pa.Table]) -> None:
    steps = steps_by_episode(tables[STEPS].to_pylist())
    for row in tables[EPISODES].to_pylist():
        mine = steps.get(row["episode_id"], [])
        assert row["num_steps"] == len(mine)
        assert row["actions"] == [step["action"] for step in mine]
        assert row["rewards"] == [step["reward"] for step in mine]
        assert row["episode_return"] == sum(row["rewards"], 0.0)
        complete = row["status"] == "complete"
        assert (row["failed"] is not None) == (row["success"] is not None) == complete
        assert (row["error"] is None) == complete
    for row in tables[FRAMES].to_pylist():
        assert frame_id(decode(row["image"])) == row["frame_id"]
        assert row["byte_size"] == len(row["image"])


def test_only_complete_failures_reach_the_labeller(tables: dict[TableSchema, pa.Table]) -> None:
    rows = {row["episode_id"]: row for row in tables[EPISODES].to_pylist()}
    steps = steps_by_episode(tables[STEPS].to_pylist())
    failures = failed_episodes(tables[EPISODES], tables[STEPS])
    assert [episode.episode_id for episode in failures] == [name for name, row in rows.items() if row["failed"]]
    assert 0 < len(failures) < len(rows)
    for episode in failures:
        mine = steps[episode.episode_id]
        assert rows[episode.episode_id]["status"] == "complete"
        assert episode.frame_ids == [*(step["frame_id"] for step in mine), mine[-1]["next_frame_id"]]
        assert [*episode.infos] == [json.loads(step["info"]) for step in mine]
        assert episode.num_steps == len(episode.rewards) == len(mine)


def test_a_stored_label_is_the_verdict(small_store: Path) -> None:
    store = Store.open(small_store)
    for shard in store.config.shards():
        episodes = {row["episode_id"]: row for row in store.read(EPISODES, shard).to_pylist()}
        for label in store.read(LABELS, shard).to_pylist():
            episode = episodes[label["episode_id"]]
            case = Case(episode["initial_state"], episode["actions"], episode["horizon"])
            assert solver_type(shard.env)().certify([case]) == [stored_verdict(label)]
            assert stored_verdict(label | {"fallback": True}).fallback


def _shows(row: dict[str, Any], tiles: list[Frame]) -> None:
    """Check that collage and panel show the frames before the actions, cut out tile by tile."""
    collage, panel = decode(row["images"][0]["bytes"]), decode(row["panel"]["bytes"])
    for t, tile in enumerate(tiles):
        assert np.array_equal(_cut(collage, tile_box(len(tiles), t, tile.shape)), tile)
    layout = make_layout(3, 1, tiles[0].shape, ("step 0",))
    for place, t in enumerate(range(row["pivot_step"] - 1, row["pivot_step"] + 2)):
        tile = tiles[t] if 0 <= t < len(tiles) else np.zeros_like(tiles[0])
        assert np.array_equal(_cut(panel, layout.tile(place)), tile)


def _cut(picture: Frame, box: Box) -> Frame:
    return picture[box.y : box.y + box.height, box.x : box.x + box.width]


def test_the_records_are_what_the_tables_say(small_store: Path) -> None:
    """A training row is its episode's, step's and label's cells, one by one."""
    labels = {row["episode_id"]: row for row in read_rows(small_store, "labels/v1/sokoban/00000.parquet")}
    episodes = {row["episode_id"]: row for row in read_rows(small_store, "episodes/sokoban/00000.parquet")}
    steps = steps_by_episode(read_rows(small_store, "steps/sokoban/00000.parquet"))
    store = Store.open(small_store)
    shard = store.config.shards()[0]
    frames = FrameReader(store.read(FRAMES, shard))
    made = DatasetExporter().tables(LabelledShard(store, shard, dict.fromkeys(episodes, "train")))
    by_name = {schema.name: table.to_pylist() for (schema, side), table in made.items() if side == "train"}
    records, whole = by_name["dataset"], by_name["dataset_episodes"]
    assert [row["episode_id"] for row in records] == [name for name, label in labels.items() if label["accepted"]]
    assert [row["episode_id"] for row in whole] == list(episodes)
    for row in records:
        label, episode = labels[row["episode_id"]], episodes[row["episode_id"]]
        for name in ("pivot_step", "failure_mode", "failure_reason", "certificate", "witness", "teacher"):
            assert row[name] == label[name]
        for name in ("task_id", "actions", "initial_state", "horizon", "num_steps", "episode_return", "policy"):
            assert row[name] == episode[name]
        assert row["completion"] == [{"role": "assistant", "content": [{"type": "text", "text": label["target"]}]}]
        parts = [part for message in row["prompt"] for part in message["content"]]
        assert sum(part["type"] == "image" for part in parts) == len(row["images"]) == 1
        assert all((part["text"] is None) == (part["type"] == "image") for part in parts)
        assert len(row["action_log"].splitlines()) == row["num_steps"]
        _shows(row, [frames.pixels(step["frame_id"]) for step in steps[row["episode_id"]]])
    for row in whole:
        mine = steps[row["episode_id"]]
        assert row["responses"] == [step["response"] for step in mine]
        shown = [frame_id(decode(image["bytes"])) for image in row["images"]]
        assert shown == [*(step["frame_id"] for step in mine), mine[-1]["next_frame_id"]]


def test_episodes_without_a_record_are_not_exported(small_store: Path, tmp_path: Path) -> None:
    """An episode that broke is in no config, and one that was lost before it began in no training set by default."""
    store = Store.open(small_store)
    shard = store.config.shards()[0]
    tables = {schema: store.read(schema, shard).to_pylist() for schema in (*STORE_TABLES, LABELS)}
    tables[EPISODES][0] |= {"status": "error", "failed": None, "success": None}
    tables[LABELS][-1]["infeasible_at_start"] = True
    broken, lost = tables[EPISODES][0]["episode_id"], tables[LABELS][-1]["episode_id"]
    copied = Store(tmp_path, store.config)
    for schema, rows in tables.items():
        write_tables(copied.storage, [(copied.table_file(schema, shard), schema, schema.table(rows))])
    prompts = read_table(store.storage, store.label_prompts_file(shard), PROMPTS)
    write_tables(copied.storage, [(copied.label_prompts_file(shard), PROMPTS, prompts)])

    def exported(include_infeasible: bool) -> dict[str, list[str]]:
        config = store.config.model_copy(update={"include_infeasible": include_infeasible})
        sides = {row["episode_id"]: "train" for row in tables[EPISODES]}
        made = DatasetExporter().tables(LabelledShard(Store(tmp_path, config), shard, sides))
        return {each.name: table["episode_id"].to_pylist() for (each, side), table in made.items() if side == "train"}

    default, with_lost = exported(False), exported(True)
    assert broken not in default["dataset"] + default["dataset_episodes"]
    assert lost not in default["dataset"]
    assert lost in default["dataset_episodes"]
    assert with_lost["dataset"] == [*default["dataset"], lost]


RUNS = {
    "sokoban": {"actions_per_turn": 3, "horizon": 5, "min_solution": 4, "max_solution": 13},
    "frozenlake": {"actions_per_turn": 5, "horizon": 5, "size": 6},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {name: {"tasks": 3, "settings": settings} for name, settings in RUNS.items()}
    return build_small(tmp_path_factory.mktemp("turns") / "store", environments=runs)


def _exported(store: Path, out: Path, kind: str) -> Rows:
    pivot.export(store, out, format=kind)
    return [row for path in out.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]


def test_a_store_of_long_turns_verifies(store: Path, tmp_path: Path) -> None:
    labels, agreeing = need_at_pivots(store)
    assert labels == agreeing > 20
    assert problems(store) == []
    late = [row for row in _exported(store, tmp_path / "out", "privileged") if row["failure_mode"] == "timeout"]
    assert late and all("(the goal could still be reached, but not within" in row["privileged_context"] for row in late)


def _another_turn(rows: Rows) -> None:
    next(row for row in rows if row["pivot_step"])["pivot_step"] -= 1


def _another_need(rows: Rows) -> None:
    next(row for row in rows if row["accepted"])["certificate"]["before"] += 1


def _single_actions(rows: Rows) -> None:
    row = next(row for row in rows if row["witness"] and "|" in row["witness"][0])
    row["witness"] = [action for turn in row["witness"] for action in turn.split("|")]


def _unsafe_turn(rows: Rows) -> None:
    next(row for row in rows if row["accepted"])["feasible_actions"].append("up|up")


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("lie", [_another_turn, _another_need, _single_actions, _unsafe_turn])
def test_a_planted_lie_about_turns_is_found(store: Path, tmp_path: Path, lie: Callable[[Rows], None]) -> None:
    patient = Patient(store, tmp_path / "store")
    files = [patient.file(env, "labels") for env in RUNS]
    for name in files:
        change_rows(patient.root, name, lie)
    messages = [each for each in patient.found() if "prover gives" in each or "the witness" in each]
    for name in files:
        assert any(row["episode_id"] in problem for row in read_rows(store, name) for problem in messages), name


def _chosen(store: Path, out: Path) -> list[tuple[str, str, int | None]]:
    """Return each chosen reply of the pairs of FrozenLake, with episode and step of the log that it comes from."""
    rows = _exported(store, out, "pairs")
    mine = [row for row in rows if row["env"] == "frozenlake" and row["sibling_id"]]
    return [(row["chosen"][0]["content"][0]["text"], row["sibling_id"], row["sibling_t"]) for row in mine]


def test_a_reply_of_which_a_word_was_dropped_is_not_taught(store: Path, tmp_path: Path) -> None:
    """A reply that the log reads as a safe turn, in spite of a word outside the actions, is never chosen."""
    patient = Patient(store, tmp_path / "store")
    chosen, *place = _chosen(patient.root, tmp_path / "before")[0]

    def spoil(rows: Rows) -> None:
        (step,) = (each for each in rows if [each["episode_id"], each["t"]] == place)
        assert step["response"] == chosen
        step["response"] = chosen.replace("<action>", "<action>go on, ")

    change_rows(patient.root, patient.file("frozenlake", "steps"), spoil)
    after = _chosen(patient.root, tmp_path / "after")
    assert after and not any("go on" in text for text, *_ in after)
