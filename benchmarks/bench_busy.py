"""A whole build of 480 Sokoban episodes whose policy and writer wait for one server: are its slots kept full?

The server counts, from the first request for a reply to the last text of guidance, so that the beginning, the end and
the change from rollouts to labels are all in the share. One server is fast (32 slots, 100 ms), where the processor
decides; one is wide and slow (256 slots, 5 s), where every wave that is not full costs seconds. The baseline is the
bare loop of the same SDK at the fast server. Models are embedded stand-ins.
"""

import json
import resource
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import pivot
from pivot.benchmarks.bench_serving import bare_loop
from pivot.benchmarks.latency_server import MODEL, LatencyServer, latency_server
from pivot.datasets.inputs import LABEL, ROLLOUT
from pivot.datasets.progress import Silent
from pivot.tests.models.coaching import asked, guidance_fields

TASKS = 60  # of eight rollouts
SERVERS = ((32, 0.1, 0.9), (256, 5.0, 0.8))  # slots, seconds, share of the slots that has to be busy
AT_THE_DOOR = 1.25  # requests in flight a slot: the next one waits at the server, where a slot is free at once
CPU_REQUIRED = 0.003  # seconds a request
WORKERS = 2


def coach(body: dict[str, Any]) -> str:
    """Give guidance from the facts of a prompt."""
    return json.dumps(guidance_fields(asked(body), "Avoid the wall."))


@dataclass(frozen=True, slots=True)
class Measured:
    """One build: share of the slots busy in it, and seconds of processor time a request in both roles."""

    busy: float
    seconds: float
    cpu_reply: float
    cpu_text: float
    """Of the process that asks."""
    cpu_beside: float
    """Of the workers, a label: certificates, pictures, proofs, filters, files."""


def rows() -> list[dict[str, Any]]:
    """Return the rows: busy slots and processor time."""
    made: list[dict[str, Any]] = []
    for slots, latency, required in SERVERS:
        with latency_server(slots, latency, coach=coach) as server:
            bare = bare_loop(server) if latency < 1 else None
            ours = _build(server)
        made.append(
            {
                "name": f"slots busy in a build, {slots} of {latency:g} s",
                "ours": ours.busy,
                "baseline": "-" if bare is None else bare.busy,
                "ratio": "-" if bare is None else ours.busy / bare.busy,
                "required": required,
                "passed": ours.busy >= required,
                "note": f"share, counted by the server over {ours.seconds:.1f} s of rollouts and guidance",
            }
        )
        for role, cpu in (("reply", ours.cpu_reply), ("text of guidance", ours.cpu_text)):
            if bare is not None:
                made.append(
                    {
                        "name": f"processor time of a {role}",
                        "ours": cpu,
                        "baseline": bare.cpu,
                        "ratio": bare.cpu / cpu,
                        "required": CPU_REQUIRED,
                        "passed": cpu <= CPU_REQUIRED,
                        "note": f"seconds; `required` is the most; beside: {ours.cpu_beside * 1000:.1f} ms a label",
                    }
                )
    return made


class _Clock(Silent):
    """Notes when each stage began and ended, and what processor time had passed by then."""

    def __init__(self) -> None:
        self.began: dict[str, tuple[float, float]] = {}
        self.ended: dict[str, tuple[float, float]] = {}

    def start(self, stage: str, total: int) -> None:
        """Note the times."""
        del total
        self.began[stage] = time.monotonic(), time.process_time()

    def finish(self, stage: str) -> None:
        """Note the times."""
        self.ended[stage] = time.monotonic(), time.process_time()

    def cpu(self, stage: str) -> float:
        """Return the processor time of this process in a stage."""
        return self.ended[stage][1] - self.began[stage][1]


def _build(server: LatencyServer) -> Measured:
    service = {"base_url": server.url, "cache": "", "max_concurrency": int(AT_THE_DOOR * server.slots)}
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
    if result.owed or result.unanswered or counts["accepted"] < 0.9 * counts["labels"]:
        raise AssertionError(f"the stand-in was not understood: {counts}")
    first, turn, last = clock.began[ROLLOUT][0], clock.began[LABEL][0], clock.ended[LABEL][0]
    changes = [(when, change) for when, change in server.changes() if first <= when <= last]
    replies = sum(change > 0 for when, change in changes if when < turn)
    texts = sum(change > 0 for _, change in changes) - replies
    begin, end = changes[0][0], changes[-1][0]
    area, busy, then = 0.0, 0, begin
    for when, change in changes:
        area += busy * (when - then)
        then, busy = when, busy + change
    beside = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(
        area / (server.slots * (end - begin)),
        end - begin,
        clock.cpu(ROLLOUT) / replies,
        clock.cpu(LABEL) / texts,
        beside / counts["labels"],
    )
