"""Which episodes the viewer shows, in which order, and the columns that it lists, filters and searches by.

An episode's number is its place in that order: its page is ``episodes/<thousand>/<number>.json``. The list is stored
by columns, with a dictionary for words that repeat, so that ten thousand rows are read at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...datasets.parts import Members, placed_shards
from ...datasets.schema import EPISODES, LABELS
from ...errors import ConfigError
from .plain import plain

FORMAT = 1
"""Raised when pages of an older version could not be read any more."""

CHUNK = 8
"""Pages that are loaded at once: the rollouts of a level, mostly."""

MOST_GUIDANCE = 1000
"""Characters of guidance that are listed and searched at once; pages have all of it."""

_EPISODE_COLUMNS = [
    *("episode_id", "env", "task_id", "eval_set", "sample_idx", "num_steps", "horizon", "episode_return"),
    *("status", "failed", "stop_reason", "policy", "instruction"),
]
_LABEL_COLUMNS = ["episode_id", "pivot_step", "failure_mode", "accepted", "proved", "failure_reason"]
_WORDS = ("env", "task", "set", "outcome", "stop", "policy", "instruction", "mode")
"""Columns that hold places in a dictionary."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which episodes are shown."""

    environments: tuple[str, ...] = ()
    """Names; empty for all."""
    failures_only: bool = False
    limit: int | None = None
    """The first so many of each environment; None for all."""
    draw_plans: bool = False
    """Whether plans are also drawn where a picture takes milliseconds."""


@dataclass(slots=True)
class Contents:
    """The list of episodes, and where each of them is stored."""

    record: dict[str, Any]
    """What the viewer reads."""
    places: list[tuple[int, int]] = field(repr=False)
    """For each episode the number of its shard among those of all parts, and of its row there."""

    def of_shard(self, number: int) -> list[tuple[int, int]]:
        """Return number and row of the episodes of one shard."""
        return [(index, row) for index, (shard, row) in enumerate(self.places) if shard == number]


def page_name(number: int) -> str:
    """Return the path of an episode's page, without what kind of file it is."""
    return f"episodes/{number // 1000}/{number}"


def chunk_name(chunk: int) -> str:
    """Return the path of the script that holds the pages from ``chunk * CHUNK`` on."""
    return f"pages/{chunk * CHUNK // 1000}/{chunk}"


def contents(members: Members, selection: Selection) -> Contents:
    """List the selected episodes of a store with all its parts.

    Raises:
        ConfigError: the store has no such environment; StoreError: a file is missing or torn.
    """
    first, held = members[""], {name: None for each in members.values() for name in each.config.environments}
    missing = [name for name in selection.environments if name not in held]
    if missing:
        raise ConfigError(f"{first.root} holds no environment {missing[0]!r}; it holds: {', '.join(held)}")
    rows: list[dict[str, Any]] = []
    places: list[tuple[int, int]] = []
    counts: dict[str, int] = {}
    total = 0
    for number, (store, shard) in enumerate(placed_shards(members)):
        if selection.environments and shard.env not in selection.environments:
            total += store.read(EPISODES, shard, ["episode_id"]).num_rows
            continue
        episodes = store.read(EPISODES, shard, _EPISODE_COLUMNS).to_pylist()
        total += len(episodes)
        labels = {row["episode_id"]: row for row in store.read(LABELS, shard, _LABEL_COLUMNS).to_pylist()}
        for row, episode in _selected(episodes, selection):
            counts[shard.env] = counts.get(shard.env, 0) + 1
            if selection.limit is not None and counts[shard.env] > selection.limit:
                break
            rows.append(_row(episode, labels.get(episode["episode_id"])))
            places.append((number, row))
    columns, words = _columns(rows)
    record = {"format": FORMAT, "run_id": first.stored_run_id, "stored": total, "chunk": CHUNK, "count": len(rows)}
    return Contents(record | {"words": words, "columns": columns}, places)


def _selected(episodes: Sequence[dict[str, Any]], selection: Selection) -> Iterator[tuple[int, dict[str, Any]]]:
    for row, episode in enumerate(episodes):
        if episode["failed"] or not selection.failures_only:
            yield row, episode


def outcome(episode: dict[str, Any]) -> str:
    """Return in one word how an episode ended."""
    if episode["status"] != "complete":
        return str(episode["status"])
    return "failed" if episode["failed"] else "solved"


def _row(episode: dict[str, Any], label: dict[str, Any] | None) -> dict[str, Any]:
    label = label or dict.fromkeys(_LABEL_COLUMNS)
    return {
        "id": episode["episode_id"],
        "env": episode["env"],
        "task": episode["task_id"],
        "set": episode["eval_set"],
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
        "accepted": label["accepted"],
        "proved": label["proved"],
        "guidance": (label["failure_reason"] or "")[:MOST_GUIDANCE],
    }


_NAMES = tuple(_row(dict.fromkeys(_EPISODE_COLUMNS) | {"status": ""}, None))


def _columns(rows: list[dict[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
    columns = {name: [row[name] for row in rows] for name in _NAMES}
    words: dict[str, list[str]] = {}
    for name in _WORDS:
        code: dict[str, int] = {}
        columns[name] = [code.setdefault(word, len(code)) for word in columns[name]]
        words[name] = list(code)
    return columns, words
