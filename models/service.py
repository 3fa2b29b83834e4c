"""How a model server is reached and how hard it may be driven: the settings of a part that decide no byte.

They may differ between two runs of one store, and are the same for policies and teachers. What an answer depends on
(model, revision, sampling) is not here.
"""

import os
import re
from pathlib import Path

from pydantic import Field, field_validator

from ..plugins import Settings
from .address import KEY_VARIABLE, URL_VARIABLE, bare_url

DEFAULT_URL = "https://api.openai.com/v1"


def default_url() -> str:
    """Return the base URL of ``OPENAI_BASE_URL``, or OpenAI's own."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def default_cache() -> str:
    """Return the file of the call cache that all runs of a user share."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(home) / "pivot" / "calls.sqlite")


class Unserved(Settings):
    """Service settings of a model that is loaded into this process."""

    refresh: bool = False
    """Ask the model whatever the cache holds; nothing is cached here."""


class Service(Settings):
    """Service settings of a model behind a server; times in seconds."""

    base_url: str = Field(default_factory=default_url)
    """Where the server is, usually ending in ``/v1``."""
    key_variable: str = KEY_VARIABLE
    """Environment variable that holds the key: its name alone is stored. Two servers may want two keys."""
    max_concurrency: int = Field(default=256, ge=1)
    """Most requests in flight. Below it the number adapts itself to what the server takes without complaint."""
    request_seconds: float = Field(default=120.0, gt=0)
    """Wall clock of one try, from the first byte sent to the last one received. A long reply takes 20 s."""
    episode_seconds: float = Field(default=3600.0, gt=0)
    """Wall clock of all replies of one episode, with all tries and pauses."""
    tries: int = Field(default=12, ge=1)
    """Tries of one request while the server answers others; with the pauses below, about four minutes."""
    pause_seconds: float = Field(default=0.5, gt=0)
    """First pause before another try; it doubles up to ``longest_pause``, shortened at random by up to a half."""
    longest_pause: float = Field(default=30.0, gt=0)
    """Longest pause between two tries."""
    patience_seconds: float = Field(default=180.0, gt=0)
    """How long no request may succeed before the server counts as gone. A vLLM restart takes one to two minutes."""
    cache: str = Field(default_factory=default_cache)
    """File of the call cache; empty for none."""
    refresh: bool = False
    """Ask the model whatever the cache holds, and cache the new answers. Set for a build with ``--refresh``."""
    payer: str = ""
    """The store that pays for answers, whose later runs count the cached ones as paid. Set for a build."""
    price_in: float | None = Field(default=None, ge=0)
    """Price of a million prompt tokens, for the ``cost`` column; any currency."""
    price_out: float | None = Field(default=None, ge=0)
    """Price of a million reply tokens."""

    @field_validator("base_url")
    @classmethod
    def _without_credentials(cls, url: str) -> str:
        """Take credentials out of the address; they are kept beside it, for this process and its children only."""
        return bare_url(url)

    @field_validator("key_variable")
    @classmethod
    def _is_no_key(cls, name: str) -> str:
        """Refuse a key in place of the name of its variable, without repeating it."""
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise ValueError(
                "expected the name of an environment variable, in capitals, such as TEACHER_API_KEY; a key itself "
                "belongs into the variable"
            )
        return name

    def cost(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """Return the price of a call; None without prices or where the server counts no tokens."""
        if self.price_in is None and self.price_out is None:
            return None
        if prompt_tokens is None or completion_tokens is None:
            return None
        return (prompt_tokens * (self.price_in or 0.0) + completion_tokens * (self.price_out or 0.0)) / 1e6
