"""Engines run the shards of a run: processes of this machine by default, a cluster with ``--engine ray|dask``.

An engine is a plugin (group ``pivot.engines``) that opens a :class:`WorkerPool`. The pipeline uses only that pool: it
submits a stage of a shard and gets a small result; files and receipts are in the store. So builds, relabels and
verification are the same on every engine, and so are the bytes.
"""

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import Field

from ...core import plugins
from ...core.admission import Admitted, allowed_names
from ...core.contracts import Answer, Terms
from ...core.plugins import Plugin, Settings
from ...core.storage import Address
from ...datasets.store.stages.base import ShardResult

Call = Callable[..., ShardResult]
Result = TypeVar("Result")


class WorkerPool(Protocol):
    """Workers that run calls."""

    @property
    def workers(self) -> int:
        """Number of calls that run at the same time; it changes when nodes join or leave a cluster."""
        ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names under which the workers may reach this machine, the likeliest first."""
        ...

    def submit(self, call: Call, *arguments: Any) -> "Future[ShardResult]":
        """Submit a stage of a shard."""
        ...

    def beside(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Submit any call, for an event loop that does not wait for it."""
        ...

    def stop(self) -> None:
        """Cancel the running calls; the store is then as after a kill, and the next run resumes."""
        ...

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run ``call`` once for each tuple and yield the results in the order of completion."""
        ...


class EngineSettings(Settings):
    """Settings of an engine: its workers."""

    workers: int = Field(0, ge=0)
    """Number of concurrent calls; 0 for one per core of this machine or of the cluster."""
    address: str = ""
    """Address of its cluster; empty for workers on this machine that are started for the run."""


class Engine(Plugin):
    """Opens pools of workers."""

    terms: ClassVar[Terms] = Terms(
        answers={"pool": Answer(AbstractContextManager)},
    )
    config_type: ClassVar[type[Settings]] = EngineSettings

    @abstractmethod
    def pool(self, environments: Sequence[str], store: Address, *, writes: bool) -> AbstractContextManager[WorkerPool]:
        """Open a pool for shards of these environments, and close it with everything that was started for it.

        Args:
            environments: names of the environments that the workers need.
            store: the store that the calls read, and write with ``writes``. Every worker has to see it.
            writes: false for a store that is only read, such as by verification.

        Raises:
            ConfigError: the address is wrong, or nodes cannot be used together.
            PluginError: a package is missing.
            StoreError: a node does not see the store.
        """
        ...


@dataclass(frozen=True, slots=True)
class AdmittingPool:
    """A pool whose calls may load what the call that submits them may load; see :mod:`pivot.core.admission`."""

    pool: WorkerPool

    @property
    def workers(self) -> int:
        """Number of calls that run at the same time."""
        return self.pool.workers

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names under which the workers may reach this machine."""
        return self.pool.hosts

    def submit(self, call: Call, *arguments: Any) -> "Future[ShardResult]":
        """Submit a stage of a shard."""
        return self.pool.submit(Admitted(allowed_names(), call), *arguments)

    def beside(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Submit any call."""
        return self.pool.beside(Admitted(allowed_names(), call), *arguments)

    def stop(self) -> None:
        """Cancel the running calls."""
        self.pool.stop()

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run ``call`` once for each tuple."""
        return self.pool.stream(Admitted(allowed_names(), call), arguments)


@dataclass(frozen=True, slots=True)
class Workers:
    """An engine by its name, with its settings."""

    engine: str = "local"
    address: str = ""
    count: int = 0


@contextlib.contextmanager
def open_pool(
    workers: Workers, environments: Sequence[str], store: Address, *, writes: bool = True
) -> Iterator[WorkerPool]:
    """Open the pool of an engine; see :meth:`Engine.pool`.

    Raises:
        PluginError: the engine is unknown. Others as there.
    """
    kind: type[Engine] = plugins.load("engines", workers.engine)
    settings = {"workers": workers.count, "address": workers.address}
    chosen = kind(plugins.read_settings(kind.config_type, settings, f"engine {workers.engine}: "))
    with chosen.pool(environments, store, writes=writes) as pool:
        yield AdmittingPool(pool)
