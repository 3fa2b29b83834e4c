"""An Analyzer on a server of 32 slots and 100 ms per reply: share of busy slots while it reads a dataset.

The server counts, as in ``bench_serving``. Our side is the Analyzer on a dataset: records with their
collages from Parquet, requests, replies with the log-probabilities of every token, checked and parsed. The baseline is
the bare loop of the same SDK with one ready-made request. The server is an embedded stand-in for a model.
"""

import re
import tempfile
import time
from collections.abc import Iterator
from itertools import islice

import pivot
from pivot.benchmarks.bench_serving import Measured, bare_loop, measured
from pivot.benchmarks.harness import Row
from pivot.benchmarks.latency_server import MODEL, LatencyServer, latency_server
from pivot.labeling.target import build_target
from pivot.models.base import ChatModel
from pivot.models.openai.backend import OpenAIBackend, OpenAIOptions
from pivot.models.service import Service
from pivot.training.analyzer import ROLE, Analyzer, AnalyzerCase, Reading, ask_all, case_of_record, reading_of
from pivot.training.records import SHOWN_COLUMNS, Records, open_records

SLOTS = 32
LATENCY = 0.1  # seconds
REQUESTS = 3000
TASKS = 24  # of eight rollouts, in the larger split; read repeatedly
BUSY_REQUIRED = 0.9
CPU_REQUIRED = 0.003  # seconds per request, at most

_TEXTS = [build_target(step, "timeout", f"At step {step}, choose up.") for step in range(4)]
ANSWERS = [(text, re.findall(r"\w|\W+", text)) for text in _TEXTS]


def rows() -> Iterator[Row]:
    """Return the rows: busy slots and processor time, ours against the bare loop."""
    with tempfile.TemporaryDirectory() as folder, latency_server(SLOTS, LATENCY, ANSWERS) as server:
        config = {"environments": {"sokoban": {"tasks": TASKS, "settings": {}}}}
        pivot.build(config, folder)
        records = open_records(folder)
        _ours(server, records, 100)  # imports, connects
        bare = bare_loop(server)
        ours = _ours(server, records, REQUESTS)
    where = f"server of {SLOTS} slots, {LATENCY * 1000:.0f} ms per reply; baseline: bare loop of the same SDK"
    yield Row(
        name="slots busy while an Analyzer reads",
        ours=ours.busy,
        baseline=bare.busy,
        ratio=ours.busy / bare.busy,
        required=BUSY_REQUIRED,
        passed=ours.busy >= BUSY_REQUIRED,
        note=f"share, counted by the server; {where}",
    )
    yield Row(
        name="processor time of a reading",
        ours=ours.cpu,
        baseline=bare.cpu,
        ratio=bare.cpu / ours.cpu,
        required=CPU_REQUIRED,
        passed=ours.cpu <= CPU_REQUIRED,
        note="seconds; with reading the collage from Parquet; `required` is the most",
    )


def _ours(server: LatencyServer, records: Records, requests: int) -> Measured:
    backend = OpenAIBackend(OpenAIOptions(model=MODEL), Service(base_url=server.url, cache=""), ROLE)

    def repeated() -> Iterator[AnalyzerCase]:
        while True:
            yield from map(case_of_record, records.rows("train", SHOWN_COLUMNS))

    ends: list[float] = []
    started = time.process_time()
    analyzer = Analyzer(backend)

    async def ask(model: ChatModel, case: AnalyzerCase) -> Reading:
        return reading_of(await model.answer(analyzer.request(case)), case)

    ask_all(backend, islice(repeated(), requests), ask, lambda _: ends.append(time.monotonic()))
    cpu = time.process_time() - started
    if requests <= 2 * SLOTS + 100:
        server.changes()
        return Measured(0.0, 0.0, 0.0)
    return measured(server, ends, cpu)
