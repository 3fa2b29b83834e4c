"""The report of one result or of several side by side: a table in Markdown, JSON, and a chart.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish; every number that a bar represents is
written out, too.
"""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from ...core.errors import TrainingError
from ...core.storage import open_storage
from ...models.extras import need
from ..config import EXTRA
from .scores import MAIN, TASKS

RESULT = "result.json"
TABLE, DATA, PICTURE = "table.md", "table.json", "table.png"

Result = Mapping[str, Any]
"""Figures of one file of predictions, as :func:`.scores.score` returns them."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "twin": ("pairs", "items"),
    "pivot": ("correct", "both", "failures", "within 1", "no error"),
    "mode": ("macro-F1", "correct"),
    "safe": ("correct", "overlap"),
    "credit": ("top-1", "AUC", "need", "Brier", "reliability"),
}
"""Figures of each task in the order of tables, the main one first."""

TITLES = {
    "twin": "Name both pivots of two levels with one log",
    "pivot": "Name the pivot, or no error",
    "mode": "Name the mode of a failure",
    "safe": "Name all actions that were still safe",
    "credit": "Credit per turn",
}
BEST = "best on the log alone"
BASELINE = f"\0{BEST}: "
"""Beginning of the key of the best baseline's cells; no name begins so."""

BLACK, GREY = "#222222", "#9A9A9A"
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of results, those of Okabe and Ito; grey is the best on the log alone."""
HATCHES = ("", "//", "..", "xx", "\\\\", "--")

Rows = Mapping[tuple[str, ...], Mapping[str, Mapping[str, Any]]]


def write_report(out: Path, results: Sequence[Result], baselines: Sequence[Result] = ()) -> list[str]:
    """Write results side by side to a folder; return the names of the files.

    Raises:
        TrainingError: ``results`` is empty, the results are of different items, or two have the same name.
        StoreError: the folder cannot be written. PluginError: matplotlib is not installed.
    """
    check_alike(results, baselines)
    storage = open_storage(out)
    storage.write_bytes(TABLE, table_text(results, baselines).encode())
    storage.write_bytes(PICTURE, results_chart(rows_by_task(results, baselines)))
    name = RESULT if len(results) == 1 else DATA
    storage.write_json(name, results[0] if len(results) == 1 else {"results": results, "baselines": baselines})
    return [TABLE, PICTURE, name]


def read_result(path: Path) -> dict[str, Any]:
    """Read a result, given its file or its folder.

    Raises:
        TrainingError: the file does not exist, or is not a result.
    """
    folder, name = (path.parent, path.name) if path.suffix == ".json" else (path, RESULT)
    storage = open_storage(folder)
    if storage.stat(name) is None:
        raise TrainingError(f"{path} holds no {name}; make one with: pivot benchmark score PREDICTIONS.jsonl")
    result = storage.read_json(name)
    if not isinstance(result, dict) or not {"fingerprint", "name", "cells", "usage"} <= result.keys():
        raise TrainingError(f"{storage.address(name)} is not a result; make one with: pivot benchmark score")
    return result


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table; whatever a cell holds, it stays one cell."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(plain(str(cell)) for cell in row) + " |" for row in rows])


def plain(text: str) -> str:
    """Return a text as one line of Markdown without meaning: every mark is escaped."""
    words = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", words)


def percent(figures: Mapping[str, Any] | None) -> str:
    """Return a share with its interval in percent."""
    if figures is None:
        return "–"
    return f"{100 * figures['value']:.1f} [{100 * figures['low']:.1f}, {100 * figures['high']:.1f}]"


def check_alike(results: Sequence[Result], baselines: Sequence[Result] = ()) -> None:
    """Refuse results that cannot be compared.

    Raises:
        TrainingError: ``results`` is empty, they are of different benchmarks, or two of ``results`` have the same name.
    """
    if not results:
        raise TrainingError("found no result, expected at least one; make one with: pivot benchmark score")
    if len({result["fingerprint"] for result in (*results, *baselines)}) > 1:
        shown = ", ".join(f"{result['name']} {result['fingerprint']}" for result in (*results, *baselines))
        raise TrainingError(
            f"found results of different benchmarks ({shown}), expected one fingerprint; score all on one"
        )
    names = [result["name"] for result in results]
    if twice := [name for name in names if names.count(name) > 1]:
        raise TrainingError(f"found two results of the name {twice[0]!r}, expected different ones; set --name")


def best_baseline(baselines: Sequence[Result], place: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return name and cell of the baseline with the largest main figure in the place of a cell; None without any."""
    cells = [
        (result["name"], cell)
        for result in baselines
        for cell in result["cells"]
        if all(cell[name] == place[name] for name in ("task", "env", "log")) and main_share(cell) is not None
    ]
    return max(cells, key=lambda each: (main_share(each[1]) or {})["value"], default=None)


