"""Test the Analyzer: reading its replies, the fallback, and equal cases from a row and from an episode."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pivot.core.images import decode
from pivot.datasets.store.config import environment
from pivot.datasets.store.schema import LABELS
from pivot.datasets.store.store import Store, shard_frames, stored_failures
from pivot.labeling.target import build_target
from pivot.tests.models.chat_server import ChatServer, pictures_of, served
from pivot.tests.training.analyzers import answered, readings, reads, sees, served_backend
from pivot.training.analyzer import AnalyzerCase, Shot, case_of_episode, case_of_record, read_reply
from pivot.training.records import SHOWN_COLUMNS, open_records

MODES = ("timeout", "deadlock")
GOOD = build_target(3, "deadlock", "Step 3: go up.")


@pytest.mark.parametrize("reply", [GOOD, f"\n{GOOD} ", f"```json\n{GOOD}\n```", f"<think>{{x</think>\n{GOOD}"])
def test_readable_replies(reply: str) -> None:
    reading = read_reply(reply, 9, MODES)
    assert (reading.pivot_step, reading.failure_mode, reading.failure_reason) == (3, "deadlock", "Step 3: go up.")
    assert reading.problem is None


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("", "empty"),
        ("The pivot is step 3.", "not_json"),
        (f"Here it is: {GOOD}", "not_json"),
        (f"{GOOD}{GOOD}", "not_json"),
        ("[3]", "not_an_object"),
        ('{"pivot_step": 3}', "wrong_fields"),
        ('{"pivot_step": "3", "failure_mode": "deadlock", "failure_reason": ""}', "wrong_type"),
        ('{"pivot_step": true, "failure_mode": "deadlock", "failure_reason": ""}', "wrong_type"),
        (build_target(9, "deadlock"), "out_of_range"),
        (build_target(-1, "deadlock"), "out_of_range"),
        (build_target(3, "budget"), "unknown_mode"),
        ("[" * 100_000, "too_long"),
        ("[" * 60_000, "not_json"),
        ('{"pivot_step": 3, "failure_mode": "timeout", "failure_reason": "\\ud800"}', "not_text"),
        ("I'm sorry, but I can't help with that.", "refused"),
    ],
)
def test_unreadable_replies_become_the_fallback(reply: str, problem: str) -> None:
    reading = read_reply(reply, 9, MODES)
    assert (reading.pivot_step, reading.failure_mode, reading.failure_reason) == (8, "timeout", "")
    assert reading.problem == problem


def cases(store: Path, config: str = "sokoban") -> list[AnalyzerCase]:
    return [case_of_record(row) for row in open_records(str(store), config).rows("train", SHOWN_COLUMNS)]


def test_a_case_is_the_same_from_a_row_and_from_the_episode(small_store: Path) -> None:
    """Stage II shows its Analyzer what Stage I trained it on."""
    store = Store.open(small_store)
    for config in ("sokoban", "frozenlake"):
        from_rows = {case.episode_id: case for case in cases(small_store, config)}
        compared = 0
        for shard in (each for each in store.config.shards() if each.env == config):
            frames = shard_frames(store, shard)
            accepted = {row["episode_id"] for row in store.read(LABELS, shard).to_pylist() if row["accepted"]}
            for episode in stored_failures(store, shard):
                if episode.episode_id not in accepted or episode.episode_id not in from_rows:
                    continue
                live = case_of_episode(environment(config).profile, episode, frames)
                stored = from_rows[episode.episode_id]
                assert live.messages == stored.messages
                assert (live.num_steps, live.modes) == (stored.num_steps, stored.modes)
                assert (decode(live.images[0].image) == decode(stored.images[0].image)).all()
                own = replace(episode, env_config={**episode.env_config, "failure_modes": {"slid": "module:slid"}})
                assert case_of_episode(environment(config).profile, own, frames).modes == (*stored.modes, "slid")
                compared += 1
        assert compared == len(from_rows) > 5


def ask(server: ChatServer, some: list[AnalyzerCase], **shots: Any) -> list[Any]:
    backend = served_backend(server.url, tries=3, pause_seconds=0.01)
    return readings(backend, some, **shots)


def test_readings_come_back_in_order(small_store: Path) -> None:
    some = cases(small_store)
    with served(reads) as server:
        shown = ask(server, some)
    for case, reading in zip(some, shown, strict=True):
        assert reading.reply == reads({"messages": [{"content": case.messages[0]["content"]}]})["text"]
    assert all(each.problem is None for each in shown)
    assert server.log.bodies[0]["temperature"] == 0


def test_cut_and_unreadable_replies_are_typed(small_store: Path) -> None:
    def reply(body: dict[str, Any]) -> dict[str, Any]:
        kinds = [{"text": GOOD, "finish_reason": "length"}, {"text": "{", "finish_reason": "length"}, {"text": "no"}]
        return kinds[len(pictures_of(body)[0]) % 3]

    with served(reply) as server:
        assert {each.problem for each in ask(server, cases(small_store))} == {None, "cut", "not_json"}


def test_worked_examples_come_before_the_question(small_store: Path) -> None:
    first, second, third = cases(small_store)[:3]
    shots = [Shot(first, build_target(1, "timeout", "a")), Shot(second, build_target(2, "deadlock"))]
    with served(sees) as server:
        (reading,) = ask(server, [third], shots=shots)
        (alone,) = ask(server, [third])
    body = server.log.bodies[0]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert body["messages"][1]["content"][0]["text"] == build_target(1, "timeout", "a")
    assert pictures_of(body) == [case.images[0].image for case in (first, second, third)]
    assert reading.pivot_step == alone.pivot_step


def test_a_server_is_kept_busy(small_store: Path) -> None:
    """Catch cases that wait for each other: eight are with the server before it answers the first (and see bench)."""
    some = cases(small_store) * 5
    with served(lambda _: answered(0, "timeout"), keeps_bodies=False) as server:
        server.crowd = 8
        assert len(readings(served_backend(server.url, max_concurrency=8), some)) == len(some) > 60
    assert server.log.most_in_flight == 8
