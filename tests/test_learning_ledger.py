"""Test the results of the studies of arms: intervals, what they allow to say, and files of killed writers."""

import json
import math
import statistics
from pathlib import Path

import pytest
from pivot.benchmarks.learning.ledger import Ledger, area, figures_table, key_of, paired


def _row(arm: str, seed: int, curve: list[float]) -> dict[str, object]:
    return {"game": "lake", "arm": arm, "seed": seed, "weight": 0.0, "protocol": 1, "curve": curve}


def test_an_interval_is_that_of_paired_differences() -> None:
    """The differences are 1 to 4; the quantile of t with three degrees of freedom is 3.18245."""
    first, second = {0: 11.0, 1: 22.0, 2: 33.0, 3: 44.0, 9: 0.0}, {0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0, 8: 5.0}
    difference = paired(first, second)
    assert difference is not None
    half = 3.18245 * statistics.stdev([1, 2, 3, 4]) / math.sqrt(4)
    assert (difference.value, difference.pairs) == (2.5, 4), "seeds of one arm alone do not count"
    assert difference.half == pytest.approx(half)
    assert str(difference) == f"+2.5 [{2.5 - half:+.1f}, {2.5 + half:+.1f}]"
    assert paired({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([4.0, 5.0, 6.0, 5.0], "higher"),
        ([-4.0, -5.0, -6.0, -5.0], "lower"),
        ([0.9, 1.0, 1.1, 1.0], "higher, by less than 3"),
        ([-0.5, 0.5, -0.4, 0.4], "equivalent (within ±3)"),
        ([-9.0, 9.0, -8.0, 8.0], "undecided"),
        ([5.0], "undecided"),
    ],
)
def test_a_verdict_says_no_more_than_its_interval(differences: list[float], verdict: str) -> None:
    difference = paired(dict(enumerate(differences)), dict.fromkeys(range(len(differences)), 0.0))
    assert difference is not None
    assert difference.verdict == verdict


def test_the_area_is_the_mean_height() -> None:
    assert [area(each) for each in ([0.0, 1.0], [0.2] * 3, [0.0, 0.0, 1.0])] == pytest.approx([50, 20, 25])


def test_a_killed_writer_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "results" / "runs.jsonl"
    ledger = Ledger(path, 1)
    assert ledger.rows() == []
    ledger.append(_row("mp", 0, [0.1, 0.2]))
    with path.open("a") as stream:
        stream.write('{"game": "lake", "arm": "torn"')
    assert [key_of(row) for row in ledger.rows()] == [("lake", "mp", 0.0, 0, None)]
    ledger.append(_row("mp", 1, [0.1, 0.3]))
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1]
    assert Ledger(path, 2).rows() == [], "results of different protocols are never compared"
    path.write_text("no json\n")
    with pytest.raises(ValueError, match=r"runs.jsonl, line 1: found 'no json'"):
        ledger.rows()


def test_a_table_compares_with_the_baseline_and_with_the_random_step() -> None:
    """The location is compared with the same arm at a random step, not with the baseline."""
    heights = {"vanilla_grpo": 0.2, "witness_pivot": 0.4, "witness_random": 0.5}
    rows = [_row(arm, seed, [height + seed / 100] * 2) for arm, height in heights.items() for seed in range(3)]
    table = figures_table(rows, "lake", heights, {"witness_pivot": "witness_random"})
    assert "| `witness_pivot` | 3 | 41.0 | +20.0 [+20.0, +20.0] | 41.0 | +20.0 [+20.0, +20.0] | higher |" in table
    assert "| `witness_pivot` minus `witness_random` | 3 | -10.0 [-10.0, -10.0] |" in table
    assert table.splitlines()[-1].endswith("| lower |")
