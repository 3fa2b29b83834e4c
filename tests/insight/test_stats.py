"""Every summary of a store against pandas, on 20,000 random episodes; the queries of the docs run unchanged."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pivot.benchmarks.bench_stats import make_store
from pivot.core.storage import LocalStorage, Storage
from pivot.datasets.sql import views
from pivot.datasets.sql.database import DERIVED
from pivot.datasets.sql.views import connect, query, run_query
from pivot.datasets.store.schema import EPISODES as EPISODES_TABLE
from pivot.datasets.store.schema import LABELS, TableSchema
from pivot.datasets.store.store import Store
from pivot.insight.stats import SUMMARY, csv_text, in_order
from pivot.tests.stores import need_at_pivots

EPISODES = 20_000


@pytest.fixture(scope="module")
def big(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of random rows, some of them errors, some rejected."""
    return make_store(
        tmp_path_factory.mktemp("big") / "store", Store.open(small_store), EPISODES, 400
    ).storage.local_path()


@pytest.fixture(scope="module")
def frames(big: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The episodes, and the failures with the fields of their certificates."""
    episodes = pd.concat(map(pd.read_parquet, sorted((big / "episodes").glob("*/*.parquet"))))
    labels = pd.concat(map(pd.read_parquet, sorted((big / "labels").glob("*/*/*.parquet"))))
    failures = labels.merge(episodes, on="episode_id")
    for name in ("unit", "budget_before", "before", "kind", "reference_pivot"):
        failures[name] = [each[name] for each in failures.certificate]
    failures["slack"] = failures.budget_before - failures.before
    failures["after"] = failures.num_steps - 1 - failures.pivot_step
    failures["lead"] = failures.after / failures.num_steps
    return episodes, failures


def _views(root: Path) -> dict[str, list[dict[str, Any]]]:
    with connect(root, [each.view for each in SUMMARY]) as connection:
        results = {each.view: run_query(root, connection, f"FROM {each.view}") for each in SUMMARY}
    return {view: [dict(zip(names, row, strict=True)) for row in rows] for view, (names, rows) in results.items()}


def _same(rows: list[dict[str, Any]], expected: Any, keys: list[str]) -> None:
    """Compare the columns of ``expected``, a frame indexed by ``keys``, row by row."""
    frame = pd.DataFrame(rows).set_index(keys).sort_index()
    expected = expected.sort_index()
    assert list(frame.index) == list(expected.index)
    for name in expected:
        assert np.allclose(frame[name].astype(float), expected[name].astype(float)), name


@pytest.mark.parametrize("at_once", [1, 5_000, 10**9], ids=["shard by shard", "some at once", "all at once"])
def test_every_summary_is_that_of_pandas(
    big: Path, frames: tuple[pd.DataFrame, pd.DataFrame], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a wrong summary, also where shards are read in parts."""
    monkeypatch.setattr(views, "_EPISODES_AT_ONCE", at_once)
    summaries = _views(big)
    episodes: Any = frames[0]
    lost: Any = frames[1]
    complete = episodes[episodes.status == "complete"].sort_values(["group_id", "sample_idx"])
    assert len(complete) < len(episodes) == EPISODES

    groups = complete.groupby(["env", "group_id"]).agg(
        n=("env", "size"), all_fail=("failed", "all"), returns=("episode_return", lambda some: some.round(8).nunique())
    )
    whole = groups[groups.n == 8].reset_index()
    rates = pd.DataFrame(
        {
            "episodes": complete.groupby("env").size(),
            "success_rate": 1 - complete.failed.astype(float).groupby(complete.env).mean(),
            "groups": whole.groupby("env").size(),
            "dropped": groups[groups.n < 8].groupby("env").n.sum(),
            "all_fail_rate": whole.groupby("env").all_fail.mean(),
            "sigma0_rate": (whole.returns == 1).groupby(whole.env).mean(),
        }
    )
    rates.loc["pooled"] = [
        len(complete),
        1 - complete.failed.astype(float).mean(),
        len(whole),
        groups[groups.n < 8].n.sum(),
        whole.all_fail.mean(),
        (whole.returns == 1).mean(),
    ]
    _same(summaries["group_rates"], rates, ["env"])
    broke = episodes[episodes.status != "complete"].groupby(["env", "status", "stop_reason"])
    _same(summaries["incomplete"], broke.agg(episodes=("env", "size")), ["env", "status", "stop_reason"])

    def shares(keys: list[str], of: Any, **more: Any) -> pd.DataFrame:
        table = of.groupby(keys).agg(failures=("env", "size"), **more)
        table["share"] = table.failures / of.groupby("env").size().reindex(table.index, level="env")
        return table

    modes = shares(["env", "failure_mode"], lost, mean_pivot=("pivot_step", "mean"), mean_steps=("num_steps", "mean"))
    _same(summaries["modes"], modes, ["env", "failure_mode"])
    steps = ["env", "failure_mode", "pivot_step"]
    _same(summaries["modes_by_step"], shares(steps, lost), steps)
    _same(summaries["slack_at_pivot"], shares(["env", "slack"], lost[lost.slack.notna()]), ["env", "slack"])
    shown = query(big, next(each.shown for each in SUMMARY if each.view == "slack_at_pivot"))[1]
    means = lost[lost.slack.notna()].groupby(["env", "unit"]).slack.mean()
    assert {row[:2]: row[3] for row in shown} == pytest.approx(means.to_dict(), abs=0.006)
    savings = lost.groupby("env").agg(
        failures=("env", "size"), turns=("num_steps", "sum"), turns_after=("after", "sum"), mean_lead=("lead", "mean")
    )
    _same(summaries["savings"], savings.assign(saved=savings.turns_after / savings.turns), ["env"])
    rejected = lost[~lost.accepted].groupby("env").agg(labels=("env", "size"))
    _same(summaries["reject_kinds"], rejected, ["env"])
    lost = lost.assign(characters=lost.failure_reason.str.len())
    writers = lost.groupby(["env", "teacher"]).agg(
        labels=("env", "size"), accepted_rate=("accepted", "mean"), mean_characters=("characters", "mean")
    )
    _same(summaries["writers"], writers.rename_axis(["env", "writer"]), ["env", "writer"])
    evidence = lost.assign(evidence=lost.evidence.map(", ".join)).groupby(["env", "evidence"])
    evidence = evidence.agg(labels=("env", "size"), accepted=("accepted", "sum"))
    _same(summaries["evidence"], evidence, ["env", "evidence"])
    proofs = lost.groupby("env").agg(failures=("env", "size"), proved=("proved", "sum"))
    _same(summaries["proofs"], proofs, ["env"])
    assert summaries["bound_quality"] == []


def test_a_summary_reads_every_file_once_and_no_column_that_no_view_names(
    big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, columns, read, of_files = Counter[str](), set[str](), LocalStorage.open, views.read_files

    def counted(self: LocalStorage, name: str) -> IO[bytes]:
        opened[name] += 1
        return read(self, name)

    def noted(
        storage: Storage, names: Sequence[str], schema: TableSchema, chosen: Sequence[str], *more: Any
    ) -> pa.Table:
        columns.update(chosen)
        return of_files(storage, names, schema, chosen, *more)

    monkeypatch.setattr(LocalStorage, "open", counted)
    monkeypatch.setattr(views, "read_files", noted)
    monkeypatch.setattr(views, "_EPISODES_AT_ONCE", 5_000)
    _views(big)
    store = Store.open(big)
    tables = {name: times for name, times in opened.items() if name.endswith(".parquet")}
    assert tables == dict.fromkeys([*store.files(EPISODES_TABLE), *store.files(LABELS)], 1)
    assert columns >= {"episode_return", "certificate"}
    assert columns.isdisjoint({"actions", "initial_state", "target", "witness", "image_hashes"})


def test_a_view_is_the_same_whatever_else_is_asked_for(small_store: Path) -> None:
    for view in ("modes", "pivots", "groups", "rejects"):
        with (
            connect(small_store, [view]) as alone,
            connect(small_store, [*views.VIEWS]) as among,
            connect(small_store, []) as unread,
        ):
            count = f"SELECT count(*), count(DISTINCT COLUMNS(*)) FROM {view}"
            answers = [run_query(small_store, each, count) for each in (alone, among, unread)]
        assert answers[0] == answers[1] == answers[2]
    shown = {name for (name,) in query(small_store, "SHOW TABLES")[1]}
    assert {name for name in shown if not name.endswith("_files")} == set(views.VIEWS)


PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/queries.md"
QUESTIONS = re.findall(r"^\*\*(\d+)\. .*?```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
MAY_BE_EMPTY = {"2", "15", "17", "18"}
"""Queries about errors, rejects, traps and inexact certificates, which some policies and environments lack."""


def test_they_are_numbered_and_use_the_views() -> None:
    assert [number for number, _ in QUESTIONS] == [str(number) for number in range(1, 24)]
    used = {name for name in DERIVED for _, sql in QUESTIONS if re.search(rf"\b{name}\b", sql)}
    assert used >= set(DERIVED) - {"ends", "groups", "instructive", "pivot_steps", "reject_kinds", "writers"}


@pytest.mark.parametrize(("number", "sql"), QUESTIONS, ids=[number for number, _ in QUESTIONS])
def test_a_question_is_answered(number: str, sql: str, small_store: Path) -> None:
    names, rows = query(small_store, sql)
    assert len(set(names)) == len(names) >= 2
    assert rows or number in MAY_BE_EMPTY


def test_some_answers_are_right(small_store: Path) -> None:
    statements = dict(QUESTIONS)
    failures = dict(query(small_store, "SELECT env, count(*) FROM pivots GROUP BY env")[1])
    for number, column in (("9", 2), ("12", 3), ("13", 2)):
        counted: dict[str, int] = {}
        for row in query(small_store, statements[number])[1]:
            counted[row[0]] = counted.get(row[0], 0) + row[column]
        assert counted == failures, number
    turns = query(small_store, "SELECT count(*) FROM steps")[1][0][0]
    assert sum(row[3] for row in query(small_store, statements["22"])[1]) == turns
    complete = query(small_store, "SELECT count(*) FROM episodes WHERE status = 'complete'")[1][0][0]
    assert sum(row[2] for row in query(small_store, statements["19"])[1]) == complete
    assert sum(row[3] for row in query(small_store, statements["5"])[1]) == turns
    episodes, unusable = (
        query(small_store, f"SELECT count({count}) FROM steps WHERE action = 'invalid'")[1][0][0]
        for count in ("DISTINCT episode_id", "*")
    )
    rows = query(small_store, statements["5"])[1]
    assert (sum(row[2] for row in rows if row[1]), sum(row[4] for row in rows)) == (episodes, unusable)


def test_the_need_of_a_step_is_that_of_the_certificate(small_store: Path) -> None:
    pivots, agreeing = need_at_pivots(small_store)
    assert pivots == agreeing > 0
    starts = "FROM steps s JOIN episodes e USING (episode_id) WHERE t = 0 AND need IS DISTINCT FROM optimal_start"
    assert query(small_store, f"SELECT count(*) {starts}")[1] == [(0,)]


def test_frames_and_prompts_are_one_row_each(small_store: Path) -> None:
    for view, key in (("frames", "frame_id"), ("prompts", "prompt_hash")):
        (counted,) = query(small_store, f"SELECT count(*), count(DISTINCT {key}) FROM {view}")[1]
        assert counted[0] == counted[1] > 0
    pictures = "SELECT count(*) FROM frames WHERE octet_length(image) <> byte_size"
    assert query(small_store, pictures)[1] == [(0,)]


def test_the_usual_step_is_the_first_of_the_most_frequent_ones(small_store: Path) -> None:
    sql = dict(QUESTIONS)["15"].replace("FROM pivots", "FROM rows").replace(">= 3", ">= 1")
    for order in ("", " DESC"):
        values = "(VALUES (4), (2), (2), (4), (9)) AS made(pivot_step)"
        rows = f"WITH rows AS (SELECT 'a' AS env, 'b' AS task_id, * FROM {values} ORDER BY pivot_step{order})"
        assert query(small_store, f"{rows} {sql}")[1] == [("a", "b", 5, 3, 2)]


def test_slack_in_moves_and_in_turns_is_summed_apart(small_store: Path) -> None:
    rows = "('moves', 0, 19), ('moves', 2, 9), ('turns', 0, 15), ('turns', 1, 11)"
    made = f"(SELECT 'a' AS env, failures / 54 AS share, * FROM (VALUES {rows}) AS made(unit, slack, failures))"
    shown = next(each.shown for each in SUMMARY if each.view == "slack_at_pivot")
    answer = query(small_store, shown.replace("slack_at_pivot", made))[1]
    assert sorted((row[1], row[-1]) for row in answer) == [("moves", 67.9), ("turns", 57.7)]


def test_columns_of_steps_are_in_numerical_order() -> None:
    assert in_order(["10", "env", "2"], [(10, "sokoban", 2)]) == (["env", "2", "10"], [["sokoban", 2, 10]])


def test_a_text_in_csv_is_no_formula() -> None:
    row = ["=cmd|'/C calc'!A0", "+1", "-1", "@x", "\t=1", "a=b", -1, -1.5, Decimal(-2), None, ["=x"]]
    [names, cells] = csv.reader(io.StringIO(csv_text(["=name"] * len(row), [row])))
    assert names == ["'=name"] * len(row)
    assert cells == ["'=cmd|'/C calc'!A0", "'+1", "'-1", "'@x", "'\t=1", "a=b", "-1", "-1.5", "-2", "", '["=x"]']
