"""The engine ``ray``: ``--engine ray``, with ``--address`` for a cluster that is running.

A shard is a Ray task of one core. Ray runs it again on another node when its own is lost.
"""

import contextlib
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from ...core.errors import ConfigError, StoreError
from ...core.plugins import Settings
from ...core.storage import Address
from ...models.extras import need
from .base import Engine, EngineSettings, WorkerPool
from .cluster import RETRIES, ClusterPool, Settle, carry_out
from .local import available_cores
from .nodes import ready_pool
from .reach import LOOPBACK, refuse_unreachable

ADDRESS = "RAY_ADDRESS"
"""Environment variable with the address, which Ray's own commands read, too."""

_SHORT = 40
"""Longest folder, in characters, in which the paths of Ray's sockets stay below 107 characters."""


class RaySettings(EngineSettings):
    """Settings of the engine ``ray``."""

    object_store_bytes: int = Field(200_000_000, ge=80_000_000)
    """Memory for results in transit, if Ray is started for the run; shards are files, so results are small."""


class RayEngine(Engine):
    """Shards as Ray tasks."""

    config_type: ClassVar[type[Settings]] = RaySettings

    @contextlib.contextmanager
    def pool(self, environments: Sequence[str], store: Address, *, writes: bool) -> Iterator[WorkerPool]:
        """Connect to the cluster, or start one for this run, and open its workers."""
        settings: RaySettings = self.settings
        address = settings.address or os.environ.get(ADDRESS, "")
        _prepare(address)
        ray = need("ray", "ray")
        with _cluster_at(ray, address) if address else _cluster_here(ray, settings):
            pool = RayPool(ray, settings.workers, address)
            with ready_pool(pool, environments, store, writes=writes):
                yield pool


def _prepare(address: str) -> None:
    """Keep Ray offline and quiet, and give a cluster of our own a token; settings of the user win.

    Ray reads these variables once, when it is imported.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a warning about GPUs that nobody asked for
    if not address and "ray" not in sys.modules and not any(name.startswith("RAY_AUTH_") for name in os.environ):
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _options() -> dict[str, Any]:
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    return {
        "configure_logging": False,
        "log_to_driver": False,
        "namespace": f"pivot-{secrets.token_hex(4)}",
    }


@contextlib.contextmanager
def _cluster_here(ray: Any, settings: RaySettings) -> Iterator[None]:
    """Start a cluster of one node for this run, on loopback."""
    with tempfile.TemporaryDirectory(prefix="pivot-ray-", dir=_short_folder(), ignore_cleanup_errors=True) as folder:
        ray.init(
            address="local",
            num_cpus=settings.workers or available_cores(),
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=settings.object_store_bytes,
            _node_ip_address=LOOPBACK,
            _temp_dir=folder,
            **_options(),
        )
        try:
            yield
        finally:
            ray.shutdown()


def _short_folder() -> str:
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _SHORT else "/tmp"  # noqa: S108 - it becomes a folder of our own in it


@contextlib.contextmanager
def _cluster_at(ray: Any, address: str) -> Iterator[None]:
    """Connect to a running cluster."""
    refuse_unreachable(address, "Ray cluster", http2=True)
    try:
        ray.init(address=address, **_options())
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        first = " ".join(str(error).split())[:400] or type(error).__name__
        raise ConfigError(
            f"no Ray cluster can be used at {address}: {first}; give HOST:PORT from a machine that is a node of it "
            "(`ray start --address=HOST:PORT` makes it one), or ray://HOST:10001 from elsewhere"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


class RayPool(ClusterPool):
    """The workers of a Ray cluster that this process is connected to."""

    def __init__(self, ray: Any, limit: int, address: str) -> None:
        """Use the connection of ``ray``."""
        super().__init__(limit, address)
        self._ray = ray
        self._remote = ray.remote(num_cpus=1, max_retries=RETRIES)(carry_out)

    def hand_over(self, order: bytes, settle: Settle) -> Any:
        """Make it a task."""
        reference = self._remote.remote(order)
        reference.future().add_done_callback(lambda done: settle(done.result))
        return reference

    def give_up(self, handles: Sequence[Any]) -> None:
        """Cancel calls and end the worker processes of running ones."""
        for reference in handles:
            with contextlib.suppress(ValueError, RuntimeError, self._ray.exceptions.RayError):  # it is over
                self._ray.cancel(reference, force=True)

    def ask_nodes(self, order: bytes) -> Mapping[str, Callable[[], bytes]]:
        """Run it on every node that has cores."""
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        answers: dict[str, Callable[[], bytes]] = {}
        for node in self._nodes():
            there = self._remote.options(num_cpus=0, scheduling_strategy=strategy(node["NodeID"], soft=False))
            answers[f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"] = there.remote(order).future().result
        return answers

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]

    def cores(self) -> int:
        """Return the number of cores of all nodes that are alive."""
        return int(sum(node["Resources"]["CPU"] for node in self._nodes()))

    def loss(self, error: Exception) -> StoreError:
        """Return the error for a node or process that was lost more often than calls run again."""
        kind, message = type(error).__name__, " ".join(str(error).split())[:300]
        return StoreError(
            f"Ray could not run a shard ({kind}: {message}); see to the cluster (`ray status`; memory, if the system "
            "ended its processes) and run the same command again; finished shards are kept"
        )
