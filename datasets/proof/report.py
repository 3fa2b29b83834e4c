"""What a verification finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...storage.receipts import Receipt
from ..config import Shard


@dataclass(slots=True)
class ShardReport:
    """What was checked in one shard, and what was found."""

    shard: Shard
    problems: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    unproved: int = 0
    """Labels that no independent search could decide."""
    receipts: dict[str, Receipt] = field(default_factory=dict)
    """What the receipt of each stage should say, but for the digests of its files."""


@dataclass(slots=True)
class Report:
    """The outcome of a verification."""

    problems: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    unproved: int = 0
    """Labels that hold as far as they were derived anew, but that no independent search could decide."""
    notes: list[str] = field(default_factory=list)
    """What was taken as it is stored, and why."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    def count(self, checked: Mapping[str, int]) -> None:
        """Add what else was checked."""
        for name, number in checked.items():
            self.checked[name] = self.checked.get(name, 0) + number

    def add(self, part: str, report: "Report") -> None:
        """Add what was found in a part of the store."""
        self.problems += [f"{part}: {problem}" for problem in report.problems]
        self.notes += [f"{part}: {note}" for note in report.notes]
        self.unproved += report.unproved
        self.count(report.checked)
