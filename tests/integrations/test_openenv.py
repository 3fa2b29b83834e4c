"""Play episodes over the protocol of OpenEnv, with its own client, and compare them with PIVOT's rollouts."""

import asyncio
import base64
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pivot.environments.base import Task
from pivot.errors import ConfigError
from pivot.images import decode, frame_id
from pivot.integrations.play import Game
from pivot.tests.integrations.reference import own_rollout, scores_of, shown_frames

core: Any = pytest.importorskip("openenv.core", reason="needs openenv-core; run: make test-integrations")
uvicorn: Any = pytest.importorskip("uvicorn")

from pivot.integrations.openenv import make_app  # noqa: E402

MOVES = ("up", "down", "left", "right")
EPISODES = 20


@contextmanager
def served(*arguments: Any, **named: Any) -> Iterator[str]:
    """Serve on a free port; yield the address."""
    server = uvicorn.Server(
        uvicorn.Config(make_app(*arguments, **named), host="127.0.0.1", port=0, log_level="warning")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def frames_of(content: list[dict[str, Any]]) -> list[str]:
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    return [frame_id(decode(base64.b64decode(url.partition(",")[2]))) for url in urls]


async def played(url: str, rng: random.Random, **reset: Any) -> tuple[list[str], list[Any], dict[str, Any]]:
    """Play one episode; return the replies, the results with the first, and the last state."""
    replies: list[str] = []
    async with core.GenericEnvClient(base_url=url) as client:
        results = [await client.reset(**reset)]
        while not results[-1].done:
            move = rng.choice(MOVES)
            replies.append(rng.choice([f"<think>{move}</think><action>{move}</action>"] * 5 + [move]))
            results.append(await client.step({"reply": replies[-1]}))
        return replies, results, await client.state()


def compare(env: str, task: Task, played: tuple[list[str], list[Any], dict[str, Any]], rule: str | None) -> None:
    replies, (first, *turns), state = played
    record = own_rollout(env, task, replies)
    (own,) = record.episodes
    shown = [key for result in (first, *turns) for key in frames_of(result.observation["content"])]
    assert shown == shown_frames(record)
    assert [turn.observation["env_reward"] for turn in turns] == own.rewards
    expected = own.rewards if rule is None else scores_of(own, rule)
    assert [turn.reward for turn in turns] == expected and first.reward is None
    assert [turn.observation["action"] for turn in turns] == own.actions
    assert turns[-1].observation["success"] == own.success and turns[-1].done
    assert turns[-1].observation["episode_return"] == own.episode_return
    assert (state["initial_state"], state["actions"], state["step_count"]) == (
        task.initial_state,
        own.actions,
        own.num_steps,
    )
    assert state["turn_rewards"] == (None if rule is None else expected)


@pytest.mark.parametrize(("env", "rule"), [("sokoban", "progress"), ("frozenlake", None)])
def test_episodes_over_the_wire_are_the_rollouts_of_the_same_replies(env: str, rule: str | None) -> None:
    tasks = Game(env, "test").tasks(EPISODES // 2, 4)
    with served(env, tasks=EPISODES // 2, seed=4, rule=rule) as url:

        async def all_at_once() -> list[Any]:
            chosen = [played(url, random.Random(index), task=index) for index in range(EPISODES // 2)]
            return await asyncio.gather(*chosen)

        for task, each in zip(tasks, asyncio.run(all_at_once()), strict=True):
            compare(env, task, each, rule)


def test_levels_come_from_the_list_or_from_a_seed() -> None:
    game = Game("sokoban", "test")
    first, second = game.tasks(2, 0)
    seeded = game.kind.make_task(game.config, 77)
    with served("sokoban", tasks=2) as url:
        for task, reset in ((first, {}), (second, {}), (first, {}), (seeded, {"seed": 77})):
            compare("sokoban", task, asyncio.run(played(url, random.Random(1), **reset)), "progress")


def test_what_cannot_be_done_is_an_error_and_the_connection_goes_on() -> None:
    async def wrong(url: str) -> None:
        async with core.GenericEnvClient(base_url=url) as client:
            for what, message in (
                (client.step({"reply": "x"}), "expected a reset before it"),
                (client.reset(task=9), "expected an index from 0 to 1"),
                (client.reset(task=1, seed=1), "expected only one of them"),
            ):
                with pytest.raises(RuntimeError, match=message):
                    await what
            assert not (await client.reset(task=1)).done

    with served("sokoban", tasks=2) as url:
        asyncio.run(wrong(url))


def _http(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_http_describes_the_environment_and_shows_a_first_picture() -> None:
    (task, _) = Game("sokoban", "test").tasks(2, 0)
    with served("sokoban", tasks=2) as url:
        assert _http(f"{url}/health")["status"] == "healthy"
        assert _http(f"{url}/schema")["action"]["required"] == ["reply"]
        assert _http(f"{url}/metadata")["name"] == "pivot-sokoban"
        first = _http(f"{url}/reset", {"task": 0})
        assert frames_of(first["observation"]["content"]) == shown_frames(own_rollout("sokoban", task, []))[:1]
        with pytest.raises(urllib.error.HTTPError):  # a request has an environment of its own
            _http(f"{url}/step", {"action": {"reply": "x"}})


def test_an_environment_without_credit_is_served_for_its_own_rewards_alone() -> None:
    with pytest.raises(ConfigError, match="credit of svg"):
        make_app("svg")
    assert make_app("svg", rule=None, tasks=1).title
