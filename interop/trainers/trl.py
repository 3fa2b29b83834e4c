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
from ...models.extras import need
from ...rollouts.base import Episode
from ...solvers.credit import Rule
from .play import DEFAULT_RULE, Game, Parts, Play, standardized

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


class TurnAdvantages:
    """GRPOTrainer with an advantage per turn, ``A + credit_weight * (c - mean) / std``.

    Put it before the trainer: ``class Trainer(TurnAdvantages, GRPOTrainer)``. ``A`` is the advantage of the rollout,
    ``c`` the credit of a generation: the sum over the turns that it took. Mean and population deviation are those over
    all generations of the group. The turns that a model left out belong to its last generation.
    """

    credit_weight = 1.0
    """Weight of the credit."""

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Keep the credit of each generation of each rollout; see the trainer."""
        environments: Sequence[PivotEnvironment] = self.environments  # pyright: ignore[reportAttributeAccessIssue]
        self._credit = [
            credit_by_generation(messages, environment.turn_rewards)
            for messages, environment in zip(completions, environments, strict=True)
        ]
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)  # pyright: ignore[reportAttributeAccessIssue]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Return the batch with advantages of shape (rollouts, tokens); see the trainer."""
        trainer: Any = self
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)  # pyright: ignore[reportAttributeAccessIssue]
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        everywhere: list[list[float]] = need("accelerate.utils", "train").gather_object(self._credit)
        groups = [everywhere[start : start + size] for start in range(0, len(everywhere), size)]
        first = trainer.accelerator.process_index * len(inputs)
        scaled = [each for group in groups for each in standardized(group)][first : first + len(inputs)]
        said = (batch["completion_mask"] * batch["tool_mask"]).bool()
        before = said.roll(1, 1)
        before[:, 0] = False
        number = (said & ~before).cumsum(1)  # from 1 on
        parts = said.new_zeros(said.shape, dtype=batch["advantages"].dtype)
        for row, own in enumerate(scaled):
            for generation, value in enumerate(own, 1):
                parts[row, said[row] & (number[row] == generation)] = value
        batch["advantages"] = batch["advantages"][:, None] + self.credit_weight * parts
        return batch


def credit_by_generation(messages: Sequence[Mapping[str, Any]], turns: Sequence[float] | None) -> list[float]:
    """Return the credit of each generation of a rollout; empty without credit.

    Args:
        messages: the completion; each message of the assistant is a generation. A tool message with a list of parts is
            that of a turn; a failed call, whose message is a text, takes none.
        turns: credit of every turn.
    """
    ends = list[int]()
    for each in messages:
        if each["role"] == "assistant":
            ends.append(ends[-1] if ends else 0)
        elif isinstance(each["content"], list):
            ends[-1] += 1
    if turns is None or not ends:
        return []
    ends[-1] = len(turns)
    return [float(sum(turns[start:end])) for start, end in zip([0, *ends], ends, strict=False)]
