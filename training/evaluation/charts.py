"""Charts of an evaluation: accuracy next to the baselines, confusion, reliability.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish, and a map of even brightness; every
number that a colour represents is written out, too.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from ...models.extras import need
from .metrics import UNREAD

BLUE, ORANGE, GREY, BLACK = "#0072B2", "#D55E00", "#9A9A9A", "#222222"

Figure = Any
"""A figure of matplotlib; the type checker also runs where it is not installed."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; width and height are inches."""
    return need("matplotlib.figure", "train").Figure(figsize=(width, height), layout="constrained")


MOST_ACROSS = 3
"""Largest number of panels in a row; more would make the text too small at the width of a page."""


def _panels(count: int, width: float, height: float) -> tuple[Figure, list[Any]]:
    """Return a figure and its panels; ``width`` and ``height`` are inches per panel."""
    across = min(count, MOST_ACROSS)
    down = -(-count // across)
    figure = new_figure(across * width, 0.4 + down * height)
    axes = list(figure.subplots(down, across, squeeze=False).ravel())
    for empty in axes[count:]:
        empty.set_axis_off()
    return figure, axes[:count]


def png_of(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    encoded = io.BytesIO()
    figure.savefig(encoded, format="png", dpi=110, facecolor="white")
    return encoded.getvalue()


def accuracy_chart(title: str, tables: Mapping[str, Mapping[str, Mapping[str, float]]], ours: Sequence[str]) -> bytes:
    """Draw the share of exact pivots of the Analyzer and the baselines, one panel per environment, with intervals.

    Args:
        title: title of the figure.
        tables: ``value``, ``low`` and ``high``, 0 to 1, by environment and name.
        ours: names of Analyzers; the others are baselines.
    """
    tallest = max(len(rows) for rows in tables.values())
    figure, panels = _panels(len(tables), 4.6, 0.9 + 0.3 * tallest)
    for axes, (env, rows) in zip(panels, tables.items(), strict=True):
        names = list(rows)[::-1]
        values = [100 * rows[name]["value"] for name in names]
        below = [100 * (rows[name]["value"] - rows[name]["low"]) for name in names]
        above = [100 * (rows[name]["high"] - rows[name]["value"]) for name in names]
        colours = [ORANGE if name in ours else BLUE for name in names]
        hatches = ["//" if name in ours else "" for name in names]
        axes.barh(names, values, color=colours, hatch=hatches, edgecolor="white", height=0.72)
        axes.errorbar(
            values, range(len(names)), xerr=[below, above], fmt="none", ecolor=BLACK, elinewidth=1.2, capsize=3
        )
        for index, name in enumerate(names):
            axes.text(
                min(100 * rows[name]["high"] + 2, 103),
                index,
                f"{values[index]:.1f}",
                va="center",
                fontsize=8,
                color=BLACK,
            )
        axes.set(title=env, xlim=(0, 115), xlabel="pivot step named, %", xticks=range(0, 101, 20))
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    patch = need("matplotlib.patches", "train").Patch
    meanings = [
        patch(facecolor=ORANGE, hatch="//", edgecolor="white", label="Analyzer"),
        patch(facecolor=BLUE, label="reads the log alone"),
    ]
    figure.legend(handles=meanings, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return png_of(figure)


def confusion_chart(title: str, tables: Mapping[str, Mapping[str, Mapping[str, int]]]) -> bytes:
    """Draw counts by true and read name, one panel per table; shades are shares of a row.

    Args:
        title: title of the figure.
        tables: counts by true and read name, of ``mode`` and ``step``.
    """
    widths = [max(3, len(next(iter(table.values())))) for table in tables.values()]
    heights = [max(2, len(table)) for table in tables.values()]
    figure = new_figure(2.4 + 0.62 * sum(widths) + 1.2 * len(tables), 1.9 + 0.5 * max(heights))
    panels = figure.subplots(1, len(tables), squeeze=False, width_ratios=widths)[0]
    for axes, (what, table) in zip(panels, tables.items(), strict=True):
        rows, columns = list(table), list(next(iter(table.values())))
        shown = [[table[row][column] / max(1, sum(table[row].values())) for column in columns] for row in rows]
        axes.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                if table[row][column]:
                    dark = shown[y][x] > 0.55
                    axes.text(
                        x,
                        y,
                        str(table[row][column]),
                        ha="center",
                        va="center",
                        fontsize=8,
                        color="white" if dark else BLACK,
                    )
                if row == column:
                    axes.add_patch(_frame(x, y))
        names = ["none" if column == UNREAD else column for column in columns]
        slanted = max(map(len, names)) > 4
        axes.set_xticks(range(len(columns)), names, rotation=35 if slanted else 0, ha="right" if slanted else "center")
        axes.set_yticks(range(len(rows)), rows)
        axes.set(xlabel=f"{what} in the reply", ylabel=f"true {what}", title=f"{what}s, records")
    figure.suptitle(title, fontsize=11)
    return png_of(figure)


def _frame(x: int, y: int) -> Any:
    """Return the outline of a cell in which reply and label agree."""
    rectangle = need("matplotlib.patches", "train").Rectangle
    return rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.8)


def reliability_chart(title: str, panels: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Draw the share of correct steps against the model's own probability, one panel per environment."""
    figure, all_axes = _panels(len(panels), 4.2, 3.9)
    for axes, (env, reliability) in zip(all_axes, panels.items(), strict=True):
        bins = reliability["bins"]
        largest = max(each["records"] for each in bins)
        axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="calibrated")
        xs, ys = [each["mean_probability"] for each in bins], [each["accuracy"] for each in bins]
        axes.plot(xs, ys, color=BLUE, linewidth=1, zorder=2)
        sizes = [20 + 180 * each["records"] / largest for each in bins]
        axes.scatter(xs, ys, s=sizes, color=BLUE, edgecolor="white", zorder=3, label="readings (area: count)")
        for each in bins:
            axes.annotate(
                str(each["records"]),
                (each["mean_probability"], each["accuracy"]),
                xytext=(0, 11),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        error = 100 * reliability["expected_calibration_error"]
        axes.set(
            title=f"{env}: calibration error {error:.1f} points",
            xlabel="probability of its own step",
            ylabel="share of correct steps",
            xlim=(0, 1.04),
            ylim=(-0.03, 1.1),
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(title, fontsize=11)
    return png_of(figure)
