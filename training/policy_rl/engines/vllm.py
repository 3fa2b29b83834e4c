"""Generation by a vLLM server that gets the weights of every update; :mod:`.probe` checks it after each.

With adapters, the server loads new ones while it runs, and gets a request to reset its caches of prompts and pictures,
which were computed with the earlier weights. Otherwise all weights are saved and the server is started again on them:
reloading weights in a running vLLM silently keeps the old output head of models with tied embeddings.
"""

import contextlib
import json
import os
import shlex
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

from ....core.errors import ServerGoneError, TrainingError
from ....core.plugins import Settings
from ....core.storage import open_storage
from ....models.base import Backend, ChatAnswer, ChatModel, ChatRequest
from ....models.openai.model import PACKAGES, OpenAIModel
from ....models.service import Service, Unserved
from ....models.weights import is_local
from ....rollouts.policies import NAME as POLICY
from ..config import RlConfig
from .base import GenerationOptions, Generator, Save, Trained

VERSION = "1"
"""Version of the generation; raised when the code changes the replies of the same weights."""
LOOPBACK = "127.0.0.1"
"""Address at which the server listens."""
NAME, BASE = "policy", "start"
"""Served names of the trained model, and of the model without adapters."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
FIRST_SECONDS = 900.0
"""Time limit of a start, which takes half a minute on an idle machine and five minutes on a busy one, and of a request:
the first one after a start waits while vLLM compiles."""
END_SECONDS = 30.0
LOG_TAIL = 1500
"""Characters of the server's log in the message that it did not start."""
SERVED_WEIGHTS, SERVER_FOLDER, LOG = ".served", "server", "output.log"
"""In the folder of a run: weights for the server, and the folder in which it runs and leaves its output."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts for the largest rank of adapters."""
CACHES = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
"""Routes of vLLM's development mode that reset the caches of prefixes, processed pictures and encoded pictures."""


class VllmGenerator(Generator):
    """A server that gets the weights of the trained model after every update; all processes use it."""

    packages: ClassVar[tuple[str, ...]] = PACKAGES
    extra: ClassVar[str] = "openai"

    def __init__(self, trained: Trained) -> None:
        """Prepare the server; see :class:`Generator`."""
        from .probe import PROBE_TURNS, Probe  # noqa: PLC0415 - needs PyTorch

        super().__init__(trained)
        self._server = Server(trained.config.server_command, trained.folder / SERVER_FOLDER)
        encoder, turns = trained.scorer.encoder, trained.first_turns(PROBE_TURNS)
        connect = partial(ServedModel, config={}, banned=encoder.placeholders, in_flight=PROBE_TURNS)
        self._probe = Probe(encoder, turns, connect, half=trained.scorer.half)
        self._url = ""
        self._saved = trained.folder.resolve() / SERVED_WEIGHTS  # the server runs in another folder

    def backend(self, options: GenerationOptions) -> "ServedBackend":
        """Return the server as a model."""
        banned = self.trained.scorer.encoder.placeholders
        return ServedBackend(options, lambda: self._url, banned, self.trained.config.generate)

    def sync(self, save: Save) -> float | None:
        """Send the weights to the server, and compare its answers with the trainer's; see :class:`Generator`."""
        difference, ranks = None, self.trained.ranks
        if ranks.is_main:
            save(str(self._saved))
            if self.trained.config.lora:
                self._swap_adapters()
            else:
                self._server.restart([str(self._saved)])
            difference = self._probe.check(self.trained.model, self._server.url)
        self._url = ranks.join({0: self._server.url} if ranks.is_main else {})[0]
        return difference

    def _swap_adapters(self) -> None:
        """Load the saved adapters in the server, which keeps the model that the run started from: milliseconds."""
        if not self._server.url:
            variables = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
            self._server.restart(words_for_adapters(self.trained.config), name=BASE, variables=variables)
        adapters = {"lora_name": NAME, "lora_path": str(self._saved), "load_inplace": True}
        post(f"{self._server.url}/load_lora_adapter", adapters)
        reset_caches(self._server.url)

    def close(self) -> None:
        """End the server, and remove its copy of the weights."""
        self._server.close()
        open_storage(self._saved).delete("")


def words_for_adapters(config: RlConfig) -> list[str]:
    """Return the words for model and adapters on the command line of a server."""
    local = is_local(config.model)
    words = [str(Path(config.model).resolve()) if local else config.model, "--enable-lora", "--max-loras", "1"]
    words += ["--max-lora-rank", str(next((rank for rank in RANKS if rank >= config.lora_rank), config.lora_rank))]
    return words if local or config.revision is None else [*words, "--revision", config.revision]


def reset_caches(url: str) -> None:
    """Reset the caches of a server."""
    for cache in CACHES:
        post(url.removesuffix("/v1") + cache)


