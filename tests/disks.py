"""Small filesystems of their own, on which tests run out of space."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_disk(place: Path, size: str = "") -> Iterator[Path]:
    """Mount a filesystem in memory at ``place``, of a size such as ``256k``; skip where that is not allowed."""
    place.mkdir()
    limit = ["-o", f"size={size}"] if size else []
    command = ["mount", "-t", "tmpfs", *limit, "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if mounted.returncode:
        pytest.skip(f"only root may mount a small disk: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
