"""Execution and record of one episode; ``loop.py`` schedules many of them.

Records hold nothing that depends on timing. An episode that breaks, in the policy or in the environment, becomes a
record with its steps so far. :class:`~pivot.environments.base.PivotEnv` says what ``info`` may hold for the record.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from ..core import plugins
from ..core.errors import (
    CacheError,
    ConfigError,
    NotAllowedError,
    PivotError,
    PluginError,
    PolicyError,
    ServerGoneError,
)
from ..core.identity import canonical_json, derive_seed
from ..core.images import Frame, frame_id
from ..core.messages import Call, EncodedFrame, PromptMessages, cut_reply, ending_of, frames_in
from ..environments.base import EnvConfig, EnvProfile, PivotEnv, Task, actions_per_turn
from ..environments.turns import HistoryEntry, Reply, StudentPrompt, Turn
from ..solvers.base import Case, DistanceMap, ExactSolver, Solver
from .base import (
    Batch,
    EndOfLogError,
    Episode,
    Policy,
    Status,
    Step,
    StopReason,
    TaskRollouts,
    episode_id,
    group_id,
    judged,
    render_student,
    request_id,
    stored_keys,
)
from .parser import parse_reply

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

ERROR_LIMIT_BYTES = 2000
"""Longest stored error text; an error page of a server may have any length."""

ENDS_THE_RUN = (CacheError, ConfigError, NotAllowedError, PluginError, ServerGoneError)
"""Errors that concern every episode: the run has to stop and report them."""


CallEnv = Callable[..., Awaitable[Any]]
"""Calls a function that uses an environment, ``call(env, function, *arguments)``, in a thread if the environment would
block the event loop; nothing else uses the environment meanwhile."""

MOST_STATES = 500_000
"""Most states in the search for the distances of a level: a few tenths of a second and about 50 MB."""
CAP = "max_states"


class TaskRun:
    """The episodes of one task, and what they share: frames, prompts, and the turns needed from each state.

    Episodes of a task start from one level and revisit the same few states; only about one frame in eight is new. Each
    distinct frame is hashed and encoded once, and each prompt rendered once.
    """

    def __init__(
        self,
        env_type: type[PivotEnv],
        config: EnvConfig,
        task: Task,
        policy: Policy,
        prompt: StudentPrompt,
        run_id: str = "",
    ) -> None:
        """Begin without an episode."""
        self.task = task
        self.policy = policy
        self.profile: EnvProfile = env_type.profile
        self.frames: dict[str, EncodedFrame] = {}
        """Distinct frames by id, in the order of their first appearance."""
        self.prompts: dict[str, PromptMessages] = {}
        """Distinct prompts by hash."""
        name, policy_config = self.profile.name, policy.config_for(self.profile.name)
        self._ids = {"policy_name": policy.name, "policy_config": policy_config}
        self._config = config
        self._shared = {
            **asdict(task),
            "run_id": run_id,
            "env": name,
            "env_version": self.profile.version,
            "env_config": canonical_json(config.decisive()),
            "backend": config.simulator or self.profile.backend,
            "group_id": group_id(self.profile, config, task, **self._ids),
            "state_format": self.profile.state_format,
            "horizon": config.horizon,
            "policy": policy.name,
            "policy_config": canonical_json(policy_config),
        }
        self.frame_only = prompt.frame_only
        self._prompt, self._most = prompt, actions_per_turn(config)
        self._shown = replace(self.profile, actions_per_turn=self._most)
        self._by_key: dict[Hashable, PromptMessages] = {}
        self._frame_ids: dict[Hashable, str] = {}
        self._needs: dict[str, int | None] = {}
        self._distances: DistanceMap | None = None
        self._solver: Solver | None = None
        if name in plugins.names("solvers"):  # with default settings: settings of a run decide labels, never episodes
            kind: type[Solver] = plugins.load("solvers", name)
            cap = {CAP: MOST_STATES} if CAP in kind.config_type.model_fields else {}
            self._solver = kind(kind.config_type(**cap))
        self.exact = isinstance(self._solver, ExactSolver)
        """Whether the environment has an exact solver."""
        self._episodes: dict[int, Episode] = {}
        self._calls: dict[int, list[Call]] = {}

    def id_of(self, sample: int) -> str:
        """Return the episode id of one sample."""
        return episode_id(self.profile, self._config, self.task, sample, **self._ids)

    def begin(self, sample: int) -> Episode:
        """Return the record of a new episode."""
        episode = Episode(
            episode_id=episode_id(self.profile, self._config, self.task, sample, **self._ids),
            sample_idx=sample,
            optimal_start=self.need_at(self.task.initial_state),
            **self._shared,
        )
        self._episodes[sample], self._calls[sample] = episode, []
        return episode

    def keep_frame(self, env: PivotEnv, frame: Frame, key: Hashable | None = None) -> str:
        """Return the id of a frame, and store the frame if it is new.

        If the environment names its picture by ``key`` (``frame_key``), a frame that exists is not rendered again.

        Raises:
            ImageError: the environment returned something other than an RGB frame.
        """
        if key is not None and key in self._frame_ids:
            return self._frame_ids[key]
        if frame.size == 0:  # NO_FRAME: the environment did not render it
            drawn = env.render()
            frame = drawn if isinstance(drawn, np.ndarray) else frame
        name = frame_id(frame)
        if name not in self.frames:
            height, width = frame.shape[:2]
            self.frames.setdefault(name, EncodedFrame(name, width, height, *env.encode_frame(frame)))
        if key is not None:
            self._frame_ids[key] = name
        return name

    def prompt_at(self, t: int, frame_id: str, history: Sequence[HistoryEntry], observation: str) -> PromptMessages:
        """Return the prompt of one turn; one that depends on the frame alone is rendered once per frame."""
        key = frame_id if self.frame_only else (t, frame_id, tuple(history), observation)
        if key not in self._by_key:
            shown = {"t": t, "frame_id": frame_id, "history": history, "observation": observation}
            rendered = render_student(self._prompt, self._shown, self.task, **shown)
            self._by_key[key] = self.prompts.setdefault(rendered.prompt_hash, rendered)
        return self._by_key[key]

    def need_at(self, state: str) -> int | None:
        """Return the fewest turns to success from a state by an exact solver.

        None where they are more than the horizon, where the level is beyond the limits of the search, and for other
        solvers.
        """
        if state not in self._needs:  # rollouts of a level meet few states
            horizon, moves = self._config.horizon, None
            with suppress(PivotError):
                if not self._needs and isinstance(self._solver, ExactSolver):
                    limit = horizon * self._most
                    self._distances = self._solver.distance_map(self.task.initial_state, depth_limit=limit)
                moves = None if self._distances is None else self._distances.distance(state)
            need = None if moves is None else math.ceil(moves / self._most)
            self._needs[state] = need if need is not None and need <= horizon else None
        return self._needs[state]

    def play(self, env: PivotEnv, sample: int) -> Episode:
        """Play one episode with a policy that waits for nothing, and keep its record."""
        with self._recorded(sample) as episode:
            live = LiveEpisode(self, env, episode)
            live.start()
            while episode.stop_reason is None:
                live.take(at_once(self._ask(env, episode, live.prompt), f"policy {self.policy.name}"))
        return episode

    async def run_episode(self, env: PivotEnv, sample: int, call: CallEnv) -> Episode:
        """Run one episode among others until it ends, in success, failure or error, and keep its record."""
        limit = self.policy.episode_seconds
        deadline = None if limit is None else asyncio.get_running_loop().time() + limit
        with self._recorded(sample) as episode:
            live = LiveEpisode(self, env, episode)
            await call(env, live.start)
            while not live.is_over:
                reply = await self._ask(env, episode, live.prompt, deadline)
                await call(env, live.take, reply)
        return episode

    @contextmanager
    def _recorded(self, sample: int) -> Iterator[Episode]:
        """Begin an episode; an error of the policy or the environment becomes the end of its record."""
        episode = self.begin(sample)
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
        episode = self._episodes.get(sample) or self.begin(sample)
        if episode.status is Status.COMPLETE and episode.stop_reason is None:
            _break_off(episode, StopReason.POLICY_ERROR, error)

    def live(self, env: PivotEnv, sample: int = 0) -> "LiveEpisode":
        """Return a new episode whose replies the caller gives one by one, for code that has its own loop."""
        return LiveEpisode(self, env, self.begin(sample))

    async def _ask(
        self, env: PivotEnv, episode: Episode, prompt: PromptMessages, deadline: float | None = None
    ) -> Reply:
        """Return the reply to the next turn, its text cut to what is stored."""
        name, t, calls = episode.episode_id, episode.num_steps, self._calls[episode.sample_idx]
        # A copy: the thread of another episode may add a frame while the policy reads them.
        turn = Turn(name, t, derive_seed(name, t), prompt, dict(self.frames), self.task, env)
        started = perf_counter()
        wall_clock = None if deadline is None else asyncio.timeout_at(deadline)
        report: Mapping[str, Any] | None = None
        try:
            async with wall_clock or nullcontext():
                reply = await self.policy.reply(turn)
            if self.policy.plays:  # an import keeps what its source recorded
                reply = replace(reply, finish_reason=ending_of(reply.finish_reason, reply.text))
            text = cut_reply(reply.text, self.profile.reply_limit)
            report = reply.call if self.policy.plays else None
        except ENDS_THE_RUN:
            raise
        except Exception as error:
            cause = error
            if isinstance(error, TimeoutError) and wall_clock is not None and wall_clock.expired():
                cause = PolicyError(f"the episode took longer than {self.policy.episode_seconds:g} s (step {t})")
            raise _PolicyFailedError(cause) from error
        finally:
            sent = turn.sent
            if report is None and sent.tries:
                report = {"attempts": sent.tries, "answered": False, "broken_off": sent.broken_off}
            if report is not None:
                call = Call(request_id(name, t, "student"), name, t, "student", latency=perf_counter() - started)
                calls.append(call.reported(report))
        return replace(reply, text=text)

    def collected(self) -> TaskRollouts:
        """Return the record of the task; its order does not depend on the order in which episodes ran."""
        samples = sorted(self._episodes)
        episodes = [self._episodes[sample] for sample in samples]
        for episode in episodes:
            if self._solver is None or self.exact or not episode.steps:
                continue
            observations, infos = (
                [each.observation_text for each in episode.steps],
                [each.info for each in episode.steps],
            )
            case = Case(self.task.initial_state, episode.actions, episode.horizon, infos, observations)
            # Read from the log by a solver that is not exact; the needs include that of the last state.
            for step, need in zip(episode.steps, self._solver.needs(case) or (), strict=False):
                step.need = None if need is None else round(need)
        steps = [step for episode in episodes for step in episode.steps]
        hashes = dict.fromkeys(step.prompt_hash for step in steps if step.prompt_hash)
        prompts = {key: self.prompts[key] for key in hashes}
        frame_ids = dict.fromkeys(key for step in steps for key in step.shown_frames)
        frame_ids |= dict.fromkeys(key for prompt in prompts.values() for key in frames_in(prompt.messages))
        return TaskRollouts(
            task=self.task,
            episodes=episodes,
            frames={key: self.frames[key] for key in frame_ids},
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
        self._observation = self._frame_id = self._state = ""
        self._need: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether the episode ended."""
        return self.episode.stop_reason is not None

    def start(self) -> None:
        """Reset the environment to the level."""
        task = self._run.task
        self._see(*self._env.reset(options={"state": task.initial_state, "instruction": task.instruction}))

    def _see(self, frame: Frame, info: Mapping[str, Any]) -> None:
        """Keep the picture, the text and the state that the environment shows now."""
        run, env = self._run, self._env
        self._frame_id = run.keep_frame(env, frame, env.frame_key())
        self._state = env.state_text() if run.exact else env.changing_state()
        self._need = run.need_at(self._state) if run.exact else None
        self._observation = str(info.get("observation_text", ""))

    @property
    def prompt(self) -> PromptMessages:
        """Prompt of the next turn; :attr:`pictures` has its pictures."""
        return self._run.prompt_at(self.episode.num_steps, self._frame_id, self._history, self._observation)

    @property
    def pictures(self) -> Mapping[str, EncodedFrame]:
        """All pictures of the task that were shown, by frame id."""
        return self._run.frames

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
        t, observation, frame_id = episode.num_steps, self._observation, self._frame_id
        state, need, prompt = self._state, self._need, self.prompt if self._run.policy.plays else reply.prompt
        if not self._run.policy.plays and prompt is not None:
            self._run.prompts.setdefault(prompt.prompt_hash, prompt)
            self._run.frames.update(reply.pictures)
        frame, reward, terminated, truncated, info = env.step(env.encode_action(name, payload))
        inside = tuple(self._run.keep_frame(env, each) for each in env.frames_inside()) or None
        self._see(frame, info)
        judged_info = judged(info, parsed.action_valid)
        stored: dict[str, Any] = {}
        for key in (key for key in stored_keys(profile) if key in judged_info):
            value = judged_info[key].item() if isinstance(judged_info[key], np.generic) else judged_info[key]
            # A number that is not finite was not measured.
            stored[key] = None if isinstance(value, float) and not math.isfinite(value) else value
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
            state=state,
            need=need,
        )
        episode.steps.append(step)
        episode.num_steps += 1
        episode.actions.append(name)
        episode.rewards.append(step.reward)
        episode.episode_return += step.reward  # summed in order
        if not self._run.frame_only:
            self._history.append(HistoryEntry(t + 1, name, frame_id))
        if terminated or truncated:
            succeeded = episode.episode_return >= env.success_return
            success = bool(info["success"]) if profile.has_success_bit else succeeded
            episode.stop_reason = StopReason.LOST if terminated else StopReason.HORIZON
            if success:
                episode.stop_reason = StopReason.SUCCESS
            episode.success, episode.failed = success, not success
        elif episode.num_steps == episode.horizon:
            raise RuntimeError(
                f"the environment neither terminated nor truncated within its horizon of {episode.horizon} turns"
            )
        return step


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


