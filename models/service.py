"""How a model server is reached and how hard it may be driven: the settings of a part that decide no byte.

They may differ between two runs of one store, and are the same for policies and teachers. What an answer depends on
(model, revision, sampling) is not here.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from .address import URL_VARIABLE, bare_url

DEFAULT_URL = "https://api.openai.com/v1"


def default_url() -> str:
    """Return the base URL of ``OPENAI_BASE_URL``, or OpenAI's own."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def default_cache() -> str:
    """Return the file of the call cache that all runs of a user share."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(home) / "pivot" / "calls.sqlite")


@dataclass(frozen=True, slots=True)
class Service:
    """Service settings; times in seconds."""

    base_url: str = field(default_factory=default_url)
    """Where the server is, usually ending in ``/v1``."""
    max_concurrency: int = 256
    """Most requests in flight. Below it the number adapts itself to what the server takes without complaint."""
    request_seconds: float = 120.0
    """Wall clock of one try, from the first byte sent to the last one received. A long reply takes 20 s."""
    episode_seconds: float = 3600.0
    """Wall clock of all replies of one episode, with all tries and pauses."""
    tries: int = 12
    """Tries of one request while the server answers others; with the pauses below, about four minutes."""
    pause_seconds: float = 0.5
    """First pause before another try; it doubles up to ``longest_pause``, shortened at random by up to a half."""
    longest_pause: float = 30.0
    patience_seconds: float = 180.0
    """How long no request may succeed before the server counts as gone. A vLLM restart takes one to two minutes."""
    cache: str = field(default_factory=default_cache)
    """File of the call cache; empty for none."""
    refresh: bool = False
    """Ask the model whatever the cache holds, and cache the new answers. Set for a build with ``--refresh``."""
    price_in: float | None = None
    """Price of a million prompt tokens, for the ``cost`` column; any currency."""
    price_out: float | None = None
    """Price of a million reply tokens."""

    def __post_init__(self) -> None:
        """Check the ranges and take credentials out of the base URL.

        Raises:
            ConfigError: a setting cannot be used.
        """
        object.__setattr__(self, "base_url", bare_url(self.base_url))
        for name in ("max_concurrency", "tries"):
            if getattr(self, name) < 1:
                raise ConfigError(f"service setting {name}: found {getattr(self, name)}, expected 1 or more")
        for name in ("request_seconds", "episode_seconds", "pause_seconds", "longest_pause", "patience_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"service setting {name}: found {getattr(self, name)}, expected more than 0 seconds")
        for name in ("price_in", "price_out"):
            price = getattr(self, name)
            if price is not None and price < 0:
                raise ConfigError(f"service setting {name}: found {price}, expected 0 or more per million tokens")

    def cost(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """Return the price of a call; None without prices or where the server counts no tokens."""
        if self.price_in is None and self.price_out is None:
            return None
        if prompt_tokens is None or completion_tokens is None:
            return None
        return (prompt_tokens * (self.price_in or 0.0) + completion_tokens * (self.price_out or 0.0)) / 1e6
