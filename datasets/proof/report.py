"""What a verification finds."""

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
