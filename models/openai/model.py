"""A model behind an OpenAI-compatible server, on the official SDK.

Every request is tried until it is answered, refused for good, or the server counts as gone: 429 (after the time that
the server names), 5xx, time-outs, dropped connections and garbled answers are tried again after a pause that grows and
is drawn at random; no other 4xx ever is. How many requests are in flight follows the server (``pacing``). The SDK's own
retries are off, so that ``attempts`` in the ``calls`` table counts what was sent.
"""

import asyncio
import time
from collections.abc import Mapping
from random import Random
from typing import Any

from ...errors import ConfigError, PolicyError, ServerGoneError
from ...messages import cut_reply
from ..address import KEY_VARIABLE, censored, secrets_of, split_query
from ..base import ChatAnswer, ChatModel, ChatRequest
from ..extras import need
from ..pacing import BROKEN, CROWDED, START, AdaptiveLimit, Breaker
from ..service import Service
from .connection import connect, retry_after, transport_errors
from .wire import LEVELS, GarbledAnswerError, RequestEncoder, WireAnswer, read_answer

CHAT, MODELS = "/chat/completions", "/models"
PACKAGES = ("openai", "httpx2", "tenacity")
"""What the extra brings."""

ERROR_BYTES = 300
"""How much of a server's error message is quoted."""

FIRST_CONTACT_SECONDS = 10.0
"""How long a server that was never reached may keep silent before the run says so."""

_TRY_AGAIN = frozenset({429, *range(500, 600)})
_SETUP_IS_WRONG = frozenset({401, 403, 404, 405})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CROWDED = frozenset({429, 503})
"""Statuses by which a server says that it has too much to do."""


_taken: dict[str, int] = {}
"""How many requests at a time servers took from this process lately, by address."""


