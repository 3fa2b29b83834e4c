"""Remove what a store or a folder of nights no longer needs, and nothing that a manifest of a kept store lists.

A store is changed under its lock. Older label versions go in one step with the manifest that no longer lists them, so
a kill leaves the old store or the new one. Of a night the manifest goes first and ``run.json`` last: after a kill it is
an unfinished store, which no reader takes for a whole one and the next prune removes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from ..datasets.origin import MANIFEST
from ..datasets.parts import PARTS_FOLDER, listed_parts, part_folder, refuse_unfinished_relabel
from ..datasets.progress import Reporter
from ..datasets.store import RUN, Store, finish_relabel
from ..errors import ConfigError, NoStoreError
from ..insight.report.site import MARKER
from ..storage import Address, Storage, Url, open_storage
from ..storage.commit import COMMIT, JOURNAL, bind
from .append import take_up_parts
from .disk_usage import LEFTOVERS, OF_LABELS, label_version

STAGE = "prune"
WEEK = 7
"""Days for which an unfinished part that no run writes may still be resumed."""
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

    def expired(self, nights: dict[str, bool], today: date) -> list[str]:
        """Return the nights to remove, oldest first; the newest finished night is always kept.

        Args:
            nights: whether a night is finished, by its name (``2026-01-31``).
            today: the day from which days count back.
        """
        finished = sorted(name for name, whole in nights.items() if whole)
        if self.days is not None:
            first = (today - timedelta(days=self.days)).isoformat()
        else:
            first = finished[-self.nights] if self.nights and len(finished) >= self.nights else ""
        return sorted(name for name in nights if name < first and name not in finished[-1:])


@dataclass(frozen=True, slots=True)
class Removal:
    """Something that was removed, or would be."""

    kind: str
    """``older labels``, ``unfinished part``, ``leftovers``, ``report``, ``night`` or ``cache entries``."""
    address: str
    files: int
    """Number of files; of cache entries, of entries."""
    bytes: int


@dataclass(slots=True)
class Pruned:
    """The outcome of a prune."""

    dry_run: bool
    """Whether nothing was removed."""
    removals: list[Removal] = field(default_factory=list[Removal])
    kept: list[str] = field(default_factory=list[str])
    """One line for each thing that was left for a reason, such as a store that a run writes."""

    @property
    def bytes(self) -> int:
        """Length of everything removed."""
        return sum(each.bytes for each in self.removals)


@dataclass(frozen=True, slots=True)
class Rules:
    """Choice of what a prune removes."""

    keep: Retention | None = None
    """Nights that are kept; None for all."""
    labels: bool = True
    """Older label versions, and leftovers of killed runs."""
    unfinished_days: int | None = WEEK
    """Age of unfinished parts that are given up; None for never."""
    reports: bool = False
    """The reports next to kept stores; that of a night always goes with it."""
    dry_run: bool = False


def prune(root: Address, rules: Rules, reporter: Reporter, *, today: date | None = None) -> Pruned:
    """Remove what a store, or every store of a folder of nights, does not need.

    Args:
        root: a store; a folder of stores; or a folder of such folders.
        rules: what is removed.
        reporter: gets the progress, a unit per store.
        today: the day from which the days of the retention count back; by default that of the clock, in UTC.

    Raises:
        StoreError: no store is there, one is being written or cannot be changed, or a link or special file is below
            the folder.
        ConfigError: a retention was given for a single store.
    """
    storage = open_storage(root)
    if not storage.exists():
        raise NoStoreError(f"{root} does not exist; name a store, or a folder of stores")
    storage.check_contents()
    pruned = Pruned(rules.dry_run)
    if storage.stat(RUN) is not None:
        if rules.keep is not None:
            raise ConfigError(f"keep: {root} is one store, expected a folder of nights, such as {root.parent}")
        _prune_store(root, rules, pruned)
        return pruned
    stores = [store for folder in _folders(root) for store in _stores(folder)]
    nights = [night for folder in _folders(root) for night in _expired(folder, rules.keep, today)]
    if not stores and not nights:
        raise NoStoreError(f"{root} holds no store, nor does a folder in it; name a store, or a folder of stores")
    reporter.start(STAGE, len({*stores, *nights}))
    for night in nights:
        _remove_night(night, pruned)
        reporter.advance(STAGE, 1)
    for store in stores:
        if store in nights:
            continue
        if writer := open_storage(store).writer():
            pruned.kept.append(f"{store} is being written by process {writer}")
        elif open_storage(store).stat(MANIFEST) is not None:
            _prune_store(store, rules, pruned)
        reporter.advance(STAGE, 1)
    reporter.finish(STAGE)
    return pruned


# One store


def _prune_store(root: Address, rules: Rules, pruned: Pruned) -> None:
    if rules.dry_run:
        Store.open(root)
        refuse_unfinished_relabel(root)
    elif rules.labels:
        _finish_steps(root)
    if rules.labels:
        for part in _parts(root):
            _prune_labels(part, pruned)
        if not rules.dry_run:
            _renew_records(root)
    if rules.unfinished_days is not None:
        _prune_parts(root, rules.unfinished_days, pruned)
    if rules.reports and not isinstance(root, Url):
        report = root.absolute().with_name(f"{root.absolute().name}-report")
        _remove_report(report, pruned)


def _parts(root: Address) -> list[Address]:
    return [root, *(root / part_folder(number) for number in listed_parts(open_storage(root)))]


def _finish_steps(root: Address) -> None:
    """Finish what an interrupted relabel or prune has bound."""
    for part in _parts(root):
        storage = open_storage(part)
        if storage.stat(JOURNAL) is not None:
            with storage.lock():
                finish_relabel(storage)
        Store.open(part, checked=True)


def _prune_labels(root: Address, pruned: Pruned) -> None:
    """Remove older label versions and leftovers of one part."""
    storage = open_storage(root)
    current = label_version(storage) or 1
    leftovers = {name: size for name, size in _own_sizes(storage).items() if _is_leftover(name, current)}
    older = _older_files(storage)
    if not older and not leftovers:
        return
    if not pruned.dry_run:
        with storage.lock() as leased:
            finish_relabel(storage)
            older = _older_files(storage)
            if older:
                _remove_labels(Store.open(leased), older)
            for name in sorted({each if "/" not in each else _top(each) for each in leftovers}):
                storage.delete(name)
    _note(pruned, "older labels", root, older)
    _note(pruned, "leftovers", root, leftovers)


def _own_sizes(storage: Storage) -> dict[str, int]:
    """Return the files of a part, without those of later parts."""
    return {name: size for name, size in storage.sizes().items() if not name.startswith(f"{PARTS_FOLDER}/")}


def _older_files(storage: Storage) -> dict[str, int]:
    """Return the files of older label versions with their lengths."""
    current = label_version(storage) or 1
    return {name: size for name, size in _own_sizes(storage).items() if _is_older(name, current)}


def _is_older(name: str, current: int) -> bool:
    match = OF_LABELS.fullmatch(name)
    return match is not None and int(match[1] or match[2]) < current


def _is_leftover(name: str, current: int) -> bool:
    """Whether a file is left of a killed run; the staged dataset of the next label version can be resumed."""
    staged = re.match(r"\.dataset-v(\d+)/", name)
    if staged:
        return int(staged[1]) <= current
    return LEFTOVERS.fullmatch(name) is not None


def _top(name: str) -> str:
    """Return the folder of leftovers that a file is in, or the file itself in a folder of a table."""
    folder = name.partition("/")[0]
    return folder if folder.startswith(".") else name


def _remove_labels(store: Store, older: dict[str, int]) -> None:
    """Replace the manifest by one without these files, and remove them, in one step."""
    current = store.config.label_version
    files = {name: record for name, record in store.manifest().items() if not _is_older(name, current)}
    store.write_manifest(files, f"{COMMIT}/{MANIFEST}")
    folders = {"/".join(name.split("/")[:2]) if name.startswith("labels/") else name for name in older}
    bind(store.storage, None, (MANIFEST,), sorted(folders))
    finish_relabel(store.storage)


def _renew_records(root: Address) -> None:
    """Update the digests of the parts' manifests, which a prune has changed, possibly one that was killed."""
    storage = open_storage(root)
    records = listed_parts(storage)
    if any(storage.record(f"{part_folder(number)}/{MANIFEST}") != record for number, record in records.items()):
        take_up_parts(root)


