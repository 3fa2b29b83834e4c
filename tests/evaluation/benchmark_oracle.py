"""Independent scorer of the benchmark: plain Python on the files alone, nothing of ``pivot.training``."""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from PIL import Image

Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    """The lines of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def fingerprint_of(benchmark: Path) -> str:
    """The fingerprint of a folder, from its files and the pixels of its pictures."""

    def without_canary(row: Row) -> Row:
        return {name: value for name, value in row.items() if name != "canary"}

    rows: list[list[Any]] = [["variant", {"images": "collage", "max_pictures": None, "thoughts": False}]]
    for item in rows_of(benchmark / "items.jsonl"):
        seen = []
        for name in item["pictures"]:
            with Image.open(benchmark / name) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            seen.append(hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest()[:32])
        rows.append(["item", without_canary({**item, "pixels": seen})])
    rows += [["example", row["item"], row["reply"]] for row in rows_of(benchmark / "shots.jsonl")]

    def digest(value: Any) -> str:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def lines(rows: Any) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True) for row in rows)

    secret = json.loads((benchmark / "private/secret.json").read_text(encoding="utf-8"))["secret"]
    truths = lines(without_canary(truth) for truth in rows_of(benchmark / "private/answers.jsonl"))
    return digest([digest(lines(rows)), secret, truths])


def strict_answer(reply: str, item: Row) -> Any:
    """The answer of a reply that is one JSON object; None for any other text. A pivot comes as a tuple."""
    text = reply.rsplit("</think>", 1)[-1].strip()
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    if item["question"] in ("twin", "locate"):
        if not {"pivot_step", "failure_mode"} <= set(value) <= {"pivot_step", "failure_mode", "failure_reason"}:
            return None
        step, mode = value["pivot_step"], value["failure_mode"]
        if step is None and mode is None:
            return (None, None)
        fits = type(step) is int and 0 <= step < len(item["actions"]) and mode in item["choices"]
        return (step, mode) if fits else None
    return _other_answer(value, item)


def _other_answer(value: Row, item: Row) -> Any:
    if item["question"] == "safe":
        named: Any = value.get("safe_actions") if set(value) == {"safe_actions"} else None
        fits = isinstance(named, list) and set(named) <= set(item["choices"]) and len(set(named)) == len(named)
        return set(named) if fits else None
    reach: Any = value.get("reach")
    fits = isinstance(reach, list) and len(reach) == len(item["actions"])
    return reach if fits and all(type(each) in (int, float) and 0 <= each <= 1 for each in reach) else None


def mean_and_bounds(per_level: dict[str, list[Row]], figure: Any) -> Any:
    """A figure of all records, and Wilson's bounds with the variance that leaving out one level at a time gives."""
    levels = list(per_level)
    value = figure([record for level in levels for record in per_level[level]])
    if len(levels) < 3:
        return value, 0.0, 1.0
    without = [
        figure([record for other in levels if other != level for record in per_level[other]]) for level in levels
    ]
    centre = math.fsum(without) / len(levels)
    squares = [(each - centre) ** 2 * (len(levels) - 1) / len(levels) for each in without]
    variance, records = math.fsum(squares), sum(map(len, per_level.values()))
    if value * (1 - value) < 1e-12:
        worth, wide = len(levels), 1.959963984540054
    else:
        sums = [figure(some) * len(some) for some in per_level.values()]
        whole = figure not in (macro_f1, brier, reliability) and all(each == round(each) for each in sums)
        worth = value * (1 - value) / variance if variance else len(levels)
        worth = min(records, worth) if whole else worth
        spread = math.fsum(each**2 for each in squares) - variance**2 / len(levels)
        uneven = spread > 1e-9 * math.fsum(each**2 for each in squares)
        freedom = min(len(levels) - 1, max(4.0, 2 * variance**2 / spread)) if uneven else len(levels) - 1
        wide = float(scipy.stats.t.ppf(0.975, freedom))
    root = wide * math.sqrt(value * (1 - value) / worth + wide**2 / (4 * worth**2))
    low, high = ((value + wide**2 / (2 * worth) + side * root) / (1 + wide**2 / worth) for side in (-1, 1))
    return value, max(0.0, low), min(1.0, high)


def mean(field: str) -> Any:
    """The mean of a field."""
    return lambda records: math.fsum(record[field] for record in records) / len(records)


def macro_f1(records: Sequence[Row]) -> float:
    """The mean F1 of the true modes."""
    scores: list[float] = []
    for mode in sorted({record["true"] for record in records}):
        hits = sum(record["true"] == record["named"] == mode for record in records)
        scores.append(2 * hits / sum((record["true"] == mode) + (record["named"] == mode) for record in records))
    return math.fsum(scores) / len(scores)


def brier(records: Sequence[Row]) -> float:
    """One minus the mean squared error over turns."""
    errors: list[float] = []
    for record in records:
        chances = record["reach"] or [not reached for reached in record["reached"]]
        errors += [(chance - reached) ** 2 for chance, reached in zip(chances, record["reached"], strict=True)]
    return 1 - math.fsum(errors) / len(errors)


def reliability(records: Sequence[Row]) -> float:
    """One minus the expected calibration error over turns."""
    turns, missing, bins = 0, 0, [0.0] * 10
    for record in records:
        turns += len(record["reached"])
        if record["reach"] is None:
            missing += len(record["reached"])
            continue
        for chance, reached in zip(record["reach"], record["reached"], strict=True):
            bins[min(int(chance * 10), 9)] += chance - reached
    return 1 - (math.fsum(map(abs, bins)) + missing) / turns


