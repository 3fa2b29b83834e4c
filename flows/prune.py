"""Remove old nights of a folder, with their reports, and nothing else.

A night is a finished store that is named by its day. It goes in two steps: its manifest becomes a mark with today's
date, so that no reader takes it for a store (renamed back, it is one again), and a prune on a later day removes its
files. A deployment removes only nights that carry its owner file.
"""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from secrets import token_hex
from typing import Any

from ..core.errors import ConfigError, NoStoreError, StoreError
from ..core.progress import Reporter
from ..core.storage import Address, Storage, Url, open_storage, parse_address
from ..core.storage.lease import LOCK
from ..datasets.store.location import is_store, marks_in
from ..datasets.store.nights import finished_nights, write_nights_card
from ..datasets.store.store import MANIFEST, RUN
from ..insight.report.site import MARKER

STAGE = "prune"
OWNER = ".owner.json"
"""File of a night that names the deployment whose retention may remove the night."""
FULL = 64 * 2**20
"""Free bytes of the disk below which a night is removed at once instead of a day after it was marked."""
_OWN = (LOCK, MANIFEST, OWNER, RUN, "pivot.duckdb", "pivot.duckdb.wal", ".receipts/origin.json")
_OWN_FILES = re.compile(r"\.receipts/(.+/)+\d+\.json|\.tmp/.*", re.DOTALL | re.ASCII)
"""Files of a store that its manifest does not name."""
_DAMAGED = ""
"""Owner of nights whose owner file cannot be read, which nobody has."""


class RetentionError(ConfigError):
    """A rule would remove more than a person may expect."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Rule for the nights to keep: those of the last days, or the newest finished nights."""

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
    """``mark`` for a night that will be removed on a later day; ``night`` or ``report`` for removed files."""
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
    """One line per night that was kept for a reason, such as a run that writes it."""

    @property
    def bytes(self) -> int:
        """Length of everything removed, without what is only marked."""
        return sum(each.bytes for each in self.removals if each.kind != "mark")

    @property
    def marked(self) -> int:
        """Number of nights that will be removed on a later day."""
        return sum(each.kind == "mark" for each in self.removals)


def prune(
    root: str | Address,
    *,
    keep: str,
    owner: str | None = None,
    now: bool = False,
    yes: bool = False,
    dry_run: bool = False,
    reporter: Reporter | None = None,
    today: date | None = None,
    night: date | None = None,
) -> Pruned:
    """Mark the finished nights of a folder that a rule does not keep; remove those marked on an earlier day.

    A night is a finished store that is named by its day (``2026-01-31``); nothing else is removed, and files in it that
    no run wrote are kept and named. Run it again after a kill. A marked night comes back when ``.removed-DAY.json`` is
    renamed to ``manifest.json``.

    Args:
        root: folder of nights.
        keep: nights to keep: the days before today, such as ``14d``, or the newest nights, such as ``30``.
        owner: remove only nights of this owner; by default all nights, if no two of them have different owners.
        now: remove files at once, which happens by itself where the disk is full.
        yes: also remove more than half of the nights, or by a clock that a night is ahead of.
        dry_run: only return what would be marked or removed.
        reporter: gets the progress, a unit per night.
        today: the day of the marks, in UTC; by default that of the clock.
        night: the day from which the days of ``keep`` count back; by default ``today``.

    Returns:
        What was marked and removed, with files and bytes, and what was kept for a reason.

    Raises:
        StoreError: no finished night is there, or a link or special file is below the folder.
        RetentionError: ``yes`` is needed.
        ConfigError: the rule cannot be used, the folder is a store, or it has nights of several owners.
    """
    retention = Retention.parse(keep)
    root, reporter = parse_address(root), reporter or Reporter()
    pruned, today = Pruned(dry_run), today or datetime.now(UTC).date()
    finished, marked = _nights_of(root, owner, pruned)
    expired = retention.expired([*finished], night or today)
    if not (yes or dry_run):
        _check_extent(root, [*finished], expired, today)
    reporter.start(STAGE, len(marked) + len(expired))
    full = _is_full(root)
    for name in marked:  # first, because this frees the space that a full disk lacks
        if now or full or _marked_on(open_storage(root / name)) < today:
            _safely(_remove_night, root / name, pruned, marked[name])
        reporter.advance(STAGE, 1)
    stayed = 0
    if expired and not (dry_run or full):
        try:
            write_nights_card(root, expired, create=False)
        except StoreError:  # a quota may be exhausted where the disk is not full
            if not now:
                raise
            full = True
    for name in expired:
        if not _safely(_mark, root / name, pruned, today, finished[name]):
            stayed += 1
        elif now or full:
            _safely(_remove_night, root / name, pruned, finished[name])
        reporter.advance(STAGE, 1)
    if (stayed or (full and (marked or expired))) and not dry_run:
        write_nights_card(root, create=False)
    reporter.finish(STAGE)
    return pruned


