"""A server with every kind of failure: no episode is lost or made twice, and the data is the same."""

import json
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.store import Store
from pivot.datasets.store.usage import endings, left_out, model_usage
from pivot.flows.artifacts import usage_of
from pivot.flows.pipeline import BuildResult
from pivot.tests.faults.victim import Victim
from pivot.tests.flow_runs import assert_whole, config_of
from pivot.tests.flows.test_writers import coach, part, tables_of
from pivot.tests.models.chat_server import BROKEN_OFF, FAULTS, ChatServer, number_of, served, walker
from pivot.tests.stores import problems


def config_at(server: ChatServer, tasks: dict[str, int], rollouts: int = 8, **service: Any) -> dict[str, Any]:
    """A config whose policy is served by ``server``."""
    return config_of(tasks, rollouts=rollouts, policy=part(server, **service), tasks_per_shard=3)


def completed(build: Callable[[], BuildResult], times: int = 6) -> BuildResult:
    """Repeat a build while work is pending, at most so many times: pending is not lost."""
    result = build()
    for _ in range(times - 1):
        result = build() if result.pending_episodes or result.unanswered else result
    return result


def one_in_three(*, hangs: bool = False) -> Callable[[str, int], str | None]:
    """Return a source of faults, sampled per try: 30 % are 500s, 10 % all others; hangs are slow, and thus rare."""
    kinds = [kind for kind in FAULTS if kind != "hang"]

    def fault(key: str, tried: int) -> str | None:
        draw = number_of(key, tried) % 1000
        if draw < 300:
            return "500"
        if draw < 400:
            return "hang" if hangs and draw % 50 == 0 else kinds[draw % len(kinds)]
        return None

    return fault


def restart(server: ChatServer, answered: int) -> threading.Thread:
    """Restart a server after a number of answers."""

    def wait_and_restart() -> None:
        while server.log.answered < answered:
            time.sleep(0.01)
        server.stop()
        time.sleep(0.1)
        server.start()

    thread = threading.Thread(target=wait_and_restart, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "tasks",
    [{"sokoban": 3, "frozenlake": 1}, pytest.param({"sokoban": 64, "frozenlake": 61}, marks=pytest.mark.long)],
    ids=["32 episodes", "1000 episodes"],
)
def test_faults_lose_nothing_and_leave_no_trace_but_in_calls(tmp_path: Path, tasks: dict[str, int]) -> None:
    """Catch an episode that is lost, made twice or changed by faults of a server that also restarts."""
    with served() as whole:
        pivot.build(config_at(whole, tasks), tmp_path / "whole")
    with served(fault=one_in_three(hangs=True)) as server:
        config = config_at(server, tasks, request_seconds=0.6)
        restarted = restart(server, 50)
        result = completed(lambda: pivot.build(config, tmp_path / "store"))
        restarted.join()
    assert result.pending_episodes == 0
    assert len(server.log.faults) >= 8
    assert tables_of(tmp_path / "store") == tables_of(tmp_path / "whole")
    episodes = load_store(tmp_path / "store").episodes.collect()
    assert len(episodes) == episodes["episode_id"].n_unique() == sum(tasks.values()) * 8
    assert set(episodes["status"]) == {"complete"}
    steps, calls = load_store(tmp_path / "store").steps.collect(), load_store(tmp_path / "store").calls.collect()
    assert len(calls.filter(pl.col("role") == "student")) == len(steps)
    assert calls["attempts"].mean() > 1.3  # type: ignore[operator]
    assert calls["attempts"].sum() >= server.log.requests  # the server was away for some
    assert_whole(tmp_path / "store")


@pytest.mark.parametrize("cache", ["", "calls.sqlite"])
def test_every_request_is_counted_and_paid_for_once_whatever_became_of_it(tmp_path: Path, cache: str) -> None:
    """Catch a cost that is lost or counted twice when episodes break off at a fault and are executed again."""
    path = str(tmp_path / cache) if cache else ""
    with served(fault=lambda key, tried: "500" if number_of(key, tried) % 12 == 0 else None) as server:
        service = {"tries": 1, "price_in": 1e4, "cache": path, "patience_seconds": 60.0}
        config = config_at(server, {"sokoban": 1}, **service)
        pending = [pivot.build(config, tmp_path / "store").pending_episodes]
        while pending[-1]:
            pending.append(pivot.build(config, tmp_path / "store").pending_episodes)
            (usage,) = model_usage(Store.open(tmp_path / "store"))
            assert usage.tries == server.log.requests
            assert usage.cost == pytest.approx(server.log.answered)  # 100 prompt tokens each
            reported, paid = usage_of(tmp_path / "store")["student"], server.log.answered
            assert (reported["prompt"], reported["cost"]) == pytest.approx((100 * paid, paid))
            assert usage.unanswered == pending[-1]
            if len(pending) == 2:
                assert problems(tmp_path / "store") == []
    assert len(pending) > 2
    assert problems(tmp_path / "store") == []


