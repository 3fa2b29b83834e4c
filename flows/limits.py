"""How hard all flow runs together may drive a model server: a global concurrency limit of Prefect.

Its slots are requests in flight. A flow run that asks a server takes as many as it may have in flight
(``service.max_concurrency`` of policy or teacher), waits until they are free, and gives them back at its end; those of
a run that was killed are free again when their lease is over. Without a limit on the server nothing is taken.
"""

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from prefect import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from ..datasets.run import Run
from ..errors import ConfigError
from ..models.base import Role
from ..models.service import Service
from .artifacts import Log

MODEL_SERVER = "pivot-model-server"
"""The limit for every server that has none of its own, which is called after the address: ``NAME:HOST:PORT``."""
LEASE = 60.0
"""Seconds that the slots of a killed run stay taken; the shortest that Prefect knows."""


def slots_of(run: Run, *roles: Role) -> dict[str, int]:
    """Return how many requests a run may have in flight at each server that it asks, by host and port."""
    slots: dict[str, int] = {}
    for service in run.services(*roles):
        if isinstance(service, Service):
            place = urlsplit(service.base_url).netloc
            slots[place] = max(slots.get(place, 0), service.max_concurrency)
    return slots


@contextlib.contextmanager
def model_slots(run: Run, log: Log, *roles: Role) -> Iterator[None]:
    """Hold slots of the limits on the servers that the models of a run in these roles are behind.

    Raises:
        ConfigError: the run may have more requests in flight than a limit has slots, so it would wait for ever.
    """
    taken: dict[str, int] = {}
    for place, slots in slots_of(run, *roles).items():
        limit = _limit(f"{MODEL_SERVER}:{place}") or _limit(MODEL_SERVER)
        if limit is not None:
            name, most = limit
            if slots > most:
                raise ConfigError(
                    f"max_concurrency is {slots} for the model server {place}, expected at most the {most} slots of "
                    f"the limit {name}; set service.max_concurrency, or `prefect gcl update {name} --limit {slots}`"
                )
            taken[name] = min(most, taken.get(name, 0) + slots)
    with contextlib.ExitStack() as held:
        for name, slots in sorted(taken.items()):  # in one order everywhere, so that no two runs wait for each other
            log.info("waiting for %d slots of the limit %s", slots, name)
            held.enter_context(
                concurrency(name, slots, lease_duration=LEASE, strict=True, raise_on_lease_renewal_failure=False)
            )
            log.info("holding %d slots of the limit %s", slots, name)
        yield


def _limit(name: str) -> tuple[str, int] | None:
    """Return name and slots of an active limit."""
    try:
        with get_client(sync_client=True) as client:
            limit = client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        return None
    return (name, limit.limit) if limit.active else None
