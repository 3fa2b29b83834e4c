"""The retries of a rollback probe beside their failures, with the requests of a served policy."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ...core.errors import PivotError, StoreError
from ...core.plugins import Settings
from ...core.records import from_row
from ...datasets.store.config import Shard
from ...datasets.store.parquet import read_table
from ...datasets.store.store import Store
from ...environments.turns import Reply, Turn
from ...rollouts.base import Policy, TaskRollouts
from ...rollouts.loop import Batch, run_batches
from ..probe.rates import probe_settings
from ..probe.records import PROBE, SETTINGS_FILE, Retry, RetryStatus, probe_file
from ..probe.rollback import rollback_policy
from ..probe.shard import ShardProbe, hints_of
from .plain import plain

Record = dict[str, Any]

_SHOWN = [
    *("retry_id", "arm", "sample_idx", "restore_step", "hint", "status", "error", "old_return", "new_return", "lift"),
    *("success", "actions", "rewards", "responses"),
]


class ShardRetries:
    """The retries of one shard; none where the store was not probed."""

    def __init__(self, store: Store, shard: Shard) -> None:
        """Read the probe's rows for the current labels.

        Raises:
            StoreError: the file is torn, or has other columns or rows.
        """
        self._store, self._shard = store, shard
        self._rows: list[Retry] = []
        listed = store.manifest()
        if SETTINGS_FILE in listed and probe_file(shard) in listed:
            rows = read_table(store.storage, probe_file(shard), PROBE).to_pylist()
            version = str(store.config.label_version)
            try:
                self._rows = [from_row(Retry, row) for row in rows if row["label_version"] == version]
            except (ValueError, TypeError) as error:
                name = store.storage.address(probe_file(shard))
                raise StoreError(
                    f"{name} holds rows that are not retries ({error}); delete the folder probe"
                ) from error

    def of(self, episode_id: str) -> list[Record]:
        """Return the retries of a failure, in the order of the arms."""
        mine = [row for row in self._rows if row.episode_id == episode_id]
        return [{name: plain(getattr(row, name)) for name in _SHOWN} for row in mine]

    def turns(self, episode_id: str) -> tuple[dict[str, list[Turn]], str | None]:
        """Re-execute the retries of a failure with their stored replies.

        Returns:
            What the policy was shown at each step from the restored one on, by retry, and why there is nothing.
        """
        played = {row.retry_id: row for row in self._rows if row.episode_id == episode_id}
        recorder = _Recorder(self._store.run.policy(), played)
        policy = rollback_policy(self._store, recorder)
        others = {row.retry_id: row for row in self._rows if row.episode_id != episode_id}
        others |= {name: row for name, row in played.items() if row.status is not RetryStatus.DONE}
        try:
            hints = hints_of(self._rows)
            work = ShardProbe(self._store, self._shard, probe_settings(self._store), policy, others, hints)

            def receive(_: Batch, records: list[TaskRollouts]) -> None:
                work.receive(records)

            asyncio.run(run_batches(work.batches(), policy, receive))
        except PivotError as error:
            return {}, str(error)
        return recorder.turns, None


class _Recorder(Policy):
    """Gives the stored replies of retries and records what it was shown."""

    config_type = Settings

    def __init__(self, policy: Policy, retries: Mapping[str, Retry]) -> None:
        self.name = policy.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self._policy, self._retries = policy, retries
        self.turns: dict[str, list[Turn]] = {}

    @property
    def config(self) -> dict[str, Any]:
        return self._policy.config

    def config_for(self, env: str) -> dict[str, Any]:
        return self._policy.config_for(env)

    async def reply(self, turn: Turn) -> Reply:
        retry = self._retries[turn.episode_id]
        self.turns.setdefault(turn.episode_id, []).append(turn)
        replies = retry.responses or []
        index = turn.t - (retry.restore_step or 0)
        return Reply(replies[index] if index < len(replies) else "")
