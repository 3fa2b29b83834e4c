"""Plots of a store: return ladder, failure modes, pivot steps, slack, and the lift rates of a rollback probe.

Colours are Okabe and Ito's, which colour-blind readers can distinguish; a hatch or a mark repeats what a colour means.
Counts and shares have one scale in all panels of a figure; returns do not, because rewards differ between environments.
Every plot reads a named view or the rates of the probe, so its numbers are in ``pivot stats`` and ``pivot probe``.
Nothing opens a window.
"""

import io
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import duckdb

from ..core.storage import Address
from ..datasets.sql.views import connect, run_query
from ..datasets.store.nights import nights_of
from ..models.extras import need
from .probe.rates import ArmRate, arm_rates
from .probe.records import PROBE_ARMS, SETTINGS_FILE

EXTRA = "plots"
BLUE, ORANGE, GREY, BLACK = "#0072B2", "#D55E00", "#9A9A9A", "#222222"
PALETTE = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#555555", "#9A9A9A", BLACK)
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--", "**", "||")
MOST_GROUPS = 150
"""Maximum number of groups in a panel of the ladder, evenly spaced among all in order of their mean return."""
MOST_ACROSS = 3
"""Maximum number of panels side by side."""

Figure = Any
Rows = list[tuple[Any, ...]]


def save_plots(root: Address, suffix: str = "png") -> dict[str, bytes]:
    """Draw every plot that a store has data for; return files by name.

    Args:
        root: a store, finished or not, or a folder of nights; if a store was probed, lift rates are drawn, too.
        suffix: ``png`` or ``svg``.

    Raises:
        StoreError: the folder is not a store.
        PluginError: the plotting library is not installed.
    """
    nights = nights_of(root, unfinished=True)
    pictures: dict[str, Figure | None] = {}
    with connect(root, _VIEWS, unfinished=True) as connection:
        for name, draw in _OF_VIEWS.items():
            pictures[name] = draw(root, connection)
    store = nights.get("")  # each night has a probe of its own
    if store is not None and SETTINGS_FILE in store.listed:
        pictures["lift"] = lift_bars(arm_rates(store)[1])
    return {f"{name}.{suffix}": _encoded(figure, suffix) for name, figure in pictures.items() if figure is not None}


def _encoded(figure: Figure, suffix: str) -> bytes:
    encoded = io.BytesIO()
    # Without a date and with fixed ids, equal stores give equal files.
    metadata = {"Date": None} if suffix == "svg" else {}
    with need("matplotlib", EXTRA).rc_context({"svg.hashsalt": "pivot"}):
        figure.savefig(encoded, format=suffix, dpi=110, facecolor="white", metadata=metadata)
    return encoded.getvalue()


def _panels(
    names: Sequence[str], width: float, height: float, title: str, *, one_scale: bool = True
) -> tuple[Figure, list[Any]]:
    """Return a figure and a panel for each name, a few in a row, all with one y axis unless ``one_scale`` is off."""
    across = min(len(names), MOST_ACROSS)
    down = -(-len(names) // across)
    size = (max(across * width, 5.6), 0.6 + down * height)
    figure = need("matplotlib.figure", EXTRA).Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=12)
    axes = list(figure.subplots(down, across, squeeze=False, sharey=one_scale).ravel())
    for empty in axes[len(names) :]:
        empty.set_axis_off()
    for panel, name in zip(axes, names, strict=False):
        panel.set_title(plain(name), fontsize=10, pad=14)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes[: len(names)]


def plain(text: object) -> str:
    """Return a text that can be drawn literally: escaped control characters, no formula, at most 24 characters.

    A plugin's names and untrusted rows may hold anything; Matplotlib would read ``$`` as the start of a formula and
    write characters that its font lacks to the standard error.
    """
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(text)[:_LONGEST])
    return shown.replace("$", r"\$") + ("…" if len(str(text)) > _LONGEST else "")


_LONGEST = 24
"""Longer names leave no room for the axes, of which Matplotlib warns on the standard error."""


