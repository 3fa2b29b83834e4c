"""The command line and its help: output, pages from the same texts, and one clear message for every mistake."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pivot
import pytest
import typer.main
from pivot import cli
from pivot.cli import app
from pivot.cli.from_config import Form
from pivot.cli.help_texts import SCREEN
from pivot.docs.assets.reference_pages import PAGES
from pivot.tests.cli.command_line import commands, error_of, run
from pivot.tests.flow_runs import clean_environment, files_of
from typer.core import TyperArgument

COMMANDS = ("build", "verify", "stats", "peek", "relabel", "doctor", "cache", "deploy", "train sft")


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(name: str) -> None:
    shown = run(*name.split(), "--help")
    assert re.search(rf"^ *pivot {name}", shown, flags=re.MULTILINE)
    assert re.search(r"\nExamples:\n", shown)
    assert "\x1b" not in shown


def test_settings_are_listed_with_type_default_and_help() -> None:
    shown = run("doctor", "frozenlake")
    assert re.search(r"size +│ int, 2 to 64 +│ 4 +│", shown)
    assert "--set frozenlake.KEY=VALUE" in shown
    assert "solver frozenlake" in shown
    assert "--policy openai, --writer openai" in run("doctor", "openai")
    assert re.match(r"unknown plugin 'chess'; registered: .*\bfrozenlake\b", str(error_of("doctor", "chess")))


def test_deploy_writes_the_file_and_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "  prefect deploy --all\n" in run("deploy")
    assert "nightly" in (tmp_path / "prefect.yaml").read_text(encoding="utf-8")
    assert str(error_of("deploy")) == "prefect.yaml exists; remove it, or name another file with --to"


# Mistakes


def test_a_library_that_exits_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    at_exit: list[int] = []
    monkeypatch.setattr(cli.atexit, "register", lambda leave, status: at_exit.append(status))
    monkeypatch.setattr(cli, "command_line", lambda _: sys.exit(3))
    with pytest.raises(SystemExit):
        cli.main()
    assert at_exit == [1]
    assert "called sys.exit(3), expected an error or a result" in " ".join(capsys.readouterr().err.split())


def test_the_help_imports_no_command_and_no_command_imports_pytorch() -> None:
    code = "import sys, pivot.cli; sys.argv = ['pivot', '--help']\ntry: pivot.cli.main()\nexcept SystemExit: pass\n"
    code += "print([name for name in ('numpy', 'polars', 'prefect', 'gymnasium', 'duckdb') if name in sys.modules])\n"
    code += "import pivot.cli.train, pivot.training.config; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines()[-2:] == ["[]", "False"]
    assert all(name in shown for commands in cli.COMMANDS.values() for name in commands)


# Plans


def test_a_dry_run_shows_the_plan_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run("build", "sokoban", "frozenlake", "--tasks", "sokoban=40,frozenlake=3", "--out", "runs/x", "--dry-run")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    assert [row[:4] for row in cells] == [["sokoban", "40", "320", "3"], ["frozenlake", "3", "24", "1"]]
    assert "nothing was written" in shown
    assert "seed 0" in shown
    assert files_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_console_script_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("pivot")
    if not script.exists():
        pytest.skip("the package was not installed with its scripts")
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, env=clean_environment())
    assert shown.stdout == f"pivot {pivot.__version__}\n"


HELPED = dict(commands(typer.main.get_group(app)))


@pytest.mark.parametrize("path", HELPED, ids=" ".join)
def test_help_texts_are_plain(path: tuple[str, ...]) -> None:
    command = HELPED[path]
    context = typer.Context(command)
    for each in command.get_params(context):
        text = each.help or ""
        assert text, each.name
        assert not re.search(r"[`\n]|:(class|func):|\) \(default|\bneeded unless\b", text), text
        assert not ("(default: " in text and re.search(r"\bby default\b", text)), text
        if isinstance(each, TyperArgument):
            assert each.display_type_rich(context) is None
            assert (each.nargs == 1) == (not (each.metavar or "").endswith("...")), each.metavar
        else:
            assert "<" not in each.get_help_record(context)[0], each.opts


@pytest.mark.parametrize("path", [path for path, each in HELPED.items() if hasattr(each.callback, "forms")])
def test_help_names_no_field_in_place_of_its_option(path: tuple[str, ...]) -> None:
    command: Any = HELPED[path]
    forms: tuple[Form[Any], ...] = command.callback.forms
    fields = {key for form in forms for key in form.keys if "_" in key}
    for each in command.params:
        assert not set(re.findall(r"(?<![\w./=-])\w+(?![\w./=-]| [/+-])", each.help or "")) & fields, each.help


@pytest.mark.parametrize("path", HELPED, ids=" ".join)
def test_the_help_fits_on_a_screen_and_names_the_whole_one(path: tuple[str, ...]) -> None:
    short, whole = run(*path, "--help"), run(*path, "--help-all")
    assert short.count("\n") <= SCREEN
    options = {each.opts[0] for each in HELPED[path].params if each.param_type_name == "option"}
    assert all(re.search(rf"^  {name}\b", whole, re.MULTILINE) for name in options)
    assert short == whole or f"All options: pivot {' '.join(path)} --help-all" in short


def test_the_configuration_page_describes_each_setting_once() -> None:
    text = (PAGES / "configuration.md").read_text(encoding="utf-8")
    lines = re.findall(r"^- .*", text, re.MULTILINE)
    assert [line for line in lines if not re.fullmatch(r"- `[^`]+`(, `[^`]+`)* \(.+?\): .+\.", line)] == []
    assert [line for line in lines if re.search(r"``|:\w+:`|\( |\(\)", line)] == []
    assert len({*lines}) == len(lines)
