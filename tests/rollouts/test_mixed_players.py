"""The policy of several scripted players: shares, kinds by episode id, and the replies of each kind."""

from collections import Counter
from typing import Any, cast

import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError
from pivot.rollouts.policies.mixed import MixedPolicy
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.rollouts.test_scripted import rolled
from pivot.training.evaluation.episodes import PLAYERS, mixed_policy

OPTIONS: dict[str, Any] = mixed_policy({"sokoban": 1, "frozenlake": 1})["options"]


def test_each_kind_plays_its_share_and_replies_as_its_habits_do() -> None:
    assert plugins.load("policies", "mixed") is MixedPolicy
    policy = MixedPolicy(**OPTIONS)
    counts = Counter(policy.kind_of(f"episode-{number}") for number in range(20_000))
    for name, kind in PLAYERS.items():
        assert counts[name] / 20_000 == pytest.approx(kind.weight, abs=0.015), name
    assert sum(kind.share for kind in PLAYERS.values()) == pytest.approx(1.0)
    # A planted kind whose format is always bad, next to one without faults, shows whose replies an episode has.
    mute = {"sokoban": {"bad_format": 1.0}}
    clear = {"sokoban": {"bad_format": 0.0, "skill": 1e9, "misread": 0, "blunder": 0}}
    planted = MixedPolicy(weights={"mute": 1, "clear": 1}, habits={"mute": mute, "clear": clear})
    seen: Counter[str] = Counter()
    for task in rolled("sokoban", 6, cast(Any, planted)):
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
