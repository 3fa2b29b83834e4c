"""The call cache: shared, atomic, kept through kills, and without errors or refusals."""

import asyncio
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import time
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import PolicyError
from pivot.core.identity import digest
from pivot.core.messages import Call, EncodedFrame
from pivot.datasets.store.config import make_config
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.store import Store
from pivot.datasets.store.usage import calls_in_all, model_usage
from pivot.flows import preflight
from pivot.models.base import ChatAnswer, ChatModel, ChatRequest, Sampling
from pivot.models.cache import CachedModel, CallCache, request_facts
from pivot.models.openai import model as openai_model
from pivot.models.openai.model import OpenAIModel
from pivot.models.service import Service
from pivot.tests.flow_runs import PATIENCE, config_of
from pivot.tests.models.cache_victim import store_answers
from pivot.tests.models.chat_server import MODEL, part, served

MESSAGES = ({"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "image", "frame_id": "f1"}]},)
REQUEST = ChatRequest(
    request_id="r",
    episode_id="e",
    t=0,
    role="student",
    messages=MESSAGES,
    images={"f1": EncodedFrame("f1", 1, 1, "png", b"")},
    prompt_hash=digest(MESSAGES),
    sampling=Sampling(),
    seed=7,
)
HARD = "a\x00b \ud800 <think>\u202e</think> 😀 \x1b[31m"


class FakeModel(ChatModel):
    """A model that answers from a list and counts."""

    def __init__(self, answers: list[Any], revision: str | None = None, root: str | None = None) -> None:
        self.left, self.revision, self.root = answers, revision, root

    async def served_as(self) -> str | None:
        return self.root

    @property
    def config(self) -> dict[str, Any]:
        return {"model": "fake", "revision": self.revision}

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def ask(path: Path, model: FakeModel, *requests: ChatRequest, **settings: Any) -> list[ChatAnswer]:
    """Ask through the cache at ``path``, opened and closed."""

    async def all_of_them() -> list[ChatAnswer]:
        async with aclosing(CachedModel(model, CallCache(path), **settings)) as cached:
            return [await cached.answer(request) for request in requests]

    return asyncio.run(all_of_them())


def test_an_answer_comes_back_whole(tmp_path: Path) -> None:
    call: dict[str, Any] = {"attempts": 3, "latency": 1.5, "prompt_tokens": 10, "completion_tokens": 2, "cost": 0.5}
    call |= {"model_revision": "r1", "broken_off": 1}
    first = ChatAnswer(HARD, "length", (1, 2), (-0.5, -1.5), call=call)
    paid, again = ask(tmp_path / "c", FakeModel([first], "r1"), REQUEST, REQUEST, payer="store")
    (free,) = ask(tmp_path / "c", FakeModel([], "r1"), REQUEST)
    (other,) = ask(tmp_path / "c", FakeModel([], "r1"), replace(REQUEST, request_id="q"), payer="store")
    assert paid == first and again.call == call | {"left_out": None, "cache_hit": False, "kept": True}
    assert (free.text, free.finish_reason, free.token_ids, free.logprobs) == (HARD, "length", (1, 2), (-0.5, -1.5))
    for each in (free, other):
        assert [each.call[name] for name in ("cache_hit", "attempts", "cost", "prompt_tokens")] == [True, 0, 0.0, 10]


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 8},
        {"sample": 1},
        {"prompt_hash": "other"},
        {"sampling": Sampling(temperature=0.4)},
        {"sampling": Sampling(max_tokens=5)},
        {"json_schema": {"type": "object"}},
        {"wants_logprobs": True},
    ],
)
def test_everything_that_decides_the_answer_is_in_the_key(tmp_path: Path, change: dict[str, Any]) -> None:
    answers = ask(tmp_path / "c", FakeModel([ChatAnswer("a"), ChatAnswer("b")]), REQUEST, replace(REQUEST, **change))
    assert [answer.text for answer in answers] == ["a", "b"]


def test_address_and_store_are_not_in_the_key(tmp_path: Path) -> None:
    other = replace(REQUEST, request_id="q", episode_id="x", t=5)
    assert [answer.text for answer in ask(tmp_path / "c", FakeModel([ChatAnswer("a")]), REQUEST, other)] == ["a", "a"]
    (another,) = ask(tmp_path / "c", FakeModel([ChatAnswer("b")], revision="2"), REQUEST)
    assert another.text == "b"


