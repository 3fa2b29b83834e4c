"""``pivot doctor --base-url URL --model NAME``: whether a model server can do what a long run will ask of it.

Six small requests, each with a verdict and what to do about it: reachable, model present, text answered, pictures seen
(they must cost prompt tokens: some servers drop them without a word), log-probabilities, structured output. The last
two are worth having and not needed: steps without log-probabilities and freely written guidance are stored as well.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..core.errors import BrokenOffError, ConfigError
from ..core.messages import EncodedFrame, cut_reply
from ..core.plugins import read_settings
from ..models.address import KEY_VARIABLE, censored, secrets_of
from ..models.extras import need
from ..models.openai.failures import connection_failure
from ..models.openai.model import FIRST_SERVER_ERROR, OpenAIModel
from ..models.openai.proxy import LOGIN_WANTED, is_about, proxy_of, speaks, status_of
from ..models.openai.wire import GarbledAnswerError, WireAnswer, data_url, read_answer
from ..models.service import Service

SECONDS = 60.0
"""Longest wait for one request; the first one after a start may compile kernels."""

PICTURE_PIXELS = 256
"""Side of the test picture; a model with patches of 28 pixels spends about 80 tokens on it."""

State = Literal["ok", "missing", "unknown", "broken"]
"""Verdict of a check; ``unknown`` where no answer came to a request for something that is not needed."""

PROXY_ADVICE = "fix HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, or name the server's host in NO_PROXY"

LOGIN_STATUSES = (401, 403, LOGIN_WANTED)

NO_ROOT = (
    "the server does not name the checkpoint; name it with --revision, so that no answer of another passes for its"
)

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "green"]}},
    "required": ["colour"],
    "additionalProperties": False,
}


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
    fields = {"key_variable": key_variable} | ({} if base_url is None else {"base_url": base_url})
    service = read_settings(Service, fields, "")
    return asyncio.run(Checker(service, model).run())


class _FailedError(Exception):
    """One request failed; the text says how, ``advice`` what to do where that is known."""

    def __init__(self, text: str, advice: str = "", status: int | None = None) -> None:
        super().__init__(text)
        self.advice = advice
        self.status = status
        """Status of the server's own answer; None where it gave none."""

    def of_extra(self, check: str, advice: str) -> Finding:
        """Return the finding for something that a run can do without: a refusal shows that the server lacks it."""
        if self.status is not None and self.status < FIRST_SERVER_ERROR:
            return Finding(check, "missing", str(self), advice)
        return Finding(check, "unknown", str(self), self.advice or "look at the server's log, and check again")