def post(address: str, body: Mapping[str, Any] | None = None) -> None:
    """Send a command to the run's own server, whose answer is not read.

    Raises:
        TrainingError: the server refuses it, or does not answer.
    """
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method="POST")  # noqa: S310
    try:
        urllib.request.urlopen(request, timeout=FIRST_SECONDS).close()  # noqa: S310 - our own server
    except OSError as error:
        raise TrainingError(
            f"{address} refuses a request ({error}), expected a current vLLM; see {SERVER_FOLDER}/{LOG}, then run the "
            "same command with --resume"
        ) from error


class ServedModel(ChatModel):
    """The server as a model."""

    def __init__(self, url: str, config: dict[str, Any], banned: Sequence[int], in_flight: int) -> None:
        """Use the server at ``url``, at most ``in_flight`` requests at a time; ``banned`` tokens are never sampled."""
        self._config, self._banned = config, tuple(banned)
        limits = {"max_concurrency": in_flight, "request_seconds": FIRST_SECONDS, "patience_seconds": FIRST_SECONDS}
        self._model = OpenAIModel(NAME, None, Service(base_url=url, cache="", **limits))

    @property
    def config(self) -> dict[str, Any]:
        """The backend's config."""
        return self._config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request."""
        return await self._model.answer(replace(request, banned=self._banned, wants_logprobs=True))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._model.aclose()


class ServedBackend(Backend):
    """The trained model, behind a server."""

    name: ClassVar[str] = POLICY
    extra: ClassVar[str] = "openai"
    packages: ClassVar[tuple[str, ...]] = PACKAGES
    config_type: ClassVar[type[Settings]] = GenerationOptions
    service_type: ClassVar[type[Settings]] = Unserved
    settings: GenerationOptions

    def __init__(
        self, options: GenerationOptions, url: Callable[[], str], banned: Sequence[int], in_flight: int
    ) -> None:
        """Use the server that runs at the first request; see :class:`ServedModel`."""
        super().__init__(options, Unserved(), "student")
        self._url, self._banned, self._requests = url, banned, in_flight

    @property
    def config(self) -> dict[str, Any]:
        """Model, run, update, engine and its version."""
        options = self.settings
        weights = {"model": options.model, "run": options.run, "update": options.update}
        return weights | {"engine": "vllm", "version": VERSION}

    @property
    def in_flight(self) -> int:
        """Requests at a time."""
        return self._requests

    def connect(self) -> ServedModel:
        """Return the model."""
        return ServedModel(self._url(), self.config, self._banned, self._requests)


def server_words(command: str, model: Sequence[str], port: int, name: str = NAME) -> list[str]:
    """Return the command line of the server as words; ``model`` is the model and its options.

    Log-probabilities are those of the distribution that tokens are sampled from, without banned tokens; the
    checkpoint's own sampling defaults are not used.
    """
    words = [*shlex.split(command), "--model", *model, "--served-model-name", name]
    words += ["--host", LOOPBACK, "--port", str(port)]
    return [*words, "--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"]


class Server:
    """The server process, which starts and ends with a run; it does not run before the first :meth:`restart`."""

    def __init__(self, command: str, folder: Path) -> None:
        """Configure the server, which ``command`` starts in ``folder``; it is not started."""
        self._command, self._folder = command, open_storage(folder)
        self._running: tuple[subprocess.Popen[bytes], IO[bytes]] | None = None
        self.url = ""
        """Base address of the running server; empty if none runs."""

    def restart(self, model: Sequence[str], name: str = NAME, variables: Mapping[str, str] | None = None) -> None:
        """End the running server and start another.

        Args:
            model: folder or hub id of the model, and further words of the command line.
            name: served name of the model.
            variables: environment variables of the server.

        Raises:
            ServerGoneError: the server does not start; the message quotes its log.
        """
        self.close()
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = probe.getsockname()[1]
        self._folder.write_bytes(LOG, b"")
        path = self._folder.local_path(LOG)
        log = path.open("wb")
        try:
            process = subprocess.Popen(
                server_words(self._command, model, port, name),
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **OFFLINE, **(variables or {})},
                cwd=self._folder.local_path(),  # not a folder whose subfolders Python would import as packages
                start_new_session=True,
            )
        except OSError as error:
            log.close()
            raise ServerGoneError(
                f"cannot start a server with {self._command!r}: {error.strerror}; give the command that starts "
                "vLLM's OpenAI server on this machine with --server-command"
            ) from error
        self._running = process, log
        until = time.monotonic() + FIRST_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=5).close()
                self.url = f"http://{LOOPBACK}:{port}/v1"
                return
            time.sleep(0.5)
        words = path.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
        self.close()
        raise ServerGoneError(f"the vLLM server did not start; see {path}, which ends with:\n{words}")

    def close(self) -> None:
        """End the server and the processes that it started."""
        if self._running is None:
            return
        process, log = self._running
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        log.close()
        self._running, self.url = None, ""
