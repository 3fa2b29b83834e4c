"""Check the nodes of a cluster once, before a run.

Equal bytes need equal programs, and shards need one store: every node reports its versions, reads a file that the
driver wrote into the store, and writes one that the driver has to see.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from uuid import uuid4

from ...core.errors import ConfigError, StoreError
from ...core.storage import TEMPORARY, Address, open_storage
from ...datasets.store.store import RUN
from .cluster import ClusterPool, Order, packed, unpacked
from .versions import PROJECT, other_versions, versions_here


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Report of a node about itself."""

    versions: Mapping[str, str]
    """Versions of everything that decides bytes, by name."""
    seen: str | None
    """Digest of the driver's file as the node reads it; None if it does not see the file."""
    trouble: str
    """Error of the node about the store; empty for none."""
    reply: str | None = None
    """Name of the object that the node wrote; None if it wrote none."""


@contextlib.contextmanager
def ready_pool(
    pool: ClusterPool, environments: Sequence[str], store: Address, *, writes: bool
) -> Iterator[ClusterPool]:
    """Check the nodes of a pool and let them import these environments; cancel what still runs at the end.

    Raises:
        ConfigError, StoreError: see :func:`check_nodes`.
    """
    check_nodes(pool, store, writes=writes)
    pool.warm(environments)
    try:
        yield pool
    finally:
        pool.stop()


def look_around(store: Address, name: str, prefix: str | None) -> NodeReport:
    """Hash the object ``name`` of the store on a node, and write an object with this prefix, unless it is None."""
    storage = open_storage(store)
    seen, trouble, reply = None, "", None
    try:
        if storage.stat(name) is not None:
            seen = storage.record(name).sha256
            if prefix is not None:
                reply = f"{prefix}{uuid4().hex}"
                storage.write_bytes(reply, seen.encode())
    except StoreError as error:
        trouble = str(error)
    return NodeReport(versions_here(), seen, trouble, reply)


def check_nodes(pool: ClusterPool, store: Address, *, writes: bool) -> None:
    """Check that all nodes have the versions of this machine, and read and write the same store.

    Raises:
        ConfigError: a node cannot run PIVOT, or has other versions.
        StoreError: a node does not see the store, or cannot write it.
    """
    storage, folder = open_storage(store), f"{TEMPORARY}/nodes-{uuid4().hex}"
    name = f"{folder}/driver" if writes else RUN
    if writes:
        storage.write_bytes(name, folder.encode())
    try:
        expected = storage.record(name).sha256
        order = Order(look_around, (store, name, f"{folder}/node-" if writes else None))
        replies: list[str] = []
        for node, answer in pool.ask_nodes(packed(order, checked=False)).items():
            try:
                report: NodeReport = unpacked(answer())
            except Exception as error:
                message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                raise ConfigError(
                    f"node {node} cannot run PIVOT ({message}); install {PROJECT} {version(PROJECT)} there, in the "
                    "environment that its workers are started in"
                ) from error
            _compare(node, report.versions)
            if report.seen != expected or report.trouble:
                why = report.trouble or f"it finds nothing of this run at {storage.address()}"
                raise StoreError(
                    f"node {node} does not share the store: {why}; choose an --out on a filesystem that all nodes "
                    "mount at the same place, with the right to write there"
                )
            replies += [report.reply] if report.reply else []
        if any(storage.stat(reply) is None for reply in replies):
            raise StoreError(
                f"what nodes write into {storage.address()} is not seen here; choose an --out on a filesystem that "
                "all nodes mount at the same place"
            )
    except StoreError as error:
        if writes and storage.stat(name) is None:
            raise StoreError(
                f"another run removed the temporary files of {storage.address()} while the nodes were checked; start "
                "this run again"
            ) from error
        raise
    finally:
        if writes:
            storage.delete(folder)


def _compare(node: str, theirs: Mapping[str, str]) -> None:
    if other := other_versions(theirs, versions_here()):
        raise ConfigError(
            f"node {node} has other versions, which may make other bytes: {other}; install the same there and start "
            "its workers again"
        )
