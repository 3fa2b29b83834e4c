"""Settings of solvers: from the command line into labels, never into episodes; reports name how good a bound is."""

import json
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot import build
from pivot.core.errors import ConfigError, StoreError
from pivot.core.progress import Reporter
from pivot.datasets.export.describe import find_episode
from pivot.datasets.sql.views import query
from pivot.datasets.store.config import make_config, solver_settings
from pivot.datasets.store.stages import LabelStage, run_stage
from pivot.datasets.store.store import Store
from pivot.datasets.verify.exports import verify_export
from pivot.datasets.verify.verify import verify_store
from pivot.flows.engines.local import worker_pool
from pivot.flows.relabel import relabel_store
from pivot.tests.cli.command_line import run_config
from pivot.tests.stores import build_tiny, problems


def config(**solvers: dict[str, Any]) -> dict[str, Any]:
    return {"environments": {"sokoban": {"tasks": 1, "settings": {}}}, "solvers": solvers}


def labels(root: Path) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(path) for path in sorted(root.glob("labels/*/*/*.parquet")))


def test_settings_decide_labels_alone(tmp_path: Path) -> None:
    build(config(), tmp_path / "plain")
    build(config(sokoban={"max_states": 3}), tmp_path / "capped")
    plain, capped = ((tmp_path / name / "episodes/sokoban/00000.parquet").read_bytes() for name in ("plain", "capped"))
    assert plain == capped
    assert labels(tmp_path / "plain")["accepted"].all()
    table = labels(tmp_path / "capped")
    assert not table["accepted"].any() and table["solver_config"].unique().to_list() == ['{"max_states":3}']
    assert {reason["name"] for row in table["reject_reasons"] for reason in row} == {"solver_limit"}
    assert verify_store(tmp_path / "capped", Reporter()).problems == []
    run = json.loads((tmp_path / "capped/run.json").read_text())
    assert run["config"]["solvers"] == {"sokoban": {"max_states": 3}}
    assert '`{"max_states": 3}`' in (tmp_path / "capped/dataset/README.md").read_text()
    assert make_config(run["config"]).solvers == {"sokoban": {"max_states": 3}}


def test_a_store_is_relabelled_with_other_settings(tmp_path: Path) -> None:
    root = tmp_path / "store"
    build(config(sokoban={"max_states": 3}), root)
    with pytest.raises(StoreError, match=r"solvers.*relabel"):
        build(config(), root)
    with worker_pool(1, ["sokoban"]) as pool:
        relabel_store(root, {"solvers": {"sokoban": {"max_states": 10**6}}}, pool, Reporter())
    assert labels(root)["accepted"].all() and verify_store(root, Reporter()).problems == []


def test_labels_of_an_interrupted_run_with_other_settings_are_not_kept(tmp_path: Path) -> None:
    build(config(), tmp_path)
    old = Store.open(tmp_path).config
    (shard,) = old.shards()
    capped, plain = (
        Store(
            tmp_path,
            make_config(
                old.model_dump(mode="json") | {"label_version": 2, "solvers": {"sokoban": {"max_states": cap}}}
            ),
        )
        for cap in (3, 10**6)
    )
    assert not run_stage(LabelStage(capped, shard)).reused and run_stage(LabelStage(capped, shard)).reused
    assert not run_stage(LabelStage(plain, shard)).reused
    assert labels(tmp_path).filter(label_version="2")["accepted"].all()


def test_other_labels_than_the_settings_give_are_found(tmp_path: Path) -> None:
    root = tmp_path / "store"
    build(config(sokoban={"max_states": 10**6}), root)
    run = json.loads((root / "run.json").read_text())
    run["config"]["solvers"]["sokoban"]["max_states"] = 10**7
    (root / "run.json").write_text(json.dumps(run))
    assert any("solver_config" in problem for problem in verify_store(root, Reporter()).problems)


