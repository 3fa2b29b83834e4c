"""One writer at a time: the lock of a store."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import StoreError
from .files import (
    TEMPORARY,
    storage_error,
)

LOCK = ".lock"


@contextlib.contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold the store's writer lock; it dies with the process, however it ends.

    Raises:
        StoreError: another process is writing the store, or the folder cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        stream = (root / LOCK).open("a+b", buffering=0)
    except OSError as error:
        raise storage_error("write to", root, error) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stream.truncate(0)
            stream.write(str(os.getpid()).encode())
        except BlockingIOError:
            stream.seek(0)
            holder = stream.read().decode(errors="replace").strip() or "unknown"
            raise StoreError(
                f"{root} is being written by another run (process {holder}); wait for its end, or choose another --out"
            ) from None
        except OSError as error:
            raise storage_error("lock", root, error) from error
        try:
            shutil.rmtree(root / TEMPORARY, ignore_errors=True)
            yield
        finally:
            shutil.rmtree(root / TEMPORARY, ignore_errors=True)
