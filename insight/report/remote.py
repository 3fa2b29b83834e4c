"""A report in an object store: the same files as on disk, uploaded so that nobody reads half of one."""

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.progress import Reporter
from ...core.storage import Address, Url, open_storage
from ...core.storage.base import Fill
from ...core.storage.lease import LOCK
from .contents import Contents, Selection
from .site import MARKER, write_report

ENTRY = "index.html"
"""Page that opens a report."""


def write_remote_report(root: Address, target: Url, selection: Selection, reporter: Reporter) -> Contents:
    """Write the report of a finished store to an object store, in place of an earlier report.

    The page that opens a report is removed first and uploaded last; after a kill, the next report completes it. Files
    of an earlier report that the new one lacks are removed.

    Args:
        root: the store.
        target: folder of the report.
        selection: episodes to show.
        reporter: gets the progress.

    Raises:
        StoreError: as :func:`.write_report`, or the object store refuses.
        ConfigError: the selection names what the store does not hold, or ``target`` holds something else.
    """
    storage = open_storage(target)
    if storage.stat(MARKER) is None and (other := [name for name in storage.entries() if name != LOCK]):
        raise ConfigError(f"{target} holds {other[0]} but no {MARKER}, so it is not a report; choose another folder")
    with tempfile.TemporaryDirectory(prefix="pivot-report-") as place, storage.lock() as leased:
        site, writer = Path(place) / target.name, open_storage(leased)
        listed = write_report(root, site, selection, reporter)
        files = {path.relative_to(site).as_posix(): path for path in site.rglob("*") if path.is_file()}
        writer.delete(ENTRY)
        writer.write_bytes(MARKER, files[MARKER].read_bytes())
        for name in [*writer.listing()]:
            if name not in files and name != LOCK:
                writer.delete(name)
        writer.write_all(_fills({name: path for name, path in files.items() if name not in (ENTRY, MARKER)}))
        writer.write_bytes(ENTRY, files[ENTRY].read_bytes())
    return listed


def _fills(files: dict[str, Path]) -> Iterator[tuple[str, Fill]]:
    for name, path in files.items():
        yield name, partial(_copy, path)


def _copy(path: Path, sink: Any) -> None:
    with path.open("rb") as source:
        shutil.copyfileobj(source, sink)
