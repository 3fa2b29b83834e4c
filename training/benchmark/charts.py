"""Picture of results side by side: one panel per task, one group of bars per environment and log."""

from collections.abc import Mapping
from typing import Any

from ...models.extras import need
from ..config import EXTRA
from ..evaluation.charts import BLACK, GREY, new_figure, png_of
from .scores import MAIN

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of results, those of Okabe and Ito; grey is the best on the log alone."""
HATCHES = ("", "//", "..", "xx", "\\\\", "--")

Rows = Mapping[tuple[str, ...], Mapping[str, Mapping[str, Any]]]


def results_chart(tables: Mapping[str, Rows]) -> bytes:
    """Draw the main figure of every task by the lenient reader, with intervals.

    Args:
        tables: cells by task, by place, and by name; names of baselines have a colon.
    """
    names = list(
        dict.fromkeys(who for rows in tables.values() for cells in rows.values() for who in cells if ":" not in who)
    )
    groups = max(len(rows) for rows in tables.values())
    figure = new_figure(max(8.0, 1.6 + groups * (0.5 + 0.42 * (len(names) + 1))), 0.8 + 2.9 * len(tables))
    panels = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
    width = 0.8 / (len(names) + 1)
    for axes, (task, rows) in zip(panels, tables.items(), strict=True):
        for group, cells in enumerate(rows.values()):
            for who, cell in cells.items():
                share = cell["figures"]["lenient"][MAIN[task]]
                if share is None:
                    continue
                place = names.index(who) if who in names else len(names)
                colour = COLOURS[place % len(COLOURS)] if who in names else GREY
                hatch = HATCHES[place // len(COLOURS) % len(HATCHES)] if who in names else "//"
                x, value = group - 0.4 + width * (place + 0.5), 100 * share["value"]
                axes.bar(x, value, width=0.92 * width, color=colour, hatch=hatch, edgecolor="white")
                whisker = [[max(0.0, value - 100 * share["low"])], [max(0.0, 100 * share["high"] - value)]]
                axes.errorbar(x, value, yerr=whisker, fmt="none", ecolor=BLACK, elinewidth=1.0, capsize=2)
                axes.text(x, 100 * share["high"] + 2, f"{value:.0f}", ha="center", fontsize=7, color=BLACK)
        axes.set(title=f"{task}: {MAIN[task]}", ylabel="%", ylim=(0, 118), yticks=range(0, 101, 25))
        labels = ["\n".join((env, f"{log} log", *kind)) for env, log, *kind in rows]
        axes.set_xticks(range(len(rows)), labels, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    _add_legend(figure, names)
    return png_of(figure)


def _add_legend(figure: Any, names: list[str]) -> None:
    patch = need("matplotlib.patches", EXTRA).Patch
    handles = [
        patch(
            facecolor=COLOURS[place % len(COLOURS)],
            hatch=HATCHES[place // len(COLOURS) % len(HATCHES)],
            edgecolor="white",
            label=name,
        )
        for place, name in enumerate(names)
    ]
    handles.append(patch(facecolor=GREY, hatch="//", edgecolor="white", label="best on the log alone"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)), frameon=False, fontsize=9)
