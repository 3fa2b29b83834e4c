"""Progress reports of a flow run: its log and its metrics.

The log gets a line per shard with its seconds and bytes, and a line every 5 % or minute; Prometheus gets a file if the
operator set its folder.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from prefect import get_run_logger
from prefect.context import FlowRunContext
from prefect.runtime import deployment, flow_run

from ..core.errors import StoreError
from ..core.lines import STAGE_NAMES, Lines
from ..core.progress import Reporter
from .artifacts import Artifacts, Log
from .metrics import HEARTBEAT_SECONDS, RunMetrics, StageTotals


class Watch(Lines):
    """Reports of one flow run."""

    def __init__(
        self,
        log: Log,
        artifacts: Artifacts,
        metrics: RunMetrics,
        beside: Reporter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write lines to ``log``, and pass every report on to ``beside``."""
        super().__init__(lambda line: log.info("%s", line), STAGE_NAMES, clock)
        self.log, self.artifacts, self.metrics = log, artifacts, metrics
        self._beside = beside or Reporter()
        self._writing = threading.Lock()

    def start(self, stage: str, total: int) -> None:
        """Begin a stage."""
        self._beside.start(stage, total)
        super().start(stage, total)

    def advance(self, stage: str, amount: int) -> None:
        """Add finished episodes."""
        self._beside.advance(stage, amount)
        super().advance(stage, amount)

    def finish(self, stage: str) -> None:
        """End a stage, and write the metrics."""
        self._beside.finish(stage)
        super().finish(stage)
        self.write_metrics()

    def stored(self, stage: str, shard: str, seconds: float, size: int, *, reused: bool) -> None:
        """Log a stored shard, and add it to the metrics."""
        totals = self.metrics.stages.setdefault(stage, StageTotals())
        totals.size += size
        if reused:
            totals.reused += 1
            self.log.info("%s %s: kept, %d bytes", stage, shard, size)
            return
        totals.made += 1
        totals.seconds += seconds
        self.log.info("%s %s: %.2f s, %d bytes", stage, shard, seconds, size)

    def tick(self) -> None:
        """Log the progress of a long stage; called once a second by another thread."""
        super().tick()
        self.beat(time.time())

    def beat(self, now: float) -> None:
        """Write the metrics if the last heartbeat is a minute old; ``now`` is in seconds since 1970."""
        if now - self.metrics.heartbeat >= HEARTBEAT_SECONDS:
            self.metrics.heartbeat = now
            self.write_metrics()

    def write_metrics(self) -> None:
        """Write the metrics for Prometheus; a folder that cannot be written is a warning."""
        try:
            with self._writing:
                self.metrics.write()
        except StoreError as error:
            self.log.warning("%s", error)


@contextlib.contextmanager
def watched(name: str, beside: Reporter | None = None) -> Iterator[Watch]:
    """Report the current flow run; ``name`` names it if it has no deployment.

    The metrics show a run of a deployment as ended after its last attempt only: an error that is tried again is no
    alarm, and an interrupted run is silent like one that was killed.
    """
    log = get_run_logger()
    name = deployment.name or name
    artifacts = Artifacts(log, flow_run.id, name)
    watch = Watch(log, artifacts, RunMetrics(name, time.time()), beside)
    try:
        watch.metrics.follow(retry=flow_run.run_count > 1)
    except StoreError as error:
        log.warning("%s", error)
    watch.write_metrics()  # before any work, so that a killed run has left all series
    is_over = True
    try:
        with watch:
            yield watch
        watch.metrics.succeeded = True
    except BaseException as error:
        is_over = deployment.id is None or (isinstance(error, Exception) and not _is_tried_again())
        raise
    finally:
        if is_over:
            watch.metrics.finished = time.time()
        else:
            watch.metrics.heartbeat = time.time()
        watch.write_metrics()


def _is_tried_again() -> bool:
    """Whether Prefect tries the current flow run once more after an error."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return False
    return context.flow_run.run_count <= (context.flow_run.empirical_policy.retries or 0)
