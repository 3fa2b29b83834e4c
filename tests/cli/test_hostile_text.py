"""Check that every command shows hostile text literally: no escape sequence, markup or line break takes effect."""

import re
import shutil
from pathlib import Path

import pytest
from pivot.cli import app
from pivot.cli.console import out, show_error, show_table
from pivot.core.errors import printable
from pivot.tests.cli.command_line import run
from pivot.tests.stores import Rows, change_rows, rewrite_manifest, table_files
from typer.testing import CliRunner

HOSTILE = "a[bold red]b[/] \x1b[2J\x1b]0;title\x07 :smile: d\x9b31me \u202eflip\u202c \r\n✓ all is well \x00 [/n] \\[x]"
SHOWN = r"a[bold red]b[/] \x1b[2J\x1b]0;title\x07 :smile: d\x9b31me \u202eflip\u202c \r\n✓ all is well \x00 [/n] \[x]"
KEPT = {"episode_id", "env", "env_config", "initial_state", "info", "status", "frame_id", "next_frame_id"}
"""Columns whose text is not replaced: keys that connect rows, and columns that are read as JSON or levels."""


def _says(output: str, *, lines: bool = False) -> None:
    """Check that the output shows the hostile text literally; table cells may have several lines."""
    flat = "".join(output.split())
    for part in SHOWN.split(r"\n") if lines else [SHOWN]:
        assert "".join(part.split()) in flat, output
    for character in output:
        assert character.isprintable() or character == "\n", f"{character!r} in {output!r}"


@pytest.fixture(scope="module")
def hostile(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which all free texts hold hostile characters."""
    root = Path(shutil.copytree(tiny_store, tmp_path_factory.mktemp("hostile") / "store"))

    def poison(rows: Rows) -> None:
        for row in rows:
            for name, value in row.items():
                if isinstance(value, str) and name not in KEPT and "hash" not in name:
                    row[name] = HOSTILE
                elif name == "actions":
                    row[name] = [HOSTILE] * len(value)
            if "reject_reasons" in row:
                reason = {"name": HOSTILE, "kind": HOSTILE, "detail": HOSTILE}
                row.update(reject_reasons=[reason], accepted=False, feasible_actions=[HOSTILE], witness=[HOSTILE])

    for env in ("sokoban", "frozenlake"):
        for name in table_files(root, env):
            if name.split("/")[0] in ("episodes", "steps", "labels", "calls"):
                change_rows(root, name, poison)
    rewrite_manifest(root)
    return root


def test_tables_of_stats(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", 2000)
    _says(run("stats", hostile), lines=True)
    sql = 'select episode_id, instruction, failure_reason as "[red]x\x1b" from failures limit 2'
    shown = run("stats", hostile, "--sql", sql)
    _says(shown, lines=True)
    assert r"[red]x\x1b" in shown


def test_peek(hostile: Path) -> None:
    shown = run("peek", hostile)
    _says(shown)
    assert shown.count("✓ all is well") == shown.count(r"\r\n✓ all is well") > 5


def test_verify(hostile: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(hostile), "--workers", "1"])
    assert "✗" in result.output
    for character in result.output:
        assert character.isprintable() or character == "\n", f"{character!r}"
    assert "\n✓" not in result.output
    assert "[bold red]" in result.output


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(HOSTILE)
    shown = capsys.readouterr().err
    _says(shown)
    assert shown.count("\n") == 1


def test_wide_results_are_turned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", 80)
    header = [f"column_{number}" for number in range(40)]
    show_table("Wide", header, [[f"value {row}.{number}" for number in range(40)] for row in range(2)])
    shown = capsys.readouterr().out
    for place in (f"column_{number} *│ value {row}.{number} " for number in range(40) for row in range(2)):
        assert re.search(place, shown), place
    assert "row 2 of 2" in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [x] text", "plain [x] text"),
        ("σ – × 漢字 \u3000 \u00a0", "σ – × 漢字 \u3000 \u00a0"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\tb\n", r"a\tb\n"),
        ("\ud800", r"\ud800"),
        ("\u2028\u2066\ufeff", r"\u2028\u2066\ufeff"),
    ],
)
def test_what_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
