"""Check the nodes of a cluster once, before a run.

Equal bytes need equal programs, and shards need one store: every node reports its versions, reads a file that the
driver wrote into the store, and writes one that the driver has to see.
"""

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from uuid import uuid4

from ...datasets.store import RUN
from ...errors import ConfigError, StoreError
from ...plugins import GROUPS
from ...storage import Address, open_storage
from .cluster import ClusterPool, Order, packed, unpacked

PROJECT = "pivot-vlm"
OURS = Path(__file__).parents[2]
ROOMS = ("collage", "datasets", "environments", "flows", "labeling", "models", "rollouts", "solvers", "storage")
"""Folders whose sources decide bytes; the folder of the package may hold others, such as runs."""

CODE = "PIVOT's source"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Report of a node about itself."""

    versions: dict[str, str]
    """Versions of everything that decides bytes, by name."""
    seen: str | None
    """Digest of the driver's file as the node reads it; None if it does not see the file."""
    trouble: str
    """Error of the node about the store; empty for none."""


@contextlib.contextmanager
def at_work(pool: ClusterPool, environments: Sequence[str], store: Address, *, writes: bool) -> Iterator[ClusterPool]:
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


def versions_here() -> dict[str, str]:
    """Return the versions of Python, of PIVOT and its plugins, and of the packages that they compute with."""
    required = [line for line in requires(PROJECT) or () if "extra ==" not in line]
    names = {match.group().lower() for line in required if (match := re.match(r"[\w.-]+", line))}
    for group in GROUPS:
        names |= {point.dist.name.lower() for point in entry_points(group=f"pivot.{group}") if point.dist is not None}
    versions = {"Python": ".".join(map(str, sys.version_info[:2])), CODE: _source_digest()}
    for name in sorted(names):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _source_digest() -> str:
    hasher = hashlib.sha256()
    for room in ROOMS:
        for place, folders, files in os.walk(OURS / room):
            folders.sort()
            for name in sorted(each for each in files if each.endswith(".py")):
                hasher.update(name.encode() + (Path(place) / name).read_bytes())
    return hasher.hexdigest()[:12]


def look_around(store: Address, name: str, reply: str | None) -> NodeReport:
    """Hash the object ``name`` of the store on a node, and write an object that begins with ``reply``, unless None."""
    storage = open_storage(store)
    seen, trouble = None, ""
    try:
        if storage.stat(name) is not None:
            seen = storage.record(name).sha256
            if reply is not None:
                storage.write_bytes(f"{reply}{uuid4().hex}", seen.encode())
    except StoreError as error:
        trouble = str(error)
    return NodeReport(versions_here(), seen, trouble)


def check_nodes(pool: ClusterPool, store: Address, *, writes: bool) -> None:
    """Check that all nodes have the versions of this machine, and read and write the same store.

    Raises:
        ConfigError: a node cannot run PIVOT, or has other versions.
        StoreError: a node does not see the store, or cannot write it.
    """
    storage, folder = open_storage(store), f".nodes-{uuid4().hex}"
    name = f"{folder}/driver" if writes else RUN
    if writes:
        storage.write_bytes(name, folder.encode())
    try:
        expected = storage.record(name).sha256
        order = Order(look_around, (store, name, f"{folder}/node-" if writes else None))
        replies = 0
        for node, answer in pool.ask_nodes(packed(order)).items():
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
            replies += 1
        if writes and len(storage.listing(folder)) != replies + 1:
            raise StoreError(
                f"what nodes write into {storage.address()} is not seen here; choose an --out on a filesystem that "
                "all nodes mount at the same place"
            )
    finally:
        if writes:
            storage.delete(folder)


def _compare(node: str, theirs: dict[str, str]) -> None:
    ours = versions_here()
    other = [
        f"{name} {theirs.get(name, 'not installed')} (here {ours.get(name, 'not installed')})"
        for name in sorted(ours | theirs)
        if ours.get(name) != theirs.get(name)
    ]
    if other:
        raise ConfigError(
            f"node {node} has other versions, which may make other bytes: {', '.join(other)}; install the same there "
            "and start its workers again"
        )
