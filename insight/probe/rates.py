"""Results of a probe: lift rates with intervals, group rates with the new returns, and alarms.

A failure counts once per arm, with the share of its retries that improve it; a failure without a step to restart from
is excluded from all rates. Intervals are over levels. Group rates are those of the store with the return of each failed
member replaced by its prefix and the first new suffix.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import duckdb
import polars as pl

from ...core.errors import NoStoreError
from ...core.intervals import Interval, mean_of, sums_by_level
from ...datasets.sql.database import CLOSED, DERIVED
from ...datasets.store.config import Shard
from ...datasets.store.parquet import read_table
from ...datasets.store.schema import EPISODES
from ...datasets.store.store import Store
from .records import PROBE, PROBE_ARMS, SETTINGS_FILE, ProbeSettings, RetryStatus, probe_file

EXACT = "exact"


@dataclass(frozen=True, slots=True)
class ArmRate:
    """Rate of one arm in one environment."""

    env: str
    arm: str
    failures: int
    """Failures with at least one finished retry."""
    nothing_left: int
    """Failures without a step to restart from."""
    not_played: int
    """Retries that failed, could not be restored, or had no hint."""
    lift: Interval | None
    """Share of the failures that a retry improves, with its interval over levels."""
    success: Interval | None
    """Share of the failures whose retry reaches the goal."""
    sigma0: float | None
    """Share of the groups whose eight returns agree, with the new returns in them."""
    all_fail: float | None
    """Share of the groups without a success, with the new outcomes in them."""

    def row(self) -> dict[str, Any]:
        """Return the rate as flat data."""
        row = asdict(self)
        for name in ("lift", "success"):
            interval = row.pop(name)
            for part in ("value", "low", "high"):
                row[name if part == "value" else f"{name}_{part}"] = None if interval is None else interval[part]
        return row


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Stored rates of the groups of an environment."""

    env: str
    groups: int
    sigma0: float | None
    all_fail: float | None


@dataclass(frozen=True, slots=True)
class Refuted:
    """Labels that a success from t* + 1 refutes."""

    env: str
    kind: str
    failures: int
    """Failures with a finished retry from t* + 1."""
    refuted: int
    episodes: tuple[str, ...]
    """Ids of the first few."""

    @property
    def alarm(self) -> bool:
        """Whether the labels are wrong: an exact certificate rules out that the goal is reached from t* + 1."""
        return self.kind == EXACT and self.refuted > 0


def probe_rows(store: Store) -> pl.DataFrame:
    """Return the rows of a store's probe that belong to its current labels.

    Raises:
        StoreError: the store was not probed, or a file is torn.
    """
    if SETTINGS_FILE not in store.manifest():
        raise NoStoreError(f"{store.root} was not probed; run: pivot probe {store.root}")
    tables = [read_table(store.storage, probe_file(shard), PROBE) for shard in probed_shards(store)]
    rows = pl.concat([pl.DataFrame(pl.from_arrow(table)) for table in (PROBE.arrow.empty_table(), *tables)])
    return rows.filter(pl.col("label_version") == str(store.config.label_version))


def probed_shards(store: Store) -> list[Shard]:
    """Return the shards with retries; shards that a build made after the probe have none."""
    manifest = store.manifest()
    return [shard for shard in store.config.shards() if probe_file(shard) in manifest]


def probe_settings(store: Store) -> ProbeSettings:
    """Return the settings of a store's probe."""
    return ProbeSettings(**store.storage.read_json(SETTINGS_FILE)["settings"])


def arm_rates(store: Store) -> tuple[list[GroupRates], list[ArmRate]]:
    """Return the groups of every environment, and every arm of it, in the order of tables.

    Raises:
        StoreError: the store was not probed.
    """
    rows, settings = probe_rows(store), probe_settings(store)
    episodes = store.scan(EPISODES, probed_shards(store)).filter(pl.col("status") == "complete").collect()
    groups: list[GroupRates] = []
    rates: list[ArmRate] = []
    for env in store.config.environments:
        mine = episodes.filter(pl.col("env") == env)
        groups.append(GroupRates(env, *_group_rates(mine, {}, set())))
        for arm in PROBE_ARMS:
            if arm in settings.arms:
                chosen = rows.filter((pl.col("env") == env) & (pl.col("arm") == arm))
                rates.append(_arm_rate(env, arm, chosen, mine))
    return groups, rates


def _arm_rate(env: str, arm: str, rows: pl.DataFrame, episodes: pl.DataFrame) -> ArmRate:
    done = rows.filter(pl.col("status") == RetryStatus.DONE)
    by_failure = done.group_by("episode_id", maintain_order=True).agg(
        pl.col("task_id").first(), pl.col("lift").mean(), pl.col("success").mean()
    )
    empty = rows.filter(pl.col("status") == RetryStatus.NO_SUFFIX)["episode_id"].n_unique()
    broken = rows.filter(~pl.col("status").is_in([RetryStatus.DONE, RetryStatus.NO_SUFFIX])).height
    first = done.filter(pl.col("sample_idx") == 0)
    totals = _new_totals(first, episodes)
    won = set(first.filter(pl.col("success"))["episode_id"])
    _, sigma0, all_fail = _group_rates(episodes, totals, won)
    levels = by_failure["task_id"].to_list()
    return ArmRate(
        env,
        arm,
        by_failure.height,
        empty,
        broken,
        mean_interval(by_failure["lift"].to_list(), levels),
        mean_interval(by_failure["success"].to_list(), levels),
        sigma0,
        all_fail,
    )


