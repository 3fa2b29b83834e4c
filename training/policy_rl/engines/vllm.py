"""Generation by vLLM servers beside the trainer, on the weights of the last update.

How weights get there is in :mod:`.hand_over`. Every time a probe is asked for afterwards: replies to the first pictures
of some levels, whose log-probabilities the trainer computes, too. Where the two sides differ on average by more than
rounding explains, the servers do not hold the trainer's weights (or they hold caches of others), and the run stops:
nothing else would tell but a policy that learns a little worse.
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
"""In the folder of a run: what servers are given, and what they print."""
VERSION = "1"
"""Goes up when the same weights get other replies for a reason of ours."""
FIRST_SECONDS = 900.0
"""How long a request may take: the first one after a start waits while vLLM compiles."""
PROBE_TURNS, PROBE_TOKENS = 4, 16
TOLERANCES = {True: 0.05, False: 1e-3}
"""Mean difference in nats that rounding explains, computing in bfloat16 or not."""


class ServedModel(ChatModel):
    """The servers as one model; a request's seed names its server."""

    def __init__(self, urls: Sequence[str], config: dict[str, Any], banned: Sequence[int], in_flight: int) -> None:
        """Ask the servers at ``urls``, at most ``in_flight`` requests each; ``banned`` tokens are never drawn."""
        self._config, self._banned = config, tuple(banned)
        limits = {"max_concurrency": in_flight, "request_seconds": FIRST_SECONDS, "patience_seconds": FIRST_SECONDS}
        self._models = [OpenAIModel(NAME, None, Service(base_url=url, cache="", **limits)) for url in urls]

    @property
    def config(self) -> dict[str, Any]:
        """See the backend."""
        return self._config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request."""
        model = self._models[request.seed % len(self._models)]
        return await model.answer(replace(request, banned=self._banned, wants_logprobs=True))

    def answer_all(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
        """Answer requests in order; one that cannot be answered gets its error.

        Raises:
            ServerGoneError, ConfigError: none can be.
        """
        return answer_all(self, requests)

    async def aclose(self) -> None:
        """Close the connections."""
        for model in self._models:
            await model.aclose()


class ServedBackend(Backend):
    """The model that is being trained, behind servers."""

    name: ClassVar[str] = POLICY
    extra: ClassVar[str] = "openai"
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    config_type: ClassVar[type[Settings]] = InProcessOptions
    service_type: ClassVar[type[Settings]] = Unserved
    settings: InProcessOptions

    def __init__(
        self, options: InProcessOptions, urls: Callable[[], Sequence[str]], banned: Sequence[int], in_flight: int
    ) -> None:
        """Ask the servers that are up when the first request comes; see :class:`ServedModel`."""
        super().__init__(options, Unserved(), "student")
        self._urls, self._banned, self._requests = urls, banned, in_flight

    @property
    def config(self) -> dict[str, Any]:
        """Model, run, update, engine and its version."""
        options = self.settings
        told = {"model": options.model, "run": options.run, "update": options.update}
        return told | {"engine": "vllm", "version": VERSION}

    @property
    def in_flight(self) -> int:
        """Of all servers together."""
        return self._requests * len(self._urls())

    def connect(self) -> ServedModel:
        """Return the model."""
        return ServedModel(self._urls(), self.config, self._banned, self._requests)


class VllmEngine:
    """Servers that are kept in step with the trained model."""

    def __init__(self, servers: Servers, probe: "Probe", hand_over: HandOver) -> None:
        """Keep ``servers`` in step by ``hand_over``; ``probe`` is asked afterwards."""
        self._servers, self._probe, self._hand_over = servers, probe, hand_over
        self._synced: int | None = None
        self.difference: float | None = None
        """Mean over the last probe's tokens, in nats."""

    def sync(self, update: int, model: Any, save: Save) -> None:
        """Hand over the weights after ``update`` updates, unless the servers have them.

        Args:
            update: of the weights.
            model: that is trained.
            save: saves it to a folder.

        Raises:
            ServerGoneError: a server does not come up.
            TrainingError: the servers do not answer like the trainer.
        """
        if self._synced == update:
            return
        self._hand_over(self._servers, save)
        self.difference = self._probe.check(model, self.urls)
        self._synced = update

    @property
    def urls(self) -> list[str]:
        """Addresses of the servers that run."""
        return self._servers.urls

    def close(self) -> None:
        """End the servers, and remove what they were given."""
        self._servers.close()
        open_storage(self._hand_over.folder).delete("")


def open_engine(
    config: RlConfig, model: Any, scorer: Scorer, turns: Sequence[Turn], folder: Path, processes: int
) -> VllmEngine:
    """Return the servers of a run, none of which is started yet.

    Args:
        config: of the run.
        model: that is trained.
        scorer: of the run.
        turns: whose prompts the probe asks about.
        folder: of the run.
        processes: that train together.

    Raises:
        TrainingError: the weights cannot be handed over so.
    """
    servers = Servers(config.server_command, config.server_devices, folder / SERVER_LOGS)
    probe = Probe(scorer.encoder, turns, half=scorer.half)
    saved = folder.resolve() / SERVED_WEIGHTS  # servers run in another folder
    if config.lora:
        return VllmEngine(servers, probe, SwapAdapters(saved, config.model, config.revision, config.lora_rank))
    if config.hand_over == "restart":
        return VllmEngine(servers, probe, Restart(saved))
    if config.hand_over == "ipc" and processes > 1:
        raise TrainingError(f"hand-over by ipc: found {processes} processes that train, expected one; give nccl")
    return VllmEngine(servers, probe, Transfer(saved, model, config.hand_over))


class Probe:
    """The same questions with pictures after every hand-over, put to servers and trainer."""

    def __init__(self, encoder: Encoder, turns: Sequence[Turn], *, half: bool) -> None:
        """Ask about the prompts of ``turns``; ``half`` says that the trainer computes in bfloat16."""
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
        """Return how far servers and trainer differ at most, in nats a token.

        Raises:
            TrainingError: too far, or a server gives no tokens.
        """
        worst = max(self.difference(model, url) for url in urls)
        if worst > TOLERANCES[self._half]:
            raise TrainingError(
                f"a server's log-probabilities differ from the trainer's by {worst:.4f} nats a token on the same "
                f"prompts, expected at most {TOLERANCES[self._half]:g}: it holds other weights, caches of others, or "
                "computes in another precision; compare --server-command with the precision of the run, hand all "
                "weights over with --hand-over restart, and go on with --resume"
            )
        return worst

    def difference(self, model: Any, url: str) -> float:
        """Return the mean distance of a server's log-probabilities of its own replies from the scorer's, in nats.

        Raises:
            TrainingError: the server gives no tokens or no log-probabilities.
        """
        rows: list[Row] = []
        theirs: list[float] = []
        served = ServedModel([url], {}, self._scorer.encoder.placeholders, len(self._requests))
        for prompt, answer in zip(self._prompts, served.answer_all(self._requests), strict=True):
            if isinstance(answer, Exception) or not answer.token_ids or answer.logprobs is None:
                found = answer if isinstance(answer, Exception) else "a reply without token ids or log-probabilities"
                raise TrainingError(
                    f"{url}: found {found}, expected token ids with their log-probabilities; serve with a current vLLM"
                )
            rows.append(Row(prompt, answer.token_ids))
            theirs += answer.logprobs
        with torch.no_grad():
            ours = self._scorer(model.eval(), rows).cpu()
        return (torch.tensor(theirs) - ours).abs().mean().item()
