"""Make a new store from a finished one, which is not changed, as `pivot compact` does.

The new store has receipts like a build, so the same command resumes after an interruption; it is complete when its
manifest is written. It records its origin, so that no other command resumes it, and only from the same state of the
same source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..datasets.config import RunConfig
from ..datasets.location import refuse_inside_store
from ..datasets.origin import ORIGIN
from ..datasets.parts import PARTS, listed_parts, part_folder, refuse_unfinished_relabel, write_parts
from ..datasets.progress import Reporter
from ..datasets.proof.verify import refuse_while_written
from ..datasets.stages.base import ShardResult
from ..datasets.store import DATABASE, DATASET_FOLDER, MANIFEST, RUN, Store, stored_config
from ..errors import ConfigError, StoreError
from ..identity import digest
from ..storage import Address, open_storage
from .append import take_up_parts
from .engines.local import Execute
from .pipeline import BuildResult, complete_result, export_store, seal_store


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy of a store: its source, its target and its config."""

    command: str
    """Name of the command, such as ``compact``."""
    source: Store
    target: Address
    config: RunConfig
    """Config of the new store."""
    others: Sequence[Store] = ()
    """Parts whose rows it gets, too."""
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of its origin."""

    def make(
        self,
        shards: Callable[[Store], list[ShardResult]],
        execute: Execute,
        reporter: Reporter,
        parts: Callable[[Store], None],
    ) -> BuildResult:
        """Make the new store, or resume it.

        ``shards`` writes the rollouts and labels of all shards; ``parts`` writes the later parts, before the manifest.

        Raises:
            StoreError: the target holds something else, a run writes it, or the source changed meanwhile.
            ConfigError: the target is the source, or within it.
        """
        root = self.source.root
        refuse_to_mix(root, self.target)
        origin = {"command": self.command, "config": digest(self.config.model_dump(mode="json"))}
        origin |= {**self._sources(), **self.notes}
        self._refuse_foreign(origin)
        with open_storage(self.target).lock() as leased:
            store = Store(leased, self.config)
            done = None if store.storage.stat(MANIFEST) is None else complete_result(store)
            if done is not None:
                return done
            for name in (MANIFEST, DATABASE):
                store.storage.delete(name)
            store.storage.write_json(ORIGIN, origin)
            store.write_run()
            results = shards(store)
            results += export_store(store, execute, reporter, DATASET_FOLDER)
            parts(store)
            if not self._sources().items() <= origin.items():
                raise StoreError(f"{root} was changed while it was read; remove {self.target} and start again")
            return seal_store(store, results)

    def _sources(self) -> dict[str, Any]:
        """Return digests of everything that the source may change meanwhile."""
        source = self.source.storage
        state: dict[str, Any] = {"manifest": source.record(MANIFEST).sha256}
        if source.stat(PARTS) is not None:
            state["parts"] = source.record(PARTS).sha256
        if self.others:
            state["others"] = [each.storage.record(MANIFEST).sha256 for each in self.others]
        return state

    def _refuse_foreign(self, origin: dict[str, Any]) -> None:
        """Refuse a target unless it is empty or was begun by this command from the same state of the same store."""
        storage = open_storage(self.target)
        there = [name for name in storage.entries() if not name.startswith(".")]
        begun = storage.read_json(ORIGIN) if storage.stat(ORIGIN) is not None else None
        if begun == origin:
            if storage.stat(RUN) is None or stored_config(self.target, complete=False) == self.config:
                return
            begun = None
        if begun is not None:
            command = begun.get("command") if isinstance(begun, dict) else None
            raise StoreError(
                f"{self.target} was begun by `pivot {command}` from another store, from an earlier state "
                "of this one or with other options; choose an empty folder with --out"
            )
        if there:
            raise StoreError(
                f"{self.target} holds {there[0]!r}, which is not of this command; choose an empty folder with --out"
            )


def copy_parts(
    root: Address,
    target: Address,
    copy: Callable[[Address, Address, Callable[[Store], None]], BuildResult],
    parts: Mapping[int, int] | None = None,
) -> BuildResult:
    """Copy a store with all its later parts; ``copy`` copies one part and calls its last argument before the manifest.

    ``parts`` are the later parts of the new store, each with the number of the one that is copied; by default all.

    Returns the result of the first part.

    Raises:
        StoreError: see :meth:`Copying.make`; or the target is in a store, or the list of parts cannot be read.
    """
    refuse_inside_store(target)
    if parts is None:
        parts = {number: number for number in listed_parts(open_storage(root))}

    def later(store: Store) -> None:
        for number, source in parts.items():
            copy(root / part_folder(source), target / part_folder(number), lambda _: None)
        if parts:
            records = {number: store.storage.record(f"{part_folder(number)}/{MANIFEST}") for number in parts}
            write_parts(store.storage, records)

    result = copy(root, target, later)
    if parts:
        take_up_parts(target)
    return result


def check_source(root: Address) -> None:
    """Refuse a store whose files may change or be between two versions while they are copied.

    Raises:
        StoreError: a run holds its lock, or a relabel was interrupted; or it holds a link or a special file.
    """
    refuse_while_written(root)
    open_storage(root).check_contents()
    refuse_unfinished_relabel(root)


def refuse_to_mix(source: Address, target: Address) -> None:
    """Refuse to write into the store that is read.

    Raises:
        ConfigError: the target is the source, or below it.
    """
    one, other = (str(each.resolve()) if isinstance(each, Path) else str(each) for each in (source, target))
    if f"{other}/".startswith(f"{one}/"):
        raise ConfigError(f"{target} is {'' if one == other else 'in '}the store that is read; choose another --out")
