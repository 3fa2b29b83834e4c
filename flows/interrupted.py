"""Flow runs whose process is gone: mark them, free what they hold, and schedule them again.

Prefect stores which slots of a concurrency limit are taken in its database, and who took them in leases. A machine that
is switched off, or Ctrl-C during a run, leaves both behind: the run is shown as running for ever, and the next night
waits for it. ``pivot deploy --serve`` calls :func:`recover` before its worker starts, when no run of its server can be
at work except those whose processes still exist. A worker whose run was killed schedules it again at once.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.objects import FlowRun
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Crashed, Scheduled

from ..storage import open_storage
from .limits import MODEL_SERVER

AT_WORK = ["PENDING", "RUNNING", "CANCELLING"]
"""Types of states in which a run has a process and holds slots."""
ENDED = "the worker or its machine ended during this run"
AGAIN = "it is scheduled again"
RESUMED = "resumed"
"""Tag of a run that was scheduled again; further times have a number, ``resumed-2``."""
_RUN_ID = "PREFECT__FLOW_RUN_ID"
"""Environment variable of the process of a flow run."""
_PAGE = 200
"""Runs per answer of the server; its limit."""


@dataclass(frozen=True, slots=True)
class LeaseFile:
    """A lease that a server stored on disk."""

    id: UUID
    limits: tuple[str, ...]
    """Ids of the limits whose slots it takes."""
    slots: int
    holder: str
    """Id of the flow run that took them; empty if unknown."""


def recover(client: SyncPrefectClient, pool: str, folder: Path | None = None, processes: Path = Path("/proc")) -> int:
    """Mark runs of a work pool whose process is gone as crashed, free their slots, and schedule them again.

    A run that is scheduled again keeps its scheduled time, so it resumes the store of its own night. Calling this twice
    schedules it once.

    Args:
        client: client of the server.
        pool: name of the work pool.
        folder: leases of the server; by default where a server of this ``PREFECT_HOME`` keeps them.
        processes: the system's folder of processes.

    Returns:
        Number of runs that were scheduled again.
    """
    alive = _runs_with_a_process(processes)
    gone = [run for run in _runs_at_work(client, pool) if not _is_alive(run, alive)]
    for run in gone:
        end = Cancelled(message=ENDED) if run.state_type == "CANCELLING" else Crashed(message=f"{ENDED}; {AGAIN}")
        client.set_flow_run_state(run.id, end, force=True)
    leases = folder or get_current_settings().home / "concurrency_leases"
    taken = {str(run.id) for run in gone}
    for lease in read_leases(leases):
        if lease.holder in taken:
            client.release_concurrency_slots_with_lease(lease.id)
    _match_counts(client, pool, leases)
    resumed = [run for run in gone if run.deployment_id is not None and run.state_type != "CANCELLING"]
    for run in resumed:
        schedule_again(client, run)
    return len(resumed)


def schedule_again(client: SyncPrefectClient, run: FlowRun) -> None:
    """Schedule a run of a deployment once more, for the same time and so for the same night; twice has no effect."""
    assert run.deployment_id is not None
    client.create_flow_run_from_deployment(
        run.deployment_id,
        parameters=run.parameters,
        state=Scheduled(scheduled_time=run.expected_start_time),
        tags=[*run.tags, f"{RESUMED}-{times + 1}" if (times := times_resumed(run)) else RESUMED],
        idempotency_key=f"resume-{run.id}",
    )


def times_resumed(run: FlowRun) -> int:
    """Return how many times the run was scheduled again, by its tags."""
    return sum(1 for tag in run.tags if tag == RESUMED or tag.startswith(f"{RESUMED}-"))


def read_leases(folder: Path) -> Iterator[LeaseFile]:
    """Yield the leases in a folder; a file that is not one is skipped, as the server does."""
    for name in open_storage(folder).entries():
        if name in ("expirations.json", "expirations.lock"):
            continue  # the server's index
        path = folder / name
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            lease = json.loads(path.read_text(encoding="utf-8"))
            about = lease["metadata"] or {}
            holder = str((about.get("holder") or {}).get("id", ""))
            yield LeaseFile(UUID(lease["id"]), tuple(lease["resource_ids"]), int(about.get("slots", 0)), holder)


def _match_counts(client: SyncPrefectClient, pool: str, folder: Path) -> None:
    """Free slots that no lease holds: those of leases that a server kept in memory, before it was restarted.

    The counts are read before the leases, so slots that are taken meanwhile are not freed.
    """
    limits = client.read_global_concurrency_limits(limit=_PAGE)
    leased: Counter[str] = Counter()
    for lease in read_leases(folder):
        leased.update(dict.fromkeys(lease.limits, lease.slots))
    filters = {"work_pools": {"name": {"any_": [pool]}}, "limit": _PAGE}
    deployments = client.request("POST", "/deployments/filter", json=filters).json()
    ours = {(each["global_concurrency_limit"] or {}).get("id") for each in deployments}
    for limit in limits:
        count = leased[str(limit.id)]
        is_ours = str(limit.id) in ours or limit.name.partition(":")[0] == MODEL_SERVER
        if is_ours and limit.active_slots > count:
            client.update_global_concurrency_limit(limit.name, GlobalConcurrencyLimitUpdate(active_slots=count))


def _runs_at_work(client: SyncPrefectClient, pool: str) -> list[FlowRun]:
    """Return the runs of a work pool that the server believes to have a process, oldest first."""
    filters = {"work_pools": {"name": {"any_": [pool]}}, "flow_runs": {"state": {"type": {"any_": AT_WORK}}}}
    page = filters | {"sort": "EXPECTED_START_TIME_ASC", "limit": _PAGE}
    answer = client.request("POST", "/flow_runs/filter", json=page).json()
    return [FlowRun.model_validate(each) for each in answer]


def _runs_with_a_process(processes: Path) -> set[str] | None:
    """Return the ids of flow runs that a process of this system works on; None if the system does not show them."""
    numbers = [name for name in open_storage(processes).entries() if name.isdecimal()]
    if not numbers:
        return None
    ids: set[str] = set()
    for each in numbers:
        with suppress(OSError):
            for entry in (processes / each / "environ").read_bytes().split(b"\0"):
                name, _, value = entry.partition(b"=")
                if name == _RUN_ID.encode():
                    ids.add(value.decode(errors="replace"))
    return ids


def _is_alive(run: FlowRun, alive: set[str] | None) -> bool:
    if alive is not None:
        return str(run.id) in alive
    with suppress(OSError, TypeError, ValueError):
        os.kill(int(str(run.infrastructure_pid)), 0)
        return True
    return False
