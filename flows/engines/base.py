"""Engines run the shards of a run: processes of this machine by default, a cluster with ``--engine ray|dask``.

An engine is a plugin (group ``pivot.engines``) that opens a :class:`WorkerPool`. The pipeline uses only that pool: it
submits a stage of a shard and gets a small result; files and receipts are in the store. So builds, relabels and
verification are the same on every engine, and so are the bytes.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import Field

from ...core.contracts import Answer, Terms
from ...core.plugins import Plugin, Settings
from ...core.storage import Address

Result = TypeVar("Result")


class WorkerPool(Protocol):
    """Workers that run calls."""

    @property
    def workers(self) -> int:
        """Number of calls that run at the same time; it changes when nodes join or leave a cluster."""
        ...

    def submit(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Submit a call, which may load what its caller may load; see :mod:`pivot.core.admission`."""
        ...

    def stop(self) -> None:
        """Cancel the running calls; the store is then as after a kill, and the next run resumes."""
        ...

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run ``call`` once for each tuple and yield the results in the order of completion."""
        ...

    def share(self, slots: int) -> int:
        """Share this number of slots of a model server among all workers; return the most of one worker."""
        ...

    def episodes(self) -> int:
        """Return how many episodes the workers have reported as over; 0 where they cannot report."""
        ...


class EngineSettings(Settings):
    """Settings of an engine: its workers."""

    workers: int = Field(0, ge=0)
    """Number of concurrent calls; 0 for one per core of this machine or of the cluster."""
    address: str = ""
    """Address of its cluster; empty for workers on this machine that are started for the run."""


class Engine(Plugin):
    """Opens pools of workers."""

    terms: ClassVar[Terms] = Terms(answers={"pool": Answer(AbstractContextManager)})
    config_type: ClassVar[type[Settings]] = EngineSettings

    @abstractmethod
    def pool(self, environments: Sequence[str], store: Address) -> AbstractContextManager[WorkerPool]:
        """Open a pool for shards of these environments, and close it with everything that was started for it.

        Args:
            environments: names of the environments that the workers need.
            store: the store that the calls read or write. Every worker has to see it.

        Raises:
            ConfigError: the address is wrong, or nodes cannot be used together.
            PluginError: a package is missing.
            StoreError: a node does not see the store.
        """
        ...
