"""Stores that grow: further stores under ``DIR/parts``, which readers see as one.

The first part of a store is the store itself. Each later one is in ``DIR/parts/<number>`` with its own ``run.json``,
tables, manifest and card, so everything that works on a store works on a part. ``DIR/parts.json`` names the finished
ones by the digests of their manifests: it stays small however many shards there are. Readers of ``DIR`` see all parts
that it names, and no unfinished one.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict

import polars as pl

from ..errors import ConfigError, StoreError
from ..storage import Address, FileRecord, Storage, open_storage, parse_address
from ..storage.commit import refuse_interrupted
from .config import Shard
from .origin import merged_parts
from .store import RUN, Store, StoreFrames

PARTS, PARTS_FOLDER = "parts.json", "parts"

SHARED = ("split", "validation_fraction", "include_infeasible", "target_vocabulary", "log", "license")
"""Fields of the config that all parts share, because their rows are read as one dataset."""

Members = Mapping[str, Store]
"""The stores of all parts by the prefix of their files' names, which is ``""`` for the first."""


def part_folder(number: int) -> str:
    """Return the relative folder of a later part."""
    return f"{PARTS_FOLDER}/{number:04d}"


def listed_parts(storage: Storage) -> dict[int, FileRecord]:
    """Return the records of the manifests of all later parts that are finished, by their numbers.

    Raises:
        StoreError: ``parts.json`` cannot be read.
    """
    if storage.stat(PARTS) is None:
        return {}
    raw = storage.read_json(PARTS)
    try:
        return {_part_number(text): FileRecord.decode(record) for text, record in sorted(raw["parts"].items())}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"{storage.address(PARTS)} is not a parts list (expected {{'parts': {{number: {{'sha256', 'bytes'}}}}}}): "
            "remove it, and the next `pivot build --append` of the same part writes it again"
        ) from error


def _part_number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{4,9}", text) or not int(text):
        raise ValueError(f"{text!r} is not a number of a part")
    return int(text)


def write_parts(storage: Storage, parts: Mapping[int, FileRecord]) -> None:
    """Write ``parts.json``: from now on readers see these parts."""
    storage.write_json(PARTS, {"parts": {f"{number:04d}": asdict(parts[number]) for number in sorted(parts)}})


def members_of(store: Store, as_of_part: int | None = None) -> Members:
    """Return the stores of all parts of a store, itself first.

    Args:
        store: the first part.
        as_of_part: number of the last part to read, 0 for the first alone; None for all. Labels are the current ones.

    Raises:
        StoreError: a part is missing or unfinished.
        ConfigError: the store has no part of that number.
    """
    members, listed = {"": store}, listed_parts(store.storage)
    if as_of_part is not None:
        _refuse_unknown_part(store, as_of_part, listed)
    for number in listed:
        if as_of_part is not None and number > as_of_part:
            break
        folder = part_folder(number)
        members[f"{folder}/"] = Store.open(store.root / folder, checked=True)
    return members


def _refuse_unknown_part(store: Store, as_of_part: int, listed: Mapping[int, FileRecord]) -> None:
    """Refuse to read a store as of a part that it has not, or as of one before its parts were merged.

    Raises:
        ConfigError: it cannot be read so.
    """
    last, merged = max(listed, default=0), merged_parts(store.storage)
    if as_of_part < len(merged) - 1 or (merged and as_of_part > last):
        before, first = sum(map(len, merged)), len(merged) - 1
        expected = f"{first} to {last}" if first < last else f"{last}"
        raise ConfigError(
            f"as of part: found {as_of_part}, expected {expected}, because `pivot compact --merge` "
            f"made {len(merged)} of the first {before} parts of {store.root}, so earlier states cannot be read; read "
            "an earlier state from the store that was compacted"
        )
    if as_of_part not in {0, *listed}:
        raise ConfigError(
            f"as of part: found {as_of_part}, expected 0 (the store before it grew) or one that {store.root / PARTS} "
            f"lists; the last is {last}"
        )


def refuse_unfinished_relabel(root: Address) -> None:
    """Refuse a store with an interrupted relabel or prune in any part, for readers that compare its files.

    Raises:
        StoreError: there is one; the message names the command that finishes it.
    """
    storage = open_storage(root)
    for folder in ("", *(part_folder(number) for number in listed_parts(storage))):
        part = open_storage(root / folder) if folder else storage
        refuse_interrupted(part, f"pivot relabel {root}", f"pivot prune {root}")


def unlike(store: Store, first: Store) -> list[str]:
    """Describe the shared fields in which a part differs from the first one."""
    return [
        f"its {name} is {getattr(store.config, name)!r}, that of the first part {getattr(first.config, name)!r}"
        for name in SHARED
        if getattr(store.config, name) != getattr(first.config, name)
    ]


def placed_shards(members: Members) -> list[tuple[Store, Shard]]:
    """Return every shard of all parts with the store of its part, one part after the other."""
    return [(member, shard) for member in members.values() for shard in member.config.shards()]


def load_store(root: str | Address, *, follow_links: bool = False, as_of_part: int | None = None) -> StoreFrames:
    """Open a finished store with all its parts as lazy polars frames.

    Args:
        root: folder of the store, which may be a link itself, or its address.
        follow_links: follow links below that folder; do so for your own stores only.
        as_of_part: read a store that grew as it was when this part was its last: its number in ``parts.json``, 0 for
            the store before it grew. Labels are the current ones.

    Raises:
        StoreError: the store at ``root`` is missing or unfinished, a shard is missing, torn or has other columns, or
            the store holds a link that is not followed.
        ConfigError, PluginError: its config cannot be used here, or the store has no such part.
    """
    frames: list[StoreFrames] = []
    for member in members_of(Store.open(parse_address(root, follow_links=follow_links)), as_of_part).values():
        member.check_files()
        frames.append(member.lazy())
    if len(frames) == 1:
        return frames[0]
    return StoreFrames(**{name: pl.concat([getattr(each, name) for each in frames]) for name in vars(frames[0])})


def begun_parts(store: Store) -> dict[int, Store]:
    """Return the later parts of a store that are unfinished or not listed yet, by their numbers."""
    return {number: Store.open(store.root / part_folder(number), complete=False) for number in unlisted_parts(store)}


def unlisted_parts(store: Store) -> list[int]:
    """Return the numbers of the later parts that readers do not see: unfinished, given up, or not listed yet."""
    listed = listed_parts(store.storage)
    names = open_storage(store.root / PARTS_FOLDER).entries()
    numbers = sorted(int(name) for name in names if re.fullmatch(r"[0-9]{4,9}", name) and int(name))
    return [
        number
        for number in numbers
        if number not in listed and store.storage.stat(f"{part_folder(number)}/{RUN}") is not None
    ]


def unlisted_note(store: Store) -> str:
    """Return a line about parts that readers do not see, with what to do; empty if there are none."""
    numbers = unlisted_parts(store)
    if not numbers:
        return ""
    folders = ", ".join(part_folder(number) for number in numbers)
    first = store.root / part_folder(numbers[0])
    return (
        f"{store.root} holds unfinished parts, which are not read: {folders}; finish the first with: "
        f"pivot build --append --config {first / RUN} --out {store.root}, or remove their folders"
    )
