"""A walk through README and docs: every command and every snippet, with the wheel alone, no repository around.

Run by ``make test-docs``. What needs a model, a server, a simulator or PyTorch is left out, and the reason is here;
builds are made small. Each page has a folder of its own, in which the stores that it does not build itself lie.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pivot.tests.external.test_external import run
from pivot.tests.flow_runs import clean_environment
from pivot.tests.test_architecture import BUILT_BY, DATA, ROOT, SHIPPED, can_build
from pivot.tests.test_docs import PAGES

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(not can_build(), reason="needs build and a newer setuptools; make dev installs both"),
    pytest.mark.timeout(3600),
]

ELSEWHERE = {
    r"^pivot (train|evaluate) ": "needs PyTorch and a model",
    r" --(policy|teacher|base-url) ": "needs a model or its server",
    r" --backend ": "needs a simulator",
    r" --engine ": "needs a cluster; test_engines.py has one",
    r"s3://": "needs an object store; test_objects.py has one",
    r" hub:": "needs the hub; test_push.py has one",
    r"serve-command .*\|": "starts a server",
    r"corridor|sleepwalk": "needs the example of a plugin, which test_external.py takes that way",
    r"^pivot (view|deploy --serve)": "serves until it is ended",
    r"runs/sokoban-mp": "needs a run of Stage II",
}
"""Commands that a machine without GPU, server and simulator cannot run, and why."""
SNIPPETS_ELSEWHERE = (r"s3://",)
LENT = ("demo", "first", "old", "new", "three", "grown", "last-year")
"""Stores in ``runs/`` that pages take for granted."""
TASKS = "2"


def _all_steps(page: Path) -> list[tuple[str, str]]:
    """Return kind and text of every command of ours and every snippet, in the order of the page."""
    steps: list[tuple[str, str]] = []
    for kind, block in re.findall(r"```(console|python)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        if kind == "python":
            steps.append((kind, block))
        steps += [(kind, line) for line in block.splitlines() if kind == "console" and line.startswith("pivot ")]
    return steps


def _steps(page: Path) -> list[tuple[str, str]]:
    """Return those that can run here."""
    return [(kind, text) for kind, text in _all_steps(page) if not _is_elsewhere(kind, text)]


def _is_elsewhere(kind: str, text: str) -> bool:
    return any(re.search(pattern, text) for pattern in (ELSEWHERE if kind == "console" else SNIPPETS_ELSEWHERE))


WALKED = [page for page in PAGES if _steps(page)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel, and beside it the libraries that it needs."""
    folder = tmp_path_factory.mktemp("walk")
    for path in (*SHIPPED, *(ROOT / name for name in (*BUILT_BY, *DATA))):
        target = folder / "source" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    build = ("-P", "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist")
    run(sys.executable, *build, cwd=folder / "source")
    (wheel,) = (folder / "dist").glob("*.whl")
    shutil.rmtree(folder / "source")
    run(sys.executable, "-m", "venv", folder / "venv")
    inside = folder / "venv" / "bin" / "python"
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", packages, wheel)
    libraries = {str(Path(sys.modules[name].__path__[0]).parent) for name in ("pyarrow", "duckdb", "typer")}
    (packages / "beside.pth").write_text("\n".join(libraries))  # plain paths: no editable install comes with them
    place = run(inside, "-c", "import pivot; print(pivot.__file__)", cwd=folder)
    assert place.startswith(str(packages))
    return inside


@pytest.fixture(scope="module")
def store(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store like that of ``make demo``; beside it ``grown``, of the smallest shards."""
    root = tmp_path_factory.mktemp("lent") / "store"
    run(python, "-m", "pivot", "build", "sokoban", "frozenlake", "--tasks", TASKS, "--out", root, cwd=root.parent)
    run(python, "-m", "pivot", "compact", root, "--out", root.parent / "grown", "--shard-size", "1", cwd=root.parent)
    return root


def _small(words: list[str], place: Path) -> list[str]:
    """Make a build small, and begin it anew where the page begins it; other commands stay as they are."""
    words = ["runs/demo" if word == "DIR" else word for word in words]
    if words[1] != "build":
        return words
    if "--tasks" in words:
        words[words.index("--tasks") + 1] = TASKS
    else:
        words += ["--tasks", TASKS]
    assert (place / words[words.index("--out") + 1]).parent.name == "runs"
    return words


@pytest.mark.parametrize("page", WALKED, ids=lambda page: page.name)
def test_everything_on_a_page_runs(page: Path, python: Path, store: Path, tmp_path: Path) -> None:
    steps = _steps(page)
    built = {word for _, text in steps if text.startswith("pivot build") for word in re.findall(r"runs/(\w+)", text)}
    for name in (*LENT, "monday", "tuesday"):
        if name not in built:
            shutil.copytree(store.parent / "grown" if name == "grown" else store, tmp_path / "runs" / name)
    environment = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    failed: list[str] = []
    for kind, text in steps:
        words = ["-c", text] if kind == "python" else ["-m", *_small(shlex.split(text, comments=True), tmp_path)]
        done = subprocess.run(
            [python, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            failed.append(f"{text}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    assert not failed, "\n\n".join(failed)


def test_what_is_left_out_has_a_reason_that_is_needed() -> None:
    lines = [text for page in PAGES for kind, text in _all_steps(page) if kind == "console"]
    for pattern, reason in ELSEWHERE.items():
        assert any(re.search(pattern, line) for line in lines), reason
