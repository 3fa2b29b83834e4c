"""Any chat model as a policy: a turn becomes a request, the answer becomes a reply."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ...core.errors import ConfigError
from ...environments.turns import Reply, Turn
from ...models.base import MAX_REPLY_TOKENS, Backend, ChatModel, ChatRequest
from ...models.preflight import PreflightModel
from ..base import Policy, request_id
from .example import example_turn

ROLE = "student"
PREFLIGHT_TOKENS = 16
"""Longest reply to a pre-flight request, whose content is ignored."""

TEMPERATURE = 1.0
"""Default temperature, as for training rollouts."""


class ModelPolicy(Policy):
    """Policy that asks a chat model. The model sees prompt and pictures of a turn, nothing else."""

    served: ClassVar[bool] = True

    def __init__(self, backend: Backend) -> None:
        """Act through a model of ``backend``, which connects with the first turn.

        Raises:
            ConfigError: the sampling is out of range.
        """
        super().__init__(backend.settings)
        self.name = backend.name
        self.sampling = backend.settings.sampling(TEMPERATURE)
        if backend.settings.max_tokens > MAX_REPLY_TOKENS:
            raise ConfigError(
                f"policy {self.name}: max_tokens {backend.settings.max_tokens}; a reply has at most "
                f"{MAX_REPLY_TOKENS}; the room for its thought is --thinking-tokens"
            )
        self.episode_seconds = backend.episode_seconds
        self._backend = backend
        self._model: ChatModel | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Return model, revision and sampling: everything that decides the replies."""
        return {**self._backend.config, "sampling": self.sampling.row()}

    @property
    def episodes_in_flight(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the number of episodes that keep the model busy."""
        return self._backend.episodes_in_flight

    def check(self) -> None:
        """Check that everything the model needs is installed.

        Raises:
            PluginError: something is missing.
        """
        self._backend.check()

    async def preflight(self) -> None:
        """Request the beginning of a reply to an example turn; see the base class for the errors."""
        if self._backend.one_process:
            return
        request = self.request(example_turn())
        model = PreflightModel(self._backend.connect_for_preflight())
        try:
            await model.answer(replace(request, sampling=replace(self.sampling, max_tokens=PREFLIGHT_TOKENS)))
        finally:
            await model.aclose()

    async def reply(self, turn: Turn) -> Reply:
        """Ask the model; see :meth:`ChatModel.answer` for the errors. A refusal is a reply like any other."""
        if self._model is None:
            self._model = self._backend.connect()
        request = self.request(turn)
        try:
            answer = await self._model.answer(request)
        finally:
            turn.sent.add(request.sent)
        text = answer.text if answer.refusal is None else answer.text or answer.refusal
        call = {**answer.call, "finish_reason": answer.finish_reason}
        return Reply(text, answer.finish_reason, answer.token_ids, answer.logprobs, call)

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
            wants_logprobs=self._backend.wants_logprobs,
        )

    async def aclose(self) -> None:
        """Close the model."""
        model, self._model = self._model, None
        if model is not None:
            await model.aclose()
