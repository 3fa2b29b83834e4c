"""Two runs of Stage II held against each other: how their updates went, and what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TrainingError
from ...storage import Address, open_storage
from ..checkpoint import RUN, read_metrics

MEASURES = (
    "success",
    "return",
    "zero_variance",
    "all_failed",
    "format_broken",
    "replies_cut",
    "opd_gap",
    "opd_gate",
    "opd_active",
    "analyzer_step_accuracy",
    "analyzer_mode_accuracy",
    "analyzer_unreadable",
    "gap_detects_pivot",
    "kl",
    "clip_share",
    "grad_norm",
    "generator_difference",
)
LAST = 10
"""Updates over which figures are averaged."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One figure of both runs; None where a run has none."""

    measure: str
    old: float | None
    new: float | None

    @property
    def difference(self) -> float | None:
        """New less old."""
        return None if self.old is None or self.new is None else self.new - self.old


@dataclass(frozen=True, slots=True)
class RunComparison:
    """What two runs made of the same task."""

    updates: int
    """The last update that both have made."""
    settings: Mapping[str, tuple[Any, Any]]
    """Settings in which they differ, of the old one and the new one."""
    rows: Sequence[RunRow]
    """Means over the last updates up to :attr:`updates`; then held-out success; then seconds an update, by phase."""


def is_policy_run(folder: Address) -> bool:
    """Whether a folder is that of a run of Stage II."""
    storage = open_storage(folder)
    return storage.stat(RUN) is not None and storage.read_json(RUN).get("stage") == "rl"


def compare_runs(old: Address, new: Address) -> RunComparison:
    """Compare two runs over the updates that both have made.

    Raises:
        TrainingError: one is no run of Stage II, has made no update, or they play different environments.
    """
    (config, lines), (other, others) = _read(old), _read(new)
    for name in ("env", "settings"):
        if config[name] != other[name]:
            raise TrainingError(
                f"{old} plays {name} {config[name]}, {new} plays {other[name]}; expected the same task: what they "
                "reach on different ones says nothing about the runs"
            )
    updates = min(lines[-1]["step"], others[-1]["step"])
    sides = [[line for line in each if line["step"] <= updates] for each in (lines, others)]
    recent = [[line for line in each if line["step"] > max(0, updates - LAST)] for each in sides]
    rows = [RunRow(name, *(_mean(each, name) for each in recent)) for name in MEASURES]
    rows.append(RunRow("success, held-out levels", *map(_held_out, sides)))
    phases = dict.fromkeys(name for each in recent for line in each for name in line["seconds"])
    rows += [RunRow(f"seconds: {name}", *(_seconds(each, name) for each in recent)) for name in phases]
    rows.append(RunRow("seconds", *(_seconds(each) for each in recent)))
    differing = {name: (config.get(name), other.get(name)) for name in sorted(config.keys() | other.keys())}
    return RunComparison(
        updates,
        {name: pair for name, pair in differing.items() if pair[0] != pair[1]},
        [row for row in rows if row.old is not None or row.new is not None],
    )


def _read(folder: Address) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return settings and the lines of updates."""
    if not is_policy_run(folder):
        raise TrainingError(f"{folder} is no run of pivot train rl, expected its folder; name the one of --out")
    storage = open_storage(folder)
    lines = [line for line in read_metrics(storage) if line["step"] > 0]
    if not lines:
        raise TrainingError(f"{folder} has made no update yet, expected one at least; wait for it, or --resume it")
    return storage.read_json(RUN)["config"], lines


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return sum(values) / len(values) if values else None


def _held_out(lines: Sequence[Mapping[str, Any]]) -> float | None:
    measured = [line["validation"]["success"]["value"] for line in lines if "validation" in line]
    return measured[-1] if measured else None


def _seconds(lines: Sequence[Mapping[str, Any]], phase: str | None = None) -> float:
    """Return the mean seconds of an update, of one phase or all."""
    seconds = [sum(line["seconds"].values()) if phase is None else line["seconds"].get(phase, 0.0) for line in lines]
    return sum(seconds) / len(seconds)
