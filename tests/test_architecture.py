"""Check the architecture: directions of imports, contents of the wheel, and forbidden calls."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pivot.core import plugins
from pivot.core.version import __version__
from pivot.insight.report.site import ASSETS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOWER = ("core", "solvers", "collage", "models", "environments", "rollouts", "labeling", "datasets")
LAYERS = (*LOWER, "training", "insight", "flows", "interop", "cli", "testing")
"""Bottom to top; a module imports from its own layer and from layers before it."""
OUTSIDE = ("tests", "benchmarks", "examples", "docs", "runs", "build", "dist")
DATA = (
    *(
        "py.typed",
        "collage/font.yaml",
        "datasets/sql/views.yaml",
        "flows/alerts.yaml",
        "interop/words.yaml",
        "training/evaluation/players.yaml",
        "prefect.yaml",
        "interop/episode.schema.json",
        "datasets/export/card_template.md",
        "training/analyzer_sft/card_template.md",
        "training/evaluation/predictions.schema.json",
    ),
    *(
        path.relative_to(ROOT).as_posix()
        for folder in ("environments", "labeling/domains")
        for path in sorted((ROOT / folder).rglob("*.yaml"))
    ),
    *(f"training/recipes/{name}.yaml" for name in ("qwen2.5-vl-3b", "qwen3-vl-2b", "tiny")),
    *(f"training/policy_rl/recipes/{name}.yaml" for name in ("qwen2.5-vl-3b", "tiny")),
    *(f"insight/report/assets/{name}" for name in ASSETS),
)
"""Files of the wheel that are no modules."""
MAX_LINES = 500
MAX_FILES = 15
"""Most modules in a folder of training."""


def _sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


ALIAS = "pivot_vlm/__init__.py"
"""A package beside `pivot` in the wheel: verifiers loads tasksets by the name of a top-level package."""
BUILT_BY = ("pyproject.toml", "README.md", "LICENSE", ALIAS)
"""Files that the build reads and the package does not contain."""
SHIPPED = [*sorted(path for path in ROOT.glob("*.py") if path.name not in BUILT_BY), *_sources(*LAYERS)]
EVERYTHING = [*SHIPPED, *_sources("tests", "benchmarks")]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _relative_targets(path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line and absolute path (parts below the root package) of every relative import of a module."""
    folder = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - node.level + 1]
            assert len(folder) >= node.level - 1, f"{_name(path)}:{node.lineno} leaves the package"
            module = tuple(node.module.split(".")) if node.module else ()
            # `from .. import plugins` names modules or names of the package itself.
            for alias in node.names:
                yield node.lineno, (*base, *module) if module else (*base, alias.name)


def _absolute_imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.lineno, node.module


def test_imports_go_one_way() -> None:
    allowed: set[str] = set()
    for layer in LAYERS:
        allowed.add(layer)
        for path in _sources(layer):
            for line, target in _relative_targets(path):
                assert target[0] in allowed, f"{_name(path)}:{line}: {layer} must not import from {target[0]}"


