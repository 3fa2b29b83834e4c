"""What the models of a store took: requests, tries, tokens and cost by role, summed from the stored ``calls``."""

from dataclasses import dataclass

import polars as pl

from .store import Store


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over the calls of one role."""

    role: str
    requests: int
    cached: int
    """Answered by the call cache: no try, no cost."""
    tries: int
    """What was sent for the others."""
    prompt_tokens: int
    """Of the requests that were sent and whose server counts tokens."""
    completion_tokens: int
    cost: float | None
    """In whatever currency the prices were given; None without prices."""


USAGE_HEADER = ("role", "requests", "from cache", "tries", "prompt tokens", "reply tokens", "cost")


def model_usage(store: Store) -> list[Usage]:
    """Return the usage of every role that a model played, sorted; nothing for embedded stand-ins.

    A call is counted where it is stored now: episodes and labels that were made again replace their earlier calls.
    """
    sent = pl.col("cache_hit").not_()
    rows = (
        store.lazy()
        .calls.filter(pl.col("prompt_tokens").is_not_null() | pl.col("model_revision").is_not_null())
        .group_by("role")
        .agg(
            pl.len().alias("requests"),
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


def _cost(row: dict[str, float]) -> float | None:
    return row["cost"] if row["priced"] else None


def usage_rows(store: Store) -> list[list[str | int]]:
    """Return the cells under ``USAGE_HEADER``."""
    return [
        [
            usage.role,
            usage.requests,
            usage.cached,
            usage.tries,
            usage.prompt_tokens,
            usage.completion_tokens,
            "–" if usage.cost is None else f"{usage.cost:.4f}",
        ]
        for usage in model_usage(store)
    ]
