"""Run every command and snippet of README and docs with the wheel alone, outside the repository.

``make test WHAT=docs`` runs this module. Blocks that need a model, a server, a simulator or PyTorch are skipped, each
with its reason; builds are made small. Each page runs in its own folder, with copies of the stores that it does not
build.
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
    r"^pivot (train|evaluate|benchmark|make-model) ": "needs PyTorch and a model; test_benchmark_runs.py compares",
    r" --(policy|writer|base-url) ": "needs a model or its server",
    r"\.backend=": "needs a simulator",
    r" --engine ": "needs a cluster; test_engines.py has one",
    r"s3://": "needs an object store; test_objects.py has one",
    r" hub:": "needs the hub; test_push.py has one",
    r"serve-command .*\|": "starts a server",
    r"corridor|sleepwalk": "needs the example plugin; test_external.py installs and runs it",
    r"^pivot (view|deploy --(serve|work))": "serves until it is interrupted",
    r"runs/sokoban-mp|runs/walk-agent": "needs a run of Stage II",
    r"runs/nightly": "needs nights; test_deployments.py has some",
    r"^pivot import |runs/(mine|vagen|chats)": "needs rollouts of a trainer; see tests/interop",
    r"gym_simplegrid": "needs a package of environments; test_allow.py has one",
}
"""Commands that a machine without GPU, server and simulator cannot run, and why."""
SNIPPETS_ELSEWHERE = {
    r"s3://": "needs an object store; test_objects.py has one",
    r"from trl ": "needs PyTorch; test_stock_trainers.py trains with TRL's trainer on a store",
    r"pivot\.Recorder|runs/(mine|vagen)": "needs rollouts of a trainer; test_recorder.py has environments",
    r"verifiers": "needs the library; tests/interop has it",
    r"from transformers ": "needs PyTorch and a model",
}
"""Python snippets that cannot run here, and why."""
LENT = ("demo", "first", "old", "new", "three", "last-year", "vlm", "monday", "tuesday")
"""Stores in ``runs/`` that pages expect."""
LEVELS = {"levels.xsb": "######\n#@ $.#\n#    #\n######\n", "lakes/small.txt": "SFFF\nFHFH\nFFFH\nHFFG\n"}
"""Levels that a reader of docs/how-to/running.md has."""
TASKS = "2"
"""Levels of a build."""


def _steps(page: Path) -> list[tuple[str, str]]:
    """Return kind and text of every PIVOT command and snippet that can run here, in the order of the page."""
    steps: list[tuple[str, str]] = []
    for kind, block in re.findall(r"```(console|python)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        if kind == "python":
            steps.append((kind, block))
        steps += [(kind, line) for line in block.splitlines() if kind == "console" and line.startswith("pivot ")]
    return [(kind, text) for kind, text in steps if not _is_elsewhere(kind, text)]


def _is_elsewhere(kind: str, text: str) -> bool:
    return any(re.search(pattern, text) for pattern in (ELSEWHERE if kind == "console" else SNIPPETS_ELSEWHERE))


WALKED = [page for page in PAGES if _steps(page)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel, and the libraries of this one."""
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
    """A small store like that of ``make demo``."""
    root = tmp_path_factory.mktemp("lent") / "store"
    run(python, "-m", "pivot", "build", "sokoban", "frozenlake", "--tasks", TASKS, "--out", root, cwd=root.parent)
    return root


def _small(words: list[str], place: Path) -> list[str]:
    """Make a build small; leave other commands unchanged."""
    words = ["runs/demo" if word == "DIR" else word for word in words]
    if words[1] != "build":
        return words
    if "--tasks" in words:
        words[words.index("--tasks") + 1] = TASKS
    elif "--levels" not in words:
        words += ["--tasks", TASKS]
    assert (place / words[words.index("--out") + 1]).parent.name == "runs"
    return words


@pytest.mark.parametrize("page", WALKED, ids=lambda page: page.name)
def test_everything_on_a_page_runs(page: Path, python: Path, store: Path, tmp_path: Path) -> None:
    steps = _steps(page)
    built = {name for _, text in steps for name in re.findall(r"^pivot build \w.*runs/(\w+)", text)}
    for name in {*LENT} - built:
        shutil.copytree(store, tmp_path / "runs" / name)
    for name, level in LEVELS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(level)
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


TYPED = '''# pyright: strict
"""A user's program."""

from pathlib import Path

import gymnasium
import pivot

LEVEL = "######\\n#@ $.#\\n#    #\\n######"


def lost_turn(actions: list[str]) -> int:
    """Return the turn after which the level cannot be solved in time."""
    verdict: pivot.Verdict = pivot.certify("sokoban", LEVEL, actions, horizon=4)
    return verdict.pivot_step


def main(root: Path) -> None:
    """Build, check and count."""
    result: pivot.BuildResult = pivot.build({"environments": {"sokoban": {"tasks": 2}}, "rollouts": 4}, root)
    assert result.is_whole and pivot.verify(root).holds
    (turns,) = pivot.credit("sokoban", [{"initial_state": LEVEL, "actions": ["right", "right"], "horizon": 4}])
    assert not isinstance(turns, pivot.Unsolved)
    graph = pivot.explore(lambda: gymnasium.make("FrozenLake-v1", is_slippery=False))
    print(lost_turn(["down", "right", "right", "up"]), [turn.need_before for turn in turns], graph.need(0))
    print(pivot.query(root, "from modes").height)


main(Path("runs/typed"))
'''
"""A program of a user, with the types of the package as the wheel has them."""


def test_a_typed_program_passes_a_strict_check_and_runs(python: Path, tmp_path: Path) -> None:
    """Catch a wheel without its types, and a public function or class whose type is not public."""
    (tmp_path / "program.py").write_text(TYPED)
    checker = Path(sys.executable).with_name("basedpyright")
    assert "0 errors" in run(checker, "--pythonpath", python, tmp_path / "program.py", cwd=tmp_path)
    assert run(python, "program.py", cwd=tmp_path).startswith("2 [2, 1] 6.0")
