"""A frozen Teacher behind an OpenAI-compatible server that gives log-probabilities of prompts, as vLLM does.

A reply is scored as the end of a prompt: the server gets the Teacher's messages with the reply as the assistant's, and
says how likely each token of it was. It makes tokens of the reply's text anew; where these are not the sampled ones, or
the server refuses the prompt, the turn has no Teacher and is counted. Pictures go to the server one by one.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ....errors import TrainingError
from ....messages import EncodedFrame, PromptMessages
from ....models.base import ChatAnswer, ChatRequest
from ....models.extras import need
from ....models.openai.model import OpenAIModel
from ....models.openai.wire import data_url
from ....models.service import Service
from ...encode import EXTRA, Encoder
from ...tensors import Tensor
from ..scoring import Row
from .http import PATIENCE_SECONDS, answer_all, post

torch: Any = need("torch", EXTRA)

AT_A_TIME = 16
"""Prompts that are scored at the server together."""
CHAT = "/chat/completions"
PROBE_REPLY = "<think>The way is free.</think><action>up</action>"


class ServedTeacher:
    """The Teacher's two parts: it writes skills, and scores replies."""

    def __init__(self, url: str, model: str, student: Encoder, patience: float = PATIENCE_SECONDS) -> None:
        """Name server and model; ``student`` makes the tokens that are scored."""
        self._url, self._model, self._student, self._patience = url, model, student, patience
        self._pictures: Mapping[str, EncodedFrame] = {}
        self.unscored = 0
        """Turns of the last batch that have no Teacher."""

    def show(self, pictures: Mapping[str, EncodedFrame]) -> None:
        """Take the pictures of the prompts to come."""
        self._pictures = pictures

    def check(self, pictures: int) -> None:
        """See, before a run, that the server does all that will be asked of it, with so many pictures in a prompt.

        Raises:
            TrainingError: it does not; the message says what to start instead.
            ServerGoneError: nobody answers.
        """
        shown = [_plain_picture(number) for number in range(pictures)]
        self.show({each.frame_id: each for each in shown})
        parts = [{"type": "image", "frame_id": each.frame_id} for each in shown]
        asked = [*parts, {"type": "text", "text": "What is next?"}]
        prompt = PromptMessages("check", "teacher.check", "1", ({"role": "user", "content": asked},))
        tokens = tuple(self._student.reply_tokens(PROBE_REPLY))
        try:
            scored = self._scored(Row(prompt, tokens))
        except TrainingError as error:
            raise TrainingError(
                f"{error}; the Teacher of arm sdar needs a server that gives log-probabilities of prompts with "
                f"{pictures} pictures: serve {self._model} with vLLM and "
                f"--limit-mm-per-prompt '{{\"image\": {pictures}}}', or load it here by leaving --teacher-url away"
            ) from error
        if scored is None:
            raise TrainingError(
                f"{self._url} makes other tokens of {PROBE_REPLY!r} than the Student does, expected one vocabulary; "
                "choose a Teacher of the Student's family with --teacher-model"
            )

    def answer(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
        """Answer requests in order; one that cannot be answered gets its error.

        Raises:
            ServerGoneError, ConfigError: none can be.
        """
        model = OpenAIModel(self._model, None, Service(base_url=self._url, cache="", patience_seconds=self._patience))
        return answer_all(model, requests)

    def length(self, row: Row) -> int:
        """Return 0: the server cuts its own micro-batches."""
        del row
        return 0

    def score(self, rows: Sequence[Row], batches: Sequence[Sequence[int]]) -> dict[int, Tensor]:
        """Return the log-probabilities of the replies of the rows that ``batches`` name, by place.

        A row that cannot be scored is left out and counted.

        Raises:
            ServerGoneError: the server does not answer any more.
            TrainingError: it scores none of them.
        """
        places = [place for batch in batches for place in batch]
        refusals: list[TrainingError] = []

        def scored(place: int) -> Tensor | None:
            try:
                return self._scored(rows[place])
            except TrainingError as error:
                refusals.append(error)
                return None

        with ThreadPoolExecutor(AT_A_TIME, "pivot-teacher") as threads:
            answers = list(zip(places, threads.map(scored, places), strict=True))
        known = {place: answer for place, answer in answers if answer is not None}
        self.unscored = len(places) - len(known)
        if places and not known:
            reason = str(refusals[0]) if refusals else "it makes other tokens of each of them"
            raise TrainingError(
                f"{self._url} scored none of {len(places)} replies ({reason}), expected log-probabilities of prompts; "
                "look at the server, then run the same command with --resume"
            )
        return known

    def _scored(self, row: Row) -> Tensor | None:
        """Return the log-probabilities of one reply, shape (tokens,); None where its tokens are not the server's.

        Raises:
            TrainingError: the server refuses, or gives no log-probabilities.
        """
        end, ids = self._student.end, row.tokens
        if set(ids) & set(self._student.placeholders):
            return None
        ends = ids[-1] == end
        text = self._student.tokenizer.decode(ids[:-1] if ends else ids, skip_special_tokens=False)
        answer = post(self._url, CHAT, self._body(row.prompt, text), self._patience)
        told = answer.get("prompt_logprobs") if isinstance(answer, dict) else None
        if not isinstance(told, list) or not all(isinstance(each, dict) and each for each in told[1:]):
            raise TrainingError(f"{self._url} gives no log-probabilities of prompts (prompt_logprobs)")
        tokens = [-1, *(int(next(iter(each))) for each in told[1:])]
        if end not in tokens:
            return None
        stop = len(tokens) - tokens[::-1].index(end) - (0 if ends else 1)
        start = stop - len(ids)
        if start < 1 or tuple(tokens[start:stop]) != tuple(ids):
            return None
        values = [told[place][str(tokens[place])]["logprob"] for place in range(start, stop)]
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