def _read(root: Address, connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Rows]:
    """Return the rows of a query by their first column, with the texts of the other columns escaped."""
    return {
        env: [tuple(plain(cell) if isinstance(cell, str) else cell for cell in row[1:]) for row in some]
        for env, some in groupby(run_query(root, connection, sql)[1], lambda row: row[0])
    }


_LADDER_MARKS = ((False, BLUE, "o", "returns differ"), (True, ORANGE, "x", "all equal (σ = 0)"))


def return_ladder(root: Address, connection: duckdb.DuckDBPyConnection) -> Figure | None:
    """Draw the returns of every group on one vertical line, groups in order of their mean (paper, Fig. 2a)."""
    groups = _read(
        root, connection, "SELECT env, returns, sigma0 FROM groups ORDER BY env, mean_return, run_id, group_id, block"
    )
    if not groups:
        return None
    figure, panels = _panels(list(groups), 4.4, 3.0, "Returns within groups, by mean return", one_scale=False)
    for axes, rows in zip(panels, groups.values(), strict=True):
        shown = [rows[place * len(rows) // min(len(rows), MOST_GROUPS)] for place in range(min(len(rows), MOST_GROUPS))]
        lows, highs = zip(*((min(returns), max(returns)) for returns, _ in shown), strict=True)
        axes.vlines(range(len(shown)), lows, highs, colors=GREY, linewidths=0.5, alpha=0.6)
        for flat, colour, mark, label in _LADDER_MARKS:
            points = [(x, y) for x, (returns, sigma0) in enumerate(shown) if bool(sigma0) is flat for y in returns]
            if points:
                axes.scatter(*zip(*points, strict=True), s=14, c=colour, marker=mark, linewidths=1.0, label=label)
        share = sum(bool(sigma0) for _, sigma0 in rows) / len(rows)
        of = f"{len(shown)} of {len(rows)} groups" if len(shown) < len(rows) else f"{len(rows)} groups"
        axes.set(xlabel=f"{of}; σ = 0 in {100 * share:.1f} %", ylabel="return")
        axes.set_xticks([])
        axes.grid(axis="y", alpha=0.3)
    _legend(figure, panels)
    return figure


def mode_bars(root: Address, connection: duckdb.DuckDBPyConnection) -> Figure | None:
    """Draw how often each failure mode occurs."""
    modes = _read(root, connection, "SELECT env, failure_mode, failures, share FROM modes")
    if not modes:
        return None
    figure, panels = _panels(list(modes), 4.4, 2.4, "Failure modes", one_scale=False)
    for axes, rows in zip(panels, modes.values(), strict=True):
        names = [row[0] for row in rows][::-1]
        shares = [100 * row[2] for row in rows][::-1]
        axes.barh(names, shares, color=BLUE, height=0.7)
        for place, (share, row) in enumerate(zip(shares, rows[::-1], strict=True)):
            inside = share > 60  # the label would leave the axis, which ends at 100 %
            at, side, colour = (share - 1.5, "right", "white") if inside else (share + 1.5, "left", BLACK)
            label = f"{share:.1f} % ({row[1]})"
            axes.text(at, place, label, va="center", ha=side, fontsize=8, color=colour)
        axes.set(xlim=(0, 100), xlabel="share of the failures, %", xticks=range(0, 101, 25))
        axes.tick_params(axis="y", length=0)
    return figure


def pivot_histograms(root: Address, connection: duckdb.DuckDBPyConnection) -> Figure | None:
    """Draw how often each step is the pivot, bars divided by failure mode; a mode has one colour in all panels."""
    steps = _read(root, connection, "SELECT env, failure_mode, pivot_step, failures FROM modes_by_step")
    if not steps:
        return None
    figure, panels = _panels(list(steps), 4.4, 2.9, "Pivot step")
    modes = list(dict.fromkeys(row[0] for rows in steps.values() for row in rows))
    for axes, rows in zip(panels, steps.values(), strict=True):
        heights: dict[int, int] = {}
        for number, mode in enumerate(modes):
            counts = {row[1]: row[2] for row in rows if row[0] == mode}
            if not counts:
                continue
            axes.bar(
                list(counts),
                list(counts.values()),
                bottom=[heights.get(step, 0) for step in counts],
                color=PALETTE[number % len(PALETTE)],
                hatch=HATCHES[number % len(HATCHES)],
                edgecolor="white",
                label=mode,
            )
            for step, count in counts.items():
                heights[step] = heights.get(step, 0) + count
        axes.set(xlabel="t*, counted from 0", xlim=(min(heights) - 1, max(heights) + 1))
        axes.xaxis.get_major_locator().set_params(integer=True)
    _count_axis(panels)
    _legend(figure, panels)
    return figure


def _count_axis(panels: Sequence[Any]) -> None:
    """Number the shared y axis in whole failures."""
    panels[0].yaxis.get_major_locator().set_params(integer=True)
    for axes in panels[::MOST_ACROSS]:
        axes.set_ylabel("failures")


def slack_histograms(root: Address, connection: duckdb.DuckDBPyConnection) -> Figure | None:
    """Draw how many turns could still be wasted at the pivot."""
    slacks = _read(root, connection, "SELECT env, unit, slack, failures FROM slack_at_pivot")
    if not slacks:
        return None
    figure, panels = _panels(list(slacks), 4.4, 2.6, "Slack at the pivot: turns left minus turns needed")
    for axes, rows in zip(panels, slacks.values(), strict=True):
        counts = Counter[float]()
        for _, slack, failures in rows:
            counts[slack] += failures
        axes.bar([*counts], [*counts.values()], color=BLUE, width=0.8)
        axes.axvline(0, color=ORANGE, linestyle="--", linewidth=1.2)
        axes.set_xlim(min(0, *counts) - 1, max(0, *counts) + 1)
        axes.set(xlabel=f"turns (need in {' or '.join(dict.fromkeys(row[0] for row in rows))})")
        axes.xaxis.get_major_locator().set_params(integer=True)
    _count_axis(panels)
    return figure


def lift_bars(rates: Sequence[ArmRate]) -> Figure | None:
    """Draw the lift rate of every arm with its interval (paper, Fig. 2b)."""
    envs = {env: list(some) for env, some in groupby(rates, lambda each: each.env)}
    if not envs:
        return None
    figure, panels = _panels(list(envs), 4.4, 2.9, "Failures that a retry lifts, %")
    for axes, arms in zip(panels, envs.values(), strict=True):
        for place, each in enumerate(arms):
            if each.lift is None:
                axes.text(place, 1, "nothing\nleft", ha="center", fontsize=7, color=BLACK)
                continue
            number = list(PROBE_ARMS).index(each.arm)
            value, low, high = (100 * part for part in (each.lift.value, each.lift.low, each.lift.high))
            axes.bar(place, value, color=PALETTE[number], hatch=HATCHES[number], edgecolor="white", width=0.75)
            axes.errorbar(place, value, [[value - low], [high - value]], fmt="none", ecolor=BLACK, capsize=3)
            at = (place, high)
            axes.annotate(f"{value:.1f}", at, (0, 2), textcoords="offset points", ha="center", fontsize=8, color=BLACK)
        axes.set_xticks(range(len(arms)), [plain(each.arm) for each in arms], rotation=30, fontsize=8)
    tops = [100 * each.lift.high for each in rates if each.lift is not None]
    panels[0].set_ylim(0, min(100, 1.2 * max(10, *tops)))  # a scale that all panels share
    for axes in panels[::MOST_ACROSS]:
        axes.set_ylabel("lift, %")
    return figure


def _legend(figure: Figure, panels: Sequence[Any]) -> None:
    """Draw one legend for all panels, with every label once."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    across = min(len(handles), 5) or 1
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=across, frameon=False)


_VIEWS = ("groups", "modes", "modes_by_step", "slack_at_pivot")
_OF_VIEWS: dict[str, Callable[[Address, duckdb.DuckDBPyConnection], Figure | None]] = {
    "return_ladder": return_ladder,
    "modes": mode_bars,
    "pivot_steps": pivot_histograms,
    "slack": slack_histograms,
}
