"""Play 20 episodes in the loop of verifiers against a stub of a model server, and compare them with PIVOT's own."""

import asyncio
import base64
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

vf: Any = pytest.importorskip("verifiers.v1", reason="needs verifiers; run: make test WHAT=integrations")

from pivot.core.errors import ConfigError  # noqa: E402
from pivot.core.images import decode, frame_id  # noqa: E402
from pivot.environments.base import Task  # noqa: E402
from pivot.interop.trainers.verifiers import add_turn_credit  # noqa: E402
from pivot.tests.interop.reference import own_rollout, scores_of, shown_frames  # noqa: E402
from pivot.tests.models.chat_server import MODEL, ChatServer, number_of  # noqa: E402

loaders: Any = pytest.importorskip("verifiers.v1.utils.loaders")

EPISODES = 20


def player(body: dict[str, Any]) -> dict[str, Any]:
    """A model whose reply is a function of its pictures."""
    number = number_of([part["image_url"]["url"] for part in pictures_of(body)])
    move = ("up", "down", "left", "right")[number % 4]
    return {"text": f"<think>go {move}</think><action>{move}</action>" if number % 7 else f"I would go {move}."}


def pictures_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The image parts of a request, in order."""
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    return [part for content in contents for part in content if part["type"] == "image_url"]


def frames_of(body: dict[str, Any]) -> list[str]:
    """The hashes of the pictures of a request as the model decodes them."""
    urls = [part["image_url"]["url"] for part in pictures_of(body)]
    return [frame_id(decode(base64.b64decode(url.partition(",")[2]))) for url in urls]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(player) as server:
        yield server


def environment(**taskset: Any) -> Any:
    """The environment, loaded by verifiers by name."""
    return loaders.load_environment(loaders.resolve_env_config({"taskset": {"id": "pivot-vlm", **taskset}}))


def run_all(env: Any, server: ChatServer) -> list[Any]:
    """Play one episode per task, one at a time."""
    context = vf.ModelContext(
        model=MODEL,
        client=vf.EvalClientConfig(base_url=server.url, api_key_var="PIVOT_NO_KEY"),
        sampling=vf.SamplingConfig(temperature=1.0),
    )

    async def play() -> list[Any]:
        async with env.serving():
            return [await env.run_slot(slot, context) for task in env.taskset for slot in env.slots(task)]

    return asyncio.run(play())


def replies_of(trace: Any) -> list[str]:
    return [node.message.content for node in trace.nodes if node.sampled]


@pytest.mark.parametrize(("name", "rule"), [("sokoban", "progress"), ("frozenlake", "slack")])
def test_every_picture_reaches_the_model_and_rewards_are_ours(name: str, rule: str, server: ChatServer) -> None:
    env = environment(env=name, tasks=EPISODES // 2, rule=rule, seed=5)
    episodes = run_all(env, server)
    assert len(episodes) == EPISODES // 2
    bodies = iter(server.log.bodies)
    for episode in episodes:
        assert episode.ok, episode.errors
        (trace,) = episode.traces
        record = own_rollout(name, Task(**trace.task.data.level), replies_of(trace))
        (own,) = record.episodes
        requests = [next(bodies) for _ in range(own.num_steps)]
        assert frames_of(requests[-1]) == shown_frames(record)
        for turn, request in enumerate(requests):  # a picture of its own in every user message
            users = [message for message in request["messages"] if message["role"] == "user"]
            assert len(users) == turn + 1
            assert all(any(part["type"] == "image_url" for part in user["content"]) for user in users)
        assert trace.reward == pytest.approx(own.episode_return)
        assert trace.info["actions"] == own.actions and trace.info["env_rewards"] == own.rewards
        assert trace.info["turn_rewards"] == scores_of(own, rule)
    assert next(bodies, None) is None


def test_the_levels_are_those_of_a_build(server: ChatServer) -> None:
    from pivot.datasets.store.config import env_config
    from pivot.datasets.store.config import environment as kind
    from pivot.rollouts.plan import plan_tasks

    planned = plan_tasks(kind("sokoban"), env_config("sokoban", {"boxes": 2, "rows": 7, "cols": 7}), 3, 4)
    env = environment(env="sokoban", settings={"boxes": 2, "rows": 7, "cols": 7}, tasks=4, seed=3)
    assert [Task(**task.data.level) for task in env.taskset] == planned


def test_a_player_at_its_limit_pays_for_the_turns_that_are_left(server: ChatServer) -> None:
    settings = {"taskset": {"id": "pivot-vlm", "tasks": 3}, "player": {"max_turns": 2}}
    env = loaders.load_environment(loaders.resolve_env_config(settings))
    for episode in run_all(env, server):
        (trace,) = episode.traces
        (own,) = own_rollout("sokoban", Task(**trace.task.data.level), replies_of(trace)).episodes
        assert trace.metrics["turns"] == min(2, own.num_steps) and trace.reward == pytest.approx(own.episode_return)


def test_a_server_that_fails_is_an_error_of_the_trace_and_never_a_reward() -> None:
    with ChatServer(player, fault=lambda key, tried: "500") as broken:
        (episode,) = run_all(environment(tasks=1), broken)
    assert not episode.ok and all("episode_return" not in trace.rewards for trace in episode.traces)


def test_what_cannot_be_used_is_refused_when_the_environment_is_loaded() -> None:
    with pytest.raises(ConfigError, match="credit of svg"):
        environment(env="svg")
    assert environment(env="svg", rule=None).taskset.game.rule is None


def test_the_tokens_of_a_turn_get_its_credit(server: ChatServer) -> None:
    traces = [episode.traces[0] for episode in run_all(environment(env="frozenlake", tasks=4), server)]
    tokens = 0
    for trace in traces:  # a trainer's server counts tokens, and its algorithm assigns one advantage to a rollout
        for node in trace.nodes:
            tokens += 1
            node.mask = [False, *[node.sampled] * (1 + tokens % 3)]
            node.advantages = [trace.reward] * sum(node.mask) if node.sampled else None
    add_turn_credit(traces, 0.5)
    scores = [score for trace in traces for score in trace.info["turn_rewards"][: len(replies_of(trace))]]
    mean, deviation = sum(scores) / len(scores), statistics.pstdev(scores)
    assert deviation > 0 and len(scores) > 8
    for trace in traces:
        sampled = [node for node in trace.nodes if node.sampled]
        for node, score in zip(sampled, trace.info["turn_rewards"], strict=False):
            expected = trace.reward + 0.5 * (score - mean) / deviation
            assert node.advantages == pytest.approx([expected] * (len(node.mask) - 1))
        assert all(node.advantages is None for node in trace.nodes if not node.sampled)
    add_turn_credit([], 0.5)
