"""The first meeting of a run with a model behind a server: a small request of its role, before anything is made.

Address, key, name, pictures and the cache are then known to work, or one message says which of them does not. Little
patience is needed: a server that is to carry a long run is up, and one that names a time is given it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import ConfigError, PivotError, PolicyError, ServerGoneError
from ..identity import digest
from .base import ChatAnswer, ChatModel, ChatRequest

SEED = 2**31 - 1
"""Of every request of a meeting; those of a run are drawn from 63 bits."""

PATIENCE_SECONDS = 5.0
"""How long no request may succeed."""
ANSWER_SECONDS = 60.0
"""Longest wait for an answer: the first one after a start may compile kernels."""
ASIDE_SECONDS = 2.0
"""Longest wait for what only tells more about a server that has answered."""

_PICTURE_TOKENS = 2
"""A picture that a model sees costs more prompt tokens than that."""


class Meeting(ChatModel):
    """A model that is met: whatever a run would survive, such as a refused request, is told as a wrong set-up."""

    def __init__(self, model: ChatModel) -> None:
        """Meet ``model``, which no cache stands before."""
        self._model = model
        self._first = True

    @property
    def config(self) -> dict[str, Any]:
        """The model's."""
        return self._model.config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Ask; beside the first request, ask the same without pictures.

        Raises:
            ConfigError: the server refuses the request, or drops its pictures.
            ServerGoneError: there is no answer.
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
            raise ServerGoneError(
                f"no answer to a first small request within {ANSWER_SECONDS:g} s; see to the server, then run the same "
                "command again"
            ) from None
        except PolicyError as error:
            if await _soon(aside) is None:
                raise ConfigError(f"a first small request was in vain: {error}") from error
            raise ConfigError(
                f"the model takes text, but no picture: {error}; serve a vision-language model with pictures allowed "
                "(vLLM: --limit-mm-per-prompt)"
            ) from error
        finally:
            aside.cancel()
            await asyncio.gather(aside, return_exceptions=True)
        return answer

    async def _look_for_pictures(self, request: ChatRequest, shown: ChatAnswer, plain: ChatAnswer | None) -> None:
        """Refuse a server that drops pictures without a word: they cost no tokens where longer texts cost more."""
        seen, read = _tokens(shown), _tokens(plain)
        if seen is None or read is None or seen - read > _PICTURE_TOKENS:
            return
        longer = _tokens(await _soon(asyncio.create_task(self._aside(request, 2))))
        if longer is not None and longer - read > _PICTURE_TOKENS:
            raise ConfigError(
                f"the server drops pictures without a word: a prompt of {read} tokens has {seen} with a picture; serve "
                "a vision-language model that sees (pivot doctor looks at this)"
            )

    async def _aside(self, request: ChatRequest, times: int) -> ChatAnswer | None:
        """Ask with the text alone, so many times over; None where that does not work."""
        messages = [_text_alone(message, times) for message in request.messages]
        short = replace(request.sampling, max_tokens=1)
        # The same in all else: which fields a server knows is found out by whichever request comes first.
        plain = replace(request, messages=messages, images={}, prompt_hash=digest(messages), sampling=short)
        try:
            return await self._model.answer(plain)
        except PivotError:
            return None

    async def aclose(self) -> None:
        """Let go of the model."""
        await self._model.aclose()


def _text_alone(message: Mapping[str, Any], times: int) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content * times}
    return {**message, "content": [part for part in content if part["type"] == "text"] * times}


def _tokens(answer: ChatAnswer | None) -> int | None:
    return None if answer is None else answer.call.get("prompt_tokens")


async def _soon(task: "asyncio.Task[ChatAnswer | None]") -> ChatAnswer | None:
    """Return what a task gives within a moment."""
    done, _ = await asyncio.wait([task], timeout=ASIDE_SECONDS)
    if not done:
        task.cancel()
        return None
    return task.result()
