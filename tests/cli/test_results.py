"""Check the summary that a build prints of its results."""

import shlex
import shutil
from pathlib import Path

import pytest
import typer
from pivot.cli.console import size_text
from pivot.cli.results import PENDING, show_result
from pivot.flows.pipeline import COUNTS, BuildResult


def _result(root: Path, **counts: int) -> BuildResult:
    return BuildResult(root, False, 0, 1, {"sokoban": dict.fromkeys(COUNTS, 0) | counts})


def test_success_is_the_share_of_the_complete_episodes(small_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        show_result(_result(small_store, episodes=32, succeeded=5, failed=3, pending_episodes=24))
    shown = capsys.readouterr().out
    assert ended.value.exit_code == PENDING == 3
    assert "62.5" in shown
    assert "24 episodes ended in an error, count in no share and are pending" in shown


def test_commands_to_go_on_with_can_be_pasted(
    small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "my runs" / "it's the first"
    shutil.copytree(small_store, root)
    show_result(_result(root, episodes=8, succeeded=5, failed=3))
    commands = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("pivot ")]
    assert len(commands) == 3
    assert all(shlex.split(line)[2] == str(root) for line in commands)


def test_a_build_that_owes_nothing_ends_well(small_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_result(_result(small_store, episodes=8, succeeded=5, failed=3))
    assert "pending" not in capsys.readouterr().out


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (1000, "1.0 kB"), (10**6, "1.0 MB"), (10**12, "1.0 TB")])
def test_a_size_is_told_in_its_unit(count: int, text: str) -> None:
    assert size_text(count) == text
