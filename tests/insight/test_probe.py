"""The rollback probe: exact odds, restored states, hints, resume, refuted labels, bounds, served policies."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.cli import app
from pivot.core.errors import ConfigError, PluginError, ServerGoneError, StoreError
from pivot.core.progress import Reporter
from pivot.datasets.store.store import Store
from pivot.environments.turns import Reply, Turn
from pivot.insight.probe import bounds
from pivot.insight.probe.bounds import Bisection, bounds_of, reached_step
from pivot.insight.probe.rates import _arm_rate, _new_totals, arm_rates, probe_rows, refuted_labels
from pivot.insight.probe.records import PROBE_ARMS, Bound, ProbeSettings, is_lift
from pivot.insight.probe.run import ProbeResult, probe_store
from pivot.insight.probe.shard import rollback_policy
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import config_of, fingerprint
from pivot.tests.flows.test_writers import QUICK, coach
from pivot.tests.interop.recorded import lines_of_store
from pivot.tests.models.chat_server import MODEL, ChatServer, served, walker
from pivot.tests.stores import build_tiny, change_rows, copy_store, problems, rewrite_manifest
from typer.testing import CliRunner

ENVIRONMENTS = ("sokoban", "frozenlake", "navigation", "primitiveskill", "svg")
HABITS = {"skill": 0.5, "misread": 0.0, "episode_spread": 0.0, "evenness": 0.0, "bad_format": 0.0, "blunder": 0.1}


def _probe(root: Path, **settings: Any) -> ProbeResult:
    return probe_store(root, ProbeSettings(**settings), Reporter())


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all environments, probed once in every arm; copy it before changing anything."""
    root = tmp_path_factory.mktemp("probe") / "store"
    runs = {name: {"tasks": 2, "settings": {}} for name in ENVIRONMENTS}
    pivot.build({"environments": runs, "rollouts": 2, "tasks_per_shard": 1}, root)
    _probe(root)
    return root


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A FrozenLake store of an expert whose odds are known, its failures played again twelve times."""
    root = tmp_path_factory.mktemp("lake") / "store"
    runs = {"frozenlake": {"tasks": 30, "settings": {}}}
    policy = {"name": "scripted", "options": {"habits": {"frozenlake": HABITS}}}
    pivot.build({"environments": runs, "policy": policy}, root)
    _probe(root, arms=("no_hint", "after"), resamples=12)
    return root


def test_from_the_pivot_more_is_lifted_than_after_it(lake: Path) -> None:
    """Catch rates that do not separate the fatal step from the one after it."""
    store = Store.open(lake)
    rates = {each.arm: each for each in arm_rates(store)[1]}
    no_hint, after = rates["no_hint"], rates["after"]
    assert no_hint.lift is not None and after.lift is not None and after.success is not None
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
        assert row["new_return"] == (None if row["rewards"] is None else pytest.approx(sum(row["rewards"])))
        if row["arm"] == "after" and row["kind"] == "exact":
            assert not row["success"]


def test_a_second_run_plays_nothing_and_more_resamples_keep_what_is_there(five: Path, tmp_path: Path) -> None:
    root = copy_store(five, tmp_path / "store")
    assert _probe(root).played == 0
    assert fingerprint(root) == fingerprint(five)
    before = {row["retry_id"]: row for row in probe_rows(Store.open(root)).to_dicts()}
    result = _probe(root, resamples=2)
    after = {row["retry_id"]: row for row in probe_rows(Store.open(root)).to_dicts()}
    assert result.retries == 2 * len(before)
    assert {name: after[name] for name in before} == before


def test_retries_are_never_dropped_without_a_word(five: Path, tmp_path: Path) -> None:
    root = copy_store(five, tmp_path / "store")
    with pytest.raises(ConfigError, match="would be dropped; ask for at least these"):
        _probe(root, arms=("no_hint",))
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
    result = _probe(root)
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
    _probe(root)
    errors = [row["error"] for row in probe_rows(Store.open(root)).to_dicts() if row["status"] == "error"]
    assert "the model is tired" in errors[0]
    monkeypatch.undo()
    assert _probe(root).played == len(errors)
    assert fingerprint(root) == fingerprint(five)


def test_a_wrong_label_raises_the_alarm(lake: Path, tmp_path: Path) -> None:
    root = copy_store(lake, tmp_path / "store")
    shutil.rmtree(root / "probe")

    def too_early(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"pivot_step": 0} if row["pivot_step"] else row for row in rows]

    for path in sorted((root / "labels").rglob("*.parquet")):
        change_rows(root, path.relative_to(root).as_posix(), too_early)
    rewrite_manifest(root)
    result = CliRunner().invoke(app, ["probe", str(root), "--arm", "after", "--resamples", "4", "--workers", "2"])
    assert result.exit_code == 1 and "these labels are wrong" in result.output and "alarm:" in result.output
    (refuted,) = refuted_labels(Store.open(root))
    assert refuted.alarm and refuted.episodes
    won = probe_rows(Store.open(root)).filter(pl.col("success") & (pl.col("arm") == "after"))
    assert refuted.refuted == won["episode_id"].n_unique(), "one success of the four is enough"


def test_arms_name_their_steps() -> None:
    steps = {name: arm.step("episode", 2, 5) for name, arm in PROBE_ARMS.items()}
    assert steps.pop("random") in {0, 1, 3, 4}
    assert steps == {"no_hint": 2, "after": 3, "self": 2, "teacher": 2, "before": 1}
    for name, pivot_step, num_steps in (("after", 4, 5), ("before", 0, 5), ("random", 0, 1)):
        assert PROBE_ARMS[name].step("episode", pivot_step, num_steps) is None


def test_returns_and_lifts() -> None:
    assert is_lift(0.0, 1e-6) and not is_lift(0.1 + 0.2, 0.3) and not is_lift(0.3, 0.1 + 0.2)


def test_the_command_shows_and_refuses(five: Path, lake: Path, tmp_path: Path) -> None:
    shown = run("probe", five, "--show")
    assert "retries that return more" in shown and "reads no hints" in shown
    assert isinstance(error_of("probe", five, "--arm", "sideways"), ConfigError)
    other = error_of("probe", lake, "--arm", "bound", "--policy-set", "habits=3")
    assert "habits" in str(other), "not those of the store"
    error = error_of("probe", build_tiny(tmp_path / "store", "frozenlake"), "--show")
    assert isinstance(error, StoreError) and "was not probed; run: pivot probe" in str(error)


def test_a_store_that_changes_keeps_the_retries_of_unchanged_shards_alone(tmp_path: Path) -> None:
    root, config = tmp_path / "store", config_of({"frozenlake": 3})
    pivot.build(config_of({"frozenlake": 2}), root)
    _probe(root, arms=("no_hint",))
    rows = probe_rows(Store.open(root))
    pivot.build(config, root)
    assert probe_rows(Store.open(root)).equals(rows) and problems(root) == []
    assert "1 shards are newer than the probe" in run("probe", root, "--show")
    result = _probe(root, arms=("no_hint",))
    assert result.played == result.retries - rows.height > 0
    run("relabel", root, "--split", "episode", "--workers", "1")
    assert probe_rows(Store.open(root)).is_empty()
    _probe(root, arms=("no_hint",))
    assert probe_rows(Store.open(root)).height
    pivot.build(config, root, refresh=True)
    assert not (root / "probe").exists() and problems(root) == []


def _player(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as policy, or with guidance if that is requested."""
    return coach(body) if "response_format" in body else walker(body)


