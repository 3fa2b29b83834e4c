"""Check the documentation: examples, links and anchors, commands and options, the site."""

import contextlib
import importlib.util
import io
import re
import shlex
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import typer.main
from pivot.cli import app
from pivot.docs.assets import reference_pages

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")]
PAGES = [*ROOT_PAGES, *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def _shell_lines(page: Path) -> list[str]:
    return [line for block in _blocks(page, "console") for line in block.splitlines() if line.strip()]


CERTIFIED = [block for page in PAGES for block in _blocks(page, "python") if "pivot.certify(" in block]


@pytest.mark.parametrize("example", CERTIFIED, ids=range(len(CERTIFIED)))
def test_an_example_prints_what_its_comments_say(example: str) -> None:
    promised = re.findall(r"\)\s+# (.+)$", example, flags=re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "example", "exec"), {})
    assert printed.getvalue().strip().splitlines() == promised


def test_the_configuration_page_is_up_to_date() -> None:
    committed = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert reference_pages.configuration(committed) == committed, "run: make docs"


def test_the_page_shows_the_example_that_is_tested() -> None:
    shown = _blocks(ROOT / "docs/how-to/extending.md", "toml")[-1]
    assert shown == (ROOT / "tests/external/corridor/pyproject.toml").read_text(encoding="utf-8")


def _variables() -> set[str]:
    """Return the environment variables of the page."""
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    return set(re.findall(r"`([A-Z_]+)`", page.partition(reference_pages.VARIABLES)[2]))


def test_every_environment_variable_of_ours_is_listed() -> None:
    """Variables of tests and benchmarks are internal and not listed."""
    read: set[str] = set()
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] not in ("tests", "benchmarks", "build", ".venv"):
            read |= set(re.findall(r"PIVOT_[A-Z_]+", path.read_text(encoding="utf-8")))
    assert {name for name in _variables() if name.startswith("PIVOT_")} == read


def test_every_variable_of_object_stores_is_listed() -> None:
    page = (ROOT / "docs/how-to/object-stores.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:AWS|AZURE|GOOGLE)_[A-Z_]+)`", page))
    assert named
    assert named <= _variables()


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as MkDocs and GitHub derive them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        anchors.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_anchors_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name} links to {link}: the file does not exist"
        assert not anchor or anchor in _anchors(path), f"{page.name} links to {link}: the heading does not exist"


def test_the_page_of_commands_lists_every_command() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    for name, command in typer.main.get_group(app).commands.items():
        for path in [f"{name} {each}" for each in getattr(command, "commands", {})] or [name]:
            assert f"`pivot {path}`" in page, path


LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
"""Tags that load a file from another server."""


@pytest.mark.docs
@pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="needs the extra docs; make docs installs it")
def test_the_site_builds_and_loads_nothing_from_other_servers(tmp_path: Path) -> None:
    shutil.rmtree(ROOT / "build" / "api", ignore_errors=True)  # as in a fresh clone
    mkdocs = Path(sys.executable).with_name("mkdocs")
    command = [str(mkdocs), "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        assert not LOADED.findall(page.read_text(encoding="utf-8")), page.name
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name
    python = (tmp_path / "reference/python.html").read_text(encoding="utf-8")
    assert 'id="pivot.certify"' in python
    commands = (tmp_path / "reference/commands.html").read_text(encoding="utf-8")
    assert 'id="pivot-train-rl"' in commands and "--server-command" in commands
    assert "[bold]" not in commands
    assert (tmp_path / "search/search_index.json").stat().st_size > 100_000


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
        flags = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= flags, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    files = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "tests/named.mk"))
    targets = {*re.findall(r"^([a-z-]+):", files, re.MULTILINE), *re.findall(r"^([A-Z]+) \?=", files, re.MULTILINE)}
    folders = {f"what-{path.name}" for path in (ROOT / "tests").iterdir() if path.is_dir()}
    for line in _shell_lines(page):
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            named = {word.replace("WHAT=", "what-").partition("=")[0] for word in words[1:]}
            assert named <= targets | folders, line
