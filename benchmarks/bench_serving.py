"""Rollouts on a model server of 64 slots and 200 ms per reply: share of busy slots, and processor time of the client.

The server counts. Our side is the whole rollout stage of a build of several shards: pictures, prompts, encoding,
parsing, the writing of shards. The baseline is the least work with the same SDK: 64 coroutines that repeat one
ready-made request with a picture. Both run in turn on the same machine; the server, in a separate process, is an
embedded stand-in for a model.
"""

import asyncio
import base64
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import openai
from pivot.benchmarks.harness import Row
from pivot.benchmarks.latency_server import MODEL, LatencyServer, latency_server
from pivot.core.images import encode_png
from pivot.core.progress import Reporter
from pivot.datasets.store.config import make_config
from pivot.datasets.store.stages import RolloutStage
from pivot.datasets.store.store import Store
from pivot.environments.sokoban.environment import SokobanEnv
from pivot.flows.engines.local import InProcess
from pivot.flows.pipeline import plan
from pivot.flows.served import roll_out, run_served

SLOTS = 64
LATENCY = 0.2  # seconds
TASKS = 60  # of 8 rollouts and up to 9 turns: 4,000 requests in 4 shards
BARE_REQUESTS = 2000
BUSY_REQUIRED = 0.95
THROUGHPUT_REQUIRED = 0.95
CPU_REQUIRED = 0.003  # seconds per request, at most


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of the part of a run in which all slots are busy."""

    busy: float
    """Mean share of the server's slots that were busy."""
    per_second: float
    """Requests per second."""
    cpu: float
    """Processor seconds of the client per request."""


def rows() -> Iterator[Row]:
    """Return the rows: busy slots, throughput and processor time, ours against the bare loop."""
    with latency_server(SLOTS, LATENCY) as server:
        _ours(server, 4)  # compiles, imports, connects
        bare = [bare_loop(server)]
        ours = [_ours(server, TASKS)]
        bare.append(bare_loop(server))
    busy = mean(run.busy for run in ours), mean(run.busy for run in bare)
    throughput = mean(run.per_second for run in ours), mean(run.per_second for run in bare)
    cpu = mean(run.cpu for run in ours), mean(run.cpu for run in bare)
    where = f"server of {SLOTS} slots, {LATENCY * 1000:.0f} ms per reply; baseline: bare loop of the same SDK"
    yield Row(
        name="slots busy while rolling out",
        ours=busy[0],
        baseline=busy[1],
        ratio=busy[0] / busy[1],
        required=BUSY_REQUIRED,
        passed=busy[0] >= BUSY_REQUIRED,
        note=f"share, counted by the server; {where}",
    )
    yield Row(
        name="requests per second while rolling out",
        ours=throughput[0],
        baseline=throughput[1],
        ratio=throughput[0] / throughput[1],
        required=THROUGHPUT_REQUIRED,
        passed=throughput[0] >= THROUGHPUT_REQUIRED * throughput[1],
        note=f"at most {SLOTS / LATENCY:.0f}",
    )
    yield Row(
        name="processor time of a request",
        ours=cpu[0],
        baseline=cpu[1],
        ratio=cpu[1] / cpu[0],
        required=CPU_REQUIRED,
        passed=cpu[0] <= CPU_REQUIRED,
        note="seconds; with pictures, prompts, encoding, parsing and writing; `required` is the most",
    )


def measured(server: LatencyServer, ends: Sequence[float], cpu: float) -> Measured:
    """Measure a run from the server's counters; ``ends`` are the times at which episodes (or requests) ended."""
    slots = server.slots
    changes = server.changes()
    starts = [when for when, change in changes if change > 0]
    first, last = starts[slots - 1], sorted(ends)[-slots - 1]
    area, busy, before = 0.0, 0, first
    answered = 0
    for when, change in changes:
        if first < when <= last:
            area += busy * (when - before)
            before = when
            answered += change < 0
        busy += change
    area += busy * (last - before) if before < last else 0.0
    return Measured(area / (slots * (last - first)), answered / (last - first), cpu / len(starts))


class _Clock(Reporter):
    """Notes when each episode ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def advance(self, stage: str, amount: int) -> None:
        """Note the time."""
        self.ends += [time.monotonic()] * amount


def _ours(server: LatencyServer, tasks: int) -> Measured:
    config = make_config(
        {
            "environments": {"sokoban": {"tasks": tasks, "settings": {}}},
            "policy": {
                "name": "openai",
                "options": {"model": MODEL, "logprobs": False},
                "service": {"base_url": server.url, "cache": ""},
            },
        }
    )
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), config)
        levels = plan(store.run, Reporter())
        started = time.process_time()
        stages = [RolloutStage(store, shard, tasks) for shard, tasks in levels.items()]
        run_served(roll_out, stages, "student", InProcess(), clock)
        cpu = time.process_time() - started
    if len(clock.ends) <= 2 * SLOTS:
        server.changes()
        return Measured(0.0, 0.0, 0.0)
    return measured(server, clock.ends, cpu)


def bare_loop(server: LatencyServer) -> Measured:
    """Measure the minimum work with the SDK: one coroutine per slot repeats one prepared request with a picture."""
    frame, _ = SokobanEnv().reset(seed=0)
    url = "data:image/png;base64," + base64.b64encode(encode_png(frame)).decode()
    content: list[Any] = [
        {"type": "text", "text": "Push the box onto the target. " * 30},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "Reply with <think>...</think><action>...</action>."},
    ]
    ends: list[float] = []

    async def ask(client: openai.AsyncOpenAI, numbers: Any) -> None:
        for number in numbers:
            answer = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": content}],
                temperature=1.0,
                max_tokens=512,
                seed=number,
            )
            assert answer.choices[0].message.content
            ends.append(time.monotonic())

    async def run() -> None:
        async with openai.AsyncOpenAI(api_key="none", base_url=server.url, max_retries=0) as client:
            numbers = iter(range(BARE_REQUESTS))
            await asyncio.gather(*(ask(client, numbers) for _ in range(server.slots)))

    started = time.process_time()
    asyncio.run(run())
    return measured(server, ends, time.process_time() - started)
