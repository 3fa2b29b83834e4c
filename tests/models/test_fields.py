"""Optional fields of requests: a field that a server refuses is dropped separately and recorded."""

import itertools
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from pivot.core.errors import ConfigError, PolicyError
from pivot.core.identity import digest
from pivot.models.base import Sampling
from pivot.models.openai.backend import OpenAIOptions
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.models.test_openai import ask
from pydantic import ValidationError


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "Unrecognized request argument supplied: {field}"}}),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "{field}"], "msg": "Extra inputs"}]}),
        (422, {"object": "error", "message": {"detail": [{"loc": ["body", "{field}"], "msg": "Unknown"}]}}),
        (403, {"error": {"message": "You are not allowed to request {field} from this model"}}),
        (400, {"error": {"message": "bad request", "param": "{field}"}}),
        (400, "{field}: unsupported"),
        (400, {"detail": "Unknown field {field}. Known ones: logprobs, max_tokens, seed, temperature, top_p"}),
    ],
)
def test_a_field_that_a_refusal_names_is_left_out_alone(status: int, body: Any, count: int) -> None:
    """Test every optional field, and all fields, with one try per field, once per server."""
    names = ("return_token_ids", "logprobs", "max_tokens", "max_completion_tokens", "seed", "top_p", "temperature")
    for refused in {frozenset(each) for each in itertools.combinations(names, min(count, len(names)))}:
        with served() as server:

            def refuse(sent: dict[str, Any], refused: frozenset[str] = refused) -> tuple[int, Any] | None:
                field = min(refused & sent.keys(), default=None)
                return None if field is None else (status, json.loads(json.dumps(body).replace("{field}", str(field))))

            server.refuses = refuse
            first, *others = ask(server, 3, wants_logprobs=True, one_first=True)
            renamed = {"max_tokens"} - ({"max_tokens"} if "max_completion_tokens" in refused else set())
            assert first.call["left_out"] == tuple(sorted(refused - renamed - {"max_completion_tokens"})), refused
            tries = len(refused - (set() if "max_tokens" in refused else {"max_completion_tokens"})) + 1
            assert [first.call["attempts"], *(each.call["attempts"] for each in others)] == [tries, 1, 1]


@pytest.mark.parametrize("field", ["return_token_ids", "logprobs", "seed", "temperature"])
def test_a_field_is_left_out_when_a_refusal_names_none(field: str) -> None:
    """The request is answered without the field, and refused with it, before later requests lack it."""
    with served() as server:
        server.refuses = lambda sent: (400, {"error": {"message": "bad request"}}) if field in sent else None
        first, *others = ask(server, 3, wants_logprobs=True, one_first=True)
        assert first.call["left_out"] == (field,)
        assert {each.call["attempts"] for each in others} == {1}


def test_fields_of_the_user_are_not_dropped_one_after_the_other() -> None:
    sampling = replace(Sampling(0.0), chat_template_kwargs={"enable_thinking": False}, extra_body={"top_a": 0.2})
    for field in ("chat_template_kwargs", "top_a"):
        with served() as server:
            server.refuses = lambda sent, field=field: (400, {"error": f"property '{field}' is unsupported"})
            with pytest.raises(PolicyError, match=f"status 400: property '{field}' is unsupported"):
                ask(server, sampling=sampling)
            assert server.log.requests == 1


def test_a_gateway_quotes_the_server_behind_it_and_later_models_know_the_field() -> None:
    raw = json.dumps({"error": {"message": "Unsupported parameter: 'seed'", "param": "seed"}})
    body = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}
    with served() as server:
        server.refuses = lambda sent: (400, body) if "seed" in sent else None
        assert [ask(server, 1)[0].call["attempts"] for _ in range(2)] == [2, 1]


def test_a_log_probability_that_is_no_number_costs_one_request_alone_its_log_probabilities() -> None:
    words = "Out of range float values are not JSON compliant"
    with served() as server:
        server.refuses = lambda sent: (500, {"error": words}) if "logprobs" in sent else None
        (first,) = ask(server, 1, wants_logprobs=True)
        server.refuses = lambda sent: None
        assert (first.call["left_out"], first.call["attempts"]) == (("logprobs",), 2)
        (second,) = ask(server, 1, wants_logprobs=True)
        assert second.call["left_out"] == ()


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 4096. This model supports at most 1024 completion tokens",
        "This model's maximum context length is 2048 tokens, however you requested 4096",
    ],
)
def test_a_limit_that_is_too_large_is_not_taken_away(words: str) -> None:
    with served() as server:
        server.refuses = lambda sent: (400, {"error": {"message": words}})
        with pytest.raises(PolicyError, match=re.escape(words[:40])):
            ask(server, 1)
        assert server.log.requests == 1


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_stray_refusals_give_up_no_field(refused: int) -> None:
    """The first requests are refused whatever they hold; the same ones are then answered with all fields."""
    with served() as server:
        server.stray_refusals = refused
        (answer,) = ask(server, 1, wants_logprobs=True)
        assert answer.call["left_out"] == () and answer.logprobs and answer.token_ids
        assert answer.call["attempts"] == server.log.requests == refused + 2
        assert {"logprobs", "return_token_ids", "seed", "max_tokens"} <= set(server.log.bodies[-1])


def test_arguments_of_the_template_and_fields_of_the_user_are_sent_and_decide_answers() -> None:
    written = {"model": MODEL, "chat_template_kwargs": {"enable_thinking": False}, "extra_body": {"top_a": 0.2}}
    sampling = OpenAIOptions(**written, max_tokens=40, thinking_tokens=1000).sampling(0.0)
    with served() as server:
        ask(server, sampling=sampling)
    (body,) = server.log.bodies
    assert (body["chat_template_kwargs"], body["top_a"], body["max_tokens"]) == ({"enable_thinking": False}, 0.2, 1040)
    assert len({digest(each.row()) for each in (sampling, replace(sampling, extra_body={}), Sampling(0.0))}) == 3
    with pytest.raises(ValidationError, match="PIVOT sets max_tokens, n itself; expected other fields"):
        OpenAIOptions(model=MODEL, extra_body={"n": 2, "max_tokens": 3})
    with pytest.raises(ValidationError, match="Authorization, api_key would be stored with the data"):
        OpenAIOptions(model=MODEL, extra_body={"api_key": "k", "Authorization": "Bearer k", "top_a": 0.2})


@pytest.mark.parametrize(
    ("requested", "name", "is_same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("claude-sonnet-latest", "claude-sonnet-20250514", True),
        ("Qwen/Qwen2.5-VL-3B-Instruct", "qwen2.5-vl-3b-instruct", True),
        ("/weights/tiny", "tiny", True),
        ("qwen2.5vl:3b", "/models/qwen2.5vl-3b-q4.gguf", True),
        ("gpt-4", "gpt-4o", False),
        ("m", "tiny-model", False),
        ("gpt-4o", "gpt-3.5-turbo", False),
        ("qwen-vl-max", "qwen-vl-plus", False),
    ],
)
def test_an_answer_of_another_model_is_refused(requested: str, name: str, is_same: bool) -> None:
    with served(lambda body: {"text": "", "model": name}) as server:
        server.models = [requested]
        if not is_same:
            with pytest.raises(ConfigError, match=rf"answers as model '{name}', expected '{requested}'.*--any-model"):
                ask(server, model=requested)
        ask(server, model=requested, any_model=not is_same)