def open_batch(batch: Batch, policy: Policy) -> tuple[list[TaskRun], list[tuple[TaskRun, int]]]:
    """Return the tasks of a batch, and its episodes: each a task and the index of its sample."""
    prompt = batch.prompt or plugins.load("prompts", batch.env_type.profile.name)
    ids = [batch.run_id] * len(batch.tasks) if isinstance(batch.run_id, str) else batch.run_id
    tasks = zip(batch.tasks, ids, strict=True)
    runs = [TaskRun(batch.env_type, batch.config, task, policy, prompt, run_id) for task, run_id in tasks]
    samples = range(batch.rollouts) if batch.samples is None else batch.samples
    pairs = [(run, sample) for run in runs for sample in samples]
    return runs, [(run, each) for run, each in pairs if batch.only is None or run.id_of(each) in batch.only]


def new_env(env_type: type[PivotEnv], config: EnvConfig) -> PivotEnv:
    """Return a new environment that draws only the frames that nobody has yet."""
    env = env_type(config)
    env.draw_frames = False
    return env


def close_env(env: PivotEnv) -> None:
    """Close an environment; the records are complete, so an error is only logged."""
    try:
        env.close()
    except Exception as error:  # noqa: BLE001 - an environment may fail while it closes
        _log.warning("%s: closing an environment failed: %s", env.profile.name, error)
