"""Rollouts against a model server on several workers: one limit in all, equal bytes, and a clean end."""

import asyncio
import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pivot
import psutil
import pytest
from pivot.core.errors import ConfigError, PivotError, StoreError
from pivot.core.progress import Reporter
from pivot.datasets.store.config import make_config
from pivot.datasets.store.stages import LabelStage, RolloutStage
from pivot.datasets.store.store import Store
from pivot.flows.engines.local import InProcess
from pivot.flows.pipeline import BuildResult, build_store
from pivot.flows.served import _groups
from pivot.models import pacing
from pivot.rollouts.policies import ModelPolicy
from pivot.tests.faults.test_served_faults import config_at
from pivot.tests.flow_runs import PATIENCE, begun
from pivot.tests.flows.test_writers import both, tables_of
from pivot.tests.models.chat_server import MODEL, served

TASKS = {"sokoban": 4, "frozenlake": 4}


class Threads(InProcess):
    """A pool whose workers are threads of this process: a test sees into them, and none takes seconds to start."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = workers
        self._executor = ThreadPoolExecutor(workers)

    def submit(self, call: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        # As between processes: nothing is shared.
        return self._executor.submit(call, *pickle.loads(pickle.dumps(arguments)))

    def share(self, slots: int) -> int:
        pacing.share_slots(threading.BoundedSemaphore(slots))  # type: ignore[arg-type]
        return slots


def build(config: dict[str, Any], root: Path, workers: int = 1, reporter: Reporter | None = None) -> BuildResult:
    """Build with so many threads."""
    return build_store(root, make_config(config), Threads(workers), reporter or Reporter())


# Results equal to those of one process


@pytest.mark.timeout(900)
def test_processes_together_keep_the_limit(tmp_path: Path) -> None:
    """Catch a limit for every process, and bytes that depend on the process that plays or labels."""
    with served(both, slots=6) as server:
        config = config_at(server, {"sokoban": 4}, rollouts=4, max_concurrency=6) | {"tasks_per_shard": 1}
        config["teacher"] = config["policy"]
        build(config, tmp_path / "whole")
        server.log.most_in_flight, server.crowd = 0, 6
        pivot.build(config, tmp_path / "store", workers=2)
        assert server.log.most_in_flight == 6
    assert tables_of(tmp_path / "store") == tables_of(tmp_path / "whole")


def test_a_slot_is_not_kept_by_the_process_that_returns_it() -> None:
    """Two loops share one slot: each gets about half of the turns, and it is never taken twice."""
    shared, turns, taken = threading.BoundedSemaphore(1), Counter[int](), 0

    async def play(number: int) -> None:
        nonlocal taken
        limit = pacing.AdaptiveLimit(8)

        async def ask() -> None:
            nonlocal taken
            await limit.acquire()
            taken += 1
            assert taken == 1
            await asyncio.sleep(0.001)
            taken -= 1
            limit.release()
            turns[number] += 1

        while turns.total() < 100:
            await asyncio.gather(*(ask() for _ in range(4)))

    pacing.share_slots(shared)  # type: ignore[arg-type]
    threads = [threading.Thread(target=lambda each=each: asyncio.run(play(each))) for each in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert min(turns.values()) > 20
    assert shared.acquire(blocking=False)


def test_a_request_that_is_cancelled_returns_its_slot() -> None:
    shared = threading.BoundedSemaphore(1)
    pacing.share_slots(shared)  # type: ignore[arg-type]

    async def play() -> None:
        limit = pacing.AdaptiveLimit(8)
        await limit.acquire()
        waiting = [asyncio.create_task(limit.acquire()) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        limit.release()
        await waiting[1]
        limit.release()
        await asyncio.sleep(0.01)
        waiting[2].cancel()  # perhaps together with its slot
        await asyncio.gather(*waiting, return_exceptions=True)
        if waiting[2].cancelled() is False:
            limit.release()

    asyncio.run(play())
    assert shared.acquire(blocking=False)


def test_groups_give_all_workers_work_and_keep_the_order(small_store: Path) -> None:
    store = Store.open(small_store)
    stages: list[Any] = [LabelStage(store, shard) for shard in store.config.shards()]
    for share, workers in ((1, 1), (1, 4), (stages[0].episodes, 2), (10_000, 2)):
        groups = _groups(stages, share, workers)
        assert [stage for group in groups for stage in group] == stages
        assert len(groups) >= min(workers, len(stages))


# The end of a run


@pytest.mark.parametrize(
    ("owner", "name", "make_mock", "raised"),
    [
        (ModelPolicy, "reply", AsyncMock, ConfigError("the balance is spent")),
        (RolloutStage, "product", Mock, StoreError("the disk is full")),
    ],
)
def test_an_error_that_ends_the_run_ends_it_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, make_mock: type[Mock], raised: PivotError
) -> None:
    monkeypatch.setattr(owner, name, make_mock(side_effect=raised))
    with served(latency=0.01) as server, pytest.raises(type(raised), match=str(raised)):
        build(config_at(server, {"sokoban": 9}) | {"tasks_per_shard": 1}, tmp_path, 4)


@pytest.mark.operations
@pytest.mark.timeout(900)
def test_ctrl_c_keeps_what_is_finished_and_leaves_no_process(tmp_path: Path) -> None:
    with served(latency=0.1, slots=16) as server:
        arguments = ["build", "sokoban", "--tasks", "24", "--rollouts", "8", "--policy", "openai", "--model", MODEL]
        more = ["--base-url", server.url, "--out", tmp_path / "store", "--workers", "3", "--no-cache"]
        process = begun(*arguments, *more, "--max-concurrency", "16", env={"OPENAI_API_KEY": "k"})
        started = psutil.Process(process.pid)
        while server.log.answered < 400 and process.poll() is None:
            time.sleep(0.05)
        children = started.children(recursive=True)
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130 and "Traceback" not in output + errors, output + errors
        psutil.wait_procs(children, timeout=PATIENCE)
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        assert list((tmp_path / "store" / "episodes").rglob("*.parquet")), "episodes were finished by then"
        assert not (tmp_path / "store" / "manifest.json").exists()
