"""`pivot top` and the first page show instructive failures: facts recounted from the tables, diverse, and readable."""

import contextlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pivot.cli import app
from pivot.core.images import decode
from pivot.core.storage import LocalStorage
from pivot.datasets.sql.views import connect, query, run_query
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.store import Store
from pivot.insight.top import instructive, reasons
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.stores import change_rows, copy_store, rewrite_manifest, table_files
from typer.testing import CliRunner


@pytest.fixture(scope="module")
def facts(small_store: Path) -> dict[str, dict[str, Any]]:
    """The instructive failures, counted one by one from the tables."""
    frames = load_store(small_store)
    episodes = {row["episode_id"]: row for row in frames.episodes.collect().to_dicts()}
    states: dict[str, dict[int, str]] = {}
    for row in frames.steps.select("episode_id", "t", "state").collect().to_dicts():
        states.setdefault(row["episode_id"], {})[row["t"]] = row["state"]
    made = {}
    for label in frames.labels.filter(pl.col("accepted")).collect().to_dicts():
        name, pivot = label["episode_id"], label["pivot_step"]
        if label["fallback"] or label["infeasible_at_start"]:
            continue
        group = [
            each
            for each, row in episodes.items()
            if row["group_id"] == episodes[name]["group_id"] and not row["failed"]
        ]
        here = [each for each in group if states[name][pivot] in states[each].values()]
        slack = label["certificate"]["budget_before"] - label["certificate"]["before"]
        merits = sum([slack >= 1, len(label["feasible_actions"]) == 1, bool(group), bool(here)])
        made[name] = {"slack": slack, "solved_by": len(group), "solved_from_here": len(here), "merits": merits}
    return made


