"""Hostile replies: a build from them alone is complete, labelled and provable, and broken answers are no replies."""

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import BrokenOffError, PolicyError
from pivot.core.messages import cut_reply
from pivot.core.progress import Reporter
from pivot.datasets.store.nights import load_store
from pivot.datasets.verify.verify import verify_store
from pivot.environments.turns import ReplyOutcome
from pivot.models.base import ChatAnswer
from pivot.models.openai.wire import GarbledAnswerError, read_answer
from pivot.tests.flow_runs import assert_whole, config_of
from pivot.tests.models.chat_server import MODEL, completion, number_of, served
from pivot.tests.tables import load_table

HOSTILE: dict[str, tuple[str, str | None, ReplyOutcome]] = {
    name: (text, action, ReplyOutcome(outcome))
    for group in load_table(__file__, "hostile_replies.json").values()
    for name, (text, action, outcome) in group.items()
}
"""Replies that no normal model writes, by name: the text, the action that runs, and what the grammar says."""


def test_a_build_on_hostile_replies_is_whole_and_right(tmp_path: Path) -> None:
    replies, lock = itertools.cycle(HOSTILE.values()), threading.Lock()

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return {"text": next(replies)[0]}

    def fault(key: str, tried: int) -> str | None:
        return "500" if number_of(key, tried) % 5 == 0 else None

    with served(reply, fault=fault, keeps_bodies=False) as server:
        server.about_model = {"root": "runs/a"}  # answers of a named checkpoint are shared
        service = {"base_url": server.url, "cache": str(tmp_path / "calls"), "pause_seconds": 0.01}
        part = {"name": "openai", "options": {"model": MODEL}, "service": service}
        config = config_of({"sokoban": 2}, rollouts=8, policy=part, tasks_per_shard=2)
        result = pivot.build(config, tmp_path / "store")
        answers = server.log.answered
        assert pivot.build(config, tmp_path / "again").pending_episodes == 0
        assert server.log.answered == answers, "the cache gives back what it was given"
    assert result.pending_episodes == 0
    assert_whole(tmp_path / "store")
    frames = load_store(tmp_path / "store")
    steps = frames.steps.collect()
    assert steps.equals(load_store(tmp_path / "again").steps.collect())
    expected = {cut_reply(text): (action, outcome) for text, action, outcome in HOSTILE.values()}
    seen = set()
    for row in steps.iter_rows(named=True):
        action, outcome = expected[row["response"]]
        assert row["action"] == (action or "invalid")
        assert row["action_valid"] is (outcome is ReplyOutcome.OK)
        assert row["reply_outcome"] == outcome.value
        assert row["submission_outcome"] is None
        seen.add(row["response"])
    assert len(seen) == len(expected)
    assert set(frames.episodes.collect()["status"]) == {"complete"}
    assert verify_store(tmp_path / "store", Reporter()).problems == []


CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}


