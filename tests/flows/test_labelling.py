"""Labels of a writer behind a server: one loop asks about all shards, whatever fails, stops or is killed meanwhile."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pivot
import polars as pl
import pytest
from pivot.core.plugins import Settings
from pivot.datasets.store import run as runs
from pivot.datasets.store.nights import load_store
from pivot.labeling.base import Guidance, GuidanceRequest, GuidanceWriter
from pivot.tests.faults.test_served_faults import completed, one_in_three, restart
from pivot.tests.flow_runs import PATIENCE, assert_whole, config_of
from pivot.tests.flows.test_served_workers import build
from pivot.tests.flows.test_writers import both, coach, part, tables_of
from pivot.tests.models.chat_server import served


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], int, int]:
    """Tables of a run without faults, its requests for replies and those for guidance."""
    root = tmp_path_factory.mktemp("whole") / "store"
    with served(both) as server:
        pivot.build(config_of(TASKS, rollouts=4, policy=part(server), teacher=part(server)), root)
    calls = load_store(root).calls.collect()
    teacher = calls.filter(pl.col("role") == "teacher").height
    return tables_of(root), calls.height - teacher, teacher


TASKS = {"sokoban": 3, "frozenlake": 3}
"""One level per shard."""


@pytest.mark.parametrize("workers", [1, 2])
def test_faults_and_restarts_change_no_byte_with_any_number_of_workers(
    workers: int, whole: tuple[dict[str, str], int, int], tmp_path: Path
) -> None:
    """Catch a label that a fault, a restart or the order of answers changes, or that is paid for in another place."""
    tables, replies, texts = whole
    with served(both, fault=one_in_three(), slots=8, latency=0.01) as server:
        # One restart while episodes are played, and one while guidance is written.
        restarts = restart(server, replies // 2), restart(server, replies + texts // 3)
        roles = {"policy": 6, "teacher": 3}
        parts = {role: part(server, max_concurrency=most, request_seconds=60.0) for role, most in roles.items()}
        config = config_of(TASKS, rollouts=4, **parts)
        completed(lambda: build(config, tmp_path, workers), 21)
        for each in restarts:
            each.join(PATIENCE)
            assert not each.is_alive()
        assert len(server.log.faults) >= 4
        assert server.log.most_in_flight <= 6
    assert tables_of(tmp_path) == tables
    assert_whole(tmp_path)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_cap_holds_over_all_shards_and_workers_and_is_used(workers: int, tmp_path: Path) -> None:
    with served(coach) as server:
        server.crowd = 5
        config = config_of({"frozenlake": 6}, rollouts=4, teacher=part(server, max_concurrency=5))
        build(config, tmp_path, workers)
        assert server.log.most_in_flight == 5
        assert server.log.answered > 10


class Telegrapher(GuidanceWriter):
    """A third-party writer that waits for its own service, without an event loop."""

    name = "telegrapher"
    config_type: ClassVar[type[Settings]] = Settings
    served: ClassVar[bool] = True
    batch_sizes: ClassVar[list[int]] = []

    @property
    def config(self) -> dict[str, Any]:
        return {}

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        self.batch_sizes.append(len(requests))
        return [Guidance(f"At step {request.verdict.pivot_step}, think.") for request in requests]


def test_a_third_partys_writer_that_only_writes_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.Run, "writer", lambda self: Telegrapher(Settings()))
    pivot.build(config_of({"frozenlake": 2}), tmp_path)
    labels = load_store(tmp_path).labels.collect()
    assert set(labels["teacher"]) == {"telegrapher"}
    assert sum(Telegrapher.batch_sizes) == labels.height > 0
    assert labels["guidance_prose"].str.ends_with("think.").all()
    assert set(labels["failure_reason"]) == {""}  # free text enters no target
