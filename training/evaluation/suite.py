"""The fixed benchmark of failure localisation: certified failures of five environments, made from seeds.

Nothing is downloaded: levels and play come from seeds and the embedded stand-in, labels from the solvers, so that
anyone builds the same failures anywhere. Every environment gives 500 of held-out levels, twice: with the full log, from
which three of the five can be read off by arithmetic, and with the actions alone, so that the picture decides. The
other half of the levels is for worked examples and for fitting what needs no pictures.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...datasets.config import make_config
from ...datasets.inputs import ROLLOUT
from ...datasets.store import Store
from ...errors import TrainingError
from ...identity import digest
from ...storage import open_storage
from ..analyzer import Analyzer, Reading
from ..records import ALL, Records, open_records
from .analyzer import Choice, Evaluation, Labels, evaluate, read_labels, worked_examples
from .baselines import best_of
from .charts import suite_chart
from .metrics import Share
from .report import READINGS, markdown, percent, reading_lines, row_name

VERSION = "1"
"""Goes up with whatever changes the failures."""

SEED = 20_270
"""Of levels and play."""

FAILURES = 500
"""Of each environment."""

LEVELS: Mapping[str, int] = {"sokoban": 220, "frozenlake": 220, "navigation": 280, "primitiveskill": 180, "svg": 240}
"""Of each environment, eight rollouts each: about 600 failures on either side of the split."""

LOGS = ("full", "actions")
"""What the log shows (spec section 4)."""

SUMMARY, TABLE, PICTURE = "suite.json", "suite.md", "suite.png"

Build = Callable[[Mapping[str, Any], Path], Any]
"""Builds a store from a config, or goes on with one."""


def suite_config(log: str, levels: Mapping[str, int] = LEVELS) -> dict[str, Any]:
    """Return the config of the suite's store with one kind of log."""
    return {
        "environments": {env: {"tasks": tasks, "settings": {}} for env, tasks in levels.items()},
        "seed": SEED,
        "validation_fraction": 0.5,
        "log": log,
    }


def build_suite(root: Path, build: Build, levels: Mapping[str, int] = LEVELS) -> dict[str, Records]:
    """Build both stores below ``root``, or go on with them; return their records by log.

    Nothing is played twice: the second store begins with the rollouts of the first.

    Raises:
        PivotError: a store cannot be built.
    """
    stores: dict[str, Records] = {}
    for log in LOGS:
        config = suite_config(log, levels)
        if stores:
            _begin_with_rollouts(Store.open(root / LOGS[0]), Store(root / log, make_config(config)))
        build(config, root / log)
        stores[log] = open_records(str(root / log), ALL)
    return stores


def _begin_with_rollouts(source: Store, target: Store) -> None:
    """Leave a store as its build would after the rollouts, unless it was begun before."""
    if target.storage.exists():
        return
    target.write_run()
    for shard in target.config.shards():
        receipt = source.receipt(ROLLOUT, shard)
        if receipt is None:
            continue  # the build plays this shard
        for name in receipt.files:
            target.storage.write_bytes(name, source.storage.read_bytes(name))
        receipt.write(target.storage, target.receipt_file(ROLLOUT, shard))


def suite_choice(pictures: Any = "shown", failures: int = FAILURES) -> Choice:
    """Return which records of a store are the benchmark."""
    return Choice(pictures=pictures, limit=failures, seed=SEED)


def fingerprint(labels: Labels) -> str:
    """Return the digest of the failures and their labels: equal wherever the suite was built right."""
    return digest(sorted([row["episode_id"], row["pivot_step"], row["failure_mode"]] for row in labels.rows), length=16)


def run_suite(
    stores: Mapping[str, Records],
    make_analyzer: Callable[[Mapping[str, Any]], Analyzer],
    choice: Choice,
    *,
    shots: int = 0,
    learned: bool = True,
    name: str = "",
    begin: Callable[[str, int], Callable[[Reading], None]] = lambda _log, _count: lambda _reading: None,
) -> tuple[dict[str, Any], dict[str, Evaluation]]:
    """Evaluate an Analyzer on the suite.

    Args:
        stores: records by log.
        make_analyzer: makes the Analyzer, given the worked examples by environment.
        choice: see :func:`suite_choice`.
        shots: worked examples before every case.
        learned: whether the learned baselines stand beside it.
        name: what tables call the Analyzer.
        begin: is told of each log and how many readings will come; returns who is told of each.

    Returns:
        The summary as JSON data, and the evaluations by log.

    Raises:
        TrainingError: a store holds too few failures; the errors of :func:`evaluate`.
    """
    evaluations, prints = {}, {}
    for log, records in stores.items():
        labels = read_labels(records, choice)
        _check_counts(labels, choice, records)
        prints[log] = fingerprint(labels)
        on_reading = begin(log, len(labels.rows))
        analyzer = make_analyzer(worked_examples(records, shots))
        evaluations[log] = evaluate(
            records, analyzer, choice, learned=learned, name=name, on_reading=on_reading, labels=labels
        )
    if len(set(prints.values())) != 1:
        raise TrainingError(
            f"the logs of the suite hold other failures ({prints}); remove the folder of the suite and build it again"
        )
    some = next(iter(evaluations.values())).summary
    summary = {
        "suite": VERSION,
        "fingerprint": next(iter(prints.values())),
        "name": some["name"],
        "pictures": some["pictures"],
        "shots": shots,
        "failures": choice.limit,
        "analyzer": some["analyzer"],
        "versions": some["versions"],
        "logs": {log: evaluation.summary["environments"] for log, evaluation in evaluations.items()},
    }
    return summary, evaluations


