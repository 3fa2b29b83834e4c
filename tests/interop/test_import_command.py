"""The command: exit status, messages and the dry run."""

from pathlib import Path

import pivot
import pytest
from pivot.cli import app
from pivot.core import plugins
from pivot.tests.cli.command_line import error_of, run
from typer.testing import CliRunner

from .recorded import episode, imports_of, write_lines


def test_left_out_episodes_give_status_one_and_a_store(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", episode(*["up"] * 4), b"{")
    error = error_of("import", source, "--out", tmp_path / "store")
    assert error.status == 1 and str(error).startswith("1 of 2 episodes were left out (1 unreadable)")
    assert (tmp_path / "store" / "manifest.json").exists()


def test_episodes_without_a_state_are_rows_with_their_reason(tmp_path: Path) -> None:
    """Catch an episode that an import drops, or labels without evidence, because its state is unknown."""
    unplaced = episode(*["up"] * 4, id="x", success=False)
    del unplaced["initial_state"]
    distances = {"env": "navigation", "env_config": {"horizon": 4}, "distances": [3.0] * 5}
    walk = {**unplaced, **distances, "turns": [{"actions": ["rotateleft"]}] * 4}
    source = write_lines(tmp_path / "a", episode(*["up"] * 4), unplaced, walk)
    error = error_of("import", source, "--out", tmp_path / "b")
    assert error.status == 1 and "1 of 3 episodes were left out (1 no_state)" in str(error)
    rows = imports_of(tmp_path / "b")
    assert [row["left_out"] for row in rows] == [None, "no_state", "no_state"]
    assert "neither initial_state nor seed" in rows[1]["detail"]
    assert (rows[1]["source_id"], rows[1]["env"]) == ("x", "sokoban")
    assert [row["bound"] and row["bound"]["pivot_step"] for row in rows] == [None, None, 1]
    assert pivot.load_store(tmp_path / "b").labels.collect().height == 1 and pivot.verify(tmp_path / "b").holds
    shown = run("import", write_lines(tmp_path / "c", walk), "--out", tmp_path / "d")
    assert "1 episodes have distances and no state, 1 of them a lower bound" in shown
    run("import", tmp_path / "c", "--out", tmp_path / "e", "--set", "navigation.horizon=6")
    assert imports_of(tmp_path / "e")[0]["bound"]["pivot_step"] == 3


def test_all_problems_are_shown_where_no_table_has_them(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", *[b"{"] * 25)
    shown = CliRunner().invoke(app, ["import", str(source), "--out", str(tmp_path / "store")]).output
    assert "line 25:" in shown and "the table imports" not in shown


def test_a_dry_run_counts_all_episodes_and_prints_the_dialect_of_all_replies(tmp_path: Path) -> None:
    """The first episode alone is in the grammar of the environment."""
    said = ["action", *["answer"] * 9]
    lines = [episode(turns=[{"response": f"<{tag}>up</{tag}>"}] * 4, id=str(n)) for n, tag in enumerate(said)]
    shown = " ".join(run("import", write_lines(tmp_path / "source", *lines), "--dry-run").split())
    table, _, remedy = shown.partition("yield")[2].partition("→")
    assert {"10", "40", "36"} <= {*table.split()}  # episodes, turns, unread turns
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert remedy.startswith(" 36 of 40 replies hold no action in <action>")
    assert "<answer> alone, only if replies without it were unusable turns: --option tag=answer" in remedy


SOURCE = ("evidence", "generator")
CHAT = (
    *SOURCE,
    *("env", "tag", "pattern", "separator", "actions_per_turn", "argument", "words", "container", "spelling"),
    *("dialect", "masked", "examples", "trailing", "agent"),
)
DIALECTS = {
    "vagen": (*SOURCE, "nearest_start", "farthest_start"),
    **dict.fromkeys(("jsonl", "openai", "inspect", "verifiers"), CHAT),
    "verl": (*CHAT, "template", "success"),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_every_setting_of_a_dialect_has_help(tmp_path: Path, name: str) -> None:
    assert DIALECTS.keys() == set(plugins.names("importers"))
    kind = plugins.load("importers", name).config_type
    assert set(kind.model_fields) == set(DIALECTS[name])
    assert all(len(field.description or "") > 20 for field in kind.model_fields.values())
    shown = run("doctor", name)
    assert all(key in shown for key in DIALECTS[name])
    (tmp_path / "source").mkdir()
    error = error_of("import", tmp_path / "source", "--format", name, "--option", "grammar=x", "--out", tmp_path / "o")
    assert "grammar" in str(error) and all(key in str(error) for key in DIALECTS[name])
