"""Metrics of a flow run, as a text file for Prometheus' node_exporter.

One file per deployment, replaced as a whole, in the folder ``PIVOT_METRICS_DIR``: give node_exporter the same folder as
``--collector.textfile.directory``. Every value is a gauge of the last run, because a file keeps no counters.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..storage import write_file

FOLDER = "PIVOT_METRICS_DIR"
"""Environment variable of a worker: the folder of the files; without it none are written."""


@dataclass(slots=True)
class StageTotals:
    """Sums over the shards of a stage."""

    made: int = 0
    reused: int = 0
    """Shards of an earlier run."""
    seconds: float = 0.0
    """Work on all shards; shards run at the same time, so this is more than the duration."""
    size: int = 0
    """Bytes of the files of the stage, reused shards included."""


@dataclass(slots=True)
class RunMetrics:
    """Metrics of a flow run."""

    deployment: str
    started: float
    """Seconds since 1970."""
    finished: float | None = None
    succeeded: bool = False
    """False while the run is not finished."""
    stages: dict[str, StageTotals] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts by environment and name of ``pipeline.COUNTS``."""

    def text(self) -> str:
        """Return the metrics in Prometheus' text format."""
        run = {"deployment": self.deployment}
        lines: list[str] = []

        def gauge(name: str, meaning: str, samples: Sequence[tuple[dict[str, str], float]]) -> None:
            if samples:
                lines.extend((f"# HELP pivot_{name} {meaning}", f"# TYPE pivot_{name} gauge"))
                lines.extend(f"pivot_{name}{{{_labels(run | labels)}}} {value!r}" for labels, value in samples)

        stages = [({"stage": stage}, totals) for stage, totals in self.stages.items()]
        gauge("run_started_timestamp_seconds", "When the last run began.", [({}, self.started)])
        if self.finished is not None:
            gauge("run_finished_timestamp_seconds", "When the last run ended.", [({}, self.finished)])
            gauge("run_succeeded", "Whether the last run ended without an error.", [({}, int(self.succeeded))])
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
        return "\n".join(lines) + "\n"

    def write(self) -> None:
        """Replace the file of this deployment, if the operator set the folder.

        Raises:
            StoreError: it cannot be written.
        """
        folder = os.environ.get(FOLDER)
        if folder:
            write_file(Path(folder) / f"pivot-{plain_name(self.deployment)}.prom", self.text().encode())


def plain_name(name: str) -> str:
    """Return a name in lower-case letters, digits and dashes, for keys of artifacts and names of files."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _labels(labels: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
