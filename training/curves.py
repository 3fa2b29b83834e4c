"""Pictures of the metrics of a run: loss of Stage I, curves of Stage II."""

import io
from collections.abc import Sequence
from typing import Any

from ..core.storage import Storage
from ..models.extras import installed, need
from .checkpoint import LOSS_PICTURE, read_metrics


def smoothed(values: Sequence[float], share: float = 0.05) -> list[float]:
    """Return running means over the last ``share`` of all values, at least one."""
    width = max(1, round(share * len(values)))
    return [sum(values[max(0, end - width) : end]) / min(width, end) for end in range(1, len(values) + 1)]


def draw_losses(storage: Storage) -> None:
    """Draw the losses of a run of Stage I over its epochs so far into its folder, if matplotlib is installed."""
    if not installed("matplotlib"):
        return
    records = read_metrics(storage)
    figure = need("matplotlib.figure", "train").Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    train = [record for record in records if "loss" in record]
    held_out = [record for record in records if "validation_loss" in record]
    if train:
        epochs, losses = [record["epoch"] for record in train], [record["loss"] for record in train]
        if min(losses) > 0 and max(losses) > 10 * min(losses):
            axes.set_yscale("log")
        axes.plot(epochs, losses, color="#9ab8d8", linewidth=0.7, label="each update")
        axes.plot(epochs, smoothed(losses), color="#1f5a99", linewidth=1.6, label="running mean")
    if held_out:
        points = [record["epoch"] for record in held_out], [record["validation_loss"] for record in held_out]
        axes.plot(*points, color="#c0392b", marker="o", label="held-out levels")
    axes.set(xlabel="epoch", ylabel="loss: mean over records, nats per target token", title="Stage I: the Analyzer")
    axes.grid(alpha=0.3)
    if train or held_out:
        axes.legend(frameon=False)
    encoded = io.BytesIO()
    figure.savefig(encoded, format="png", dpi=110)
    storage.write_bytes(LOSS_PICTURE, encoded.getvalue())


CURVES_PICTURE = "curves.png"
SHARE, NATS = "share", "nats per token"
_PANELS = {
    "success": (SHARE, (("success", "training levels, mean of updates"),)),
    "return of the rollouts": ("return per episode", (("return", "training levels"),)),
    "groups": (SHARE, (("zero_variance", "equal returns"), ("all_failed", "all failed"))),
    "loss": (
        "loss",
        (("loss", "total"), ("loss_grpo", "GRPO"), ("loss_kl", "KL, unweighted"), ("loss_opd", "OPD, unweighted")),
    ),
    "gap of Teacher and Student": (
        NATS,
        (
            ("opd_gap_pivot_action", "action at the pivot"),
            ("opd_gap_other_action", "other actions"),
            ("opd_gap_thinking", "thoughts"),
            ("teacher_informed", "informed: others - pivot"),
        ),
    ),
    "the gap finds the pivot": ("area under the ROC curve", (("gap_detects_pivot", "chance is 0.5"),)),
    "Analyzer against the solver": (
        SHARE,
        (("analyzer_step_accuracy", "pivot step"), ("analyzer_mode_accuracy", "mode")),
    ),
    "distance, clipping, entropy": (
        "nats per token; share",
        (("kl", "KL to the start, nats"), ("clip_share", "share of tokens clipped"), ("entropy", "entropy, nats")),
    ),
}
"""Label of the y axis, and columns with their names, by title of the panel."""


def draw_curves(storage: Storage, title: str) -> None:
    """Draw the figures of a run of Stage II so far into its folder: one panel per topic, and seconds by phase.

    Without matplotlib, nothing is drawn.
    """
    if not installed("matplotlib"):
        return
    encoded = io.BytesIO()
    curves_figure(read_metrics(storage), title).savefig(encoded, format="png", dpi=100)
    storage.write_bytes(CURVES_PICTURE, encoded.getvalue())


def curves_figure(lines: Sequence[dict[str, Any]], title: str) -> Any:
    """Return the figure of the metrics of a run of Stage II."""
    records = [line for line in lines if "success" in line]
    figure = need("matplotlib.figure", "train").Figure(figsize=(14, 11), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(3, 3).flatten()
    for axes, (name, (unit, series)) in zip(panels, _PANELS.items(), strict=False):
        axes.set(title=name, xlabel="update", ylabel=unit)
        axes.xaxis.set_major_locator(need("matplotlib.ticker", "train").MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        for column, label in series:
            points = [(record["step"], record[column]) for record in records if record.get(column) is not None]
            if points:
                steps, values = zip(*points, strict=True)
                (line,) = axes.plot(steps, values, linewidth=0.7, alpha=0.4)
                axes.plot(steps, smoothed(values), linewidth=1.6, color=line.get_color(), label=label)
    held_out = [(each["step"], each["validation"]["success"]) for each in lines if "validation" in each]
    if held_out:
        spread = [[s["value"] - s["low"] for _, s in held_out], [s["high"] - s["value"] for _, s in held_out]]
        points = [step for step, _ in held_out], [s["value"] for _, s in held_out]
        panels[0].errorbar(*points, yerr=spread, capsize=3, color="#c0392b", marker="o", label="held-out levels")
    if records:
        phases = list(records[-1]["seconds"])
        values = [[record["seconds"].get(phase, 0.0) for record in records] for phase in phases]
        panels[-1].stackplot([record["step"] for record in records], *values, labels=phases, alpha=0.8)
    panels[-1].set(title="seconds by phase", xlabel="update", ylabel="seconds per update")
    for axes in panels:
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
        else:
            axes.text(0.5, 0.5, "no data in this arm", ha="center", transform=axes.transAxes, color="grey")
        if axes.get_ylabel() == SHARE or axes.get_ylabel().startswith("area"):
            axes.set_ylim(-0.03, 1.03)
    return figure
