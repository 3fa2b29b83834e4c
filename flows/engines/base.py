"""Engines: who runs the shards of a run. This machine's processes by default; a cluster by ``--engine ray|dask``.

An engine is a plugin (group ``pivot.engines``) that opens a :class:`WorkerPool`. All that the pipeline knows of it is
that pool: a call of a stage goes in with its shard, a small result comes out, files and receipts lie in the store. So a
flow, its Prefect tasks, relabelling and verification are the same on every engine, and so are the bytes.
"""

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import Field

from ... import plugins
from ...contracts import Answer, Terms
from ...datasets.stages.base import ShardResult
from ...plugins import Plugin, Settings
from ...storage import Address

Call = Callable[..., ShardResult]
Result = TypeVar("Result")


class WorkerPool(Protocol):
    """Where the work of shards is done."""

    @property
    def workers(self) -> int:
        """Calls that run at the same time; nodes that join or leave a cluster change it."""
        ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names by which its workers may reach this machine, the likeliest first."""
        ...

    def submit(self, call: Call, *arguments: Any) -> "Future[ShardResult]":
        """Hand over one call."""
        ...

    def beside(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Hand over one call for an event loop, which goes on meanwhile."""
        ...

    def stop(self) -> None:
        """Give up the calls in work; what they leave on disk is as after a kill, and just as harmless."""
        ...

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run ``call`` once for each tuple and yield the results as they come."""
        ...


class EngineSettings(Settings):
    """Where an engine finds its workers."""

    workers: int = Field(0, ge=0)
    """Calls at a time; 0 for one a core, of this machine or of the cluster."""
    address: str = ""
    """Where its cluster is reached; empty for workers on this machine, which come and go with the run."""


class Engine(Plugin):
    """Opens pools of workers."""

    terms: ClassVar[Terms] = Terms(
        answers={"pool": Answer(AbstractContextManager)},
    )
    config_type: ClassVar[type[Settings]] = EngineSettings

    @abstractmethod
    def pool(self, environments: Sequence[str], store: Address, *, writes: bool) -> AbstractContextManager[WorkerPool]:
        """Give a pool for shards of these environments, and end it with all that was started for it.

        Args:
            environments: names of what the workers will need.
            store: what the calls read, and with ``writes`` also write. Every worker has to see it.
            writes: false for a store that is only read, such as by verification.

        Raises:
            ConfigError: the address is wrong, or nodes cannot be used together.
            PluginError: a package is missing.
            StoreError: a node does not see the store.
        """
        ...


@dataclass(frozen=True, slots=True)
class Workers:
    """Who is to run the shards: an engine by its name, and its settings."""

    engine: str = "local"
    address: str = ""
    count: int = 0


@contextlib.contextmanager
def open_pool(
    workers: Workers, environments: Sequence[str], store: Address, *, writes: bool = True
) -> Iterator[WorkerPool]:
    """Open the pool that is asked for; see :meth:`Engine.pool`.

    Raises:
        PluginError: there is no such engine. Others as there.
    """
    chosen: Engine = plugins.load("engines", workers.engine)(workers=workers.count, address=workers.address)
    with chosen.pool(environments, store, writes=writes) as pool:
        yield pool
