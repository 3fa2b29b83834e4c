"""The help of every command, and the pages made from the same texts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from pivot.cli import app
from pivot.cli.from_config import Form
from pivot.cli.help_texts import help_text
from pivot.core.plugins import Settings
from pivot.docs.assets.reference_pages import PAGES
from pivot.tests.cli.command_line import run
from pydantic import Field
from typer.core import TyperArgument


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(typer.main.get_group(app)))


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


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_texts_are_plain(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
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
            assert each.is_flag == (each.display_type_rich(context) == ""), each.opts


@pytest.mark.parametrize("path", [path for path, each in COMMANDS.items() if hasattr(each.callback, "forms")])
def test_help_names_no_field_in_place_of_its_option(path: tuple[str, ...]) -> None:
    command: Any = COMMANDS[path]
    forms: tuple[Form[Any], ...] = command.callback.forms
    fields = {key for form in forms for key in form.keys if "_" in key}
    for each in command.params:
        words = set(re.findall(r"(?<![\w./=-])\w+(?![\w./=-]| [/+-])", each.help or ""))
        assert not words & fields, each.help


def test_a_flag_takes_no_value_on_the_screen() -> None:
    shown = run("build", "--help")
    assert "<" not in shown.replace("<=", "").replace("< ", "")
    assert re.search(r"Usage: pivot build \[OPTIONS\] \[ENV\.\.\.\] *\n", shown)
    assert "[OPTIONS] [MODEL]" in run("benchmark", "run", "--help")


def test_the_configuration_page_describes_each_setting_once() -> None:
    lines = [
        line for line in (PAGES / "configuration.md").read_text(encoding="utf-8").splitlines() if line.startswith("- ")
    ]
    assert [line for line in lines if not re.fullmatch(r"- `[^`]+`(, `[^`]+`)* \(.+?\): .+\.", line)] == []
    assert [line for line in lines if re.search(r"``|:\w+:`|\( |\(\)", line)] == []
    assert len({*lines}) == len(lines)
