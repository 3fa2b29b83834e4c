"""After an outage, a rolling restart or a lifted limit, a run fills the server's slots again within six round trips."""

import bisect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.datasets.store.nights import load_store
from pivot.tests.flow_runs import config_of
from pivot.tests.flows.test_served_faults import tables_of
from pivot.tests.models.chat_server import MODEL, ChatServer, number_of, served

SLOTS = 64
LATENCY = 1.0
ROUND_TRIPS = 6
TASKS, ROLLOUTS = 40, 8

pytestmark = [pytest.mark.operations, pytest.mark.timeout(600)]


def config_at(server: ChatServer, **service: Any) -> dict[str, Any]:
    """A run with the usual pauses and patience that keeps every slot busy."""
    part = {
        "name": "openai",
        "options": {"model": MODEL},
        "service": {"base_url": server.url, "cache": "", "max_concurrency": SLOTS, **service},
    }
    return config_of({"sokoban": TASKS}, rollouts=ROLLOUTS, policy=part, tasks_per_shard=TASKS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of the tables of the same run on a server without faults."""
    root = tmp_path_factory.mktemp("outages") / "store"
    with served() as server:
        pivot.build(config_at(server), root)
    return tables_of(root)


def run_through(server: ChatServer, root: Path, trouble: Callable[[], float]) -> float:
    """Build while ``trouble`` happens; return the round trips from its end until 90 % of the slots were busy.

    ``trouble`` begins when all slots are busy, and returns the time at which it ended.
    """
    ended: list[float] = []

    def disturb() -> None:
        while not server.log.busy or max(busy for _, busy in server.log.busy) < SLOTS:
            time.sleep(0.05)
        time.sleep(1.5 * LATENCY)
        ended.append(trouble())

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    assert pivot.build(config_at(server), root).pending_episodes == 0
    thread.join()
    step_count = load_store(root).steps.collect().height
    assert server.log.answered == step_count, "a request was answered twice"
    log = server.log.busy
    full = next(at for at, busy in log[bisect.bisect(log, (ended[0], 0)) :] if busy >= 0.9 * SLOTS)
    return (full - ended[0]) / LATENCY


@pytest.mark.parametrize("seconds", [5, 15, 60])
def test_after_an_outage(seconds: float, tmp_path: Path, undisturbed: dict[str, str]) -> None:
    with served(latency=LATENCY, slots=SLOTS) as server:

        def outage() -> float:
            server.stop()
            time.sleep(seconds)
            server.start()
            answered = server.log.answered
            while server.log.answered == answered:  # nobody can know earlier that it is back
                time.sleep(0.01)
            return time.monotonic()

        trips = run_through(server, tmp_path / "store", outage)
    print(f"outage of {seconds} s: {trips:.1f} round trips")  # noqa: T201 - shown with -s
    assert trips <= ROUND_TRIPS
    assert tables_of(tmp_path / "store") == undisturbed


def test_after_a_rolling_restart(tmp_path: Path, undisturbed: dict[str, str]) -> None:
    """Three times, the server is away for a second, and its proxy answers 404 and 502 for two more."""
    restarting = False

    def fault(key: str, tried: int) -> str | None:
        return ("404", "502")[tried % 2] if restarting and number_of(key, tried) % 3 else None

    with served(latency=LATENCY, slots=SLOTS, fault=fault) as server:

        def restart() -> float:
            nonlocal restarting
            for _ in range(3):
                restarting = True
                server.stop()
                time.sleep(1.0)
                server.start()
                time.sleep(2.0)
                restarting = False
                time.sleep(1.0)
            return time.monotonic()

        trips = run_through(server, tmp_path / "store", restart)
    print(f"rolling restart: {trips:.1f} round trips")  # noqa: T201 - shown with -s
    assert server.log.faults["404"] > 5
    assert server.log.faults["502"] > 5
    assert trips <= ROUND_TRIPS
    assert tables_of(tmp_path / "store") == undisturbed


def test_after_a_limit_of_requests_is_lifted(tmp_path: Path, undisturbed: dict[str, str]) -> None:
    most = SLOTS

    def fault(key: str, tried: int) -> str | None:
        del key, tried
        return "429" if server.log.busy and server.log.busy[-1][1] >= most else None

    with served(latency=LATENCY, slots=SLOTS, fault=fault) as server:

        def limited() -> float:
            nonlocal most
            most = 16
            time.sleep(12.0)
            most = 10 * SLOTS
            return time.monotonic()

        trips = run_through(server, tmp_path / "store", limited)
    print(f"lifted limit: {trips:.1f} round trips")  # noqa: T201 - shown with -s
    assert server.log.faults["429"] > 5
    assert trips <= ROUND_TRIPS
    assert tables_of(tmp_path / "store") == undisturbed
