"""Stores of strangers with links, journals and pipes: every command refuses them, and changes nothing anywhere."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pivot.cli import app
from pivot.core.errors import PivotError, StoreError
from pivot.tests.core.hostile_makers import digest, make_canary, reseal
from pivot.tests.core.hostile_stores import HOSTILE
from pivot.training.records import find_files
from typer.testing import CliRunner

COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "DIR", "--workers", "1"),
    "stats": ("stats", "DIR"),
    "peek": ("peek", "DIR"),
    "compare": ("compare", "WHOLE", "DIR"),
    "plot": ("plot", "DIR", "--out", "OUT"),
    "view": ("view", "DIR", "--out", "OUT"),
    "probe": ("probe", "DIR", "--workers", "1"),
    "push": ("push", "DIR", "hub:nobody/nothing", "--dry-run"),
    "relabel": ("relabel", "DIR", "--workers", "1"),
    "merge": ("merge", "DIR", "--out", "OUT", "--workers", "1"),
    "build": ("build", "--out", "DIR", "--workers", "1"),
}


PLANTS = (
    *(f"link {name} out" for name in (".lock", ".tmp", ".commit", "dataset", "labels/v2", "pivot.duckdb")),
    *("journal of a linked folder", "pipe .lock", "pipe run.json", "hard link .lock"),
)


def _run(command: str, root: Path, whole: Path, out: Path, *more: str) -> BaseException | None:
    places = {"DIR": str(root), "WHOLE": str(whole), "OUT": str(out)}
    return CliRunner().invoke(app, [*(places.get(each, each) for each in COMMANDS[command]), *more]).exception


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", PLANTS)
def test_every_command_refuses_it_and_changes_nothing(plant: str, tiny_store: Path, tmp_path: Path) -> None:
    """Catch a command that follows a link out of a stranger's store, or waits for a pipe."""
    root, outside = Path(shutil.copytree(tiny_store, tmp_path / "store")), tmp_path / "outside"
    make_canary(outside, tiny_store)
    HOSTILE[plant].make(root, outside)
    if "journal" in plant:
        (root / "away").symlink_to(outside)
    before, own = digest(outside), digest(root)
    for command in COMMANDS:
        error = _run(command, root, tiny_store, tmp_path / "out")
        assert isinstance(error, PivotError), (command, error)
        assert any(each in str(error) for each in ("is a link", "is a hard link", "is a named pipe")), (command, error)
        assert digest(outside) == before, command
        assert digest(root) == own, command
    with pytest.raises(StoreError, match=r"is a (?:hard )?link|is a named pipe"):
        find_files(str(root))  # train and evaluate read a store through this


@pytest.mark.timeout(900)
def test_a_journal_alone_stops_readers_and_is_checked_by_writers(tiny_store: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(tiny_store, tmp_path / "store"))
    (root / ".commit").mkdir()
    (root / ".commit/journal.json").write_text(json.dumps({"source": "labels", "target": "episodes"}))
    for command in ("verify", "push", "merge"):
        error = _run(command, root, tiny_store, tmp_path / "out")
        assert f"finish it with: pivot relabel {root}" in str(error), command
    for command in ("relabel", "build"):
        error = _run(command, root, tiny_store, tmp_path / "out")
        assert isinstance(error, StoreError)
        assert "journal.json was not written by this program" in str(error), command
    assert (root / "labels").is_dir()


READING = ("verify", "stats", "peek", "compare", "plot", "view", "push", "merge")


@pytest.mark.parametrize("role", ["policy", "teacher"])
def test_no_command_opens_a_named_model_folder(role: str, tiny_store: Path, tmp_path: Path, opened: list[str]) -> None:
    """Catch a reader of a stranger's store that opens a folder which the store names."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    root = Path(shutil.copytree(tiny_store, tmp_path / "store"))
    raw = json.loads((root / "run.json").read_text())
    raw["config"][role] = {"name": "transformers", "options": {"model": str(model)}}
    (root / "run.json").write_text(json.dumps(raw))
    reseal(root, "run.json")
    opened.clear()
    for command in READING:
        error = _run(command, root, tiny_store, tmp_path / "out" / command)
        assert error is None or isinstance(error, PivotError | SystemExit), (command, error)
        assert not [path for path in opened if path.startswith(str(model))], command
    assert "names the model folder" in str(_run("merge", root, tiny_store, tmp_path / "out"))
    _run("merge", root, tiny_store, tmp_path / "again", "--sources")
    assert [path for path in opened if path.startswith(str(model))]  # the test sees what is opened


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Files and folders that this process opens or lists, from now on."""
    paths: list[str] = []
    listens = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if listens and event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | os.PathLike):
            paths.append(os.fspath(arguments[0]))  # type: ignore[arg-type]

    sys.addaudithook(note)
    yield paths
    listens = False  # a hook cannot be removed
