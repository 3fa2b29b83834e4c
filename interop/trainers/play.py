"""Episodes for other training loops: levels, prompts, replies and rewards equal those of PIVOT's own rollouts.

A trainer's loop shows :meth:`Play.observe` to a model and gives the text of each reply to :meth:`Play.take`. The
conversation grows: a later observation repeats no text that the model has read, but has every picture of its prompt.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core import admission, plugins
from ...core.errors import CertifyError, ConfigError, PolicyError
from ...core.messages import EncodedFrame, cut_reply
from ...datasets.store.config import env_config, environment
from ...environments.base import PivotEnv, Task
from ...environments.turns import Reply, StudentPrompt, Turn
from ...models.openai.wire import data_url
from ...rollouts.base import Episode, Policy, Step, StopReason
from ...rollouts.episode import LiveEpisode, TaskRun
from ...rollouts.plan import plan_tasks
from ...solvers.base import Unsolved
from ...solvers.credit import Rule, credit

Parts = list[dict[str, Any]]
"""Content of a message: text parts, and image parts with ``frame_id``."""

DEFAULT_RULE = "progress"
"""Rule of the credit per turn."""

EQUAL = 1e-8
"""Credits of a group that differ by less count as equal."""

ENDINGS = {
    StopReason.SUCCESS: "The task is solved.",
    StopReason.LOST: "The attempt is lost.",
    StopReason.HORIZON: "No turns are left.",
}
"""Text after the last turn, by the reason of the end."""


class OutsidePolicy(Policy):
    """The model of another trainer, named in the episodes; PIVOT never calls it."""

    config_type = plugins.Settings

    def __init__(self, name: str) -> None:
        """Name the trainer."""
        super().__init__(plugins.Settings())
        self.name = name

    @property
    def config(self) -> dict[str, Any]:
        """Return nothing: the trainer decides the replies."""
        return {}

    async def reply(self, turn: Turn) -> Reply:
        """Refuse: the trainer's loop has the replies.

        Raises:
            PolicyError: always.
        """
        raise PolicyError(f"the replies come from {self.name}, expected no request")


class Game:
    """One environment with its settings, prompt and credit rule."""

    def __init__(
        self, env: str, trainer: str, settings: Mapping[str, Any] | None = None, rule: str | Rule | None = DEFAULT_RULE
    ) -> None:
        """Check everything before the first episode.

        Args:
            env: name of the environment.
            trainer: name of the trainer, for the records of the episodes.
            settings: settings of the environment, such as ``{"boxes": 2}``.
            rule: rule of :func:`pivot.credit`; None for no credit.

        Raises:
            ConfigError, PluginError: the environment, a setting or the rule cannot be used.
        """
        self.env, self.rule = env, rule
        self.kind: type[PivotEnv] = environment(env)
        self.config = env_config(env, dict(settings or {}))
        admission.allow_code(*self.config.code)  # the caller names it
        self.kind.check_ready(self.config)
        self.prompt: StudentPrompt = plugins.load("prompts", env)
        self.policy = OutsidePolicy(trainer)
        if rule is not None:
            try:
                credit(env, [], rule=rule)
            except CertifyError as error:
                raise ConfigError(f"credit of {env}: {error}; rule None (--rule none) turns credit off") from error

    @property
    def horizon(self) -> int:
        """Turn budget of an episode."""
        return self.config.horizon

    def tasks(self, count: int, seed: int) -> list[Task]:
        """Return the first levels of a build with these settings and this seed.

        Raises:
            GenerationError: the settings allow fewer levels.
        """
        return plan_tasks(self.kind, self.config, seed, count)

    def play(self, task: Task, sample: int = 0) -> "Play":
        """Begin an episode of a level; ``sample`` is its index among the episodes of the level."""
        return Play(self, task, sample)

    def credit(self, episode: Episode) -> list[float] | None:
        """Return the credit of every turn so far by the rule; None without a rule, or if the solver gave up."""
        if self.rule is None:
            return None
        (turns,) = credit(self.env, [episode.log()], rule=self.rule)
        return None if isinstance(turns, Unsolved) else [turn.score for turn in turns]


class Play:
    """One episode under way."""

    def __init__(self, game: Game, task: Task, sample: int) -> None:
        """Reset a new environment to the level."""
        self._game = game
        self._env = game.kind(game.config)
        run = TaskRun(game.kind, game.config, task, game.policy, game.prompt)
        self._live: LiveEpisode = run.live(self._env, sample)
        self._live.start()
        self._read: set[str] = set()

    @property
    def episode(self) -> Episode:
        """The record so far."""
        return self._live.episode

    @property
    def is_over(self) -> bool:
        """Whether the episode ended."""
        return self._live.is_over

    @property
    def pictures(self) -> Mapping[str, EncodedFrame]:
        """Pictures by frame id."""
        return self._live.pictures

    @property
    def turn_rewards(self) -> list[float] | None:
        """Credit of every turn so far; see :meth:`Game.credit`."""
        return self._game.credit(self.episode)

    def observe(self) -> Parts:
        """Return the content of the next user message; after the end, a text that says why.

        All messages of a prompt become one, because the conversation has one system message at most.
        """
        if self.episode.stop_reason is not None:
            return [{"type": "text", "text": ENDINGS[self.episode.stop_reason]}]
        parts: Parts = []
        for message in self._live.prompt.messages:
            content = message["content"]
            parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
        fresh = [part for part in parts if part["type"] == "image" or part["text"] not in self._read]
        self._read |= {part["text"] for part in parts if part["type"] == "text"}
        return fresh

    def observe_urls(self) -> Parts:
        """Return the content of the next user message in the form of the chat interface: pictures are data URLs."""
        return [
            {"type": "image_url", "image_url": {"url": data_url(self.pictures[part["frame_id"]])}}
            if part["type"] == "image"
            else part
            for part in self.observe()
        ]

    def take(self, text: str) -> Step:
        """Execute the action of a reply and return its step.

        Raises:
            ConfigError: the episode is over.
        """
        if self.is_over:
            raise ConfigError("found a reply after the end of the episode, expected none; reset the environment")
        return self._live.take(Reply(cut_reply(text, self._game.kind.profile.reply_limit)))

    def finish(self) -> Episode:
        """Return the whole episode: every turn that the model did not take has an empty reply."""
        while not self.is_over:
            self.take("")
        return self.episode

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def standardized(group: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return ``(c - mean) / std`` of the credits of a group; 0 where all agree."""
    flat = np.array([each for own in group for each in own])
    if not flat.size or np.ptp(flat) < EQUAL:
        return [[0.0] * len(own) for own in group]
    return [[float((each - flat.mean()) / flat.std()) for each in own] for own in group]
