"""The trained model behind the servers of a run, as a backend like the others."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ....core.plugins import Settings
from ....models.base import Backend, ChatAnswer, ChatModel, ChatRequest
from ....models.openai.model import PACKAGES, OpenAIModel
from ....models.service import Service, Unserved
from ....rollouts.policies import NAME as POLICY
from .base import GenerationOptions
from .servers import NAME

VERSION = "1"
"""Version of the generation; raised when the code changes the replies of the same weights."""
FIRST_SECONDS = 900.0
"""Time limit of a request; the first one after a start waits while vLLM compiles."""


class ServedModel(ChatModel):
    """The servers as one model; a request's seed names its server."""

    def __init__(self, urls: Sequence[str], config: dict[str, Any], banned: Sequence[int], in_flight: int) -> None:
        """Use the servers at ``urls``, at most ``in_flight`` requests each; ``banned`` tokens are never sampled."""
        self._config, self._banned = config, tuple(banned)
        limits = {"max_concurrency": in_flight, "request_seconds": FIRST_SECONDS, "patience_seconds": FIRST_SECONDS}
        self._models = [OpenAIModel(NAME, None, Service(base_url=url, cache="", **limits)) for url in urls]

    @property
    def config(self) -> dict[str, Any]:
        """The backend's config."""
        return self._config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request."""
        model = self._models[request.seed % len(self._models)]
        return await model.answer(replace(request, banned=self._banned, wants_logprobs=True))

    async def aclose(self) -> None:
        """Close the connections."""
        for model in self._models:
            await model.aclose()


class ServedBackend(Backend):
    """The trained model, behind servers."""

    name: ClassVar[str] = POLICY
    extra: ClassVar[str] = "openai"
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    config_type: ClassVar[type[Settings]] = GenerationOptions
    service_type: ClassVar[type[Settings]] = Unserved
    settings: GenerationOptions

    def __init__(
        self, options: GenerationOptions, urls: Callable[[], Sequence[str]], banned: Sequence[int], in_flight: int
    ) -> None:
        """Use the servers that run at the first request; see :class:`ServedModel`."""
        super().__init__(options, Unserved(), "student")
        self._urls, self._banned, self._requests = urls, banned, in_flight

    @property
    def config(self) -> dict[str, Any]:
        """Model, run, update, engine and its version."""
        options = self.settings
        weights = {"model": options.model, "run": options.run, "update": options.update}
        return weights | {"engine": "vllm", "version": VERSION}

    @property
    def in_flight(self) -> int:
        """Requests at a time, over all servers."""
        return self._requests * len(self._urls())

    def connect(self) -> ServedModel:
        """Return the model."""
        return ServedModel(self._urls(), self.config, self._banned, self._requests)
