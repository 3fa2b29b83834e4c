"""The stand-in's drawings: every mode and kind of reply, faults that only grow, pure in ids, apart from the puzzles."""

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError
from pivot.environments.grid_player import GridPlayer
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.svg.player import SvgHabits, SvgPlayer, _break, _Draft, _draw, _target_of
from pivot.environments.turns import ReplyOutcome
from pivot.labeling.base import FailedEpisode
from pivot.rollouts.base import Status, TaskRollouts
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.parser import parse_reply
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Case, Verdict
from pivot.solvers.svg.solver import SvgSolver
from pivot.tests import svg_episodes

TASKS = 9


def rolled(count: int, habits: dict[str, Any] | None = None, **options: Any) -> list[TaskRollouts]:
    config = SvgConfig()
    policy = ScriptedPolicy(habits={"svg": habits} if habits else {})
    return roll_out_tasks(SvgEnv, config, plan_tasks(SvgEnv, config, 0, count), policy, **options)


def texts(rollouts: list[TaskRollouts]) -> list[list[str]]:
    return [[step.response for step in episode.steps] for task in rollouts for episode in task.episodes]


def modes(episodes: list[FailedEpisode]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for verdict in SvgSolver().certify([Case("", e.actions, e.horizon, e.infos) for e in episodes]):
        assert isinstance(verdict, Verdict)
        counts[verdict.failure_mode] += 1
    return counts


def test_every_mode_is_frequent() -> None:
    """5 % is asked for; over 216 tasks 15 to 36 % were measured."""
    episodes = svg_episodes.failures(TASKS)
    counts = modes(episodes)
    for mode in SvgEnv.profile.failure_modes:
        assert counts[mode] >= 0.06 * len(episodes), counts
    assert len(episodes) >= 8 * TASKS - 2, "success is as rare as the paper's untrained model's"


def test_episodes_are_complete_and_use_every_turn() -> None:
    for task in svg_episodes.rollouts(TASKS):
        for episode in task.episodes:
            assert episode.status is Status.COMPLETE
            assert len(episode.steps) == 2 or episode.success


def test_every_kind_of_reply_occurs() -> None:
    env = SvgEnv()
    replies = [text for episode in texts(svg_episodes.rollouts(TASKS)) for text in episode]
    replies += [text for episode in texts(rolled(2, {"empty": 0.9, "no_think": 0.1})) for text in episode]
    outcomes = Counter(parse_reply(text, "answer", env.parse_action, keeps_case=True).outcome for text in replies)
    assert set(outcomes) == set(ReplyOutcome) - {ReplyOutcome.UNUSED}  # of imported episodes alone
    assert any("```svg" in text for text in replies)
    assert "" in replies


def test_the_target_itself_is_a_success() -> None:
    runs = rolled(1, {"exact": 1, "broken": 0, "empty": 0, "baffled": 0})
    for episode in runs[0].episodes:
        assert episode.success
        assert (len(episode.steps), episode.episode_return) == (1, 1.0)


def test_a_baffling_target_gives_eight_equal_returns() -> None:
    for episode in rolled(1, {"baffled": 1})[0].episodes:
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


# One player an environment


def test_players_are_found_by_environment() -> None:
    assert plugins.load("players", "svg") is SvgPlayer
    for env in ("sokoban", "frozenlake"):
        assert plugins.load("players", env) is GridPlayer


def test_habits_of_one_environment_are_no_setting_of_another() -> None:
    assert ScriptedPolicy().config == {"version": "1", "habits": {}}
    changed = ScriptedPolicy(habits={"svg": {"better": 0.5}})
    assert changed.config["habits"] == {"svg": {"better": 0.5}}
    with pytest.raises(ConfigError, match="habits of svg: unknown setting skill; known: faults, spread"):
        ScriptedPolicy(habits={"svg": {"skill": 1}})
    with pytest.raises(ConfigError, match="habits of sokoban: unknown setting faults"):
        ScriptedPolicy(habits={"sokoban": {"faults": 1}})


def test_default_habits_are_shares() -> None:
    habits = SvgHabits()
    assert habits.better + habits.worse + habits.hair < 1
    assert habits.empty + habits.broken + habits.no_think < 1