def _built(root: Path, server: ChatServer, **service: Any) -> Path:
    part = {
        "name": "openai",
        "options": {"model": MODEL},
        "service": {**QUICK, "base_url": server.url, "patience_seconds": 1.0, **service},
    }
    long_turns = {"sokoban": {"tasks": 1, "settings": {"actions_per_turn": 2}}}
    pivot.build(config_of(policy=part, environments=long_turns), root)
    return root


def _texts(body: dict[str, Any]) -> str:
    parts = [part for message in body["messages"] for part in message["content"] if isinstance(part, dict)]
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def test_hints_stand_in_the_prompts_and_the_models_own_are_asked_for_once(tmp_path: Path) -> None:
    with served(_player) as server:
        root = _built(tmp_path / "store", server)
        server.log.bodies.clear()
        _probe(root)
        policy = Store.open(root).run.policy()
        assert rollback_policy(Store.open(root)).episodes_in_flight == policy.episodes_in_flight > 1
        hint_requests = [body for body in server.log.bodies if "response_format" in body]
        played = [_texts(body) for body in server.log.bodies if "response_format" not in body]
        server.log.bodies.clear()
        assert _probe(root, resamples=2).played > 0
        assert not [body for body in server.log.bodies if "response_format" in body]
    rows = [row for row in probe_rows(Store.open(root)).to_dicts() if row["sample_idx"] == 0]
    failures = {row["episode_id"] for row in rows}
    assert len(failures) <= len(hint_requests) <= 2 * len(failures)  # an unusable answer is requested twice
    for arm in ("self", "teacher"):
        hints = {row["hint"] for row in rows if row["arm"] == arm and row["status"] == "done"}
        assert hints and all(any(hint in text for text in played) for hint in hints)
    assert any("Kind of failure: timeout (the goal could still be reached, but not within" in text for text in played)
    hinted_rows = [row for row in rows if row["status"] == "done" and row["hint"]]
    assert sum(len(row["actions"]) for row in hinted_rows) == sum("failure" in text.lower() for text in played)
    assert {row["status"] for row in rows if row["hint"] == ""} <= {"no_hint"}


