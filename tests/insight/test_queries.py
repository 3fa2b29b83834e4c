"""The queries of the docs run unchanged, and those with an answer in every store have one."""

import csv
import io
import re
from decimal import Decimal
from pathlib import Path

import pytest
from pivot.datasets.sql.database import DERIVED
from pivot.datasets.sql.views import query
from pivot.insight.stats import csv_text
from pivot.tests.stores import need_at_pivots

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/queries.md"
QUESTIONS = re.findall(r"^\*\*(\d+)\. .*?```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
MAY_BE_EMPTY = {"2", "15", "17", "18"}
"""Questions about errors, rejects, traps and inexact certificates: some policies and environments have none."""


def test_they_are_numbered_and_use_the_views() -> None:
    assert [number for number, _ in QUESTIONS] == [str(number) for number in range(1, 24)]
    used = {name for name in DERIVED for _, sql in QUESTIONS if re.search(rf"\b{name}\b", sql)}
    assert used >= set(DERIVED) - {"ends", "groups", "pivot_steps", "reject_kinds", "writers"}


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
        query(small_store, f"SELECT count({count}) FROM steps WHERE NOT action_valid")[1][0][0]
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


def test_a_text_in_csv_is_no_formula() -> None:
    row = ["=cmd|'/C calc'!A0", "+1", "-1", "@x", "\t=1", "a=b", -1, -1.5, Decimal(-2), None, ["=x"]]
    [names, cells] = csv.reader(io.StringIO(csv_text(["=name"] * len(row), [row])))
    assert names == ["'=name"] * len(row)
    assert cells == ["'=cmd|'/C calc'!A0", "'+1", "'-1", "'@x", "'\t=1", "a=b", "-1", "-1.5", "-2", "", '["=x"]']
