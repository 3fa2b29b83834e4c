"""Distillation losses of Stage II (group ``pivot.objectives``): the contract, and PIVOT's own.

A loss is a class with :meth:`Objective.loss`. If it needs more of the Teacher than the log-probability of the sampled
token, :meth:`Objective.measure` computes it, and ``tokens.quantities`` holds it in the loss. A new loss is therefore
one module, and one line that registers it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from ....core import plugins
from ....core.contracts import Terms
from ....core.plugins import Plugin, Settings
from ...config import checked
from ...tensors import Tensor, TokenValues
from ..config import RlConfig
from ..losses import TokenBatch, centred_opd, distribution_opd, gap_opd, printed_opd

CANDIDATES, TEACHER_CANDIDATES = "candidates", "teacher_candidates"
"""Quantities with a field of their own in :class:`.TokenBatch`; the Student's values of candidates are added to it."""


class Objective(Plugin, ABC):
    """A distillation loss; made once per process of a run, with the settings of ``--objective-set``."""

    terms: ClassVar[Terms] = Terms(arguments=1)
    config_type: ClassVar[type[Settings]] = Settings

    def measure(self, logprobs: Tensor, config: RlConfig) -> Mapping[str, Tensor]:
        """Return further quantities of the Teacher at some reply tokens, by name; by default none.

        Args:
            logprobs: the Teacher's log-probabilities of the whole vocabulary, shape (tokens, vocabulary), in float32,
                without a gradient; minus infinity for placeholders of pictures, which are never sampled.
            config: settings of the run.

        Returns:
            Tensors of shape (tokens, ...). With ``candidates``, token ids of shape (tokens, k), the loss gets the
            Student's log-probabilities of them in ``tokens.student_candidates``.
        """
        del logprobs, config
        return {}

    @abstractmethod
    def loss(self, logprobs: TokenValues, tokens: TokenBatch, config: RlConfig) -> TokenValues:
        """Return the loss per token, shape (tokens,), with its gradient; only active tokens count.

        Args:
            logprobs: the Student's log-probabilities of the sampled tokens, with their gradient, shape (tokens,).
            tokens: the data of the same tokens, without a gradient.
            config: settings of the run, such as ``config.beta``.
        """
        ...

    @classmethod
    def measures(cls) -> bool:
        """Whether the loss needs more of the Teacher than log-probabilities of sampled tokens."""
        return cls.measure is not Objective.measure


class Printed(Objective):
    """The paper's loss; see :func:`.printed_opd`."""

    def loss(self, logprobs: TokenValues, tokens: TokenBatch, config: RlConfig) -> TokenValues:
        return printed_opd(logprobs, tokens, config.beta)


class Centred(Objective):
    """An extension; see :func:`.centred_opd`."""

    def loss(self, logprobs: TokenValues, tokens: TokenBatch, config: RlConfig) -> TokenValues:
        return centred_opd(logprobs, tokens, config.beta)


class Gap(Objective):
    """An extension; see :func:`.gap_opd`."""

    def loss(self, logprobs: TokenValues, tokens: TokenBatch, config: RlConfig) -> TokenValues:
        return gap_opd(logprobs, tokens, config.beta)


class Distribution(Objective):
    """An extension; see :func:`.distribution_opd`."""

    def measure(self, logprobs: Tensor, config: RlConfig) -> Mapping[str, Tensor]:
        # The most likely tokens of a small vocabulary would include placeholders, which have no probability.
        count = min(config.opd_candidates, int(logprobs[0].isfinite().sum()))
        values, ids = logprobs.topk(count, dim=1)
        return {CANDIDATES: ids, TEACHER_CANDIDATES: values}

    def loss(self, logprobs: TokenValues, tokens: TokenBatch, config: RlConfig) -> TokenValues:
        return distribution_opd(logprobs, tokens, config.beta)


def objective_of(config: RlConfig) -> Objective:
    """Return the distillation loss of a run.

    Raises:
        PluginError: the objective is not registered, or violates its contract.
        TrainingError: one of its settings is invalid.
    """
    kind: type[Objective] = plugins.load("objectives", config.opd_objective)
    return kind(checked(kind.config_type, config.objective_set))
