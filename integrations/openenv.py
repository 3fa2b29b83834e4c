"""A server of OpenEnv (openenv-core 0.3) whose step rewards are the credit of the turn.

Read in openenv-core 0.3.0: ``openenv/core/env_server/http_server.py`` (a WebSocket has one environment for its whole
life; every HTTP request has a new one) and ``types.py`` (actions, observations and states are pydantic models).
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server.http_server import create_app  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State  # pyright: ignore[reportMissingImports]
from pydantic import Field

from ..environments.base import Task
from ..errors import ConfigError
from ..solvers.credit import Rule
from .play import DEFAULT_RULE, Game, Play


class PivotAction(Action):
    """One turn."""

    reply: str = Field(description="The model's whole reply: thoughts and action in the form that the prompt asks for.")


class PivotObservation(Observation):
    """The next user message, and the result of the last turn. Its ``reward`` is the credit of the turn."""

    content: list[dict[str, Any]] = Field(description="Parts of the next user message; pictures are data URLs.")
    env_reward: float | None = Field(None, description="Reward of the environment for the last turn.")
    episode_return: float = Field(0.0, description="Sum of the rewards of the environment.")
    action: str | None = Field(None, description="Action that the last reply was read as.")
    action_valid: bool | None = Field(None, description="Whether the last reply kept the format.")
    success: bool | None = Field(None, description="Whether the episode succeeded; null until it ends.")
    turns_left: int = Field(description="Turns that are left.")


class PivotState(State):
    """The level and the log of an episode."""

    env: str
    task_id: str | None = None
    initial_state: str | None = None
    horizon: int
    actions: list[str] = Field(default_factory=list)
    rewards: list[float] = Field(default_factory=list)
    turn_rewards: list[float] | None = None


class PivotSession(Environment[PivotAction, PivotObservation, PivotState]):
    """The environment of one connection."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, game: Game, next_task: Callable[[], Task], tasks: list[Task]) -> None:
        """Wait for ``reset``."""
        super().__init__()
        self._game, self._next_task, self._tasks = game, next_task, tasks
        self._play: Play | None = None
        self._episode_id: str | None = None

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: int | None = None, **kwargs: Any
    ) -> PivotObservation:
        """Begin an episode.

        Args:
            seed: seed of a new level.
            episode_id: name of the episode in the state; by default PIVOT's id.
            task: index of one of the server's levels. Without ``seed`` and ``task``, the next of them.
            kwargs: other fields of the request, which are not used.

        Raises:
            ConfigError: no such level, or both ``seed`` and ``task``.
            GenerationError: the seed gives no level.
        """
        if seed is not None and task is not None:
            raise ConfigError(f"reset: found seed {seed} and task {task}, expected only one of them")
        if task is not None and not 0 <= task < len(self._tasks):
            raise ConfigError(f"reset: found task {task}, expected an index from 0 to {len(self._tasks) - 1}")
        if seed is not None:
            level = self._game.kind.make_task(self._game.config, seed)
        else:
            level = self._next_task() if task is None else self._tasks[task]
        self.close()
        self._play = self._game.play(level)
        self._episode_id = episode_id or self._play.episode.episode_id
        return self._observation(self._play)

    def step(self, action: PivotAction, timeout_s: float | None = None, **kwargs: Any) -> PivotObservation:
        """Take a turn.

        Raises:
            ConfigError: no episode has begun, or it is over.
        """
        if self._play is None:
            raise ConfigError("step: found no episode, expected a reset before it on the same WebSocket connection")
        self._play.take(action.reply)
        return self._observation(self._play)

    @property
    def state(self) -> PivotState:
        """Level and log of the episode."""
        if self._play is None:
            return PivotState(env=self._game.env, horizon=self._game.horizon)
        episode = self._play.episode
        return PivotState(
            episode_id=self._episode_id,
            step_count=episode.num_steps,
            env=self._game.env,
            task_id=episode.task_id,
            initial_state=episode.initial_state,
            horizon=episode.horizon,
            actions=episode.actions,
            rewards=episode.rewards,
            turn_rewards=self._play.turn_rewards if episode.steps else None,
        )

    def get_metadata(self) -> EnvironmentMetadata:
        """Return name and description of the environment."""
        profile = self._game.kind.profile
        return EnvironmentMetadata(name=f"pivot-{profile.name}", description=profile.task_description, version="1")

    def close(self) -> None:
        """Close the environment of the episode."""
        if self._play is not None:
            self._play.close()
        self._play = None

    def _observation(self, play: Play) -> PivotObservation:
        episode = play.episode
        last = episode.steps[-1] if episode.steps else None
        reward = None
        if last is not None:
            turns = play.turn_rewards
            reward = last.reward if self._game.rule is None else None if turns is None else turns[-1]
        return PivotObservation(
            done=play.is_over,
            reward=reward,
            content=play.observe_urls(),
            env_reward=None if last is None else last.reward,
            episode_return=episode.episode_return,
            action=None if last is None else last.action,
            action_valid=None if last is None else last.action_valid,
            success=episode.success,
            turns_left=episode.horizon - episode.num_steps,
        )


def make_app(
    env: str,
    *,
    settings: Mapping[str, Any] | None = None,
    tasks: int = 100,
    seed: int = 0,
    rule: str | Rule | None = DEFAULT_RULE,
    sessions: int = 64,
) -> FastAPI:
    """Return the application of a server.

    Args:
        env: name of the environment.
        settings: settings of the environment, such as ``{"boxes": 2}``.
        tasks: number of levels that resets without a seed go through.
        seed: seed of these levels.
        rule: rule of the rewards (:func:`pivot.credit`); None for the rewards of the environment.
        sessions: most simultaneous episodes.

    Raises:
        ConfigError, PluginError, GenerationError: the environment, a setting or the rule cannot be used.
    """
    game = Game(env, "openenv", settings, rule)
    levels = game.tasks(tasks, seed)
    order = itertools.cycle(levels)

    def environment() -> PivotSession:
        return PivotSession(game, lambda: next(order), levels)

    return create_app(environment, PivotAction, PivotObservation, f"pivot-{env}", sessions)
