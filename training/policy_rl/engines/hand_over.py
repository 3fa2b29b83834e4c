"""Ways of giving the servers the weights of an update.

Whatever the way, what a server remembers of prompts and pictures was computed with other weights and has to go: a
started server has nothing, one that goes on is told to forget.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from ....models.weights import is_local
from .http import post
from .servers import NAME, Servers

Save = Callable[[str], None]
"""Saves the trained model as ``save_pretrained`` does: with its processor, or of one with adapters those."""

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes for the largest rank of adapters."""
CACHES = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
"""Of prompts' beginnings, processed pictures, and pictures as the model sees them. Development routes of vLLM."""
RUNTIME_ADAPTERS = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}


class HandOver(Protocol):
    """One way."""

    @property
    def folder(self) -> Path:
        """Where servers find what is saved for them."""
        ...

    def __call__(self, servers: Servers, save: Save) -> None:
        """Bring all servers to the weights that ``save`` saves, and to no memory of others.

        Raises:
            ServerGoneError: a server does not come up, or answers no more.
            TrainingError: a server refuses them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Restart:
    """Save all weights and start the servers again on them: right for every model, at the price of the start."""

    folder: Path

    def __call__(self, servers: Servers, save: Save) -> None:
        """See :class:`HandOver`."""
        save(str(self.folder))
        servers.restart([str(self.folder)])


@dataclass(frozen=True, slots=True)
class SwapAdapters:
    """Servers keep the model that the run started from, and take its adapters while they run: milliseconds."""

    folder: Path
    model: str
    """That the run starts from: a folder or a hub id."""
    revision: str | None
    rank: int
    BASE: ClassVar[str] = "start"
    """What the servers call the model without adapters."""

    def __call__(self, servers: Servers, save: Save) -> None:
        """See :class:`HandOver`."""
        save(str(self.folder))
        if not servers.urls:
            servers.restart(self.words(), name=self.BASE, variables=RUNTIME_ADAPTERS)
        for url in servers.urls:
            adapters = {"lora_name": NAME, "lora_path": str(self.folder), "load_inplace": True}
            post(url, "/load_lora_adapter", adapters, returns=False)
            forget(url)

    def words(self) -> list[str]:
        """Return what the command line of a server says about model and adapters."""
        local = is_local(self.model)
        words = [str(Path(self.model).resolve()) if local else self.model, "--enable-lora", "--max-loras", "1"]
        words += ["--max-lora-rank", str(next((rank for rank in RANKS if rank >= self.rank), self.rank))]
        return words if local or self.revision is None else [*words, "--revision", self.revision]


def forget(url: str) -> None:
    """Let a server forget what it computed with other weights."""
    for cache in CACHES:
        post(url.removesuffix("/v1"), cache, returns=False)
