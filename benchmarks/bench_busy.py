"""A whole build of 480 Sokoban episodes with policy and teacher on one server: share of busy slots.

The server counts from the first request for a reply to the last text of guidance: the share includes the beginning, the
end and the change from rollouts to labels. One server is fast (32 slots, 100 ms), where processor time decides; one is
wide and slow (256 slots, 5 s), where every wave that is not full costs seconds. The baseline is the bare loop of the
same SDK on the fast server. Models are embedded stand-ins. Processor time is measured by ``bench_serving``.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pivot
from pivot.benchmarks.bench_serving import bare_loop
from pivot.benchmarks.harness import Row
from pivot.benchmarks.latency_server import MODEL, LatencyServer, latency_server
from pivot.core.progress import Reporter
from pivot.datasets.store.stages import LABEL, ROLLOUT
from pivot.tests.models.coaching import asked, guidance_fields

TASKS = 60  # of eight rollouts
SERVERS = ((32, 0.1, 0.9), (256, 5.0, 0.8))  # slots, seconds, required share of busy slots
IN_FLIGHT = 1.25  # requests per slot: a few wait at the server, so that a free slot is taken at once
WORKERS = 2


def coach(body: dict[str, Any]) -> str:
    """Give guidance from the facts of a prompt."""
    return json.dumps(guidance_fields(asked(body), "Avoid the wall."))


def rows() -> Iterator[Row]:
    """Yield the share of busy slots on each server."""
    for slots, latency, required in SERVERS:
        with latency_server(slots, latency, coach=coach) as server:
            bare = bare_loop(server) if latency < 1 else None
            busy, seconds = _build(server)
        yield Row(
            name=f"slots busy in a build, {slots} of {latency:g} s",
            ours=busy,
            baseline=None if bare is None else bare.busy,
            ratio=None if bare is None else busy / bare.busy,
            required=required,
            passed=busy >= required,
            note=f"share, counted by the server over {seconds:.1f} s of rollouts and guidance",
        )


class _Clock(Reporter):
    """Notes when each stage began and ended."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    def start(self, stage: str, total: int) -> None:
        """Record the time."""
        del total
        self.began[stage] = time.monotonic()

    def finish(self, stage: str) -> None:
        """Record the time."""
        self.ended[stage] = time.monotonic()


def _build(server: LatencyServer) -> tuple[float, float]:
    """Return the share of the slots that a build kept busy, and its seconds."""
    service = {"base_url": server.url, "cache": "", "max_concurrency": int(IN_FLIGHT * server.slots)}
    part = {"name": "openai", "options": {"model": MODEL}, "service": service}
    config = {
        "environments": {"sokoban": {"tasks": TASKS, "settings": {}}},
        "policy": {**part, "options": {"model": MODEL, "logprobs": False}},
        "teacher": part,
    }
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        result = pivot.build(config, folder, workers=WORKERS, reporter=clock)
    counts = result.environments["sokoban"]
    if not result.is_whole or counts["accepted"] < 0.9 * counts["labels"]:
        raise AssertionError(f"the stand-in was misunderstood: {counts}")
    first, last = clock.began[ROLLOUT], clock.ended[LABEL]
    changes = [(when, change) for when, change in server.changes() if first <= when <= last]
    begin, end = changes[0][0], changes[-1][0]
    area, busy, then = 0.0, 0, begin
    for when, change in changes:
        area += busy * (when - then)
        then, busy = when, busy + change
    return area / (server.slots * (end - begin)), end - begin
