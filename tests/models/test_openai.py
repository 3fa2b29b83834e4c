"""The client of a model server: pacing, giving up, credentials, and messages about a wrong set-up."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pivot
import pytest
from pivot.core.errors import ConfigError, PivotError, PolicyError, ServerGoneError
from pivot.core.plugins import read_settings
from pivot.datasets.store.config import make_config
from pivot.datasets.store.run import Run
from pivot.interop.openai import OpenAIImporter
from pivot.models import address
from pivot.models.address import bare_url
from pivot.models.base import ChatAnswer, ModelOptions, Sampling
from pivot.models.openai import model as openai_model
from pivot.models.openai.connection import retry_after
from pivot.models.openai.model import ERROR_BYTES, OpenAIModel
from pivot.models.pacing import BROKEN, AdaptiveLimit, Breaker
from pivot.models.service import Service
from pivot.tests.flow_runs import config_of
from pivot.tests.models.chat_server import MODEL, ChatServer, part, served
from pivot.tests.models.raw_faults import GOOD, MODELS, http
from pivot.tests.models.test_call_cache import REQUEST

KEY = "sk-a-very-secret-key"


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (address.KEY_VARIABLE, address.URL_VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def ask(
    server: ChatServer,
    count: int = 1,
    *,
    wants_logprobs: bool = False,
    one_first: bool = False,
    sampling: Sampling = REQUEST.sampling,
    model: str = MODEL,
    **service: Any,
) -> list[ChatAnswer]:
    """Request ``count`` answers concurrently; with ``one_first``, after the first one arrived."""
    settings = Service(**{"base_url": server.url, "cache": "", "pause_seconds": 0.01, **service})

    async def run() -> list[ChatAnswer]:
        async with aclosing(OpenAIModel(model, None, settings)) as client:
            same = replace(REQUEST, wants_logprobs=wants_logprobs, sampling=sampling)
            requests = [replace(same, seed=seed) for seed in range(count)]
            first = [await client.answer(requests.pop(0))] if one_first else []
            return first + await asyncio.gather(*(client.answer(request) for request in requests))

    return asyncio.run(run())


def answered_by(answer: Callable[[str], bytes], query: str = "") -> ChatAnswer:
    """Return the answer of a server whose response ``answer`` makes from the head of each request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer((await reader.readuntil(b"\r\n\r\n")).decode()))
        await writer.drain()
        writer.close()

    async def run() -> ChatAnswer:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        model = OpenAIModel(MODEL, None, Service(base_url=f"http://127.0.0.1:{port}/v1{query}", cache=""))
        async with server, aclosing(model):
            return await model.answer(REQUEST)

    return asyncio.run(run())


# Pacing


def test_in_flight_never_exceeds_the_cap_and_follows_a_server_that_complains() -> None:
    with served(latency=0.02, slots=8) as server:
        assert len(ask(server, 100, max_concurrency=8)) == 100 and server.log.most_in_flight <= 8


