"""What a flow run did, as a text file that Prometheus' node_exporter picks up.

One file a deployment, replaced whole, in the folder that ``PIVOT_METRICS_DIR`` names: give node_exporter the same one
as ``--collector.textfile.directory``. Every value is a gauge of the last run: a file has no memory from which a counter
could go on.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..storage import write_file

FOLDER = "PIVOT_METRICS_DIR"
"""Environment variable of a worker: where the files go; without it there are none."""


@dataclass(slots=True)
class StageTotals:
    """What the shards of a stage took in all."""

    made: int = 0
    reused: int = 0
    """Shards that an earlier run had left."""
    seconds: float = 0.0
    """Of work, added up over the shards: many of them are worked on at the same time."""
    size: int = 0
    """Bytes of what the stage left, reused shards included."""


@dataclass(slots=True)
class RunMetrics:
    """What is told of a flow run."""

    deployment: str
    started: float
    """Seconds since 1970."""
    finished: float | None = None
    succeeded: bool = False
    """Only of a run that is finished."""
    stages: dict[str, StageTotals] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By environment and name of ``pipeline.COUNTS``."""

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
        gauge("stage_shards_reused", "Shards that were there.", [(at, each.reused) for at, each in stages])
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
        """Replace the file of this deployment, where the operator wants one.

        Raises:
            StoreError: it cannot be written.
        """
        folder = os.environ.get(FOLDER)
        if folder:
            write_file(Path(folder) / f"pivot-{plain_name(self.deployment)}.prom", self.text().encode())


def plain_name(name: str) -> str:
    """Return a name as keys of artifacts and names of files have it: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _labels(labels: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
