"""A frozen Teacher behind an OpenAI-compatible server that returns log-probabilities of prompts, as vLLM does.

A reply is scored as the end of a prompt: the request has the Teacher's messages and the reply as the assistant's
message, and the answer has the log-probability of each token. The server tokenizes the reply's text again; if the
tokens differ from the sampled ones, or the server refuses the prompt, the turn has no Teacher and is counted.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ....core.errors import TrainingError
from ....core.messages import EncodedFrame, PromptMessages
from ....models.base import ChatAnswer, ChatRequest
from ....models.extras import need
from ....models.openai.model import OpenAIModel
from ....models.openai.wire import data_url
from ....models.service import Service
from ...config import EXTRA
from ...encode import Encoder
from ...tensors import TokenValues
from ..scoring import SAMPLED, Measure, Measured, Row
from .http import PATIENCE_SECONDS, answer_all, post

torch: Any = need("torch", EXTRA)

AT_A_TIME = 16
"""Requests to the server at a time."""
CHAT = "/chat/completions"
PROBE_REPLY = "<think>The way is free.</think><action>up</action>"


class ServedTeacher:
    """A Teacher behind a server: it writes skills and scores replies."""

    def __init__(self, url: str, model: str, student: Encoder, patience: float = PATIENCE_SECONDS) -> None:
        """Use ``model`` of the server at ``url``; ``student`` is the encoder whose tokens are scored."""
        self._url, self._model, self._student, self._patience = url, model, student, patience
        self._pictures: Mapping[str, EncodedFrame] = {}
        self.unscored = 0
        """Number of turns of the last batch without a Teacher."""

    def show(self, pictures: Mapping[str, EncodedFrame]) -> None:
        """Set the pictures of the next prompts, by frame id."""
        self._pictures = pictures

    def check(self, pictures: int) -> None:
        """Check before a run that the server scores prompts with ``pictures`` pictures.

        Raises:
            TrainingError: the server does not; the message names the server to start instead.
            ServerGoneError: the server does not answer.
        """
        shown = [_plain_picture(number) for number in range(pictures)]
        self.show({each.frame_id: each for each in shown})
        parts = [{"type": "image", "frame_id": each.frame_id} for each in shown]
        content = [*parts, {"type": "text", "text": "What is next?"}]
        prompt = PromptMessages("check", "teacher.check", "1", ({"role": "user", "content": content},))
        tokens = tuple(self._student.reply_tokens(PROBE_REPLY))
        try:
            scored = self._scored(Row(prompt, tokens))
        except TrainingError as error:
            raise TrainingError(
                f"{error}; the Teacher of arm sdar needs a server that returns log-probabilities of prompts with "
                f"{pictures} pictures: serve {self._model} with vLLM and "
                f"--limit-mm-per-prompt '{{\"image\": {pictures}}}', or load it here by removing --teacher-url"
            ) from error
        if scored is None:
            raise TrainingError(
                f"{self._url} tokenizes {PROBE_REPLY!r} differently from the Student, expected one vocabulary; "
                "choose a Teacher of the Student's family with --teacher-model"
            )

    def answer(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
        """Return an answer to each request in order, or the error of a request that failed.

        Raises:
            ServerGoneError, ConfigError: no request can be answered.
        """
        model = OpenAIModel(self._model, None, Service(base_url=self._url, cache="", patience_seconds=self._patience))
        return answer_all(model, requests)

    def length(self, row: Row) -> int:
        """Return 0, because the server makes its own batches."""
        del row
        return 0

    def measured(self, rows: Sequence[Row], batches: Sequence[Sequence[int]], measure: Measure) -> dict[int, Measured]:
        """Return the log-probabilities of the replies in ``batches``, by index of the row, and nothing more.

        A row that cannot be scored is left out and counted.

        Raises:
            ServerGoneError: the server does not answer any more.
            TrainingError: it scores no reply.
        """
        del measure
        indices = [index for batch in batches for index in batch]
        refusals: list[TrainingError] = []

        def score_row(index: int) -> TokenValues | None:
            try:
                return self._scored(rows[index])
            except TrainingError as error:
                refusals.append(error)
                return None

        with ThreadPoolExecutor(AT_A_TIME, "pivot-teacher") as threads:
            answers = list(zip(indices, threads.map(score_row, indices), strict=True))
        scores: dict[int, Measured] = {index: {SAMPLED: answer} for index, answer in answers if answer is not None}
        self.unscored = len(indices) - len(scores)
        if indices and not scores:
            reason = str(refusals[0]) if refusals else "it tokenizes each of them differently"
            raise TrainingError(
                f"{self._url} scored none of {len(indices)} replies ({reason}), expected log-probabilities of prompts; "
                "repair the server, then run the same command with --resume"
            )
        return scores

    def _scored(self, row: Row) -> TokenValues | None:
        """Return the log-probabilities of one reply; None if the server tokenizes it differently.

        Raises:
            TrainingError: the server refuses the request, or returns no log-probabilities.
        """
        end, ids = self._student.end, row.tokens
        if set(ids) & set(self._student.placeholders):
            return None
        ends = ids[-1] == end
        text = self._student.tokenizer.decode(ids[:-1] if ends else ids, skip_special_tokens=False)
        answer = post(self._url, CHAT, self._body(row.prompt, text), self._patience)
        logprobs = answer.get("prompt_logprobs") if isinstance(answer, dict) else None
        if not isinstance(logprobs, list) or not all(isinstance(each, dict) and each for each in logprobs[1:]):
            raise TrainingError(f"{self._url} returns no log-probabilities of prompts (prompt_logprobs)")
        tokens = [-1, *(int(next(iter(each))) for each in logprobs[1:])]
        if end not in tokens:
            return None
        stop = len(tokens) - tokens[::-1].index(end) - (0 if ends else 1)
        start = stop - len(ids)
        if start < 1 or tuple(tokens[start:stop]) != tuple(ids):
            return None
        values = [logprobs[index][str(tokens[index])]["logprob"] for index in range(start, stop)]
        return torch.tensor(values, dtype=torch.float32)

    def _body(self, prompt: PromptMessages, reply: str) -> dict[str, Any]:
        messages = [
            {**message, "content": [self._part(part) for part in message["content"]]} for message in prompt.messages
        ]
        return {
            "model": self._model,
            "messages": [*messages, {"role": "assistant", "content": reply}],
            "add_generation_prompt": False,
            "prompt_logprobs": 0,
            "max_tokens": 1,
            "temperature": 0,
        }

    def _part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        if part["type"] != "image":
            return part
        return {"type": "image_url", "image_url": {"url": data_url(self._pictures[part["frame_id"]])}}


def _plain_picture(number: int) -> EncodedFrame:
    return EncodedFrame.encode(np.full((56, 56, 3), 16 * number % 256, np.uint8))