def _nights_of(root: Address, owner: str | None, pruned: Pruned) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return finished and marked nights with their owners: those of one owner, or all if no two owners differ.

    Raises:
        StoreError, ConfigError: as :func:`prune`.
    """
    storage = open_storage(root)
    if owner == _DAMAGED:
        raise ConfigError("owner: found an empty name, expected that of a deployment; leave it out to mean all nights")
    if not storage.exists():
        raise NoStoreError(f"{root} does not exist; name a folder of nights")
    storage.check_contents()
    if storage.stat(RUN) is not None:
        raise ConfigError(f"{root} is one store, expected a folder of nights, such as {root.parent}")
    finished = [name for name in finished_nights(root) if _is_day(name)]
    days = {name: open_storage(root / name) for name in storage.entries() if _is_day(name) and not storage.stat(name)}
    marked = [name for name, night in days.items() if _is_half_removed(night)]
    if not finished and not marked:
        raise NoStoreError(f"{root} holds no finished night (such as {root}/2026-01-31); name a folder of nights")
    empty = {name: None for name in marked if days[name].sizes().keys() <= {LOCK}}  # without an owner file
    owners = {name: _owner_of(root / name, pruned) for name in [*finished, *marked] if name not in empty}
    different = Counter(each for each in owners.values() if each != _DAMAGED)
    shown = ", ".join(f"{count} of {name or 'nobody'}" for name, count in different.items())
    if owner is None and len(different) > 1:
        raise ConfigError(f"{root} holds nights of several owners ({shown}); choose one with --owner NAME")
    if owner is not None and owner not in different:
        pruned.kept.append(f"{root} holds no night of {owner}, but {shown or 'none that names an owner'}")
    owners = {name: each for name, each in owners.items() if each != _DAMAGED and owner in (None, each)} | empty
    return {name: owners[name] for name in finished if name in owners}, {
        name: owners[name] for name in marked if name in owners
    }


def _check_extent(root: Address, finished: list[str], expired: list[str], today: date) -> None:
    """Refuse a prune that a wrong rule or a wrong clock may have caused."""
    tomorrow = (today + timedelta(days=1)).isoformat()  # it is already that day in another time zone
    if expired and finished[-1] > tomorrow:
        raise RetentionError(f"{root}/{finished[-1]} is later than today ({today}); check the clock, or add --yes")
    if 2 * len(expired) > len(finished):
        raise RetentionError(
            f"the rule removes {len(expired)} of {len(finished)} nights of {root}, more than half; look with --dry-run "
            "and add --yes if that is meant"
        )


def _is_full(root: Address) -> bool:
    return not isinstance(root, Url) and shutil.disk_usage(root).free < FULL


def _safely(work: Callable[..., bool], night: Address, pruned: Pruned, *arguments: Any) -> bool:
    """Process one night, and return whether that succeeded; an error affects this night alone."""
    try:
        return work(night, pruned, *arguments)
    except StoreError as error:
        pruned.kept.append(f"{night}: {error}")
        return False


def _is_day(name: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", name, re.ASCII):
        return False
    try:
        date.fromisoformat(name)
    except ValueError:
        return False
    return True


def _marked_on(night: Storage) -> date:
    return max(marks_in(night).values(), default=date.min)


def _is_half_removed(night: Storage) -> bool:
    """Whether a prune left it: with a mark and no manifest, or at the very end with its owner, or empty."""
    return night.stat(MANIFEST) is None and (bool(marks_in(night)) or night.sizes().keys() <= {LOCK, OWNER})


def _owner_of(night: Address, pruned: Pruned) -> str | None:
    """Return the owner of a night; None if nobody owns it, ``_DAMAGED`` if that cannot be read."""
    storage = open_storage(night)
    try:
        if OWNER in storage.entries():
            owner = storage.read_json(OWNER)["owner"]
            if not isinstance(owner, str) or owner == _DAMAGED:
                raise TypeError(f"found {owner!r}, expected a name")
            return owner
    except (StoreError, KeyError, TypeError) as error:
        pruned.kept.append(f"{night}/{OWNER} names no owner ({error}); repair or remove it")
        return _DAMAGED
    if storage.stat(RUN) is not None and not is_store(night):
        pruned.kept.append(f"{night}/{RUN} is not that of a PIVOT store, so the folder is not a night")
        return _DAMAGED
    return None


def own(night: Address, owner: str) -> None:
    """Write the owner file of a night that a deployment begins; a store that nobody owns stays without.

    Raises:
        ConfigError: the night has another owner. StoreError: another run writes it.
    """
    storage = open_storage(night)
    if OWNER not in storage.entries() and all(name.startswith(".") for name in storage.entries()):
        with storage.lock() as leased:  # of two deployments that begin the same night, one is refused
            if OWNER not in storage.entries():
                open_storage(leased).write_json(OWNER, {"owner": owner})
    there = _owner_of(night, pruned := Pruned(dry_run=False))
    if there not in (None, owner):
        raise ConfigError(next(iter(pruned.kept), f"{night} belongs to {there}, expected {owner}; choose another out"))


def _mark(night: Address, pruned: Pruned, today: date, owner: str | None) -> bool:
    """Make the manifest of a night its mark, unless a run writes it or its owner has changed meanwhile."""
    storage = open_storage(night)
    if writer := storage.writer():
        pruned.kept.append(f"{night} is being written by process {writer}")
        return False
    sizes = storage.sizes()
    if not pruned.dry_run:
        with storage.lock() as leased:
            locked = open_storage(leased)
            if locked.stat(MANIFEST) is None or _owner_of(leased, pruned) != owner:
                pruned.kept.append(f"{night} has changed since it was looked at; prune again")
                return False
            _files(locked, MANIFEST)  # a night without a readable list of files must not be removed
            locked.replace(MANIFEST, f".removed-{today}.json")
    _note(pruned, "mark", night, sizes)
    return True


def _remove_night(night: Address, pruned: Pruned, owner: str | None) -> bool:
    """Remove the files of a marked night and its report, unless it was built again or has another owner meanwhile."""
    storage = open_storage(night)
    if writer := storage.writer():
        pruned.kept.append(f"{night} is being written by process {writer}")
        return False
    sizes, strange = storage.sizes(), list[str]()
    if not pruned.dry_run:
        with storage.lock() as leased:
            locked = open_storage(leased)
            if not _is_half_removed(locked) or _owner_of(leased, pruned) != owner:
                pruned.kept.append(f"{night} has changed since it was looked at; prune again")
                return False
            _remove_report(night, pruned)
            strange = _empty_store(locked)
            if not strange and not storage.remote:
                open_storage(night.parent).delete(night.name)
    else:
        _remove_report(night, pruned)
    for name in strange:
        sizes.pop(name)
        pruned.kept.append(f"{night}/{name} was not written by a run")
    pruned.removals = [each for each in pruned.removals if (each.kind, each.address) != ("mark", str(night))]
    _note(pruned, "night", night, sizes)
    return True


def _empty_store(night: Storage) -> list[str]:
    """Remove the files of a marked store, mark and owner last; return the names of files that no run wrote."""
    marks, names = marks_in(night), list(night.sizes())
    named = _files(night, max(marks)) if marks else set[str]()
    strange = [name for name in names if not (name in named or name in _OWN or _OWN_FILES.fullmatch(name))]
    strange = [name for name in strange if name not in marks]
    _delete(night, names, strange, (*sorted(marks), OWNER))
    return strange


def _delete(storage: Storage, names: Collection[str], strange: Sequence[str], last: Sequence[str]) -> None:
    """Remove the named files with their folders, ``last`` after the others, and leave the lock and the strange ones."""
    for entry in storage.entries():
        if entry in (*last, LOCK) or entry in strange:
            continue
        inside = [name for name in strange if name.startswith(f"{entry}/")]
        for name in [each for each in names if each.startswith(f"{entry}/")] if inside else [entry]:
            if name not in inside:
                storage.delete(name)
    for name in last:
        storage.delete(name)


def _files(night: Storage, manifest: str) -> set[str]:
    """Return the file names in a manifest or in a mark made from one.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return set(night.read_json(manifest)["files"])
    except (KeyError, TypeError) as error:
        raise StoreError(f"{night.address(manifest)} lists no files; restore it from a copy") from error


