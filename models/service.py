"""Service settings of a model: address and load limits, which do not affect the data.

They may differ between two runs of one store, and are the same for policies and teachers. Model, revision and sampling,
on which an answer depends, are options (:class:`.ModelOptions`).
"""

import os
import re
from pathlib import Path

from pydantic import Field, field_validator

from ..core.plugins import Settings
from .address import KEY_VARIABLE, URL_VARIABLE, bare_url

DEFAULT_URL = "https://api.openai.com/v1"


def default_url() -> str:
    """Return the base URL in ``OPENAI_BASE_URL``, or OpenAI's own."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def default_cache() -> str:
    """Return the file of the call cache that all runs of a user share."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(home) / "pivot" / "calls.sqlite")


class Unserved(Settings):
    """Service settings of a model that is loaded into this process."""

    refresh: bool = False
    """Accepted for consistency; in-process answers are not cached."""


class Service(Settings):
    """Service settings of a model behind a server; times in seconds."""

    base_url: str = Field(default_factory=default_url, validate_default=True)
    """Base URL of the server, usually ending in ``/v1``."""
    key_variable: str = KEY_VARIABLE
    """Environment variable that holds the API key; only its name is stored. Two servers may need two keys."""
    max_concurrency: int = Field(default=256, ge=1)
    """Maximum number of concurrent requests. Below it the number adapts to what the server accepts without errors."""
    request_seconds: float = Field(default=120.0, gt=0)
    """Time limit of one try, from the first byte sent to the last byte received. A long reply takes 20 s."""
    episode_seconds: float = Field(default=3600.0, gt=0)
    """Time limit of all replies of one episode, with all tries and pauses."""
    tries: int = Field(default=12, ge=1)
    """Tries of one request while the server answers others; the default pauses between them add up to
    1.5 to 3 minutes."""
    pause_seconds: float = Field(default=0.5, gt=0)
    """First pause before a new try; it doubles up to ``longest_pause`` and is shortened at random by up to a half."""
    longest_pause: float = Field(default=30.0, gt=0)
    """Longest pause between two tries."""
    patience_seconds: float = Field(default=180.0, gt=0)
    """Time without any answer after which the server counts as gone. A vLLM restart takes one to two minutes."""
    any_model: bool = False
    """Accept answers of a model with another name than the requested one, as of a router or a deployment."""
    cache: str = Field(default_factory=default_cache)
    """File of the call cache; empty for none."""
    refresh: bool = False
    """Ignore cached answers, ask the model and cache the new answers. Set by ``--refresh`` of a build."""
    payer: str = ""
    """Store billed for cached answers: its later runs count them at their original cost. Set by a build."""
    price_in: float | None = Field(default=None, ge=0)
    """Price per million prompt tokens, for the ``cost`` column; any currency."""
    price_out: float | None = Field(default=None, ge=0)
    """Price per million reply tokens."""

    @field_validator("base_url")
    @classmethod
    def _without_credentials(cls, url: str) -> str:
        """Remove credentials from the address; this process and its children alone keep them."""
        return bare_url(url)

    @field_validator("key_variable")
    @classmethod
    def _is_no_key(cls, name: str) -> str:
        """Refuse a key in place of a variable name, without quoting it."""
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise ValueError(
                "expected the name of an environment variable, in capitals, such as TEACHER_API_KEY; a key itself "
                "belongs into the variable"
            )
        return name

    def cost(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """Return the price of a call; None without prices or token counts."""
        if self.price_in is None and self.price_out is None:
            return None
        if prompt_tokens is None or completion_tokens is None:
            return None
        return (prompt_tokens * (self.price_in or 0.0) + completion_tokens * (self.price_out or 0.0)) / 1e6