def rank_correlation(values: Sequence[float], needs: Sequence[float]) -> float:
    """Pearson's correlation of mean ranks; 0 if one of the two has a single value."""

    def ranks(numbers: Sequence[float]) -> list[float]:
        return [sum(b < a for b in numbers) + (sum(b == a for b in numbers) + 1) / 2 for a in numbers]

    first, second = ranks(values), ranks([-need for need in needs])
    centre = (len(values) + 1) / 2
    top = math.fsum((a - centre) * (b - centre) for a, b in zip(first, second, strict=True))
    scale = math.sqrt(math.fsum((a - centre) ** 2 for a in first) * math.fsum((b - centre) ** 2 for b in second))
    return top / scale if scale else 0.0


def figures(benchmark: Path, predictions: Path) -> dict[tuple[str, str, str, str], tuple[float, float, float]]:
    """Every figure by the strict reader: task, environment, log and name to value and bounds."""
    items = {row["item_id"]: row for row in rows_of(benchmark / "items.jsonl")}
    truths = {row["item_id"]: row for row in rows_of(benchmark / "private/answers.jsonl")}
    _, *rows = rows_of(predictions)
    groups: dict[tuple[str, str, str], list[Row]] = {}
    rows_by_id = {row["id"]: row for row in rows}
    for name, item in items.items():
        if name not in rows_by_id:
            continue
        row, truth = rows_by_id[name], truths[name]
        record = _record(item, truth, row)
        for task in ("pivot", "mode") if item["question"] == "locate" else (item["question"],):
            if task != "mode" or truth["pivot_step"] is not None:
                groups.setdefault((task, item["env"], item["log"]), []).append(record)
    made: dict[tuple[str, str, str, str], tuple[float, float, float]] = {}
    for (task, env, log), records in [*groups.items()]:
        if task == "twin":
            pairs: dict[str, list[Row]] = {}
            for record in records:
                pairs.setdefault(record["level"], []).append(record)
            both = {pair: [{"right": all(each["right"] for each in some)}] for pair, some in pairs.items()}
            made[task, env, log, "pairs"] = mean_and_bounds(both, mean("right"))
            made[task, env, log, "items"] = mean_and_bounds(pairs, mean("right"))
            continue
        for name, figure, kept in _figures(task, records):
            per_level: dict[str, list[Row]] = {}
            for record in kept:
                per_level.setdefault(record["level"], []).append(record)
            if kept and name == "need":  # from -1 to 1
                halved = mean_and_bounds(per_level, lambda some, figure=figure: (1 + figure(some)) / 2)
                made[task, env, log, name] = tuple(2 * each - 1 for each in halved)
            elif kept:
                made[task, env, log, name] = mean_and_bounds(per_level, figure)
    return made


def _figures(task: str, records: list[Row]) -> list[tuple[str, Any, list[Row]]]:
    lost = [record for record in records if record["lost"]]
    if task == "pivot":
        never = [record for record in records if not record["lost"]]
        columns = [("correct", "right", records), ("failures", "right", lost), ("within 1", "near", lost)]
        columns.append(("both", "both", records))
        return [(name, mean(field), kept) for name, field, kept in [*columns, ("no error", "right", never)]]
    if task == "mode":
        return [("correct", mean("mode right"), records), ("macro-F1", macro_f1, records)]
    if task == "safe":
        return [("correct", mean("safe"), records), ("overlap", mean("overlap"), records)]
    several = [record for record in lost if len(record["reached"]) > 1]
    ranked = [record for record in records if record["need"] is not None]
    columns = [("top-1", mean("top"), lost), ("AUC", mean("area"), several), ("need", mean("need"), ranked)]
    return [*columns, ("Brier", brier, records), ("reliability", reliability, records)]


def _record(item: Row, truth: Row, row: Row) -> Row:
    answer: Any = strict_answer(row.get("reply") or "", item) if row.get("status", "answered") == "answered" else None
    record: Row = {
        "level": truth["pair"] or truth["level"],
        "lost": truth["pivot_step"] is not None,
        "true": truth["failure_mode"],
    }
    if item["question"] in ("twin", "locate"):
        step, mode = answer if answer is not None else ("nothing", "nothing")
        near = type(step) is int and record["lost"] and abs(step - truth["pivot_step"]) <= 1
        record |= {"right": step == truth["pivot_step"], "near": near, "named": mode}
        record["mode right"] = mode == truth["failure_mode"]
        record["both"] = record["right"] and record["mode right"]
        return record
    if item["question"] == "safe":
        mine, true = answer or set(), set(truth["safe_actions"])
        return record | {"safe": mine == true, "overlap": len(mine & true) / len(mine | true)}
    reach: Any = answer
    credit, value = row.get("credit"), row.get("value")
    if credit is not None:
        reach = row.get("reach")
        value = np.cumsum(credit).tolist() if value is None else value
    elif reach is not None:
        credit, value = [after - before for before, after in zip([1.0, *reach], reach, strict=False)], reach
    needs = [item["horizon"] + 1 if need is None else need for need in truth["need"]]
    record |= {"reach": reach, "reached": truth["within_reach"], "top": 0.0, "area": 0.0, "need": -1.0}
    if credit is not None:
        pivot = truth["pivot_step"]
        if record["lost"]:
            lowest = [turn for turn, each in enumerate(credit) if each == min(credit)]
            record["top"] = 1 / len(lowest) if pivot in lowest else 0.0
            others = [each for turn, each in enumerate(credit) if turn != pivot]
            if others:
                record["area"] = sum((each > credit[pivot]) + (each == credit[pivot]) / 2 for each in others) / len(
                    others
                )
        record["need"] = rank_correlation(value or [], needs)
    if len(set(needs)) < 2:
        record["need"] = None
    return record
