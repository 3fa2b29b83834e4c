"""Requests to model servers: single requests beyond the chat interface of policies, and many chat requests."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.errors import PolicyError, ServerGoneError, TrainingError
from ....core.messages import cut_reply
from ....models.address import api_key, authorization, bare_url, censored, secrets_of
from ....models.base import ChatAnswer, ChatModel, ChatRequest

PATIENCE_SECONDS = 180.0
"""Seconds without an answer from a server after which the run stops; it can be resumed."""
PAUSE_SECONDS = 1.0
REQUEST_SECONDS = 600.0
_TRY_AGAIN = frozenset({429, *range(500, 600)})


def post(
    url: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    patience: float = PATIENCE_SECONDS,
    *,
    returns: bool = True,
) -> Any:
    """Send a JSON body to ``url + path`` until the server answers; return the JSON of the answer, or None.

    Args:
        url: base address of the server.
        path: path, beginning with a slash.
        body: the body; None for an empty one.
        patience: seconds for which a request is repeated while the server is busy, broken or missing.
        returns: whether the answer is JSON; the answer to a command is text.

    Raises:
        ServerGoneError: the server does not answer within ``patience``.
        TrainingError: the server refuses the request.
    """
    base, until = bare_url(url), time.monotonic() + patience
    data = b"" if body is None else json.dumps(body).encode()
    address, question, query = base.partition("?")
    request = urllib.request.Request(  # noqa: S310 - http or https
        f"{address}{path}{question}{query}", data=data, method="POST", headers=_headers(base)
    )
    while True:
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:  # noqa: S310 - http or https
                raw = answer.read()
            return json.loads(raw) if returns and raw.strip() else None
        except urllib.error.HTTPError as error:
            text = cut_reply(censored(error.read().decode(errors="replace"), secrets_of(base)), 300)
            reason = f"status {error.code}: {text}"
            if error.code not in _TRY_AGAIN:
                raise TrainingError(f"{base}{path} refuses a request ({reason})") from error
        except (OSError, ValueError) as error:  # no connection, a broken one, or no JSON
            reason = censored(f"{type(error).__name__}: {error}", secrets_of(base))
        if time.monotonic() > until:
            raise ServerGoneError(
                f"{base} has not answered for {patience:.0f} s (last: {reason}); start it again, then run the same "
                "command with --resume"
            )
        time.sleep(min(PAUSE_SECONDS, patience))


def answer_all(model: ChatModel, requests: Sequence[ChatRequest]) -> list[ChatAnswer | Exception]:
    """Send requests to a served model at the same time and close it; return answers, or the errors of failed requests.

    Raises:
        ServerGoneError, ConfigError: no request can be answered.
    """
    answers: list[ChatAnswer | Exception] = asyncio.run(_answer_all(model, requests))
    for answer in answers:
        if isinstance(answer, Exception) and not isinstance(answer, PolicyError):
            raise answer
    return answers


async def _answer_all(model: ChatModel, requests: Sequence[ChatRequest]) -> list[Any]:
    try:
        return await asyncio.gather(*map(model.answer, requests), return_exceptions=True)
    finally:
        await model.aclose()


def _headers(base: str) -> dict[str, str]:
    key = api_key()
    login = authorization(base) or (f"Bearer {key}" if key else None)
    return {"Content-Type": "application/json"} | ({"Authorization": login} if login else {})
