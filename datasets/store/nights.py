"""A folder of nights: finished stores below one folder, which are read as one store.

A night is a finished store such as ``NAME/2026-11-27``. ``NAME/README.md`` names the files of the finished nights for
the Hugging Face library, because a pattern over the whole folder would also read a night that is still being built.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from ...core.errors import PivotError
from ...core.identity import digest
from ...core.storage import Address, open_storage, parse_address
from ..export.card import CARD, PLAIN, TITLE, config_parts, configs_section, rendered, terms_of
from .config import Shard
from .location import marks_in
from .schema import LABELS
from .splits import SIDES
from .store import DATASET_FOLDER, MANIFEST, RUN, Store, StoreFrames

SHARED = ("split", "validation_fraction", "include_infeasible", "target_vocabulary", "log", "license")
"""Config fields that must be equal in nights whose records are loaded as one dataset."""

Nights = Mapping[str, Store]
"""Finished stores by the prefix of their files' names below a folder, such as ``2026-11-27/``; ``""`` for the folder
itself."""


def nights_of(root: Address, *, unfinished: bool = False) -> Nights:
    """Open a finished store, or all finished nights of a folder in the order of their names.

    With ``unfinished``, a store that is being built will do; only its played shards are read.

    Raises:
        StoreError: neither is there, or a store cannot be read.
        ConfigError, PluginError: a config cannot be used here.
    """
    names = [] if open_storage(root).stat(RUN) is not None else finished_nights(root)
    return {f"{name}/": Store.open(root / name) for name in names} or {
        "": (Store.open_played if unfinished else Store.open)(root)
    }


def unfinished_state(store: Store) -> str | None:
    """Return the state of an unfinished store in words; None for a finished one."""
    if store.played is None:
        return None
    state = "it is being built" if store.storage.writer() else f"its build ended early: pivot build --out {store.root}"
    shards = f"{len(store.played)} of {len(store.config.shards())} shards of {store.root}"
    return f"{shards} are played and {labelled_shards(store)} labelled; {state}"


def labelled_shards(store: Store) -> int:
    """Return the number of shards of an unfinished store whose failures are labelled: none until all are played."""
    return sum(store.storage.stat(name) is not None for name in store.files(LABELS, store.shards))


def finished_nights(root: Address) -> list[str]:
    """Return the names of the finished stores directly below a folder, sorted."""
    return [name for name, finished in _stores_below(root).items() if finished]


def unfinished_nights(root: Address) -> list[str]:
    """Return the names of the unfinished stores directly below a folder, sorted; none that a prune marked."""
    names = (name for name, finished in _stores_below(root).items() if not finished)
    return [name for name in names if not marks_in(open_storage(root / name))]


def _stores_below(root: Address) -> dict[str, bool]:
    """Return whether each store directly below a folder is finished, by name in order."""
    storage = open_storage(root)
    names = (name for name in storage.entries() if not name.startswith(".") and storage.stat(name) is None)
    below = {name: open_storage(root / name) for name in sorted(names)}
    return {name: each.stat(MANIFEST) is not None for name, each in below.items() if each.stat(RUN) is not None}


def environments_of(nights: Nights) -> list[str]:
    """Return the names of all environments, in order."""
    return list(dict.fromkeys(env for store in nights.values() for env in store.config.environments))


def placed_shards(nights: Nights) -> list[tuple[Store, Shard]]:
    """Return every shard with its store, store by store."""
    return [(store, shard) for store in nights.values() for shard in store.shards]


def load_store(root: str | Address) -> StoreFrames:
    """Open a finished store, or a folder of nights as one store, as lazy polars frames.

    Args:
        root: folder of the store or of the nights, which may be a link itself, or its address.

    Raises:
        StoreError: the store is missing or unfinished, a shard is missing, torn or has other columns, or is a
            link.
        ConfigError, PluginError: its config cannot be used here.
    """
    frames: list[StoreFrames] = []
    for store in nights_of(parse_address(root)).values():
        store.check_files()
        frames.append(store.lazy())
    return StoreFrames(**{name: pl.concat([getattr(each, name) for each in frames]) for name in vars(frames[0])})


_HEADING = "# PIVOT failure labels, a folder of nights"
_TEXT = """%s