# Parts


def _prune_parts(root: Address, days: int, pruned: Pruned) -> None:
    """Remove the parts that readers do not see and nobody has worked on for so many days."""
    storage = open_storage(root)
    listed = listed_parts(storage)
    for name in open_storage(root / PARTS_FOLDER).entries():
        part = root / f"{PARTS_FOLDER}/{name}"
        if not re.fullmatch(r"[0-9]{4,9}", name) or not int(name) or int(name) in listed:
            continue
        here = open_storage(part)
        sizes = here.sizes()
        if sizes and here.stat(RUN) is None and not sizes.keys() <= _LOCKS:
            continue  # not a part of ours
        if here.stat(MANIFEST) is not None:
            finish = f"pivot build --append --config {part}/{RUN} --out {root}"
            pruned.kept.append(f"{part} is complete and not listed; list it with: {finish}")
            continue
        if writer := here.writer():
            pruned.kept.append(f"{part} is being written by process {writer}")
            continue
        if not _is_given_up(here, days):
            finish = f"pivot build --append --config {part}/{RUN} --out {root}"
            pruned.kept.append(f"{part} may still be resumed ({days} days are not over): {finish}")
            continue
        if not pruned.dry_run:
            with storage.lock():
                _remove_store(part)
        _note(pruned, "unfinished part", part, sizes)