def _imported_modules(path: Path, names: frozenset[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return the modules of ours that a module imports anywhere: also in functions, and for the type checker alone."""
    folder = path.relative_to(ROOT).parts[:-1]
    modules: set[tuple[str, ...]] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            source = (*folder[: len(folder) - node.level + 1], *(node.module.split(".") if node.module else ()))
            modules |= {each if (each := (*source, alias.name)) in names else source for alias in node.names}
    return modules & names


def test_no_module_imports_itself_through_others() -> None:
    paths = {path.relative_to(ROOT).with_suffix("").parts: path for path in SHIPPED}
    paths = {name[:-1] if name[-1] == "__init__" else name: path for name, path in paths.items()}
    imports = {name: _imported_modules(path, frozenset(paths)) - {name} for name, path in paths.items()}
    while leaves := {name for name, targets in imports.items() if not targets & imports.keys()}:
        imports = {name: targets for name, targets in imports.items() if name not in leaves}
    while roots := imports.keys() - set().union(*imports.values()):
        imports = {name: targets for name, targets in imports.items() if name not in roots}
    assert sorted(map(".".join, imports.keys())) == []


def test_a_build_imports_nothing_that_verifies() -> None:
    paths = {path.relative_to(ROOT).with_suffix("").parts: path for path in SHIPPED if path.name != "__init__.py"}
    reached, ahead = set[tuple[str, ...]](), {("flows", "pipeline")}
    while ahead:
        name = ahead.pop()
        reached.add(name)
        ahead |= _imported_modules(paths[name], frozenset(paths)) - reached
    assert len(reached) > 60
    assert [name for name in reached if name[:2] == ("datasets", "verify")] == []


def test_the_package_itself_imports_layers_only_when_asked() -> None:
    body = _tree(ROOT / "__init__.py").body
    imported = [node for node in body if isinstance(node, ast.ImportFrom) and node.level]
    assert [node.module for node in imported] == ["core.errors", "core.version"]


def test_our_own_modules_are_imported_relatively() -> None:
    # `datasets` is the Hugging Face library; the folder of that name is reached relatively only.
    own = set(LAYERS) - {"datasets"} | {"pivot"}
    for path in SHIPPED:
        for line, module in _absolute_imports(path):
            assert module.split(".")[0] not in own, f"{_name(path)}:{line}: import {module} relatively"


def test_datasets_is_the_hugging_face_library_everywhere() -> None:
    assert not (ROOT / "datasets" / "__init__.py").exists()
    code = "import importlib.util; print(importlib.util.find_spec('datasets').origin)"
    for folder in (ROOT, ROOT / "tests"):
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()).parts[-2:] == ("datasets", "__init__.py")
        assert ROOT / "datasets" not in Path(done.stdout.strip()).parents


def test_no_file_grows_long() -> None:
    lines = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in EVERYTHING}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_no_folder_of_training_holds_too_many_modules() -> None:
    counts = Counter(_name(path.parent) for path in _sources("training"))
    assert {folder: count for folder, count in counts.items() if count > MAX_FILES} == {}


def test_stores_are_touched_through_the_storage_alone() -> None:
    """Only then can tests inject faults, and another backend work, in all of these rooms."""
    touching = {"unlink", "rmtree", "rmdir", "mkdir", "write_text", "touch", "fsync", "rename", "glob", "rglob"}
    touching |= {"iterdir", "is_file", "is_dir"}
    elsewhere = "flows/engines/server.py"  # makes the folder of Prefect
    for path in _sources("datasets", "training", "flows"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Attribute) and _name(path) != elsewhere:
                assert node.attr not in touching, (
                    f"{_name(path)}:{node.lineno}: .{node.attr} goes around pivot.core.storage"
                )


# Decisions on texts, and private names


def _foreign_private(path: Path) -> Iterator[str]:
    """Name imports of underscore modules, or of their names, from outside of the package that holds them."""
    package = path.relative_to(ROOT).parts[:-1]
    for line, target in _relative_targets(path):
        for place, part in enumerate(target):
            if part.startswith("_") and not part.startswith("__") and package[:place] != target[:place]:
                yield f"{_name(path)}:{line} imports {'.'.join(target)}"


def _decisions_on_text(tree: ast.AST) -> Iterator[int]:
    """Return lines that decide by the first words of a message instead of by a type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            words = [each for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)]
            texts = [each.value for each in words if isinstance(each.value, str)]
            if node.func.attr == "startswith" and any(re.search(r"(^|[a-z_]):\s?$", text) for text in texts):
                yield node.lineno
            if node.func.attr == "partition" and texts == [": "]:
                yield node.lineno


def test_underscore_modules_stay_at_home() -> None:
    assert [problem for path in SHIPPED for problem in _foreign_private(path)] == []


def test_no_decision_reads_the_first_word_of_a_message() -> None:
    assert [f"{_name(path)}:{line}" for path in SHIPPED for line in _decisions_on_text(_tree(path))] == []


# The wheel


def test_every_entry_point_loads() -> None:
    groups = PROJECT["project"]["entry-points"] | {"console_scripts": PROJECT["project"]["scripts"]}
    points = [EntryPoint(name, value, group) for group, names in groups.items() for name, value in names.items()]
    for point in points:
        assert callable(point.load()) or point.group in ("pivot.prompts", "pivot.domains", "pivot.arms"), point


def test_entry_point_groups_are_those_that_plugins_reads() -> None:
    assert {f"pivot.{group}" for group in plugins.GROUPS} == set(PROJECT["project"]["entry-points"])
    for group in plugins.GROUPS:
        assert set(PROJECT["project"]["entry-points"][f"pivot.{group}"]) <= set(plugins.names(group)), (
            f"{group}: installed entry points are older than pyproject.toml; install the package again"
        )


def can_build() -> bool:
    """Whether a wheel can be built here without a download."""
    needed = Requirement(PROJECT["build-system"]["requires"][0])
    try:
        return needed.specifier.contains(version(needed.name)) and find_spec("build") is not None
    except PackageNotFoundError:
        return False


@pytest.mark.skipif(not can_build(), reason="needs build and a newer setuptools; make dev installs both")
def test_the_wheel_holds_every_module_and_no_tests(tmp_path: Path) -> None:
    copy = tmp_path / "source"
    tracked = [*SHIPPED, *(ROOT / name for name in (*BUILT_BY, *DATA))]
    for path in (*tracked, *_sources("tests", "benchmarks")):
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    made = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False, env=environment)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert "Description-Content-Type: text/markdown" in metadata
    assert "# PIVOT" in metadata and "pivot build" in metadata
    assert names == {f"pivot/{_name(path)}" for path in SHIPPED} | {f"pivot/{name}" for name in DATA} | {ALIAS}


