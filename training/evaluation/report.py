"""The report of an evaluation: tables, JSON and pictures in one folder.

``evaluation.json`` holds every figure, ``evaluation.md`` the table, ``readings.jsonl`` one line per record.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import TrainingError
from ...models.extras import need
from ...storage import open_storage
from ..checkpoint import FINAL
from .analyzer import Evaluation
from .charts import accuracy_chart, confusion_chart, reliability_chart

SUMMARY, TABLE, READINGS = "evaluation.json", "evaluation.md", "readings.jsonl"
COLUMNS = ("pivot exact", "pivot within 1", "mode", "joint", "parsed", "pivot, fallback counted")
"""Shares in the order of tables; baselines lack the last two."""

Shares = Mapping[str, Mapping[str, Any]]


def percent(figures: Mapping[str, Any] | None) -> str:
    """Return a share with its interval in percent."""
    if figures is None:
        return "–"
    return f"{100 * figures['value']:.1f} [{100 * figures['low']:.1f}, {100 * figures['high']:.1f}]"


def compared(
    summary: Mapping[str, Any], beside: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Shares]]:
    """Return the shares by environment and name: of the Analyzer, of other evaluations, of the baselines."""
    tables: dict[str, dict[str, Shares]] = {}
    for env, figures in summary["environments"].items():
        rows = {row_name(summary): figures["shares"]}
        for name, other in (beside or {}).items():
            if env in other["environments"]:
                rows[name] = other["environments"][env]["shares"]
        tables[env] = rows | figures["baselines"]
    return tables


def row_name(summary: Mapping[str, Any]) -> str:
    """Return the Analyzer's name in tables, with the treatment of its pictures."""
    pictures = summary["pictures"]
    name = Path(summary["name"]).name or summary["name"]
    return name if pictures == "shown" else f"{name}, pictures {pictures}"


def table_rows(tables: Mapping[str, Mapping[str, Shares]]) -> list[list[str]]:
    """Return the comparison as rows of text: environment, name, shares."""
    return [
        [env, name, *(percent(shares.get(column)) for column in COLUMNS)]
        for env, rows in tables.items()
        for name, shares in rows.items()
    ]


SCREEN = ("who", "pivot %", "95 %", "±1 %", "mode %", "both %", "read %")
"""Header of an environment's table on a screen of 80 columns; only the first share has its interval."""


def screen_rows(rows: Mapping[str, Shares]) -> list[list[str]]:
    """Return the comparison within an environment as rows of text for :data:`SCREEN`."""

    def short(figures: Mapping[str, Any] | None) -> str:
        return "" if figures is None else f"{100 * figures['value']:.1f}"

    def spread(figures: Mapping[str, Any]) -> str:
        return f"{100 * figures['low']:.1f}–{100 * figures['high']:.1f}"

    return [
        [
            name,
            short(shares[COLUMNS[0]]),
            spread(shares[COLUMNS[0]]),
            *(short(shares.get(each)) for each in COLUMNS[1:5]),
        ]
        for name, shares in rows.items()
    ]


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


HEADER = ("environment", "who", *(f"{name} %" for name in COLUMNS))


