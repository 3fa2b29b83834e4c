"""Compiled code is forgotten when something that it uses has changed, and only then."""

import os
from pathlib import Path
from types import ModuleType

from pivot.compiled import forget_stale


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