def test_the_view_says_what_the_tables_say(small_store: Path, facts: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    names, rows = query(small_store, "FROM instructive")
    viewed = {row[names.index("episode_id")]: dict(zip(names, row, strict=True)) for row in rows}
    assert {name: {key: row[key] for key in facts[name]} for name, row in viewed.items()} == facts
    assert len({each["merits"] for each in facts.values()}) > 2
    assert any(each["solved_from_here"] for each in facts.values())
    for name in "ab":
        copy_store(small_store, tmp_path / name)
    sums = "SELECT count(*), sum(solved_by), (SELECT count(*) FROM failures) FROM instructive"
    assert query(tmp_path, sums)[1] == [tuple(2 * each for each in query(small_store, sums)[1][0])]


def test_failures_are_chosen_one_by_one_for_merits_that_no_other_shares(
    small_store: Path, facts: dict[str, dict[str, Any]]
) -> None:
    chosen = instructive(small_store, 6)
    assert chosen[0]["merits"] == max(each["merits"] for each in facts.values())
    assert len({row["episode_id"] for row in chosen}) == 6
    assert {row["env"] for row in chosen} == {"sokoban", "frozenlake"}
    seen: Counter[tuple[str, str]] = Counter()
    worths = []
    for row in chosen:
        keys = [(name, f"{row['env']} {row[name]}") for name in ("env", "failure_mode", "pivot_step", "task_id")]
        worths.append(row["merits"] - sum(seen[key] for key in keys))
        seen.update(keys)
    assert worths == sorted(worths, reverse=True)
    assert {row["env"] for row in instructive(small_store, 3, ["sokoban"])} == {"sokoban"}
    assert len(instructive(small_store, 1000)) == len(facts)


@pytest.mark.parametrize("change", [{"kind": "convention"}, {"reference_kind": "exact", "reference_before": 99.0}])
def test_a_pivot_that_lost_nothing_within_reach_is_not_instructive(
    small_store: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    store = copy_store(small_store, tmp_path / "store")
    for name in (name for env in ("sokoban", "frozenlake") for name in table_files(store, env) if "labels/" in name):
        change_rows(store, name, lambda rows: [row | {"certificate": row["certificate"] | change} for row in rows])
    rewrite_manifest(store)
    assert instructive(store, 1) == []


def test_reasons_are_words() -> None:
    row = {"slack": 2.0, "safe_actions": ["up"], "solved_by": 3, "solved_from_here": 1}
    assert reasons(row) == "2 turns to spare; only up was safe; solved by 3 other rollouts, 1 of them from this state"
    row = {"slack": 0.0, "safe_actions": ["up", "left"], "solved_by": 1, "solved_from_here": 1}
    assert reasons(row) == "no turn to spare; 2 actions were safe; solved by 1 other rollout from this state"
    assert reasons({"slack": None, "safe_actions": None, "solved_by": 0, "solved_from_here": 0}) == ""


def test_the_command_names_each_failure_and_draws_all(small_store: Path, tmp_path: Path) -> None:
    shown = run("top", small_store, "-n", "2", "--png", tmp_path / "top.png")
    assert re.search(r"^1\. \w+: \w+ at step \d of 0 to \d, by \w+$", shown, re.MULTILINE)
    ids = re.findall(r"^ +pivot peek \S+ (episode-\S+)$", shown, re.MULTILINE)
    assert ids == [row["episode_id"] for row in instructive(small_store, 2)]
    picture = decode((tmp_path / "top.png").read_bytes())
    assert picture.shape[0] > picture.shape[1] / 2 and picture.max() > picture.min()


def test_settings_and_slack_are_columns_of_failures(small_store: Path) -> None:
    columns = "env, boxes, size, box_on_reward, actions_per_turn, slack, certificate"
    for env, *settings, moves, slack, certificate in query(small_store, f"SELECT {columns} FROM failures")[1]:
        assert (settings, moves) == ([1, None, 1.0] if env == "sokoban" else [None, 4, None], 1)
        assert slack == certificate["budget_before"] - certificate["before"]
    sql = "SELECT failure_mode FROM failures WHERE pivot_step = 3 AND boxes = 1 GROUP BY 1 ORDER BY count(*) DESC"
    assert query(small_store, sql)[1]


@pytest.mark.parametrize("written", [True, False], ids=["while it is built", "after it ended early"])
def test_an_unfinished_store_is_shown(small_store: Path, tmp_path: Path, written: bool) -> None:
    """Only finished shards are shown, and each command says so."""
    store = copy_store(small_store, tmp_path / "store")
    (store / "manifest.json").unlink()
    shards = Store.open(store, complete=False).config.shards()
    first = next(shard for shard in shards if shard.env == "sokoban")
    for shard in shards:
        if shard != first:
            (store / f".receipts/rollout/{shard.stem}.json").unlink()
            (store / f"steps/{shard.file}").write_bytes(b"half of a fi")
    mark = "it is being built" if written else "its build ended early: pivot build --out"
    counts = pl.read_parquet(small_store / f"episodes/{first.file}")
    with LocalStorage(store).lock() if written else contextlib.nullcontext():
        for line in (("stats",), ("top",), ("peek",), ("view", "--out", str(tmp_path / "site"))):
            result = CliRunner().invoke(app, [line[0], str(store), *line[1:]], catch_exceptions=False)
            assert f"1 of {len(shards)} shards of {store} are played and 1 labelled; {mark}" in result.stderr, line
        sql = "SELECT env, count(*)::INT FROM episodes GROUP BY 1"
        with connect(store, [sql], unfinished=True) as connection:
            assert run_query(store, connection, sql)[1] == [("sokoban", len(counts))]
        error = error_of("compare", store, small_store)
        assert "manifest.json: its build did not finish" in str(error)
    record = json.loads((tmp_path / "site" / "contents.json").read_text())
    assert record["count"] == len(counts) and mark in record["unfinished"]
    (store / f".receipts/rollout/{first.stem}.json").unlink()
    assert "no shard of" in str(error_of("stats", store))
