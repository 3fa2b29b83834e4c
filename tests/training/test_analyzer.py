"""Test the Analyzer: reading its replies, the fallback, and equal cases from a row and from an episode."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pivot.core.images import decode
from pivot.datasets.store.config import environment
from pivot.datasets.store.schema import LABELS
from pivot.datasets.store.store import Store, shard_frames, stored_failures
from pivot.labeling.target import build_target
from pivot.tests.models.chat_server import ChatServer, pictures_of, served
from pivot.tests.training.analyzers import answered, reads, sees, served_backend
from pivot.training.analyzer import (
    Analyzer,
    AnalyzerCase,
    Shot,
    case_of_episode,
    case_of_record,
    read_reply,
    step_probability,
)
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


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (['{"pivot_step', '": ', "3", ', "failure_mode": "x"}'], -3.0),
        (['{"pivot_step": 3', ', "x'], -1.0),
        (['{"pivot_step": ', "1", "2", ", "], -5.0),
        (["no", " step"], None),
        ([], None),
    ],
)
def test_the_probability_of_the_step_is_that_of_its_tokens(tokens: list[str], expected: float | None) -> None:
    """Token k has log-probability -(k + 1)."""
    probability = step_probability(tokens, [-float(place + 1) for place in range(len(tokens))])
    assert probability is None if expected is None else probability == pytest.approx(math.exp(expected))
    assert step_probability([*tokens, "x"], [-1.0] * len(tokens)) is None
    thoughts = ["<think>", '{"pivot_step": 7}', "</think>"]
    assert step_probability([*thoughts, *tokens], [-9.0, -9.0, -9.0, *(-float(i + 1) for i in range(len(tokens)))]) == (
        pytest.approx(probability)
    )


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
                compared += 1
        assert compared == len(from_rows) > 5


def ask(server: ChatServer, some: list[AnalyzerCase], **shots: Any) -> list[Any]:
    backend = served_backend(server.url, tries=3, pause_seconds=0.01)
    return Analyzer(backend, **shots).read_all(some)


def test_readings_come_back_in_order_with_their_probabilities(small_store: Path) -> None:
    some = cases(small_store)
    with served(reads) as server:
        readings = ask(server, some)
        again = ask(server, some)
    assert [each.pivot_step for each in again] == [each.pivot_step for each in readings]
    for case, reading in zip(some, readings, strict=True):
        assert reading.reply == reads({"messages": [{"content": case.messages[0]["content"]}]})["text"]
    assert [each.step_probability for each in readings] == [pytest.approx(0.25)] * len(some)
    assert all(each.problem is None for each in readings)
    body = server.log.bodies[0]
    assert body["temperature"] == 0
    assert body["logprobs"] is True


@pytest.mark.parametrize("fault", ["400", "filtered"])
def test_unreadable_and_unanswered_cases_are_typed(small_store: Path, fault: str) -> None:
    some = cases(small_store)

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        kinds = [{"text": GOOD, "finish_reason": "length"}, {"text": "{", "finish_reason": "length"}, {"text": "no"}]
        return kinds[len(pictures_of(body)[0]) % 3]

    with served(reply) as server:
        problems = {each.problem for each in ask(server, some)}
    assert problems == {None, "cut", "not_json"}

    def refused(key: str, tried: int) -> str | None:
        del tried
        return fault if int(key[:2], 16) % 2 else None

    with served(reads, fault=refused) as server:
        readings = ask(server, some)
    assert len(readings) == len(some)
    lost = [each for each in readings if each.problem == "unanswered"]
    assert 0 < len(lost) < len(some)
    assert all(each.pivot_step == case.num_steps - 1 for case, each in zip(some, readings, strict=True) if each in lost)


def test_worked_examples_stand_before_the_question(small_store: Path) -> None:
    first, second, third = cases(small_store)[:3]
    shots = {"sokoban": [Shot(first, build_target(1, "timeout", "a")), Shot(second, build_target(2, "deadlock"))]}
    with served(sees) as server:
        (reading,) = ask(server, [third], shots=shots)
        (alone,) = ask(server, [third])
    body = server.log.bodies[0]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert body["messages"][1]["content"][0]["text"] == build_target(1, "timeout", "a")
    assert pictures_of(body) == [case.images[0].image for case in (first, second, third)]
    assert reading.pivot_step == alone.pivot_step
    assert Analyzer(served_backend(server.url), shots).config["shots"]["sokoban"]


def test_a_server_is_kept_busy(small_store: Path) -> None:
    """Eight slots of 400 ms: at least nine tenths of them are busy from the first request to the last answer."""
    some = cases(small_store) * 5
    with served(lambda _: answered(0, "timeout"), latency=0.4, slots=8, keeps_bodies=False) as server:
        Analyzer(served_backend(server.url, max_concurrency=8)).read_all(iter(some[:8]))  # connections, imports
        shares = [0.0]
        while len(shares) < 4 and shares[-1] < 0.9:  # a crowded machine may hold one reading up
            server.log.busy.clear()
            readings = Analyzer(served_backend(server.url, max_concurrency=8)).read_all(iter(some))
            assert len(readings) == len(some) > 60
            changes = list(server.log.busy)
            busy = sum(count * (after - now) for (now, count), (after, _) in pairwise(changes))
            shares.append(busy / (8 * (changes[-1][0] - changes[0][0])))
    assert shares[-1] >= 0.9, shares
