"""The stand-in's drawings, normal and hostile: every mode and kind of reply, faults that only grow, no episode lost."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from pivot.core.errors import ConfigError
from pivot.core.plugins import Settings
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.svg.player import _break, _Draft, _draw, _target_of
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import Policy, Status
from pivot.rollouts.loop import roll_out_tasks
from pivot.tests import svg_episodes
from pivot.tests.environments.svg.hostile import hostile_documents

TASKS = 9


def test_faults_grow_with_their_level_and_never_leave_the_target() -> None:
    task = svg_episodes.rollouts(TASKS)[0].task
    target = _target_of(task.initial_state)
    env = SvgEnv()
    for episode in ("one", "two", "three"):
        documents = [_draw(target, episode, _Draft(level, 0, "draft")) for level in (0.02, 0.4, 0.95)]
        scores = []
        for document in documents:
            env.reset(options={"state": task.initial_state})
            scores.append(env.step(document)[4]["average_score"])
        assert all(0 < score < 1 for score in scores)
        assert scores[0] > scores[2]
        nudged = _draw(target, episode, _Draft(0.4, 1, "hair"))
        assert nudged != documents[1]


def test_broken_documents_cannot_be_drawn() -> None:
    task = svg_episodes.rollouts(TASKS)[0].task
    env = SvgEnv()
    document = _draw(_target_of(task.initial_state), "one", _Draft(0.4, 0, "draft"))
    rng = random.Random(1)
    for _ in range(40):
        env.reset(options={"state": task.initial_state})
        parsed = env.parse_action(_break(document, rng.random(), rng.random()))
        assert parsed is not None
        assert env.step(env.encode_action(parsed.name, parsed.payload))[4]["valid_svg"] is False


ODD_TARGETS = [
    "",
    "<svg",
    "<svg>",
    "<svg></svg>",
    "</svg><svg>",
    "<svg viewBox='0 0 1 1'><text>no shape</text></svg>",
    '<svg viewBox="a b c d"><path d="M0 0"/></svg>',
    "<svg>" + "<path " * 20_000 + "</svg>",
    "<svg>" + '<g viewBox="' * 20_000 + "</svg>",
    '<svg viewBox="0 0 0 0"><path/><path/></svg>',
]


@pytest.mark.parametrize("document", ODD_TARGETS, ids=range(len(ODD_TARGETS)))
def test_any_text_can_be_a_target(document: str) -> None:
    """Foreign targets are untrusted: the player replies to any of them."""
    target = _target_of(json.dumps({"target": document}))
    for level in (0.02, 0.95):
        drawn = _draw(target, "one", _Draft(level, 0, "draft"))
        _break(drawn, 0.1, 0.5)
        _break(drawn, 0.9, 0.5)


@pytest.mark.parametrize("state", ["", "{}", "[]", "######", '{"target": 3}'])
def test_a_level_without_a_target_is_refused(state: str) -> None:
    run = svg_episodes.rollouts(TASKS)[0]
    task = replace(run.task, initial_state=state)
    with pytest.raises(ConfigError, match="no target document"):
        _target_of(task.initial_state)


class HostilePolicy(Policy):
    """A policy that answers with the next document of a list, whatever the prompt."""

    config_type = Settings
    name = "hostile"

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._documents = iter(documents.values())

    @property
    def config(self) -> dict[str, Any]:
        return {}

    async def reply(self, turn: Turn) -> Reply:
        return Reply(f"<think>now</think><answer>{next(self._documents)}</answer>")


def test_no_episode_is_lost() -> None:
    """Catch a hostile document that ends its episode, or whose score another play contradicts."""
    documents = hostile_documents("127.0.0.1:9", "/no/such/file")
    texts = {name: document for name, document in documents.items() if isinstance(document, str)}
    kinds = ("external image", "external use", "entity", "number rect", "odd", "mutation", "use ", "surrogate", "nul")
    names = [name for kind in kinds for name in islice((each for each in texts if each.startswith(kind)), 4)]
    names += ["number circle 1e308", "path of 50 MB", "text"]
    chosen = {name: texts[name] for name in names}
    assert len(chosen) > 30
    config = SvgConfig()
    count = len(chosen) // config.horizon
    task = SvgEnv.make_task(config, 0)
    (rollouts,) = roll_out_tasks(SvgEnv, config, [task], HostilePolicy(chosen), count, concurrency=1)
    assert [episode.status for episode in rollouts.episodes] == [Status.COMPLETE] * count
    steps = [step for episode in rollouts.episodes for step in episode.steps]
    assert all(step.info["average_score"] == 0 for step in steps if not step.info["valid_svg"])
    assert {step.info["valid_svg"] for step in steps} == {False, True}
    env = SvgEnv(config)
    for episode in rollouts.episodes[::5]:
        env.reset(options={"state": task.initial_state})
        for step in episode.steps:
            _, reward, *_, info = env.step(env.encode_action(step.action, step.payload))
            assert (reward, info["average_score"]) == (step.reward, step.info["average_score"])
