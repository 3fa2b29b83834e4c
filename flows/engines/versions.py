"""Versions of everything that affects bytes; a driver compares them with those of its workers."""

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points, requires
from pathlib import Path

from ...core.plugins import GROUPS
from ...models.extras import version_of

PROJECT = "pivot-vlm"
OURS = Path(__file__).parents[2]
ROOMS = (
    *("cli", "collage", "datasets", "environments", "core", "flows", "insight", "interop", "labeling"),
    *("models", "rollouts", "solvers", "testing", "training"),
)
"""Folders of the package that affect bytes; a checkout also has others, such as tests and runs."""

CODE = "PIVOT's source"


@cache
def versions_here() -> Mapping[str, str]:
    """Return the versions of Python, of PIVOT and its plugins, and of the packages that they compute with.

    They are read once per process, because a process keeps the modules that it has imported.
    """
    required = [line for line in requires(PROJECT) or () if "extra ==" not in line]
    names = {match.group().lower() for line in required if (match := re.match(r"[\w.-]+", line))}
    for group in GROUPS:
        names |= {point.dist.name.lower() for point in entry_points(group=f"pivot.{group}") if point.dist is not None}
    versions = {"Python": ".".join(map(str, sys.version_info[:2])), CODE: source_digest(OURS)}
    return versions | {name: version_of(name) for name in sorted(names)}


def source_digest(package: Path) -> str:
    """Return a digest of names and contents of the source files of a package: of its root, and of all its folders."""
    files = [package / name for name in next(os.walk(package))[2] if name.endswith(".py")]
    for room in ROOMS:
        for folder, _, names in os.walk(package / room):
            files += [Path(folder) / name for name in names if name.endswith(".py")]
    hasher = hashlib.sha256()
    for file in sorted(files):
        content = file.read_bytes()
        hasher.update(f"{file.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return hasher.hexdigest()[:12]


def other_versions(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """Return the differences of two machines in words; empty if there are none."""
    return ", ".join(
        f"{name} {theirs.get(name, 'not installed')} (here {ours.get(name, 'not installed')})"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    )
