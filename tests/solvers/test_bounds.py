"""Check that view, card and `pivot peek` report how good a bound is."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pivot.datasets.export.describe import find_episode
from pivot.datasets.sql.views import query
from pivot.datasets.store.store import Store
from pivot.tests.stores import build_tiny, problems

HABITS: dict[str, Any] = {"name": "scripted", "options": {"habits": {"navigation": {"skill": -20.0}}}}


@pytest.mark.parametrize(
    ("env", "fields", "certificate", "reference", "title", "lost", "words"),
    [
        (
            "navigation",
            {"rollouts": 4, "policy": HABITS, "solvers": {"navigation": {"window": 4}}},
            "lower_bound",
            "exact",
            "by the true way",
            "",
            ("at least", "embedded, seeded and drawn by a ray caster"),
        ),
        (
            "primitiveskill",
            {"rollouts": 6},
            "heuristic",
            "lower_bound",
            "by a bound that holds",
            " at the latest",
            ("open with", "the table of primitiveskill is embedded"),
        ),
    ],
    ids=["navigation", "primitiveskill"],
)
def test_a_store_tells_how_often_two_pivots_differ(
    env: str,
    fields: dict[str, Any],
    certificate: str,
    reference: str,
    title: str,
    lost: str,
    words: tuple[str, str],
    tmp_path: Path,
) -> None:
    root = build_tiny(tmp_path / "store", env, **fields)
    assert problems(root) == []
    labels = pl.read_parquet(root / f"labels/v1/{env}/*.parquet")
    table = labels.with_columns(pl.col("certificate").struct.unnest())
    delay = table["pivot_step"] - table["reference_pivot"]
    names, rows = query(root, "SELECT * FROM bound_quality")
    (row,) = [dict(zip(names, values, strict=True)) for values in rows]
    assert (row["env"], row["kind"], row["reference"]) == (env, certificate, reference)
    assert row["failures"] == len(table) == row["agreeing"] + row["earlier"] + row["later"] >= 6
    assert (row["agreeing"], row["earlier"]) == ((delay == 0).sum(), (delay < 0).sum())
    assert (row["earlier"] > 0) == (env == "primitiveskill"), "a heuristic gives up too early now and then"
    if env == "navigation":
        assert row["agreement"] == pytest.approx((delay == 0).mean())
        assert row["mean_delay"] == pytest.approx(delay.mean())
        assert row["mean_gap"] == pytest.approx((table["reference_before"] - table["before"]).mean())
        assert row["mean_gap"] >= 0
    card = (root / "dataset/README.md").read_text()
    same = (table.filter("accepted")["pivot_step"] == table.filter("accepted")["reference_pivot"]).sum()
    assert f"both name the same pivot step in {same} of {table['accepted'].sum()} accepted records" in card
    assert words[1] in card
    episode = labels.row(0, named=True)
    facts = dict(find_episode(Store.open(root), episode["episode_id"]).facts())
    assert words[0] in facts["certificate"]
    step = episode["certificate"]["reference_pivot"]
    assert facts[title].startswith(f"the task was lost at step {step}{lost};")
