"""Comparison of two runs of Stage II: the figures and seconds of their updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import TrainingError
from ...core.intervals import LEAST, mean_of
from ...core.storage import Address, open_storage
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
    "analyzer_guidance_prose",
    "analyzer_guidance_true",
    "gap_detects_pivot",
    "teacher_informed",
    "kl",
    "clip_share",
    "grad_norm",
    "generator_difference",
)
LAST = 10
"""Updates over which figures are averaged."""


Bounds = tuple[float, float]
"""Bounds of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One figure of both runs; None if a run has no value.

    Bounds of means are Student's over updates, which are paired by their number for the difference; those of
    held-out success are the stored ones, over levels. None where there are fewer than three values.
    """

    measure: str
    old: float | None
    new: float | None
    old_bounds: Bounds | None = None
    new_bounds: Bounds | None = None
    difference_bounds: Bounds | None = None

    @property
    def difference(self) -> float | None:
        """The new value minus the old one."""
        return None if self.old is None or self.new is None else self.new - self.old

    def row(self) -> dict[str, Any]:
        """Return the figure as flat data: each number with its ``low`` and ``high``."""
        flat: dict[str, Any] = {"measure": self.measure}
        for name in ("old", "new", "difference"):
            low, high = getattr(self, f"{name}_bounds") or (None, None)
            flat |= {name: getattr(self, name), f"{name}_low": low, f"{name}_high": high}
        return flat


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Figures of two runs on the same task."""

    updates: int
    """Last update that both runs have made."""
    settings: Mapping[str, tuple[Any, Any]]
    """Settings that differ, with the values of both runs."""
    rows: Sequence[RunRow]
    """Means over the last updates up to :attr:`updates`; then held-out success; then seconds per update, by phase."""


def is_policy_run(folder: Address) -> bool:
    """Whether a folder is a run of Stage II."""
    storage = open_storage(folder)
    return storage.stat(RUN) is not None and storage.read_json(RUN).get("stage") == "rl"


def compare_runs(old: Address, new: Address) -> RunComparison:
    """Compare two runs over the updates that both have made.

    Raises:
        TrainingError: a folder is not a run of Stage II or has no update, or the environments differ.
    """
    (config, lines), (other, others) = _read(old), _read(new)
    for name in ("env", "settings"):
        if (before := config.get(name) or {}) != (after := other.get(name) or {}):
            raise TrainingError(
                f"{old} plays {name} {before}, {new} plays {after}; expected the same environment and settings; "
                "compare runs on one task"
            )
    updates = min(lines[-1]["step"], others[-1]["step"])
    sides = [[line for line in each if line["step"] <= updates] for each in (lines, others)]
    recent = [[line for line in each if line["step"] > max(0, updates - LAST)] for each in sides]
    first, second = recent
    rows = [_row(name, _series(first, name), _series(second, name)) for name in MEASURES]
    rows.append(_held_out_row(_held_out(sides[0]), _held_out(sides[1])))
    phases = dict.fromkeys(name for each in recent for line in each for name in line["seconds"])
    for phase in (*phases, None):
        name = "seconds" if phase is None else f"seconds: {phase}"
        before, after = ([(line["step"], _seconds(line, phase)) for line in each] for each in (first, second))
        rows.append(_row(name, before, after))
    differing = {name: (config.get(name), other.get(name)) for name in sorted(config.keys() | other.keys())}
    return RunComparison(
        updates,
        {name: pair for name, pair in differing.items() if pair[0] != pair[1]},
        [row for row in rows if row.old is not None or row.new is not None],
    )


def _read(folder: Address) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the config and the lines of updates."""
    if not is_policy_run(folder):
        raise TrainingError(f"{folder} is not a run of pivot train rl, expected its folder, as in --out")
    storage = open_storage(folder)
    lines = [line for line in read_metrics(storage) if line["step"] > 0]
    if not lines:
        raise TrainingError(
            f"{folder} has made no update yet, expected at least one; wait for it, or resume the run with --resume"
        )
    return storage.read_json(RUN)["config"], lines


Series = Sequence[tuple[int, float | None]]
"""Values of a figure, each with the number of its update."""


def _series(lines: Sequence[Mapping[str, Any]], name: str) -> Series:
    return [(line["step"], line.get(name)) for line in lines]


def _row(name: str, old: Series, new: Series) -> RunRow:
    """Return the means of a figure over some updates of both runs."""
    before, after = ({step: value for step, value in each if value is not None} for each in (old, new))
    both = [after[step] - before[step] for step in before if step in after]
    old_mean, new_mean = (sum(each.values()) / len(each) if each else None for each in (before, after))
    paired = _bounds(both) if len(both) == len(before) == len(after) else None
    return RunRow(name, old_mean, new_mean, _bounds(list(before.values())), _bounds(list(after.values())), paired)


def _bounds(values: Sequence[float]) -> Bounds | None:
    if len(values) < LEAST:
        return None
    interval = mean_of(np.asarray(values, float), np.ones(len(values))).amount()
    return interval.low, interval.high


def _held_out(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, float | None]:
    """Return the last held-out success up to the compared update; empty if there is none."""
    measured = [line["validation"]["success"] for line in lines if "validation" in line]
    return measured[-1] if measured else {}


def _held_out_row(old: Mapping[str, float | None], new: Mapping[str, float | None]) -> RunRow:
    def bounds(measured: Mapping[str, float | None]) -> Bounds | None:
        low, high = measured.get("low"), measured.get("high")
        return None if low is None or high is None else (low, high)

    return RunRow("success, held-out levels", old.get("value"), new.get("value"), bounds(old), bounds(new))


def _seconds(line: Mapping[str, Any], phase: str | None) -> float:
    """Return the seconds of an update, of one phase or of all."""
    return sum(line["seconds"].values()) if phase is None else line["seconds"].get(phase, 0.0)
