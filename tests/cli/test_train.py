"""Check that ``pivot train`` without PyTorch names what to install, and that other commands do not import it."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pivot.core.errors import ConfigError
from pivot.models import extras
from pivot.tests.cli.command_line import error_of, run


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        return None if name == "torch" else find_spec(name)

    monkeypatch.setattr(extras, "find_spec", nothing)
    error = error_of("train", "sft", tmp_path, "--model", tmp_path, "--out", tmp_path / "out")
    assert str(error) == "package 'torch' is not installed; get it with: pip install 'pivot-vlm[train]'"


def test_missing_options_are_reported_first() -> None:
    for words, message in (((), "missing argument 'DATASET'"), (("runs/first",), "missing option '--model'")):
        error = error_of("train", "sft", *words)
        assert isinstance(error, ConfigError)
        assert str(error).startswith(message)


def test_the_commands_import_no_pytorch() -> None:
    code = "import sys; from pivot.cli import app; import pivot.training.config; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


def test_help_teaches_by_example() -> None:
    shown = run("train", "sft", "--help")
    assert "pivot train sft runs/first --model" in shown
    assert "qwen2.5-vl-3b" in shown
