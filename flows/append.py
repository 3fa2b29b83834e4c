"""Append to a store: more levels, other policies or environments, as a separate part.

A part is reserved under the lock of the store, built like any store under a lock of its own, and listed under the first
lock again. Several parts may be built at the same time; readers see a part when it is complete. After a kill the same
command resumes the same part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..datasets.card import CARD
from ..datasets.config import EnvRun, RunConfig
from ..datasets.export import moved_level_of
from ..datasets.parts import (
    PARTS,
    SHARED,
    Members,
    begun_parts,
    listed_parts,
    members_of,
    part_folder,
    unlike,
    write_parts,
)
from ..datasets.parts_card import write_parts_card
from ..datasets.run import Run, RunEnv
from ..datasets.schema import EPISODES
from ..datasets.store import MANIFEST, RUN, Store
from ..datasets.views import write_database
from ..environments.base import Task
from ..errors import StoreError
from ..rollouts.ids import group_id
from ..storage import Address, open_storage
from .pipeline import deciding


@dataclass(frozen=True, slots=True)
class Reservation:
    """The part that a config becomes."""

    number: int
    root: Address
    config: RunConfig
    left_out: dict[str, int]
    """Number of levels that the store has already, by environment."""
    fewer: dict[str, int]
    """Fewest rollouts per such level, by environment, where that is less than the config asks for."""


def reserve_part(root: Address, config: RunConfig) -> Reservation | None:
    """Reserve a part of the store at ``root`` for a config; return None if the store has all its levels already.

    Levels that a part has with the same policy, settings and seed are left out, so no episode is in a store twice. An
    unfinished part of this config is reused.

    Raises:
        StoreError: the store is missing, unfinished or being written, the config does not fit the other parts, or the
            store has all its levels with fewer rollouts than the config asks for.
        ConfigError, GenerationError, PluginError: the config cannot be carried out.
    """
    storage = open_storage(root)
    Store.open(root)
    with storage.lock() as leased:
        store = Store.open(leased)
        begun = begun_parts(store)
        number = max([0, *listed_parts(storage), *begun]) + 1
        members = members_of(store)
        _check_shared(store, config)
        run = Run(config)
        _check_class_names(store, run)
        rest: dict[str, list[tuple[int, int]]] = {}
        fewer: dict[str, int] = {}
        for name, env in run.envs.items():
            rest[name], least = _new_levels(env, run, members, config.seed)
            if least < config.rollouts:
                fewer[name] = least
        left_out = {name: run.env(name).tasks - len(levels) for name, levels in rest.items()}
        environments = {
            name: EnvRun.of(levels, config.seed, config.environments[name].settings)
            if left_out[name]
            else config.environments[name]
            for name, levels in rest.items()
            if levels
        }
        if not environments and fewer:
            raise _fewer_rollouts(store, fewer, config.rollouts)
        if not environments:
            return None
        changes: dict[str, Any] = {"environments": environments, "label_version": 1}
        for field in ("filters", "solvers"):
            named: dict[str, Any] = getattr(config, field)
            changes[field] = {name: each for name, each in named.items() if name in environments}
        for other, part in begun.items():
            if _is_same(part.config, config.model_copy(update=changes | {"part": other})):
                return Reservation(other, root / part_folder(other), part.config, left_out, fewer)
        fresh = config.model_copy(update=changes | {"part": number})
        Store(store.root / part_folder(number), fresh).write_run()
        return Reservation(number, root / part_folder(number), fresh, left_out, fewer)


def reserve_night(root: Address, config: RunConfig) -> Reservation | None:
    """Reserve the part of a night in a store that grows by one part per night; the first night is the store itself.

    A night that is tried again, or resumed after a kill, gets the same part.

    Returns:
        The part; None if the store has all levels of the night already, also because the night is complete.

    Raises:
        StoreError: as :func:`reserve_part`, or the first night is unfinished.
    """
    storage = open_storage(root)
    if storage.stat(RUN) is None:
        return Reservation(0, root, config, {}, {})
    first = Store.open(root, complete=False).config
    if first.seed == config.seed and all(run.seeds is None for run in first.environments.values()):
        return Reservation(0, root, config, {}, {})
    if storage.stat(MANIFEST) is None:
        raise StoreError(
            f"{root} holds an unfinished first night, expected a finished store to which this night is added; "
            f"finish it with: pivot build --out {root}"
        )
    return reserve_part(root, config)


def _is_same(one: RunConfig, other: RunConfig) -> bool:
    return all(deciding(getattr(one, name)) == deciding(getattr(other, name)) for name in RunConfig.model_fields)


def _check_shared(store: Store, config: RunConfig) -> None:
    different = [name for name in SHARED if getattr(config, name) != getattr(store.config, name)]
    if different:
        stored = ", ".join(f"{name} is {getattr(store.config, name)!r}" for name in different)
        raise StoreError(
            f"{store.root} holds a dataset whose {stored}; a part that differs there would not be read as one dataset "
            "with it: give the same, or another --out"
        )


def _check_class_names(store: Store, run: Run) -> None:
    if run.failure_modes != store.run.failure_modes:
        odd = ", ".join(sorted({*run.failure_modes} ^ {*store.run.failure_modes}))
        raise StoreError(
            f"the part would name other classes of failure_mode_id than {store.root} ({odd}); build it with another "
            "--out"
        )


def _fewer_rollouts(store: Store, fewer: dict[str, int], rollouts: int) -> StoreError:
    there = ", ".join(f"{least} per level of {name}" for name, least in fewer.items())
    return StoreError(
        f"{store.root} holds all these levels, but with fewer rollouts ({there}; --rollouts asks for {rollouts}), and "
        "a level is in one part alone: add other levels (--seed or more --tasks), or build these into another --out"
    )


def _new_levels(env: RunEnv, run: Run, members: Members, seed: int) -> tuple[list[tuple[int, int]], int]:
    """Return the places, as of :meth:`.EnvRun.places`, of the levels of an environment that no part has.

    Also returns the fewest rollouts of the other levels, or those of the run where there are no others.
    """
    tasks = env.plan(seed)
    groups, moved = _groups(members, env.name), _moved_levels(members, env.name)
    policy = run.policy()
    policy_config = policy.config_for(env.name)

    def name_of(task: Task) -> str:
        return group_id(env.type.profile, env.config, task, policy_name=policy.name, policy_config=policy_config)

    def is_new(task: Task) -> bool:
        return name_of(task) not in groups and env.type.canonical_state(task.initial_state) not in moved

    least = min([run.config.rollouts, *(groups[name] for task in tasks if (name := name_of(task)) in groups)])
    return [place for place, task in zip(env.levels.places(seed), tasks, strict=True) if is_new(task)], least


def _groups(members: Members, env: str) -> dict[str, int]:
    """Return the group ids of all parts in one environment, with the rollouts that its run asked for."""
    groups: dict[str, int] = {}
    for member in members.values():
        for shard in member.config.shards():
            if shard.env == env:
                names = member.read(EPISODES, shard, ["group_id"])["group_id"].unique().to_pylist()
                groups.update(dict.fromkeys(names, member.config.rollouts))
    return groups


def _moved_levels(members: Members, env: str) -> set[str]:
    """Return the level that the first part has moved to the other split: no later part may have it in its own."""
    first = members[""]
    if env not in first.config.environments or first.config.split != "task":
        return set()
    moved = moved_level_of(first, env)
    return set() if moved is None else {moved}


def take_up_parts(root: Address, numbers: Sequence[int] = ()) -> None:
    """List finished parts for readers, and update the records of the parts that are listed already.

    Raises:
        StoreError: the store is being written, a part is unfinished or was relabelled so that it no longer fits the
            other parts, or two parts that were built at the same time have the same levels.
    """
    storage = open_storage(root)
    with storage.lock() as leased:
        store = Store.open(leased)
        parts = listed_parts(storage)
        if not parts and not numbers:
            _remove_empty_list(store)
            return
        for number in sorted({*parts, *numbers}):
            if different := unlike(Store.open(leased / part_folder(number)), store):
                raise StoreError(
                    f"{root / part_folder(number)} cannot be read as one dataset with the others: "
                    f"{'; '.join(different)}; label all parts alike with: pivot relabel {root}"
                )
        for number in numbers:
            if number not in parts:
                _refuse_doubles(store, Store.open(leased / part_folder(number)))
        for number in {*parts, *numbers}:
            parts[number] = storage.record(f"{part_folder(number)}/{MANIFEST}")
        write_parts(storage, parts)
        write_parts_card(store)
        write_database(store)


def _remove_empty_list(store: Store) -> None:
    """Remove a list of parts without entries, with its card: the store has no later parts and grows in place."""
    if store.storage.stat(PARTS) is not None:
        store.storage.delete(CARD)
        store.storage.delete(PARTS)
        write_database(store)


def _refuse_doubles(store: Store, part: Store) -> None:
    members = members_of(store)
    for env in part.config.environments:
        doubles = _groups({"": part}, env).keys() & _groups(members, env).keys()
        if doubles:
            raise StoreError(
                f"{part.root} holds {len(doubles)} groups of {env} that another part has taken up meanwhile; remove "
                "that folder and run the same command again: it leaves them out"
            )
