"""The rollout loop: records that do not depend on timing, typed ends, broken episodes kept as data."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pivot.core.errors import ConfigError, PolicyError
from pivot.core.identity import derive_seed
from pivot.core.images import decode, frame_id
from pivot.core.plugins import Settings
from pivot.environments.base import Task
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import INFO_KEYS, Policy, Status, StopReason, TaskRollouts, episode_id, judged
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.tests.corridor import CorridorConfig, CorridorEnv, CorridorPrompt

LONG = CorridorConfig(length=12, horizon=7)
TASKS = plan_tasks(CorridorEnv, LONG, 0, 6)


class Drifter(Policy):
    """A policy that answers from the turn's seed alone; with random delays, episodes overtake each other."""

    config_type = Settings
    name = "drifter"

    def __init__(self, delay: bool = False, crowd: int = 0) -> None:
        """Hold all answers until ``crowd`` turns wait at the same time."""
        self.delay, self.crowd = delay, crowd
        self.in_flight = self.most_in_flight = 0
        self.turns: list[tuple[str, int]] = []

    @property
    def config(self) -> dict[str, Any]:
        return {}

    async def reply(self, turn: Turn) -> Reply:
        self.turns.append((turn.episode_id, turn.t))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        for _ in range(100_000):
            if self.most_in_flight >= self.crowd:
                break
            await asyncio.sleep(0)
        if self.delay:
            await asyncio.sleep(derive_seed(turn.seed, "delay") % 5 / 1000)
        self.in_flight -= 1
        move = ("left", "right", "right", "jump")[turn.seed % 4]
        return Reply(f"<think>{turn.seed}</think><action>{move}</action>", call={"prompt_tokens": turn.t})


class Fixed(Policy):
    """A policy that answers with the given texts in turn; exceptions among them are raised."""

    config_type = Settings
    name = "fixed"

    def __init__(self, *replies: str | Exception) -> None:
        self.replies = replies

    @property
    def config(self) -> dict[str, Any]:
        return {"replies": len(self.replies)}

    async def reply(self, turn: Turn) -> Reply:
        reply = self.replies[min(turn.t, len(self.replies) - 1)]
        if isinstance(reply, Exception):
            raise reply
        return Reply(reply)


def say(move: str) -> str:
    return f"<think>so</think><action>{move}</action>"


def rolled(policy: Policy, config: CorridorConfig = LONG, tasks: Any = TASKS, **options: Any) -> list[TaskRollouts]:
    return roll_out_tasks(CorridorEnv, config, tasks, policy, prompt=CorridorPrompt(), **options)


def played(policy: Policy, state: str, **settings: Any) -> TaskRollouts:
    config = CorridorConfig(**settings)
    return rolled(policy, config, [Task("t", 0, state, "reach G")], rollouts=1)[0]


def without_latency(rollouts: list[TaskRollouts]) -> list[TaskRollouts]:
    for task in rollouts:
        assert all(call.latency is not None and call.latency >= 0 for call in task.calls)
        task.calls = [replace(call, latency=None) for call in task.calls]
    return rollouts


def test_concurrency_changes_nothing() -> None:
    quiet = without_latency(rolled(Drifter(), rollouts=5, concurrency=1))
    assert sum(len(task.episodes) for task in quiet) == 30
    for concurrency in (3, 64):
        policy = Drifter(delay=True, crowd=min(concurrency, 30))
        assert without_latency(rolled(policy, rollouts=5, concurrency=concurrency)) == quiet
        assert policy.most_in_flight == min(concurrency, 30)
        # Equality above compares dicts without order, which bytes do depend on.
        again = rolled(Drifter(delay=True), rollouts=5, concurrency=concurrency)
        assert [list(task.frames) for task in again] == [list(task.frames) for task in quiet]
        assert [list(task.prompts) for task in again] == [list(task.prompts) for task in quiet]
    assert policy.turns != sorted(policy.turns)


