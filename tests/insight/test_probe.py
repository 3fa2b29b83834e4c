"""The rollback probe: exact odds, restored states, hints, resume, and refuted labels."""

import json
import shutil
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.core.errors import ConfigError, StoreError
from pivot.core.progress import Reporter
from pivot.datasets.store.store import Store
from pivot.environments.turns import Reply, Turn
from pivot.insight.probe.rates import _arm_rate, _new_totals, arm_rates, probe_rows, refuted_labels
from pivot.insight.probe.records import PROBE_ARMS, ProbeSettings, is_lift
from pivot.insight.probe.run import probe_store
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import fingerprint
from pivot.tests.stores import build_tiny, change_rows, copy_store, problems, rewrite_manifest
from typer.testing import CliRunner

ENVIRONMENTS = ("sokoban", "frozenlake", "navigation", "primitiveskill", "svg")
HABITS = {"skill": 0.5, "misread": 0.0, "episode_spread": 0.0, "evenness": 0.0, "bad_format": 0.0, "blunder": 0.1}


def _probe(root: Path, **settings: Any) -> Path:
    probe_store(root, ProbeSettings(**settings), Reporter())
    return root


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all environments, probed once in every arm; copy it before changing anything."""
    root = tmp_path_factory.mktemp("probe") / "store"
    runs = {name: {"tasks": 2, "settings": {}} for name in ENVIRONMENTS}
    pivot.build({"environments": runs, "rollouts": 2, "tasks_per_shard": 1}, root)
    return _probe(root)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A FrozenLake store of an expert whose odds are known, its failures played again twelve times."""
    root = tmp_path_factory.mktemp("lake") / "store"
    runs = {"frozenlake": {"tasks": 30, "settings": {}}}
    policy = {"name": "scripted", "options": {"habits": {"frozenlake": HABITS}}}
    pivot.build({"environments": runs, "policy": policy}, root)
    return _probe(root, arms=("no_hint", "after"), resamples=12)


def test_from_the_pivot_more_is_lifted_than_after_it(lake: Path) -> None:
    """Catch rates that do not separate the fatal step from the one after it."""
    store = Store.open(lake)
    rates = {each.arm: each for each in arm_rates(store)[1]}
    no_hint, after = rates["no_hint"], rates["after"]
    assert no_hint.lift is not None
    assert after.lift is not None
    assert after.success is not None
    assert no_hint.lift.low > after.lift.high
    assert after.success.value == 0
    # The first retry alone stands for its failure in the rates of groups: here, in one that fails as a whole.
    group = store.lazy().episodes.filter("failed").head(8).collect()
    group = group.with_columns(group_id=pl.lit("group"), sample_idx=pl.int_range(8, dtype=pl.Int32))
    mine = (pl.col("arm") == "no_hint") & pl.col("episode_id").is_in(group["episode_id"].to_list())
    rows = probe_rows(store).filter(mine).with_columns(success=pl.col("sample_idx") > 0)
    assert _arm_rate("frozenlake", "no_hint", rows, group).all_fail == 1
    first = rows.filter(pl.col("sample_idx") == 0)
    for row in first.to_dicts():  # the turns before the restart and those after it, each once
        paid = -0.1 * (row["restore_step"] + len(row["rewards"]))
        assert _new_totals(first, group)[row["episode_id"]] - paid in (pytest.approx(0), pytest.approx(10))
    (refuted,) = refuted_labels(store)
    assert (refuted.kind, refuted.refuted, refuted.alarm) == ("exact", 0, False)


def test_every_environment_is_played_again(five: Path) -> None:
    """Catch an environment whose states cannot be restored, or a retry that succeeds after an exact pivot."""
    store = Store.open(five)
    rows = probe_rows(store)
    assert set(rows["env"]) == set(ENVIRONMENTS)
    assert set(rows["status"]) <= {"done", "no_suffix"}
    assert problems(five) == []
    labels = store.lazy().labels.collect()
    assert rows.height == labels.filter(labels["pivot_step"].is_not_null()).height * len(PROBE_ARMS)
    for row in rows.to_dicts():
        assert (row["restore_step"] is None) == (row["status"] == "no_suffix")
        if row["arm"] == "after" and row["kind"] == "exact":
            assert not row["success"]


def test_a_second_run_plays_nothing_and_more_resamples_keep_what_is_there(five: Path, tmp_path: Path) -> None:
    root = copy_store(five, tmp_path / "store")
    assert probe_store(root, ProbeSettings(), Reporter()).played == 0
    assert fingerprint(root) == fingerprint(five)
    before = {row["retry_id"]: row for row in probe_rows(Store.open(root)).to_dicts()}
    result = probe_store(root, ProbeSettings(resamples=2), Reporter())
    after = {row["retry_id"]: row for row in probe_rows(Store.open(root)).to_dicts()}
    assert result.retries == 2 * len(before)
    assert {name: after[name] for name in before} == before


