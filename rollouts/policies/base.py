"""Any chat model as a policy: a turn becomes a request, the answer becomes a reply.

A subclass says how its model is made, from two kinds of settings. *Options* decide the replies (model, revision,
sampling) and are part of every episode id. *Service* settings say where the model is and how hard it may be driven
(address, limits, cache, prices); they may change between two runs of one store.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ...models.base import ChatModel, ChatRequest, Sampling
from ..base import Policy, Reply, Turn
from ..ids import request_id

ROLE = "student"


class ModelPolicy(Policy):
    """A policy on a chat model. Prompt and pictures are all that the model is shown of a turn."""

    served: ClassVar[bool] = True
    wants_logprobs: bool = True

    def __init__(self, sampling: Sampling | None = None) -> None:
        """Draw replies by ``sampling``; the model is made when the first turn comes."""
        self.sampling = sampling or Sampling()
        self._model: ChatModel | None = None

    @abstractmethod
    def make_model(self) -> ChatModel:
        """Connect to the model, or load it."""

    @property
    @abstractmethod
    def model_config(self) -> dict[str, Any]:
        """What ``config`` of the model will say, without making it."""

    @property
    def config(self) -> dict[str, Any]:
        """Model, revision and sampling: all that decides the replies."""
        return {**self.model_config, "sampling": self.sampling.row()}

    async def reply(self, turn: Turn) -> Reply:
        """Ask the model; see :meth:`ChatModel.answer` for the errors. A refusal is a reply like any other."""
        if self._model is None:
            self._model = self.make_model()
        answer = await self._model.answer(self.request(turn))
        text = answer.text if answer.refusal is None else answer.text or answer.refusal
        return Reply(text, answer.finish_reason, answer.token_ids, answer.logprobs, answer.call)

    def request(self, turn: Turn) -> ChatRequest:
        """Return the request of a turn."""
        images: Mapping[str, Any] = turn.images
        return ChatRequest(
            request_id=request_id(turn.episode_id, turn.t, ROLE),
            episode_id=turn.episode_id,
            t=turn.t,
            role=ROLE,
            messages=turn.prompt.messages,
            images=images,
            prompt_hash=turn.prompt.prompt_hash,
            sampling=self.sampling,
            seed=turn.seed,
            wants_logprobs=self.wants_logprobs,
        )

    async def aclose(self) -> None:
        """Let go of the model."""
        model, self._model = self._model, None
        if model is not None:
            await model.aclose()
