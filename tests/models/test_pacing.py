"""How the number of requests grows where nothing waits in line, and when refusals are the account's."""

import asyncio
import gc
from dataclasses import replace

import pytest
from pivot.errors import ConfigError, ServerGoneError
from pivot.models.openai.model import OpenAIModel
from pivot.models.pacing import CROWDED, FEWEST_REFUSALS, START, AdaptiveLimit, Breaker
from pivot.models.service import Service
from pivot.rollouts.supervisor import run_without_gc_pauses
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.models.test_call_cache import REQUEST


async def one_round(limit: AdaptiveLimit, seconds: list[float]) -> None:
    """Answer those that are in flight at first after so many seconds each, with others always in line."""
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
        await one_round(limit, [5.0])
        assert limit.limit == 4 * START == 256
        queueing = AdaptiveLimit(cap=256, start=16)
        await one_round(queueing, [1.0, 2.0, 3.0, 4.0])
        assert 32 <= queueing.limit <= 40
        asked_in = await limit.acquire()
        limit.complained(asked_in, CROWDED)
        before = limit.limit
        limit.answered(5.0)
        assert limit.limit == before, "it grows by one a round after a complaint"

    asyncio.run(run())


def test_earlier_turns_go_first_and_equal_ones_as_they_come() -> None:
    async def run() -> list[str]:
        limit, served_in = AdaptiveLimit(cap=1), list[str]()

        async def ask(name: str, turn: int) -> None:
            await limit.acquire(turn)
            served_in.append(name)
            limit.release()

        await limit.acquire()
        asked = [asyncio.create_task(ask(name, int(name[0]))) for name in ("3a", "1a", "2a", "1b", "0a", "3b")]
        await asyncio.sleep(0)
        asked[2].cancel()
        await asyncio.sleep(0)
        limit.release()
        await asyncio.gather(*asked, return_exceptions=True)
        return served_in

    assert asyncio.run(run()) == ["0a", "1a", "1b", "3a", "3b"]


def test_the_next_role_begins_with_what_the_server_took() -> None:
    async def run(url: str, requests: int) -> int:
        model = OpenAIModel(MODEL, None, Service(base_url=url, cache=""))
        start = model.limit.limit
        await asyncio.gather(*(model.answer(replace(REQUEST, seed=seed)) for seed in range(requests)))
        await model.aclose()
        return start

    with served(latency=0.2) as server, served() as other:
        assert asyncio.run(run(server.url, 300)) == START
        assert asyncio.run(run(server.url, 1)) > START
        assert asyncio.run(run(other.url, 1)) == START


def test_refusals_in_a_row_are_the_accounts_and_answers_between_them_tell_otherwise() -> None:
    breaker = Breaker("there", 10.0, lambda: 0.0)
    for _ in range(10 * FEWEST_REFUSALS):
        breaker.refused(400, "too long")
        breaker.answered()
    for number in range(FEWEST_REFUSALS - 1):
        breaker.refused(402, f"no credit left for {'me' if number % 3 else 'you'}")
    breaker.refused(400, "too long")  # of another kind: counted anew
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


def test_what_was_there_is_left_alone_by_the_collector_until_the_loop_ends() -> None:
    async def work(number: int) -> int:
        assert gc.get_freeze_count() > 10_000
        return 7 // number

    assert run_without_gc_pauses(work(1)) == 7
    with pytest.raises(ZeroDivisionError):
        run_without_gc_pauses(work(0))
    assert gc.get_freeze_count() == 0