def test_the_breaker_opens_only_without_any_answer() -> None:
    now = 0.0
    breaker = Breaker("there", 10.0, lambda: now)
    for _ in range(100):
        breaker.failed("503")
        now += 5.0
        breaker.answered()
    for _ in range(20):
        breaker.failed("503")
        now += 0.4
    breaker.failed("503", allow=60.0)
    now += 60.0
    breaker.failed("503")
    now += 11.0
    with pytest.raises(ServerGoneError, match=r"no answer from there for 10 s .*last: 503.*same command"):
        breaker.failed("503")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("999999", 600.0),
        ("nan", None),
        ("soon", None),
        ("Thu, 01 Jan 1970 00:00:50 GMT", 30.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after({} if value is None else {"retry-after": value}, now=20.0) == seconds


# Tries


def test_retry_after_is_honoured_and_tries_are_counted() -> None:
    with served(fault=lambda key, tried: "429" if tried < 3 else None, retry_after="1") as server:
        began = time.monotonic()
        (answer,) = ask(server)
        took = time.monotonic() - began
    assert answer.call["attempts"] == 3
    assert answer.call["latency"] <= took - 2, "the latency is that of the last try, without the waits"
    assert server.log.faults == {"429": 2}


@pytest.mark.parametrize("status", ["400", "410", "413", "422"])
def test_other_statuses_are_never_tried_again(status: str) -> None:
    with served(fault=lambda key, tried: status if server.log.answered else None) as server:
        with pytest.raises(PolicyError, match=f"refused the request .status {status}"):
            ask(server, 2, one_first=True)
        assert server.log.faults == {status: 1}


def test_a_request_that_always_fails_gives_up_when_others_are_answered() -> None:
    with served(fault=lambda key, tried: "500" if key.startswith(("0", "1", "2", "3")) else None) as server:

        async def run() -> list[Any]:
            service = Service(base_url=server.url, cache="", pause_seconds=0.01, longest_pause=0.02, tries=4)
            requests = [replace(REQUEST, seed=seed) for seed in range(30)]
            async with aclosing(OpenAIModel(MODEL, None, service)) as model:
                return await asyncio.gather(*(model.answer(each) for each in requests), return_exceptions=True)

        answers = asyncio.run(run())
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    assert 0 < len(errors) < 30
    assert all(isinstance(error, PolicyError) and error.call["attempts"] >= 4 for error in errors)


def test_the_wait_that_a_server_asks_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(openai_model, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    with served(fault=lambda key, tried: "429" if tried == 1 else None, retry_after="37") as server:
        ask(server, patience_seconds=600.0)
    assert 37.0 in waits


def test_a_hanging_try_ends_at_its_wall_clock_and_lowers_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[float] = []
    monkeypatch.setattr(AdaptiveLimit, "complained", lambda _, __, remaining: complaints.append(remaining))
    with served(fault=lambda key, tried: "hang" if tried == 1 else None) as server:
        (answer,) = ask(server, request_seconds=1.0)
    assert server.log.faults == {"hang": 1}
    assert answer.call["attempts"] == 2
    assert complaints[:1] == [BROKEN]


UP = "<action>up</action>"
THOUGHTS: dict[str, dict[str, Any]] = {
    "DeepSeek, older vLLM": {"reasoning_content": "so"},
    "newer vLLM, Ollama": {"reasoning": "so"},
    "OpenRouter": {"reasoning": None, "reasoning_details": [{"type": "reasoning.text", "text": "so"}]},
    "OpenRouter, summary": {"reasoning_details": [{"type": "reasoning.summary", "summary": "so"}]},
    "Mistral": {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, {"type": "text", "text": UP}]
    },
    "Anthropic": {"content": [{"type": "thinking", "thinking": "so", "signature": "x"}, {"type": "text", "text": UP}]},
    "a word of the action": {"reasoning": "up"},
    "in the text": {"content": f"<think>so</think>{UP}", "reasoning": ""},
}


@pytest.mark.parametrize("shape", THOUGHTS)
def test_the_thought_of_a_server_or_a_log_stays_part_of_the_reply(shape: str, tmp_path: Path) -> None:
    message = {"role": "assistant", "content": UP, **THOUGHTS[shape]}
    with served(lambda body: {"text": UP, "message": message}) as server:
        (answer,) = ask(server)
    assert answer.text == f"<think>{THOUGHTS[shape].get('reasoning') or 'so'}</think>{UP}"
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "go"}, message]}))
    importer = OpenAIImporter(env="sokoban")
    (place,) = importer.places(file)
    assert importer.read(file, place).turns[0].response == answer.text


def test_what_is_sent() -> None:
    with served() as server:
        ask(server)
    (body,) = server.log.bodies
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"]) == (MODEL, 1.0, 1.0, 512)
    assert body["seed"] == REQUEST.seed - 7 and "top_k" not in body
    assert [ModelOptions(model=MODEL, temperature=heat).sampling(1.0).temperature for heat in (None, 0)] == [1, 0]
    assert body["messages"][0]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}


# A wrong set-up


@pytest.mark.parametrize(
    ("settings", "cut", "suffix", "message"),
    [
        ({"prefix": ""}, "", "/v2", r"does not exist for model"),
        ({"prefix": "/v1"}, "/v1", "", r"has no /models, but .*/v1 has; use --base-url http"),
    ],
)
def test_a_wrong_path_is_one_clear_message(settings: dict[str, Any], cut: str, suffix: str, message: str) -> None:
    with served(**settings) as server, pytest.raises(ConfigError, match=message):
        ask(server, base_url=server.url.removesuffix(cut) + suffix)


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x/v1", "http://", "http://h:port/v1", "file:///etc"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="is not an address of a server"):
        bare_url(url)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": {}}, "no model named; give it with --model"),
        ({"options": {"model": MODEL, "temperature": -1}}, "temperature: found -1"),
        ({"options": {"model": MODEL, "max_tokens": 513}}, "at most 512"),
        (
            {"options": {"model": MODEL, "temprature": 1}},
            r"unknown setting temprature; did you mean 'temperature'\? known: model",
        ),
        ({"service": {"request_seconds": 0}}, "request_seconds: found 0"),
    ],
)
def test_settings_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Run(_config(**{"options": {"model": MODEL}} | options)).policy()