def _check_counts(labels: Labels, choice: Choice, records: Records) -> None:
    for env in labels.environments:
        count = sum(row["env"] == env for row in labels.rows)
        if choice.limit == FAILURES and count < FAILURES:  # a part of it takes what there is
            raise TrainingError(
                f"{records.address} has {count} held-out failures of {env}, the suite needs {FAILURES}; remove the "
                "folder and build it again"
            )


SHOWN = ("pivot exact", "pivot within 1", "mode", "joint", "parsed")
HEADER = ("environment", "log", *(f"{name} %" for name in SHOWN), "majority %", "best on the log alone %", "which")


SCREEN = ("environment", "log", "pivot", "95 %", "mode", "both", "log alone")
"""Header of the same table on a screen of 80 columns, in percent."""


def suite_screen_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of the suite as rows of text for a screen."""
    rows = []
    for log, environments in summary["logs"].items():
        for env, figures in environments.items():
            shares, best = figures["shares"], best_log_only(figures["baselines"])
            exact = shares["pivot exact"]
            alone = figures["baselines"][best]["pivot exact"]["value"] if best else None
            numbers = (exact["value"], shares["mode"]["value"], shares["joint"]["value"], alone)
            pivot, mode, both, log_alone = ("–" if each is None else f"{100 * each:.1f}" for each in numbers)
            spread = f"{100 * exact['low']:.1f}–{100 * exact['high']:.1f}"
            rows.append([env, log, pivot, spread, mode, both, log_alone])
    return sorted(rows, key=lambda row: row[0])


def suite_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the one table of the suite as rows of text; shares of baselines are those of named pivots."""
    rows = []
    for log, environments in summary["logs"].items():
        for env, figures in environments.items():
            best = best_log_only(figures["baselines"])
            table = figures["baselines"]
            rows.append(
                [env, log, *(percent(figures["shares"][name]) for name in SHOWN)]
                + [percent(table[name]["pivot exact"]) if name else "–" for name in ("majority" if table else "", best)]
                + [best or "–"]
            )
    return sorted(rows, key=lambda row: row[0])


def best_log_only(baselines: Mapping[str, Mapping[str, Mapping[str, Any]]], what: str = "pivot exact") -> str:
    """Return the name of the best predictor that sees the log alone; empty where there is none."""
    table = {name: {each: Share(**figures) for each, figures in row.items()} for name, row in baselines.items()}
    return best_of(table, what) if table else ""


def _bars(figures: Mapping[str, Any]) -> dict[str, Mapping[str, float] | None]:
    """Return what the picture shows of an environment: step and mode together, for a step alone says little of svg."""
    best = best_log_only(figures["baselines"], "joint")
    alone = figures["baselines"][best]["joint"] if best else None
    return {"analyzer": figures["shares"]["joint"], "best on the log alone": alone}


def write_suite(root: Path, summary: Mapping[str, Any], evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Write table, JSON, picture and readings to a folder; return the names of the files.

    Raises:
        StoreError: the folder cannot be written. PluginError: matplotlib is not installed.
    """
    storage = open_storage(root)
    title = f"{row_name(summary)}: failure localisation, suite {summary['suite']}"
    bars = {
        log: {env: _bars(figures) for env, figures in environments.items()}
        for log, environments in summary["logs"].items()
    }
    text = [
        f"# {title}",
        f"{summary['failures']} certified failures of held-out levels an environment; {FAILURES} are the benchmark. "
        f"Fingerprint `{summary['fingerprint']}`. In brackets 95 % intervals by bootstrap over levels.",
        markdown(HEADER, suite_rows(summary)),
    ]
    storage.write_bytes(TABLE, ("\n\n".join(text) + "\n").encode())
    storage.write_bytes(PICTURE, suite_chart(title, bars))
    for log, evaluation in evaluations.items():
        storage.write_bytes(f"{log}-{READINGS}", reading_lines(evaluation))
    storage.write_json(SUMMARY, summary)
    return [PICTURE, TABLE, *(f"{log}-{READINGS}" for log in evaluations), SUMMARY]
