"""Check that each environment can be removed from pyproject.toml, and that the others still work."""

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pivot
import pytest
from pivot.core import plugins
from pivot.core.progress import Reporter
from pivot.datasets.verify.verify import verify_store
from pivot.tests.cli.command_line import error_of, run

doctor = import_module("pivot.cli.doctor")  # the package exports a command of the same name
OURS = ["frozenlake", "gym", "navigation", "primitiveskill", "sokoban", "svg"]


@pytest.fixture(params=OURS)
def hidden(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The removed environment: its entry points in every group, including its filters."""
    name, listed = request.param, plugins.entry_points

    def entry_points(group: str) -> list[EntryPoint]:
        return [point for point in listed(group=group) if not point.name.startswith(name)]

    def clear() -> None:
        plugins.registered.cache_clear()
        plugins.load.cache_clear()

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    clear()
    yield name
    monkeypatch.undo()
    clear()


def test_the_rest_works_without(hidden: str, tmp_path: Path) -> None:
    left = [name for name in OURS if name != hidden]
    assert plugins.names("environments") == left
    rows, broken = doctor._plugins()
    assert not broken, rows
    assert not any(hidden == name for _, name, *_ in rows)
    assert f"unknown environment {hidden!r}; registered: {', '.join(left)}" in str(error_of("build", hidden))
    for name in left:
        assert f"--set {name}.KEY=VALUE" in run("doctor", name)
    run("build", *left, "--out", tmp_path / "plan", "--tasks", "2", "--dry-run")

    puzzle = next(name for name in left if name in ("frozenlake", "sokoban"))
    root = tmp_path / "store"
    pivot.build({"environments": {puzzle: {"tasks": 2, "settings": {}}}, "rollouts": 2}, root)
    assert verify_store(root, Reporter()).problems == []
    assert puzzle in run("stats", root)
    assert puzzle in (root / "dataset" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("hidden", ["frozenlake", "sokoban"], indirect=True)
def test_the_doctor_tests_with_what_is_there(hidden: str) -> None:
    assert "built" in doctor._build()
    assert hidden != "sokoban" or "not registered" in doctor._certify()
