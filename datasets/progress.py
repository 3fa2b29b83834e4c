"""How long work reports how far it has come."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable


class Reporter(Protocol):
    """Is told how far the work has come."""

    def start(self, stage: str, total: int) -> None:
        """A stage of ``total`` episodes begins."""
        ...

    def advance(self, stage: str, amount: int) -> None:
        """``amount`` episodes more are done."""
        ...

    def finish(self, stage: str) -> None:
        """The stage is over."""
        ...


@runtime_checkable
class ShardReporter(Reporter, Protocol):
    """Is also told of every shard."""

    def stored(self, stage: str, shard: str, seconds: float, size: int, *, reused: bool) -> None:
        """A stage of a shard is on disk: ``size`` bytes after ``seconds``; ``reused`` where it was there already."""
        ...


class Silent:
    """Reports nothing."""

    def start(self, stage: str, total: int) -> None:
        """Say nothing."""

    def advance(self, stage: str, amount: int) -> None:
        """Say nothing."""

    def finish(self, stage: str) -> None:
        """Say nothing."""


SHARE, QUIET, SILENCE = 0.05, 5.0, 60.0
"""A line every 5 %, but not within five seconds of the last one; and one a minute, whatever is done by then."""


class Lines:
    """Reports in lines, for logs and pipes: one as a stage begins, then one every 5 % or minute.

    As a context it also speaks while nobody reports anything: a rollout that waits for a model, one large shard.
    """

    def __init__(
        self, say: Callable[[str], None], names: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ):
        """Tell ``say`` what happens; ``names`` are what stages are called."""
        self._say, self._names, self._clock = say, names, clock
        self._stage, self._total, self._done = "", 0, 0
        self._began = self._spoke = clock()
        self._told = 0
        self._lock, self._over = threading.Lock(), threading.Event()

    def __enter__(self) -> "Lines":
        threading.Thread(target=self._beat, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def start(self, stage: str, total: int) -> None:
        """Say that a stage begins."""
        with self._lock:
            self._stage, self._total, self._done, self._told = stage, total, 0, 0
            self._began = self._spoke = self._clock()
            self._say(f"{self._names.get(stage, stage)}: {total} episodes")

    def advance(self, stage: str, amount: int) -> None:
        """Count, and say so when enough is done since it was said last."""
        del stage
        with self._lock:
            self._done += amount
            enough = self._done - self._told >= SHARE * self._total
            if enough and self._done < self._total and self._clock() - self._spoke >= QUIET:
                self._tell()

    def finish(self, stage: str) -> None:
        """End the stage; the next one's line tells that this one is over."""
        del stage
        with self._lock:
            self._stage = ""

    def tick(self) -> None:
        """Say how far it is when nothing was said for a minute."""
        with self._lock:
            if self._stage and self._clock() - self._spoke >= SILENCE:
                self._tell()

    def _beat(self) -> None:
        while not self._over.wait(1.0):
            self.tick()

    def _tell(self) -> None:
        now = self._clock()
        took, self._spoke, self._told = now - self._began, now, self._done
        left = f", about {_minutes(took * (self._total - self._done) / self._done)} left" if self._done else ""
        share = f"{100 * self._done / max(self._total, 1):.0f} %"
        name = self._names.get(self._stage, self._stage)
        self._say(f"{name}: {self._done} of {self._total} episodes ({share}) after {_minutes(took)}{left}")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


STAGE_NAMES = {
    "plan": "making levels",
    "rollout": "rolling out",
    "label": "labelling",
    "export": "exporting",
    "verify": "verifying",
    "probe": "playing again",
    "report": "writing pages",
    "migrate": "playing again",
    "migrate labels": "labelling",
    "compact": "copying rows",
    "compact labels": "copying labels",
}
"""What stages are called before people."""
