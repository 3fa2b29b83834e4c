"""Remove old nights of a folder, with their reports, and nothing else.

A night is a finished store that is named by its day. Its manifest becomes a mark first, so after a kill no reader takes
the rest for a store, and the next prune removes it.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from ..core.errors import ConfigError, NoStoreError
from ..core.progress import Reporter, Silent
from ..core.storage import Address, Storage, open_storage, parse_address
from ..datasets.store.nights import finished_nights, write_nights_card
from ..datasets.store.store import MANIFEST, RUN
from ..insight.report.site import MARKER

STAGE = "prune"
MARK = ".pruned.json"
"""The former manifest of a night that is being removed."""
_LOCKS = {".lock"}


@dataclass(frozen=True, slots=True)
class Retention:
    """Rule that says which nights are kept: the last so many days, or the newest so many finished nights."""

    days: int | None = None
    nights: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Retention":
        """Read ``14d`` or ``30``.

        Raises:
            ConfigError: it is neither, or would keep nothing.
        """
        match = re.fullmatch(r"0*([1-9]\d{0,4})(d?)", text, re.ASCII)
        if match is None:
            raise ConfigError(f"keep: found {text!r}, expected days such as 14d, or a number of nights such as 30")
        count = int(match[1])
        return cls(days=count) if match[2] else cls(nights=count)

    def expired(self, finished: list[str], today: date) -> list[str]:
        """Return the finished nights to remove, given in order; the newest one is always kept.

        Args:
            finished: names of the nights (``2026-01-31``), the oldest first.
            today: the day from which days count back.
        """
        if self.days is None:
            return finished[: -(self.nights or 1)]
        first = (today - timedelta(days=self.days)).isoformat()
        return [name for name in finished[:-1] if name < first]


@dataclass(frozen=True, slots=True)
class Removal:
    """Something that was removed, or would be."""

    kind: str
    """``night`` or ``report``."""
    address: str
    files: int
    """Number of files."""
    bytes: int


@dataclass(slots=True)
class Pruned:
    """The outcome of a prune."""

    dry_run: bool
    """Whether nothing was removed."""
    removals: list[Removal] = field(default_factory=list[Removal])
    kept: list[str] = field(default_factory=list[str])
    """One line for each night that was left for a reason, such as one that a run writes."""

    @property
    def bytes(self) -> int:
        """Length of everything removed."""
        return sum(each.bytes for each in self.removals)


def prune(
    root: str | Address,
    *,
    keep: str,
    dry_run: bool = False,
    follow_links: bool = False,
    reporter: Reporter | None = None,
    today: date | None = None,
) -> Pruned:
    """Remove the finished nights of a folder that a rule does not keep, with their reports; run it again after a kill.

    Args:
        root: folder of nights, which are finished stores named by their day (``2026-01-31``); nothing else is removed.
        keep: nights to keep: the days before today, such as ``14d``, or the newest nights, such as ``30``.
        dry_run: only return what would be removed.
        follow_links: allow links below your own folder; without it they are refused.
        reporter: gets the progress, a unit per night.
        today: the day from which the days of ``keep`` count back; by default that of the clock, in UTC.

    Returns:
        What was removed, with files and bytes, and what was kept for a reason.

    Raises:
        StoreError: no finished night is there, or a link or special file is below the folder.
        ConfigError: the rule cannot be used, or the folder is a store.
    """
    retention = Retention.parse(keep)
    root, reporter = parse_address(root, follow_links=follow_links), reporter or Silent()
    storage, pruned = open_storage(root), Pruned(dry_run)
    if not storage.exists():
        raise NoStoreError(f"{root} does not exist; name a folder of nights")
    storage.check_contents()
    if storage.stat(RUN) is not None:
        raise ConfigError(f"{root} is one store, expected a folder of nights, such as {root.parent}")
    finished = [name for name in finished_nights(root) if _is_day(name)]
    days = [name for name in storage.entries() if _is_day(name) and storage.stat(name) is None]
    begun = [name for name in days if _is_half_removed(open_storage(root / name))]
    if not finished and not begun:
        raise NoStoreError(f"{root} holds no finished night (such as {root}/2026-01-31); name a folder of nights")
    expired = retention.expired(finished, today or datetime.now(UTC).date())
    if expired and not dry_run:
        write_nights_card(root, expired, create=False)
    reporter.start(STAGE, len(begun) + len(expired))
    for name in sorted([*begun, *expired]):
        _remove_night(root / name, pruned)
        reporter.advance(STAGE, 1)
    reporter.finish(STAGE)
    return pruned


def _is_day(name: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", name, re.ASCII):
        return False
    try:
        date.fromisoformat(name)
    except ValueError:
        return False
    return True


def _is_half_removed(night: Storage) -> bool:
    """Whether a killed prune left it: with its mark, or at the very end an empty folder."""
    return (night.stat(MARK) is not None and night.stat(MANIFEST) is None) or night.sizes().keys() <= _LOCKS


def _remove_night(night: Address, pruned: Pruned) -> None:
    """Remove the store of a night with its report, unless a run writes it."""
    storage = open_storage(night)
    if writer := storage.writer():
        pruned.kept.append(f"{night} is being written by process {writer}")
        return
    sizes = storage.sizes()
    _remove_report(night.parent / f"{night.name}-report", pruned)
    if not pruned.dry_run:
        with storage.lock() as leased:
            locked = open_storage(leased)
            if locked.stat(MANIFEST) is not None:
                locked.replace(MANIFEST, MARK)
            _empty(locked, MARK)
            if not storage.remote:
                open_storage(night.parent).delete(night.name)
    _note(pruned, "night", night, sizes)


def _remove_report(folder: Address, pruned: Pruned) -> None:
    storage = open_storage(folder)
    if storage.stat(MARKER) is None and (not storage.exists() or storage.entries()):
        return  # not a report, nor what is left of one that was being removed
    storage.check_contents()
    sizes = storage.sizes()
    if not pruned.dry_run:
        _empty(storage, MARKER)
        if not storage.remote:
            open_storage(folder.parent).delete(folder.name)
    _note(pruned, "report", folder, sizes)


def _empty(storage: Storage, last: str) -> None:
    """Remove everything but the lock: one file last, by which the next prune finds what is left."""
    for name in storage.entries():
        if name != last and name not in _LOCKS:
            storage.delete(name)
    storage.delete(last)


def _note(pruned: Pruned, kind: str, address: Address, sizes: dict[str, int]) -> None:
    if sizes:
        pruned.removals.append(Removal(kind, str(address), len(sizes), sum(sizes.values())))


def refuse_undated(out: str, placeholder: str) -> None:
    """Refuse a retention for a build whose folder is not named by its day.

    Raises:
        ConfigError: it is not.
    """
    if out.rstrip("/").rpartition("/")[2] != placeholder:
        raise ConfigError(
            f"keep: found the folder {out!r}, expected one that ends with /{placeholder}; leave keep empty"
        )
