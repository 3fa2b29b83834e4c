"""Reports of a verification."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..store.config import Shard
from ..store.schema import LABELS, STORE_TABLES
from ..store.store import DATABASE, DATASET_FOLDER, Store

_TABLES = (*(schema.name for schema in STORE_TABLES), LABELS.name)


@dataclass(slots=True)
class Report:
    """The outcome of a verification of a store, or of one shard."""

    problems: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    unproved: int = 0
    """Number of labels that were recomputed but not decided by the independent search."""
    notes: list[str] = field(default_factory=list)
    """Rows and files that were taken as stored, with the reason."""
    files: dict[str, int] = field(default_factory=dict)
    """Number of verified files, by the folder of their table or dataset."""
    shard: Shard | None = None
    """The shard, in the report of one."""
    prose: int = 0
    """Number of accepted labels with unverified text of a teacher."""
    simulated: bool = False
    """Whether rewards and pictures come from a simulator whose renders do not repeat."""

    @property
    def holds(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def count(self, checked: Mapping[str, int]) -> None:
        """Add numbers of checked rows."""
        for name, number in checked.items():
            self.checked[name] = self.checked.get(name, 0) + number

    def vouches_for(self, store: Store) -> None:
        """Count the fully checked files of a store."""
        for name in store.manifest():
            folder = name.split("/", maxsplit=1)[0] if "/" in name else name
            self.files[folder] = self.files.get(folder, 0) + 1

    def scope(self) -> list[str]:
        """Return lines of text that list the verified files."""
        dataset = self.files.get(DATASET_FOLDER, 0)
        tables = ", ".join(f"{name} {self.files[name]}" for name in _TABLES if name in self.files)
        rows = self.checked.get("training rows", 0)
        return [
            f"dataset/: {dataset} files with {rows} training rows, the card and its configs",
            f"tables, in files: {tables}; the views of {DATABASE}; no other Parquet file is below the store",
        ]

    def add(self, night: str, report: "Report") -> None:
        """Add the report of a night, or with an empty name that of the store itself."""
        where = f"{night}: " if night else ""
        self.problems += [f"{where}{problem}" for problem in report.problems]
        self.notes += [f"{where}{note}" for note in report.notes]
        self.unproved += report.unproved
        self.count(report.checked)
        for name, count in report.files.items():
            self.files[name] = self.files.get(name, 0) + count
