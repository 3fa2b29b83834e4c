"""The options of `pivot build` that name a model, say how it draws its replies, and how it is reached.

Model, revision and sampling decide replies: they go into the options of a part and so into every episode id. Address,
limits, cache and prices go into its service settings, which decide no byte and may differ from run to run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from .. import plugins
from ..errors import ConfigError

_PANEL = "Model that acts (policies openai, transformers, vllm)"
_SERVICE = "Model server (decides no byte of the data; may differ from run to run)"


def _flag(name: str, help_text: str, panel: str, **extra: Any) -> Any:
    return typer.Option(name, help=help_text, rich_help_panel=panel, **extra)


Model = Annotated[str | None, _flag("--model", "Model: its name on the server, or a folder or hub id.", _PANEL)]
Revision = Annotated[str | None, _flag("--revision", "Revision of the model, to be part of every id.", _PANEL)]
Temperature = Annotated[
    float | None, _flag("--temperature", "Sampling temperature (default 1.0, as for training rollouts).", _PANEL, min=0)
]
TopP = Annotated[float | None, _flag("--top-p", "Nucleus sampling (default 1.0: all tokens).", _PANEL)]
TopK = Annotated[int | None, _flag("--top-k", "Draw from the k likeliest tokens (default 0: all).", _PANEL, min=0)]
MaxTokens = Annotated[int | None, _flag("--max-tokens", "Longest reply (default and most: 512).", _PANEL, min=1)]
BaseUrl = Annotated[
    str | None,
    _flag(
        "--base-url",
        "Address, such as http://localhost:8000/v1 (default: OPENAI_BASE_URL, or OpenAI's). The key comes from "
        "OPENAI_API_KEY.",
        _SERVICE,
    ),
]
MaxConcurrency = Annotated[
    int | None,
    _flag(
        "--max-concurrency", "Most requests in flight (default 256); the number adapts itself below.", _SERVICE, min=1
    ),
]
RequestTimeout = Annotated[
    float | None, _flag("--request-timeout", "Seconds that one try of a request may take (default 120).", _SERVICE)
]
EpisodeTimeout = Annotated[
    float | None, _flag("--episode-timeout", "Seconds that an episode may take in all (default 3600).", _SERVICE)
]
Patience = Annotated[
    float | None,
    _flag("--patience", "Seconds without any answer after which the run stops (default 180).", _SERVICE),
]
Cache = Annotated[
    str | None,
    _flag("--cache", "File of the call cache (default: one for all runs; look at it with pivot cache).", _SERVICE),
]
NoCache = Annotated[bool, _flag("--no-cache", "Neither read nor fill the call cache.", _SERVICE)]
PriceIn = Annotated[float | None, _flag("--price-in", "Price of a million prompt tokens, to count cost.", _SERVICE)]
PriceOut = Annotated[float | None, _flag("--price-out", "Price of a million reply tokens.", _SERVICE)]

PolicySettings = Annotated[
    list[str] | None,
    typer.Option(
        "--policy-set",
        help="Setting KEY=VALUE of a policy that is no model (see `pivot settings NAME`); may be given again.",
    ),
]

_TEACHER = "Model that writes guidance (teachers openai, transformers, vllm)"
TeacherModel = Annotated[
    str | None, _flag("--teacher-model", "Model: its name on the server, or a folder or hub id.", _TEACHER)
]
TeacherBaseUrl = Annotated[
    str | None,
    _flag("--teacher-base-url", "Address of its server (default: as --base-url, or OPENAI_BASE_URL).", _TEACHER),
]
TeacherRevision = Annotated[
    str | None, _flag("--teacher-revision", "Revision of the model, kept beside every label.", _TEACHER)
]


def own(texts: Sequence[str] | None) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts; the value is JSON, or a text.

    Raises:
        ConfigError: one is written otherwise.
    """
    values: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ConfigError(f"--policy-set {text}: expected KEY=VALUE; see: pivot settings POLICY")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that were given."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Change:
    """What the command line says about a policy or teacher."""

    name: str | None
    options: Mapping[str, Any]
    service: Mapping[str, Any]
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of a policy that is no model."""

    def apply(self, key: str, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part as plain data; another name starts afresh, the same one keeps what a config file says of it.

        Args:
            key: ``policy`` or ``teacher``.
            before: the part so far.

        Raises:
            ConfigError: model settings for a part that is no model; PluginError: the part is unknown.
        """
        part: dict[str, Any] = dict(before) if self.name in (None, before["name"]) else {"name": self.name}
        if self.own:
            part["options"] = {**part.get("options", {}), **self.own}
        if not (self.options or self.service):
            return part
        if part["name"] not in plugins.names("models"):
            settings = ", ".join([*self.options, *self.service])
            raise ConfigError(
                f"{key} {part['name']!r} is no model and has no use for these settings: {settings}; name one that is, "
                f"such as --{key} openai"
            )
        part["options"] = {**part.get("options", {}), **self.options}
        part["service"] = {**part.get("service", {}), **self.service}
        return part


@dataclass(frozen=True, slots=True)
class TeacherChange(Change):
    """What the command line says about the teacher; where it says nothing, a server is reached as the policy's is."""

    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Service settings of the policy."""

    def apply(self, key: str, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part as plain data; see :meth:`Change.apply`."""
        part = Change.apply(self, key, before)
        if part["name"] == "openai":
            shared = {name: value for name, value in self.shared.items() if name in _SHARED}
            part["service"] = {**part.get("service", {}), **shared, **self.service}
        return part


_SHARED = ("base_url", "max_concurrency", "request_seconds", "patience_seconds", "cache")
"""Service settings that hold for policy and teacher alike; prices are of one model."""


def teacher_change(
    name: str | None, model: str | None, revision: str | None, base_url: str | None, shared: Mapping[str, Any]
) -> TeacherChange:
    """Collect what the command line says about the teacher; ``shared`` are the policy's service settings."""
    options = given({"model": model, "revision": revision})
    return TeacherChange(name, options, given({"base_url": base_url}), shared=given(shared))
