"""Check that the number of requests grows while no request queues, and which refusals concern the account."""

import asyncio
import multiprocessing
from dataclasses import replace

import pytest
from pivot.core.errors import ConfigError, ServerGoneError
from pivot.models import pacing
from pivot.models.openai import model as openai_model
from pivot.models.openai.model import OpenAIModel
from pivot.models.pacing import BROKEN, CROWDED, FEWEST_FAILURES, FEWEST_REFUSALS, START, AdaptiveLimit, Breaker
from pivot.models.service import Service
from pivot.tests.flow_runs import PATIENCE
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.models.test_call_cache import REQUEST
from pivot.tests.models.test_openai import ask


async def one_round(limit: AdaptiveLimit, seconds: list[float]) -> None:
    """Answer the requests in flight at the start after the given seconds each, while others always wait."""
    count = in_flight = limit.limit
    for _ in range(count):
        await limit.acquire()
    for number in range(count):
        limit.answered(seconds[number % len(seconds)])
        while in_flight < limit.limit:
            await limit.acquire()
            in_flight += 1
    for _ in range(in_flight):
        limit.release()


def test_where_no_answer_takes_longer_the_limit_is_four_times_as_high_after_a_round() -> None:
    async def run() -> None:
        limit = AdaptiveLimit(cap=256)
        limit.answered(5.0)
        assert limit.limit == START, "it does not grow while slots are free"
        await one_round(limit, [5.0])
        assert limit.limit == 4 * START == 256
        queueing = AdaptiveLimit(cap=256, start=16)
        await one_round(queueing, [1.0, 2.0, 3.0, 4.0])
        assert 32 <= queueing.limit <= 40
        asked_in = await limit.acquire()
        limit.complained(asked_in, CROWDED)
        before = limit.limit
        limit.complained(asked_in, CROWDED)
        assert limit.limit == before < 256, "it shrinks once a round"
        limit.answered(5.0)
        assert limit.limit == before, "it grows by one request in the first round after a complaint"

    asyncio.run(run())


def test_processes_that_share_slots_grow_beyond_the_number_of_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = multiprocessing.get_context("spawn").Semaphore(4 * START)
    monkeypatch.setattr(pacing, "_shared", slots)

    async def run() -> None:
        limit = AdaptiveLimit(cap=4 * START)

        async def ask() -> None:
            await limit.acquire()
            await asyncio.sleep(0.01)
            limit.release()  # as the model does, before it notes the answer
            limit.answered(5.0)

        await asyncio.gather(*(ask() for _ in range(8 * START)))
        assert limit.limit == 4 * START, "each answer made room for three more"
        quiet = AdaptiveLimit(cap=4 * START)
        for _ in range(START):
            await quiet.acquire()
            quiet.release()
            quiet.answered(5.0)
        assert quiet.limit == START, "one request at a time makes nothing grow"

    asyncio.run(run())
    assert slots.get_value() == 4 * START


def test_earlier_turns_go_first_and_equal_ones_as_they_come() -> None:
    async def run() -> list[str]:
        limit, served_in = AdaptiveLimit(cap=1), list[str]()

        async def ask(name: str, turn: int) -> None:
            await limit.acquire(turn)
            served_in.append(name)
            limit.release()

        await limit.acquire()
        tasks = [asyncio.create_task(ask(name, int(name[0]))) for name in ("3a", "1a", "2a", "1b", "0a", "3b")]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.sleep(0)
        limit.release()
        tasks[4].cancel()  # cancelled while it gets the slot
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(limit.acquire(), PATIENCE)
        return served_in

    assert asyncio.run(run()) == ["1a", "1b", "3a", "3b"]


def test_the_next_role_begins_with_the_limit_that_the_server_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_model, "_taken", {})  # a server of another test may have had the same port

    async def run(url: str, requests: int) -> int:
        model = OpenAIModel(MODEL, None, Service(base_url=url, cache=""))
        start = model.limit.limit
        await model.contact()
        await asyncio.gather(*(model.answer(replace(REQUEST, seed=seed)) for seed in range(requests)))
        await model.aclose()
        return start

    with served(latency=0.2) as server, served() as other:
        assert asyncio.run(run(server.url, 300)) == START and asyncio.run(run(server.url, 1)) > START
        assert asyncio.run(run(other.url, 1)) == START


