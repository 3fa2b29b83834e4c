"""Check the prompts of navigation, and the actions of its scripted stand-in."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from pivot.core.errors import ConfigError
from pivot.core.images import decode, encode_png, frame_id
from pivot.environments.base import Task
from pivot.environments.navigation.environment import NavigationConfig, NavigationEnv
from pivot.environments.navigation.prompt import PROMPT
from pivot.environments.navigation.world import ACTIONS
from pivot.environments.turns import HistoryEntry
from pivot.labeling.base import FailedEpisode
from pivot.labeling.replay import DisagreementError, Replayer
from pivot.rollouts.base import Episode, TaskRollouts
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Case, Verdict
from pivot.solvers.navigation.room import read_state
from pivot.solvers.navigation.solver import NavigationSolver
from pivot.tests.labeling.episodes import failed

TASK = Task("navigation-x-1", 1, "{}", "navigate to the Mug", eval_set="base")


def rendered(t: int, *past: str) -> tuple[str, list[dict[str, Any]]]:
    history = [HistoryEntry(number, action) for number, action in enumerate(past, 1)]
    [message] = PROMPT.render(NavigationEnv.profile, TASK, t=t, frame_id="f" * 64, history=history, observation="")
    return "\n".join(part.get("text", "<image>") for part in message["content"]), message["content"]


def test_the_prompt_says_what_the_spec_asks_for() -> None:
    text, parts = rendered(3, "lookup", "moveahead", "rotateright")
    assert [part["type"] for part in parts] == ["text", "image", "text"]
    assert "navigate to the Mug" in text
    assert all(text.count(action) >= 2 for action in ACTIONS), "listed with its meaning, and at the end"
    assert "step 2: moveahead; step 3: rotateright" in text
    assert "step 1:" not in text
    assert "step 4" in text
    assert "<think>...</think><action>...</action>" in text
    assert "0.5" in text or "half a metre" in text
    assert "1.5 metres" in text
    assert "90 degrees" in text
    assert "30 degrees" in text


def test_the_first_prompt_has_no_history() -> None:
    text, _ = rendered(0)
    assert "first step" in text
    assert "step 0" not in text
    assert tuple(env_action for env_action in ACTIONS if NavigationEnv().parse_action(env_action)) == ACTIONS


@lru_cache(maxsize=1)
def rollouts() -> tuple[TaskRollouts, ...]:
    config = NavigationConfig()
    tasks = plan_tasks(NavigationEnv, config, 4, 4)
    return tuple(roll_out_tasks(NavigationEnv, config, tasks, ScriptedPolicy(), 3))


def test_rollouts_store_what_the_model_sees() -> None:
    for task in rollouts():
        assert len(task.frames) > 5
        for name, frame in task.frames.items():
            assert (frame.width, frame.height, frame.format) == (255, 255, "jpeg")
            assert frame_id(decode(frame.image)) == name
    first, second = rollouts()[:2]
    assert (first.task.eval_set, second.task.eval_set) == ("base", "common_sense")
    assert first.episodes[0].group_id != second.episodes[0].group_id
    assert first.episodes[0].steps[0].frame_id == second.episodes[0].steps[0].frame_id
    assert first.episodes[0].steps[0].prompt_hash != second.episodes[0].steps[0].prompt_hash


BLACK = encode_png(np.zeros((255, 255, 3), np.uint8))


def as_failed(episode: Episode) -> FailedEpisode:
    steps = episode.steps
    return failed(
        "navigation",
        Case(episode.initial_state, episode.actions, 25, [step.info for step in steps]),
        env_config=NavigationConfig().model_dump(mode="json"),
        payloads=[step.payload for step in steps],
        rewards=episode.rewards,
        action_valid=[step.action_valid for step in steps],
        frame_ids=[*(step.frame_id for step in steps), steps[-1].next_frame_id],
    )


def test_a_replay_finds_the_same_frames_rewards_and_infos() -> None:
    failures = [episode for task in rollouts() for episode in task.episodes if episode.failed]
    assert failures
    replayer = Replayer(NavigationEnv())
    for episode in failures:
        replayer.check(as_failed(episode))
    steps = failures[0].steps
    wrong = [dict(step.info) for step in steps]
    wrong[7]["dist"] += 0.01
    with pytest.raises(DisagreementError, match="step 7"):
        replayer.check(replace(as_failed(failures[0]), infos=wrong))


@lru_cache(maxsize=1)
def many() -> tuple[Episode, ...]:
    """Rollouts at forty levels without pictures: habits depend on geometry alone."""

    class Blind(NavigationEnv):
        def _picture(self) -> bytes:
            return BLACK

    config = NavigationConfig()
    tasks = plan_tasks(NavigationEnv, config, 1, 80)[::2]
    return tuple(
        episode for task in roll_out_tasks(Blind, config, tasks, ScriptedPolicy(), 8) for episode in task.episodes
    )


def test_success_and_modes_are_those_of_a_weak_model() -> None:
    episodes = many()
    rate = sum(not episode.failed for episode in episodes) / len(episodes)
    assert 0.33 < rate < 0.55, rate
    failures = [episode for episode in episodes if episode.failed]
    verdicts = NavigationSolver().certify(
        [
            Case(episode.initial_state, episode.actions, 25, [step.info for step in episode.steps])
            for episode in failures
        ]
    )
    assert all(isinstance(verdict, Verdict) for verdict in verdicts)
    modes = Counter(verdict.failure_mode for verdict in verdicts if isinstance(verdict, Verdict))
    assert set(modes) == {"format", "blocked", "stagnation", "budget"}
    assert min(modes.values()) > 0.08 * len(failures), modes


def test_every_kind_of_reply_occurs() -> None:
    steps = [step for episode in many() for step in episode.steps]
    assert {step.action for step in steps} == {*ACTIONS, "invalid"}
    assert any(step.action != "invalid" and not step.action_valid for step in steps), "an action without a thought"
    assert any(not step.response for step in steps)
    assert len({step.response for step in steps}) > 100


def test_skill_is_a_setting() -> None:
    perfect = {"skill": 1e9, "level_spread": 0, "episode_spread": 0, "lost_heart": 0, "bad_format": 0}
    [task] = roll_out_tasks(
        NavigationEnv, NavigationConfig(), [rollouts()[0].task], ScriptedPolicy(habits={"navigation": perfect}), 2
    )
    room = read_state(task.task.initial_state, 1.5).room
    assert room is not None
    assert all(episode.success for episode in task.episodes)
    assert {len(episode.steps) for episode in task.episodes} == {room.turns(room.start)}
    with pytest.raises(ConfigError, match="lost_heart"):
        ScriptedPolicy(habits={"navigation": {"lost_heart": 2}})
