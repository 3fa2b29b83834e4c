"""Prove the rows of a probe again: its retries are planned and played a second time, and every field is compared.

An embedded policy plays again; the stored replies of a model are taken as given. Where an environment does not repeat
exactly, as a simulator, retries are planned but not played: their outcomes stay unproved.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import isclose
from typing import Any

from ...core.errors import NotAllowedError, PolicyError, StoreError
from ...core.plugins import Settings
from ...core.records import from_row
from ...datasets.store.config import Shard
from ...datasets.store.parquet import read_table
from ...datasets.store.store import Store
from ...datasets.verify.compare import footer_problems
from ...environments.turns import Reply, Turn
from ...rollouts.base import Policy, TaskRollouts
from ...rollouts.loop import Batch, run_batches
from .arms import BOUND
from .bounds import bound_problems
from .rates import probe_settings
from .records import FOLDER, PROBE, SETTINGS_FILE, Retry, RetryStatus, bounds_file, probe_file
from .rollback import rollback_policy
from .shard import ShardProbe, hints_of


def probe_problems(store: Store, *, follow: bool = False) -> list[str]:
    """Return the problems of the probe of a store; none without a probe.

    With ``follow`` the locations that the settings of environments name are used, as in ``verify_store``.

    Raises:
        StoreError: a table cannot be read.
    """
    manifest = store.manifest()
    present = set(store.storage.listing(FOLDER))
    listed = {name for name in manifest if name.startswith(f"{FOLDER}/")}
    if SETTINGS_FILE not in listed:
        unfinished = f"the file is not in manifest.json: a probe did not finish; run: pivot probe {store.root}"
        return [f"{name}: {unfinished}" for name in sorted(present)]
    problems = [f"{name}: the file is not in manifest.json" for name in sorted(present - listed)]
    settings, shards = probe_settings(store), store.config.shards()
    expected = {SETTINGS_FILE, *map(probe_file, shards)}
    expected |= {bounds_file(shard) for shard in shards if BOUND in settings.arms}
    problems += [f"{name}: a file that a probe does not make" for name in sorted(listed - expected)]
    for shard in store.config.shards():
        if probe_file(shard) not in listed or (BOUND in settings.arms and bounds_file(shard) not in listed):
            problems.append(f"{probe_file(shard)}: the shard was not probed; run: pivot probe {store.root}")
            continue
        try:
            problems += _shard_problems(store, shard, follow=follow)
            if BOUND in settings.arms and store.run.env(shard.env).config.repeats_exactly:
                problems += bound_problems(store, shard, settings, follow=follow)
        except (NotAllowedError, StoreError) as error:
            problems.append(str(error))
        except Exception as error:  # noqa: BLE001 - a stranger's rows break what derives from them in any way
            problems.append(f"{probe_file(shard)}: the rows do not fit together ({type(error).__name__}: {error})")
    return problems


class StoredReplies(Policy):
    """Gives the stored replies of retries in place of the policy that wrote them."""

    config_type = Settings

    def __init__(self, policy: Policy, rows: Mapping[str, Retry]) -> None:
        """Reply as ``policy`` did in the retries ``rows``, by id."""
        self.name = policy.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self._policy, self._rows = policy, rows

    @property
    def config(self) -> dict[str, Any]:
        """Config of the policy."""
        return self._policy.config

    def config_for(self, env: str) -> dict[str, Any]:
        """Return the policy's config for one environment, which decides ids."""
        return self._policy.config_for(env)

    async def reply(self, turn: Turn) -> Reply:
        """Return the stored reply; an empty one after the last.

        Raises:
            PolicyError: the retry is not stored.
        """
        row = self._rows.get(turn.episode_id)
        if row is None:
            raise PolicyError("this retry is not stored")
        index, replies = turn.t - (row.restore_step or 0), row.responses or []
        return Reply(replies[index] if 0 <= index < len(replies) else "")


def _shard_problems(store: Store, shard: Shard, *, follow: bool) -> list[str]:
    name, version = probe_file(shard), str(store.config.label_version)
    table = read_table(store.storage, name, PROBE)
    problems = footer_problems(store.storage, name, PROBE, table)
    stored = [from_row(Retry, row) for row in table.to_pylist()]
    stored = [row for row in stored if row.label_version == version]
    if not stored:
        return problems  # relabelled since: the next probe retries the new pivots
    env, rows, policy = store.run.env(shard.env), {row.retry_id: row for row in stored}, store.run.policy()
    config = env.config if follow else env.config.without_locations()
    plays = policy.is_stand_in and config.repeats_exactly and config == env.config
    # A model's failed requests cannot be repeated: those retries are pending, and nothing came of them.
    kept = {name: row for name, row in rows.items() if row.status is RetryStatus.ERROR or not config.repeats_exactly}
    kept = {} if plays else kept
    retry = rollback_policy(store, policy if plays else StoredReplies(policy, rows))
    work = ShardProbe(store, shard, probe_settings(store), retry, kept, None if plays else hints_of(stored), config)

    def receive(_: Batch, records: list[TaskRollouts]) -> None:
        work.receive(records)

    asyncio.run(run_batches(work.batches(), retry, receive))
    problems += [f"{name} {text}" for text in _differences(work.rows, stored, config.tolerance or 1e-9)]
    outcomes = ("old_return", "new_return", "lift", "success", "actions", "rewards", "responses")
    return problems + [
        f"{name} {row.retry_id}: it was not played, but has an outcome"
        for row in kept.values()
        if row.status is not RetryStatus.DONE and any(getattr(row, each) is not None for each in outcomes)
    ]


def _differences(made: Sequence[Retry], stored: Sequence[Retry], tolerance: float) -> list[str]:
    """Return the differences of stored rows from recomputed ones."""
    rows, names = {row.retry_id: row for row in stored}, [each.name for each in fields(Retry)]
    problems = [f"{each.retry_id}: the retry is missing" for each in made if each.retry_id not in rows]
    extra = rows.keys() - {each.retry_id for each in made}
    problems += [f"{name}: the retry is none that the probe makes" for name in sorted(extra)]
    for one, other in ((each, rows[each.retry_id]) for each in made if each.retry_id in rows):
        different = (name for name in names if not _is_close(getattr(one, name), getattr(other, name), tolerance))
        if (name := next(different, None)) is not None:
            value, right = getattr(other, name), getattr(one, name)
            problems.append(f"{one.retry_id}: its {name} is {value!r}, recomputed it is {right!r}")
    if not problems and [each.retry_id for each in made] != [each.retry_id for each in stored]:
        problems.append("the rows are out of order, or one is there twice")
    return problems


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values are equal, numbers within what an environment repeats of them."""
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=0, abs_tol=tolerance)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_is_close(*each, tolerance) for each in zip(one, other, strict=True))
    return one == other
