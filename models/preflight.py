"""The pre-flight check of a model behind a server: one small request of its role before a run begins.

It shows that address, key, model name, pictures and the call cache work, or names the one that does not. Time limits
are short: a server that is to carry a long run is already up, and a server that names a waiting time is given it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core.errors import ConfigError, PivotError, PolicyError, ServerGoneError
from ..core.identity import digest
from .base import ChatAnswer, ChatModel, ChatRequest

SEED = 2**31 - 1
"""Seed of every pre-flight request; seeds of a run have 63 bits."""

PATIENCE_SECONDS = 5.0
"""Duration of failing requests after which the server counts as gone."""
ANSWER_SECONDS = 60.0
"""Longest wait for an answer: the first one after a start may compile kernels."""
ASIDE_SECONDS = 2.0
"""Longest wait for a second request that only refines an error message."""

_PICTURE_TOKENS = 2
"""A picture that the model sees costs more prompt tokens than this."""


class PreflightModel(ChatModel):
    """A model under a pre-flight check: refused requests, which a run would survive, are a wrong set-up here."""

    def __init__(self, model: ChatModel) -> None:
        """Check ``model``, which must not be cached."""
        self._model = model
        self._first = True

    @property
    def config(self) -> dict[str, Any]:
        """Return the config of the model."""
        return self._model.config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer a request; the first one is also sent without its pictures, for comparison.

        Raises:
            ConfigError: the server refuses the request, or drops its pictures.
            ServerGoneError: the server does not answer.
        """
        request = replace(request, seed=SEED)
        if not self._first:
            return await self._model.answer(request)
        self._first = False
        aside = asyncio.create_task(self._aside(request, 1))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._model.answer(request)
            await self._look_for_pictures(request, answer, await _soon(aside))
        except TimeoutError:
            last = f" (last: {request.sent.failure})" if request.sent.failure else ""
            raise ServerGoneError(
                f"no answer to a first small request within {ANSWER_SECONDS:g} s{last}; check the server, then run "
                "the same command again"
            ) from None
        except (PolicyError, ServerGoneError) as error:
            if await _soon(aside) is None:
                if isinstance(error, ServerGoneError):
                    raise
                raise ConfigError(f"a first small request failed: {error}") from error
            raise ConfigError(
                f"the model accepts text but no pictures: {error}; serve a vision-language model with pictures allowed "
                "(vLLM: --limit-mm-per-prompt)"
            ) from error
        finally:
            aside.cancel()
            await asyncio.gather(aside, return_exceptions=True)
        return answer

    async def _look_for_pictures(self, request: ChatRequest, shown: ChatAnswer, plain: ChatAnswer | None) -> None:
        """Refuse a server that silently drops pictures: they add no prompt tokens, although longer texts do."""
        seen, read = _tokens(shown), _tokens(plain)
        if seen is None or read is None or seen - read > _PICTURE_TOKENS:
            return
        longer = _tokens(await _soon(asyncio.create_task(self._aside(request, 2))))
        if longer is not None and longer - read > _PICTURE_TOKENS:
            raise ConfigError(
                f"the server silently drops pictures: a prompt of {read} tokens has {seen} with a picture; serve a "
                "vision-language model (`pivot doctor` checks this)"
            )

    async def _aside(self, request: ChatRequest, times: int) -> ChatAnswer | None:
        """Return the answer to the text alone, repeated ``times`` times; None if the request fails."""
        messages = [_text_alone(message, times) for message in request.messages]
        short = replace(request.sampling, max_tokens=1)
        # Otherwise equal: the first request of any kind determines which fields the server accepts.
        plain = replace(request, messages=messages, images={}, prompt_hash=digest(messages), sampling=short)
        try:
            return await self._model.answer(plain)
        except PivotError:
            return None

    async def aclose(self) -> None:
        """Close the model."""
        await self._model.aclose()


def _text_alone(message: Mapping[str, Any], times: int) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content * times}
    return {**message, "content": [part for part in content if part["type"] == "text"] * times}


def _tokens(answer: ChatAnswer | None) -> int | None:
    return None if answer is None else answer.call.get("prompt_tokens")


async def _soon(task: "asyncio.Task[ChatAnswer | None]") -> ChatAnswer | None:
    """Return the result of a task, or None if it takes longer than ``ASIDE_SECONDS``."""
    done, _ = await asyncio.wait([task], timeout=ASIDE_SECONDS)
    if not done:
        task.cancel()
        return None
    return task.result()
