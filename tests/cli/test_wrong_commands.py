"""Wrong commands, by the dozen: one line each that names what is wrong, no traceback, and nothing written."""

import importlib
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pivot import cli
from pivot.tests.flow_runs import files_of

WRONG: list[list[str]] = yaml.safe_load(Path(__file__).with_name("wrong_commands.yaml").read_text(encoding="utf-8"))
"""Commands, and what their message says; ``STORE`` is a finished store."""

FAILED = {
    *("build sokoban --out file/below", "build sokoban --out /proc/x"),
    *("relabel torn --split episode", "export pairs torn --out x", "probe torn"),
}
"""Commands whose input is right and whose work fails: a path that cannot be written, a damaged store."""

PYDANTIC = re.compile(r"Input should|Value error|validation error|pydantic|type=")


@pytest.fixture(scope="module")
def place(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that a command can be wrong about; no command changes it."""
    root = tmp_path_factory.mktemp("wrong")
    for name in ("empty", "foreign"):
        (root / name).mkdir()
    (root / "foreign" / "cat.jpg").touch()
    (root / "file").write_text("no database, no level, no recipe")
    (root / "bad.json").write_text("{")
    (root / "list.json").write_text("[1]")
    (root / "more.json").write_text('{"environments": {"sokoban": {"tasks": 1, "settings": {}}}, "colour": 1}')
    for name in ("STORE", "unfinished"):
        shutil.copytree(tiny_store, root / name)
    (root / "unfinished" / "manifest.json").unlink()
    shutil.copytree(root / "STORE", root / "torn")
    os.truncate(root / "torn" / "steps" / "sokoban" / "00000.parquet", 100)
    poisoned = Path(shutil.copytree(root / "STORE", root / "poisoned")) / "run.json"
    record = json.loads(poisoned.read_text(encoding="utf-8"))
    record["config"]["solvers"] = {"sokoban": {"max_states": "lots"}}
    poisoned.write_text(json.dumps(record), encoding="utf-8")
    return root


def _error_of(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process as the console script would, and return its one line of error."""
    monkeypatch.setattr(cli, "atexit", SimpleNamespace(register=lambda *_: None))
    monkeypatch.setattr(sys, "argv", ["pivot", *shlex.split(line)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    shown = capsys.readouterr()
    assert ended.value.code == (1 if line in FAILED else 2)
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert not PYDANTIC.search(shown.err)
    return shown.err


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[line for line, _ in WRONG])
def test_a_wrong_command_gets_one_line(
    line: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    before = files_of(place)
    assert re.search(message, _error_of(line, monkeypatch, capsys))
    assert files_of(place) == before


def test_a_wrong_probe_starts_none(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Starting them takes seconds."""
    for name in ("flows.probe", "flows.verify", "flows.build", "interop.run"):
        flow = importlib.import_module(f"pivot.{name}")
        monkeypatch.setattr(flow, "pool_of", lambda *_, **__: pytest.fail("workers were started"))
    monkeypatch.chdir(place)
    lines = ("probe STORE --arm nope", "probe gone", "probe unfinished", "verify STORE --export gone")
    for line in (*lines, "build sokoban --out STORE", "import gone --out y", "import list.json --out foreign"):
        _error_of(line, monkeypatch, capsys)
