"""The tables of a probe, in the shape of the paper's."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ...core.intervals import Interval
from .arms import PROBE_ARMS
from .rates import ArmRate, GroupRates, Refuted

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


def lift_rows(rates: Sequence[ArmRate]) -> list[tuple[str | int, ...]]:
    """Return rows of environment, failures, and the lift rate of every arm in percent, as in the paper's tables."""
    rows: list[tuple[str | int, ...]] = []
    for env, some in groupby(rates, lambda each: each.env):
        arms = {each.arm: each for each in some}
        lifts = [_share(arms[arm].lift and arms[arm].lift.value) if arm in arms else "" for arm in arms_of(rates)]  # pyright: ignore[reportOptionalMemberAccess]
        rows.append((env, max(each.failures + each.nothing_left for each in arms.values()), *lifts))
    return rows


def group_rows(groups: Sequence[GroupRates], rates: Sequence[ArmRate], which: str) -> list[tuple[str, ...]]:
    """Return rows of environment, the share ``sigma0`` or ``all_fail`` as it is stored, and in every arm."""
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
