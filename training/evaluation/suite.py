"""The fixed benchmark of failure localisation: certified failures of five environments, made from seeds.

Nothing is downloaded: levels come from seeds, rollouts from the scripted policy, labels from the solvers, so everyone
builds the same failures. Every environment has 500 failures of held-out levels, with two kinds of log: the full log,
from which arithmetic finds the pivot in three of the five, and the actions alone, so that the picture is needed. The
other half of the levels is for worked examples and for fitting the baselines.
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
"""Version of the benchmark, raised with every change of the failures."""

SEED = 20_270
"""Seed of levels and rollouts."""

FAILURES = 500
"""Number of failures per environment."""

LEVELS: Mapping[str, int] = {"sokoban": 220, "frozenlake": 220, "navigation": 280, "primitiveskill": 180, "svg": 240}
"""Number of levels per environment, with eight rollouts each: about 600 failures in each split."""

LOGS = ("full", "actions")
"""Kinds of log (spec section 4)."""

SUMMARY, TABLE, PICTURE = "suite.json", "suite.md", "suite.png"

Build = Callable[[Mapping[str, Any], Path], Any]
"""Builds a store from a config, or resumes its build."""


def suite_config(log: str, levels: Mapping[str, int] = LEVELS) -> dict[str, Any]:
    """Return the config of the suite's store with one kind of log."""
    return {
        "environments": {env: {"tasks": tasks, "settings": {}} for env, tasks in levels.items()},
        "seed": SEED,
        "validation_fraction": 0.5,
        "log": log,
    }


def build_suite(root: Path, build: Build, levels: Mapping[str, int] = LEVELS) -> dict[str, Records]:
    """Build both stores below ``root``, or resume their builds; return their records by log.

    The second store reuses the rollouts of the first.

    Raises:
        PivotError: a store cannot be built.
    """
    stores: dict[str, Records] = {}
    for log in LOGS:
        config = suite_config(log, levels)
        if stores:
            _copy_rollouts(Store.open(root / LOGS[0]), Store(root / log, make_config(config)))
        build(config, root / log)
        stores[log] = open_records(str(root / log), ALL)
    return stores


def _copy_rollouts(source: Store, target: Store) -> None:
    """Make a store with the rollouts of ``source``, as a build that stopped after them, unless the store exists."""
    if target.storage.exists():
        return
    target.write_run()
    for shard in target.config.shards():
        receipt = source.receipt(ROLLOUT, shard)
        if receipt is None:
            continue  # the build rolls out this shard
        for name in receipt.files:
            target.storage.write_bytes(name, source.storage.read_bytes(name))
        receipt.write(target.storage, target.receipt_file(ROLLOUT, shard))


def suite_choice(pictures: Any = "shown", failures: int = FAILURES) -> Choice:
    """Return the selection of records that are the benchmark."""
    return Choice(pictures=pictures, limit=failures, seed=SEED)


def fingerprint(labels: Labels) -> str:
    """Return the digest of the failures and their labels, which is equal for every correct build of the suite."""
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
        choice: result of :func:`suite_choice`.
        shots: number of worked examples in front of every case.
        learned: whether the learned baselines are fitted, too.
        name: name of the Analyzer in tables.
        begin: receives the name of each log and the number of its readings; returns a function that receives each.

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
            f"the two logs of the suite have different failures ({prints}); remove the suite's folder and build it "
            "again"
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
        if choice.limit == FAILURES and count < FAILURES:  # a smaller trial uses all failures that there are
            raise TrainingError(
                f"{records.address} has {count} held-out failures of {env}, the suite needs {FAILURES}; remove the "
                "folder and build it again"
            )


SHOWN = ("pivot exact", "pivot within 1", "mode", "joint", "parsed")
HEADER = ("environment", "log", *(f"{name} %" for name in SHOWN), "majority %", "best on the log alone %", "which")


SCREEN = ("environment", "log", "pivot", "95 %", "mode", "both", "log alone")
"""Header of the table on a screen of 80 columns, in percent."""


def suite_screen_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of the suite as rows of text for :data:`SCREEN`."""
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
    """Return the table of the suite as rows of text; shares of baselines are those of exact pivots."""
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
    """Return the name of the best baseline; empty if there is none."""
    table = {name: {each: Share(**figures) for each, figures in row.items()} for name, row in baselines.items()}
    return best_of(table, what) if table else ""


def _bars(figures: Mapping[str, Any]) -> dict[str, Mapping[str, float] | None]:
    """Return the bars of an environment: step and mode together, because the step alone is almost constant in svg."""
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
        f"{summary['failures']} certified failures of held-out levels per environment; the benchmark has {FAILURES}. "
        f"Fingerprint `{summary['fingerprint']}`. In brackets 95 % intervals by bootstrap over levels.",
        markdown(HEADER, suite_rows(summary)),
    ]
    storage.write_bytes(TABLE, ("\n\n".join(text) + "\n").encode())
    storage.write_bytes(PICTURE, suite_chart(title, bars))
    for log, evaluation in evaluations.items():
        storage.write_bytes(f"{log}-{READINGS}", reading_lines(evaluation))
    storage.write_json(SUMMARY, summary)
    return [PICTURE, TABLE, *(f"{log}-{READINGS}" for log in evaluations), SUMMARY]
