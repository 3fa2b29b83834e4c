"""Commands that read a store, the end of a build, and doctor."""

import csv
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image
from pivot.cli import app
from pivot.cli.results import PENDING, show_result
from pivot.core import plugins
from pivot.core.errors import PivotError, PluginError
from pivot.datasets.sql.views import query
from pivot.datasets.store.nights import load_store
from pivot.flows.pipeline import COUNTS, BuildResult
from pivot.insight.stats import SUMMARY
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import config_of, files_of
from pivot.tests.stores import built_once, change_rows, copy_store, rewrite_manifest
from typer.testing import CliRunner

built = built_once(config_of({"sokoban": 2, "frozenlake": 2}))


@pytest.mark.parametrize(
    ("missing", "group", "name"),
    [("ray", "engines", "ray"), ("distributed", "engines", "dask"), ("transformers", "models", "transformers")],
)
def test_doctor_says_that_a_package_is_missing(
    missing: str, group: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["pivot.cli.doctor"]
    monkeypatch.setattr(module, "installed", lambda package: package != missing)
    rows, broken = module._plugins()
    states = {name: (str(state), str(fix)) for kind, name, state, fix in rows if str(kind) == group}
    assert not broken
    assert states.pop(name) == ("missing", f"needs {missing}: pip install 'pivot-vlm[{name}]'")
    assert set(states.values()) == {("ok", "")}


def test_the_hint_of_peek_can_be_pasted(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = Path(shutil.copytree(built, "it's $HOME"))
    hint = next(line for line in run("peek", root).splitlines() if line.startswith("see it: pivot "))
    words = shlex.split(hint.removeprefix("see it: pivot "))
    assert words[1] == str(root)
    assert "picture: failure.png" in run(*words)


# Stats


def test_pivot_steps_are_aligned_at_any_width(built: Path) -> None:
    shown = run("stats", built)
    assert "row 1 of" not in shown
    counted = query(built, "SELECT env, pivot_step, sum(failures)::INT FROM modes_by_step GROUP BY ALL ORDER BY ALL")[1]
    for env in ("frozenlake", "sokoban"):
        table = re.split(rf"Pivot step: {env} *\n", shown)[1].split("└")[0]
        rows = [[int(cell) for cell in re.findall(r"\d+", line)] for line in table.splitlines() if line[:1] == "│"]
        assert [(env, step, sum(counts)) for step, *counts in rows] == [row for row in counted if row[0] == env]


def test_sql_as_a_table_and_as_csv(built: Path) -> None:
    sql = "select env, count(*) as n, avg(episode_return) as r from episodes group by env order by env"
    assert re.search(r"frozenlake +│ +8 │", run("stats", built, sql))
    rows = list(csv.reader(io.StringIO(run("stats", built, sql, "--format", "csv"))))
    assert rows[0] == ["env", "n", "r"]
    frames = load_store(built).episodes.collect()
    for env, count, mean in rows[1:]:
        mine = frames.filter(frames["env"] == env)
        assert int(count) == len(mine) == 8
        assert float(mean) == pytest.approx(mine["episode_return"].mean())


def test_json_loses_no_column_of_equal_name(built: Path) -> None:
    error = error_of("stats", built, "select 1 as a, 2 as a", "--format", "json")
    assert "found several columns named a" in str(error)


def test_the_summary_as_files_equals_the_views(built: Path, tmp_path: Path) -> None:
    views = json.loads(run("stats", built, "--format", "json"))
    assert list(views) == [each.view for each in SUMMARY]
    for style in ("csv", "json", "parquet"):
        assert str(tmp_path) in run("stats", built, "--format", style, "--out", tmp_path / style).replace("\n", "")
        assert sorted(path.name for path in (tmp_path / style).iterdir()) == sorted(f"{view}.{style}" for view in views)
    for view, rows in views.items():
        assert json.loads((tmp_path / "json" / f"{view}.json").read_text()) == rows
        assert pq.read_table(tmp_path / "parquet" / f"{view}.parquet").to_pylist() == rows
        text = list(csv.DictReader((tmp_path / "csv" / f"{view}.csv").open(newline="")))
        assert [list(row) for row in text] == [list(row) for row in rows]
    rates = {row["env"]: row for row in views["group_rates"]}
    assert (rates["pooled"]["episodes"], rates["pooled"]["dropped"]) == (16, 16)  # groups have eight rollouts
    assert sum(row["failures"] for row in views["modes"]) == sum(row["failures"] for row in views["savings"])


def test_nested_cells_of_a_file_are_json(built: Path, tmp_path: Path) -> None:
    sql = "select actions, certificate, witness from failures order by episode_id limit 3"
    for style in ("csv", "json", "parquet"):
        run("stats", built, sql, "--format", style, "--out", tmp_path / f"rows.{style}")
    rows = json.loads((tmp_path / "rows.json").read_text())
    text = csv.DictReader((tmp_path / "rows.csv").open(newline=""))
    assert [{name: json.loads(cell) if cell else None for name, cell in row.items()} for row in text] == rows
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows


def test_any_duckdb_reads_the_views_from_the_folder(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built)
    with duckdb.connect("pivot.duckdb", read_only=True) as connection:
        assert connection.execute("select count(*) from episodes").fetchall() == [(16,)]


# Peek


def test_peek_shows_a_labelled_failure(built: Path) -> None:
    shown = run("peek", built)
    title = re.match(r"(?:sokoban|frozenlake): (?:timeout|deadlock) at step (\d)", shown)
    assert title and re.findall(r"step (\d): .*← pivot", shown) == [title[1]]
    for part in ("certificate", "a plan that still worked", "guidance by template", "action log", "level"):
        assert part in shown


def test_peek_by_id_by_its_beginning_and_by_environment(built: Path) -> None:
    ids = load_store(built).episodes.collect()["episode_id"].to_list()
    assert ids[3] in run("peek", built, ids[3])
    assert ids[3] in run("peek", built, ids[3][:-3])
    assert ids[3] in run("peek", built, ids[3].rpartition("-")[2][:8])
    assert run("peek", built, "--env", "frozenlake").startswith("frozenlake: ")
    assert "no episode whose id begins with 'episode-v9'" in str(error_of("peek", built, "episode-v9"))
    assert "16 episodes whose id begins with 'episode'" in str(error_of("peek", built, "episode"))
    assert "no failure of chess; it holds: sokoban, frozenlake" in str(error_of("peek", built, "--env", "chess"))


def test_peek_draws_a_picture(built: Path, tmp_path: Path) -> None:
    assert f"picture: {tmp_path / 'failure.png'}" in run("peek", built, "--png", tmp_path / "failure.png")
    with Image.open(tmp_path / "failure.png") as picture:
        picture.load()
        assert picture.format == "PNG"
        assert min(picture.size) > 200
    for place in (tmp_path / "no" / "such" / "folder.png", tmp_path):
        assert str(error_of("peek", built, "--png", place)).startswith(f"--png: found '{place}', ")


def test_peek_draws_no_step_that_the_episode_does_not_have(built: Path, tmp_path: Path) -> None:
    store = copy_store(built, tmp_path / "copy")
    for path in sorted((store / "labels").rglob("*.parquet")):
        name = path.relative_to(store).as_posix()
        change_rows(store, name, lambda rows: [row | {"pivot_step": 2**31 - 1} for row in rows])
    rewrite_manifest(store)
    said = str(error_of("peek", store, "--png", tmp_path / "failure.png"))
    assert "names step 2147483647, expected one of its" in said
    assert "pivot verify" in said


def test_peek_refuses_deeply_nested_foreign_data(built: Path, tmp_path: Path) -> None:
    store, info = copy_store(built, tmp_path / "copy"), '{"moved": ' + "[" * 100_000 + "]" * 100_000 + "}"
    for number in (0, 1):
        name = f"steps/sokoban/{number:05}.parquet"
        change_rows(store, name, lambda rows: [row | {"info": info} for row in rows])
    assert "cannot be read as JSON (RecursionError); pivot verify names what else" in str(error_of("peek", store))


# Doctor and the end of a build


def test_doctor_finds_everything_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run("doctor")
    assert "ready: pivot build" in shown
    assert "broken" not in shown
    assert files_of(tmp_path) == []


def test_doctor_fails_when_a_plugin_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    load = plugins.load

    def broken(group: str, name: str) -> object:
        if (group, name) == ("writers", "template"):
            raise PluginError("teacher 'template' failed to import: ImportError: no such library; fix that package")
        return load(group, name)

    monkeypatch.setattr(plugins, "load", broken)
    result = CliRunner().invoke(app, ["doctor"])
    assert isinstance(result.exception, PivotError)
    assert "no such library" in result.output
    assert "broken" in result.output


def _result(root: Path, **counts: int) -> BuildResult:
    return BuildResult(root, False, 0, 1, {"sokoban": dict.fromkeys(COUNTS, 0) | counts})


def test_success_is_the_share_of_the_complete_episodes(small_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        show_result(_result(small_store, episodes=32, succeeded=5, failed=3, pending_episodes=24))
    shown = capsys.readouterr().out
    assert ended.value.exit_code == PENDING == 3
    assert "62.5" in shown
    assert "24 episodes ended in an error, count in no share and are pending" in shown
    with pytest.raises(typer.Exit) as ended:
        show_result(_result(small_store, episodes=8, succeeded=5, failed=3, unanswered=2))
    assert ended.value.exit_code == PENDING


def test_next_commands_can_be_pasted(small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "my runs" / "it's the first"
    shutil.copytree(small_store, root)
    show_result(_result(root, episodes=8, succeeded=5, failed=3))
    commands = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("pivot ")]
    assert len(commands) == 3
    assert all(shlex.split(line)[2] == str(root) for line in commands)
