"""Metrics of a flow run, as a text file for Prometheus' node_exporter.

One file per deployment, replaced as a whole, in the folder ``PIVOT_METRICS_DIR``: give node_exporter the same folder as
``--collector.textfile.directory``. Every value is a gauge of the last run, because a file keeps no counters.
"""

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import StoreError
from ..core.storage import Address, write_file

FOLDER = "PIVOT_METRICS_DIR"
"""Environment variable of a worker: the folder of the files; without it none are written."""
PREFIX = "pivot_"
"""Beginning of the name of every metric."""
HEARTBEAT_SECONDS = 60.0
"""Seconds between two writes of the file while a run is at work; alerts.yaml waits for ten times as long."""


@dataclass(slots=True)
class StageTotals:
    """Sums over the shards of a stage."""

    made: int = 0
    reused: int = 0
    """Shards of an earlier run."""
    seconds: float = 0.0
    """Seconds of work on all shards; shards run in parallel, so this exceeds the duration."""
    size: int = 0
    """Bytes of the files of the stage, reused shards included."""


@dataclass(slots=True)
class RunMetrics:
    """Metrics of a flow run.

    Every gauge always exists: what this run has not measured yet keeps the value of the run before it, which
    :meth:`follow` reads. A run that was killed leaves ``run_active`` at 1 with an old ``run_heartbeat``.
    """

    deployment: str
    started: float
    """Seconds since 1970."""
    finished: float | None = None
    succeeded: bool = False
    """False while the run is not finished."""
    stages: dict[str, StageTotals] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts by environment and name of ``pipeline.COUNTS``."""
    usage: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Tokens (``prompt``, ``completion``) and ``cost`` of the requests for the last store, by role."""
    store: Address | None = None
    """The store that the run writes."""
    store_bytes: int | None = None
    """Length of all files of the last store."""
    heartbeat: float = 0.0
    """Last time at which the run was at work, in seconds since 1970."""
    before: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Samples of the file of an earlier run, by name of the gauge."""
    only_deployed: bool = False
    """Whether this belongs to a deployment that has not had a run."""

    def follow(self, *, retry: bool = False) -> None:
        """Keep the values of the run before this one; a run without an end has failed, unless this is its retry.

        Raises:
            StoreError: the file cannot be read.
        """
        path = self._path()
        if path is None or not path.exists():
            return
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise StoreError(f"cannot read {path} ({error}); remove it, and the next run writes it again") from error
        samples: dict[str, list[str]] = {}
        for line in lines:
            if line.startswith(PREFIX):
                samples.setdefault(line.removeprefix(PREFIX).partition("{")[0], []).append(line)
        if not retry and any(line.endswith(" 1") for line in samples.get("run_active", ())):
            name = f"{PREFIX}run_succeeded"
            samples["run_succeeded"] = [f"{name}{{{_labels({'deployment': self.deployment})}}} 0"]
        self.before = samples

    def text(self) -> str:
        """Return the metrics in Prometheus' text format."""
        run = {"deployment": self.deployment}
        lines: list[str] = []

        def gauge(name: str, meaning: str, samples: Sequence[tuple[dict[str, str], float]], default: str = "") -> None:
            written = [f"{PREFIX}{name}{{{_labels(run | labels)}}} {value!r}" for labels, value in samples]
            unknown = [f"{PREFIX}{name}{{{_labels(run)}}} {default}"] if default else []
            lines.extend((f"# HELP {PREFIX}{name} {meaning}", f"# TYPE {PREFIX}{name} gauge"))
            lines.extend(written or self.before.get(name) or unknown)

        stages = [({"stage": stage}, totals) for stage, totals in list(self.stages.items())]
        ended = self.finished is not None
        end = self.finished or 0.0
        began = "When the last run began; before the first one, when it was deployed."
        gauge("run_started_timestamp_seconds", began, [({}, self.started)])
        gauge("run_active", "Whether a run is at work, or was killed.", [({}, int(not (ended or self.only_deployed)))])
        beat = max(self.started, self.heartbeat, end)
        gauge("run_heartbeat_timestamp_seconds", "When the last run was last at work.", [({}, beat)])
        gauge("run_finished_timestamp_seconds", "When a run last ended; 0: never.", [({}, end)] if ended else [], "0")
        success = [({}, int(self.succeeded))] if ended else []
        gauge("run_succeeded", "Whether the last run that ended had no error; NaN: none ended.", success, "NaN")
        gauge("stage_shards_made", "Shards that the last run made.", [(at, each.made) for at, each in stages])
        gauge("stage_shards_reused", "Shards of an earlier run.", [(at, each.reused) for at, each in stages])
        gauge("stage_seconds", "Work on all shards of a stage, added up.", [(at, each.seconds) for at, each in stages])
        gauge("stage_bytes", "Files of all shards of a stage.", [(at, each.size) for at, each in stages])
        counted = [
            ({"environment": name, "what": what}, value)
            for name, counts in self.counts.items()
            for what, value in counts.items()
        ]
        gauge("store_count", "Episodes, labels and training rows of the last store.", counted)
        shares = [
            ({"environment": name}, counts.get("rejected", 0) / max(counts.get("labels", 0), 1))
            for name, counts in self.counts.items()
        ]
        gauge("store_reject_share", "Rejected labels of the last store, of all its labels.", shares)
        tokens = [
            ({"role": role, "kind": kind}, used[kind])
            for role, used in self.usage.items()
            for kind in ("prompt", "completion")
        ]
        gauge("store_tokens", "Tokens of the requests for the last store.", tokens, "0")
        cost = [({"role": role}, used["cost"]) for role, used in self.usage.items()]
        gauge("store_cost", "Cost of the requests for the last store, in the server's currency.", cost, "0")
        size = [] if self.store_bytes is None else [({}, self.store_bytes)]
        gauge("store_bytes", "Files of the last store; NaN: none is finished.", size, "NaN")
        gauge("disk_free_bytes", "Free disk of the folder of stores; NaN: unknown.", self._free(), "NaN")
        return "\n".join(lines) + "\n"

    def _free(self) -> list[tuple[dict[str, str], float]]:
        """Return the free bytes of the disk of a local store."""
        if not isinstance(self.store, Path):
            return []
        place = next((each for each in (self.store, *self.store.absolute().parents) if each.exists()), Path("/"))
        with suppress(OSError):
            return [({}, shutil.disk_usage(place).free)]
        return []

    def write(self) -> None:
        """Replace the file of this deployment, if the operator set the folder.

        Raises:
            StoreError: it cannot be written.
        """
        path = self._path()
        if path is not None:
            write_file(path, self.text().encode(), mode=0o644)  # node_exporter reads it as another user

    def _path(self) -> Path | None:
        folder = os.environ.get(FOLDER)
        return Path(folder) / f"pivot-{plain_name(self.deployment)}.prom" if folder else None


def expect_runs(deployments: Sequence[str]) -> None:
    """Write a file for each deployment without one, so that a deployment that never starts raises an alarm, too.

    Raises:
        StoreError: it cannot be written.
    """
    for name in deployments:
        metrics = RunMetrics(name, time.time(), only_deployed=True)
        path = metrics._path()
        if path is not None and not path.exists():
            metrics.write()


def plain_name(name: str) -> str:
    """Return a name in lower-case letters, digits and dashes, for keys of artifacts and names of files."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _labels(labels: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
