"""Items from one's own dataset: the labelled failures of a split, in the dataset's own prompts and label names.

They are items of a benchmark, so that the same runner asks about them and the same figures, table and chart follow.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.errors import ImageError, TrainingError
from ...core.identity import digest
from ...core.images import container_format, decode
from ...core.progress import Reporter
from ...core.storage import Storage, open_storage
from ...datasets.export.predictors import LoggedFailure
from ...datasets.store.config import versions
from ...datasets.store.splits import TRAIN, VALIDATION
from ...labeling.action_log import action_log
from ...labeling.target import parse_target
from ..analyzer import case_of_record
from ..records import LABEL_COLUMNS, SHOWN_COLUMNS, Records, target_text
from .baselines import SILENT, measure_baselines
from .boosted_trees import Fitting
from .config import RecordChoice
from .items import (
    EXAMPLES,
    LOGS,
    PICTURES,
    SUMMARY,
    VERSION,
    Benchmark,
    Example,
    Item,
    Truth,
    canonical_level,
    is_benchmark,
    pixels_digest,
    write_benchmark,
)

Row = dict[str, Any]
OTHER_SIDE = {TRAIN: VALIDATION, VALIDATION: TRAIN}


def chosen_rows(records: Records, config: RecordChoice) -> tuple[list[Row], list[Row]]:
    """Return the labels of a selection, and those of the other split, on which baselines are fitted.

    Raises:
        TrainingError: the selection is empty, or a row is invalid.
    """
    rows, others = (
        [
            row
            for row in records.rows(side, LABEL_COLUMNS)
            if not config.full_length or row["num_steps"] == row["horizon"]
        ]
        for side in (config.side, OTHER_SIDE[config.side])
    )
    if not rows:
        kept = " that used every turn" if config.full_length else ""
        raise TrainingError(
            f"{records.address} has no {config.side} record of config {records.config!r}{kept}; build more levels, "
            "or choose another --env or --side"
        )
    if config.limit is not None:
        rows.sort(key=lambda row: hashlib.sha256(row["episode_id"].encode()).hexdigest())
        rows = [row for env in sorted({row["env"] for row in rows}) for row in _of(env, rows)[: config.limit]]
    return rows, others


def _of(env: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["env"] == env]


def fitting_of(row: Row) -> Fitting:
    """Return a labelled failure as training data of the baselines, with the mode's name in the target."""
    logged = LoggedFailure.of_record(row)
    return Fitting(replace(logged, failure_mode=parse_target(target_text(row)).failure_mode))


def items_of_dataset(records: Records, config: RecordChoice, root: Path, reporter: Reporter = SILENT) -> Benchmark:
    """Write the items of a selection, their pictures and the results of the baselines to a folder.

    The baselines are kept if the folder holds the same items already.

    Args:
        records: the dataset, in the label names of the Analyzer.
        config: the selection, and whether the boosted trees are fitted, too.
        root: folder of the items.
        reporter: receives the progress.

    Raises:
        TrainingError: the dataset cannot be used. PluginError: scikit-learn or an environment is not installed.
    """
    rows, others = chosen_rows(records, config)
    labels, storage = {row["episode_id"]: row for row in rows}, open_storage(root)
    reporter.start("items", len(labels))
    items: list[Item] = []
    truths: list[Truth] = []
    for shown in records.rows(config.side, SHOWN_COLUMNS):
        if (row := labels.get(shown["episode_id"])) is not None:
            items.append(_item(row, shown, storage))
            target = parse_target(target_text(row))
            truths.append(Truth(items[-1].item_id, canonical_level(row), target.pivot_step, target.failure_mode))
            reporter.advance("items", 1)
    if len(items) != len(rows):
        raise TrainingError(f"{records.address} changed while it was read; run the same command again")
    levels = {truth.level for truth in truths}
    elsewhere = {canonical_level(row) for row in {(row["env"], row["initial_state"]): row for row in others}.values()}
    counts = {env: len(_of(env, rows)) for env in sorted({row["env"] for row in rows})}
    fitted_on = [[row["episode_id"], row["action_log"], target_text(row)] for row in others]
    facts = {
        "version": VERSION,
        "items": counts,
        "versions": versions(),
        "source": {"dataset": records.address, "config": records.config}
        | config.model_dump(include={"side", "full_length", "limit"}),
        "levels_on_both_sides": len(levels & elsewhere),
        "baselines": digest([config.learned, fitted_on]),
    }

    def measure(benchmark: Benchmark) -> list[dict[str, Any]]:
        if is_benchmark(root):
            earlier = storage.read_json(SUMMARY)
            if all(earlier.get(name) == benchmark.facts[name] for name in ("fingerprint", "baselines")):
                return benchmark.baselines()
        fitting = {env: [fitting_of(row) for row in _of(env, others)] for env in counts}
        return measure_baselines(benchmark, lambda env, _: fitting[env], learned=config.learned, reporter=reporter)

    examples = _examples(records, OTHER_SIDE[config.side], others, storage)
    return write_benchmark(root, facts, items, truths, examples, measure)


def _item(row: Row, shown: Row, storage: Storage) -> Item:
    """Return the item of a record, and write its picture."""
    case, name = case_of_record(shown), row["episode_id"]
    parts = [part for message in case.messages for part in message["content"]]
    if len(case.messages) != 1 or [part["type"] for part in parts] != ["image", "text"]:
        raise TrainingError(
            f"record {name}: found a prompt of {len(case.messages)} messages and {len(parts)} parts, expected one "
            "message with a picture and a text; build the dataset again"
        )
    data = shown["images"][0]["bytes"]
    try:
        pixels = pixels_digest(decode(data))
    except ImageError as error:
        raise TrainingError(f"record {name}: its picture cannot be read ({error}); build the dataset again") from error
    picture = f"{PICTURES}/{pixels}.{container_format(data).lower()}"
    if storage.stat(picture) is None:
        storage.write_bytes(picture, data)
    is_bare = row["action_log"] == action_log((), row["actions"], [{}] * row["num_steps"])
    log = LOGS[1] if is_bare else LOGS[0]
    return Item(
        item_id=f"locate/{log}/{row['env']}/{name}",
        question="locate",
        env=row["env"],
        log=log,
        horizon=row["horizon"],
        actions=tuple(row["actions"]),
        action_log=row["action_log"],
        step=None,
        choices=case.modes,
        prompt=parts[1]["text"],
        pictures=(picture,),
        pixels=(pixels,),
    )


def _examples(records: Records, side: str, labels: Sequence[Row], storage: Storage) -> list[Example]:
    """Return the first records of each environment of the other split, of different levels, as worked examples."""
    chosen: dict[str, Row] = {}
    levels: dict[str, set[str]] = {}
    for row in labels:
        mine, level = levels.setdefault(row["env"], set()), canonical_level(row)
        if len(mine) < EXAMPLES and level not in mine:
            mine.add(level)
            chosen[row["episode_id"]] = row
    examples: list[Example] = []
    for shown in records.rows(side, SHOWN_COLUMNS):
        if (row := chosen.get(shown["episode_id"])) is not None:
            examples.append(Example(_item(row, shown, storage), target_text(row)))
            if len(examples) == len(chosen):
                break
    return examples