def test_citation_and_changelog_name_this_version() -> None:
    released = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released is not None
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\ndate-released: {released[2]}\n" in citation
    assert released[1] == __version__


PARTS = {
    "style": "ruff check",
    "types": "basedpyright",
    "main-part": "pytest .*-m not long",
    "training-part": "pytest .*-m train and not long",
    "maniskill-part": "pytest .*-m maniskill",
}
"""Parts of `make test`, and the command that each runs."""


@pytest.mark.parametrize("failing", [(), ("style",), ("types", "main-part"), tuple(PARTS)], ids="+".join)
def test_a_failing_part_of_make_test_keeps_no_later_part_from_running(failing: tuple[str, ...], tmp_path: Path) -> None:
    """Every tool is a script that prints its command line and fails for the parts of ``failing``."""
    fails = "".join(f"echo \"$0 $*\" | grep -q '{PARTS[part]}' && exit 1\n" for part in failing)
    for name in ("bin/python", "bin/ruff", "bin/basedpyright", "bin/pytest", "maniskill/bin/python"):
        tool = tmp_path / name
        tool.parent.mkdir(parents=True, exist_ok=True)
        tool.write_text(f'#!/bin/sh\necho "runs $0 $*"\n{fails}exit 0\n', encoding="utf-8")
        tool.chmod(0o755)
    (tmp_path / "lavapipe").mkdir()
    for name in (".dev", "lavapipe/environment", "maniskill/.torch", "maniskill/.installed"):
        (tmp_path / name).touch()
    command = ["make", "test", f"VENV={os.path.relpath(tmp_path, ROOT)}", "--old-file=browser"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    for pattern in PARTS.values():
        assert len(re.findall(f"^runs .*{pattern}", run.stdout, flags=re.MULTILINE)) == 1
    end, _, names = run.stdout.splitlines()[-1].partition(" failed: ")
    assert (run.returncode, end, set(names.split())) == (
        (2, "make test:", set(failing)) if failing else (0, "make test: all parts passed", set())
    )
