"""The scripted stand-in: pure in its inputs, tuned to the untrained model's rates, and bad in every way there is.

One contract for the players of all environments, then what is peculiar to one, and the policy of several players.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from pivot.core import plugins
from pivot.core.errors import CertifyError, ConfigError
from pivot.core.identity import digest
from pivot.environments import grid_player as grid
from pivot.environments.base import Task
from pivot.environments.grid_player import CACHED_LEVELS
from pivot.environments.navigation.player import _looks
from pivot.environments.svg.environment import SvgEnv
from pivot.environments.svg.player import _break, _Draft, _draw, _target_of
from pivot.environments.turns import ReplyOutcome, Turn
from pivot.rollouts.base import Status
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.parser import parse_reply
from pivot.rollouts.policies.mixed import MixedPolicy
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.rollouts.scripted_players import GRIDS, PLAYERS, digests, episodes_of, labels, played, rolled, texts
from pivot.training.evaluation.episodes import PLAYERS as KINDS
from pivot.training.evaluation.episodes import mixed_policy

pytestmark = pytest.mark.xdist_group("scripted")
"""One test worker plays the episodes once for all tests."""


@pytest.mark.parametrize("env", PLAYERS)
def test_a_player_fails_as_often_and_in_as_many_ways_as_a_weak_model(env: str) -> None:
    """Catch a stand-in that wins or loses nearly always, or never reaches a failure mode of its environment."""
    player, episodes = PLAYERS[env], episodes_of(played(env))
    assert len(episodes) == 8 * player.levels
    assert all(episode.status is Status.COMPLETE for episode in episodes)
    failures = [episode for episode in episodes if episode.failed]
    low, high = player.success
    assert low <= 1 - len(failures) / len(episodes) <= high
    modes = Counter(verdict.failure_mode for verdict in labels(env, failures))
    for mode in plugins.load("environments", env).profile.failure_modes:
        assert modes[mode] >= player.least * len(failures), modes
    assert len({text for replies in texts(played(env)) for text in replies}) > player.replies


@pytest.mark.parametrize("env", PLAYERS)
def test_every_kind_of_reply_occurs(env: str) -> None:
    made = plugins.load("environments", env)()
    replies = [text for episode in texts(played(env)) for text in episode]
    if env == "svg":
        replies += [text for each in texts(rolled("svg", 2, habits("svg", empty=0.9, no_think=0.1))) for text in each]
    tag, keeps = made.profile.answer_tag, env == "svg"
    outcomes = Counter(parse_reply(text, tag, made.parse_action, keeps_case=keeps).outcome for text in replies)
    unseen = {ReplyOutcome.UNUSED}  # kinds of imported episodes alone
    for outcome in set(ReplyOutcome) - unseen:
        assert outcomes[outcome] >= 0.005 * len(replies), outcomes
    assert outcomes[ReplyOutcome.OK] >= (0.9 if env in GRIDS else 0.5) * len(replies)
    assert replies.count("") >= 0.001 * len(replies)
    if env in GRIDS:
        assert sum("<action>UP</action>" in text for text in replies) > 10


def habits(env: str, **settings: Any) -> ScriptedPolicy:
    return ScriptedPolicy(habits={env: settings})


@pytest.mark.parametrize("env", PLAYERS)
def test_habits_are_settings(env: str) -> None:
    """A perfect player succeeds; habits of one environment are no setting of another."""
    player, policy = PLAYERS[env], habits(env, **PLAYERS[env].perfect)
    assert policy.config["habits"].keys() == {env}, "other environments keep their ids"
    assert ScriptedPolicy().config == {"version": "1", "habits": {}}
    assert all(episode.success for episode in episodes_of(rolled(env, 3, policy, blind=player.blind, rollouts=2)))
    with pytest.raises(ConfigError, match=f"habits of {env}: unknown setting skil; "):
        habits(env, skil=1)
    for name, value in player.bad.items():
        with pytest.raises(ConfigError, match=name):
            habits(env, **{name: value})


@pytest.mark.parametrize("env", GRIDS)
def test_rollouts_of_a_level_resemble_each_other(env: str) -> None:
    successes = [sum(bool(episode.success) for episode in task.episodes) for task in played(env)]
    all_fail = successes.count(0) / len(successes)
    if_independent = (1 - sum(successes) / (8 * len(successes))) ** 8
    assert all_fail > if_independent + 0.05, env
    assert max(successes) >= 7


@pytest.mark.parametrize(
    ("env", "count"),
    [("sokoban", CACHED_LEVELS + 3), ("frozenlake", 3), ("svg", 2), ("navigation", 2), ("primitiveskill", 3)],
)
def test_order_and_concurrency_change_no_reply(env: str, count: int) -> None:
    forwards = rolled(env, count, rollouts=2)
    env_type = plugins.load("environments", env)
    config, tasks = env_type.config_type(), [task.task for task in forwards]
    backwards = roll_out_tasks(env_type, config, tasks[::-1], ScriptedPolicy(), 2, concurrency=1)
    interleaved = roll_out_tasks(env_type, config, tasks, Yielding(), 2, concurrency=50)
    steps = [[episode.steps for episode in task.episodes] for task in forwards]
    for others in (backwards[::-1], interleaved):
        assert [[episode.steps for episode in task.episodes] for task in others] == steps


class Yielding(ScriptedPolicy):
    """The policy, yielding to other episodes in every turn."""

    async def reply(self, turn: Any) -> Any:
        await asyncio.sleep(0)
        return await super().reply(turn)


DIGEST = """
from pivot.tests.rollouts.scripted_players import digests
print(*digests())
"""


def test_hash_randomisation_changes_no_reply() -> None:
    """Catch a habit that depends on the hashes of a process."""
    other = os.environ | {"PYTHONHASHSEED": "8" if os.environ.get("PYTHONHASHSEED") == "7" else "7"}
    run = subprocess.run([sys.executable, "-c", DIGEST], env=other, capture_output=True, text=True, check=True)
    assert run.stdout.split() == digests()


@pytest.mark.parametrize(
    ("env", "message"), [("navigation", "embedded rooms"), ("primitiveskill", "primitiveskill only")]
)
def test_players_refuse_other_environments(env: str, message: str) -> None:
    [task] = rolled("frozenlake", 1, rollouts=1)
    lake = plugins.load("environments", "frozenlake")()
    turn = Turn("episode", 0, 1, next(iter(task.prompts.values())), {}, task.task, lake)
    with pytest.raises(ConfigError, match=message):
        plugins.load("players", env)(env, {}).reply(turn)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"misread": 2}, r"habits of sokoban: misread: found 2, expected at most 1\.0"),
        ({"blunder": "often"}, r"habits\.sokoban\.blunder.*: found 'often', expected a whole number"),
        ({"skill": float("nan")}, r"habits\.sokoban\.skill.*: found nan, expected a finite number"),
    ],
)
def test_bad_habits_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ScriptedPolicy(habits={"sokoban": change})


def test_plays_at_random_where_the_solver_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: Any, **__: Any) -> None:
        raise CertifyError("too many states")

    monkeypatch.setattr(plugins.load("solvers", "sokoban"), "distance_map", give_up)
    grid._level.cache_clear()
    rollouts = rolled("sokoban", 4)
    moves = Counter(step.action for task in rollouts for episode in task.episodes for step in episode.steps)
    assert {episode.status for task in rollouts for episode in task.episodes} == {Status.COMPLETE}
    assert min(moves[action] for action in ("up", "down", "left", "right")) > 0.15 * moves.total()


def test_needs_a_solver_with_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plugins:
        @staticmethod
        def load(group: str, name: str) -> type:
            return object

    monkeypatch.setattr(grid, "plugins", Plugins)
    grid._level.cache_clear()
    with pytest.raises(ConfigError, match="exact distances"):
        rolled("sokoban", 1)


def test_a_need_of_the_whole_horizon_is_stored() -> None:
    kind = plugins.load("environments", "frozenlake")
    tasks = [Task("level", 0, "SFG\nFFF\nFFF", "Go.")]
    (made,) = roll_out_tasks(kind, kind.config_type(horizon=2), tasks, ScriptedPolicy(), 1)
    assert made.episodes[0].optimal_start == made.episodes[0].steps[0].need == 2


def test_a_tilted_view_is_levelled() -> None:
    assert [_looks(horizon) for horizon in (-30, 30)] == [("lookdown",), ("lookup",)]


def test_broken_documents_cannot_be_drawn() -> None:
    task = played("svg")[0].task
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
    with pytest.raises(ConfigError, match="no target document"):
        _target_of(state)


def test_replies_in_primitiveskill_are_those_of_other_machines() -> None:
    """Its figures in docs/internals/measured.md were measured with these."""
    assert digest(texts(played("primitiveskill"))) == "6af514d3ca4abac7736a95a2fad69f1f"


def test_each_kind_plays_its_share_and_replies_as_its_habits_do() -> None:
    assert plugins.load("policies", "mixed") is MixedPolicy
    policy = MixedPolicy(**mixed_policy("sokoban")["options"])
    counts = Counter(policy.kind_of(f"episode-{number}") for number in range(20_000))
    for name, kind in KINDS.items():
        assert counts[name] / 20_000 == pytest.approx(kind["weight"], abs=0.015), name
    assert sum(kind["weight"] for kind in KINDS.values()) == pytest.approx(1.0)
    # A planted kind whose format is always bad, next to one without faults, shows whose replies an episode has.
    mute = {"sokoban": {"bad_format": 1.0}}
    clear = {"sokoban": {"bad_format": 0.0, "skill": 1e9, "misread": 0, "blunder": 0}}
    planted: Any = MixedPolicy(weights={"mute": 1, "clear": 1}, habits={"mute": mute, "clear": clear})
    seen: Counter[str] = Counter()
    for task in rolled("sokoban", 6, planted):
        for episode in task.episodes:
            kind = planted.kind_of(episode.episode_id)
            seen[kind] += 1
            assert episode.success or kind == "mute"
            assert any(not step.action_valid for step in episode.steps) == (kind == "mute")
    assert seen["mute"] > 5 and seen["clear"] > 5


def test_a_single_kind_without_habits_is_the_scripted_policy_under_other_ids() -> None:
    policy = MixedPolicy(weights={"default": 3.0})
    assert policy.is_stand_in and policy.config_for("primitiveskill")["kinds"]["default"] == {
        "weight": 3.0,
        **ScriptedPolicy().config_for("primitiveskill"),
    }
    assert {policy.kind_of(str(number)) for number in range(50)} == {"default"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"a": 0}}, r"weights\.a: found 0"),
        ({"weights": {"a": 1}, "habits": {"a": {"sokoban": {"skil": 1}}}}, "unknown setting skil"),
        ({"weights": {"a": 1}, "habits": {"b": {}}}, "found kind 'b', expected one with a weight: a"),
        ({}, "found no kinds, expected at least one"),
    ],
)
def test_bad_kinds_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MixedPolicy(**options).check()
