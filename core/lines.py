"""Progress in lines, for logs and pipes, and the names of stages for people."""

import threading
import time
from collections.abc import Callable, Mapping

from .progress import Reporter

SHARE, QUIET, SILENCE = 0.05, 5.0, 60.0
"""Share of a stage and seconds between lines; and seconds without progress before a line."""


class Lines(Reporter):
    """Reports progress in lines, for logs and pipes: one when a stage begins, then one every 5 % or every minute.

    As a context manager it also writes a line per minute without progress, such as while a rollout waits for a model.
    """

    def __init__(
        self, say: Callable[[str], None], names: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ):
        """Write lines with ``say``; ``names`` are the names of stages for people."""
        self._say, self._names, self._clock = say, names, clock
        self._stage, self._total, self._done = "", 0, 0
        self._began = self._spoke = clock()
        self._reported = 0
        self._lock, self._over = threading.Lock(), threading.Event()

    def __enter__(self) -> "Lines":
        threading.Thread(target=self._beat, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def start(self, stage: str, total: int) -> None:
        """Write the line of a new stage."""
        with self._lock:
            self._stage, self._total, self._done, self._reported = stage, total, 0, 0
            self._began = self._spoke = self._clock()
            self._say(f"{self._names.get(stage, stage)}: {total} {unit_of(stage)}")

    def advance(self, stage: str, amount: int) -> None:
        """Add finished units, and write a line when enough are done since the last one."""
        del stage
        with self._lock:
            self._done += amount
            enough = self._done - self._reported >= SHARE * self._total
            if enough and self._done < self._total and self._clock() - self._spoke >= QUIET:
                self._report()

    def finish(self, stage: str) -> None:
        """End the stage."""
        del stage
        with self._lock:
            self._stage = ""

    def tick(self) -> None:
        """Write a line after a minute without one."""
        with self._lock:
            if self._stage and self._clock() - self._spoke >= SILENCE:
                self._report()

    def _beat(self) -> None:
        while not self._over.wait(1.0):
            self.tick()

    def _report(self) -> None:
        now = self._clock()
        took, self._spoke, self._reported = now - self._began, now, self._done
        left = f", about {_minutes(took * (self._total - self._done) / self._done)} left" if self._done else ""
        share = f"{100 * self._done / max(self._total, 1):.0f} %"
        name = self._names.get(self._stage, self._stage)
        done = f"{self._done} of {self._total} {unit_of(self._stage)}"
        self._say(f"{name}: {done} ({share}) after {_minutes(took)}{left}")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


STAGE_NAMES = {
    "plan": "making levels",
    "rollout": "rolling out",
    "label": "labelling",
    "export": "exporting",
    "verify": "verifying",
    "probe": "playing again",
    "verify export": "verifying export",
    "prune": "pruning",
    "answers": "asking",
    "baselines": "fitting baselines",
    "read": "reading",
    "import": "importing",
    "report": "writing pages",
    "merge": "copying rows",
    "merge labels": "copying labels",
}
"""Names of stages for people."""
STAGE_UNITS = {
    "answers": "questions",
    "baselines": "logs",
    "verify export": "shards",
    "prune": "stores",
    "read": "records",
    "bound": "failures",
}
"""Units of the stages that do not count episodes."""


def unit_of(stage: str) -> str:
    """Return the unit of a stage, in the plural."""
    return STAGE_UNITS.get(stage, "episodes")
