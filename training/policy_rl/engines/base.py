"""The contract of generation engines (group ``pivot.generators``): one file per engine, chosen by name in the config.

An engine answers the requests of the policy and of the Analyzer with the weights of the last update. Its module is
imported without PyTorch, so that ``pivot doctor`` lists it on every machine.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from ....core import plugins
from ....core.contracts import Answer, Contract, Fits, Terms
from ....core.errors import PolicyError
from ....environments.turns import Turn
from ....models.base import Backend, ChatAnswer, ChatModel, ChatRequest, ModelOptions
from ....models.transformers.model import Engine
from ..config import RlConfig

if TYPE_CHECKING:
    from ...ranks import Ranks
    from ..scoring import Scorer

Save = Callable[[str], None]
"""Saves the trained model, or its adapters, to a folder as ``save_pretrained`` does, with its processor."""


class GenerationOptions(ModelOptions):
    """Options that decide the replies: the run, and the number of updates of its weights."""

    run: str = ""
    """Digest of the run's settings."""
    update: int = Field(default=0, ge=0)
    """Number of updates of the weights; part of every episode id, so that updates do not sample the same noise."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The model that a run trains, with what an engine needs to generate with it."""

    config: RlConfig
    model: Any
    """The module, whose weights the run changes in place."""
    engine: Engine
    """Generation with the module itself."""
    scorer: "Scorer"
    """Log-probabilities of replies as the trainer computes them, and the encoder of prompts."""
    first_turns: Callable[[int], Sequence[Turn]]
    """Returns the first turns of so many levels."""
    folder: Path
    """Folder of the run."""
    ranks: "Ranks"
    """The processes that train together; each has an engine, and the main process starts servers."""


class Generator(Contract, ABC):
    """Generates replies with the weights of the trained model; made once per process of a run."""

    terms: ClassVar[Terms] = Terms(
        arguments=1,
        attributes={"packages": tuple[str, ...], "extra": str, "copies_weights": bool},
        answers={
            "backend": Answer(Backend),
            "sync": Answer(
                Annotated[float | None, Fits(lambda nats: nats is None or nats >= 0, "nats, 0 or more, or None")]
            ),
            "close": Answer(None),
        },
    )
    packages: ClassVar[tuple[str, ...]] = ()
    """Modules that must be installed."""
    extra: ClassVar[str] = ""
    """Extra of PIVOT that installs them."""
    copies_weights: ClassVar[bool] = True
    """Whether replies come from a copy of the weights, which :meth:`sync` renews."""

    def __init__(self, trained: Trained) -> None:
        """Prepare generation; servers start at the first :meth:`sync`.

        Raises:
            TrainingError: a setting does not fit the engine.
        """
        self.trained = trained

    @abstractmethod
    def backend(self, options: GenerationOptions) -> Backend:
        """Return the current weights as a model for the policy or the Analyzer."""
        ...

    def sync(self, save: Save) -> float | None:
        """Renew the copy of the weights. All processes call it after an update; ``save`` is for the main process.

        Returns:
            Mean difference between log-probabilities of the copy and of the trainer, in nats; None if not measured.

        Raises:
            ServerGoneError: a server does not start.
            TrainingError: the copy does not answer like the trainer.
        """
        return None

    def close(self) -> None:
        """Stop the servers and processes that the engine started."""
        return


def generator_type(name: str) -> type[Generator]:
    """Return the engine with this name; a hyphen in it is an underscore in the entry point.

    Raises:
        PluginError: the engine is not registered, or violates its contract.
    """
    return plugins.load("generators", name.replace("-", "_"))


def answer_all(model: ChatModel, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
    """Send requests to a model at the same time and close it; return answers, or the errors of failed requests.

    Raises:
        ServerGoneError, ConfigError: no request can be answered.
    """

    async def gathered() -> list[Any]:
        try:
            return await asyncio.gather(*map(model.answer, requests), return_exceptions=True)
        finally:
            await model.aclose()

    answers: list[ChatAnswer | Exception] = asyncio.run(gathered())
    for answer in answers:
        if isinstance(answer, Exception) and not isinstance(answer, PolicyError):
            raise answer
    return answers
