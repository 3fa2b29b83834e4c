"""The command line and its help: output, pages from the same texts, and one clear message for every mistake."""

import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import pivot
import pytest
import typer.main
from pivot import cli
from pivot.cli import app
from pivot.cli.from_config import Form
from pivot.cli.help_texts import SCREEN, help_text
from pivot.core.plugins import Settings
from pivot.docs.assets.reference_pages import PAGES
from pivot.tests.cli.command_line import commands, error_of, run
from pivot.tests.flow_runs import clean_environment, files_of
from pydantic import Field
from typer.core import TyperArgument

COMMANDS = ("build", "verify", "stats", "peek", "relabel", "doctor", "cache", "deploy")


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(name: str) -> None:
    shown = run(name, "--help")
    assert re.search(rf"^ *pivot {name}", shown, flags=re.MULTILINE)
    assert re.search(r"\nExamples:\n", shown)
    assert "\x1b" not in shown


def test_the_first_help_lists_the_commands_and_how_to_start() -> None:
    shown = run("--help")
    assert all(f" {name} " in shown for name in COMMANDS)
    assert "pivot build sokoban frozenlake --out runs/first" in shown


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


def test_version() -> None:
    assert run("--version") == f"pivot {pivot.__version__}\n"


# Mistakes


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"environments": {}}', "no environment named"),
        ('{"environments": {"sokoban": 3}}', "config file PATH: environments.sokoban: found 3, expected an object"),
        ('{"policy": "openai"}', "config file PATH: policy: found 'openai', expected an object"),
        (
            '{"environments": {"sokoban": {"tasks": 0}}}',
            "config file PATH: environments.sokoban.tasks: found 0, expected more than 0",
        ),
        (
            '{"environments": {"sokoban": {"tasks": 1, "settings": {"cell": 0}}}}',
            "config file PATH: environments.sokoban.settings.cell: found 0, expected 16 or more",
        ),
    ],
)
def test_a_wrong_config_file_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    message = str(error_of("build", "--config", path, "--out", tmp_path / "store"))
    assert message.startswith(named.replace("PATH", str(path)))


def test_a_library_that_exits_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    at_exit: list[int] = []
    monkeypatch.setattr(cli.atexit, "register", lambda leave, status: at_exit.append(status))
    monkeypatch.setattr(cli, "command_line", lambda _: sys.exit(3))
    with pytest.raises(SystemExit):
        cli.main()
    assert at_exit == [1]
    assert "called sys.exit(3), expected an error or a result" in " ".join(capsys.readouterr().err.split())


def test_the_help_imports_no_command() -> None:
    code = "import sys, pivot.cli; sys.argv = ['pivot', '--help']\ntry: pivot.cli.main()\nexcept SystemExit: pass\n"
    code += "print([name for name in ('numpy', 'polars', 'prefect', 'gymnasium', 'duckdb') if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines()[-1] == "[]"
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


def test_default_counts_are_those_of_the_paper() -> None:
    shown = run("build", "sokoban", "frozenlake", "--out", "x", "--dry-run")
    assert re.search(r"sokoban +│ +180 │ +1440 ", shown)
    assert re.search(r"frozenlake +│ +216 │ +1728 ", shown)


def test_a_config_file_gives_the_same_build_and_options_override_it(tiny_store: Path, tmp_path: Path) -> None:
    built = Path(copytree(tiny_store, tmp_path / "store"))
    shown = run("build", "--config", built / "run.json", "--out", tmp_path / "copy", "--seed", "5", "--dry-run")
    assert "seed 5" in shown
    assert re.search(r"sokoban +│ +2 │ +4 │ +1 │", shown)
    # The same config finds the store complete, without a flow engine.
    assert "(already complete)" in run("build", "--config", built / "run.json", "--out", built)


def test_the_console_script_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("pivot")
    if not script.exists():
        pytest.skip("the package was not installed with its scripts")
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, env=clean_environment())
    assert shown.stdout == f"pivot {pivot.__version__}\n"


HELPED = dict(commands(typer.main.get_group(app)))


class Trained(Settings):
    """Settings of a form."""

    steps: int = Field(default=0, ge=0)
    """Steps in total; used with ``low_rank``, and
    not with `steps / low_rank`.

    Null in old files."""
    low_rank: bool = False


def test_a_description_is_one_line_of_help_that_names_options() -> None:
    (steps, _) = Form("trained", Trained).leaves()
    shown = Form("trained", Trained).help_of(*steps)
    assert shown == "Steps in total; used with --low-rank, and not with steps / low_rank (default: 0)."
    assert help_text("See `a` and ``b``.", {"a": "--a"}) == "See --a and b."


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


def test_a_flag_takes_no_value_on_the_screen() -> None:
    shown = run("build", "--help-all")
    assert "<" not in shown.replace("<=", "").replace("< ", "")
    assert re.search(r"Usage: pivot build \[OPTIONS\] \[ENV\.\.\.\]\n", shown)
    assert "[OPTIONS] MODEL\n" in run("benchmark", "run", "--help")


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
