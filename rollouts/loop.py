"""The rollout loop: drive policies through environments and write down what happened.

``concurrency`` episodes are in flight in one event loop, so that a served model can batch them; each has an environment
of its own. Records hold nothing that depends on timing: order and content are equal for any concurrency. An episode
that breaks, in the policy or in the environment, becomes a record with its steps so far, and the others go on.

An environment may give a text observation as ``info["observation_text"]`` of ``reset`` and ``step``, and what a score
is made of as JSON in ``info["score_parts"]`` of ``step``; beside them only :data:`~.base.INFO_KEYS` are stored.
"""

import asyncio
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from .. import plugins
from ..environments.base import EnvConfig, EnvProfile, PivotEnv, Task
from ..errors import ConfigError, PluginError, PolicyError, ServerGoneError
from ..messages import PromptMessages, cut_reply
from .base import (
    INFO_KEYS,
    Episode,
    HistoryEntry,
    Policy,
    Reply,
    Status,
    Step,
    StopReason,
    StudentPrompt,
    TaskRollouts,
    Turn,
)
from .frames import FrameBook
from .groups import GROUP_SIZE
from .ids import episode_id, group_id, request_id, turn_seed
from .parser import ParsedReply, parse_reply
from .prompts.render import PromptCache

ERROR_LIMIT_BYTES = 2000
"""Longest stored error text; a server's error page may be of any length."""

ENDS_THE_RUN = (ConfigError, PluginError, ServerGoneError)
"""Errors that every other episode would meet too: the run has to stop and say so."""


def roll_out_tasks(
    env_type: type[PivotEnv],
    config: EnvConfig,
    tasks: Sequence[Task],
    policy: Policy,
    rollouts: int = GROUP_SIZE,
    *,
    concurrency: int = 64,
    only: Collection[str] | None = None,
    prompt: StudentPrompt | None = None,
) -> list[TaskRollouts]:
    """Roll out every task ``rollouts`` times; :func:`run_tasks` from synchronous code."""
    return asyncio.run(
        run_tasks(env_type, config, tasks, policy, rollouts, concurrency=concurrency, only=only, prompt=prompt)
    )


async def run_task(
    env_type: type[PivotEnv],
    config: EnvConfig,
    task: Task,
    policy: Policy,
    rollouts: int = GROUP_SIZE,
    *,
    concurrency: int = 64,
    only: Collection[str] | None = None,
    prompt: StudentPrompt | None = None,
) -> TaskRollouts:
    """Roll out one task ``rollouts`` times; see :func:`run_tasks`."""
    return (
        await run_tasks(env_type, config, [task], policy, rollouts, concurrency=concurrency, only=only, prompt=prompt)
    )[0]