Each night is a store with a card of its own, which describes its rows and how they were made.

| night | card | environments | policy | tasks | rollouts per task | seed |
|---|---|---|---|---|---|---|
%s
"""


def write_nights_card(root: Address, without: Collection[str] = (), *, create: bool = True) -> bool:
    """Write ``README.md`` of a folder of nights, which names the finished ones; readers see the old file or the new.

    Args:
        root: the folder of nights.
        without: nights that will be removed, and are left out.
        create: whether it is written where there is none yet.

    Returns:
        False if nothing was written, because the ``README.md`` that is there is of somebody else.
    """
    storage = open_storage(root)
    there = storage.stat(CARD) is not None
    if (there and _HEADING.encode() not in storage.read_bytes(CARD)) or not (there or create):
        return False
    listed: list[str] | None = None
    while (names := [name for name in finished_nights(root) if name not in without]) != listed:
        nights: dict[str, Store] = {}
        for name in names:
            with suppress(PivotError):  # readers name the damage; the other nights stay readable
                nights[name] = Store.open(root / name)
        if nights:  # a night that is finished meanwhile, and whose card this one replaces, is found by the next turn
            storage.write_bytes(CARD, _card(nights, [name for name in names if name not in nights]).encode())
        listed = names
    return True


def _card(nights: Nights, damaged: Sequence[str]) -> str:
    rows = []
    for name, store in nights.items():
        config = store.config
        tasks = sum(run.tasks for run in config.environments.values())
        card = f"[card]({name}/{DATASET_FOLDER}/{CARD})"
        cells = (name, card, ", ".join(config.environments), f"`{config.policy.name}`", tasks)
        rows.append("| " + " | ".join(map(str, (*cells, config.rollouts, config.seed))) + " |")
    newest = [*nights.values()][-1]
    alike = {name: store for name, store in nights.items() if _traits(store) == _traits(newest)}
    text = _TEXT % (_HEADING, "\n".join(rows))
    if others := [name for name in nights if name not in alike]:
        text += f"\nNot loaded with the others, because their {', '.join(SHARED)} or class names differ from those of "
        text += f"the newest night: {', '.join(others)}.\n"
    if damaged:
        text += f"\nNot loaded, because they cannot be read: {', '.join(damaged)}.\n"
    licences = sorted({terms_of(store.run).licence for store in alike.values()})
    licence = licences[0] if len(licences) == 1 else "unknown"
    return rendered(PLAIN, {"text": text}, license=licence, pretty_name=TITLE, configs=_configs(alike))


def _traits(store: Store) -> tuple[Any, ...]:
    return (*(getattr(store.config, name) for name in SHARED), store.run.failure_modes)


def _configs(nights: Nights) -> list[dict[str, Any]]:
    """Return the ``configs`` section: the configs of the nights' cards, each over the files of all nights."""
    content = digest({name: store.storage.record(MANIFEST).sha256 for name, store in nights.items()})
    files = {name: store.storage.listing(DATASET_FOLDER) for name, store in nights.items()}

    def paths(side: str, subfolders: Sequence[str]) -> list[str]:
        folders = [(night, f"{DATASET_FOLDER}/{each}/{side}-") for night in nights for each in subfolders]
        filled = ((night, start) for night, start in folders if any(name.startswith(start) for name in files[night]))
        return [f"{night}/{start}*.parquet" for night, start in filled]

    parts = config_parts(environments_of(nights))
    return configs_section((name, {side: paths(side, of) for side in SIDES}, content) for name, of in parts.items())