@pytest.mark.parametrize("tasks", [2, pytest.param(25, marks=pytest.mark.long)], ids=["16 episodes", "200 episodes"])
def test_no_step_and_no_label_rests_on_an_answer_that_was_broken_off(tmp_path: Path, tasks: int) -> None:
    """Every request is broken off once, one in thirty always; guidance likewise."""

    def fault(key: str, tried: int) -> str | None:
        always = number_of(key, "always") % 30 == 0
        return [*BROKEN_OFF][number_of(key, tried) % len(BROKEN_OFF)] if tried == 1 or always else None

    def config(player: ChatServer, teacher: ChatServer) -> dict[str, Any]:
        return config_at(player, {"sokoban": tasks}, tries=3) | {"teacher": part(teacher, tries=3)}

    with served() as player, served(coach) as teacher:
        pivot.build(config(player, teacher), tmp_path / "whole")
    with served(fault=fault) as player, served(coach, fault=fault) as teacher:
        result = pivot.build(config(player, teacher), tmp_path / "store")
        assert player.log.faults.keys() | teacher.log.faults.keys() == BROKEN_OFF.keys()
    whole, frames = load_store(tmp_path / "whole"), load_store(tmp_path / "store")
    episodes, steps = frames.episodes.collect(), frames.steps.collect()
    complete = episodes.filter(status="complete")
    errors = episodes.filter(status="error")
    assert 0 < result.pending_episodes == errors.height < episodes.height
    assert errors["error"].str.contains("BrokenOffError: no answer from .* in 3 tries").all()
    assert set(steps["finish_reason"]) == {"stop"}
    assert steps.filter(pl.col("response").str.contains("lost")).is_empty()
    of_complete = steps.join(complete, on="episode_id", how="semi")
    assert of_complete.equals(whole.steps.collect().join(complete, on="episode_id", how="semi"))
    labels = frames.labels.collect()
    assert set(labels["episode_id"]) == set(complete.filter("failed")["episode_id"])
    unanswered = labels.filter(pl.col("reject_reasons").list.len() > 0)
    assert result.unanswered == unanswered["reject_reasons"].explode().struct.field("kind").is_in(["unanswered"]).sum()
    answered = labels.join(unanswered, on="episode_id", how="anti")
    theirs = whole.labels.collect().join(answered, on="episode_id", how="semi")
    assert not answered.is_empty() and answered.select("target", "pivot_step").equals(
        theirs.select("target", "pivot_step")
    )
    calls = frames.calls.collect()
    for role, server in (("student", player), ("teacher", teacher)):
        assert calls.filter(role=role)["broken_off"].sum() == server.log.faults.total() > 0
    lines = endings(Store.open(tmp_path / "store"))
    assert [line.partition(" of ")[0] for line in lines] == [str(each.log.faults.total()) for each in (player, teacher)]


def test_tokens_are_stored_and_a_missing_finish_reason_as_unknown(tmp_path: Path) -> None:
    with served(lambda body: walker(body) | {"finish_reason": None if body["seed"] % 2 else "eos"}) as server:
        pivot.build(config_at(server, {"sokoban": 1}), tmp_path / "store")
    steps = load_store(tmp_path / "store").steps.collect()
    assert steps["response_token_ids"].list.len().to_list() == [5] * len(steps)
    assert steps["response_logprobs"].to_list() == [[-0.25, -0.5, -0.75, -1.0, -1.25]] * len(steps)
    assert all(body["logprobs"] and body["return_token_ids"] for body in server.log.bodies)
    unknown = steps.filter(finish_reason="unknown").height
    assert set(steps["finish_reason"]) == {"stop", "unknown"}
    (line,) = endings(Store.open(tmp_path / "store"))
    assert line == f"{unknown} answers to the policy have no finish reason: they are stored as unknown"
    assert problems(tmp_path / "store") == []


