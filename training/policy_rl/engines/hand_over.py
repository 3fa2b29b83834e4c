"""Ways to send the weights of an update to the servers.

The caches of a server (prompts and pictures) were computed with the earlier weights and must be reset: a new server has
empty caches, a running one gets a request to reset them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from ....models.weights import is_local
from .base import Save
from .http import post
from .servers import NAME, Servers

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts for the largest rank of adapters."""
CACHES = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
"""Routes of vLLM's development mode that reset the caches of prefixes, processed pictures and encoded pictures."""
RUNTIME_ADAPTERS = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}


class HandOver(Protocol):
    """A way to send weights to the servers."""

    @property
    def folder(self) -> Path:
        """Folder with the files that are saved for the servers."""
        ...

    def __call__(self, servers: Servers, save: Save) -> None:
        """Send the weights that ``save`` saves to all servers, and reset their caches.

        Raises:
            ServerGoneError: a server does not start, or does not answer any more.
            TrainingError: a server refuses the weights.
        """
        ...


@dataclass(frozen=True, slots=True)
class Restart:
    """Save all weights and restart the servers on them: correct for every model, at the cost of the start."""

    folder: Path

    def __call__(self, servers: Servers, save: Save) -> None:
        """Send the weights; see :class:`HandOver`."""
        save(str(self.folder))
        servers.restart([str(self.folder)])


@dataclass(frozen=True, slots=True)
class SwapAdapters:
    """Load new adapters in running servers, which keep the model that the run started from: milliseconds."""

    folder: Path
    model: str
    """Model that the run starts from: a folder or a hub id."""
    revision: str | None
    rank: int
    BASE: ClassVar[str] = "start"
    """Served name of the model without adapters."""

    def __call__(self, servers: Servers, save: Save) -> None:
        """Send the weights; see :class:`HandOver`."""
        save(str(self.folder))
        if not servers.urls:
            servers.restart(self.words(), name=self.BASE, variables=RUNTIME_ADAPTERS)
        for url in servers.urls:
            adapters = {"lora_name": NAME, "lora_path": str(self.folder), "load_inplace": True}
            post(url, "/load_lora_adapter", adapters, returns=False)
            reset_caches(url)

    def words(self) -> list[str]:
        """Return the words for model and adapters on the command line of a server."""
        local = is_local(self.model)
        words = [str(Path(self.model).resolve()) if local else self.model, "--enable-lora", "--max-loras", "1"]
        words += ["--max-lora-rank", str(next((rank for rank in RANKS if rank >= self.rank), self.rank))]
        return words if local or self.revision is None else [*words, "--revision", self.revision]


def reset_caches(url: str) -> None:
    """Reset the caches of a server."""
    for cache in CACHES:
        post(url.removesuffix("/v1"), cache, returns=False)