async def run_tasks(
    env_type: type[PivotEnv],
    config: EnvConfig,
    tasks: Sequence[Task],
    policy: Policy,
    rollouts: int = GROUP_SIZE,
    *,
    concurrency: int = 64,
    only: Collection[str] | None = None,
    prompt: StudentPrompt | None = None,
) -> list[TaskRollouts]:
    """Roll out every task ``rollouts`` times.

    Args:
        env_type: the environment.
        config: its settings.
        tasks: the levels.
        policy: answers the turns of all episodes.
        rollouts: samples a task, ``sample_idx`` 0 to ``rollouts - 1``.
        concurrency: episodes in flight, fewer where the settings say so; each has its own environment instance.
        only: ids of the episodes to run, None for all: how a later run makes the ones still owed.
        prompt: the Student prompt; by default the one registered for the environment.

    Returns:
        One record a task in the order of ``tasks``, its episodes in the order of ``sample_idx``, frames and prompts in
        the order of their first use. A task none of whose episodes is in ``only`` has no episodes.

    Raises:
        PluginError: no prompt is registered for the environment.
        ConfigError: the policy or the environment cannot work with these settings.
    """
    student = prompt if prompt is not None else plugins.load("prompts", env_type.profile.name)
    runs = [TaskRun(env_type, config, task, policy, student) for task in tasks]
    wanted = [(run, sample) for run in runs for sample in range(rollouts) if only is None or run.id_of(sample) in only]
    queue = iter(wanted)
    in_flight = min(concurrency, len(wanted), config.most_instances or concurrency)
    workers = [asyncio.create_task(_work(queue)) for _ in range(in_flight)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [run.collected() for run in runs]


async def _work(queue: Iterator[tuple["TaskRun", int]]) -> None:
    """Run the next episode of the shared queue until there is none; keep the environment as long as it is sound."""
    env: PivotEnv | None = None
    try:
        for run, sample in queue:
            if env is None:
                env = run.env_type(run.config)
                env.draw_frames = False
            episode = await run.run_episode(env, sample)
            if episode.status is Status.ERROR:
                env.close()
                env = None
    finally:
        if env is not None:
            env.close()


class TaskRun:
    """What the episodes of one task share, and how one of them is run."""

    def __init__(
        self, env_type: type[PivotEnv], config: EnvConfig, task: Task, policy: Policy, prompt: StudentPrompt
    ) -> None:
        self.env_type = env_type
        self.config = config
        self.task = task
        self.policy = policy
        self.profile: EnvProfile = env_type.profile
        self._policy_config = policy.config
        self._group_id = group_id(
            self.profile, config, task, policy_name=policy.name, policy_config=self._policy_config
        )
        self._history_in_prompt = not prompt.frame_only
        self._prompts = PromptCache(prompt, self.profile, task)
        self._frames = FrameBook()
        self._episodes: dict[int, Episode] = {}
        self._calls: dict[int, list[dict[str, Any]]] = {}

    def id_of(self, sample: int) -> str:
        """Return the episode id of one sample."""
        return episode_id(
            self.profile,
            self.config,
            self.task,
            sample,
            policy_name=self.policy.name,
            policy_config=self._policy_config,
        )

    async def run_episode(self, env: PivotEnv, sample: int) -> Episode:
        """Run one episode to its end, whatever that is, and keep its record."""
        episode = Episode(self.id_of(sample), self._group_id, sample, self.task)
        self._episodes[sample] = episode
        calls = self._calls[sample] = []
        try:
            outcome = await self._play(env, episode, calls)
        except _PolicyFailedError as failure:
            break_off(episode, StopReason.POLICY_ERROR, failure.cause)
        except ENDS_THE_RUN:
            raise
        except Exception as error:  # noqa: BLE001 - a broken simulator is data: the record says what happened
            break_off(episode, StopReason.ENV_ERROR, error)
        else:
            episode.stop_reason, episode.success = outcome
            episode.failed = not episode.success
        return episode

    def give_up(self, sample: int, error: Exception) -> None:
        """Make an error record of an episode that will not be finished, or was not begun; a finished one stays."""
        episode = self._episodes.get(sample)
        if episode is None:
            episode = self._episodes[sample] = Episode(self.id_of(sample), self._group_id, sample, self.task)
            self._calls[sample] = []
        if episode.status is Status.COMPLETE and episode.stop_reason is None:
            break_off(episode, StopReason.POLICY_ERROR, error)

    async def _play(self, env: PivotEnv, episode: Episode, calls: list[dict[str, Any]]) -> tuple[StopReason, bool]:
        """Append the steps of the episode; return why it ended and whether it succeeded."""
        task, horizon = self.task, self.config.horizon
        limit = self.policy.episode_seconds
        deadline = None if limit is None else asyncio.get_running_loop().time() + limit
        frame, info = env.reset(options={"state": task.initial_state, "instruction": task.instruction})
        frame_id = self._frames.id_of(env, frame)
        history: list[HistoryEntry] = []
        for t in range(horizon):
            observation = str(info.get("observation_text", ""))
            prompt = self._prompts.at(t, frame_id, history, observation)
            reply, text, parsed = await self._ask(env, episode.episode_id, t, prompt, calls, deadline)
            name = parsed.action.name if parsed.action is not None else self.profile.unusable_action
            payload = parsed.action.payload if parsed.action is not None else None
            frame, reward, terminated, truncated, info = env.step(env.encode_action(name, payload))
            next_frame_id = self._frames.id_of(env, frame)
            stored = _stored_info(info)
            episode.steps.append(
                Step(
                    t=t,
                    prompt_hash=prompt.prompt_hash,
                    observation_text=observation,
                    response=text,
                    finish_reason=reply.finish_reason,
                    response_token_ids=reply.token_ids,
                    response_logprobs=reply.logprobs,
                    action=name,
                    payload=payload,
                    action_valid=parsed.action_valid,
                    moved=stored.get("moved"),
                    reward=float(reward),
                    remaining_turns=horizon - 1 - t,
                    frame_id=frame_id,
                    next_frame_id=next_frame_id,
                    info=stored,
                    score_parts=info.get("score_parts"),
                )
            )
            if terminated or truncated:
                success = self._succeeded(env, episode, info)
                return _stop_reason(success, terminated), success
            if self._history_in_prompt:
                history.append(HistoryEntry(t + 1, name, frame_id))
            frame_id = next_frame_id
        raise RuntimeError(f"the environment neither terminated nor truncated within its horizon of {horizon} turns")

    async def _ask(
        self,
        env: PivotEnv,
        episode: str,
        t: int,
        prompt: PromptMessages,
        calls: list[dict[str, Any]],
        deadline: float | None,
    ) -> tuple[Reply, str, ParsedReply]:
        """Return the reply, its text as it is stored, and what the grammar makes of it."""
        turn = Turn(episode, t, turn_seed(episode, t), prompt, self._frames.frames, self.task, env)
        started = perf_counter()
        wall_clock = asyncio.timeout_at(deadline)
        try:
            async with wall_clock:
                reply = await self.policy.reply(turn)
            text = cut_reply(reply.text, self.profile.reply_limit)
        except ENDS_THE_RUN:
            raise
        except Exception as error:
            cause = error
            if isinstance(error, TimeoutError) and wall_clock.expired():
                cause = PolicyError(f"the episode took longer than {self.policy.episode_seconds:g} s (step {t})")
            if isinstance(cause, PolicyError) and cause.call:
                calls.append(_call_row(episode, t, perf_counter() - started, cause.call))
            raise _PolicyFailedError(cause) from error
        calls.append(_call_row(episode, t, perf_counter() - started, reply.call))
        profile = self.profile
        parsed = parse_reply(
            text, profile.answer_tag, env.parse_action, profile.reply_limit, keeps_case=profile.keeps_case
        )
        return reply, text, parsed

    def _succeeded(self, env: PivotEnv, episode: Episode, info: Mapping[str, Any]) -> bool:
        if self.profile.has_success_bit:
            return bool(info["success"])
        return episode.episode_return >= env.success_return

    def collected(self) -> TaskRollouts:
        """Return the record of the task; its order does not depend on the order in which episodes ran."""
        samples = sorted(self._episodes)
        episodes = [self._episodes[sample] for sample in samples]
        steps = [step for episode in episodes for step in episode.steps]
        frame_ids = dict.fromkeys(key for step in steps for key in (step.frame_id, step.next_frame_id))
        hashes = dict.fromkeys(step.prompt_hash for step in steps)
        return TaskRollouts(
            task=self.task,
            episodes=episodes,
            frames={key: self._frames.frames[key] for key in frame_ids},
            prompts={key: self._prompts.prompts[key] for key in hashes},
            calls=[call for sample in samples for call in self._calls[sample]],
        )


class _PolicyFailedError(Exception):
    """Carries what a policy raised past the handler of the environment's errors."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def break_off(episode: Episode, reason: StopReason, error: Exception) -> None:
    """Turn the record into one of an episode that ended in ``error``."""
    episode.status = Status.ERROR
    episode.stop_reason = reason
    episode.error = cut_reply(f"{type(error).__name__}: {error}", ERROR_LIMIT_BYTES)


def _stop_reason(success: bool, terminated: bool) -> StopReason:
    if success:
        return StopReason.SUCCESS
    return StopReason.LOST if terminated else StopReason.HORIZON


def _stored_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the public keys as plain JSON values; a number that is not finite was not measured and becomes None."""
    stored: dict[str, Any] = {}
    for key in INFO_KEYS:
        if key in info:
            value = info[key]
            if isinstance(value, np.generic):
                value = value.item()
            stored[key] = None if isinstance(value, float) and not math.isfinite(value) else value
    return stored


def _call_row(episode: str, t: int, latency: float, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the ``calls`` table; what the policy knows better replaces what the loop measured."""
    return {
        "request_id": request_id(episode, t, "student"),
        "episode_id": episode,
        "t": t,
        "role": "student",
        "attempts": 1,
        "latency": latency,
        "prompt_tokens": None,
        "completion_tokens": None,
        "cost": None,
        "cache_hit": False,
        "model_revision": None,
        **call,
    }