def main_share(cell: Mapping[str, Any], reader: str = "lenient") -> Mapping[str, Any] | None:
    """Return the main figure of a cell by one reader; None where it does not apply."""
    return cell["figures"][reader][MAIN[cell["task"]]]


def rows_by_task(
    results: Sequence[Result], baselines: Sequence[Result]
) -> dict[str, dict[tuple[str, str], dict[str, Mapping[str, Any]]]]:
    """Return the cells by task, by environment and log, and by name; the best baseline comes last."""
    tables: dict[str, dict[tuple[str, str], dict[str, Mapping[str, Any]]]] = {}
    for task in TASKS:
        rows: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
        for result in results:
            for cell in result["cells"]:
                if cell["task"] == task:
                    rows.setdefault((cell["env"], cell["log"]), {})[result["name"]] = cell
        for cells in rows.values():
            if (best := best_baseline(baselines, next(iter(cells.values())))) is not None:
                cells[f"{BASELINE}{best[0]}"] = best[1]
        if rows:
            tables[task] = dict(sorted(rows.items()))
    return tables


def table_text(results: Sequence[Result], baselines: Sequence[Result] = ()) -> str:
    """Return all tables as Markdown, one row per environment and log."""
    first, source = results[0], results[0].get("source")
    title = f"PIVOT benchmark {first['benchmark']}"
    if source:
        title = f"Failures of the {source['side']} split of {plain(str(source['dataset']))}"
    parts = [
        f"# {title}",
        f"Fingerprint `{first['fingerprint']}`. In percent, in brackets 95 % intervals over levels. "
        "*Strict* counts replies that are one JSON object and nothing else, *lenient* also reads JSON in prose or "
        "fences. *Read* is the share of items with a readable answer; what cannot be read counts as wrong. *Chance* is "
        "the score of a uniform guess; one answer to both twins is never right, and the baselines name a step to each.",
    ]
    if seen := first.get("levels_on_both_sides"):
        parts.append(
            f"**{seen} levels are in the other split, too, so these figures are not of held-out levels; build with "
            "`--split task` for such figures.**"
        )
    for task, rows in rows_by_task(results, baselines).items():
        main, *more = COLUMNS[task]
        header = ["environment", "log", "who", f"{main}, strict", f"{main}, lenient", *more]
        header += ["chance %", "read %, strict", "read %, lenient", "refused %", "unanswered %", "items; levels"]
        table = [
            [*place, who, *_texts(cell, [main, *more])] for place, cells in rows.items() for who, cell in cells.items()
        ]
        parts += [f"## {TITLES[task]}", markdown(header, table)]
    parts += ["## Cost", markdown(USAGE_HEADER, [usage_row(result) for result in results])]
    if missing := reasons_not_fitted([*results, *baselines]):
        parts.append("Baselines that could not be fitted: " + "; ".join(missing) + ".")
    return "\n\n".join(parts) + "\n"


def reasons_not_fitted(results: Sequence[Result]) -> list[str]:
    """Return the reason for each baseline and environment where it could not be fitted."""
    return [
        f"{result['name']}, {env}: {reason}"
        for result in results
        for env, reason in result.get("not_fitted", {}).items()
    ]


def _texts(cell: Mapping[str, Any], figures: Sequence[str]) -> list[str]:
    main, *more = figures
    lenient = cell["figures"]["lenient"]
    return [
        percent(cell["figures"]["strict"][main]),
        percent(lenient[main]),
        *(percent(lenient[each]) for each in more),
        f"{100 * cell['chance']:.1f}",
        *(plain_percent(cell["read"][reader]) for reader in ("strict", "lenient")),
        *(plain_percent(cell[each]) for each in ("refused", "unanswered")),
        f"{cell['records']}; {cell['levels']}",
    ]


def plain_percent(share: Mapping[str, Any] | None) -> str:
    """Return a share in percent without its interval."""
    return "–" if share is None else f"{100 * share['value']:.1f}"


USAGE_HEADER = (
    *("who", "items", "answered", "refused", "unanswered"),
    *("prompt tokens", "reply tokens", "seconds", "cost", "left out"),
)


