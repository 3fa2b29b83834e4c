"""Whatever bytes a server sends, the outcome of a request has a type, and the run goes on or ends with a message."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from pivot.cli.doctor import server_facts
from pivot.core.errors import ConfigError, PivotError, PolicyError, ServerGoneError
from pivot.models.base import ChatAnswer, ChatRequest
from pivot.models.openai import connection
from pivot.models.openai import model as openai_model
from pivot.models.openai.model import OpenAIModel
from pivot.models.pacing import Breaker
from pivot.models.service import Service
from pivot.tests.flow_runs import PATIENCE
from pivot.tests.models.chat_server import HUGE, served
from pivot.tests.models.chat_server import MODEL as CHAT_MODEL
from pivot.tests.models.raw_faults import BOMB_BYTES, FAULTS, MODEL, RawServer
from pivot.tests.models.test_call_cache import REQUEST

AS_TEACHER = replace(REQUEST, role="teacher", json_schema={"type": "object"}, wants_logprobs=False)
AT_A_TIME = 40


def model_for(server: RawServer, number: int) -> OpenAIModel:
    """Return a model whose patience is measured in the tries that the server saw: so load does not matter."""
    waits: dict[str, Any] = {"pause_seconds": 0.02, "longest_pause": 0.1}
    waits["request_seconds"] = 0.5 if FAULTS[number].after == "hangs" else 60.0
    service = Service(base_url=f"{server.url}/{number}/v1", cache="", **waits)
    model = OpenAIModel(MODEL, None, service)
    if FAULTS[number].kind == "again":
        model._breaker = Breaker(service.base_url, 1.5, lambda: float(server.tried[number]))
    return model


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_LIMIT_BYTES", BOMB_BYTES // 2)
    monkeypatch.setattr(openai_model, "FIRST_CONTACT_SECONDS", PATIENCE)


@pytest.mark.parametrize("request_", [REQUEST, AS_TEACHER], ids=["policy", "writer"])
def test_every_fault_has_the_outcome_that_its_kind_asks_for(request_: ChatRequest) -> None:
    """Catch an outcome without a type; faults of the connection are the same for a writer."""
    numbers = [number for number, fault in enumerate(FAULTS) if request_ is REQUEST or fault.after == "serves"]

    async def run() -> tuple[list[Any], dict[int, int]]:
        async with RawServer() as server:
            places = asyncio.Semaphore(AT_A_TIME)
            outcomes = await asyncio.gather(*(ask(server, number, places) for number in numbers))
            return outcomes, dict(server.tried)

    async def ask(server: RawServer, number: int, places: asyncio.Semaphore) -> Any:
        model = model_for(server, number)
        async with places:
            try:
                async with aclosing(model):
                    return await model.answer(request_)
            except Exception as error:  # noqa: BLE001 - which one it is, is what is tested
                return error

    outcomes, tried = asyncio.run(run())
    wrong = []
    for number, outcome in zip(numbers, outcomes, strict=True):
        fault = FAULTS[number]
        expected: dict[str, Any] = {
            "answer": (ChatAnswer, 1),
            "refused": (PolicyError, 1),
            "set-up": ((ConfigError, ServerGoneError), 1),
            "again": ((ServerGoneError, PolicyError), 2),
        }
        kind, tries = expected[fault.kind]
        once = fault.kind in ("answer", "set-up")
        if not isinstance(outcome, kind) or tried[number] < tries or (once and tried[number] > 1):
            wrong.append(f"{fault.name}: {tried[number]} tries, {type(outcome).__name__}: {outcome}"[:300])
    assert not wrong, "\n".join(wrong)


def test_a_reply_of_a_hundred_megabytes_is_left_unread_and_not_asked_for_again() -> None:
    async def ask(url: str) -> Any:
        service = Service(base_url=url, cache="", request_seconds=600.0)
        async with aclosing(OpenAIModel(CHAT_MODEL, None, service)) as model:
            return await model.answer(REQUEST)

    with served(fault=lambda key, tried: "endless") as server:
        with pytest.raises(PolicyError, match="sent an answer of more than"):
            asyncio.run(ask(server.url))
        assert server.log.faults["endless"] == 1
        # The client took what it kept, and a few buffers of the operating system.
        assert server.log.endless_bytes < HUGE / 2


ONCE: dict[str, Any] = {"cache": "", "request_seconds": 0.5, "patience_seconds": 0.5, "tries": 1}
"""Service settings of pivot doctor, with a shorter wait; an answer that is read in the end gets its usual time."""


def test_the_doctor_refuses_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch a broken answer that the check of a server takes for a good one, or that ends it with a traceback."""

    async def run(numbers: list[int]) -> list[Any]:
        async with RawServer() as server:
            places = asyncio.Semaphore(AT_A_TIME)
            return await asyncio.gather(*(check(server.url, number, places) for number in numbers))

    async def check(url: str, number: int, places: asyncio.Semaphore) -> Any:
        async with places:
            try:
                # The server hangs up after a whole answer; on a slow machine, the next request finds out too late.
                waits: dict[str, Any] = {"cache": ""} if FAULTS[number].kind == "answer" else ONCE
                path = f"{number}/v1" if number % 3 else f"all/{number}/v1"
                return await server_facts(MODEL, Service(base_url=f"{url}/{path}", **waits))
            except Exception as error:  # noqa: BLE001 - see above
                return error

    wrong = []
    for hangs, contact in ((True, 0.5), (False, PATIENCE)):
        monkeypatch.setattr(openai_model, "FIRST_CONTACT_SECONDS", contact)
        numbers = [number for number, fault in enumerate(FAULTS) if (fault.after == "hangs") == hangs]
        for number, result in zip(numbers, asyncio.run(run(numbers)), strict=True):
            fault = FAULTS[number]
            if not isinstance(result, dict if fault.kind == "answer" else PivotError):
                wrong.append(f"{fault.name}: {type(result).__name__}: {result}"[:300])
    assert not wrong, "\n".join(wrong)
