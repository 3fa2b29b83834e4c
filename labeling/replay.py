"""Re-execute a logged episode from its initial state and report where the log differs from what happens.

Only the stored row counts: the environment is built from its stored settings, started from the stored level text and
given the logged actions. One environment serves all episodes of one configuration in one call of the labeller, which
owns it (:class:`Replays`), and a frame is drawn and hashed once per distinct picture of a level, since pixels cost far
more than stepping. An environment that fails on an episode is a finding about that episode, and a new one
plays the next.
"""

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

from gymnasium.error import ResetNeeded

from ..core import plugins
from ..core.errors import ConfigError, NotAllowedError, PivotError, PluginError, SimulatorError
from ..core.identity import canonical_json
from ..core.images import frame_id
from ..core.messages import EncodedFrame
from ..environments.base import Frame, ParsedAction, PivotEnv
from ..rollouts.base import judged, stored_keys
from .episode import FailedEpisode

MAX_LEVELS = 256
"""Levels whose frame ids are remembered; episodes arrive task by task, so a few would do. A level has about 100 ids."""


class DisagreementError(Exception):
    """The log differs from its re-execution."""

    def __init__(self, kind: str, detail: str) -> None:
        """Keep the kind of difference, a word that can be counted, and its description."""
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class Replayer:
    """Re-executes the episodes of one environment under one configuration."""

    def __init__(self, env: PivotEnv) -> None:
        """Use ``env`` from now on; no other code may step it."""
        self._env = env
        self._env.draw_frames = False
        self._frame_ids: OrderedDict[str, dict[Hashable, str]] = OrderedDict()
        self._encoded: dict[str, Any] = {}

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Replace an environment that fails, and raise a disagreement then."""
        try:
            yield
        except (DisagreementError, ConfigError, NotAllowedError, PluginError):
            raise
        except Exception as error:
            self.renew()
            raise DisagreementError("broken", f"the environment raised {type(error).__name__}: {error}") from error

    def check(self, episode: FailedEpisode) -> None:
        """Re-execute the whole episode and compare rewards, ``info``, frames, the end and the budget.

        Raises:
            DisagreementError: at the first difference, or when the environment breaks.
            ConfigError, PluginError: the environment cannot work with these settings at all.
        """
        with self._guarded():
            env, rewards, infos, frame_ids = self._env, episode.rewards, episode.infos, episode.frame_ids
            if episode.horizon != env.config.horizon:
                raise DisagreementError(
                    "horizon", f"the row says {episode.horizon}, its env_config {env.config.horizon}"
                )
            ids, keys = self._frame_ids.setdefault(episode.initial_state, {}), set(stored_keys(env.profile))
            self._frame_ids.move_to_end(episode.initial_state)
            if len(self._frame_ids) > MAX_LEVELS:
                self._frame_ids.popitem(last=False)
            exact, tolerance = env.config.repeats_exactly, env.config.tolerance
            frame, _ = self._reset(episode.initial_state)
            if exact and self._id(ids, frame) != frame_ids[0]:
                raise DisagreementError("frame", "the first frame is another one")
            info: Mapping[str, Any] = {}
            plays = zip(episode.actions, episode.payloads, episode.action_valid, strict=True)
            for t, (frame, reward, info) in enumerate(self._played(plays)):
                if reward != rewards[t] and not math.isclose(reward, rewards[t], rel_tol=0, abs_tol=tolerance):
                    raise DisagreementError("reward", f"step {t} gives {reward}, the log says {rewards[t]}")
                logged = infos[t]
                actual = _settled(info, logged, tolerance) if tolerance else info
                if logged != actual and not (
                    logged.items() <= actual.items() and logged.keys() >= actual.keys() & keys
                ):
                    raise DisagreementError("info", f"step {t} {_first_difference(actual, logged, keys)}")
                if exact and self._id(ids, frame) != frame_ids[t + 1]:
                    raise DisagreementError("frame", f"the one after step {t} is another one")
                if exact and episode.inside and tuple(map(frame_id, env.frames_inside())) != tuple(episode.inside[t]):
                    raise DisagreementError("frame", f"those inside of step {t} are other ones")
            if self._is_success(info, rewards):
                raise DisagreementError("end", "the episode ends in success, the row calls it failed")

    def play(
        self, state: str, instruction: str, plays: Iterable[tuple[str, str | None, bool]]
    ) -> tuple[list[float], bool]:
        """Execute the steps of an episode, up to its end; return their rewards and whether it reached the goal.

        Args:
            state: the level.
            instruction: that the agent was given.
            plays: action, payload and whether the reply kept the format, of every step.

        Raises:
            DisagreementError: the steps do not fit, end too early or too late, or the environment breaks.
            ConfigError, PluginError: the environment cannot work with these settings at all.
        """
        with self._guarded():
            self._reset(state, instruction)
            steps = list(self._played(plays))
            rewards = [float(reward) for _, reward, _ in steps]
            return rewards, self._is_success(steps[-1][2], rewards)

    def state_after(self, episode: FailedEpisode, steps: int) -> str:
        """Return the state text after the first ``steps`` actions.

        Raises:
            DisagreementError: the episode cannot be re-executed that far.
            ConfigError, PluginError: the environment cannot work with these settings at all.
        """
        return self.states(episode, steps)[-1]

    @property
    def draws_here(self) -> bool:
        """Whether pictures are drawn in this process, each time the same."""
        return not self._env.blocks and self._env.config.repeats_exactly

    def states(self, episode: FailedEpisode, steps: int | None = None) -> list[str]:
        """Return the state texts ``s_0 .. s_T``, or those up to a step; the errors are those of :meth:`state_after`."""
        with self._guarded():
            self._reset(episode.initial_state)
            texts = [self._env.state_text()]
            for t, action in enumerate(episode.actions[:steps]):
                self._step(t, action, episode.payloads[t])
                texts.append(self._env.state_text())
            return texts

    def pictures_of_plan(self, episode: FailedEpisode, steps: int, plan: Sequence[str]) -> list[EncodedFrame]:
        """Return the pictures after the first ``steps`` actions, and after each action of a plan from there.

        The errors are those of :meth:`state_after`.
        """
        with self._guarded():
            self.state_after(episode, steps)
            pictures = [self._picture()]
            for t, action in enumerate(plan, steps):
                self._step(t, action, None)
                pictures.append(self._picture())
            return pictures

    def turns_of_plan(
        self, episode: FailedEpisode, steps: int, plan: Sequence[str]
    ) -> list[tuple[EncodedFrame, str, str]]:
        """Return picture, text observation and state text before each action of a plan from the state after ``steps``.

        The errors are those of :meth:`state_after`; also if the plan does not reach the goal with its last action.
        """
        with self._guarded():
            info: Mapping[str, Any] = self._reset(episode.initial_state, episode.instruction)[1]
            for t in range(steps):
                info = self._step(t, episode.actions[t], episode.payloads[t])[4]
            turns: list[tuple[EncodedFrame, str, str]] = []
            for t, action in enumerate(plan, steps):
                turns.append((self._picture(), str(info.get("observation_text", "")), self._env.state_text()))
                info = self._step(t, action, None)[4]
            if self._env.profile.has_success_bit and not info.get("success"):
                raise DisagreementError("plan", f"the plan from step {steps} does not reach the goal")
            return turns

    @property
    def actions(self) -> Sequence[str]:
        """Actions of the environment by name; empty where they are no list."""
        return self._env.actions

    def parse_action(self, answer: str) -> ParsedAction | None:
        """Return the action of a text inside the answer tag, by the grammar of the environment's settings."""
        return self._env.parse_action(answer)

    def close(self) -> None:
        """Close the environment."""
        with suppress(Exception):  # its results are complete; an error at the end changes none
            self._env.close()

    def renew(self) -> None:
        """Replace the environment by a new one."""
        self.close()
        self._env = type(self._env)(self._env.config)
        self._env.draw_frames = False

    def _played(self, plays: Iterable[tuple[str, str | None, bool]]) -> Iterator[tuple[Frame, Any, Mapping[str, Any]]]:
        """Yield frame, reward and the judged ``info`` of every step; the last one has to be the end."""
        ended, t = False, -1
        for t, (action, payload, valid) in enumerate(plays):
            if ended:
                raise DisagreementError("end", f"the episode is over after step {t - 1}, the log goes on")
            frame, reward, terminated, truncated, info = self._step(t, action, payload)
            ended = terminated or truncated
            yield frame, reward, judged(info, valid)
        if not ended:
            raise DisagreementError("end", f"the episode is not over after step {t}, the log stops there")

    def _is_success(self, info: Mapping[str, Any], rewards: Sequence[float]) -> bool:
        """Whether an episode that is over reached the goal, by its last ``info`` or its return."""
        if self._env.profile.has_success_bit:
            return bool(info.get("success"))
        return sum(rewards, 0.0) >= self._env.success_return

    def _picture(self) -> EncodedFrame:
        frame = cast(Frame, self._env.render())
        height, width = frame.shape[:2]
        return EncodedFrame(frame_id(frame), width, height, *self._env.encode_frame(frame))

    def _reset(self, state: str, instruction: str | None = None) -> tuple[Frame, dict[str, Any]]:
        try:
            more = {} if instruction is None else {"instruction": instruction}
            return self._env.reset(options={"state": state} | more)
        except (ConfigError, NotAllowedError, PluginError, SimulatorError):
            raise
        except (PivotError, ValueError) as error:
            raise DisagreementError("state", f"{error}") from error

    def _step(self, t: int, action: str, payload: str | None) -> tuple[Frame, Any, bool, bool, dict[str, Any]]:
        encoded = self._encoded.get(action) if payload is None else None
        if encoded is None:
            try:
                encoded = self._env.encode_action(action, payload)
            except ValueError as error:
                raise DisagreementError("action", f"step {t}: {error}") from error
            if payload is None:
                self._encoded[action] = encoded
        try:
            return self._env.step(encoded)
        except ResetNeeded as error:
            raise DisagreementError("end", f"the episode is over before step {t}, the log goes on") from error

    def _id(self, ids: dict[Hashable, str], frame: Frame) -> str:
        key = self._env.frame_key()
        name = None if key is None else ids.get(key)
        if name is None:
            name = frame_id(frame if frame.size else cast(Frame, self._env.render()))
            if key is not None:
                ids[key] = name
        return name


