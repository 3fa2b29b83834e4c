"""The engine ``ray``: ``--engine ray``, with ``--address`` for a cluster that is running."""

import contextlib
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from ...core.errors import ConfigError
from ...core.storage import Address
from ...models.extras import need
from .base import Engine, WorkerPool
from .cluster import LOOPBACK, RETRIES, ClusterPool, carry_out, refuse_unreachable
from .local import available_cores

_SHORT = 40
"""Longest folder, in characters, in which the paths of Ray's sockets stay below 107 characters."""


class RayEngine(Engine):
    """Shards as Ray tasks of one core, with ``--address`` or ``RAY_ADDRESS`` for a cluster that is running."""

    @contextlib.contextmanager
    def pool(self, environments: Sequence[str], store: Address) -> Iterator[WorkerPool]:
        """Connect to the cluster, or start one for this run on loopback, with a token of its own."""
        del environments
        limit: int = self.settings.workers
        address = self.settings.address or os.environ.get("RAY_ADDRESS", "")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # variables that Ray reads once, when it is imported
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids an irrelevant warning about GPUs
        if not address and "ray" not in sys.modules and not any(name.startswith("RAY_AUTH_") for name in os.environ):
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        ray: Any = need("ray", "ray")
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
        usual = tempfile.gettempdir()
        short = usual if len(usual) <= _SHORT else "/tmp"  # noqa: S108 - it becomes a folder of our own in it
        with contextlib.ExitStack() as stack:
            if address:
                refuse_unreachable(address, "Ray cluster")
                options |= {"address": address, "namespace": f"pivot-{secrets.token_hex(4)}"}
            else:
                temporary = tempfile.TemporaryDirectory(prefix="pivot-ray-", dir=short, ignore_cleanup_errors=True)
                options |= {"address": "local", "num_cpus": limit or available_cores(), "num_gpus": 0}
                options |= {"include_dashboard": False, "object_store_memory": 200_000_000}
                options |= {"_node_ip_address": LOOPBACK, "_temp_dir": stack.enter_context(temporary)}
            try:
                ray.init(**options)
            except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
                first = " ".join(str(error).split())[:400] or type(error).__name__
                raise ConfigError(
                    f"no Ray cluster can be used at {address or LOOPBACK}: {first}; give HOST:PORT from a machine that "
                    "is a node of it (`ray start --address=HOST:PORT` makes it one), or ray://HOST:10001 from elsewhere"
                ) from error
            stack.callback(ray.shutdown)
            remote = ray.remote(num_cpus=1, max_retries=RETRIES)(carry_out)

            def send(order: bytes) -> tuple["Future[bytes]", Callable[[], Any]]:
                reference = remote.remote(order)

                def cancel() -> None:
                    with contextlib.suppress(ValueError, RuntimeError, ray.exceptions.RayError):  # the call has ended
                        ray.cancel(reference, force=True)

                return reference.future(), cancel

            def cores() -> int:
                return int(sum(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))

            pool = ClusterPool(send, cores, store, limit, own=not address)
            stack.callback(pool.stop)
            yield pool
