"""A model behind an OpenAI-compatible server, on the official SDK.

Every request is tried until it is answered, refused for good, or the server counts as gone. Tried again after a
growing, randomised pause are 408, 409, 425, 429 (after the time that the server names), 5xx, time-outs, dropped
connections, garbled answers, and answers that were broken off (:func:`.ending_of`); once the server has answered, also
401, 403, 404, 405, 407 and redirects, which a proxy sends while the server behind it restarts. Other 4xx are final. The
number of concurrent requests follows the server (``pacing``). The SDK's own retries are off, so that ``attempts`` in
the ``calls`` table counts every request sent.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from random import Random
from typing import Any

from ...core.errors import BrokenOffError, ConfigError, PolicyError, ServerGoneError
from ...core.messages import cut_reply, with_thought
from ..address import censored, secrets_of, split_query
from ..base import ChatAnswer, ChatModel, ChatRequest
from ..extras import need
from ..pacing import BROKEN, CROWDED, START, AdaptiveLimit, Breaker
from ..service import Service
from .connection import connect, proxy_of, retry_after, transport_errors
from .failures import connection_failure, is_too_long
from .fields import NAMED, UNNAMED, lacking, suspect, words_of
from .wire import ANSWER_LIMIT_BYTES, GarbledAnswerError, RequestEncoder, WireAnswer, is_same_model, read_answer

CHAT, MODELS = "/chat/completions", "/models"
PACKAGES = ("openai", "httpx2")
"""Packages of the extra."""

ERROR_BYTES = 300
"""Longest quotation of a server's error message."""

FIRST_CONTACT_SECONDS = 10.0
"""Longest silence of a server at the first contact."""

ROOT_BYTES = 1000
"""Longest name of a checkpoint that is read from a server."""

_log = logging.getLogger(__name__)
_warned: set[tuple[str, str]] = set()
"""Pairs of server and model about which this process has warned."""

_TRY_AGAIN = frozenset({408, 409, 425, 429, *range(500, 600)})
_REFUSED_ACCESS = frozenset({401, 403, 407})
_SETUP_IS_WRONG = _REFUSED_ACCESS | {404, 405}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
FIRST_SERVER_ERROR = 500
TOO_LARGE = 413
"""Status for a request that is too large; also used for answers that are too large."""
BROKEN_OFF = 200
"""Status under which the circuit breaker counts broken-off answers."""
_CROWDED = frozenset({429, 503})
"""Statuses of an overloaded server."""


_taken: dict[str, int] = {}
"""Concurrent requests that servers accepted from this process last, by address."""
refused_fields: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
"""Fields that servers refused from this process, by address, model and role, since the last pre-flight check."""


