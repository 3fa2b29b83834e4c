"""Execution and record of one episode; ``loop.py`` schedules many of them.

Records hold nothing that depends on timing. An episode that breaks, in the policy or in the environment, becomes a
record with its steps so far. :class:`~pivot.environments.base.PivotEnv` says what ``info`` may hold for the record.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any, Protocol, TypeVar

import numpy as np

from ..core.errors import CacheError, ConfigError, NotAllowedError, PluginError, PolicyError, ServerGoneError
from ..core.identity import canonical_json
from ..core.images import Frame
from ..core.messages import Call, EncodedFrame, PromptMessages, cut_reply, ending_of, frames_in
from ..environments.base import EnvConfig, EnvProfile, PivotEnv, Task, actions_per_turn
from ..environments.turns import HistoryEntry, Reply, StudentPrompt, Turn, turn_seed
from .base import EndOfLogError, Episode, Policy, Status, Step, StopReason, TaskRollouts, judged, stored_keys
from .frames import FrameBook
from .ids import episode_id, group_id, request_id
from .measure import Measure, Measured
from .parser import parse_reply
from .render import PromptCache

Result = TypeVar("Result")

ERROR_LIMIT_BYTES = 2000
"""Longest stored error text; an error page of a server may have any length."""

ENDS_THE_RUN = (CacheError, ConfigError, NotAllowedError, PluginError, ServerGoneError)
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
        self.measure = Measure(self.profile.name, task.initial_state, config.horizon, most)
        self.history_in_prompt = not prompt.frame_only
        self.prompts = PromptCache(prompt, replace(self.profile, actions_per_turn=most), task)
        self.frames = FrameBook()
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
            optimal_start=self.measure.optimal_start,
            **self._shared,
        )
        self._episodes[sample], self._calls[sample] = episode, []
        return episode

    def play(self, env: PivotEnv, sample: int) -> Episode:
        """Play one episode with a policy that waits for nothing, and keep its record."""
        with self._recorded(sample) as episode:
            live = LiveEpisode(self, env, episode)
            live.start()
            while not live.is_over:
                live.take(at_once(self._ask(env, episode, live.t, live.prompt), f"policy {self.policy.name}"))
        return episode

    async def run_episode(self, env: PivotEnv, sample: int, call: CallEnv) -> Episode:
        """Run one episode among others until it ends, in success, failure or error, and keep its record."""
        limit = self.policy.episode_seconds
        deadline = None if limit is None else asyncio.get_running_loop().time() + limit
        with self._recorded(sample) as episode:
            live = LiveEpisode(self, env, episode)
            await call(env, live.start)
            while not live.is_over:
                reply = await self._ask(env, episode, live.t, live.prompt, deadline)
                await call(env, live.take, reply)
        return episode

    @contextmanager
    def _recorded(self, sample: int) -> Iterator[Episode]:
        """Begin an episode; an error of the policy or the environment becomes the end of its record."""
        episode = self._begin(sample)
        try:
            yield episode
        except _PolicyFailedError as failure:
            if isinstance(failure.cause, EndOfLogError):
                episode.status = Status.TRUNCATED
            else:
                _break_off(episode, StopReason.POLICY_ERROR, failure.cause)
        except ENDS_THE_RUN:
            raise
        except Exception as error:  # noqa: BLE001 - a broken simulator is data: the record says what happened
            _break_off(episode, StopReason.ENV_ERROR, error)

    def give_up(self, sample: int, error: Exception) -> None:
        """Record an episode that was not finished, or not begun, as an error; a finished one is unchanged."""
        episode = self._episodes.get(sample) or self._begin(sample)
        if episode.status is Status.COMPLETE and episode.stop_reason is None:
            _break_off(episode, StopReason.POLICY_ERROR, error)

    def live(self, env: PivotEnv, sample: int = 0) -> "LiveEpisode":
        """Return a new episode whose replies the caller gives one by one, for code that has its own loop."""
        return LiveEpisode(self, env, self._begin(sample))

    async def _ask(
        self, env: PivotEnv, episode: Episode, t: int, prompt: PromptMessages, deadline: float | None = None
    ) -> Reply:
        """Return the reply, its text cut to what is stored."""
        name, calls = episode.episode_id, self._calls[episode.sample_idx]
        # A copy: the thread of another episode may add a frame while the policy reads them.
        turn = Turn(name, t, turn_seed(name, t), prompt, dict(self.frames.frames), self.task, env)
        started = perf_counter()

        def asked(report: Mapping[str, Any]) -> Call:
            latency = perf_counter() - started
            return Call(request_id(name, t, "student"), name, t, "student", latency=latency).reported(report)

        wall_clock = None if deadline is None else asyncio.timeout_at(deadline)
        answered = False
        try:
            async with wall_clock or nullcontext():
                reply = await self.policy.reply(turn)
            if self.policy.plays:  # an import keeps what its source recorded
                reply = replace(reply, finish_reason=ending_of(reply.finish_reason, reply.text))
            text = cut_reply(reply.text, self.profile.reply_limit)
            answered = True
        except ENDS_THE_RUN:
            raise
        except Exception as error:
            cause = error
            if isinstance(error, TimeoutError) and wall_clock is not None and wall_clock.expired():
                cause = PolicyError(f"the episode took longer than {self.policy.episode_seconds:g} s (step {t})")
            raise _PolicyFailedError(cause) from error
        finally:
            if turn.sent.tries and not answered:
                sent = turn.sent
                calls.append(asked({"attempts": sent.tries, "answered": False, "broken_off": sent.broken_off}))
        if self.policy.plays:
            calls.append(asked(reply.call))
        return replace(reply, text=text)

    def collected(self) -> TaskRollouts:
        """Return the record of the task; its order does not depend on the order in which episodes ran."""
        samples = sorted(self._episodes)
        episodes = [self._episodes[sample] for sample in samples]
        for episode in episodes:
            self.measure.note_needs(episode)
        steps = [step for episode in episodes for step in episode.steps]
        hashes = dict.fromkeys(step.prompt_hash for step in steps if step.prompt_hash)
        prompts = {key: self.prompts.prompts[key] for key in hashes}
        frame_ids = dict.fromkeys(key for step in steps for key in step.shown_frames)
        frame_ids |= dict.fromkeys(key for prompt in prompts.values() for key in frames_in(prompt.messages))
        return TaskRollouts(
            task=self.task,
            episodes=episodes,
            frames={key: self.frames.frames[key] for key in frame_ids},
            prompts=prompts,
            calls=[call for sample in samples for call in self._calls[sample]],
        )


class LiveEpisode:
    """One episode under way: it shows a prompt, takes a reply, and appends the step to the record."""

    def __init__(self, run: TaskRun, env: PivotEnv, episode: Episode) -> None:
        """Prepare an episode of ``run`` in ``env``, which nothing else uses until it ends; :meth:`start` begins it."""
        self.episode = episode
        self._run, self._env = run, env
        self._history: list[HistoryEntry] = []
        self._observation = ""
        self._frame_id = ""
        self._before = Measured("")

    @property
    def is_over(self) -> bool:
        """Whether the episode ended."""
        return self.episode.stop_reason is not None

    @property
    def t(self) -> int:
        """Index of the next turn, 0-based."""
        return self.episode.num_steps

    def start(self) -> None:
        """Reset the environment to the level."""
        task = self._run.task
        frame, info = self._env.reset(options={"state": task.initial_state, "instruction": task.instruction})
        self._see(frame, info)

    @property
    def prompt(self) -> PromptMessages:
        """Prompt of the next turn; :attr:`pictures` has its pictures."""
        return self._run.prompts.at(self.t, self._frame_id, self._history, self._observation)

    @property
    def pictures(self) -> Mapping[str, EncodedFrame]:
        """All pictures of the task that were shown, by frame id."""
        return self._run.frames.frames

    def take(self, reply: Reply) -> Step:
        """Execute the action of a reply and return the step, which :attr:`episode` then contains.

        Raises:
            RuntimeError: the environment did not end within its horizon.
        """
        env, episode, profile = self._env, self.episode, self._run.profile
        parsed = reply.parsed or parse_reply(
            reply.text, profile.answer_tag, env.parse_action, profile.reply_limit, keeps_case=profile.keeps_case
        )
        name = parsed.action.name if parsed.action is not None else profile.unusable_action
        payload = parsed.action.payload if parsed.action is not None else None
        t, frame_id, before, observation = self.t, self._frame_id, self._before, self._observation
        prompt = self.prompt if self._run.policy.plays else reply.prompt
        if not self._run.policy.plays and prompt is not None:
            self._run.prompts.prompts.setdefault(prompt.prompt_hash, prompt)
            self._run.frames.frames.update(reply.pictures)
        frame, reward, terminated, truncated, info = env.step(env.encode_action(name, payload))
        inside = tuple(self._run.frames.add(env, each) for each in env.frames_inside()) or None
        self._see(frame, info)
        stored = _stored_info(judged(info, parsed.action_valid), stored_keys(profile))
        step = Step(
            episode_id=episode.episode_id,
            t=t,
            prompt_hash="" if prompt is None else prompt.prompt_hash,
            observation_text=observation,
            response=reply.text,
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
            next_frame_id=self._frame_id,
            inside_frame_ids=inside,
            info=stored,
            submission_outcome=info.get("submission_outcome"),
            score_parts=info.get("score_parts"),
            state=before.state,
            need=before.need,
        )
        episode.append(step)
        if self._run.history_in_prompt:
            self._history.append(HistoryEntry(t + 1, name, frame_id))
        if terminated or truncated:
            success = self._succeeded(info)
            episode.stop_reason, episode.success = _stop_reason(success, terminated), success
            episode.failed = not success
        elif self.t == episode.horizon:
            raise RuntimeError(
                f"the environment neither terminated nor truncated within its horizon of {episode.horizon} turns"
            )
        return step

    def _see(self, frame: Frame, info: Mapping[str, Any]) -> None:
        """Keep the picture, the text and the state that the environment shows now."""
        measure, env = self._run.measure, self._env
        self._frame_id = self._run.frames.id_of(env, frame)
        self._before = measure.of(env.state_text()) if measure.exact else Measured(env.changing_state())
        self._observation = str(info.get("observation_text", ""))

    def _succeeded(self, info: Mapping[str, Any]) -> bool:
        if self._run.profile.has_success_bit:
            return bool(info["success"])
        return self.episode.episode_return >= self._env.success_return


def at_once(work: Coroutine[Any, Any, Result], name: str) -> Result:
    """Return the result of work that waits for nothing, without an event loop.

    Raises:
        PluginError: it waits.
    """
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise PluginError(f"{name} waits for something, but is not marked as served; set `served = True` in its class")


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
