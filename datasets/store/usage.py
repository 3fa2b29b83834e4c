"""Usage of the models of a store: requests, tries, tokens and cost by role, summed from the stored ``calls``.

Every request for an episode or label of the store counts, also without an answer, and also if the episode or label was
recomputed. An answer from the call cache costs nothing, unless this store paid for it in a run that ended before the
answer was stored.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import polars as pl

from ...core.messages import UNKNOWN, Call
from .store import Store


class Usage(NamedTuple):
    """Sums over the calls of one role."""

    role: str
    requests: int
    unanswered: int
    """Requests without an answer; their episode or label stays pending."""
    cached: int
    """Answered by the call cache and paid for by another store: no try, no cost."""
    tries: int
    """Number of attempts of requests that the cache did not answer."""
    prompt_tokens: int
    """Tokens of the requests that were sent to a server that counts tokens."""
    completion_tokens: int
    cost: float | None
    """Sum in the currency of the configured prices; None without prices."""


USAGE_HEADER = ("role", "requests", "unanswered", "from cache", "tries", "prompt tokens", "reply tokens", "cost")


def calls_in_all(before: Iterable[Call], after: Iterable[Call], pending: Collection[str]) -> list[Call]:
    """Return the calls of a shard whose ``pending`` episodes ran again, with their earlier requests.

    An earlier request that was not repeated is added to the last request of its episode, or stays if there is none.
    """
    earlier = {call.request_id: call for call in before if call.episode_id in pending}
    others = [call for call in before if call.episode_id not in pending]
    fresh = [call.after(earlier.pop(call.request_id)) if call.request_id in earlier else call for call in after]
    last = {call.episode_id: index for index, call in enumerate(fresh)}
    for call in earlier.values():
        index = last.get(call.episode_id)
        if index is None:
            others.append(call)
        else:
            fresh[index] = fresh[index].after(call)
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
            pl.when(pl.col("cost").filter(sent).count() > 0).then(pl.col("cost").sum()).alias("cost"),
        )
        .sort("role")
        .collect()
    )
    return [Usage(*row) for row in rows.iter_rows()]


def left_out(store: Store) -> list[str]:
    """Return a sentence for each request field that was left out because a server refuses it."""
    if store.run.policy().is_stand_in and store.run.writer().is_stand_in:
        return []  # no requests were sent, and the calls of a large store take seconds to read
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


def endings(store: Store) -> list[str]:
    """Return a sentence each for the number of broken-off answers and of answers without a finish reason."""
    if store.run.policy().is_stand_in and store.run.writer().is_stand_in:
        return []
    unknown = pl.col("finish_reason").eq(UNKNOWN).fill_null(False)
    calls = (
        store.lazy().calls.group_by("role").agg(pl.col("broken_off", "attempts").sum(), unknown.sum().alias("unknown"))
    )
    lines: list[str] = []
    for row in calls.sort("role").collect(engine="streaming").to_dicts():
        role = _ROLES.get(row["role"], row["role"])
        if row["broken_off"]:
            lines.append(
                f"{row['broken_off']} of {row['attempts']} tries of the {role} were broken off by the server (abort, "
                "content filter, tool call), and none of them is an answer"
            )
        if row["unknown"]:
            lines.append(f"{row['unknown']} answers to the {role} have no finish reason: they are stored as {UNKNOWN}")
    return lines


def checkpoints(store: Store) -> dict[str, dict[str, int]]:
    """Return the number of answers by role and checkpoint, for roles whose answers come from several checkpoints."""
    if store.run.policy().is_stand_in and store.run.writer().is_stand_in:
        return {}
    calls = store.lazy().calls.filter(pl.col("model_revision").is_not_null())
    rows = calls.group_by("role", "model_revision").len().sort("role", "len", "model_revision").collect().rows()
    counts: dict[str, dict[str, int]] = {}
    for role, checkpoint, count in rows:
        counts.setdefault(str(_ROLES.get(role, role)), {})[checkpoint] = count
    return {role: each for role, each in counts.items() if len(each) > 1}


_ROLES = {"student": "policy"}
_LOST = {
    "return_token_ids": " (steps have no token ids)",
    "logprobs": " (steps have no log-probabilities)",
    "response_format": " (answers were not held to a JSON schema)",
    "seed": " (equal runs need not get equal answers)",
}
"""Consequence of each missing field."""


def usage_rows(store: Store) -> list[list[str | int]]:
    """Return the cells under ``USAGE_HEADER``."""
    usages = model_usage(store)
    return [[*usage[:-1], "–" if usage.cost is None else f"{usage.cost:.4f}"] for usage in usages]
