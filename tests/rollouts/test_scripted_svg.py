"""The stand-in's drawings: every mode and kind of reply, faults that only grow, pure in ids, apart from the puzzles."""

import json
import random
from dataclasses import replace

import pytest
from pivot.core.errors import ConfigError
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.svg.player import _break, _Draft, _draw, _target_of
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests import svg_episodes

TASKS = 9


def test_a_baffling_target_gives_eight_equal_returns() -> None:
    config = SvgConfig()
    policy = ScriptedPolicy(habits={"svg": {"baffled": 1}})
    for episode in roll_out_tasks(SvgEnv, config, plan_tasks(SvgEnv, config, 0, 1), policy)[0].episodes:
        assert (episode.actions, episode.episode_return) == (["empty", "empty"], 0.0)


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
    """Targets of others are untrusted: whatever they hold, there is a reply."""
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
