"""The loss of a run as a picture."""

import io
import json
from collections.abc import Sequence
from typing import Any

from ..models.extras import need
from ..storage import Storage
from .checkpoint import LOSS_PICTURE, METRICS


def read_metrics(storage: Storage) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl``; one that a kill tore at the end is left out."""
    if storage.stat(METRICS) is None:
        return []
    lines = storage.read_bytes(METRICS).decode(errors="replace").splitlines()
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def smoothed(values: Sequence[float], share: float = 0.05) -> list[float]:
    """Return running means over the last ``share`` of all values, at least one."""
    width = max(1, round(share * len(values)))
    return [sum(values[max(0, end - width) : end]) / min(width, end) for end in range(1, len(values) + 1)]


def loss_picture(records: Sequence[dict[str, Any]], title: str) -> bytes:
    """Return the losses of a run over its epochs as a PNG."""
    figure = need("matplotlib.figure", "train").Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    train = [record for record in records if "loss" in record]
    held_out = [record for record in records if "validation_loss" in record]
    if train:
        epochs, losses = [record["epoch"] for record in train], [record["loss"] for record in train]
        axes.plot(epochs, losses, color="#9ab8d8", linewidth=0.7, label="every update")
        axes.plot(epochs, smoothed(losses), color="#1f5a99", linewidth=1.6, label="running mean")
    if held_out:
        points = [record["epoch"] for record in held_out], [record["validation_loss"] for record in held_out]
        axes.plot(*points, color="#c0392b", marker="o", label="held-out levels")
    if train and min(losses) > 0:
        axes.set_yscale("log")
    axes.set(xlabel="epoch", ylabel="loss: mean over records, nats a target token", title=title)
    axes.grid(alpha=0.3)
    if train or held_out:
        axes.legend(frameon=False)
    encoded = io.BytesIO()
    figure.savefig(encoded, format="png", dpi=110)
    return encoded.getvalue()


def draw_losses(storage: Storage) -> None:
    """Draw the run's losses so far into its folder."""
    storage.write_bytes(LOSS_PICTURE, loss_picture(read_metrics(storage), "Stage I: the Analyzer"))
