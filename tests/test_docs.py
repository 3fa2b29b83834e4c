"""The documentation does what it says: code runs, links lead somewhere, commands and options exist."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
import typer.main
from pivot.cli import app, config_docs
from pivot.cli.variables import VARIABLES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def _shell_lines(page: Path) -> list[str]:
    return [line for block in _blocks(page, "console") for line in block.splitlines() if line.strip()]


CERTIFIED = [block for page in PAGES for block in _blocks(page, "python") if "pivot.certify" in block]


@pytest.mark.parametrize("example", CERTIFIED, ids=range(len(CERTIFIED)))
def test_an_example_prints_what_its_comments_say(example: str) -> None:
    promised = re.findall(r"\)\s+# (.+)$", example, flags=re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "example", "exec"), {})
    assert printed.getvalue().strip().splitlines() == promised


def test_the_configuration_page_is_up_to_date() -> None:
    committed = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert config_docs.page() == committed, "run: make docs"


@pytest.mark.parametrize(
    ("language", "name"), [("toml", "pyproject.toml"), ("python", "pivot_corridor/environment.py")]
)
def test_the_page_shows_the_example_that_is_tested(language: str, name: str) -> None:
    (shown,) = _blocks(ROOT / "docs/how-to/extending.md", language)
    assert shown == (ROOT / "tests/external/corridor" / name).read_text(encoding="utf-8")


def test_every_environment_variable_of_ours_is_listed() -> None:
    """Those by which tests and benchmarks are told something are no user's affair, nor is what workers inherit."""
    internal = {"PIVOT_SERVER_LOGINS"}
    read: set[str] = set()
    for path in ROOT.rglob("*.py"):
        if (
            path.relative_to(ROOT).parts[0] not in ("tests", "benchmarks", "build", ".venv")
            and path.stem != "variables"
        ):
            read |= set(re.findall(r"PIVOT_[A-Z_]+", path.read_text(encoding="utf-8")))
    listed = {name for variable in VARIABLES for name in variable.name.split(", ")}
    assert {name for name in listed if name.startswith("PIVOT_")} == read - internal


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    commands = typer.main.get_group(app).commands
    for line in _shell_lines(page):
        words = shlex.split(line, comments=True)
        if words[:1] != ["pivot"]:
            continue
        assert words[1] in commands, line
        command = commands[words[1]]
        command = getattr(command, "commands", {}).get(words[2], command) if len(words) > 2 else command
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for line in _shell_lines(page):
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert set(words[1:]) <= targets, line