def _remove_report(night: Address, pruned: Pruned) -> None:
    """Remove the report of a night: the files that a marker next to it lists, if the marker names the night's run."""
    folder, parent = night.parent / f"{night.name}-report", open_storage(night.parent)
    storage = open_storage(folder)
    if parent.stat(folder.name) is not None or (storage.stat(MARKER) is None and storage.entries()):
        return  # somebody's file, or somebody's folder
    if storage.stat(MARKER) is not None:
        marker, run = storage.read_json(MARKER), open_storage(night).read_json(RUN) if is_store(night) else {}
        if not isinstance(marker, dict) or marker.get("run_id") != run.get("run_id") or "files" not in marker:
            pruned.kept.append(f"{folder} is the report of another store")
            return
    storage.check_contents()
    sizes = storage.sizes()
    listed = {MARKER, LOCK} | _files(storage, MARKER) if sizes else set[str]()
    strange = [name for name in sizes if name not in listed]
    if not pruned.dry_run:
        _delete(storage, sizes, strange, [MARKER])  # the marker last: with it the next prune finds the rest
        if not strange and not storage.remote:
            parent.delete(folder.name)
    for name in strange:
        sizes.pop(name)
        pruned.kept.append(f"{folder}/{name} is not a file of a report")
    _note(pruned, "report", folder, sizes)


def _note(pruned: Pruned, kind: str, address: Address, sizes: dict[str, int]) -> None:
    if sizes:
        pruned.removals.append(Removal(kind, str(address), len(sizes), sum(sizes.values())))


def check_retention(keep: str, owner: str, out: str, placeholder: str) -> None:
    """Refuse an invalid rule, or a build whose nights could be confused with those of others.

    Raises:
        ConfigError: the rule is wrong, the folder is not named by its day, or nobody owns the nights.
    """
    Retention.parse(keep)
    if out.rstrip("/").rpartition("/")[2] != placeholder:
        raise ConfigError(
            f"keep: found the folder {out!r}, expected one that ends with /{placeholder}; leave keep empty"
        )
    if not owner:
        raise ConfigError(
            "keep: found no owner, expected a name that no other deployment has, such as owner: "
            f"nightly-{token_hex(4)}; only nights that carry it are removed"
        )
