"""Results of a study: one line per finished run, paired differences between arms, and conclusions from them.

An interval is that of Student's t over paired seeds, at 95 %. Two arms are called equivalent only if the whole interval
lies within ``MARGIN`` points, and a location counts only against the same arm at a random step.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
Key = tuple[str, str, float, int, float | None]
"""Game, arm, weight and seed of a run, and its learning rate in studies of several rates."""
MARGIN = 3.0
"""Points within which a difference is called equivalent."""
BASELINE = "vanilla_grpo"
_T = (
    *(12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.306, 2.26216, 2.22814),
    *(2.20099, 2.17881, 2.16037, 2.14479, 2.13145, 2.11991, 2.10982, 2.10092, 2.09302, 2.08596),
)
"""97.5 % quantiles of Student's t with 1 to 20 degrees of freedom."""


class Ledger:
    """The file of results: one JSON object per line. Lines of other protocols are kept and not read."""

    def __init__(self, path: Path, protocol: int) -> None:
        """Read and write ``path``, which need not exist."""
        self.path, self.protocol = path, protocol

    def rows(self) -> list[Row]:
        """Return the finished runs of this protocol.

        Raises:
            ValueError: a line is not JSON and is not the torn last line of a killed writer.
        """
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        rows: list[Row] = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ValueError(
                    f"{self.path}, line {number}: found {line[:40]!r}, expected JSON; remove it"
                ) from error
        return [row for row in rows if row["protocol"] == self.protocol]

    def keys(self) -> set[Key]:
        """Return the runs that are finished."""
        return {key_of(row) for row in self.rows()}

    def append(self, row: Row) -> None:
        """Add a finished run durably; a torn last line of a killed writer is cut first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as stream:
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
            stream.write(json.dumps(row).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def key_of(row: Mapping[str, Any]) -> Key:
    """Return what identifies a run."""
    return row["game"], row["arm"], float(row["weight"]), row["seed"], row.get("lr")


def area(curve: Sequence[float]) -> float:
    """Return the mean height of a curve of equally spaced points, by trapezoids, in points of 100."""
    heights = np.asarray(curve, float)
    return float(100 * (heights[:-1] + heights[1:]).mean() / 2)


@dataclass(frozen=True, slots=True)
class Difference:
    """Paired difference of two arms in points, with its 95 % interval."""

    value: float
    half: float
    """Half of the interval's width; infinite with fewer than two pairs."""
    pairs: int

    @property
    def low(self) -> float:
        """Lower bound."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Upper bound."""
        return self.value + self.half

    @property
    def verdict(self) -> str:
        """Conclusion that the interval allows."""
        inside = self.low >= -MARGIN and self.high <= MARGIN
        if self.low > 0 or self.high < 0:
            return ("higher" if self.low > 0 else "lower") + (f", by less than {MARGIN:g}" if inside else "")
        return f"equivalent (within ±{MARGIN:g})" if inside else "undecided"

    def __str__(self) -> str:
        """Return value and interval with a decimal."""
        if self.pairs < 2:
            return f"{self.value:+.1f} (one pair, no interval)"
        return f"{self.value:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """Return the difference of two arms over their common seeds; None without any.

    Args:
        first: figure in points by seed.
        second: the same of the arm that is taken away.
    """
    values = np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])
    if not len(values):
        return None
    half = float("inf")
    if len(values) > 1:
        half = float(_T[min(len(values) - 1, len(_T)) - 1] * values.std(ddof=1) / np.sqrt(len(values)))
    return Difference(float(values.mean()), half, len(values))


def by_arm(rows: Iterable[Row], game: str, figure: str, curve: str = "curve") -> dict[str, dict[int, float]]:
    """Return ``area`` or ``final`` of a game's runs in points, by arm and seed."""
    figures: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["game"] == game:
            value = area(row[curve]) if figure == "area" else 100 * row[curve][-1]
            figures.setdefault(row["arm"], {})[row["seed"]] = value
    return figures


def figures_table(rows: Sequence[Row], game: str, arms: Iterable[str], controls: Mapping[str, str]) -> str:
    """Return the table of a game in Markdown: arms against the baseline, and against their controls if any."""
    areas, finals = by_arm(rows, game, "area"), by_arm(rows, game, "final")
    base = areas.get(BASELINE, {})
    lines = [
        f"| {game} | seeds | area | minus GRPO | final success | minus GRPO | the area is |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in arms:
        if arm not in areas:
            continue
        first, last = paired(areas[arm], base), paired(finals[arm], finals.get(BASELINE, {}))
        mean, final = np.mean(list(areas[arm].values())), np.mean(list(finals[arm].values()))
        cells = ("–", "–", "–")
        if arm != BASELINE and first is not None and last is not None:
            cells = str(first), str(last), first.verdict
        lines.append(
            f"| `{arm}` | {len(areas[arm])} | {mean:.1f} | {cells[0]} | {final:.1f} | {cells[1]} | {cells[2]} |"
        )
    located: list[str] = []
    for arm, control in controls.items():
        first = paired(areas.get(arm, {}), areas.get(control, {}))
        last = paired(finals.get(arm, {}), finals.get(control, {}))
        if first is not None and last is not None:
            located.append(f"| `{arm}` minus `{control}` | {first.pairs} | {first} | {last} | {first.verdict} |")
    heads = [
        "",
        "| the location | seeds | area, pivot minus random step | final success | the area at the pivot is |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(lines + heads * bool(located) + located)


def differences_table(rows: Sequence[Row], games: Sequence[str], pairs: Mapping[str, str], head: str) -> str:
    """Return the differences of area of pairs of arms in Markdown, a column for each game.

    Args:
        rows: finished runs.
        games: games, with the same arms.
        pairs: arm that is taken away, by arm.
        head: title of the first column.
    """
    areas = {game: by_arm(rows, game, "area") for game in games}
    lines = [" | ".join((f"| {head}", *games)) + " |", "|---" * (1 + len(games)) + "|"]
    for arm, base in pairs.items():
        cells = (paired(each.get(arm, {}), each.get(base, {})) for each in areas.values())
        lines.append(" | ".join((f"| `{arm}`", *(str(cell or "–") for cell in cells))) + " |")
    return "\n".join(lines)
