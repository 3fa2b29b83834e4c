"""Small file systems in which tests run out of space, and permissions that also restrict root."""

import ctypes
import subprocess
import sys
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


_CAPABILITIES_OF_THREAD = 0x20080522  # version 3 of the Linux interface: three words, twice
_OVERRIDE = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextmanager
def obeyed_permissions() -> Iterator[None]:
    """Let this thread and its later threads obey the permissions of files even as root."""
    if sys.platform != "linux":
        pytest.skip("capabilities of a thread are those of Linux")
    library = ctypes.CDLL(None, use_errno=True)
    header, words = (ctypes.c_uint32 * 2)(_CAPABILITIES_OF_THREAD, 0), (ctypes.c_uint32 * 6)()
    assert library.capget(header, words) == 0
    before = words[0]
    words[0] = before & ~_OVERRIDE
    assert library.capset(header, words) == 0
    try:
        yield
    finally:
        words[0] = before
        assert library.capset(header, words) == 0