NO_CHOICES = (None, [], [None], [{}], [{"message": "hi"}], [{"message": {"content": 5}}])


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"null", b"[]", b'"text"', b"7", b"<html>", b"\xff\xfe{}", b"{}", b"[" * 200_000),
        b'{"error": {"message": "overloaded"}}',
        *(json.dumps({"choices": each}).encode() for each in NO_CHOICES),
        json.dumps({"choices": [CHOICE]}).encode()[:-3],
    ],
)
def test_what_is_no_chat_completion_is_asked_for_again(raw: bytes) -> None:
    with pytest.raises(GarbledAnswerError):
        read_answer(raw)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"message": {"content": None}}, {"text": ""}),
        ({"message": {}}, {"text": ""}),
        ({"message": {"content": [{"type": "text", "text": "a"}, {"type": "x"}, 5, {"text": "b"}]}}, {"text": "ab"}),
        ({"message": {"content": "a", "refusal": "no"}}, {"text": "a", "refusal": "no"}),
        ({"message": {"content": "a", "refusal": ""}}, {"refusal": None}),
        ({"message": {"content": "a", "reasoning_content": "why"}}, {"text": "a", "reasoning": "why"}),
        ({"finish_reason": "length"}, {"finish_reason": "length"}),
        *(({"finish_reason": word}, {"finish_reason": "unknown"}) for word in (None, "", "null")),
        *(
            ({"finish_reason": word}, {"finish_reason": "stop"})
            for word in ("eos", "end_turn", "STOP", {"type": "stop"})
        ),
        *(({"finish_reason": word}, {"finish_reason": "length"}) for word in ("max_tokens", "model-length")),
        ({"token_ids": [1, 2]}, {"token_ids": (1, 2)}),
        ({"token_ids": []}, {"token_ids": None}),
        ({"token_ids": [1, -2]}, {"token_ids": None}),
        ({"token_ids": [1, 2**40]}, {"token_ids": None}),
        ({"token_ids": [1, "2"]}, {"token_ids": None}),
        ({"token_ids": [True]}, {"token_ids": None}),
        ({"token_ids": "12"}, {"token_ids": None}),
        ({"logprobs": {"content": [{"logprob": -1}]}}, {"logprobs": (-1.0,)}),
        ({"logprobs": {"content": [{"logprob": float("nan")}]}}, {"logprobs": None}),
        ({"logprobs": {"content": [{"logprob": float("-inf")}]}}, {"logprobs": None}),
        ({"logprobs": {"content": [{}]}}, {"logprobs": None}),
        ({"logprobs": {"content": "x"}}, {"logprobs": None}),
        ({"logprobs": [1]}, {"logprobs": None}),
        ({"logprobs": {"content": [{"logprob": -1}]}, "token_ids": [1, 2]}, {"token_ids": (1, 2), "logprobs": None}),
    ],
)
def test_only_what_has_the_right_type_is_taken_over(change: dict[str, Any], expected: dict[str, Any]) -> None:
    answer = read_answer(json.dumps({"choices": [CHOICE | change]}).encode())
    assert {name: getattr(answer, name) for name in expected} == expected


WORDS = ("abort", "error", "content_filter", "tool_calls", "x" * 10_000, "\ud800\x1b[31m", 5, True, [], {"a": 1}, {})


@pytest.mark.parametrize("word", WORDS, ids=lambda word: str(word)[:20].encode("unicode_escape").decode())
def test_any_other_end_is_no_answer(word: Any) -> None:
    with pytest.raises(BrokenOffError, match="expected stop or length") as error:
        read_answer(json.dumps({"choices": [CHOICE | {"finish_reason": word}]}).encode())
    assert len(str(error.value)) < 250 and str(error.value).isprintable()


def test_no_model_of_a_plugin_can_answer_with_an_abort() -> None:
    """Policies, teachers, the Analyzer and benchmarks get a ``ChatAnswer``, or an error that leaves it pending."""
    for reason, text in (("abort", "<action>up</action>"), ("content_filter", "a"), ("unknown", " ")):
        with pytest.raises(PolicyError):
            ChatAnswer(text, reason)
    for word, reason in (("eos_token", "stop"), ("MAX_TOKENS", "length"), ("", "unknown")):
        assert ChatAnswer("a", word).finish_reason == reason
    assert ChatAnswer("", "unknown", refusal="no").finish_reason == "unknown"


@pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": -1}, {"prompt_tokens": 1.5}, {"prompt_tokens": True}])
def test_usage_is_a_count_or_nothing(usage: Any) -> None:
    assert read_answer(json.dumps({"choices": [CHOICE], "usage": usage}).encode()).prompt_tokens is None


def test_a_whole_completion_is_read() -> None:
    answer = read_answer(json.dumps(completion({"text": "a", "token_ids": [3], "logprobs": [-0.5]})).encode())
    assert (answer.text, answer.token_ids, answer.logprobs) == ("a", (3,), (-0.5,))
    assert (answer.prompt_tokens, answer.completion_tokens, answer.revision) == (100, 20, MODEL)


def test_a_policy_error_can_be_sent_between_processes() -> None:
    import pickle

    assert str(pickle.loads(pickle.dumps(PolicyError("x", {"attempts": 2})))) == "x"
