"""Ray as an engine: ``--engine ray``, with ``--address`` for a cluster that is there.

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

from ...errors import ConfigError, StoreError
from ...models.extras import need
from ...plugins import Settings
from ...storage import Address
from .base import Engine, EngineSettings, WorkerPool
from .cluster import RETRIES, ClusterPool, Settle, carry_out
from .local import available_cores
from .nodes import at_work
from .reach import LOOPBACK, refuse_unreachable

ADDRESS = "RAY_ADDRESS"
"""Environment variable that Ray's own commands take the address from, too."""

_SHORT = 40
"""Characters of a folder below which Ray's sockets, at most 107 characters in all, find room."""


class RaySettings(EngineSettings):
    """How to run on Ray."""

    object_store_bytes: int = Field(200_000_000, ge=80_000_000)
    """Memory for results under way, of a Ray that is started for the run; shards go through files, so little does."""


class RayEngine(Engine):
    """Shards as Ray tasks."""

    config_type: ClassVar[type[Settings]] = RaySettings

    @contextlib.contextmanager
    def pool(self, environments: Sequence[str], store: Address, *, writes: bool) -> Iterator[WorkerPool]:
        """Connect to the cluster, or start one for this run, and give its workers."""
        settings: RaySettings = self.settings
        address = settings.address or os.environ.get(ADDRESS, "")
        _prepare(address)
        ray = need("ray", "ray")
        with _cluster_at(ray, address) if address else _cluster_here(ray, settings):
            pool = RayPool(ray, settings.workers, address)
            with at_work(pool, environments, store, writes=writes):
                yield pool


def _prepare(address: str) -> None:
    """Keep Ray offline and quiet, and a cluster of our own to ourselves; settings that the user made win.

    Ray reads them once, when it is imported.
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
    """Connect to a cluster that is there."""
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
        """End the worker processes of calls in work, too."""
        for reference in handles:
            with contextlib.suppress(ValueError, RuntimeError, self._ray.exceptions.RayError):  # it is over
                self._ray.cancel(reference, force=True)

    def ask_nodes(self, order: bytes) -> Mapping[str, Callable[[], bytes]]:
        """Ask every node that has cores."""
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        asked: dict[str, Callable[[], bytes]] = {}
        for node in self._nodes():
            there = self._remote.options(num_cpus=0, scheduling_strategy=strategy(node["NodeID"], soft=False))
            asked[f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"] = there.remote(order).future().result
        return asked

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]

    def cores(self) -> int:
        """Cores of all nodes that are alive."""
        return int(sum(node["Resources"]["CPU"] for node in self._nodes()))

    def loss(self, error: Exception) -> StoreError:
        """A node or process was lost more often than calls are run again."""
        kind, told = type(error).__name__, " ".join(str(error).split())[:300]
        return StoreError(
            f"Ray could not run a shard ({kind}: {told}); see to the cluster (`ray status`; memory, if the system "
            "ended its processes) and run the same command again; finished shards are kept"
        )
