"""Check that view, card and `pivot peek` report how good the bound is, and that a wrong reference is detected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from pivot.core.storage import LocalStorage
from pivot.datasets.export.describe import find_episode
from pivot.datasets.sql.views import query
from pivot.datasets.store.parquet import write_tables
from pivot.datasets.store.schema import LABELS
from pivot.datasets.store.store import Store
from pivot.tests.stores import build_tiny, copy_store, problems, rewrite_manifest


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bounds") / "store"
    habits = {"navigation": {"skill": -20.0}}
    fields = {"rollouts": 4, "policy": {"name": "scripted", "options": {"habits": habits}}}
    return build_tiny(root, "navigation", solvers={"navigation": {"window": 4}}, **fields)


def labels(root: Path) -> pl.DataFrame:
    return pl.read_parquet(root / "labels/v1/navigation/00000.parquet")


def test_the_store_holds(store: Path) -> None:
    assert len(labels(store)) >= 6
    assert problems(store) == []


def test_the_view_says_what_the_labels_say(store: Path) -> None:
    table = labels(store).with_columns(pl.col("certificate").struct.unnest())
    delay = table["pivot_step"] - table["reference_pivot"]
    assert (delay >= 0).all()
    names, rows = query(store, "SELECT * FROM bound_quality")
    (row,) = [dict(zip(names, values, strict=True)) for values in rows]
    assert (row["env"], row["kind"], row["reference"]) == ("navigation", "lower_bound", "exact")
    assert (row["failures"], row["agreeing"]) == (len(table), (delay == 0).sum())
    assert row["agreement"] == pytest.approx((delay == 0).mean())
    assert row["mean_delay"] == pytest.approx(delay.mean())
    assert row["mean_gap"] == pytest.approx((table["reference_before"] - table["before"]).mean())
    assert row["mean_gap"] >= 0


def test_the_card_says_it_too(store: Path) -> None:
    card = (store / "dataset/README.md").read_text()
    accepted = labels(store).filter("accepted").with_columns(pl.col("certificate").struct.unnest())
    same = (accepted["pivot_step"] == accepted["reference_pivot"]).sum()
    assert f"both name the same pivot step in {same} of {len(accepted)} accepted records" in card
    assert "embedded, seeded and drawn by a ray caster" in card
    assert '"window": 4' in card


def test_an_episode_tells_of_its_reference(store: Path) -> None:
    row = labels(store).row(0, named=True)
    facts = dict(find_episode(Store.open(store), row["episode_id"]).facts())
    assert facts["by the true way"].startswith(f"the task was lost at step {row['certificate']['reference_pivot']};")
    assert "at least" in facts["certificate"]


DEFECTS: list[Callable[[dict[str, Any]], None]] = [
    lambda row: row["certificate"].update(reference_pivot=row["certificate"]["reference_pivot"] + 1),
    lambda row: row["certificate"].update(reference_before=99.0),
    lambda row: row["certificate"].update(raw_after=1.6),
    lambda row: row.update(failure_mode="blocked" if row["failure_mode"] != "blocked" else "budget"),
    lambda row: row.update(secondary_modes=["budget"]),
]


def test_changed_labels_are_found(store: Path, tmp_path: Path) -> None:
    """With a manifest that was made to match: each label is wrong in another way, and its second proof says so."""
    root = copy_store(store, tmp_path / "copy")
    path = root / "labels/v1/navigation/00000.parquet"
    rows = pq.read_table(path).to_pylist()
    for row, spoil in zip(rows, DEFECTS, strict=False):
        spoil(row)
    path.unlink()
    write_tables(LocalStorage(root), [(path.relative_to(root).as_posix(), LABELS, LABELS.table(rows))])
    rewrite_manifest(root)
    proofs = [problem for problem in problems(root) if "the prover gives" in problem]
    for row in rows[: len(DEFECTS)]:
        assert any(row["episode_id"] in problem for problem in proofs), row
    for row in rows[len(DEFECTS) :]:
        assert not any(row["episode_id"] in problem for problem in proofs)
