"""Comparison of two runs of Stage II: the figures and seconds of their updates."""

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
    "analyzer_guidance_prose",
    "analyzer_guidance_true",
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
    """One figure of both runs; None if a run has no value."""

    measure: str
    old: float | None
    new: float | None

    @property
    def difference(self) -> float | None:
        """The new value minus the old one."""
        return None if self.old is None or self.new is None else self.new - self.old


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
        if config[name] != other[name]:
            raise TrainingError(
                f"{old} plays {name} {config[name]}, {new} plays {other[name]}; expected the same environment and "
                "settings; compare runs on one task"
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


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return sum(values) / len(values) if values else None


def _held_out(lines: Sequence[Mapping[str, Any]]) -> float | None:
    measured = [line["validation"]["success"]["value"] for line in lines if "validation" in line]
    return measured[-1] if measured else None


def _seconds(lines: Sequence[Mapping[str, Any]], phase: str | None = None) -> float:
    """Return the mean seconds per update, of one phase or of all."""
    seconds = [sum(line["seconds"].values()) if phase is None else line["seconds"].get(phase, 0.0) for line in lines]
    return sum(seconds) / len(seconds)