def usage_row(result: Result) -> list[str]:
    """Return the costs of a result as a row of text; seconds are summed over requests."""
    usage = result["usage"]
    amounts = [usage[name] for name in ("prompt_tokens", "completion_tokens", "seconds", "cost")]
    return [
        result["name"],
        *(str(usage[name]) for name in ("items", "answered", "refused", "unanswered")),
        *("–" if each is None else f"{each:.6g}" for each in amounts),
        ", ".join(usage["left_out"]) or "–",
    ]


SCREEN = ("task", "log", "strict", "lenient", "95 %", "read %", "log alone")
"""Header of a result's table of one environment on a screen of 80 columns, in percent."""


def screen_rows(result: Result, baselines: Sequence[Result]) -> dict[str, list[list[str]]]:
    """Return the main figures of a result as rows of text for :data:`SCREEN`, by environment."""
    rows: dict[str, list[list[str]]] = {}
    for cell in result["cells"]:
        share = main_share(cell)
        best = best_baseline(baselines, cell)
        spread = "–" if share is None else f"{100 * share['low']:.1f}–{100 * share['high']:.1f}"
        figures = [plain_percent(main_share(cell, "strict")), plain_percent(share), spread]
        alone = plain_percent(main_share(best[1])) if best is not None else "–"
        row = [cell["task"], cell["log"], *figures, plain_percent(cell["read"]["lenient"]), alone]
        rows.setdefault(cell["env"], []).append(row)
    return rows


# Picture


def results_chart(tables: Mapping[str, Rows]) -> bytes:
    """Draw the main figure of every task by the lenient reader, with intervals, one panel per task; return a PNG.

    Args:
        tables: result of :func:`rows_by_task`.
    """
    names = list(
        dict.fromkeys(
            who for rows in tables.values() for cells in rows.values() for who in cells if not who.startswith(BASELINE)
        )
    )
    width = 1.6 + max(map(len, tables.values())) * (0.5 + 0.42 * (len(names) + 1))
    size = (max(8.0, width), 0.8 + 2.9 * len(tables))
    figure = need("matplotlib.figure", EXTRA).Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False).ravel()
    for axes, (task, groups) in zip(panels, tables.items(), strict=True):
        _draw_bars(axes, MAIN[task], list(groups.values()), names)
        axes.set(title=f"{task}: {MAIN[task]}", ylabel="%", ylim=(0, 118), yticks=range(0, 101, 25))
        lines = [fill(env.replace("-", "- "), 20).replace("- ", "-") for env, _ in groups]  # long names in two
        axes.set_xticks(
            range(len(groups)), [f"{env}\n{log} log" for env, (_, log) in zip(lines, groups, strict=True)], fontsize=8
        )
        axes.spines[["top", "right"]].set_visible(False)
    bars: dict[str, Any] = {}
    for axes in panels:
        bars |= {label: bar for bar, label in zip(*axes.get_legend_handles_labels(), strict=True) if label not in bars}
    columns = min(4, len(bars))
    figure.legend(bars.values(), bars, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    encoded = io.BytesIO()
    figure.savefig(encoded, format="png", dpi=110, facecolor="white")
    return encoded.getvalue()


def _draw_bars(axes: Any, figure: str, groups: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Draw a figure of some groups of cells as bars, one per result and one of the best baseline."""
    width = 0.8 / (len(names) + 1)
    for group, cells in enumerate(groups):
        for who, cell in cells.items():
            share = cell["figures"]["lenient"][figure]
            if share is None:
                continue
            place = names.index(who) if who in names else len(names)
            colour = COLOURS[place % len(COLOURS)] if who in names else GREY
            hatch = HATCHES[place // len(COLOURS) % len(HATCHES)] if who in names else "//"
            x, value = group - 0.4 + width * (place + 0.5), 100 * share["value"]
            style = {"color": colour, "hatch": hatch, "edgecolor": "white"}
            # Dollars would be a formula, and the library hides labels that begin with an underscore.
            style["label"] = f" {who}".replace("$", r"\$") if who in names else BEST
            axes.bar(x, value, width=0.92 * width, **style)
            whisker = [[max(0.0, value - 100 * share["low"])], [max(0.0, 100 * share["high"] - value)]]
            axes.errorbar(x, value, yerr=whisker, fmt="none", ecolor=BLACK, elinewidth=1.0, capsize=2)
            axes.text(x, 100 * share["high"] + 2, f"{value:.0f}", ha="center", fontsize=7, color=BLACK)
