"""Check that compiled code is discarded if code that it uses has changed, and only then."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pivot
from pivot.core.compiled import forget_stale

COMPILED = """
import pivot, sys
from pivot.environments.navigation.view import kernel as rooms, surfaces
from pivot.environments.primitiveskill.view import kernel as tabletop
from pivot.solvers.sokoban import kernel
from pivot.core import images
from numpy import zeros
from numba.core.dispatcher import Dispatcher
assert pivot.__file__.startswith(sys.argv[1]), pivot.__file__
modules = rooms, surfaces, tabletop, kernel, images
functions = [value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)]
assert len(functions) > 40, len(functions)
assert not [function for function in functions if function._cache.cache_path], "something would be kept on disk"
print(images.decode(images.encode_png(zeros((64, 64, 3), "uint8"))).shape, len(images._compiled_filter().signatures))
"""


def test_compiled_code_works_where_nothing_can_be_kept_on_disk(tmp_path: Path) -> None:
    """Catch a kernel that needs its cache on disk: files block the folders, also for root, as without a home."""
    package, source = tmp_path / "pivot", Path(str(pivot.__file__)).parent
    for path in (*source.rglob("*.py"), *source.rglob("*.yaml")):
        place = path.relative_to(source)
        if not {"tests", "benchmarks"} & {*place.parts} and not any(part.startswith(".") for part in place.parts):
            (package / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, package / place)
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    nowhere = tmp_path / "file"
    nowhere.touch()
    closed = {name: str(nowhere / "cache") for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    ran = subprocess.run(
        [sys.executable, "-c", COMPILED, str(tmp_path)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), **closed},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stdout == "(64, 64, 3) 1\n", ran.stderr


def test_only_older_indexes_of_the_file_are_removed(tmp_path: Path) -> None:
    used = ModuleType("used")
    used.__file__ = str(tmp_path / "used.py")
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    ages = {
        "kernel.old-1.py311.nbi": 10,
        "kernel.new-2.py311.nbi": 30,
        "kernel.old-1.py311.1.nbc": 10,
        "other.x.nbi": 10,
    }
    for name, age in {**ages, "../used.py": 20}.items():
        (cache / name).touch()
        os.utime(cache / name, (age, age))
    forget_stale(str(tmp_path / "kernel.py"), used)
    assert {path.name for path in cache.iterdir()} == set(ages) - {"kernel.old-1.py311.nbi"}