# Settings that are part of ids


def _config(**policy: Any) -> Any:
    return make_config(config_of(policy={"name": "openai", **policy}))


def test_what_decides_replies_is_in_the_run_id_and_nothing_else() -> None:
    base = _config(options={"model": "m"})
    same = _config(options={"model": "m"}, service={"base_url": "http://a/v1", "max_concurrency": 3})
    assert Run(base).run_id == Run(same).run_id
    for options in ({"model": "n"}, {"model": "m", "temperature": 0.4}, {"model": "m", "revision": "1"}):
        assert Run(_config(options=options)).run_id != Run(base).run_id
    assert Sampling().row() == Run(base).policy().config["sampling"]


def test_a_store_is_gone_on_with_at_another_address(tmp_path: Path) -> None:
    with served() as server:
        policy = part(server)
        assert not pivot.build(config_of(1, rollouts=1, policy=policy), tmp_path).already_complete
        policy["service"] = {"base_url": "http://localhost:1/v1", "max_concurrency": 2}
        assert pivot.build(config_of(1, rollouts=1, policy=policy), tmp_path).already_complete
        policy["options"] = {"model": "other"}
        with pytest.raises(PivotError, match="another config: policy"):
            pivot.build(config_of(1, rollouts=1, policy=policy), tmp_path)


# Credentials


def test_a_second_key_comes_from_a_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(address.KEY_VARIABLE, KEY)
    with served(key="Bearer teachers-own-key") as server:
        with pytest.raises(ConfigError, match="TEACHER_KEY should hold the key of a model server but is not set"):
            ask(server, key_variable="TEACHER_KEY")
        monkeypatch.setenv("TEACHER_KEY", "teachers-own-key")
        assert ask(server, key_variable="TEACHER_KEY")
        monkeypatch.setenv("TEACHER_KEY", "not-the-teachers-key")
        with pytest.raises(ConfigError, match="set TEACHER_KEY to a valid key") as refused:
            ask(server, key_variable="TEACHER_KEY")
        assert "not-the-teachers-key" not in str(refused.value)
    with pytest.raises(ConfigError, match="name of an environment variable") as wrong:
        read_settings(Service, {"key_variable": KEY}, "")
    assert KEY not in str(wrong.value)


def test_the_query_of_an_address_is_kept_and_goes_with_every_request() -> None:
    url = bare_url("https://me.openai.azure.com/openai/v1/?api-version=2025-04-01%20preview&x=")
    assert url == "https://me.openai.azure.com/openai/v1?api-version=2025-04-01+preview&x="
    assert bare_url(url) == url
    seen: list[str] = []

    def answer(head: str) -> bytes:
        seen.append(head.split()[1])
        return http(MODELS if head.startswith("GET") else GOOD, "200 OK", "Connection: close")

    assert answered_by(answer, "?api-version=7").text == UP
    assert seen == ["/v1/models?api-version=7", "/v1/chat/completions?api-version=7"]


@pytest.mark.parametrize("key", [f"{KEY}\n", f"Bearer {KEY}", f"{KEY}\x00", "schlüssel"])
def test_a_key_that_cannot_be_sent_ends_the_run_and_is_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(address.KEY_VARIABLE, key.replace("\x00", "\x01"))  # no environment holds a NUL
    with served() as server, pytest.raises(ConfigError, match="a character that no key has") as refused:
        ask(server)
    assert KEY not in str(refused.value)
    assert server.log.requests == 0


def test_secrets_are_censored_before_texts_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a key at the end of a cut text would be shown otherwise."""
    monkeypatch.setenv(address.KEY_VARIABLE, KEY)
    said = json.dumps({"error": {"message": "x" * (ERROR_BYTES - 10) + KEY}}).encode()
    with pytest.raises(PolicyError, match=r"x{20}\*") as refused:
        answered_by(lambda _: http(said, "418 Teapot", "Connection: close"))
    assert KEY[:6] not in str(refused.value)


@pytest.mark.parametrize("right", [True, False])
def test_no_secret_lands_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, right: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(address.KEY_VARIABLE, KEY)
    with served(key=f"Bearer {KEY}" if right else "Bearer other") as server:
        config = config_of(1, rollouts=2, policy=part(server, cache=str(tmp_path / "calls")))
        shown = ""
        try:
            pivot.build(config, tmp_path / "store")
        except ConfigError as error:
            shown = str(error)
        assert right is (shown == "")
        if right:
            assert {headers["authorization"] for headers in server.log.headers} == {f"Bearer {KEY}"}
    assert KEY.encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in shown + caplog.text
