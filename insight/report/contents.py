"""The viewer's list of episodes, with the columns for listing, filtering and searching.

An episode's number is its index in that order: its page is ``episodes/<thousand>/<number>.json``. The list is stored
by columns, with a dictionary for words that repeat, so that ten thousand rows are read at once.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.storage import Address
from ...datasets.store.config import Shard
from ...datasets.store.dataset_rows import dataset_file
from ...datasets.store.nights import Nights, environments_of, placed_shards, unfinished_state
from ...datasets.store.parquet import read_table
from ...datasets.store.schema import DATASET_EPISODES, EPISODES, LABELS
from ...datasets.store.splits import SIDES
from ...datasets.store.store import DATASET_FOLDER, Store
from ..top import instructive, reasons
from .plain import plain

FORMAT = 2
"""Raised when pages of an older version could not be read any more."""

CHUNK = 8
"""Pages that are loaded at once: the rollouts of a level, mostly."""

TOP = 9
"""Failures of the first page."""

MOST_GUIDANCE = 1000
"""Maximum number of characters of guidance in the list and its search; pages have the whole text."""

_EPISODE_COLUMNS = [
    *("episode_id", "env", "task_id", "eval_set", "sample_idx", "num_steps", "horizon", "episode_return"),
    *("status", "failed", "stop_reason", "policy", "instruction"),
]
_LABEL_COLUMNS = [
    *("episode_id", "pivot_step", "failure_mode", "accepted", "proved", "failure_reason", "certificate", "teacher"),
    "reject_reasons",
]
_WORDS = ("env", "task", "set", "split", "outcome", "stop", "policy", "writer", "reasons", "instruction", "mode")
"""Columns that hold indices into a dictionary."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The episodes to show."""

    environments: tuple[str, ...] = ()
    """Names; empty for all."""
    failures_only: bool = False
    limit: int | None = None
    """Maximum number of episodes per environment, the first ones; None for all."""


@dataclass(slots=True)
class Contents:
    """The list of episodes with the place of each in the store."""

    record: dict[str, Any]
    """The file ``contents.json``."""
    places: list[tuple[int, int]] = field(repr=False)
    """For each episode the number of its shard among the shards of all stores, and of its row there."""


def page_name(number: int) -> str:
    """Return the path of an episode's page without its suffix."""
    return f"episodes/{number // 1000}/{number}"


def chunk_name(chunk: int) -> str:
    """Return the path of the script that holds the pages from ``chunk * CHUNK`` on, without its suffix."""
    return f"pages/{chunk * CHUNK // 1000}/{chunk}"


def contents(root: Address, nights: Nights, selection: Selection) -> Contents:
    """List the selected episodes of a store or of a folder of nights.

    Raises:
        ConfigError: the store has no such environment.
        StoreError: a file is missing or torn.
    """
    environments = environments_of(nights)
    missing = [name for name in selection.environments if name not in environments]
    if missing:
        raise ConfigError(f"{root} holds no environment {missing[0]!r}; it holds: {', '.join(environments)}")
    rows: list[dict[str, Any]] = []
    places: list[tuple[int, int]] = []
    counts: dict[str, int] = {}
    total = 0
    for number, (store, shard) in enumerate(placed_shards(nights)):
        if selection.environments and shard.env not in selection.environments:
            total += store.read(EPISODES, shard, ["episode_id"]).num_rows
            continue
        episodes = store.read(EPISODES, shard, _EPISODE_COLUMNS).to_pylist()
        total += len(episodes)
        labels = {row["episode_id"]: row for row in store.read(LABELS, shard, _LABEL_COLUMNS).to_pylist()}
        splits = _splits(store, shard)
        for row, episode in enumerate(episodes):
            if selection.failures_only and not episode["failed"]:
                continue
            counts[shard.env] = counts.get(shard.env, 0) + 1
            if selection.limit is not None and counts[shard.env] > selection.limit:
                break
            name = episode["episode_id"]
            rows.append(_row(episode, labels.get(name), splits.get(name, "")))
            places.append((number, row))
    columns, words = _columns(rows)
    numbers = {(row["id"], row["pivot"]): number for number, row in enumerate(rows)}
    listed = None if selection.limit is None else [row["id"] for row in rows]
    best = instructive(root, TOP, selection.environments, listed)
    top = {(row["episode_id"], row["pivot_step"]): reasons(row) for row in best}
    record = {
        "format": FORMAT,
        "name": _folder(root),
        "run_id": next(iter(nights.values())).stored_run_id,
        "stored": total,
        "unfinished": unfinished_state(next(iter(nights.values()))),
        "chunk": CHUNK,
        "top": [{"number": numbers[key], "why": why} for key, why in top.items() if key in numbers],
    }
    return Contents(record | {"count": len(rows), "words": words, "columns": columns}, places)


def _folder(root: Address) -> str:
    """Return the name of a store's folder."""
    return (root.resolve() if isinstance(root, Path) else root).name


def _splits(store: Store, shard: Shard) -> dict[str, str]:
    """Return the split of every episode of a shard that is in the dataset: ``train`` or ``validation``."""
    files = {side: dataset_file(DATASET_FOLDER, DATASET_EPISODES, shard, side) for side in SIDES}
    listed = store.listed
    return {
        name: side
        for side, file in files.items()
        if file in listed
        for name in read_table(store.storage, file, DATASET_EPISODES, ["episode_id"])["episode_id"].to_pylist()
    }


def outcome(episode: dict[str, Any]) -> str:
    """Return the end of an episode in one word."""
    if episode["status"] != "complete":
        return str(episode["status"])
    return "failed" if episode["failed"] else "solved"


def _row(episode: dict[str, Any], label: dict[str, Any] | None, split: str) -> dict[str, Any]:
    label = label or dict.fromkeys(_LABEL_COLUMNS)
    return {
        "id": episode["episode_id"],
        "env": episode["env"],
        "task": episode["task_id"],
        "set": episode["eval_set"] or "",
        "split": split,
        "sample": episode["sample_idx"],
        "steps": episode["num_steps"],
        "horizon": episode["horizon"],
        "return": round(plain(episode["episode_return"]) or 0.0, 4),
        "outcome": outcome(episode),
        "stop": episode["stop_reason"] or "",
        "policy": episode["policy"],
        "instruction": episode["instruction"],
        "mode": label["failure_mode"] or "",
        "pivot": label["pivot_step"],
        "slack": _slack(label["certificate"]),
        "accepted": label["accepted"],
        "proved": label["proved"],
        "reasons": "\n".join(
            dict.fromkeys(f"{each['name']}: {each['kind']}" for each in label["reject_reasons"] or ())
        ),
        "writer": label["teacher"] or "",
        "guidance": (label["failure_reason"] or "")[:MOST_GUIDANCE],
    }


def _slack(certificate: dict[str, Any] | None) -> float | None:
    """Return the budget minus the need before the pivot action, as the view ``pivots`` does."""
    if certificate is None or certificate["unit"] == "score" or certificate["before"] is None:
        return None
    slack = plain(certificate["budget_before"] - certificate["before"])
    return None if slack is None else round(slack, 2)


_NAMES = tuple(_row(dict.fromkeys(_EPISODE_COLUMNS) | {"status": ""}, None, ""))


def _columns(rows: list[dict[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
    columns = {name: [row[name] for row in rows] for name in _NAMES}
    words: dict[str, list[str]] = {}
    for name in _WORDS:
        code: dict[str, int] = {}
        columns[name] = [code.setdefault(word, len(code)) for word in columns[name]]
        words[name] = list(code)
    return columns, words