def mean_interval(values: Sequence[float], levels: Sequence[str]) -> Interval | None:
    """Return a mean of shares with its interval over levels; None without values."""
    return mean_of(*sums_by_level(values, levels)).share() if values else None


def _new_totals(first: pl.DataFrame, episodes: pl.DataFrame) -> dict[str, float]:
    """Return the undiscounted return of each retried failure: its prefix and the new suffix."""
    rewards = dict(zip(episodes["episode_id"], episodes["rewards"].to_list(), strict=True))
    return {
        episode: float(sum(rewards[episode][:step]) + sum(suffix))
        for episode, step, suffix in zip(
            first["episode_id"], first["restore_step"], first["rewards"].to_list(), strict=True
        )
    }


def _group_rates(
    episodes: pl.DataFrame, totals: dict[str, float], won: set[str]
) -> tuple[int, float | None, float | None]:
    ids = episodes["episode_id"].to_list()
    returns = [totals.get(name, old) for name, old in zip(ids, episodes["episode_return"], strict=True)]
    failed = [lost and name not in won for name, lost in zip(ids, episodes["failed"], strict=True)]
    changed = episodes.with_columns(pl.Series("episode_return", returns, pl.Float64), pl.Series("failed", failed))
    with duckdb.connect(config=CLOSED) as connection:
        connection.register("episodes", changed.to_arrow())
        rates = "count(*), avg(sigma0::INT), avg(all_fail::INT)"
        answer = connection.execute(f"SELECT {rates} FROM ({DERIVED['blocks'].sql}) WHERE whole").fetchone()
    return answer or (0, None, None)


def refuted_labels(store: Store) -> list[Refuted]:
    """Return how often a success from t* + 1 refutes a label, by environment and kind of certificate.

    Under an exact certificate a single one is an alarm. Under a bound or a heuristic it is the number of
    labels that are too early.

    Raises:
        StoreError: the store was not probed.
    """
    rows = probe_rows(store).filter((pl.col("arm") == "after") & (pl.col("status") == RetryStatus.DONE))
    refuted: list[Refuted] = []
    for (env, kind), some in rows.group_by(["env", "kind"], maintain_order=True):
        by_failure = some.group_by("episode_id", maintain_order=True).agg(pl.col("success").any())
        wrong = by_failure.filter(pl.col("success"))["episode_id"].to_list()
        refuted.append(Refuted(str(env), str(kind), by_failure.height, len(wrong), tuple(wrong[:5])))
    return refuted


# Tables

ARM_HEADER = ("arm", "failures", "nothing left", "lift %", "success %")


def arms_of(rates: Sequence[ArmRate]) -> list[str]:
    """Return the arms of the probe, in the order of tables: the last columns of the two tables below."""
    return [name for name in PROBE_ARMS if any(each.arm == name for each in rates)]


def percent(interval: Interval | None) -> str:
    """Return a share in percent with its interval."""
    if interval is None:
        return "-"
    return f"{100 * interval.value:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def arm_tables(rates: Sequence[ArmRate]) -> dict[str, list[tuple[str | int, ...]]]:
    """Return the rows of :data:`ARM_HEADER` by environment; unfinished retries are counted next to the rates."""
    return {
        env: [
            (
                each.arm,
                each.failures,
                each.nothing_left,
                percent(each.lift),
                percent(each.success) + (f" ({each.not_played} not played)" if each.not_played else ""),
            )
            for each in some
        ]
        for env, some in groupby(rates, lambda each: each.env)
    }


def group_rows(groups: Sequence[GroupRates], rates: Sequence[ArmRate], which: str) -> list[tuple[str, ...]]:
    """Return rows of environment, the stored share ``sigma0`` or ``all_fail``, and the share in every arm."""
    rows: list[tuple[str, ...]] = []
    for group in groups:
        arms: dict[str, Any] = {each.arm: getattr(each, which) for each in rates if each.env == group.env}
        cells = [_share(arms[arm]) if arm in arms else "" for arm in arms_of(rates)]
        rows.append((group.env, _share(getattr(group, which)), *cells))
    return rows


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def verdict_lines(refuted: Sequence[Refuted]) -> list[str]:
    """Describe what successes from t* + 1 mean for the labels."""
    lines: list[str] = []
    for each in refuted:
        share = f"{each.env}: {each.refuted} of {each.failures} failures were won from t* + 1"
        if each.alarm:
            lines.append(f"{share}, which its exact certificates rule out: these labels are wrong")
        elif each.kind == "exact":
            lines.append(f"{share}, as its exact certificates say")
        else:
            lines.append(f"{share}, where its certificates ({each.kind.replace('_', ' ')}) may be too early")
    return lines