def test_records_are_complete_and_consistent() -> None:
    for rollouts in rolled(Drifter(), rollouts=4):
        frames = {step.frame_id for episode in rollouts.episodes for step in episode.steps}
        assert frames <= set(rollouts.frames)
        for name, frame in rollouts.frames.items():
            pixels = decode(frame.image)
            assert frame_id(pixels) == name == frame.frame_id
            assert (frame.height, frame.width, frame.format) == (*pixels.shape[:2], "png")
        assert [episode.sample_idx for episode in rollouts.episodes] == [0, 1, 2, 3]
        assert len({episode.group_id for episode in rollouts.episodes}) == 1
        for episode in rollouts.episodes:
            assert episode.episode_id == episode_id(
                CorridorEnv.profile, LONG, rollouts.task, episode.sample_idx, policy_name="drifter", policy_config={}
            )
            assert [step.t for step in episode.steps] == list(range(len(episode.steps)))
            for step, following in zip(episode.steps, episode.steps[1:], strict=False):
                assert step.next_frame_id == following.frame_id
            for step in episode.steps:
                assert step.prompt_hash in rollouts.prompts
                assert step.remaining_turns == LONG.horizon - 1 - step.t == step.info["remaining_turns"]
                assert step.action_valid is (step.action != "invalid")
        expected = [(episode.episode_id, step.t) for episode in rollouts.episodes for step in episode.steps]
        assert [(call.episode_id, call.t) for call in rollouts.calls] == expected
        assert all(call.prompt_tokens == call.t and call.role == "student" for call in rollouts.calls)
        assert len({call.request_id for call in rollouts.calls}) == len(rollouts.calls)


def test_environments_are_reused() -> None:
    CorridorEnv.made = 0
    rolled(Drifter(), rollouts=8, concurrency=5)
    assert CorridorEnv.made == 1, "without waiting, one environment serves every episode"
    CorridorEnv.made = 0
    rolled(Drifter(delay=True), rollouts=8, concurrency=5)
    assert CorridorEnv.made == 5


@pytest.mark.parametrize(
    ("replies", "state", "stop", "success", "actions"),
    [
        ([say("right")], "..A..G", StopReason.SUCCESS, True, ["right"] * 3),
        ([say("right")], "A....G", StopReason.SUCCESS, True, ["right"] * 5),  # on the last turn
        ([say("left")], "o.A..G", StopReason.LOST, False, ["left"] * 2),
        ([say("left")], "..A..G", StopReason.HORIZON, False, ["left"] * 5),
        ([""], "..A..G", StopReason.HORIZON, False, ["invalid"] * 5),
        (["<action>right</action>"], "..A..G", StopReason.SUCCESS, True, ["right"] * 3),
    ],
)
def test_how_episodes_end(replies: list[str], state: str, stop: StopReason, success: bool, actions: list[str]) -> None:
    (episode,) = played(Fixed(*replies), state).episodes
    assert (episode.status, episode.stop_reason, episode.error) == (Status.COMPLETE, stop, None)
    assert (episode.success, episode.failed) == (success, not success)
    assert episode.actions == actions
    assert episode.episode_return == pytest.approx(sum(episode.rewards))


def test_a_reply_without_thought_runs_but_is_not_valid() -> None:
    (episode,) = played(Fixed("<action>right</action>", say("right")), "..A..G").episodes
    assert [step.action_valid for step in episode.steps] == [False, True, True]
    assert judged({"action_is_valid": True}, False) == {"action_is_valid": False}


def test_only_public_info_is_stored_as_plain_values() -> None:
    (episode,) = played(Fixed(say("left")), ".A...G").episodes
    assert [step.info for step in episode.steps[:2]] == [
        {"moved": True, "dist": None, "remaining_turns": 4},
        {"moved": False, "dist": None, "remaining_turns": 3},
    ]
    assert type(episode.steps[0].info["moved"]) is bool
    assert episode.steps[0].moved is True
    assert list(episode.steps[0].info) == [key for key in INFO_KEYS if key in episode.steps[0].info]