class _TryAgainError(Exception):
    """One try failed in a way that another may not."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class OpenAIModel(ChatModel):
    """A chat model behind a server. Bound to the event loop of its first request."""

    def __init__(self, model: str, revision: str | None = None, service: Service | None = None) -> None:
        """Talk to ``model`` at the address of ``service``; nothing is sent before the first request.

        Raises:
            PluginError: the extra is not installed.
        """
        self.model = model
        self.revision = revision
        self.service = service or Service()
        self.limit = AdaptiveLimit(self.service.max_concurrency, _taken.get(self.service.base_url, START))
        self._sdk, self._http, self._tenacity = (need(package, "openai") for package in PACKAGES)
        self._encoder = RequestEncoder(model)
        self._breaker = Breaker(self.service.base_url, self.service.patience_seconds, time.monotonic)
        self._secrets = secrets_of(self.service.base_url)
        self._jitter = Random()  # pauses decide no byte
        self._client: Any = None
        self._met = False
        self._meeting = asyncio.Lock()
        self._level = 0
        self._level_is_known = False

    @property
    def config(self) -> dict[str, Any]:
        """Model and revision; the address is not part of it."""
        return model_config(self.model, self.revision)

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request; the errors are those of :meth:`ChatModel.answer`."""
        if not self._met:
            await self.meet()
        answers_before = self._breaker.answers
        attempts = 0

        def has_had_enough(state: Any) -> bool:
            # As long as nobody is answered the breaker decides, not the number of tries: the server may be restarting.
            return state.attempt_number >= self.service.tries and self._breaker.answers > answers_before

        retrying = self._tenacity.AsyncRetrying(
            retry=self._tenacity.retry_if_exception_type(_TryAgainError),
            wait=self._pause,
            stop=has_had_enough,
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    attempts += 1
                    answer, seconds = await self._try(request)
                    return self._chat_answer(request, answer, attempts, seconds)
        except _TryAgainError as error:
            raise PolicyError(
                f"no answer from {self.service.base_url} in {attempts} tries (last: {error})", {"attempts": attempts}
            ) from error
        raise AssertionError("the loop above returns or raises")

    def _pause(self, state: Any) -> float:
        """Return the seconds before the next try: doubling, drawn at random, never less than the server asked for."""
        error = state.outcome.exception()
        doubled = self.service.pause_seconds * 2 ** min(state.attempt_number - 1, 30)
        drawn = min(doubled, self.service.longest_pause) * self._jitter.uniform(0.5, 1.0)
        return max(drawn, error.retry_after or 0.0)

    def _chat_answer(self, request: ChatRequest, answer: WireAnswer, attempts: int, seconds: float) -> ChatAnswer:
        # A server with a reasoning parser takes the thoughts out of the reply that the grammar wants to see whole.
        thought = f"<think>{answer.reasoning}</think>" if answer.reasoning and request.role == "student" else ""
        return ChatAnswer(
            text=thought + answer.text,
            finish_reason=answer.finish_reason,
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            tokens=answer.tokens if request.wants_tokens else None,
            refusal=answer.refusal,
            call={
                "attempts": attempts,
                "latency": seconds,
                "prompt_tokens": answer.prompt_tokens,
                "completion_tokens": answer.completion_tokens,
                "cost": self.service.cost(answer.prompt_tokens, answer.completion_tokens),
                "cache_hit": False,
                "model_revision": self.revision or answer.revision,
            },
        )

    async def _try(self, request: ChatRequest) -> tuple[WireAnswer, float]:
        """Send the request once, at most once for each level of fields where the server refuses some; time in seconds.

        Raises:
            _TryAgainError, PolicyError, ConfigError, ServerGoneError
        """
        level = self._level
        while True:
            asked_in = await self.limit.acquire()
            started = time.monotonic()
            try:
                async with asyncio.timeout(self.service.request_seconds):
                    raw = await self.send(self._encoder.body(request, LEVELS[level]))
                answer = read_answer(raw)
            except (TimeoutError, self._sdk.APIConnectionError, GarbledAnswerError) as error:
                if not isinstance(error, GarbledAnswerError):
                    self.limit.complained(asked_in, BROKEN)
                raise self._failed(self._told(error)) from error
            except self._sdk.APIStatusError as error:
                status = error.status_code
                if status in (400, 422):
                    next_level = self._level if self._level_is_known else level + 1
                    if level < next_level < len(LEVELS):  # others may have found the level out meanwhile
                        level = next_level
                        continue
                raise self._judged(error, asked_in) from error
            finally:
                self.limit.release()
            seconds = time.monotonic() - started
            self._level, self._level_is_known = level, True
            self._breaker.answered()
            if seconds > self.service.request_seconds / 2:
                self.limit.complained(asked_in, CROWDED)  # the queue of the server is longer than our patience
            else:
                self.limit.answered(seconds)
            return answer, seconds

    async def send(self, body: bytes) -> bytes:
        """Send a request's body once, as it is; return the body of the answer.

        Raises:
            openai.APIError: what went wrong, on the wire or above.
        """
        with transport_errors(self._sdk):
            response = await self._connected().post(CHAT, cast_to=self._http.Response, content=body)
            return response.content

    def _failed(self, reason: str, retry_after: float | None = None) -> _TryAgainError:
        self._breaker.failed(reason, retry_after or 0.0)
        return _TryAgainError(reason, retry_after)

    def _told(self, error: Exception) -> str:
        """Say what went wrong below HTTP."""
        if isinstance(error, TimeoutError):
            return f"no whole answer within {self.service.request_seconds:g} s"
        cause = error.__cause__ if isinstance(error, self._sdk.APIConnectionError) else error
        shown = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
        return cut_reply(censored(shown, self._secrets), ERROR_BYTES)

    def _judged(self, error: Any, asked_in: int) -> Exception:
        """Return what an error status means for the request."""
        status: int = error.status_code
        reason = f"status {status}: {self._quoted(error)}"
        where = self.service.base_url
        if error.code == "insufficient_quota":
            return ServerGoneError(
                f"{where} says that the account's quota is spent ({reason}); finished episodes are kept"
            )
        if status in _TRY_AGAIN:
            if status in _CROWDED:
                self.limit.complained(asked_in, CROWDED)
            return self._failed(reason, retry_after(error.response.headers))
        if status in _SETUP_IS_WRONG or status in _REDIRECTS:
            return self._wrong_setup(status, reason, error.response.headers)
        self._breaker.refused(status, reason)
        return PolicyError(f"{where} refused the request ({reason})", {"attempts": 1})

    def _wrong_setup(self, status: int, reason: str, headers: Mapping[str, str]) -> ConfigError:
        where = self.service.base_url
        if status in (401, 403):
            return ConfigError(f"{where} refuses the credentials ({reason}); set {KEY_VARIABLE} to a key that it takes")
        if status in _REDIRECTS:
            there = cut_reply(censored(headers.get("location", "nowhere"), self._secrets), ERROR_BYTES)
            return ConfigError(f"{where} sends its visitors to {there!r} (status {status}); give that with --base-url")
        return ConfigError(
            f"{where}{CHAT} is not there for model {self.model!r} ({reason}); check --base-url (it usually ends in "
            "/v1) and --model"
        )

    def _quoted(self, error: Any) -> str:
        body = error.body
        message = body.get("message") if isinstance(body, dict) else None
        text = message if isinstance(message, str) else str(error.message)
        return cut_reply(censored(" ".join(text.split()), self._secrets), ERROR_BYTES)

    # First contact

    async def meet(self) -> None:
        """Ask the server for its models once, so that a wrong address or name is one clear message.

        A server that has no such list, or cannot give it now, is taken as it is.

        Raises:
            ConfigError: the credentials, the address or the model are wrong.
            ServerGoneError: no server answers at the address.
        """
        async with self._meeting:
            if self._met:
                return
            give_up = time.monotonic() + min(FIRST_CONTACT_SECONDS, self.service.patience_seconds)
            while True:
                try:
                    async with asyncio.timeout(FIRST_CONTACT_SECONDS):
                        known = await self.models()
                except TimeoutError:
                    raise ServerGoneError(
                        f"{self.service.base_url} took a connection and said nothing for {FIRST_CONTACT_SECONDS:g} s; "
                        "see to the server, then run the same command again"
                    ) from None
                except GarbledAnswerError:
                    known = None
                except self._sdk.APIConnectionError as error:
                    if time.monotonic() < give_up:
                        await asyncio.sleep(min(1.0, self.service.patience_seconds / 10))
                        continue
                    raise ServerGoneError(
                        f"no server answers at {self.service.base_url} ({self._told(error)}); start it "
                        f"(`pivot serve-command {self.model}` shows how), or give its address with --base-url"
                    ) from error
                except self._sdk.APIStatusError as error:
                    known = None
                    if error.status_code in (401, 403):
                        raise self._judged(error, 0) from error
                    if error.status_code == 404:
                        await self._look_below()
                if known and self.model not in known:
                    shown = ", ".join(sorted(known)[:5])
                    raise ConfigError(
                        f"the server at {self.service.base_url} has no model {self.model!r}; it has: {shown}"
                        f"{' ...' if len(known) > 5 else ''}; choose one with --model"
                    )
                self._met = True
                return

    async def models(self) -> list[str]:
        """Return the names of the server's models.

        Raises:
            GarbledAnswerError: something else answers at the address; the SDK's errors otherwise.
        """
        with transport_errors(self._sdk):
            response = await self._connected().get(MODELS, cast_to=self._http.Response)
        try:
            rows = response.json()["data"]
            return [str(row["id"]) for row in rows]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise GarbledAnswerError("no list of models") from error

    async def _look_below(self) -> None:
        """Say so when the interface is at ``/v1`` of the given address."""
        below = f"{split_query(self.service.base_url)[0]}/v1"
        try:
            async with asyncio.timeout(FIRST_CONTACT_SECONDS):
                response = await self._connected().get(f"{below}{MODELS}", cast_to=self._http.Response)
        except (TimeoutError, self._sdk.APIError):
            return
        if response.status_code == 200:
            raise ConfigError(f"{self.service.base_url} has no {MODELS}, but {below} has; use --base-url {below}")

    # The connection

    def _connected(self) -> Any:
        if self._client is None:
            self._client = connect(self.service)
        return self._client

    async def aclose(self) -> None:
        """Close the connections, and remember what the server took: the next role begins with that."""
        if self._breaker.answers:
            _taken[self.service.base_url] = self.limit.limit
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def model_config(model: str, revision: str | None) -> dict[str, Any]:
    """Return what decides the answers of a model behind a server."""
    return {"model": model, "revision": revision}