def test_settings_are_completed_and_checked() -> None:
    full = make_config(
        {"environments": {"navigation": {"tasks": 2, "settings": {}}}, "solvers": {"navigation": {"threshold": 1.0}}}
    )
    assert full.solvers == {
        "navigation": {"threshold": 1.0, "step": 0.5, "window": 5, "eps": 0.1, "pivot_rule": "budget"}
    }
    for wrong, words in (
        ({"navigation": {"thresh": 1}}, "not part of this run"),
        ({"sokoban": {"thresh": 1}}, "unknown solver setting sokoban.thresh; known: max_states"),
    ):
        with pytest.raises(ConfigError, match=words):
            make_config(config(**wrong))
    with pytest.raises(ConfigError, match=r"solver setting navigation\.window: found 0, expected more than 0"):
        solver_settings("navigation", {"window": 0})
    assert solver_settings("svg", {}).model_dump() == {}
    with pytest.raises(ConfigError, match="known: none"):
        solver_settings("svg", {"x": 1})


def test_the_exact_rule_of_navigation_gives_exact_labels_and_exports(tmp_path: Path) -> None:
    runs = {"navigation": {"tasks": 1, "settings": {"horizon": 10}}}
    root, exact = tmp_path / "store", {"navigation": {"pivot_rule": "exact"}}
    build({"environments": runs, "rollouts": 6, "solvers": exact}, root)
    assert verify_store(root, Reporter()).problems == []
    rows = labels(root)
    facts = rows["certificate"].struct.unnest()
    assert set(facts["kind"]) == {"exact"} and rows["proved"].all() and rows["accepted"].any()
    assert facts["reference_pivot"].null_count() == rows.height > 2
    for kind in ("credit", "corrections"):
        pivot.export(root, tmp_path / kind, format=kind, workers=1)
        assert "| navigation | exact |" in (tmp_path / kind / "README.md").read_text()
        stream = lambda call, calls: (call(*each) for each in calls)  # noqa: E731
        assert verify_export(root, tmp_path / kind, Reporter(), stream).problems == []
    build({"environments": runs, "rollouts": 6}, tmp_path / "bound")
    bound = labels(tmp_path / "bound")
    assert bound["certificate"].struct.field("reference_pivot").equals(rows["pivot_step"])


def test_the_command_line_merges_settings(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(config(sokoban={"max_states": 77})))
    assert run_config(f"--config {file}").solvers == {"sokoban": {"max_states": 77}}
    assert run_config(f"--config {file} --solver sokoban.max_states=88").solvers == {"sokoban": {"max_states": 88}}
    assert run_config(f"frozenlake --config {file}").solvers == {}
    changed = run_config("navigation --tasks 2 --solver navigation.pivot_rule=earliest_event")
    assert changed.solvers["navigation"]["pivot_rule"] == "earliest_event"
    for text, words in (("x", "ENV.KEY=VALUE"), ("svg.x=1", "not part of this build")):
        with pytest.raises(ConfigError, match=words):
            run_config(f"--config {file} --solver {text}")


HABITS: dict[str, Any] = {"name": "scripted", "options": {"habits": {"navigation": {"skill": -20.0}}}}


TWO_PIVOTS: dict[str, tuple[Any, ...]] = {
    "navigation": (
        {"rollouts": 4, "policy": HABITS, "solvers": {"navigation": {"window": 4}}},
        *("lower_bound", "exact", "by the true way", "", "at least", "embedded, seeded and drawn by a ray caster"),
    ),
    "primitiveskill": (
        *({"rollouts": 6}, "heuristic", "lower_bound", "by a bound that holds", " at the latest", "open with"),
        "the table of primitiveskill is embedded",
    ),
}


@pytest.mark.parametrize("env", TWO_PIVOTS)
def test_a_store_counts_how_often_two_pivots_differ(env: str, tmp_path: Path) -> None:
    fields, certificate, reference, title, lost, *words = TWO_PIVOTS[env]
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
