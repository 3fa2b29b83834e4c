"""The engine ``dask``: ``--engine dask``, with ``--address`` for a scheduler that is running."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from multiprocessing import resource_tracker
from typing import Any

from ...core.errors import ConfigError
from ...core.storage import Address
from ...models.extras import need
from .base import Engine, WorkerPool
from .cluster import LOOPBACK, PATIENCE, RETRIES, ClusterPool, carry_out, refuse_unreachable
from .local import available_cores
from .processes import interrupts_held

_TRIMMING = "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"
"""Dask's setting that makes processes return all freed memory to the system at once, which takes half as long again."""


class DaskEngine(Engine):
    """Shards as Dask tasks, with ``--address`` or ``DASK_SCHEDULER_ADDRESS`` for a scheduler that is running."""

    @contextlib.contextmanager
    def pool(self, environments: Sequence[str], store: Address) -> Iterator[WorkerPool]:
        """Connect to the scheduler, or start one with its workers for this run on loopback, with keys of their own."""
        del environments
        distributed: Any = need("distributed", "dask")
        limit: int = self.settings.workers
        address = self.settings.address or os.environ.get("DASK_SCHEDULER_ADDRESS", "")
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
        with contextlib.ExitStack() as stack:
            at: Any = address
            if address:
                refuse_unreachable(address, "Dask scheduler")
            else:
                # The thread that starts workers blocks Ctrl-C, and they inherit that. Starting multiprocessing's
                # tracker would unblock it, so the tracker is started first.
                resource_tracker.ensure_running()
                options = {"n_workers": limit or available_cores(), "threads_per_worker": 1, "processes": True}
                options |= {"host": LOOPBACK, "security": True, "dashboard_address": f"{LOOPBACK}:0"}
                options |= {"memory_limit": None, "silence_logs": logging.CRITICAL + 1}
                with interrupts_held(), need("dask", "dask").config.set({_TRIMMING: None}):
                    at = stack.enter_context(distributed.LocalCluster(**options))
            try:
                client = stack.enter_context(distributed.Client(at, timeout=PATIENCE, set_as_default=False))
                client.wait_for_workers(1, timeout=PATIENCE)
            except (OSError, ValueError, TimeoutError) as error:
                message = " ".join(str(error).split())[:300] or "what listens there does not answer"
                raise ConfigError(
                    f"no Dask scheduler with workers can be used at {address}: {message}; give what `dask scheduler` "
                    "prints, such as tcp://HOST:8786, and start workers with: dask worker ADDRESS --nworkers CORES "
                    "--nthreads 1"
                ) from error
            executor = client.get_executor(pure=False, retries=RETRIES)

            def send(order: bytes) -> tuple["Future[bytes]", Callable[[], Any]]:
                answer: Future[bytes] = executor.submit(carry_out, order)
                return answer, answer.cancel

            pool = ClusterPool(send, lambda: len(client.nthreads()), store, limit, own=not address)
            stack.callback(pool.stop)
            yield pool
