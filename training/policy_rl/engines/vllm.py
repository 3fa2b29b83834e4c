"""Generation by vLLM servers with the weights of the last update.

:mod:`.hand_over` sends the weights. A probe follows each time: the servers answer the first turns of some levels, and
the trainer computes the log-probabilities of the replies, too. If the two differ on average by more than rounding, the
servers have other weights or stale caches, and the run stops; otherwise the only sign would be a policy that learns a
little worse.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ....errors import TrainingError
from ....models.base import Backend, ChatAnswer, ChatModel, ChatRequest, Sampling
from ....models.extras import need
from ....models.openai.model import PACKAGES, OpenAIModel
from ....models.service import Service, Unserved
from ....plugins import Settings
from ....rollouts.base import Turn
from ....rollouts.policies import NAME as POLICY
from ....storage import open_storage
from ...encode import EXTRA, Encoder
from ..config import RlConfig
from ..scoring import Row, Scorer
from .hand_over import HandOver, Restart, Save, SwapAdapters
from .http import answer_all
from .in_process import InProcessOptions
from .servers import NAME, Servers
from .transfer import Transfer

torch: Any = need("torch", EXTRA)

SERVED_WEIGHTS, SERVER_LOGS = ".served", "servers"
"""In the folder of a run: weights for the servers, and their logs."""
VERSION = "1"
"""Version of the generation; raised when the code changes the replies of the same weights."""
FIRST_SECONDS = 900.0
"""Time limit of a request; the first one after a start waits while vLLM compiles."""
PROBE_TURNS, PROBE_TOKENS = 4, 16
TOLERANCES = {True: 0.05, False: 1e-3}
"""Largest mean difference in nats due to rounding, in bfloat16 (True) and float32 (False)."""


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

    def answer_all(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
        """Return an answer to each request in order, or the error of a request that failed.

        Raises:
            ServerGoneError, ConfigError: no request can be answered.
        """
        return answer_all(self, requests)

    async def aclose(self) -> None:
        """Close the connections."""
        for model in self._models:
            await model.aclose()


class ServedBackend(Backend):
    """The trained model, behind servers."""

    name: ClassVar[str] = POLICY
    extra: ClassVar[str] = "openai"
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    config_type: ClassVar[type[Settings]] = InProcessOptions
    service_type: ClassVar[type[Settings]] = Unserved
    settings: InProcessOptions

    def __init__(
        self, options: InProcessOptions, urls: Callable[[], Sequence[str]], banned: Sequence[int], in_flight: int
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


class VllmEngine:
    """Servers that get the weights of the trained model after every update."""

    def __init__(self, servers: Servers, probe: "Probe", hand_over: HandOver) -> None:
        """Send weights to ``servers`` by ``hand_over``, and check them with ``probe``."""
        self._servers, self._probe, self._hand_over = servers, probe, hand_over
        self._synced: int | None = None
        self.difference: float | None = None
        """Mean difference over the tokens of the last probe, in nats."""

    def sync(self, update: int, model: Any, save: Save) -> None:
        """Send the weights of update ``update`` to the servers, unless they have them; ``save`` saves the model.

        Raises:
            ServerGoneError: a server does not start.
            TrainingError: the servers do not answer like the trainer.
        """
        if self._synced == update:
            return
        self._hand_over(self._servers, save)
        self.difference = self._probe.check(model, self.urls)
        self._synced = update

    @property
    def urls(self) -> list[str]:
        """Addresses of the running servers."""
        return self._servers.urls

    def close(self) -> None:
        """End the servers, and remove their copy of the weights."""
        self._servers.close()
        open_storage(self._hand_over.folder).delete("")


def open_engine(
    config: RlConfig, model: Any, scorer: Scorer, turns: Sequence[Turn], folder: Path, processes: int
) -> VllmEngine:
    """Return the servers of a run, none of which is started yet; the probe uses the prompts of ``turns``.

    Raises:
        TrainingError: ``hand_over`` does not work with several processes.
    """
    servers = Servers(config.server_command, config.server_devices, folder / SERVER_LOGS)
    probe = Probe(scorer.encoder, turns, half=scorer.half)
    saved = folder.resolve() / SERVED_WEIGHTS  # servers run in another folder
    if config.lora:
        return VllmEngine(servers, probe, SwapAdapters(saved, config.model, config.revision, config.lora_rank))
    if config.hand_over == "restart":
        return VllmEngine(servers, probe, Restart(saved))
    if config.hand_over == "ipc" and processes > 1:
        raise TrainingError(
            f"hand-over by ipc: found {processes} training processes, expected one; use --hand-over nccl"
        )
    return VllmEngine(servers, probe, Transfer(saved, model, config.hand_over))


class Probe:
    """A check that servers and trainer compute the same log-probabilities, on fixed prompts with pictures."""

    def __init__(self, encoder: Encoder, turns: Sequence[Turn], *, half: bool) -> None:
        """Use the prompts of ``turns``; ``half`` means that the trainer computes in bfloat16."""
        self._scorer, self._half = Scorer(encoder, half=half), half
        self._prompts = [turn.prompt for turn in turns]
        for turn in turns:
            self._scorer.pictures |= turn.images
        self._requests = [
            ChatRequest(
                request_id=f"probe-{number}",
                episode_id="probe",
                t=0,
                role="student",
                messages=prompt.messages,
                images=self._scorer.pictures,
                prompt_hash=prompt.prompt_hash,
                sampling=Sampling(max_tokens=PROBE_TOKENS),
                seed=number,
            )
            for number, prompt in enumerate(self._prompts)
        ]

    def check(self, model: Any, urls: Sequence[str]) -> float:
        """Return the largest mean difference between a server and the trainer, in nats per token.

        Raises:
            TrainingError: it exceeds the tolerance, or a server returns no tokens.
        """
        worst = max(self.difference(model, url) for url in urls)
        if worst > TOLERANCES[self._half]:
            raise TrainingError(
                f"a server's log-probabilities differ from the trainer's by {worst:.4f} nats per token on the "
                f"same prompts, expected at most {TOLERANCES[self._half]:g}: it has other weights, stale caches, or "
                "computes in another precision; compare --server-command with the precision of the run, use "
                "--hand-over restart, and resume the run with --resume"
            )
        return worst

    def difference(self, model: Any, url: str) -> float:
        """Return the mean distance between log-probabilities of a server's replies, its own and the scorer's, in nats.

        Raises:
            TrainingError: the server returns no tokens or no log-probabilities.
        """
        rows: list[Row] = []
        theirs: list[float] = []
        served = ServedModel([url], {}, self._scorer.encoder.placeholders, len(self._requests))
        for prompt, answer in zip(self._prompts, served.answer_all(self._requests), strict=True):
            if isinstance(answer, Exception) or not answer.token_ids or answer.logprobs is None:
                reason = answer if isinstance(answer, Exception) else "a reply without token ids or log-probabilities"
                raise TrainingError(
                    f"{url}: found {reason}, expected token ids with their log-probabilities; serve with a current vLLM"
                )
            rows.append(Row(prompt, answer.token_ids))
            theirs += answer.logprobs
        with torch.no_grad():
            ours = self._scorer(model.eval(), rows).cpu()
        return (torch.tensor(theirs) - ours).abs().mean().item()
