"""Check the scripted stand-in of PrimitiveSkill, the perfect policy inside it, and the policy of several players."""

import random
from collections import Counter
from typing import Any, cast

import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError
from pivot.core.identity import digest
from pivot.environments.primitiveskill.actions import read_primitives
from pivot.environments.primitiveskill.environment import PrimitiveSkillConfig, PrimitiveSkillEnv
from pivot.environments.primitiveskill.expert import expert_action
from pivot.environments.primitiveskill.tasks import KINDS, Scene
from pivot.rollouts.base import Episode
from pivot.rollouts.policies.mixed import MixedPolicy
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.primitiveskill_episodes import wild_action
from pivot.tests.rollouts.scripted_players import labels, played, rolled, texts
from pivot.training.evaluation.episodes import PLAYERS, mixed_policy

pytestmark = pytest.mark.xdist_group("scripted")
"""One test worker plays the episodes once for both files."""
KIND = "primitiveskill"


def groups() -> list[list[Episode]]:
    return [task.episodes for task in played(KIND)]


def episodes() -> list[Episode]:
    return [episode for group in groups() for episode in group]


def kind_of(episode: Episode) -> str:
    return next(name for name, kind in KINDS.items() if kind.instruction == episode.instruction)


def test_groups_are_those_of_a_weak_model() -> None:
    """The paper's untrained model: 46.2 % of groups without any success, 16.5 % whose returns agree."""
    fruitless = sum(all(episode.failed for episode in group) for group in groups()) / len(groups())
    assert 0.3 < fruitless < 0.65, fruitless
    equal = sum(len({round(episode.episode_return, 8) for episode in group}) == 1 for group in groups()) / len(groups())
    assert 0.08 < equal < 0.25, equal


def test_every_mode_occurs_in_every_task() -> None:
    failures = [episode for episode in episodes() if episode.failed]
    for task in KINDS:
        mine = [episode for episode in failures if kind_of(episode) == task]
        task_modes = Counter(verdict.failure_mode for verdict in labels(KIND, mine))
        assert len(task_modes) == 4, (task, task_modes)
        assert any(episode.success for episode in episodes() if kind_of(episode) == task), task
        left = {episode.steps[-1].info["remaining_stages"] for episode in mine}
        assert len(left) >= 2, (task, left)


def test_the_pivots_of_heuristic_and_bound_differ_often() -> None:
    certified = labels(KIND, [episode for episode in episodes() if episode.failed])
    early = sum(verdict.pivot_step < (verdict.certificate.reference_pivot or 0) for verdict in certified)
    assert all(verdict.certificate.reference_pivot in (4, 5) for verdict in certified)
    assert 0.3 < early / len(certified) < 0.8


def test_its_replies_are_those_of_other_machines() -> None:
    """Its figures in docs/internals/measured.md, and what its pictures show there, were measured with these."""
    assert digest(texts(played(KIND))) == "6af514d3ca4abac7736a95a2fad69f1f"


def test_commands_are_unreadable_in_every_way() -> None:
    steps = [step for episode in episodes() for step in episode.steps]
    assert {step.action.split("(")[0] for step in steps} == {"pick", "place", "push", "empty"}
    assert any("|" in step.action for step in steps)
    for word in ("more than 2 primitives", "unknown name", "wrong number"):
        assert any(word in (step.payload or "") for step in steps)


# The perfect player


@pytest.mark.parametrize("task", KINDS)
def test_the_perfect_player_recovers_from_wild_play(task: str) -> None:
    """After three turns of wild play it still nearly always succeeds: it moves obstacles aside."""
    env = PrimitiveSkillEnv(PrimitiveSkillConfig(tasks=(task,), horizon=12))
    env.draw_frames = False
    rng = random.Random(f"recover {task}")
    solved = played = 0
    for _ in range(60):
        env.reset(seed=rng.randrange(10**6))
        done = ended = False
        for _ in range(3):
            if not done:
                _, _, done, ended, _ = env.step(wild_action(rng, env, 0.4))
        if done:
            continue
        played += 1
        while not (done or ended):
            _, _, done, ended, _ = env.step(expert_action(env.state.kind, env.state.scene))
        solved += done
    assert played > 20
    assert solved >= 0.85 * played, (solved, played)


def test_the_perfect_player_always_answers() -> None:
    """It returns an accepted action even in scenes that no play reaches."""
    rng = random.Random(2)
    env = PrimitiveSkillEnv()
    for _ in range(2000):
        kind = rng.choice(list(KINDS.values()))
        positions = {
            thing: (rng.uniform(-150, 200), rng.uniform(-250, 250), rng.choice((20.0, 60.0, 100.0, 350.0)))
            for thing in kind.things
        }
        opening = rng.uniform(0, 300) if kind.name == "drawer" else None
        name = expert_action(kind, Scene(positions, rng.choice([None, *kind.things]), opening))
        primitives, void = read_primitives(name)
        assert primitives
        assert void is None
        assert env.encode_action(name) == name


OPTIONS: dict[str, Any] = mixed_policy("sokoban")["options"]


def test_each_kind_plays_its_share_and_replies_as_its_habits_do() -> None:
    assert plugins.load("policies", "mixed") is MixedPolicy
    policy = MixedPolicy(**OPTIONS)
    counts = Counter(policy.kind_of(f"episode-{number}") for number in range(20_000))
    for name, kind in PLAYERS.items():
        assert counts[name] / 20_000 == pytest.approx(kind["weight"], abs=0.015), name
    assert sum(kind["weight"] for kind in PLAYERS.values()) == pytest.approx(1.0)
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
