"""Execution and record of one episode; ``loop.py`` schedules many of them.

Records hold nothing that depends on timing. An episode that breaks, in the policy or in the environment, becomes a
record with its steps so far. :class:`~pivot.environments.base.PivotEnv` says what ``info`` may hold for the record.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any, Protocol, TypeVar

import numpy as np

from ..environments.base import EnvConfig, EnvProfile, PivotEnv, Task, actions_per_turn
from ..errors import CacheError, ConfigError, PluginError, PolicyError, ServerGoneError
from ..identity import canonical_json
from ..messages import Call, PromptMessages, cut_reply
from .base import (
    EndOfLogError,
    Episode,
    HistoryEntry,
    ParsedReply,
    Policy,
    Reply,
    Status,
    Step,
    StopReason,
    StudentPrompt,
    TaskRollouts,
    Turn,
    judged,
    stored_keys,
)
from .frames import FrameBook
from .ids import episode_id, group_id, request_id, turn_seed
from .measure import Measure, Measured
from .parser import parse_reply
from .prompts.render import PromptCache

Result = TypeVar("Result")

ERROR_LIMIT_BYTES = 2000
"""Longest stored error text; an error page of a server may have any length."""

ENDS_THE_RUN = (CacheError, ConfigError, PluginError, ServerGoneError)
"""Errors that concern every episode: the run has to stop and report them."""


class CallEnv(Protocol):
    """Caller of functions that use an environment, in a thread if the environment would block the event loop."""

    def __call__(self, env: PivotEnv, function: Callable[..., Result], /, *arguments: Any) -> Awaitable[Result]:
        """Return the result of ``function`` or raise its error; nothing else uses ``env`` meanwhile."""
        ...


class TaskRun:
    """Shared data of the episodes of one task, and the execution of each."""

    def __init__(
        self,
        env_type: type[PivotEnv],
        config: EnvConfig,
        task: Task,
        policy: Policy,
        prompt: StudentPrompt,
        run_id: str = "",
    ) -> None:
        self.task = task
        self.policy = policy
        self.profile: EnvProfile = env_type.profile
        self._config = config
        self._policy_config = policy.config_for(self.profile.name)
        self._shared = {
            **asdict(task),
            "run_id": run_id,
            "env": self.profile.name,
            "env_version": self.profile.version,
            "env_config": canonical_json(config.decisive()),
            "backend": config.simulator or self.profile.backend,
            "group_id": group_id(
                self.profile, config, task, policy_name=policy.name, policy_config=self._policy_config
            ),
            "state_format": self.profile.state_format,
            "horizon": config.horizon,
            "policy": policy.name,
            "policy_config": canonical_json(self._policy_config),
        }
        most = actions_per_turn(config)
        self._measure = Measure(self.profile.name, task.initial_state, config.horizon, most)
        self._history_in_prompt = not prompt.frame_only
        self._prompts = PromptCache(prompt, replace(self.profile, actions_per_turn=most), task)
        self._frames = FrameBook()
        self._episodes: dict[int, Episode] = {}
        self._calls: dict[int, list[Call]] = {}

    def id_of(self, sample: int) -> str:
        """Return the episode id of one sample."""
        return episode_id(
            self.profile,
            self._config,
            self.task,
            sample,
            policy_name=self.policy.name,
            policy_config=self._policy_config,
        )

    def _begin(self, sample: int) -> Episode:
        episode = Episode(
            episode_id=self.id_of(sample),
            sample_idx=sample,
            optimal_start=self._measure.optimal_start,
            **self._shared,
        )
        self._episodes[sample], self._calls[sample] = episode, []
        return episode

    async def run_episode(self, env: PivotEnv, sample: int, call: CallEnv) -> Episode:
        """Run one episode until it ends, in success, failure or error, and keep its record."""
        episode = self._begin(sample)
        try:
            outcome = await self._play(env, episode, call)
        except _PolicyFailedError as failure:
            if isinstance(failure.cause, EndOfLogError):
                episode.status = Status.TRUNCATED
            else:
                _break_off(episode, StopReason.POLICY_ERROR, failure.cause)
        except ENDS_THE_RUN:
            raise
        except Exception as error:  # noqa: BLE001 - a broken simulator is data: the record says what happened
            _break_off(episode, StopReason.ENV_ERROR, error)
        else:
            episode.stop_reason, episode.success = outcome
            episode.failed = not episode.success
        return episode

    def give_up(self, sample: int, error: Exception) -> None:
        """Record an episode that was not finished, or not begun, as an error; a finished one is unchanged."""
        episode = self._episodes.get(sample) or self._begin(sample)
        if episode.status is Status.COMPLETE and episode.stop_reason is None:
            _break_off(episode, StopReason.POLICY_ERROR, error)

    async def _play(self, env: PivotEnv, episode: Episode, call: CallEnv) -> tuple[StopReason, bool]:
        """Append the steps of the episode; return why it ended and whether it succeeded."""
        limit = self.policy.episode_seconds
        deadline = None if limit is None else asyncio.get_running_loop().time() + limit
        frame_id, info, before = await call(env, self._reset, env)
        history: list[HistoryEntry] = []
        for t in range(episode.horizon):
            observation = str(info.get("observation_text", ""))
            prompt = self._prompts.at(t, frame_id, history, observation)
            reply, text, parsed = await self._ask(env, episode, t, prompt, deadline)
            name = parsed.action.name if parsed.action is not None else self.profile.unusable_action
            payload = parsed.action.payload if parsed.action is not None else None
            next_frame_id, inside, (reward, terminated, truncated, info), after = await call(
                env, self._step, env, name, payload
            )
            stored = _stored_info(judged(info, parsed.action_valid), stored_keys(self.profile))
            episode.append(
                Step(
                    episode_id=episode.episode_id,
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
                    reply_outcome=parsed.outcome,
                    moved=stored.get("moved"),
                    reward=float(reward),
                    remaining_turns=episode.horizon - 1 - t,
                    frame_id=frame_id,
                    next_frame_id=next_frame_id,
                    inside_frame_ids=inside,
                    info=stored,
                    submission_outcome=info.get("submission_outcome"),
                    score_parts=info.get("score_parts"),
                    state=before.state,
                    need=before.need,
                )
            )
            if terminated or truncated:
                success = self._succeeded(env, episode, info)
                return _stop_reason(success, terminated), success
            if self._history_in_prompt:
                history.append(HistoryEntry(t + 1, name, frame_id))
            frame_id, before = next_frame_id, after
        raise RuntimeError(
            f"the environment neither terminated nor truncated within its horizon of {episode.horizon} turns"
        )

    def _reset(self, env: PivotEnv) -> tuple[str, dict[str, Any], Measured]:
        """Start the level; return the id of the first frame, the environment's ``info`` and the state."""
        frame, info = env.reset(options={"state": self.task.initial_state, "instruction": self.task.instruction})
        return self._frames.id_of(env, frame), info, self._state_of(env)

    def _step(
        self, env: PivotEnv, name: str, payload: str | None
    ) -> tuple[str, tuple[str, ...] | None, tuple[Any, bool, bool, dict[str, Any]], Measured]:
        """Take a turn; return the ids of the next frame and of those inside, the other results, and the state."""
        frame, reward, terminated, truncated, info = env.step(env.encode_action(name, payload))
        inside = tuple(self._frames.add(env, each) for each in env.frames_inside()) or None
        return self._frames.id_of(env, frame), inside, (reward, terminated, truncated, info), self._state_of(env)

    def _state_of(self, env: PivotEnv) -> Measured:
        return self._measure.of(env.state_text()) if self._measure.exact else Measured(env.changing_state())

    async def _ask(
        self, env: PivotEnv, episode: Episode, t: int, prompt: PromptMessages, deadline: float | None
    ) -> tuple[Reply, str, ParsedReply]:
        """Return the reply, its stored text, and its parse."""
        name, calls, profile = episode.episode_id, self._calls[episode.sample_idx], self.profile
        # A copy: the thread of another episode may add a frame while the policy reads them.
        turn = Turn(name, t, turn_seed(name, t), prompt, dict(self._frames.frames), self.task, env)
        started = perf_counter()

        def asked(report: Mapping[str, Any]) -> Call:
            latency = perf_counter() - started
            return Call(request_id(name, t, "student"), name, t, "student", latency=latency).reported(report)

        wall_clock = asyncio.timeout_at(deadline)
        answered = False
        try:
            async with wall_clock:
                reply = await self.policy.reply(turn)
            text = cut_reply(reply.text, profile.reply_limit)
            answered = True
        except ENDS_THE_RUN:
            raise
        except Exception as error:
            cause = error
            if isinstance(error, TimeoutError) and wall_clock.expired():
                cause = PolicyError(f"the episode took longer than {self.policy.episode_seconds:g} s (step {t})")
            raise _PolicyFailedError(cause) from error
        finally:
            if turn.sent.tries and not answered:
                calls.append(asked({"attempts": turn.sent.tries, "answered": False}))
        if self.policy.plays:
            calls.append(asked(reply.call))
        parsed = reply.parsed or parse_reply(
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
        for episode in episodes:
            self._measure.note_needs(episode)
        steps = [step for episode in episodes for step in episode.steps]
        frame_ids = dict.fromkeys(key for step in steps for key in step.shown_frames)
        hashes = dict.fromkeys(step.prompt_hash for step in steps)
        return TaskRollouts(
            task=self.task,
            episodes=episodes,
            frames={key: self._frames.frames[key] for key in frame_ids},
            prompts={key: self._prompts.prompts[key] for key in hashes},
            calls=[call for sample in samples for call in self._calls[sample]],
        )


class _PolicyFailedError(Exception):
    """Wrapper of a policy's error, so that the handler of the environment's errors does not catch it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _break_off(episode: Episode, reason: StopReason, error: Exception) -> None:
    """Turn the record into one of an episode that ended in ``error``."""
    episode.status = Status.ERROR
    episode.stop_reason = reason
    episode.error = cut_reply(f"{type(error).__name__}: {error}", ERROR_LIMIT_BYTES)


def _stop_reason(success: bool, terminated: bool) -> StopReason:
    if success:
        return StopReason.SUCCESS
    return StopReason.LOST if terminated else StopReason.HORIZON


def _stored_info(info: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Keep these keys as plain JSON values; a number that is not finite was not measured and becomes None."""
    stored: dict[str, Any] = {}
    for key in keys:
        if key in info:
            value = info[key]
            if isinstance(value, np.generic):
                value = value.item()
            stored[key] = None if isinstance(value, float) and not math.isfinite(value) else value
    return stored
