"""The command: exit status, messages and the dry run."""

from pathlib import Path

from pivot.tests.cli.command_line import error_of, run

from .recorded import episode, write_lines


def test_left_out_episodes_give_status_one_and_a_store(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", episode(*["up"] * 4), b"{")
    error = error_of("import", source, "--out", tmp_path / "store")
    assert error.status == 1 and str(error).startswith("1 of 2 episodes were left out (1 unreadable)")
    assert (tmp_path / "store" / "manifest.json").exists()


def test_dry_run_describes_the_first_episode_and_writes_nothing(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", episode("up", 3, [], "left", truncated=True, mystery=[1]))
    shown = run("import", source, "--dry-run")
    assert "up, right, -, left" in shown and '{"mystery":[1]}' in shown and "#@ $.#" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_an_estimate_names_what_is_missing(tmp_path: Path) -> None:
    service = ("--backend", "openai", "--service", "base_url=http://localhost:9/v1")
    error = error_of("estimate", tmp_path, "--model", "tiny", *service)
    assert "holds no episodes.jsonl" in str(error)
