"""The probe of a served policy: hints in its prompts, slots as busy as in a build, and a server that goes away."""

import json
import threading
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import ServerGoneError
from pivot.core.progress import Reporter
from pivot.datasets.store.store import Store
from pivot.insight.probe.rates import probe_rows
from pivot.insight.probe.records import ProbeSettings
from pivot.insight.probe.run import ProbeResult, probe_store
from pivot.tests.flow_runs import assert_nothing_is_torn, config_of
from pivot.tests.flows.test_served_faults import QUICK
from pivot.tests.flows.test_writers import coach
from pivot.tests.models.chat_server import MODEL, ChatServer, served, walker
from pivot.tests.stores import copy_store


def _player(body: dict[str, Any]) -> dict[str, Any]:
    """Plays, and writes guidance if that is requested."""
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


def _tables(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "probe").rglob("*.parquet"))}


def _texts(body: dict[str, Any]) -> str:
    parts = [part for message in body["messages"] for part in message["content"] if isinstance(part, dict)]
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def test_hints_stand_in_the_prompts_and_the_models_own_are_asked_for_once(tmp_path: Path) -> None:
    with served(_player) as server:
        root = _built(tmp_path / "store", server)
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


def test_a_server_that_goes_away_costs_what_was_in_flight_and_the_next_run_ends_in_the_same_bytes(
    tmp_path: Path,
) -> None:
    with served(_player, slots=4) as server:
        whole = _built(tmp_path / "whole", server, max_concurrency=4)
        root = copy_store(whole, tmp_path / "store")
        before = server.log.answered
        _probe(whole, resamples=3)
        half = server.log.answered + (server.log.answered - before) // 2
        gone = threading.Thread(target=server.stop)

        def vanish(key: str, tried: int) -> None:
            if server.log.answered >= half and gone.ident is None:
                gone.start()

        server.fault = vanish
        with pytest.raises(ServerGoneError, match=r"no answer from http://127"):
            _probe(root, resamples=3)
        gone.join()
        assert_nothing_is_torn(root)
        assert any("a probe did not finish; run: pivot probe" in text for text in pivot.verify(root).problems)
        kept = {name: _statuses(root, name) for name in _tables(root)}
        assert any("error" in each and "done" in each for each in kept.values()), "no shard was cut in the middle"
        finished = sum(each.count("done") for each in kept.values())
        answered = server.log.answered
        server.start()
        result = _probe(root, resamples=3)
        again = server.log.answered - answered
    rows = probe_rows(Store.open(whole)).to_dicts()
    done = sum(row["status"] == "done" for row in rows)
    assert result.played == done - finished
    assert again < (half - before) * 2 // 3
    assert _tables(root) == _tables(whole)


def _statuses(root: Path, name: str) -> list[str]:
    import pyarrow.parquet as pq

    (path,) = (root / "probe").rglob(name)
    return pq.read_table(path, columns=["status"])["status"].to_pylist()


def test_a_manifest_names_no_file_that_a_stopped_probe_may_have_changed(tmp_path: Path) -> None:
    with served(_player) as server:
        root = _built(tmp_path / "store", server, tasks=1)
        _probe(root, arms=("no_hint",))
        server.fault = lambda key, tried: "500"  # but not to the request by which it is met
        with pytest.raises(ServerGoneError):
            _probe(root, arms=("no_hint",), resamples=2)
        names = json.loads((root / "manifest.json").read_text())["files"]
        assert not [name for name in names if name.startswith("probe/")]
        server.fault = lambda key, tried: None
        _probe(root, arms=("no_hint",), resamples=2)
