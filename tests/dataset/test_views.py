"""Statistics by SQL: groups of eight, the paper's pooled rates; every view documented."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pivot.datasets.sql.database import DERIVED, create_views
from pivot.datasets.sql.views import VIEWS, query
from pivot.datasets.store.schema import CALLS, EPISODES, FRAMES, LABELS, PROMPTS, STEPS
from pivot.docs.assets.reference_pages import ALL_TABLES, reference, with_reference

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/store.md"
EMPTY: dict[str, Any] = dict.fromkeys(EPISODES.names)
Rows = Sequence[dict[str, Any]]
GROUPS = ("blocks", "groups")


class Planted:
    """The views over tables that a test made up."""

    def __init__(self, episodes: Rows, labels: Rows = (), derived: Iterable[str] = DERIVED) -> None:
        self._connection = duckdb.connect()
        tables = {"episodes": EPISODES.table(episodes), "labels": LABELS.table(labels)}
        tables |= {schema.name: schema.table([]) for schema in (STEPS, FRAMES, PROMPTS, CALLS)}
        for name, table in tables.items():
            self._connection.register(f"arrow_{name}", table)
            self._connection.execute(f"CREATE TABLE planted_{name} AS SELECT * FROM arrow_{name}")
        create_views(self._connection, {name: f"planted_{name}" for name in tables}, derived)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The result of a query, row by row."""
        result = self._connection.execute(sql)
        names = [column[0] for column in result.description or []]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _episode(number: int, returns: float | None, group: str = "g", **fields: Any) -> dict[str, Any]:
    """An episode row; a return of None is an episode that ended in an error, one of at least 1 a success."""
    complete = returns is not None
    return (
        EMPTY
        | {"episode_id": f"{group}/{number}", "run_id": "run", "env": "sokoban", "group_id": group, "task_id": group}
        | {"sample_idx": number, "status": "complete" if complete else "error", "episode_return": returns or 0.0}
        | {"success": returns >= 1 if complete else None, "failed": returns < 1 if complete else None}
        | fields
    )


def _group(env: str, name: str, all_fail: bool, sigma0: bool) -> list[dict[str, Any]]:
    returns = [0.1] * 8 if sigma0 else [0.1 * number for number in range(8)]
    if not all_fail:
        returns = [value + 1.0 if sigma0 or number == 0 else value for number, value in enumerate(returns)]
    return [_episode(number, value, name, env=env) for number, value in enumerate(returns)]


PAPER = {
    # environment: groups, share of groups without a success, share of groups whose returns agree
    "sokoban": (180, 48.3, 48.3),
    "frozenlake": (216, 39.4, 0.0),
    "navigation": (120, 5.8, 0.0),
    "primitiveskill": (364, 46.2, 16.5),
    "svg": (216, 99.5, 0.9),
}


def test_the_pooled_rates_of_the_paper() -> None:
    """Rates of its table, from whole numbers of groups; pooled by groups they are 51.3 % and 13.6 %."""
    episodes = []
    for env, (groups, all_fail, sigma0) in PAPER.items():
        failing, equal = round(groups * all_fail / 100), round(groups * sigma0 / 100)
        for number in range(groups):
            episodes += _group(env, f"{env} {number}", number < failing, number < equal)
    rates = {row["env"]: row for row in Planted(episodes).rows("SELECT * FROM group_rates")}
    assert list(rates) == [*sorted(PAPER), "pooled"]
    for env, (groups, all_fail, sigma0) in PAPER.items():
        assert rates[env]["groups"] == groups
        assert round(100 * rates[env]["all_fail_rate"], 1) == all_fail
        assert round(100 * rates[env]["sigma0_rate"], 1) == sigma0
    pooled = rates["pooled"]
    assert (pooled["groups"], pooled["episodes"], pooled["short_blocks"]) == (1096, 8768, 0)
    assert round(100 * pooled["all_fail_rate"], 1) == 51.3
    assert round(100 * pooled["sigma0_rate"], 1) == 13.6


def test_blocks_are_cut_in_order_of_sample_index() -> None:
    episodes = [_episode(number, 1.0 + number % 2 if number < 8 else 0.0) for number in range(16)]
    sql = "SELECT successes, mean_return, std_return FROM groups ORDER BY block"
    groups = Planted(list(reversed(episodes)), derived=GROUPS).rows(sql)
    assert [tuple(row.values()) for row in groups] == [(8, 1.5, 0.5), (0, 0.0, 0.0)]