def test_a_stopped_probe_keeps_finished_retries_and_its_manifest_names_no_file_of_them(tmp_path: Path) -> None:
    with served(_player) as server:
        root = _built(tmp_path / "store", server, max_concurrency=1)
        before = server.log.answered
        first = _probe(root, arms=("no_hint",))
        last = server.log.answered + (server.log.answered - before) * 3 // 2  # in the middle of a retry
        server.fault = lambda key, tried: "500" if server.log.answered >= last else None
        with pytest.raises(ServerGoneError, match=r"no answer from http://127"):
            _probe(root, arms=("no_hint",), resamples=3)
        names = json.loads((root / "manifest.json").read_text())["files"]
        assert not [name for name in names if name.startswith("probe/")]
        assert any("a probe did not finish; run: pivot probe" in text for text in pivot.verify(root).problems)
        server.fault = lambda key, tried: None
        assert 0 < _probe(root, arms=("no_hint",), resamples=3).played < 2 * first.played
    with served(_player) as moved:
        run("probe", root, "--arm", "no_hint", "--resamples", "4", "--policy-service", f"base_url={moved.url}")
        assert moved.log.answered
    assert "--policy-service base_url=URL" in str(error_of("probe", root, "--arm", "no_hint", "--resamples", "5"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("built") / "store")


def _skilled(habits: float) -> dict[str, object]:
    return {"habits": {env: {"skill": habits, "misread": 0.0, "blunder": 0.0} for env in ("sokoban", "frozenlake")}}


def _probed(root: Path, tmp_path: Path, **settings: Any) -> tuple[Path, dict[str, Bound]]:
    """Return a copy of a store with a probe of arm bound, and its rows."""
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    policy = {"name": "scripted", "options": _skilled(20.0)}
    pivot.probe(copy, {"arms": ["bound"], "certified": True, **settings}, policy=policy, workers=1)
    return copy, _rows(copy)


def _rows(root: Path) -> dict[str, Bound]:
    store = Store.open(root)
    return {name: row for shard in store.config.shards() for name, row in bounds_of(store, shard).items()}


def test_bounds_are_proven_and_never_above_the_certificate(built: Path, tmp_path: Path) -> None:
    root, rows = _probed(built, tmp_path, retries=8)
    labels = {row["episode_id"]: row for row in pivot.load_store(root).labels.collect().to_dicts()}
    assert rows.keys() == labels.keys() and all(row.is_over for row in rows.values())
    assert all(row.proven <= labels[name]["pivot_step"] for name, row in rows.items())
    reached = sum(row.proven == labels[name]["pivot_step"] for name, row in rows.items())
    assert reached >= len(labels) - 1  # the policy is nearly perfect
    assert all(row.retries <= 24 for row in rows.values())
    assert pivot.verify(root).problems == []
    after = next(row for row in rows.values() if row.chance_step is not None)
    assert after.chance_at_most == min(1.0, 3 / after.tried[str(after.proven + 1)])
    with pytest.raises(ConfigError, match="arm bound alone"):
        pivot.probe(root, policy={"name": "scripted", "options": _skilled(2.0)})


def test_stored_bounds_are_continued_by_the_same_policy_alone(built: Path, tmp_path: Path) -> None:
    root, rows = _probed(built, tmp_path, budget=6)
    policy = {"name": "scripted", "options": _skilled(20.0)}
    pivot.probe(root, {"arms": ["bound"], "retries": 4, "budget": 5}, policy=policy, workers=1)
    assert _rows(root) == rows
    with pytest.raises(ConfigError, match="by the policy scripted"):
        pivot.probe(root, {"arms": ["bound"]})
    pivot.probe(root, {"arms": ["no_hint", "bound"], "budget": 8}, policy=policy, workers=1)
    assert {row.retries - rows[name].retries for name, row in _rows(root).items()} == {2}
    assert not probe_rows(Store.open(root))["policy_config"].str.contains("blunder").any()


def test_exact_labels_need_no_bound(built: Path, tmp_path: Path) -> None:
    assert _probed(built, tmp_path, certified=False)[1] == {}


def test_an_interrupted_search_keeps_its_retries(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, calls = bounds._Work._receive, []

    def interrupted(self: Any, *arguments: Any) -> None:
        receive(self, *arguments)
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(bounds._Work, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _probed(built, tmp_path, retries=4)
    store = Store.open(tmp_path / "copy")
    kept = bounds_of(store, store.config.shards()[0])
    played = sum(row.retries for row in kept.values())
    assert played > 0 and not all(row.is_over for row in kept.values())
    policy = {"name": "scripted", "options": _skilled(20.0)}
    settings = {"arms": ["bound"], "certified": True, "retries": 4}
    result = pivot.probe(tmp_path / "copy", settings, policy=policy, workers=1)
    rows = _rows(tmp_path / "copy")
    total = sum(row.retries for row in rows.values())
    assert result == ProbeResult(total, total - played)
    assert all(row.is_over for row in rows.values()) and pivot.verify(tmp_path / "copy").problems == []
    assert all(rows[name].retries >= row.retries and rows[name].proven >= row.proven for name, row in kept.items())


def test_imported_failures_are_bounded_by_another_policy(built: Path, tmp_path: Path) -> None:
    pivot.import_rollouts(lines_of_store(built, tmp_path / "source"), tmp_path / "store")
    for arms, policy in ((["bound"], None), (["bound", "no_hint"], {"name": "scripted"})):
        with pytest.raises(PluginError, match="cannot be played again; read"):
            pivot.probe(tmp_path / "store", {"arms": arms, "certified": True}, policy=policy)
    root, rows = _probed(tmp_path / "store", tmp_path, retries=2)
    assert any(row.proven for row in rows.values()) and pivot.verify(root).problems == []


def test_the_command(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "copy")
    words = ("--arm", "bound", "--certified", "--retries", "2", "--workers", "1")
    assert "pivots are proven to be later than step 0" in run("probe", tmp_path / "copy", *words)


def test_the_bisection_finds_the_last_step_that_can_be_won() -> None:
    rng = random.Random(0)
    for last in range(1, 25):
        for truth in range(last + 1):
            search = Bisection(last, 4, 200)
            while (step := search.next_step()) is not None:
                assert search.proven < step <= last
                search.add(step, step if step <= truth and rng.random() < 0.7 else None)
            assert search.proven == truth
            assert search.played <= 200
    search = Bisection(8, 4, 12)
    for reached in (5, 2):
        search.add(2, reached)
    assert search.proven == 5, "a later retry that proves less takes nothing back"


def test_a_bisection_takes_few_retries_of_a_policy_that_always_wins() -> None:
    for truth in range(0, 1000, 3):
        search = Bisection(999, 2, 200)
        while search.proven < truth and (step := search.next_step()) is not None:
            search.add(step, step if step <= truth else None)
        assert search.proven == truth and search.played <= 60


def test_states_on_the_way_count_only_with_as_many_turns_left() -> None:
    failure = ["a", "b", "c", "d"]
    assert reached_step(failure, ["a", "b", "c", "x"], 1) == 2
    assert reached_step(failure, ["a", "c", "x"], 1) == 1  # the retry was there with more turns left
    assert reached_step(failure, ["a", "b", "x", "y", "c"], 1) == 2  # later than the failure: fewer turns sufficed
    assert reached_step(failure, ["a", "x", "y"], 1) == 1