def _is_given_up(storage: Storage, days: int) -> bool:
    """Whether no file was written for so many days; object stores say no time, so there only 0 days give up a part."""
    if not days:
        return True
    if storage.remote:
        return False
    newest = max((int(each.changed) for each in storage.listing().values()), default=0)
    return newest / 1e9 < datetime.now(UTC).timestamp() - days * 86400


# Nights


def _folders(root: Address) -> Iterator[Address]:
    """Yield a folder, and the folders in it that are neither stores nor reports."""
    yield root
    for name, storage in _below(root):
        if storage.stat(RUN) is None and storage.stat(MARKER) is None and not _is_day(name):
            yield root / name


def _below(folder: Address) -> Iterator[tuple[str, Storage]]:
    storage = open_storage(folder)
    for name in storage.entries():
        if not name.startswith(".") and storage.stat(name) is None:
            yield name, open_storage(folder / name)


def _stores(folder: Address) -> list[Address]:
    return [folder / name for name, storage in _below(folder) if storage.stat(RUN) is not None]


def _is_day(name: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", name, re.ASCII):
        return False
    try:
        date.fromisoformat(name)
    except ValueError:
        return False
    return True


def _expired(folder: Address, keep: Retention | None, today: date | None) -> list[Address]:
    """Return the nights of one folder that the retention does not keep: stores, or the rest of one, named by a day."""
    if keep is None:
        return []
    nights: dict[str, bool] = {}
    for name, storage in _below(folder):
        if _is_day(name) and (storage.stat(RUN) is not None or storage.sizes().keys() <= _LOCKS):
            nights[name] = storage.stat(RUN) is not None and storage.stat(MANIFEST) is not None
    return [folder / name for name in keep.expired(nights, today or datetime.now(UTC).date())]


def _remove_night(night: Address, pruned: Pruned) -> None:
    """Remove the store of a night with its report, unless a run writes it."""
    storage = open_storage(night)
    if writer := storage.writer():
        pruned.kept.append(f"{night} is being written by process {writer}")
        return
    sizes = storage.sizes()
    _remove_report(night.parent / f"{night.name}-report", pruned)
    if not pruned.dry_run:
        _remove_store(night)
    _note(pruned, "night", night, sizes)


def _remove_store(root: Address) -> None:
    """Remove a store under its lock."""
    storage = open_storage(root)
    with storage.lock() as leased:
        _empty(open_storage(leased), MANIFEST, RUN)
        if not storage.remote:
            open_storage(root.parent).delete(root.name)


def _remove_report(folder: Address, pruned: Pruned) -> None:
    storage = open_storage(folder)
    if storage.stat(MARKER) is None and (not storage.exists() or storage.entries()):
        return  # not a report, nor what is left of one that was being removed
    storage.check_contents()
    sizes = storage.sizes()
    if not pruned.dry_run:
        _empty(storage, "index.html", MARKER)
        if not storage.remote:
            open_storage(folder.parent).delete(folder.name)
    _note(pruned, "report", folder, sizes)


def _empty(storage: Storage, first: str, last: str) -> None:
    """Remove everything but the lock: one file first, so that nobody takes the rest for whole, and one last."""
    storage.delete(first)
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
