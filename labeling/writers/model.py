"""Any chat model as a teacher: it sees the collage and the proved facts, and chooses by JSON what guidance says.

Labels of several shards are asked about in one event loop, so that the model is kept busy across them; the collage is
composed and encoded once a label, whatever is made of it. An answer that cannot be used is asked for once more, with
the objection; what then still fails, and every refusal, becomes a rejected label with a typed reason. A request that
got no answer at all is ``unanswered`` and asked again by the next run. Guidance is never taken from an answer in part.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ...core.errors import ConfigError, PolicyError
from ...core.identity import derive_seed, digest
from ...core.images import frame_id
from ...core.messages import Call, EncodedFrame, PromptMessages, cut_reply
from ...models.base import Backend, ChatAnswer, ChatModel, ChatRequest, Sampling
from ...models.preflight import PreflightModel
from ...rollouts.base import request_id
from ..base import UNANSWERED, Guidance, GuidanceRequest, Objection
from .answer import FINAL, Unusable, read_answer
from .concurrent import ConcurrentWriter, PreparedRequest
from .example import ENDS, example_request
from .prompt import VERSION, answer_schema, collage_of, guidance_prompt

ROLE = "teacher"
ASKED_AGAIN = 1
"""Times that an unusable answer is asked for once more."""

SHOWN_AGAIN_CHARS = 2000
"""Characters of an unusable answer that the model is shown when it is asked again."""

NO_JSON = frozenset({"not_json", "empty", "truncated", "too_long"})
"""Problems of an answer that show a server without structured output whose model cannot do without."""

TEMPERATURE = 0.0
"""Greedy: the facts are given, and the same label should get the same advice."""


class ModelWriter(ConcurrentWriter):
    """A teacher on a chat model."""

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
        self._model: ChatModel | None = None

    def check(self) -> None:
        """Check that everything that the model needs is installed.

        Raises:
            PluginError: something is missing.
        """
        self._backend.check()

    @property
    def config(self) -> dict[str, Any]:
        """Model, revision, sampling and the version of the prompt: all that decides the texts."""
        return {**self._backend.config, "sampling": self.sampling.row(), "prompt_version": VERSION}

    async def preflight(self) -> None:
        """Ask for guidance on examples until the answer is JSON; see the base class for the errors."""
        if self._backend.one_process:
            return
        self._model = PreflightModel(self._backend.connect_for_preflight())
        problem: Objection | None = None
        try:
            for number in range(len(ENDS)):
                problem = (await self.answer(self.prepare(example_request(number)))).problem
                if problem is None or problem.kind not in NO_JSON:
                    return
        finally:
            await self.aclose()
        raise ConfigError(
            f"model {self._backend.settings.model!r} answers no JSON where guidance is asked for, even when asked "
            f"again ({problem}); serve it with structured output (vLLM has it), or name another with --model"
        )

    @property
    def in_flight(self) -> int:
        """Number of concurrent requests that keeps the model busy."""
        return self._backend.in_flight

    def prompt(self, request: GuidanceRequest) -> PromptMessages:
        """Return what the model is shown of a request at first."""
        return guidance_prompt(request, frame_id(collage_of(request)))

    def prepare(self, request: GuidanceRequest) -> PreparedRequest:
        """Compose and encode the collage and render the prompt."""
        picture = EncodedFrame.encode(collage_of(request))
        return PreparedRequest(replace(request, frames={}), guidance_prompt(request, picture.frame_id), picture)

    async def answer(self, prepared: PreparedRequest) -> Guidance:
        """Ask about one label, once more when the answer cannot be used; see the base class for the errors."""
        if self._model is None:
            self._model = self._backend.connect()
        request, prompt = prepared.request, prepared.prompt
        calls: list[Call] = []
        for sample in range(1 + ASKED_AGAIN):
            chat = self._chat(request, prompt, prepared.picture, sample)
            try:
                answer = await self._model.answer(chat)
            except PolicyError as error:
                calls.append(_call(chat, error.call, None))
                return Guidance("", Objection(UNANSWERED, str(error)), tuple(calls), prepared.prompt)
            report = {**answer.call, "finish_reason": answer.finish_reason}
            calls.append(_call(chat, report, cut_reply(answer.text or answer.refusal or "")))
            reading = read_answer(answer, request)
            if isinstance(reading, Guidance):
                return replace(reading, calls=tuple(calls), prompt=prepared.prompt)
            if reading.problem in FINAL or sample == ASKED_AGAIN:
                return Guidance("", Objection(reading.problem, reading.detail), tuple(calls), prepared.prompt)
            prompt = _with_objection(prompt, answer, reading)
        raise AssertionError("unreachable: the last try returns")

    async def aclose(self) -> None:
        """Release the model."""
        model, self._model = self._model, None
        if model is not None:
            await model.aclose()

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
            usable=lambda answer: isinstance(read_answer(answer, request), Guidance),
        )


def _with_objection(prompt: PromptMessages, answer: ChatAnswer, reading: Unusable) -> PromptMessages:
    """Return the prompt of the second try: the first one, the answer, and what was wrong with it."""
    objection = (
        f"That answer cannot be used: {reading.detail}. Answer again: one JSON object of the shape asked for, without "
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


def _call(request: ChatRequest, report: Mapping[str, Any], answer: str | None) -> Call:
    return Call(request.request_id, request.episode_id, None, ROLE, answer=answer).reported(report)
