"""Estimators of advantages (group ``pivot.advantages``): the contract, and GRPO's."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ....core import plugins
from ....core.contracts import Answer, Misfit, Terms
from ....core.plugins import Plugin, Settings
from ....rollouts.base import Episode, Status, TaskRollouts
from ...config import checked
from ..config import RlConfig

Estimates = Mapping[str, Sequence[float]]
"""Advantages of the turns of each episode, by episode id."""


def complete_episodes(rollouts: Sequence[TaskRollouts]) -> list[Episode]:
    """Return the episodes that ended without an error, level by level."""
    return [each for task in rollouts for each in task.episodes if each.status is Status.COMPLETE]


def _misfits(_: object, estimates: Estimates, *arguments: Any) -> Iterable[Misfit]:
    for episode in complete_episodes(arguments[0]):
        values, count = estimates.get(episode.episode_id), len(episode.steps)
        if values is None or len(values) != count:
            yield Misfit(f"[{episode.episode_id!r}]", values, f"one advantage for each of its {count} turns")


class AdvantageEstimator(Plugin, ABC):
    """Estimates the advantage of every turn; made once per process of a run, with the settings of ``--advantages-set``.

    All processes get the rollouts of all of them and must return the same numbers.
    """

    terms: ClassVar[Terms] = Terms(
        arguments=1, answers={"advantages": Answer(Mapping[str, Sequence[float]], also=_misfits)}
    )
    config_type: ClassVar[type[Settings]] = Settings

    @abstractmethod
    def advantages(self, rollouts: Sequence[TaskRollouts], grpo: Mapping[str, float], config: RlConfig) -> Estimates:
        """Return an advantage for every turn of every complete episode.

        Args:
            rollouts: the rollouts of an update, level by level; ``complete_episodes`` lists the episodes that count.
            grpo: GRPO's advantage of each complete episode, by its id.
            config: settings of the run, such as ``config.gamma``.
        """
        ...


class Grpo(AdvantageEstimator):
    """GRPO: every turn of an episode has the advantage of the episode."""

    def advantages(self, rollouts: Sequence[TaskRollouts], grpo: Mapping[str, float], config: RlConfig) -> Estimates:
        return {each.episode_id: [grpo[each.episode_id]] * len(each.steps) for each in complete_episodes(rollouts)}


class Negated(Grpo):
    """GRPO's advantages with the other sign: a control under which success has to fall."""

    def advantages(self, rollouts: Sequence[TaskRollouts], grpo: Mapping[str, float], config: RlConfig) -> Estimates:
        return super().advantages(rollouts, {name: -value for name, value in grpo.items()}, config)


def estimator_of(config: RlConfig) -> AdvantageEstimator:
    """Return the estimator of a run.

    Raises:
        PluginError: the estimator is not registered, or violates its contract.
        TrainingError: one of its settings is invalid.
    """
    kind: type[AdvantageEstimator] = plugins.load("advantages", config.advantages)
    return kind(checked(kind.config_type, config.advantages_set))
