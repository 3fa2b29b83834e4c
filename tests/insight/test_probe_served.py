"""The probe of a served policy: bounds by resampling, hints in the prompts, and a server that goes away."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.cli import app
from pivot.core.errors import ConfigError, PluginError, ServerGoneError
from pivot.core.progress import Reporter
from pivot.datasets.store.store import Store
from pivot.insight.probe import bounds
from pivot.insight.probe.bounds import Bisection, bounds_of, reached_step
from pivot.insight.probe.rates import probe_rows
from pivot.insight.probe.records import Bound, ProbeSettings
from pivot.insight.probe.run import ProbeResult, probe_store
from pivot.tests.flow_runs import config_of
from pivot.tests.flows.test_writers import QUICK, coach
from pivot.tests.interop.recorded import lines_of_store
from pivot.tests.models.chat_server import MODEL, ChatServer, served, walker
from pivot.tests.stores import build_tiny
from typer.testing import CliRunner


def _player(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as policy, or with guidance if that is requested."""
    return coach(body) if "response_format" in body else walker(body)


def _built(root: Path, server: ChatServer, tasks: int = 3, **service: Any) -> Path:
    part = {
        "name": "openai",
        "options": {"model": MODEL},
        "service": {**QUICK, "base_url": server.url, "patience_seconds": 1.0, **service},
    }
    pivot.build(config_of({"sokoban": tasks}, policy=part), root)
    return root


def _probe(root: Path, **settings: Any) -> ProbeResult:
    return probe_store(root, ProbeSettings(**settings), Reporter())


def _texts(body: dict[str, Any]) -> str:
    parts = [part for message in body["messages"] for part in message["content"] if isinstance(part, dict)]
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def test_hints_stand_in_the_prompts_and_the_models_own_are_asked_for_once(tmp_path: Path) -> None:
    with served(_player) as server:
        root = _built(tmp_path / "store", server, tasks=1)
        server.log.bodies.clear()
        _probe(root)
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
        assert hints
        assert all(any(hint in text for text in played) for hint in hints)
    hinted_rows = [row for row in rows if row["status"] == "done" and row["hint"]]
    assert sum(len(row["actions"]) for row in hinted_rows) == sum("failure" in text.lower() for text in played)
    assert {row["status"] for row in rows if row["hint"] == ""} <= {"no_hint"}


def test_a_manifest_names_no_file_that_a_stopped_probe_may_have_changed(tmp_path: Path) -> None:
    with served(_player) as server:
        root = _built(tmp_path / "store", server, tasks=1)
        _probe(root, arms=("no_hint",))
        server.fault = lambda key, tried: "500"  # but not to the pre-flight check
        with pytest.raises(ServerGoneError, match=r"no answer from http://127"):
            _probe(root, arms=("no_hint",), resamples=2)
        names = json.loads((root / "manifest.json").read_text())["files"]
        assert not [name for name in names if name.startswith("probe/")]
        assert any("a probe did not finish; run: pivot probe" in text for text in pivot.verify(root).problems)
        server.fault = lambda key, tried: None
        _probe(root, arms=("no_hint",), resamples=2)


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
        pivot.probe(root, policy={"name": "scripted"})


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
    pivot.probe(tmp_path / "copy", {"arms": ["bound"], "certified": True, "retries": 4}, policy=policy, workers=1)
    rows = _rows(tmp_path / "copy")
    assert all(row.is_over for row in rows.values()) and pivot.verify(tmp_path / "copy").problems == []
    assert all(rows[name].retries >= row.retries and rows[name].proven >= row.proven for name, row in kept.items())


def test_imported_failures_are_bounded_by_another_policy(built: Path, tmp_path: Path) -> None:
    pivot.import_rollouts(lines_of_store(built, tmp_path / "source"), tmp_path / "store")
    with pytest.raises(PluginError, match="cannot be played again"):
        pivot.probe(tmp_path / "store", {"arms": ["bound"], "certified": True})
    root, rows = _probed(tmp_path / "store", tmp_path, retries=2)
    assert any(row.proven for row in rows.values()) and pivot.verify(root).problems == []


def test_the_command(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "copy")
    shown = CliRunner().invoke(
        app, ["probe", str(tmp_path / "copy"), "--arm", "bound", "--certified", "--retries", "2", "--workers", "1"]
    )
    assert shown.exit_code == 0 and "pivots are proven to be later than step 0" in shown.output, shown.output


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
