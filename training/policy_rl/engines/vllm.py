"""Generation by vLLM servers that get the weights of every update; :mod:`.probe` checks them after each.

With adapters, the servers load new ones while they run. Otherwise all weights are saved and the servers are started
again on them. Caches of a server (prompts and pictures) were computed with the earlier weights: a new server has empty
ones, a running one gets a request to reset them.
"""

from pathlib import Path
from typing import ClassVar

from ....core.storage import open_storage
from ....models.openai.model import PACKAGES
from ....models.weights import is_local
from ..config import RlConfig
from .base import GenerationOptions, Generator, Save, Trained
from .http import post
from .served import ServedBackend
from .servers import NAME, Servers

SERVED_WEIGHTS, SERVER_LOGS = ".served", "servers"
"""In the folder of a run: weights for the servers, and their logs."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts for the largest rank of adapters."""
CACHES = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
"""Routes of vLLM's development mode that reset the caches of prefixes, processed pictures and encoded pictures."""
BASE = "start"
"""Served name of the model without adapters."""


class VllmGenerator(Generator):
    """Servers that get the weights of the trained model after every update; all processes use them."""

    packages: ClassVar[tuple[str, ...]] = PACKAGES
    extra: ClassVar[str] = "openai"

    def __init__(self, trained: Trained) -> None:
        """Prepare the servers; see :class:`Generator`."""
        from .probe import PROBE_TURNS, Probe  # noqa: PLC0415 - needs PyTorch

        super().__init__(trained)
        config, folder = trained.config, trained.folder
        self._servers = Servers(config.server_command, config.server_devices, folder / SERVER_LOGS)
        self._probe = Probe(trained.scorer.encoder, trained.first_turns(PROBE_TURNS), half=trained.scorer.half)
        self._urls: list[str] = []
        self._saved = folder.resolve() / SERVED_WEIGHTS  # servers run in another folder

    def backend(self, options: GenerationOptions) -> ServedBackend:
        """Return the servers as one model."""
        banned = self.trained.scorer.encoder.placeholders
        return ServedBackend(options, lambda: self._urls, banned, self.trained.config.generate)

    def sync(self, save: Save) -> float | None:
        """Send the weights to the servers, and compare their answers with the trainer's; see :class:`Generator`."""
        difference, ranks = None, self.trained.ranks
        if ranks.is_main:
            save(str(self._saved))
            if self.trained.config.lora:
                self._swap_adapters()
            else:
                self._servers.restart([str(self._saved)])
            difference = self._probe.check(self.trained.model, self._servers.urls)
        self._urls = ranks.join({0: self._servers.urls} if ranks.is_main else {})[0]
        return difference

    def _swap_adapters(self) -> None:
        """Load the saved adapters in the servers, which keep the model that the run started from: milliseconds."""
        if not self._servers.urls:
            variables = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
            self._servers.restart(words_for_adapters(self.trained.config), name=BASE, variables=variables)
        for url in self._servers.urls:
            adapters = {"lora_name": NAME, "lora_path": str(self._saved), "load_inplace": True}
            post(url, "/load_lora_adapter", adapters, returns=False)
            reset_caches(url)

    def close(self) -> None:
        """End the servers, and remove their copy of the weights."""
        self._servers.close()
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
        post(url.removesuffix("/v1"), cache, returns=False)