def test_history_reaches_the_prompt() -> None:
    rollouts = played(Fixed(say("left"), "mumble", say("right")), "...A..G")
    texts = [
        rollouts.prompts[step.prompt_hash].messages[0]["content"][0]["text"] for step in rollouts.episodes[0].steps
    ]
    assert ["1:left 2:invalid" in text for text in texts] == [False, False, True, False, False]
    assert "2:invalid 3:right" in texts[3]


@pytest.mark.parametrize("error", [PolicyError("the server is away"), ValueError("bad \ud800 JSON " + "x" * 9999)])
def test_a_policy_that_cannot_answer(error: Exception) -> None:
    rollouts = played(Fixed(say("left"), say("right"), error), "..A..G")
    (episode,) = rollouts.episodes
    assert (episode.status, episode.stop_reason) == (Status.ERROR, StopReason.POLICY_ERROR)
    assert (episode.success, episode.failed) == (None, None)
    assert episode.actions == ["left", "right"]
    assert episode.error is not None
    assert episode.error.startswith(f"{type(error).__name__}: ")
    assert len(episode.error.encode()) <= 2000
    assert len(rollouts.calls) == 2
    assert len(rollouts.frames) == 2


def test_an_environment_that_breaks_is_replaced() -> None:
    CorridorEnv.made = 0
    config = CorridorConfig(break_at=2)
    tasks = [Task("t", 0, "..A...G", "reach G")]
    (rollouts,) = rolled(Fixed(say("right")), config, tasks, rollouts=3, concurrency=1)
    for episode in rollouts.episodes:
        assert (episode.status, episode.stop_reason) == (Status.ERROR, StopReason.ENV_ERROR)
        assert (episode.error, episode.failed) == ("OSError: the simulator is gone", None)
        assert episode.actions == ["right", "right"]
    assert CorridorEnv.made == 3


def test_an_endless_environment_is_an_error() -> None:
    (episode,) = played(Fixed(say("left")), "..A..G", endless=True).episodes
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert "horizon of 5" in str(episode.error)
    assert len(episode.steps) == 5


def test_a_level_that_cannot_be_read_is_an_error() -> None:
    (episode,) = played(Fixed(say("left")), "no player").episodes
    assert (episode.status, episode.steps) == (Status.ERROR, [])


def test_wrong_settings_stop_the_run() -> None:
    with pytest.raises(ConfigError, match="no such model"):
        rolled(Fixed(say("left"), ConfigError("no such model")), concurrency=4)


def test_only_the_owed_episodes_run() -> None:
    everything = without_latency(rolled(Drifter(), rollouts=4))
    pending = {everything[1].episodes[2].episode_id, everything[4].episodes[0].episode_id}
    policy = Drifter()
    some = without_latency(rolled(policy, rollouts=4, only=pending))
    assert {episode for episode, _ in policy.turns} == pending
    assert [len(task.episodes) for task in some] == [0, 1, 0, 0, 1, 0]
    assert some[1].episodes == [everything[1].episodes[2]]
    assert some[0].frames == {}


def test_long_replies_are_cut_before_they_are_stored() -> None:
    (episode,) = played(Fixed(say("right") + "é" * 100_000), "..A..G").episodes
    assert episode.success
    assert len(episode.steps[0].response.encode()) in (64 * 1024 - 1, 64 * 1024)


def test_success_by_return() -> None:
    class Scored(CorridorEnv):
        """The corridor without a success flag."""

        profile = replace(CorridorEnv.profile, has_success_bit=False, success_return=9.75)

    for state, success in (("...A.G", True), ("..A..G", False)):
        task = Task("t", 0, state, "reach G")
        (rollouts,) = roll_out_tasks(Scored, CorridorConfig(), [task], Fixed(say("right")), 1, prompt=CorridorPrompt())
        (episode,) = rollouts.episodes
        assert episode.success is success
        assert episode.failed is not success
        assert episode.stop_reason is (StopReason.SUCCESS if success else StopReason.LOST)