class _TryAgainError(Exception):
    """Failure of a try that may be repeated."""

    def __init__(self, reason: str, retry_after: float | None = None, *, broken_off: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.broken_off = broken_off
        """Whether the server works and broke off this answer."""


class _RefusedError(Exception):
    """Refusal of a request because of its content, perhaps of a field that can be left out."""

    def __init__(self, error: Any, asked_in: int) -> None:
        super().__init__(str(error))
        self.error, self.asked_in = error, asked_in
        self.status: int = error.status_code
        self.words = words_of(error.body)


class OpenAIModel(ChatModel):
    """A chat model behind a server. Bound to the event loop of its first request."""

    def __init__(self, model: str, revision: str | None = None, service: Service | None = None) -> None:
        """Prepare requests to ``model`` at the address of ``service``; nothing is sent before the first one.

        Raises:
            PluginError: the extra is not installed.
        """
        self.model = model
        self.revision = revision
        self.service = service or Service()
        self.limit = AdaptiveLimit(self.service.max_concurrency, _taken.get(self.service.base_url, START))
        self._sdk, self._http = (need(package, "openai") for package in PACKAGES)
        self._encoder = RequestEncoder(model)
        self._breaker = Breaker(self.service.base_url, self.service.patience_seconds, time.monotonic)
        self._proxy = proxy_of(self.service.base_url)
        self._way = f", through the proxy {self._proxy}, which NO_PROXY=HOST leaves out" if self._proxy else ""
        self._secrets = secrets_of(self.service.key_variable)
        self._jitter = Random()  # pauses do not affect the data
        self._client: Any = None
        self._contacted = False
        self._contacting = asyncio.Lock()
        self._served_as: str | None = None
        self._accepted = set[str]()
        """Fields of the requests that the server has answered."""

    @property
    def config(self) -> dict[str, Any]:
        """Return model and revision; the address is not part of the config."""
        return model_config(self.model, self.revision)

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Answer one request; it raises the errors of :meth:`ChatModel.answer`."""
        if not self._contacted:
            await self.contact()
        answers_before = self._breaker.answers
        for attempt in count(1):
            try:
                return self._chat_answer(request, *await self._try(request))
            except _TryAgainError as error:
                request.sent.failure = str(error)
                # While nothing is answered the breaker decides, not the number of tries: the server may be restarting.
                works = self._breaker.answers > answers_before or error.broken_off
                if attempt >= self.service.tries and works:
                    raise self._unanswered(request, error) from error
                asked_for = error.retry_after or 0.0  # no recovery shortens what the server asked for
                doubled = self.service.pause_seconds * 2 ** min(attempt - 1, 30)
                pause = min(doubled, self.service.longest_pause) * self._jitter.uniform(0.5, 1.0)
                await asyncio.sleep(asked_for)
                await self._breaker.pause(max(pause - asked_for, 0.0))
            except PolicyError as error:
                raise PolicyError(str(error), _unanswered_call(request)) from error
        raise AssertionError("the loop above returns or raises")

    def _unanswered(self, request: ChatRequest, error: _TryAgainError) -> PolicyError:
        """Return the error of a request that is given up after failures which might have been temporary."""
        if error.broken_off:
            self._breaker.refused(BROKEN_OFF, str(error))
        kind = BrokenOffError if error.broken_off else PolicyError
        message = f"no answer from {self.service.base_url} in {request.sent.tries} tries (last: {error})"
        return kind(message, _unanswered_call(request))

    def _chat_answer(
        self, request: ChatRequest, answer: WireAnswer, seconds: float, without: frozenset[str]
    ) -> ChatAnswer:
        # A server with a reasoning parser removes the thoughts from the reply, but the grammar needs the whole reply.
        is_reply = request.role == "student"
        return ChatAnswer(
            text=with_thought({"reasoning": answer.reasoning}, answer.text) if is_reply else answer.text,
            finish_reason=answer.finish_reason,
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            tokens=answer.tokens if request.wants_tokens else None,
            refusal=answer.refusal,
            call={
                "attempts": request.sent.tries,
                "broken_off": request.sent.broken_off,
                "latency": seconds,
                "prompt_tokens": answer.prompt_tokens,
                "completion_tokens": answer.completion_tokens,
                "cost": self.service.cost(answer.prompt_tokens, answer.completion_tokens),
                "cache_hit": False,
                "model_revision": self.revision or self._checkpoint(answer),
                "left_out": lacking(without, self._encoder.fields(request)),
            },
        )

    def _checkpoint(self, answer: WireAnswer) -> str | None:
        """Return the checkpoint from the list of models, with model and build from the answer."""
        return ": ".join(each for each in (self._served_as, answer.revision) if each) or None

    async def _try(self, request: ChatRequest) -> tuple[WireAnswer, float, frozenset[str]]:
        """Send the request, without the fields that the server refuses; see ``fields``.

        Returns:
            the answer, its time in seconds, and the fields that were left out.

        Raises:
            _TryAgainError, PolicyError, ConfigError, ServerGoneError
        """
        dropped = refused_fields[self.service.base_url, self.model, request.role]
        named, guessed = set[str](), list[str]()
        of_server = True  # whether later requests are also sent without these fields
        while True:
            without = frozenset(dropped.union(named, guessed))
            try:
                answer, seconds = await self._send_without(request, without)
                break
            except _RefusedError as refused:
                fields = self._encoder.fields(request, without)
                field, is_named = suspect(fields, self._accepted, refused.status, refused.words)
                if field is None:
                    raise self._judged(refused.error, refused.asked_in) from refused.error
                named.update([field] if is_named else [])
                guessed += [] if is_named else [field]
                of_server &= refused.status < FIRST_SERVER_ERROR
        # A refusal that names no field may be temporary: try all fields again, then all but the last one.
        for fewer in [set[str](), set(guessed[-1:])] if guessed else []:
            if fewer == set(guessed):
                break
            try:
                without = frozenset(dropped.union(named, fewer))
                answer, seconds = await self._send_without(request, without)
                guessed = [*fewer]
                break
            except _RefusedError:
                without = frozenset(dropped.union(named, guessed))
            except (_TryAgainError, PolicyError):
                return answer, seconds, frozenset(dropped.union(named, guessed))  # another request will find the fields
        if of_server:
            dropped.update(named, guessed)
        self._accepted.update(self._encoder.fields(request, without))
        return answer, seconds, without

    async def _send_without(self, request: ChatRequest, without: frozenset[str]) -> tuple[WireAnswer, float]:
        """Send the request once, without some fields; return the answer and its time in seconds.

        Raises:
            _RefusedError: perhaps because of a field; otherwise as :meth:`_try`.
        """
        asked_in = await self.limit.acquire(request.t or 0)
        started = time.monotonic()
        try:
            request.sent.tries += 1
            async with asyncio.timeout(self.service.request_seconds):
                raw = await self.send(self._encoder.body(request, without))
            answer = read_answer(raw)
            self._check_model(answer.model)
        except BrokenOffError as error:
            request.sent.broken_off += 1
            self._breaker.works()
            raise _TryAgainError(
                cut_reply(censored(str(error), self._secrets), ERROR_BYTES), broken_off=True
            ) from error
        except (TimeoutError, self._sdk.APIConnectionError, GarbledAnswerError) as error:
            if is_too_long(error):
                raise self._too_long() from error
            if not isinstance(error, GarbledAnswerError):
                self.limit.complained(asked_in, BROKEN)
            raise self._failed(self._failure(error)) from error
        except self._sdk.APIStatusError as error:
            if error.status_code in UNNAMED | NAMED:
                raise _RefusedError(error, asked_in) from error
            raise self._judged(error, asked_in) from error
        finally:
            self.limit.release()
        seconds = time.monotonic() - started
        self._breaker.answered()
        if seconds > self.service.request_seconds / 2:
            self.limit.complained(asked_in, CROWDED)  # requests queue at the server for too long
        else:
            self.limit.answered(seconds)
        return answer, seconds

    def _check_model(self, name: str | None) -> None:
        if name and not self.service.any_model and not is_same_model(self.model, name):
            raise ConfigError(
                f"{self.service.base_url} answers as model {cut_reply(name, ERROR_BYTES)!r}, expected "
                f"{self.model!r}; name that model with --model, or accept it with --any-model"
            )

    async def send(self, body: bytes) -> bytes:
        """Send the body of a request once, unchanged; return the body of the answer.

        Raises:
            openai.APIError: the connection failed, or the server answered with an error status.
        """
        with transport_errors(self._sdk):
            response = await self._connected().post(CHAT, cast_to=self._http.Response, content=body)
            return response.content

    def _failed(self, reason: str, retry_after: float | None = None) -> _TryAgainError:
        self._breaker.failed(reason, retry_after or 0.0)
        return _TryAgainError(reason, retry_after)

    def _too_long(self) -> PolicyError:
        """Return the error for an endless answer, which another attempt would only repeat."""
        reason = f"an answer of more than {ANSWER_LIMIT_BYTES} bytes"
        self._breaker.refused(TOO_LARGE, reason)
        return PolicyError(f"{self.service.base_url} sent {reason}; lower --max-tokens, or look at the server")

    def _failure(self, error: Exception) -> str:
        """Describe a failure below HTTP."""
        if isinstance(error, TimeoutError):
            return f"no complete answer within {self.service.request_seconds:g} s"
        if (failure := connection_failure(error, self.service.base_url)) is not None:
            return failure.what + self._way
        cause = error.__cause__ if isinstance(error, self._sdk.APIConnectionError) else error
        shown = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
        return cut_reply(censored(shown, self._secrets), ERROR_BYTES) + self._way

    def _judged(self, error: Any, asked_in: int) -> Exception:
        """Return the error that a status means for the request."""
        status: int = error.status_code
        where, headers = self.service.base_url, error.response.headers
        reason = f"status {status}: {self._quoted(error)}{self._way}"
        if error.code == "insufficient_quota":
            return ServerGoneError(
                f"{where} says that the account's quota is spent ({reason}); finished episodes are kept"
            )
        if status in _TRY_AGAIN:
            if status in _CROWDED:
                self.limit.complained(asked_in, CROWDED)
            return self._failed(reason, retry_after(headers))
        if status in _SETUP_IS_WRONG or status in _REDIRECTS:
            if self._breaker.answers:  # a proxy may send this while the server behind it restarts
                return self._failed(reason, retry_after(headers))
            return self._wrong_setup(status, reason, headers)
        self._breaker.refused(status, reason)
        return PolicyError(f"{where} refused the request ({reason})")

    def _wrong_setup(self, status: int, reason: str, headers: Mapping[str, str]) -> ConfigError:
        where = self.service.base_url
        if status in _REFUSED_ACCESS:
            return ConfigError(
                f"{where} refuses the credentials ({reason}); set {self.service.key_variable} to a valid key"
            )
        if status in _REDIRECTS:
            there = cut_reply(censored(headers.get("location", "nowhere"), self._secrets), ERROR_BYTES)
            return ConfigError(f"{where} redirects to {there!r} (status {status}); use that address with --base-url")
        return ConfigError(
            f"{where}{CHAT} does not exist for model {self.model!r} ({reason}); check --base-url (it usually ends in "
            "/v1) and --model"
        )

    def _quoted(self, error: Any) -> str:
        text = words_of(error.body) or " ".join(str(error.message).split())
        return cut_reply(censored(text, self._secrets), ERROR_BYTES)

    # First contact

    async def contact(self) -> None:
        """Request the list of models once, so that a wrong address or name is reported in one clear message.

        A server without such a list, or one that cannot send it now, is accepted.

        Raises:
            ConfigError: the credentials, the address or the model are wrong.
            ServerGoneError: no server answers at the address.
        """
        async with self._contacting:
            if self._contacted:
                return
            give_up = time.monotonic() + min(FIRST_CONTACT_SECONDS, self.service.patience_seconds)
            while True:
                try:
                    async with asyncio.timeout(FIRST_CONTACT_SECONDS):
                        models = await self.models()
                except TimeoutError:
                    raise ServerGoneError(
                        f"{self.service.base_url} accepted a connection but sent nothing for "
                        f"{FIRST_CONTACT_SECONDS:g} s; check the server, then run the same command again"
                    ) from None
                except GarbledAnswerError:
                    models = {}
                except self._sdk.APIConnectionError as error:
                    reason = self._unreachable(error)
                    if isinstance(reason, ServerGoneError) and time.monotonic() < give_up:
                        await asyncio.sleep(min(1.0, self.service.patience_seconds / 10))
                        continue
                    raise reason from error
                except self._sdk.APIStatusError as error:
                    models = {}
                    if error.status_code in _REFUSED_ACCESS:
                        raise self._judged(error, 0) from error
                    if error.status_code == 404:
                        await self.look_below()
                if models and self.model not in models:
                    shown = ", ".join(" ".join(name.split()) for name in sorted(models)[:5])
                    raise ConfigError(
                        f"the server at {self.service.base_url} has no model {self.model!r}; it has: {shown}"
                        f"{' ...' if len(models) > 5 else ''}; choose one with --model"
                    )
                self._served_as = models.get(self.model)
                self._contacted = True
                return

    def _unreachable(self, error: Exception) -> ConfigError | ServerGoneError:
        """Return the error for an unreachable server: a ConfigError if waiting cannot help."""
        failure = connection_failure(error, self.service.base_url)
        start = f"start it (`pivot serve-command {self.model}` shows how), or give its address with --base-url"
        advice = start if failure is None else failure.advice or start
        kind = ConfigError if failure is not None and failure.is_setup else ServerGoneError
        return kind(f"no server answers at {self.service.base_url} ({self._failure(error)}); {advice}")

    async def served_as(self) -> str | None:
        """Return the checkpoint from the list of models; warn once if neither the list nor the revision names one.

        The errors are those of :meth:`contact`.
        """
        if not self._contacted:
            await self.contact()
        server_and_model = (self.service.base_url, self.model)
        if self._served_as is None and self.revision is None and server_and_model not in _warned:
            _warned.add(server_and_model)
            _log.warning(
                "%s does not name the checkpoint behind the model name %r, so answers are cached for this store alone; "
                "name it with --revision, or --writer-set revision=NAME for guidance",
                self.service.base_url,
                self.model,
            )
        return self._served_as

    async def models(self) -> dict[str, str | None]:
        """Return the names of the server's models, each with the name of its checkpoint if the server has one.

        Raises:
            GarbledAnswerError: the answer is not a list of models. openai.APIError: the request failed.
        """
        with transport_errors(self._sdk):
            response = await self._connected().get(MODELS, cast_to=self._http.Response)
        try:
            rows = response.json()["data"]
            return {str(row["id"]): checkpoint_of(row) for row in rows}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise GarbledAnswerError("no list of models") from error

    async def look_below(self) -> None:
        """Raise an error with the right address if the interface is at ``/v1`` below it."""
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
            self._client = connect(self.service, self._proxy)
        return self._client

    async def aclose(self) -> None:
        """Close the connections; remember the accepted concurrency as the start value of the next role."""
        if self._breaker.answers:
            _taken[self.service.base_url] = self.limit.limit
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _unanswered_call(request: ChatRequest) -> dict[str, Any]:
    return {"attempts": request.sent.tries, "answered": False, "broken_off": request.sent.broken_off}


def checkpoint_of(row: Mapping[str, Any]) -> str | None:
    """Return the checkpoint of an entry in a list of models; None if it has none.

    vLLM sends the folder or hub id that it loaded as ``root``, for an adapter also its base model as ``parent``. Other
    servers repeat the model name as ``root``, which does not identify a checkpoint. ``created`` is ignored: in many
    servers it is the time of the request.
    """
    root, parent = row.get("root"), row.get("parent")
    if not isinstance(root, str) or not root or (root == row["id"] and row.get("owned_by") != "vllm"):
        return None
    return cut_reply(f"{root} on {parent}" if isinstance(parent, str) and parent else root, ROOT_BYTES)


def model_config(model: str, revision: str | None) -> dict[str, Any]:
    """Return what decides the answers of a model behind a server."""
    return {"model": model, "revision": revision}
