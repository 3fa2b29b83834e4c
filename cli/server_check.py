"""``pivot doctor --base-url URL --model NAME``: whether a server answers as a build asks it, by the client of a build.

Each finding has a verdict and advice: reachable, with this model; checkpoint named; text answered; log-probabilities
(worth having, not needed); pictures seen (they must cost prompt tokens: some servers drop them without a word).
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..core.errors import PivotError, ServerGoneError
from ..core.messages import EncodedFrame
from ..core.plugins import read_settings
from ..models.address import KEY_VARIABLE, api_key
from ..models.base import ChatAnswer, ChatRequest, Sampling
from ..models.openai.model import OpenAIModel
from ..models.service import Service

SECONDS = 60.0
"""Longest wait for one request; the first one after a start may compile kernels."""

PICTURE_PIXELS = 256
"""Side of the test picture; a model with patches of 28 pixels spends about 80 tokens on it."""

State = Literal["ok", "missing", "unknown", "broken"]

NO_ROOT = (
    "the server does not name the checkpoint; name it with --revision, so that no answer of another passes for its"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    state: State
    detail: str
    advice: str = ""
    """Advice; empty for a check that passed."""


def check_server(base_url: str | None, model: str, key_variable: str = KEY_VARIABLE) -> list[Finding]:
    """Check a server; the list ends at the first finding that makes the rest pointless.

    Raises:
        PluginError: the extra is not installed.
        ConfigError: ``base_url`` is not an address, or ``key_variable`` not a variable.
    """
    fields: dict[str, Any] = {"request_seconds": SECONDS, "patience_seconds": 2, "tries": 1}
    fields |= {"key_variable": key_variable} | ({} if base_url is None else {"base_url": base_url})
    service = read_settings(Service, fields, "")
    api_key(service.key_variable)
    return asyncio.run(findings_of(service, model))


async def findings_of(service: Service, model: str) -> list[Finding]:
    """Return the findings about the server of ``service``; see :func:`check_server`."""
    served = OpenAIModel(model, "", service)  # a missing checkpoint is a finding here, not a warning
    findings: list[Finding] = []
    check = "reachable"
    try:
        await served.contact()
        findings.append(Finding(check, "ok", service.base_url))
        checkpoint = await served.served_as()
        named = Finding("checkpoint named", "ok", checkpoint) if checkpoint else None
        findings.append(named or Finding("checkpoint named", "unknown", "only the model's name is known", NO_ROOT))
        check = "text answered"
        text = await _answer(served, [])
        findings.append(Finding(check, "ok", f"{text.call.get('completion_tokens') or '?'} reply tokens"))
        ids = "with token ids" if text.token_ids else "without token ids"
        findings.append(
            Finding("log-probabilities", "ok", ids)
            if text.logprobs
            else Finding("log-probabilities", "missing", "none", "training on these rollouts computes them itself")
        )
        check = "pictures seen"
        findings.append(_of_pictures(text, await _answer(served, [_test_picture()])))
    except PivotError as error:
        what, _, advice = str(error).partition("; ")
        findings.append(Finding(check, "broken", what, advice or "look at the server's log"))
    finally:
        await served.aclose()
    return findings


async def _answer(served: OpenAIModel, pictures: list[EncodedFrame]) -> ChatAnswer:
    """Ask once, within the time of one request; a build would ask again.

    Raises:
        PivotError: no answer came.
    """
    seconds = served.service.request_seconds
    try:
        async with asyncio.timeout(seconds):
            return await served.answer(_request(pictures))
    except TimeoutError:
        slow = "look at the server's log: it is overloaded, or still starting"
        raise ServerGoneError(f"no answer within {seconds:g} s; {slow}") from None


def _of_pictures(text: ChatAnswer, seen: ChatAnswer) -> Finding:
    """Compare the prompt tokens of a request with a picture and one without."""
    before, after = text.call.get("prompt_tokens"), seen.call.get("prompt_tokens")
    if before is None or after is None:
        unsure = "accepted, but the server counts no tokens"
        return Finding("pictures seen", "missing", unsure, "look at some replies yourself")
    if after - before <= 2:
        dropped = f"{after - before} prompt tokens more than without: dropped"
        return Finding("pictures seen", "broken", dropped, "serve a vision-language model, with pictures allowed")
    size = f"{PICTURE_PIXELS}x{PICTURE_PIXELS}"
    return Finding("pictures seen", "ok", f"{after - before} prompt tokens for {size} pixels")


def _request(pictures: list[EncodedFrame]) -> ChatRequest:
    content = [{"type": "image", "frame_id": each.frame_id} for each in pictures]
    name = f"doctor-{len(pictures)}"
    return ChatRequest(
        request_id=name,
        episode_id=name,
        t=None,
        role="student",
        messages=[{"role": "user", "content": [*content, {"type": "text", "text": "Say yes."}]}],
        images={each.frame_id: each for each in pictures},
        prompt_hash=name,
        sampling=Sampling(max_tokens=8),
        seed=1,
        wants_logprobs=True,
    )


def _test_picture() -> EncodedFrame:
    """A green square on red."""
    pixels = np.full((PICTURE_PIXELS, PICTURE_PIXELS, 3), (200, 30, 30), np.uint8)
    pixels[64:192, 64:192] = (30, 160, 30)
    return EncodedFrame.encode(pixels)