def test_errors_refusals_and_empty_answers_are_not_stored(tmp_path: Path) -> None:
    with pytest.raises(PolicyError):
        ask(tmp_path / "c", FakeModel([PolicyError("503")]), REQUEST)
    answers = ask(tmp_path / "c", FakeModel([ChatAnswer("", refusal="no"), ChatAnswer("yes")]), REQUEST, REQUEST)
    assert [(answer.text, answer.refusal) for answer in answers] == [("", "no"), ("yes", None)]
    assert CallCache(tmp_path / "c").counts()[0][3] == 1
    empty = replace(REQUEST, seed=8, role="teacher")
    assert [
        each.text for each in ask(tmp_path / "c", FakeModel([ChatAnswer(" "), ChatAnswer("no")]), empty, empty)
    ] == [" ", "no"]
    played = replace(empty, role="student", seed=9)
    assert [each.text for each in ask(tmp_path / "c", FakeModel([ChatAnswer(" ")]), played, played)] == [" ", " "]


def test_checkpoints_under_one_name_share_no_answer(tmp_path: Path) -> None:
    """Answers of servers that report no checkpoint are still found: their key has none."""
    path = tmp_path / "c"
    assert [
        ask(path, FakeModel([ChatAnswer(text)], root=root), REQUEST)[0].text
        for text, root in (("old", None), ("a", "runs/a"), ("b", "runs/b"), ("-", "runs/a"), ("-", None))
    ] == ["old", "a", "b", "a", "old"]
    assert digest(request_facts({"model": "m"}, REQUEST)) == digest(request_facts({"model": "m"}, REQUEST, None))
    cache = CallCache(path)
    assert {(row[1], row[3]) for row in cache.counts()} == {(None, 1), ("runs/a", 1), ("runs/b", 1)}
    cache.close()


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"root": "runs/a", "created": 1}, "runs/a"),
        ({"root": "runs/lora", "parent": "tiny"}, "runs/lora on tiny"),
        ({"root": MODEL, "owned_by": "vllm"}, MODEL),
        ({"root": MODEL, "owned_by": "sglang"}, None),
        ({"created": 1686935002, "owned_by": "openai"}, None),
        ({"root": None}, None),
        ({"root": 7}, None),
        ({"root": "r" * 10_000}, "r" * 1000),
    ],
)
def test_the_checkpoint_that_a_server_reports(
    entry: dict[str, Any], expected: str | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is requested once per connection; without it and a revision, there is one warning per server."""
    monkeypatch.setattr(openai_model, "_warned", set())  # a server of another test may have had the same port

    def warned() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == openai_model.__name__]

    async def ask_twice(model: OpenAIModel) -> list[str | None]:
        async with aclosing(model):
            return [await model.served_as() for _ in range(2)]

    with served() as server:
        server.about_model = entry
        service = Service(base_url=server.url, cache="")
        for _ in range(2):
            assert asyncio.run(ask_twice(OpenAIModel(MODEL, None, service))) == [expected, expected]
        assert len(warned()) == (expected is None)
        assert all(server.url in each and "--revision" in each for each in warned())
        caplog.clear()
    with served() as server:
        server.about_model = entry
        assert asyncio.run(ask_twice(OpenAIModel(MODEL, "r1", Service(base_url=server.url)))) == [expected, expected]
        assert not warned()


def test_unusable_answers_are_neither_stored_nor_returned(tmp_path: Path) -> None:
    path, plain = tmp_path / "c", replace(REQUEST, role="teacher")
    picky = replace(plain, usable=lambda answer: answer.text.startswith("{"))
    texts = [each.text for each in ask(path, FakeModel([ChatAnswer("no"), ChatAnswer("{}")]), picky, picky, picky)]
    assert texts == ["no", "{}", "{}"]
    ask(path, FakeModel([ChatAnswer("once kept")]), plain, refresh=True)
    assert ask(path, FakeModel([ChatAnswer("{1}")]), picky)[0].text == "{1}"
    assert ask(path, FakeModel([]), plain)[0].text == "{1}"


def test_refresh_requests_and_stores_new_answers(tmp_path: Path) -> None:
    ask(tmp_path / "c", FakeModel([ChatAnswer("old")]), REQUEST)
    assert ask(tmp_path / "c", FakeModel([ChatAnswer("new")]), REQUEST, refresh=True)[0].text == "new"
    assert ask(tmp_path / "c", FakeModel([]), REQUEST)[0].text == "new"


def test_processes_share_it_and_a_kill_damages_nothing(tmp_path: Path) -> None:
    path, context = tmp_path / "c", multiprocessing.get_context("spawn")
    children = [context.Process(target=store_answers, args=(path, number)) for number in range(2)]
    for child in children:
        child.start()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and (not path.exists() or len(_answers(path)) < 400):
        time.sleep(0.05)
    os.kill(children[0].pid or 0, signal.SIGKILL)
    for child in children[1:]:
        child.terminate()
    for child in children:
        child.join()
    stored = _answers(path)
    assert len(stored) >= 400
    for facts, answer in stored:
        assert answer["text"] == f"answer {facts['seed']} " * 50 and digest(facts)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    cache = CallCache(path)  # and it still works
    facts, answer = stored[-1]
    assert cache.get(digest(facts)) == answer
    cache.close()


def _answers(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the requests and answers in a cache; none while another process makes the file."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT request, answer FROM calls_v2").fetchall()
    except sqlite3.OperationalError:
        return []
    return [(json.loads(request), json.loads(answer)) for request, answer in rows]


def test_a_second_store_of_a_run_asks_and_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as server:
        server.about_model = {"root": "runs/checkpoint-1"}
        policy = part(server, cache=str(tmp_path / "c"), price_in=1.0, price_out=10.0)
        config = config_of({"sokoban": 1}, rollouts=2, policy=policy)
        pivot.build(config, tmp_path / "first")
        requests = server.log.requests
        pivot.build(config, tmp_path / "second")
        assert server.log.requests == requests
        pivot.build(config, tmp_path / "second", refresh=True)
        assert server.log.requests == 2 * requests
        assert pivot.build(config, tmp_path / "second").already_complete
    first = load_store(tmp_path / "first").steps.collect()
    assert first.equals(load_store(tmp_path / "second").steps.collect())
    (usage,) = model_usage(Store.open(tmp_path / "first"))
    assert (usage.requests, usage.cached, usage.tries) == (requests, 0, requests)
    assert usage.cost == pytest.approx(requests * (100 * 1.0 + 20 * 10.0) / 1e6)
    card = (tmp_path / "first" / "dataset" / "README.md").read_text()
    assert f"| student | {requests} | 0 | 0 | {requests} | {100 * requests} | {20 * requests} |" in card
    checked = list[Any]()
    monkeypatch.setattr(preflight, "preflight_models", lambda run, **roles: checked.append((run, roles)))
    grown = [make_config(config | {"environments": {"sokoban": {"tasks": n}}, "tasks_per_shard": 2}) for n in (1, 2)]
    for each in grown:  # a finished store that grows by a task of its last shard needs the server again
        preflight.preflight_build(Store(tmp_path / "first", each))
    assert [(run.config, roles) for run, roles in checked] == [(grown[1], {"policy": True, "writer": False})]


def test_the_cost_of_an_answer_counts_once_and_failed_attempts_count_with_it() -> None:
    paid = Call("r", "e", 0, "student", attempts=2, prompt_tokens=100, completion_tokens=20, cost=3.0)
    failed = Call("r", "e", 0, "student", attempts=3, answered=False, broken_off=1)
    from_cache = replace(paid, kept=True)
    assert from_cache.after(paid) == paid, "the answer that the earlier run stored"
    both = from_cache.after(failed)
    assert (both.answered, both.attempts, both.broken_off) == (True, 5, 1)
    assert (both.prompt_tokens, both.completion_tokens, both.cost) == (100, 20, 3.0)
    assert paid.after(paid).cost == 6.0, "a request that was sent again is paid again"
    from_other = replace(paid, attempts=0, cache_hit=True)
    assert (from_other.after(failed).cost, from_other.after(failed).cache_hit) == (None, False)


def test_one_price_alone_is_a_cost() -> None:
    assert Service(price_in=2.0).cost(1_000_000, 500_000) == 2.0
    assert Service(price_out=10.0).cost(1_000_000, 500_000) == 5.0
    assert Service().cost(1_000_000, 500_000) is None


def test_answers_of_an_unnamed_checkpoint_stay_in_their_store(tmp_path: Path) -> None:
    """Two servers may serve different weights under one name; only the store that asked gets its answers again."""
    with served() as server, served() as other:
        for number, each in enumerate((server, other)):
            config = config_of(1, rollouts=1, policy=part(each, cache=str(tmp_path / "c")))
            store = tmp_path / str(number)
            pivot.build(config, store)
            shutil.rmtree(store)
            pivot.build(config, store)
        assert server.log.requests == other.log.requests > 0
        assert server.log.requests == len(load_store(tmp_path / "1").steps.collect())


def test_answers_of_a_named_revision_are_shared_between_servers(tmp_path: Path) -> None:
    with served() as server, served() as other:
        for number, each in enumerate((server, other)):
            policy = part(each, cache=str(tmp_path / "c")) | {"options": {"model": MODEL, "revision": "3f1c"}}
            pivot.build(config_of(1, rollouts=1, policy=policy), tmp_path / str(number))
        assert server.log.requests > 1
        assert other.log.requests == 0


def test_requests_of_an_episode_that_asked_nothing_again_stay_counted() -> None:
    once, again = Call("r1", "pending", 0, "student", attempts=3), Call("r2", "repeated", 0, "student")
    both = calls_in_all([once, again], [again], {"pending", "repeated"})
    assert {call.request_id: call.attempts for call in both} == {"r1": 3, "r2": 2}
    finished = Call("r0", "finished", 0, "student", attempts=2)
    assert calls_in_all([finished, once], [], {"pending"}) == [finished, once], "of a finished episode each once"
