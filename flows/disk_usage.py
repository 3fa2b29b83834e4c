"""Disk space of a store, or of a folder of nights: every file counted once, by folder and kind."""

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from ..core.errors import NoStoreError
from ..core.storage import Address, open_storage, parse_address
from ..core.storage.commit import COMMIT
from ..datasets.store.location import no_store
from ..datasets.store.schema import IMPORTS, LABELS, STORE_TABLES
from ..datasets.store.store import DATASET_FOLDER, RECEIPTS, RUN
from ..datasets.verify.files import PROBE_FOLDER
from ..insight.report.site import MARKER

_LEFTOVERS = re.compile(rf"(?:\{COMMIT}|\.tmp|\.{DATASET_FOLDER}-v\d+)/.*|(?:.*/)?\.[^/]*\.tmp")
_OF_LABELS = re.compile(r"(?:labels|(?:prompts|calls)/.*-labels-v\d+\.parquet)(?:/.*)?")
_KINDS = {DATASET_FOLDER: "dataset", PROBE_FOLDER: "probe", f".{PROBE_FOLDER}": "probe", RECEIPTS: "receipts"}
_KINDS |= {schema.name: f"table {schema.name}" for schema in (*STORE_TABLES, IMPORTS)}


@dataclass(frozen=True, slots=True)
class Usage:
    """Files of one kind in one store, or outside of all stores."""

    store: str
    """Address of the store or report; of files outside of both, the folder that was asked about."""
    kind: str
    """Such as ``table steps``, ``labels``, ``dataset``, ``report``, ``leftovers``."""
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Files and bytes below a folder."""

    root: str
    rows: list[Usage]
    """Sorted by store and kind; every file below the folder is in one of them."""

    @property
    def files(self) -> int:
        """Number of all files."""
        return sum(row.files for row in self.rows)

    @property
    def bytes(self) -> int:
        """Length of all files."""
        return sum(row.bytes for row in self.rows)

    def record(self) -> dict[str, Any]:
        """Return all of it as JSON data."""
        rows = [asdict(row) for row in self.rows]
        return {"root": self.root, "files": self.files, "bytes": self.bytes, "rows": rows}


def disk_usage(root: str | Address, *, follow_links: bool = False) -> DiskUsage:
    """Count what takes space in a store, or in a folder of nights: every file once, by folder and kind.

    Nothing is changed or locked; a store that is being written is counted as it is at that moment.

    Args:
        root: a store, finished or not, or a folder with stores and reports.
        follow_links: count what links below your own folder lead to; without it they are refused.

    Returns:
        Files and bytes by store and kind.

    Raises:
        StoreError: the folder does not exist, neither is a store nor holds a store or report, or a link or special
            file is below it.
    """
    root = parse_address(root, follow_links=follow_links)
    storage = open_storage(root)
    if not storage.exists():
        raise NoStoreError(f"{root} does not exist; name a store, or a folder of stores")
    storage.entries()  # refuses a file
    storage.check_contents()
    sizes = storage.sizes()
    folders = sorted(name.removesuffix(mark) for name in sizes for mark in (RUN, MARKER) if _base(name) == mark)
    outermost: list[str] = []
    for folder in folders:
        if not outermost or not folder.startswith(outermost[-1]):
            outermost.append(folder)
    if not outermost:
        raise no_store(storage, root)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for name, size in sizes.items():
        place = bisect_right(outermost, name)
        folder = outermost[place - 1] if place and name.startswith(outermost[place - 1]) else None
        if folder is None:
            key = str(root), "other"
        else:
            kind = _kind(name[len(folder) :]) if f"{folder}{RUN}" in sizes else "report"
            key = str(root / folder.rstrip("/") if folder else root), kind
        sums[key][0] += 1
        sums[key][1] += size
    return DiskUsage(str(root), [Usage(*key, *each) for key, each in sorted(sums.items())])


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _kind(name: str) -> str:
    """Return the kind of a file of a store."""
    if _LEFTOVERS.fullmatch(name):
        return "leftovers"
    if _OF_LABELS.fullmatch(name):
        return LABELS.name
    folder, slash, _ = name.partition("/")
    return _KINDS.get(folder, "other") if slash else "records"