def test_retries_are_never_dropped_without_a_word(five: Path, tmp_path: Path) -> None:
    root = copy_store(five, tmp_path / "store")
    with pytest.raises(ConfigError, match="would be dropped; ask for at least these"):
        probe_store(root, ProbeSettings(arms=("no_hint",)), Reporter())
    assert fingerprint(root) == fingerprint(five)


def test_a_stopped_probe_goes_on_to_the_same_bytes(five: Path, tmp_path: Path) -> None:
    root = copy_store(five, tmp_path / "store")
    made = sorted(path for path in (root / "probe").rglob("*.parquet"))
    for path in made[::2]:  # as a kill before the manifest leaves it
        path.unlink()
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["files"] = {name: entry for name, entry in manifest["files"].items() if not name.startswith("probe/")}
    (root / "manifest.json").write_text(json.dumps(manifest))
    (root / "probe/probe.json").unlink()
    result = probe_store(root, ProbeSettings(), Reporter())
    assert 0 < result.played < result.retries
    assert fingerprint(root) == fingerprint(five)


def test_a_retry_that_broke_is_played_again(five: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pivot.rollouts.policies.scripted import ScriptedPolicy

    root = copy_store(five, tmp_path / "store")
    shutil.rmtree(root / "probe")
    reply = ScriptedPolicy.reply

    async def broken(self: ScriptedPolicy, turn: Turn) -> Reply:
        if turn.seed % 11 == 0:
            raise pivot.core.errors.PolicyError("the model is tired")
        return await reply(self, turn)

    monkeypatch.setattr(ScriptedPolicy, "reply", broken)
    probe_store(root, ProbeSettings(), Reporter())
    errors = [row["error"] for row in probe_rows(Store.open(root)).to_dicts() if row["status"] == "error"]
    assert errors
    assert "the model is tired" in errors[0]
    monkeypatch.undo()
    assert probe_store(root, ProbeSettings(), Reporter()).played == len(errors)
    assert fingerprint(root) == fingerprint(five)


def test_a_wrong_label_raises_the_alarm(lake: Path, tmp_path: Path) -> None:
    root = copy_store(lake, tmp_path / "store")
    shutil.rmtree(root / "probe")

    def too_early(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"pivot_step": 0} if row["pivot_step"] else row for row in rows]

    for path in sorted((root / "labels").rglob("*.parquet")):
        change_rows(root, path.relative_to(root).as_posix(), too_early)
    rewrite_manifest(root)
    result = CliRunner().invoke(
        pivot.cli.app, ["probe", str(root), "--arm", "after", "--resamples", "4", "--workers", "1"]
    )
    assert result.exit_code == 1
    assert "these labels are wrong" in result.output
    assert "alarm:" in result.output
    (refuted,) = refuted_labels(Store.open(root))
    assert refuted.alarm
    assert refuted.episodes


def test_arms_name_their_steps() -> None:
    steps = {name: arm.step("episode", 2, 5) for name, arm in PROBE_ARMS.items()}
    assert steps.pop("random") in {0, 1, 3, 4}
    assert steps == {"no_hint": 2, "after": 3, "self": 2, "teacher": 2, "before": 1}
    assert PROBE_ARMS["after"].step("episode", 4, 5) is None
    assert PROBE_ARMS["before"].step("episode", 0, 5) is None
    assert PROBE_ARMS["random"].step("episode", 0, 1) is None


def test_returns_and_lifts() -> None:
    assert is_lift(0.1 + 0.2, 0.3) is False
    assert is_lift(0.3, 0.1 + 0.2) is False
    assert is_lift(0.0, 1e-6)


def test_the_command_shows_and_refuses(five: Path, tmp_path: Path) -> None:
    shown = run("probe", five, "--show")
    assert "retries that return more" in shown
    assert "reads no hints" in shown
    assert isinstance(error_of("probe", five, "--arm", "sideways"), ConfigError)
    error = error_of("probe", build_tiny(tmp_path / "store", "frozenlake"), "--show")
    assert isinstance(error, StoreError)
    assert "was not probed; run: pivot probe" in str(error)


def test_a_relabelled_store_keeps_no_stale_rate(tmp_path: Path) -> None:
    root = _probe(build_tiny(tmp_path / "store", "frozenlake"), arms=("no_hint",))
    run("relabel", root, "--split", "episode", "--workers", "1")
    store = Store.open(root)
    assert probe_rows(store).is_empty()
    _probe(root, arms=("no_hint",))
    assert probe_rows(Store.open(root)).height
