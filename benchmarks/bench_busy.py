"""A whole build of 480 Sokoban episodes with policy and teacher on one server: share of busy slots.

The server counts from the first request for a reply to the last text of guidance: the share includes the beginning, the
end and the change from rollouts to labels. One server is fast (32 slots, 100 ms), where processor time decides; one is
wide and slow (256 slots, 5 s), where every wave that is not full costs seconds. The baseline is the bare loop of the
same SDK on the fast server. Models are embedded stand-ins.
"""

import json
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
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
CPU_REQUIRED = 0.003  # seconds per request, at most
WORKERS = 2


def coach(body: dict[str, Any]) -> str:
    """Give guidance from the facts of a prompt."""
    return json.dumps(guidance_fields(asked(body), "Avoid the wall."))


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of a build."""

    busy: float
    """Share of the slots that were busy."""
    seconds: float
    cpu_reply: float
    cpu_text: float
    """Processor seconds per reply and per text of guidance, of the process that sends the requests."""
    cpu_label: float
    """Processor seconds of the workers per label: certificates, pictures, proofs, filters, files."""


def rows() -> Iterator[Row]:
    """Return the rows: busy slots and processor time."""
    for slots, latency, required in SERVERS:
        with latency_server(slots, latency, coach=coach) as server:
            bare = bare_loop(server) if latency < 1 else None
            ours = _build(server)
        yield Row(
            name=f"slots busy in a build, {slots} of {latency:g} s",
            ours=ours.busy,
            baseline=None if bare is None else bare.busy,
            ratio=None if bare is None else ours.busy / bare.busy,
            required=required,
            passed=ours.busy >= required,
            note=f"share, counted by the server over {ours.seconds:.1f} s of rollouts and guidance",
        )
        for role, cpu in (("reply", ours.cpu_reply), ("text of guidance", ours.cpu_text)):
            if bare is not None:
                yield Row(
                    name=f"processor time of a {role}",
                    ours=cpu,
                    baseline=bare.cpu,
                    ratio=bare.cpu / cpu,
                    required=CPU_REQUIRED,
                    passed=cpu <= CPU_REQUIRED,
                    note=f"seconds, at most `required`; workers: {1000 * ours.cpu_label:.1f} ms per label",
                )


class _Clock(Reporter):
    """Notes when each stage began and ended, and what processor time had passed by then."""

    def __init__(self) -> None:
        self.began: dict[str, tuple[float, float]] = {}
        self.ended: dict[str, tuple[float, float]] = {}

    def start(self, stage: str, total: int) -> None:
        """Record the times."""
        del total
        self.began[stage] = time.monotonic(), time.process_time()

    def finish(self, stage: str) -> None:
        """Record the times."""
        self.ended[stage] = time.monotonic(), time.process_time()

    def cpu(self, stage: str) -> float:
        """Return the processor time of this process in a stage."""
        return self.ended[stage][1] - self.began[stage][1]


def _build(server: LatencyServer) -> Measured:
    service = {"base_url": server.url, "cache": "", "max_concurrency": int(IN_FLIGHT * server.slots)}
    part = {"name": "openai", "options": {"model": MODEL}, "service": service}
    config = {
        "environments": {"sokoban": {"tasks": TASKS, "settings": {}}},
        "policy": {**part, "options": {"model": MODEL, "logprobs": False}},
        "teacher": part,
    }
    clock = _Clock()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        result = pivot.build(config, folder, workers=WORKERS, reporter=clock)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    counts = result.environments["sokoban"]
    if not result.is_whole or counts["accepted"] < 0.9 * counts["labels"]:
        raise AssertionError(f"the stand-in was misunderstood: {counts}")
    first, turn, last = clock.began[ROLLOUT][0], clock.began[LABEL][0], clock.ended[LABEL][0]
    changes = [(when, change) for when, change in server.changes() if first <= when <= last]
    replies = sum(change > 0 for when, change in changes if when < turn)
    texts = sum(change > 0 for _, change in changes) - replies
    begin, end = changes[0][0], changes[-1][0]
    area, busy, then = 0.0, 0, begin
    for when, change in changes:
        area += busy * (when - then)
        then, busy = when, busy + change
    workers = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(
        area / (server.slots * (end - begin)),
        end - begin,
        clock.cpu(ROLLOUT) / replies,
        clock.cpu(LABEL) / texts,
        workers / counts["labels"],
    )