def test_only_refusals_in_a_row_concern_the_account() -> None:
    breaker = Breaker("there", 10.0, lambda: 0.0)
    for _ in range(10 * FEWEST_REFUSALS):
        breaker.refused(400, "too long")
        breaker.answered()
    for number in range(FEWEST_REFUSALS - 1):
        breaker.refused(402, f"no credit left for {'me' if number % 3 else 'you'}")
    breaker.refused(400, "too long")  # a different kind restarts the count
    for _ in range(FEWEST_REFUSALS - 1):
        breaker.refused(402, "no credit")
    with pytest.raises(ServerGoneError, match=r"there refused 24 requests .*most often with no credit.*same command"):
        breaker.refused(402, "nothing")


def test_a_server_that_refuses_from_the_start_is_a_wrong_set_up() -> None:
    breaker = Breaker("there", 10.0, lambda: 0.0)
    for _ in range(FEWEST_REFUSALS - 1):
        breaker.refused(400, "what is that?")
    with pytest.raises(ConfigError, match=r"there refused the first 24 requests and answered none .what is that"):
        breaker.refused(400, "what is that?")


async def rounds_until(limit: AdaptiveLimit, target: float) -> int:
    """Answer whole rounds until the limit is at least ``target``; return their number."""
    rounds = 0
    while limit.limit < target:
        assert rounds < 50
        await one_round(limit, [5.0])
        rounds += 1
    return rounds


@pytest.mark.parametrize(("slots", "rounds"), [(8, 3), (64, 3), (256, 4), (1024, 5)])
def test_after_an_outage_the_limit_is_back_as_fast_as_four_times_a_round_allows(slots: int, rounds: int) -> None:
    async def run() -> None:
        limit = AdaptiveLimit(cap=slots, start=slots)
        await one_round(limit, [5.0])
        for _ in range(20):
            limit.complained(await limit.acquire(), BROKEN)
            limit.release()
        assert limit.limit == 1 and await rounds_until(limit, 0.9 * slots) <= rounds

    asyncio.run(run())


def test_a_limit_that_the_server_lifts_is_followed_within_six_round_trips() -> None:
    async def run() -> None:
        limit = AdaptiveLimit(cap=256, start=64)
        most = 32
        for _ in range(60):  # a server that takes no more than 32 at a time
            if limit.limit > most:
                limit.complained(await limit.acquire(), CROWDED)
                limit.release()
            else:
                await one_round(limit, [5.0])
        assert 0.8 * most <= limit.limit <= 1.6 * most and await rounds_until(limit, 0.9 * 256) <= 6

    asyncio.run(run())


def test_pauses_end_when_the_server_answers_after_an_outage_and_not_before() -> None:
    async def run() -> tuple[float, float]:
        breaker, loop = Breaker("there", 10.0, lambda: 0.0), asyncio.get_running_loop()

        async def paused(seconds: float) -> float:
            start = loop.time()
            await breaker.pause(seconds)
            return loop.time() - start

        breaker.failed("one bad request among good ones")
        alone = asyncio.create_task(paused(0.2))
        await asyncio.sleep(0)
        breaker.answered()
        short = await alone
        waiting = asyncio.create_task(paused(60.0))
        await asyncio.sleep(0)
        for _ in range(FEWEST_FAILURES):
            breaker.failed("connection refused")
        breaker.answered()
        return short, await waiting

    alone, after_outage = asyncio.run(run())
    assert alone >= 0.19
    assert after_outage < 5.0


@pytest.mark.parametrize("status", ["408", "409", "425"])
def test_statuses_that_ask_for_another_try_get_one(status: str) -> None:
    with served(fault=lambda key, tried: status if tried < 2 else None) as server:
        (answer,) = ask(server)
    assert answer.call["attempts"] == 2


@pytest.mark.parametrize("status", ["401", "403", "404", "405", "302"])
def test_a_stray_refusal_after_good_answers_is_tried_again(status: str) -> None:
    """A proxy refuses while its server restarts; before any answer, address or key must be wrong."""
    with served(fault=lambda key, tried: status if server.log.answered >= 1 and tried < 3 else None) as server:
        answers = ask(server, 6, one_first=True)
    assert [answer.call["attempts"] for answer in answers] == [1, 3, 3, 3, 3, 3]