def summary_text(summary: Mapping[str, Any], beside: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Return the whole report as Markdown."""
    full = ", full-length failures only" if summary["full_length"] else ""
    parts = [
        f"# {row_name(summary)}",
        f"{summary['records']} records of {summary['levels']} levels, split `{summary['side']}` of "
        f"`{summary['dataset']}`, config `{summary['config']}`{full}. In brackets 95 % intervals by bootstrap over "
        "levels. An unreadable reply counts as wrong; in the last column it names the last step, as in training.",
        markdown(HEADER, table_rows(compared(summary, beside))),
    ]
    if seen := summary["records_of_levels_on_both_sides"]:
        parts.insert(
            2,
            f"**{seen} records are of levels that the other split has, too, so these figures are not of held-out "
            "levels.**",
        )
    for env, figures in summary["environments"].items():
        parts += [f"## {env}", *_details(figures)]
    return "\n\n".join(parts) + "\n"


def _details(figures: Mapping[str, Any]) -> list[str]:
    steps = [[step, share["records"], percent(share)] for step, share in figures["by_step"].items()]
    modes = [
        [mode, shares["mode"]["records"], percent(shares["pivot exact"]), percent(shares["mode"])]
        for mode, shares in figures["by_mode"].items()
    ]
    chances, guidance = figures["reliability"], figures["guidance"]
    lines = [
        f"Reliability: {no_reliability(figures)}."
        if chances is None
        else f"Reliability: expected calibration error {100 * chances['expected_calibration_error']:.1f} points over "
        f"{chances['records']} readings.",
        f"Guidance: {guidance['factual']} of {guidance['texts']} texts pass the factual filters"
        + (f"; {_counted(guidance['reasons'])}." if guidance["reasons"] else "."),
        f"Unreadable replies: {_counted(figures['problems']) or 'none'}.",
        *(f"Not fitted: {name}, {why}." for name, why in figures["baselines_not_fitted"].items()),
    ]
    return [
        markdown(("true pivot step", "records", "pivot exact %"), steps),
        markdown(("true mode", "records", "pivot exact %", "mode %"), modes),
        *lines,
    ]


def no_reliability(figures: Mapping[str, Any]) -> str:
    """Return the reason why an environment has no figure of reliability."""
    read = figures["shares"]["parsed"]["value"]
    return "the engine gives no probabilities of tokens" if read else "no reply could be read"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def write_report(
    root: Path, evaluation: Evaluation, beside: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """Write JSON, table, readings and pictures to the folder; return the names of the files.

    Raises:
        StoreError: the folder cannot be written. PluginError: matplotlib is not installed.
    """
    summary, storage = evaluation.summary, open_storage(root)
    tables = compared(summary, beside)
    name = row_name(summary)
    ours = [name, *(beside or {})]
    bars = {env: {who: shares["pivot exact"] for who, shares in rows.items()} for env, rows in tables.items()}
    pictures = {"accuracy.png": accuracy_chart(f"{name}: pivot step, {summary['side']} levels", bars, ours)}
    for env, figures in summary["environments"].items():
        pictures[f"confusion-{env}.png"] = confusion_chart(f"{name}: {env}", figures["confusion"])
    chances = {env: each["reliability"] for env, each in summary["environments"].items() if each["reliability"]}
    if chances:
        pictures["reliability.png"] = reliability_chart(f"{name}: can its probabilities be trusted?", chances)
    for picture, content in pictures.items():
        storage.write_bytes(picture, content)
    storage.write_bytes(READINGS, reading_lines(evaluation))
    storage.write_bytes(TABLE, summary_text(summary, beside).encode())
    storage.write_json(SUMMARY, summary)
    return [*pictures, READINGS, TABLE, SUMMARY]


def reading_lines(evaluation: Evaluation) -> bytes:
    """Return one JSON line per record."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in evaluation.readings)
    return lines.encode("utf-8", "replace")


def read_summary(root: Path) -> dict[str, Any]:
    """Read the figures of an earlier evaluation.

    Raises:
        TrainingError: the folder holds no evaluation.
    """
    storage = open_storage(root)
    if storage.stat(SUMMARY) is None:
        raise TrainingError(f"{root} holds no {SUMMARY}; make one with: pivot evaluate analyzer MODEL --out {root}")
    summary = storage.read_json(SUMMARY)
    if not isinstance(summary, dict) or "environments" not in summary:
        raise TrainingError(f"{storage.address(SUMMARY)} is not an evaluation; run pivot evaluate analyzer again")
    return summary


CARD = "README.md"
SHOWN_IN_CARD = {"pivot exact": "pivot step", "mode": "failure mode", "joint": "pivot step and failure mode"}
"""Names of the accuracies in the model card, by column."""


def put_into_card(run: Path, summary: Mapping[str, Any]) -> None:
    """Put the accuracies on held-out levels into the card of a run's final model, as ``model-index``.

    Args:
        run: folder of a run of ``pivot train sft``; one without a card stays as it is.
        summary: figures of its final model on its own dataset.
    """
    storage = open_storage(run)
    name = f"{FINAL}/{CARD}"
    if storage.stat(name) is None:
        return
    hub: Any = need("huggingface_hub", "train")
    card = hub.ModelCard(storage.read_bytes(name).decode(), ignore_metadata_errors=True)
    card.data.model_name = card.data.model_name or run.name
    card.data.eval_results = [
        hub.EvalResult(
            task_type="image-text-to-text",
            task_name=f"failure localisation, {env}, {figures['records']} records of {figures['levels']} levels",
            dataset_type="pivot",
            dataset_name=f"{env}, {summary['side']} split",
            metric_type="accuracy",
            metric_name=f"{label}, {env}",
            metric_value=round(figures["shares"][column]["value"], 4),
        )
        for env, figures in summary["environments"].items()
        for column, label in SHOWN_IN_CARD.items()
    ]
    storage.write_bytes(name, str(card).rstrip().encode() + b"\n")
