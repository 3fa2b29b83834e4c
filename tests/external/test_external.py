"""A third party's package, built as a wheel and installed beside PIVOT, goes all the way; no file of ours changes."""

import hashlib
import json
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from pivot.tests.flow_runs import clean_environment
from pivot.tests.test_architecture import EVERYTHING, ROOT, can_build

ENTRY_POINTS = """
[pivot.environments]
liar = liars:LiarEnv
hearsay = liars:HearsayEnv

[pivot.solvers]
liar = liars:LyingSolver
hearsay = liars:LyingSolver

[pivot.provers]
liar = pivot_corridor.prover:CorridorProver

[pivot.players]
liar = pivot_corridor.player:Stroller
hearsay = pivot_corridor.player:Stroller

[pivot.prompts]
liar = pivot_corridor.prompt:PROMPT
hearsay = pivot_corridor.prompt:PROMPT
"""
"""Entry points of `liars.py`; ``hearsay`` has no prover."""
HERE = Path(__file__).resolve().parent
EXAMPLE = HERE / "corridor"

pytestmark = [
    pytest.mark.skipif(not can_build(), reason="needs build and a newer setuptools; make dev installs both"),
    pytest.mark.xdist_group("prefect"),
]


def run(*command: str | Path, cwd: Path | None = None, **more: str) -> str:
    """Run a process that must succeed, with ``more`` in its environment; return what it printed."""
    environment = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"} | more
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=environment, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digests() -> dict[Path, str]:
    """SHA-256 of every source file of PIVOT, and of its metadata."""
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (*EVERYTHING, ROOT / "pyproject.toml")}


def install(folder: Path) -> Path:
    """Make a virtual environment with the example's wheel and the lying plugins; return its Python."""
    source = Path(shutil.copytree(EXAMPLE, folder / "source"))
    build = ("-P", "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist")
    run(sys.executable, *build, cwd=source)
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", packages, wheel)
    ours = "; ".join(f"site.addsitedir({path!r})" for path in site.getsitepackages())
    (packages / "zz_beside.pth").write_text(f"import site; {ours}\n")
    liars = packages / "liars-1.dist-info"
    liars.mkdir()
    (liars / "METADATA").write_text("Metadata-Version: 2.1\nName: liars\nVersion: 1\n")
    (liars / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copy(HERE / "liars.py", packages)
    return folder / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, prefect_home: Path) -> dict[str, Any]:
    """Output of every command."""
    folder, before = tmp_path_factory.mktemp("external"), digests()
    python = install(folder)
    (folder / "empty").mkdir()
    # The copy's tests: pytest would import the packages around ours, and a checkout's folder may be called pivot-vlm.
    journey = ("-P", HERE / "journey.py", folder, folder / "source" / "test_corridor.py")
    printed = run(python, *journey, cwd=folder / "empty", XDG_CACHE_HOME=str(prefect_home.parents[1]))
    assert digests() == before, "the package changed files of ours"
    return json.loads(printed.splitlines()[-1])


def test_it_builds_verifies_and_shows(shown: dict[str, Any]) -> None:
    """Catch a list of environments inside the package that another package cannot extend."""
    assert "corridor" in shown["build"]
    assert "error" not in shown["build"] + shown["verify"] + shown["stats"] + shown["peek"]
    assert " holds: " in shown["verify"]
    assert "corridor" in shown["stats"]
    assert "corridor" in shown["peek"]


def test_its_own_failure_mode_is_a_class_of_the_dataset(shown: dict[str, Any]) -> None:
    assert shown["modes"][10:] == ["fell"]
    assert {mode for mode, _ in shown["rows"]} == {"timeout", "fell"}
    assert all(mode == name for mode, name in shown["rows"])


def test_labels_without_a_prover_are_counted_as_unproved(shown: dict[str, Any]) -> None:
    for command in ("build", "verify", "stats"):
        assert "unproved" in shown[command], command


def test_a_lying_solver_is_refused_by_its_prover(shown: dict[str, Any]) -> None:
    lies = [row for row in shown["lies"] if not row[1]]
    assert lies
    for pivot, proved, accepted, reasons in lies:
        assert (pivot, proved, accepted) == (0, False, False)
        assert "pivot_step is 0, the walk gives" in reasons
    truths = len(shown["lies"]) - len(lies)
    assert 0 < shown["learnt"] <= truths, "only what was proved may be learnt"
    assert "prover" in shown["refused"]


def test_it_keeps_the_contracts(shown: dict[str, Any]) -> None:
    assert shown["contracts"] == 0


def test_the_command_line_knows_it(shown: dict[str, Any]) -> None:
    assert "corridor" in shown["help"]
    assert "corridor.KEY=VALUE" in shown["settings"]
    assert "Cells of a generated corridor." in shown["settings"]
