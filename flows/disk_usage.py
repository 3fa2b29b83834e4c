"""Disk space of a store, or of a folder of nights: every file counted once, by part and kind."""

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from ..datasets.card import CARD
from ..datasets.location import no_store
from ..datasets.parts import PARTS, listed_parts, part_folder
from ..datasets.proof.inventory import PROBE_FOLDER
from ..datasets.schema import IMPORTS, STORE_TABLES
from ..datasets.store import DATABASE, DATASET_FOLDER, MANIFEST, RECEIPTS, RUN
from ..errors import NoStoreError, StoreError
from ..insight.report.site import MARKER
from ..storage import Address, Storage, open_storage
from ..storage.commit import COMMIT

OF_LABELS = re.compile(r"labels/v(\d+)/.*|(?:prompts|calls)/.*-labels-v(\d+)\.parquet")
"""Files of one label version: its labels, their prompts and requests."""
_PART = re.compile(r"(parts/\d{4,9})/(.*)")
LEFTOVERS = re.compile(rf"(?:\{COMMIT}|\.tmp|\.{DATASET_FOLDER}-v\d+)/.*|(?:.*/)?\.[^/]*\.tmp")
_RECORDS = (RUN, MANIFEST, DATABASE, PARTS, CARD, ".lock")
_FOLDERS = {DATASET_FOLDER: "dataset", PROBE_FOLDER: "probe", f".{PROBE_FOLDER}": "probe", RECEIPTS: "receipts"}
_TABLES = {schema.name for schema in (*STORE_TABLES, IMPORTS)}


@dataclass(frozen=True, slots=True)
class Usage:
    """Files of one kind in one part of a store, or outside of all stores."""

    store: str
    """Address of the store or report; of files outside of both, the folder that was asked about."""
    part: str
    """Folder of a later part, ``parts/0001``; empty for the first part, and outside of stores."""
    kind: str
    """Such as ``table steps``, ``labels``, ``older labels v1``, ``unfinished part``, ``report``, ``leftovers``."""
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Files and bytes below a folder."""

    root: str
    rows: list[Usage]
    """Sorted by store, part and kind; every file below the folder is in one of them."""

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
        return {
            "root": self.root,
            "files": self.files,
            "bytes": self.bytes,
            "rows": [asdict(row) for row in self.rows],
        }


def disk_usage(root: Address) -> DiskUsage:
    """Count what takes space in a store, finished or not, or in a folder with stores and reports.

    Nothing is changed or locked; a store that is being written is counted as it is at that moment.

    Raises:
        StoreError: the folder does not exist, neither is a store nor holds a store or report, or a link or special
            file is below it.
    """
    storage = open_storage(root)
    if not storage.exists():
        raise NoStoreError(f"{root} does not exist; name a store, or a folder of stores")
    storage.entries()  # refuses a file
    storage.check_contents()
    sizes = storage.sizes()
    owners = _owners(sizes)
    if not owners.folders:
        raise no_store(storage, root)
    kinds = {prefix: _Kinds.of(open_storage(root / prefix if prefix else root)) for prefix in owners.stores}
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for name, size in sizes.items():
        owner = owners.of(name)
        if owner is None:
            key = (str(root), "", "other")
        elif owner in owners.stores:
            rest = name[len(owner) + 1 :] if owner else name
            key = (str(root / owner if owner else root), *kinds[owner].of_file(rest))
        else:
            key = (str(root / owner if owner else root), "", "report")
        sums[key][0] += 1
        sums[key][1] += size
    return DiskUsage(str(root), [Usage(*key, *each) for key, each in sorted(sums.items())])


@dataclass(frozen=True, slots=True)
class _Owners:
    """The outermost folders that are stores or reports, by relative name."""

    stores: set[str]
    folders: list[str]
    """Both kinds, sorted as folder names that end with a slash."""

    def of(self, name: str) -> str | None:
        """Return the folder that a file is in."""
        place = bisect_right(self.folders, name)
        if place and name.startswith(self.folders[place - 1]):
            return self.folders[place - 1].rstrip("/")
        return None


def _owners(names: dict[str, int]) -> _Owners:
    marked = {RUN: set[str](), MARKER: set[str]()}
    for name in names:
        folder, _, base = name.rpartition("/")
        if base in marked:
            marked[base].add(folder)
    outermost: list[str] = []
    for folder in sorted(f"{each}/" if each else "" for each in marked[RUN] | marked[MARKER]):
        if not outermost or not folder.startswith(outermost[-1]):
            outermost.append(folder)
    return _Owners({each.rstrip("/") for each in outermost if each.rstrip("/") in marked[RUN]}, outermost)


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Facts that tell the files of a store from each other."""

    storage: Storage
    listed: set[str]
    """Folders of the later parts that readers see."""
    versions: dict[str, int | None]
    """Current label version by folder of a part, as it is read."""

    @classmethod
    def of(cls, storage: Storage) -> "_Kinds":
        try:
            listed = {part_folder(number) for number in listed_parts(storage)}
        except StoreError:  # a damaged list: `pivot verify` reports it, and the files take their space all the same
            listed = set[str]()
        return cls(storage, listed, {})

    def of_file(self, name: str) -> tuple[str, str]:
        """Return part and kind of a file."""
        match = _PART.fullmatch(name)
        part, rest = (match[1], match[2]) if match else ("", name)
        if part and part not in self.listed:
            return part, "unfinished part"
        return part, self._kind(part, rest)

    def _kind(self, part: str, name: str) -> str:
        if LEFTOVERS.fullmatch(name):
            return "leftovers"
        if match := OF_LABELS.fullmatch(name):
            version, current = int(match[1] or match[2]), self._version(part)
            if current is None or version == current:
                return "labels"
            return f"{'older' if version < current else 'unfinished'} labels v{version}"
        folder, slash, _ = name.partition("/")
        if slash and folder in _TABLES:
            return f"table {folder}"
        if slash and folder in _FOLDERS:
            return _FOLDERS[folder]
        return "records" if name in _RECORDS else "other"

    def _version(self, part: str) -> int | None:
        """Return the current label version of a part; None where ``run.json`` does not say it."""
        if part not in self.versions:
            self.versions[part] = label_version(self.storage, part)
        return self.versions[part]


def label_version(storage: Storage, part: str = "") -> int | None:
    """Return the current label version of a store or of a later part; None where ``run.json`` does not say it."""
    try:
        version = storage.read_json(f"{part}/{RUN}" if part else RUN)["config"]["label_version"]
    except (StoreError, KeyError, TypeError):
        return None
    return version if type(version) is int else None