class Checker:
    """Asks one server, a request after the other."""

    def __init__(self, service: Service, model: str) -> None:
        """Check ``model`` at the address of ``service``."""
        self._service = service
        self._model = model
        self._served = OpenAIModel(model, None, service)
        self._sdk = need("openai", "openai")
        self._proxy = proxy_of(service.base_url)
        proxy_secrets = () if self._proxy is None else self._proxy.secrets
        self._secrets = [*secrets_of(service.base_url, service.key_variable), *proxy_secrets]
        self._names: dict[str, str | None] = {}
        self._text_tokens: int | None = None

    async def run(self) -> list[Finding]:
        """Return the findings, up to the first that makes the rest pointless."""
        findings: list[Finding] = []
        steps: list[tuple[Callable[[], Awaitable[Finding]], bool]] = [
            (self._reachable, True),
            (self._present, True),
            (self._text, True),
            (self._pictures, False),
            (self._logprobs, False),
            (self._structured, False),
        ]
        try:
            for step, needed in steps:
                findings.append(await step())
                if needed and findings[-1].state == "broken":
                    break
        finally:
            await self._served.aclose()
        return findings

    async def _safely(self, work: Awaitable[Any]) -> Any:
        """Await a request; whatever goes wrong becomes one short text."""
        try:
            async with asyncio.timeout(SECONDS):
                return await work
        except TimeoutError:
            slow = "look at the server's log: it is overloaded, or still starting"
            raise _FailedError(f"no answer within {SECONDS:g} s", slow) from None
        except self._sdk.APIStatusError as error:
            speaker = speaks(self._proxy, error.status_code, error.response.headers, error.body)
            said = f"status {error.status_code}{f' from {speaker}' if speaker else ''}: {self._shown(error.message)}"
            advice = PROXY_ADVICE if speaker else self._status_advice(error.status_code)
            raise _FailedError(said, advice, None if speaker else error.status_code) from error
        except (GarbledAnswerError, BrokenOffError) as error:
            raise _FailedError(self._shown(str(error)), status=200) from error
        except self._sdk.APIError as error:
            if self._proxy is not None and is_about(error):
                status = status_of(error)
                said = "does not answer" if status is None else f"does not connect us: status {status}"
                raise _FailedError(f"{self._proxy} {said}", PROXY_ADVICE) from error
            if failure := connection_failure(error, self._service.base_url):
                raise _FailedError(failure.what, failure.advice) from error
            cause = error.__cause__ or error
            raise _FailedError(self._shown(f"{type(cause).__name__}: {cause}")) from error

    def _status_advice(self, status: int) -> str:
        if status in (401, 403):
            return f"set {self._service.key_variable} to a key that it takes"
        return "check the address: it usually ends in /v1"

    def _shown(self, text: str) -> str:
        return cut_reply(censored(" ".join(text.split()), self._secrets), 200)

    async def _ask(self, content: list[dict[str, Any]], **fields: Any) -> WireAnswer:
        """Ask one question.

        Raises:
            _FailedError: no answer came, or one that is not a chat completion.
        """
        body = {"model": self._model, "messages": [{"role": "user", "content": content}]}
        body |= {"max_tokens": 8, "temperature": 1.0, "seed": 1} | fields
        return await self._safely(self._answer(body))

    async def _answer(self, body: dict[str, Any]) -> WireAnswer:
        return read_answer(await self._served.send(json.dumps(body).encode()))

    # The checks, in order

    async def _reachable(self) -> Finding:
        url = self._service.base_url
        try:
            self._names = await self._safely(self._served.models())
        except _FailedError as failed:
            if failed.status not in (None, *LOGIN_STATUSES):  # builds accept a server without a list of models
                return await self._without_list(failed)
            start = f"start it (`pivot serve-command {self._model}` shows how), or give its address with --base-url"
            return Finding("reachable", "broken", str(failed), failed.advice or start)
        return Finding("reachable", "ok", url)

    async def _without_list(self, failed: _FailedError) -> Finding:
        try:
            if failed.status == 404:
                await self._served.look_below()
        except ConfigError as error:
            what, _, advice = str(error).rpartition("; ")
            return Finding("reachable", "broken", what, advice)
        return Finding("reachable", "ok", f"{self._service.base_url}, without a list of models: {failed}")

    async def _present(self) -> Finding:
        if not self._names:
            return Finding("model present", "unknown", "the server lists no models", NO_ROOT)
        if self._model in self._names:
            root = self._names[self._model]
            return Finding("model present", "ok", self._shown(root or self._model), "" if root else NO_ROOT)
        shown = self._shown(", ".join([*self._names][:5])) or "none"
        return Finding("model present", "broken", f"the server has: {shown}", "give one of these with --model")

    async def _text(self) -> Finding:
        try:
            answer = await self._ask([_said("Say yes.")])
        except _FailedError as failed:
            return Finding("text answered", "broken", str(failed), failed.advice or "look at the server's log")
        self._text_tokens = answer.prompt_tokens
        return Finding("text answered", "ok", f"{_tokens(answer)} reply tokens")

    async def _pictures(self) -> Finding:
        picture = {"type": "image_url", "image_url": {"url": data_url(_test_picture())}}
        try:
            answer = await self._ask([picture, _said("Say yes.")])
        except _FailedError as failed:
            advice = "serve a vision-language model, with pictures allowed (vLLM: --limit-mm-per-prompt)"
            return Finding("pictures seen", "broken", str(failed), failed.advice if failed.status is None else advice)
        if answer.prompt_tokens is None or self._text_tokens is None:
            return Finding(
                "pictures seen", "missing", "accepted, but the server counts no tokens", "look at some replies yourself"
            )
        extra = answer.prompt_tokens - self._text_tokens
        if extra <= 2:
            return Finding(
                "pictures seen",
                "broken",
                f"{extra} prompt tokens more than without: dropped",
                "serve a model that sees",
            )
        return Finding("pictures seen", "ok", f"{extra} prompt tokens for {PICTURE_PIXELS}x{PICTURE_PIXELS} pixels")

    async def _logprobs(self) -> Finding:
        advice = "steps are stored without them; training on these rollouts then computes them itself"
        try:
            answer = await self._ask([_said("Say yes.")], logprobs=True)
        except _FailedError as failed:
            return failed.of_extra("log-probabilities", advice)
        values = answer.logprobs
        if not values:
            return Finding("log-probabilities", "missing", "the answer has none that are numbers up to 0", advice)
        if min(values) < -1e4:
            return Finding("log-probabilities", "missing", f"down to {min(values):g}: invalid", advice)
        ids = await self._token_ids()
        return Finding(
            "log-probabilities",
            "ok",
            f"{len(values)} of {_tokens(answer)} tokens, {'with' if ids else 'without'} token ids",
            "" if ids else "token ids come from vLLM 0.10.2 on; without them replies are tokenised again for training",
        )

    async def _token_ids(self) -> bool:
        try:
            answer = await self._ask([_said("Say yes.")], return_token_ids=True)
        except _FailedError:
            return False
        return bool(answer.token_ids)

    async def _structured(self) -> Finding:
        advice = "a teacher then writes JSON freely and is asked again if that fails; more answers are rejected"
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
        try:
            answer = await self._ask(
                [_said("Which colour has grass? JSON with the field colour.")], response_format=schema, max_tokens=64
            )
        except _FailedError as failed:
            return failed.of_extra("structured output", advice)
        text = answer.text
        try:
            kept = json.loads(text).keys() == {"colour"}
        except (ValueError, AttributeError):
            kept = False
        if not kept:
            return Finding("structured output", "missing", f"not of the schema: {self._shown(text)}", advice)
        return Finding("structured output", "ok", self._shown(text))


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tokens(answer: WireAnswer) -> int | str:
    return "?" if answer.completion_tokens is None else answer.completion_tokens


def _test_picture() -> EncodedFrame:
    """A green square on red."""
    pixels = np.full((PICTURE_PIXELS, PICTURE_PIXELS, 3), (200, 30, 30), np.uint8)
    pixels[64:192, 64:192] = (30, 160, 30)
    return EncodedFrame.encode(pixels)