def test_errors_are_in_no_group() -> None:
    episodes = [_episode(number, None if number in (2, 5) else 0.0) for number in range(10)]
    (group,) = Planted(episodes, derived=GROUPS).rows("SELECT * FROM groups")
    assert (group["all_fail"], group["mean_return"]) == (True, 0.0)
    (rates,) = Planted(episodes[:9]).rows("SELECT * FROM group_rates WHERE env = 'sokoban'")
    assert (rates["groups"], rates["short_blocks"], rates["episodes"], rates["all_fail_rate"]) == (0, 1, 7, None)


@pytest.mark.parametrize("field", ["run_id", "group_id", "env", "policy", "policy_config", "env_config"])
def test_groups_never_cross(field: str) -> None:
    """Half of the rollouts belongs to another run, prompt key, policy or settings."""
    episodes = [_episode(number, number % 2, **{field: f"{number % 2}"}) for number in range(16)]
    assert Planted(episodes[:14], derived=GROUPS).rows("SELECT * FROM groups") == []
    groups = Planted(episodes, derived=GROUPS).rows("SELECT * FROM groups")
    assert sorted(row["successes"] for row in groups) == [0, 8]


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        *((0.3, 0.3, True), (0.3, 0.1 + 0.2, True), (0.3, 0.3 + 4e-9, True), (0.0, -1e-12, True)),
        *((0.3, 0.3 + 2e-8, False), (0.3, 0.3 - 2e-8, False)),
    ],
)
def test_returns_agree_at_eight_decimals_and_zero_has_no_sign(one: float, other: float, agree: bool) -> None:
    planted = Planted([_episode(number, other if number == 3 else one) for number in range(8)], derived=GROUPS)
    assert planted.rows("SELECT sigma0 FROM groups") == [{"sigma0": agree}]


def test_labels_without_a_pivot_have_no_mode_and_no_step() -> None:
    empty: dict[str, Any] = dict.fromkeys(LABELS.names)
    labels = [empty | {"episode_id": f"g/{number}", "pivot_step": step} for number, step in enumerate((0, None))]
    rows = Planted([_episode(0, 0.0), _episode(1, 0.0)], labels).rows("SELECT pivot_step, share FROM modes_by_step")
    assert rows == [{"pivot_step": 0, "share": 1.0}]


def test_views_of_nothing() -> None:
    planted = Planted([])
    for view in VIEWS:
        assert all(row["env"] == "pooled" for row in planted.rows(f"SELECT * FROM {view}"))


# The documentation


@pytest.fixture(scope="module")
def columns(small_store: Path) -> Iterator[dict[str, list[str]]]:
    """The columns of every view, from DuckDB."""
    yield {view: query(small_store, f"SELECT * FROM {view} LIMIT 0")[0] for view in VIEWS}


def test_the_committed_page_is_what_the_schema_gives() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_reference(page) == page, "run: make docs"
    for schema in ALL_TABLES:
        section = reference().split(f"### {schema.name}\n")[1].split("\n### ")[0]
        rows, elsewhere = (
            re.findall(pattern, section, flags=re.MULTILINE)
            for pattern in (r"^- `(\w+)` \(.+?\): .+\.$", r"^As in `\w+`: (.*)\.$")
        )
        named = [*rows, *re.findall(r"`(\w+)`", " ".join(elsewhere))]
        assert sorted(named) == sorted(schema.names), f"{schema.name}: each column once"
        assert rows == [name for name in schema.names if name in rows]


def test_every_view_and_its_columns_are_documented(columns: dict[str, list[str]]) -> None:
    plain = reference().partition("show all shards of the table of that name:")[0].rpartition("The views ")[2]
    bases = reference().partition("show all shards of the table of that name:")[2].partition("Columns that many")[0]
    for view in VIEWS:
        headed = f"### View {view}\n" in reference()
        assert headed if view in DERIVED else f"`{view}`" in plain + bases, view
    for name, view in DERIVED.items():
        assert view.doc.endswith(".")
        if view.columns:
            assert list(view.columns) == columns[name]
    assert set(columns["groups"]) < set(DERIVED["blocks"].columns)
    own = [*LABELS.names, *EPISODES.names[1:], "slack"]
    assert columns["failures"][: len(own)] == own
    assert {"boxes", "size", "levels"} & {*columns["failures"][len(own) :]} == {"boxes", "size"}
    for schema in (EPISODES, STEPS, FRAMES, PROMPTS, CALLS, LABELS):
        assert columns[schema.name] == list(schema.names)


EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=("pivot", "duckdb", "polars", "pandas"))
def test_a_python_example_runs(example: str, small_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "pandas" in example:
        pytest.importorskip("pandas")
    assert "runs/demo" in example
    exec(compile(example.replace("runs/demo", str(small_store)), PAGE.name, "exec"), {})
    assert "sokoban" in (shown := capsys.readouterr().out) or "deadlock" in shown
