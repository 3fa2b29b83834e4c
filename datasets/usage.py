"""What the models of a store took: requests, tries, tokens and cost by role, summed from the stored ``calls``.

Every request that was sent for what the store holds is counted, also those that were not answered and those of
episodes and labels that had to be made again. An answer from the call cache costs nothing, unless this store paid for
it: then the run that did so was ended before it could store it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import polars as pl

from ..messages import Call
from .store import Store


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over the calls of one role."""

    role: str
    requests: int
    unanswered: int
    """That came to nothing; what they belong to is owed."""
    cached: int
    """Answered by the call cache and paid for by another store: no try, no cost."""
    tries: int
    """What was sent for the others."""
    prompt_tokens: int
    """Of the requests that were sent and whose server counts tokens."""
    completion_tokens: int
    cost: float | None
    """In whatever currency the prices were given; None without prices."""


USAGE_HEADER = ("role", "requests", "unanswered", "from cache", "tries", "prompt tokens", "reply tokens", "cost")


def calls_in_all(before: Iterable[Call], after: Iterable[Call], owed: Collection[str]) -> list[Call]:
    """Return the calls of a shard whose ``owed`` episodes were made again: what was sent for them before counts, too.

    A request of before that has no counterpart now is counted with the last one of its episode, or stays.
    """
    earlier = {call.request_id: call for call in before if call.episode_id in owed}
    others = [call for call in before if call.episode_id not in owed]
    fresh = [call.after(earlier.pop(call.request_id)) if call.request_id in earlier else call for call in after]
    last = {call.episode_id: place for place, call in enumerate(fresh)}
    for call in earlier.values():
        place = last.get(call.episode_id)
        if place is None:
            others.append(call)
        else:
            fresh[place] = fresh[place].after(call)
    return others + fresh


def model_usage(store: Store) -> list[Usage]:
    """Return the usage of every role that a model played, sorted; nothing for embedded stand-ins."""
    sent, lost = pl.col("cache_hit").not_(), pl.col("answered").eq(False).fill_null(False)
    rows = (
        store.lazy()
        .calls.filter(pl.col("prompt_tokens").is_not_null() | pl.col("model_revision").is_not_null() | lost)
        .group_by("role")
        .agg(
            pl.len().alias("requests"),
            lost.sum().alias("unanswered"),
            pl.col("cache_hit").sum().alias("cached"),
            pl.col("attempts").filter(sent).sum().alias("tries"),
            pl.col("prompt_tokens").filter(sent).sum(),
            pl.col("completion_tokens").filter(sent).sum(),
            pl.col("cost").sum(),
            pl.col("cost").filter(sent).count().alias("priced"),
        )
        .sort("role")
        .collect()
    )
    return [
        Usage(**{name: value for name, value in row.items() if name not in ("priced", "cost")}, cost=_cost(row))
        for row in rows.to_dicts()
    ]


def left_out(store: Store) -> list[str]:
    """Say which fields requests were sent without because their server refuses them, a sentence for each."""
    if store.run.policy().is_stand_in and store.run.writer().is_stand_in:
        return []  # nobody was asked, and the calls of a large store take seconds to read
    calls = store.lazy().calls.filter(pl.col("answered").fill_null(True)).select("role", "left_out")
    without = calls.filter(pl.col("left_out").list.len() > 0).explode("left_out")
    rows = (
        without.group_by("role", "left_out")
        .agg(pl.len().alias("without"))
        .join(calls.group_by("role").agg(pl.len().alias("all")), on="role")
        .sort("role", "left_out")
        .collect(engine="streaming")
    )
    return [
        f"{row['without']} of {row['all']} requests of the {_ROLES.get(row['role'], row['role'])} went without "
        f"{row['left_out']}{_LOST.get(row['left_out'], '')}, which the server refuses"
        for row in rows.to_dicts()
    ]


_ROLES = {"student": "policy"}
_LOST = {
    "return_token_ids": " (steps have no token ids)",
    "logprobs": " (steps have no log-probabilities)",
    "response_format": " (answers were not held to a JSON schema)",
    "seed": " (equal runs need not get equal answers)",
}
"""What is missing for it."""


def _cost(row: dict[str, float]) -> float | None:
    return row["cost"] if row["priced"] else None


def usage_rows(store: Store) -> list[list[str | int]]:
    """Return the cells under ``USAGE_HEADER``."""
    return [
        [
            usage.role,
            usage.requests,
            usage.unanswered,
            usage.cached,
            usage.tries,
            usage.prompt_tokens,
            usage.completion_tokens,
            "–" if usage.cost is None else f"{usage.cost:.4f}",
        ]
        for usage in model_usage(store)
    ]