def _settled(info: Mapping[str, Any], logged: Mapping[str, Any], tolerance: float) -> dict[str, Any]:
    """Return an ``info`` with every measurement that is near enough to the logged one replaced by it."""
    return {
        key: logged[key]
        if isinstance(value, float)
        and isinstance(logged.get(key), float)
        and math.isclose(value, logged[key], rel_tol=0, abs_tol=tolerance)
        else value
        for key, value in info.items()
    }


def _first_difference(info: Mapping[str, Any], logged: Mapping[str, Any], keys: set[str]) -> str:
    for key in sorted(logged.keys() | info.keys() & keys):
        if key not in logged:
            return f"gives {key}={info[key]}, the log has no {key}"
        if key not in info:
            return f"gives no {key}, the log says {logged[key]}"
        if info[key] != logged[key]:
            return f"gives {key}={info[key]}, the log says {logged[key]}"
    raise AssertionError("called for equal infos")


MOST_REPLAYERS = 8
"""Environments that are kept at a time; the rows of a shard have one configuration, those of an import perhaps more."""


@dataclass(eq=False)
class Replays(AbstractContextManager["Replays"]):
    """The replayers of one call of the labeller. The maker owns their environments; no two threads share one."""

    _replayers: OrderedDict[tuple[str, str], Replayer] = field(
        default_factory=OrderedDict[tuple[str, str], Replayer], init=False
    )
    _settings: tuple[object, str] = field(default=(None, ""), init=False)

    def of(self, episode: FailedEpisode) -> Replayer:
        """Return the replayer of the episode's environment and stored settings.

        Raises:
            DisagreementError: the settings are not those of such an environment.
            PluginError: the environment is not installed.
        """
        if self._settings[0] is not episode.env_config:  # the rows of a shard share one
            self._settings = episode.env_config, canonical_json(episode.env_config)
        key = episode.env, self._settings[1]
        if key not in self._replayers:
            env_type = plugins.load("environments", episode.env)
            if named := sorted(env_type.config_type.locations & episode.env_config.keys()):
                raise DisagreementError("settings", f"{named[0]} names a place, which no row does")
            try:
                self._replayers[key] = Replayer(env_type.from_settings(dict(episode.env_config)))
            except ValueError as error:  # includes pydantic's ValidationError
                raise DisagreementError("settings", f"{error}") from error
            if len(self._replayers) > MOST_REPLAYERS:
                self._replayers.popitem(last=False)[1].close()
        self._replayers.move_to_end(key)
        return self._replayers[key]

    def __exit__(self, *_: object) -> None:
        """Close all environments."""
        while self._replayers:
            self._replayers.popitem()[1].close()
