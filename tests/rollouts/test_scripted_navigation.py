"""Check the prompts of navigation, and the actions of its scripted stand-in."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from pivot.core.images import decode, frame_id
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
from pivot.solvers.base import Case
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
