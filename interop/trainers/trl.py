"""Environments for the ``environment_factory`` of TRL's GRPOTrainer.

Read in TRL 1.16, ``trl/trainer/grpo_trainer.py``: the trainer makes one instance per rollout and resets it with a row
of the dataset; ``reset`` returns content that ends the last user message. Public methods are tools, and a tool that
returns a list of content parts adds their pictures to the model's input. ``get_reward`` is called once per rollout.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from datasets import Dataset

from ...core.images import decode
from ...rollouts.base import Episode
from ...solvers.credit import Rule
from .play import DEFAULT_RULE, Game, Parts, Play

ASK = "Give your whole reply to the tool act. It takes the turn and returns the next picture."


class PivotEnvironment:
    """One rollout of GRPOTrainer: the model takes its turns with the tool ``act``."""

    def __init__(self, environments: "Environments") -> None:
        """Wait for ``reset``."""
        self._environments = environments
        self._play: Play | None = None
        self._samples = 0

    def reset(self, task: int = 0, **row: Any) -> Parts:
        """Begin an episode and return the content of its first prompt.

        Args:
            task: index of the level; the column ``task`` of :meth:`Environments.dataset`.
            row: the other columns, which are not used.
        """
        self._close()
        self._play = self._environments._begin(task)
        return [*self._content(), {"type": "text", "text": ASK}]

    def act(self, reply: str) -> list[dict[str, Any]]:
        """Take one turn and see what it did.

        Args:
            reply: Your thoughts and your action, in exactly the form that the task asks for.
        """
        assert self._play is not None
        self._play.take(reply)
        return self._content()

    def get_reward(self) -> float:
        """Return the undiscounted sum of rewards; every turn that the model did not take has an empty reply."""
        return self.episode.episode_return

    @property
    def episode(self) -> Episode:
        """The whole record of the rollout."""
        assert self._play is not None
        return self._play.finish()

    @property
    def turn_rewards(self) -> list[float] | None:
        """Credit of every turn by the rule; None without a rule, or where the solver gave up."""
        assert self._play is not None
        self._play.finish()
        return self._play.turn_rewards

    def _content(self) -> Parts:
        assert self._play is not None
        pictures = self._play.pictures
        return [
            {"type": "image", "image": Image.fromarray(decode(pictures[part["frame_id"]].image))}
            if part["type"] == "image"
            else part
            for part in self._play.observe()
        ]

    def _close(self) -> None:
        if self._play is not None:
            self._play.close()


class Environments:
    """Levels of one environment, and the factory that GRPOTrainer calls.

    Example::

    environments = Environments("sokoban", tasks=200)
    trainer = GRPOTrainer(
        model="Qwen/Qwen3-VL-2B-Instruct",
        environment_factory=environments,
        train_dataset=environments.dataset(),
        args=GRPOConfig(max_tool_calling_iterations=environments.horizon, max_completion_length=4096),
    )
    """

    def __init__(
        self,
        env: str,
        *,
        tasks: int = 100,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
        rule: str | Rule | None = DEFAULT_RULE,
    ) -> None:
        """Sample the levels.

        Args:
            env: name of the environment.
            tasks: number of levels.
            seed: seed of the levels.
            settings: settings of the environment, such as ``{"boxes": 2}``.
            rule: rule of the credit per turn (:func:`pivot.credit`); None for no credit.

        Raises:
            ConfigError, PluginError, GenerationError: the environment, a setting or the rule cannot be used.
        """
        self._game = Game(env, "trl", settings, rule)
        self._tasks = self._game.tasks(tasks, seed)
        self._begun = [0] * tasks

    @property
    def horizon(self) -> int:
        """Turn budget of an episode: the most calls of a tool that a rollout needs."""
        return self._game.horizon

    def __call__(self) -> PivotEnvironment:
        """Return an environment for one rollout at a time."""
        return PivotEnvironment(self)

    def dataset(self) -> Dataset:
        """Return one row per level: an empty prompt, which ``reset`` fills, and the index of the level."""
        empty = [{"role": "user", "content": ""}]
        return Dataset.from_dict({"prompt": [empty] * len(self._tasks), "task": list(range(len(self._tasks)))})

    def _begin(self, index: int) -> Play:
        """Return a new episode of a level."""
        sample, self._begun[index] = self._begun[index], self._begun[index] + 1
        return self._game.play(self._tasks[index], sample)


def credit_reward(environments: Sequence[PivotEnvironment], **_: Any) -> list[float | None]:
    """Return the sum of the credit of each rollout: a function for ``reward_funcs`` that shapes the reward."""
    return [None if each.turn_rewards is None else sum(each.turn_rewards) for each in environments]