def test_what_a_server_refuses_is_said_on_the_card(tmp_path: Path) -> None:
    with served(unknown_fields=frozenset({"return_token_ids"})) as server:
        pivot.build(config_at(server, {"sokoban": 1}, rollouts=2), tmp_path / "store")
    steps = load_store(tmp_path / "store").steps.collect().height
    said = f"{steps} of {steps} requests of the policy went without return_token_ids (steps have no token ids)"
    assert said in left_out(Store.open(tmp_path / "store"))[0]
    assert f"- {said}" in (tmp_path / "store" / "dataset" / "README.md").read_text()


def _settled(server: ChatServer) -> int:
    """Answers given when the last request of a killed run is over, too."""
    while server._connections:
        time.sleep(0.01)
    return server.log.answered


def _kept_requests(root: Path, cache: Path) -> tuple[set[str], set[str]]:
    """Requests whose answers a killed run kept: in finished shards, and in the cache, which is written later."""
    with closing(sqlite3.connect(cache)) as connection:
        cached = {json.loads(text)["paid_by"][1] for (text,) in connection.execute("SELECT answer FROM calls_v2")}
    finished = (path.stem for path in (root / ".receipts/rollout/sokoban").glob("*.json"))
    tables = (pl.read_parquet(root / f"calls/sokoban/{shard}.parquet") for shard in finished)
    return {name for table in tables for name in table["request_id"]}, cached


@pytest.mark.xdist_group("kill")
def test_what_was_paid_before_a_kill_is_counted_after_it(victim: Victim, tmp_path: Path) -> None:
    root, cache = tmp_path / "store", tmp_path / "calls.sqlite"
    with served(slots=4) as server:
        server.about_model = {"root": "runs/a"}  # answers of a named checkpoint are shared
        config = config_at(server, {"sokoban": 4}, rollouts=4, max_concurrency=4, cache=str(cache), price_in=1e4) | {
            "tasks_per_shard": 1
        }
        victim.run("build", root, config, die_at="/.receipts/rollout/sokoban/00001.json", how=signal.SIGKILL)
        answered, (finished, cached) = _settled(server), _kept_requests(root, cache)
        assert pivot.build(config, root).pending_episodes == 0
        (usage,) = model_usage(Store.open(root))
        assert usage.cost == pytest.approx(len(finished | cached) + server.log.answered - answered)
        assert usage.tries == usage.cost
        assert usage.cached == 0
        # For another store they are free, but for last answers, which the kill kept from the cache.
        paid = len(finished - cached)
        pivot.build(config, tmp_path / "other")
        (free,) = model_usage(Store.open(tmp_path / "other"))
        assert (free.cached, free.tries, free.cost) == (free.requests - paid, paid, paid or None)
        assert free.prompt_tokens == usage_of(tmp_path / "other")["student"]["prompt"] == 100 * paid
        assert free.completion_tokens == usage_of(tmp_path / "other")["student"]["completion"]


def test_an_episode_that_outlives_its_wall_clock_stays_pending(tmp_path: Path) -> None:
    with served(latency=0.3) as server:
        config = config_at(server, {"sokoban": 1}, rollouts=2, episode_seconds=0.7)
        assert pivot.build(config, tmp_path / "store").pending_episodes == 2
        assert all("longer than 0.7 s" in text for text in load_store(tmp_path / "store").episodes.collect()["error"])
        (usage,) = model_usage(Store.open(tmp_path / "store"))
        assert (usage.tries, usage.unanswered) == (server.log.requests, 2)
        server.latency = 0.0
        assert pivot.build(config, tmp_path / "store").pending_episodes == 0


def test_a_request_that_the_server_refuses_is_an_error_of_its_episode_and_tried_once(tmp_path: Path) -> None:
    bad: set[str] = set()

    def fault(key: str, tried: int) -> str | None:
        if bad or number_of(key) % 9 != 1:
            return None if key not in bad else "422"
        bad.add(key)
        return "422"

    with served(fault=fault) as server:
        config = config_at(server, {"sokoban": 2})
        assert pivot.build(config, tmp_path / "store").pending_episodes == 1
        assert server.log.faults == {"422": 1}
        assert set(load_store(tmp_path / "store").calls.collect()["attempts"]) == {1}
        bad.clear()
        server.fault = lambda key, tried: None
        assert pivot.build(config, tmp_path / "store").pending_episodes == 0
