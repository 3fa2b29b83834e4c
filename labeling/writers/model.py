"""Any chat model as a teacher: it sees the collage and the proved facts, and answers JSON that is checked.

All labels of a shard are asked about at the same time. An answer that cannot be used is asked for once more, with the
objection; what then still fails, and every refusal, becomes a rejected label with a typed reason. A request that got no
answer at all is ``unanswered`` and asked again by the next run. Guidance is never taken from an answer in part.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...errors import PolicyError
from ...identity import derive_seed, digest
from ...messages import Call, EncodedFrame, PromptMessages
from ...models.base import Backend, ChatAnswer, ChatModel, ChatRequest, Sampling
from ...rollouts.ids import request_id
from ..base import UNANSWERED, Guidance, GuidanceRequest, GuidanceWriter, Objection
from .answer import FINAL, Unusable, read_answer
from .prompt import VERSION, answer_schema, collage_of, guidance_prompt

ROLE = "teacher"
ASKED_AGAIN = 1
"""Times that an unusable answer is asked for once more."""

SHOWN_AGAIN_CHARS = 2000
"""How much of an unusable answer the model is shown when it is asked again."""

TEMPERATURE = 0.0
"""Greedy: the facts are given, and the same label should get the same advice."""


class ModelWriter(GuidanceWriter):
    """A teacher on a chat model."""

    served: ClassVar[bool] = True
    needs_pictures: ClassVar[bool] = True

    def __init__(self, backend: Backend) -> None:
        """Write through a model of ``backend``.

        Raises:
            ConfigError: the sampling is out of range.
        """
        super().__init__(backend.settings)
        self.name = backend.name
        self.one_process = backend.one_process
        self.sampling: Sampling = backend.settings.sampling(TEMPERATURE)
        self._backend = backend

    def check(self) -> None:
        """See whether everything that the model needs is installed.

        Raises:
            PluginError: something is missing.
        """
        self._backend.check()

    @property
    def config(self) -> dict[str, Any]:
        """Model, revision, sampling and the version of the prompt: all that decides the texts."""
        return {**self._backend.config, "sampling": self.sampling.row(), "prompt_version": VERSION}

    def prompt(self, request: GuidanceRequest) -> PromptMessages:
        """Return what the model is shown of a request at first."""
        return guidance_prompt(request, collage_of(request))

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Answer ``requests``, in order; a request that got no answer is ``unanswered``.

        Raises:
            ServerGoneError: nobody gets an answer; the run stops and can be gone on with.
            ConfigError, PluginError: the model cannot be used with these settings.
        """
        return asyncio.run(self._write(requests)) if requests else []

    async def _write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        model = self._backend.connect()
        places = asyncio.Semaphore(self._backend.in_flight)
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._guidance(model, request, places)) for request in requests]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        finally:
            await model.aclose()
        return [each.result() for each in asked]

    async def _guidance(self, model: ChatModel, request: GuidanceRequest, places: asyncio.Semaphore) -> Guidance:
        """Ask about one label, once more when the answer cannot be used."""
        calls: list[Call] = []
        async with places:
            picture = collage_of(request)
            prompt = guidance_prompt(request, picture)
            for sample in range(1 + ASKED_AGAIN):
                chat = self._chat(request, prompt, picture, sample)
                try:
                    answer = await model.answer(chat)
                except PolicyError as error:
                    return Guidance("", Objection(UNANSWERED, str(error)), (*calls, _call(chat, error.call)))
                calls.append(_call(chat, answer.call))
                found = read_answer(answer, request)
                if isinstance(found, str):
                    return Guidance(found, None, tuple(calls))
                if found.problem in FINAL or sample == ASKED_AGAIN:
                    return Guidance("", Objection(found.problem, found.detail), tuple(calls))
                prompt = _with_objection(prompt, answer, found)
        raise AssertionError("unreachable: the last try returns")

    def _chat(
        self, request: GuidanceRequest, prompt: PromptMessages, picture: EncodedFrame, sample: int
    ) -> ChatRequest:
        episode, step = request.episode.episode_id, request.verdict.pivot_step
        return ChatRequest(
            request_id=request_id(episode, step, f"{ROLE}.{sample}"),
            episode_id=episode,
            t=None,
            role=ROLE,
            messages=prompt.messages,
            images={picture.frame_id: picture},
            prompt_hash=prompt.prompt_hash,
            sampling=self.sampling,
            seed=derive_seed(episode, ROLE),
            sample=sample,
            json_schema=answer_schema(request),
            usable=lambda answer: isinstance(read_answer(answer, request), str),
        )


def _with_objection(prompt: PromptMessages, answer: ChatAnswer, found: Unusable) -> PromptMessages:
    """Return the prompt of the second try: the first one, the answer, and what was wrong with it."""
    objection = (
        f"That answer cannot be used: {found.detail}. Answer again: one JSON object of the shape asked for, without "
        "anything around it."
    )
    messages = (
        *prompt.messages,
        {"role": "assistant", "content": [{"type": "text", "text": _shown(answer.text)}]},
        {"role": "user", "content": [{"type": "text", "text": objection}]},
    )
    return PromptMessages(digest(messages), prompt.template, prompt.version, messages)


def _shown(text: str) -> str:
    """Return what of an answer may be sent back: its beginning, as valid Unicode."""
    return text[:SHOWN_AGAIN_CHARS].encode("utf-8", "replace").decode("utf-8") or "(empty)"


def _call(request: ChatRequest, report: Mapping[str, Any]) -> Call:
    return Call(request.request_id, request.episode_id, None, ROLE).reported(report)
