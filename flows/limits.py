"""A limit on the requests that all flow runs together send to a model server: a global concurrency limit of Prefect.

Its slots are concurrent requests. A flow run that uses a server takes ``service.max_concurrency`` slots (of policy or
teacher), waits until they are free, and releases them at its end; slots of a killed run are free again when their lease
expires. If the limit does not exist on the server, no slots are taken.
"""

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.objects import ConcurrencyLeaseHolder
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run

from ..core.errors import ConfigError
from ..datasets.store.run import Run
from ..models.base import Role
from ..models.service import Service
from .artifacts import Log

MODEL_SERVER = "pivot-model-server"
"""Name of the limit for servers without their own, which is named ``NAME:HOST:PORT``."""
LEASE = 60.0
"""Seconds until the slots of a killed run are free; the shortest lease that Prefect allows."""


def slots_of(run: Run, *roles: Role) -> dict[str, int]:
    """Return the largest number of concurrent requests of a run for each of its servers, by host and port."""
    slots: dict[str, int] = {}
    for service in run.services(*roles):
        if isinstance(service, Service):
            server = urlsplit(service.base_url).netloc
            slots[server] = max(slots.get(server, 0), service.max_concurrency)
    return slots


@contextlib.contextmanager
def model_slots(run: Run, log: Log, *roles: Role) -> Iterator[None]:
    """Acquire slots of the limits on the servers of a run's models in these roles.

    Raises:
        ConfigError: the run may send more concurrent requests than a limit has slots, so it would wait for ever.
    """
    taken: dict[str, int] = {}
    for server, slots in slots_of(run, *roles).items():
        limit = _limit(f"{MODEL_SERVER}:{server}") or _limit(MODEL_SERVER)
        if limit is not None:
            name, most = limit
            if slots > most:
                raise ConfigError(
                    f"max_concurrency is {slots} for the model server {server}, expected at most the {most} slots of "
                    f"the limit {name}; set service.max_concurrency, or `prefect gcl update {name} --limit {slots}`"
                )
            taken[name] = min(most, taken.get(name, 0) + slots)
    with contextlib.ExitStack() as acquired:
        for name, slots in sorted(taken.items()):  # in one order everywhere, so that no two runs wait for each other
            log.info("waiting for %d slots of the limit %s", slots, name)
            acquired.enter_context(
                concurrency(
                    name,
                    slots,
                    lease_duration=LEASE,
                    strict=True,
                    holder=_holder(),
                    raise_on_lease_renewal_failure=False,
                )
            )
            log.info("holding %d slots of the limit %s", slots, name)
        yield


def _holder() -> ConcurrencyLeaseHolder | None:
    """Return the current flow run, which a server that is restarted asks for."""
    return ConcurrencyLeaseHolder(type="flow_run", id=UUID(str(flow_run.id))) if flow_run.id else None


def _limit(name: str) -> tuple[str, int] | None:
    """Return name and slots of an active limit."""
    try:
        with get_client(sync_client=True) as client:
            limit = client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        return None
    return (name, limit.limit) if limit.active else None
