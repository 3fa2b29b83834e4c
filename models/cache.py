"""The call cache: answers that were paid for once, shared by all runs and processes of a user.

It is one SQLite file in write-ahead mode: an answer is stored whole or not at all, also after a kill, and any SQLite
tool can read it (`pivot cache` does). The key is the digest of everything that decides an answer: model and revision,
the server's name of the checkpoint, prompt hash, picture ids, sampling, seed, sample, schema, and whether
log-probabilities were requested. The seed derives from episode and step, so equal prompts of different samples never
share an answer. Errors, answers that were broken off, refusals and answers that the guidance writer cannot use are not
stored. An empty answer is stored for policies only, so that an episode repeats as it was.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import CacheError
from ..core.identity import digest
from .base import ChatAnswer, ChatModel, ChatRequest, image_ids
from .service import Service

FORMAT = 2
"""Part of every key; raised when stored answers must no longer be used."""

BUSY_SECONDS = 60.0
"""Longest wait for another writing process."""

_TABLE = f"""
CREATE TABLE IF NOT EXISTS calls_v{FORMAT} (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    role TEXT NOT NULL,
    prompt_hash TEXT NOT NULL,
    request TEXT NOT NULL,
    answer TEXT NOT NULL,
    stored_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) WITHOUT ROWID
"""


def request_facts(config: Mapping[str, Any], request: ChatRequest, served_as: str | None = None) -> dict[str, Any]:
    """Return everything that decides the answer to a request, as JSON data; its digest is the cache key.

    Missing values are left out, so that answers of versions that did not know them are still found.
    """
    more: dict[str, Any] = {"wants_tokens": True} if request.wants_tokens else {}
    if served_as is not None:
        more["served_as"] = served_as
    return {
        "format": FORMAT,
        "model": dict(config),
        "prompt_hash": request.prompt_hash,
        "images": image_ids(request.messages),
        "sampling": request.sampling.row(),
        "seed": request.seed,
        "sample": request.sample,
        "json_schema": request.json_schema,
        "wants_logprobs": request.wants_logprobs,
        **({"banned": list(request.banned)} if request.banned else {}),
        **more,
    }


class CallCache:
    """The file of the cache. Writes wait for the disk only at every thousandth page: 0.2 ms per answer."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            CacheError: the file cannot be used.
        """
        self.path = path
        with self._trouble("open"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.execute(_TABLE)

    @contextlib.contextmanager
    def _trouble(self, action: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise CacheError(
                f"cannot {action} the call cache {self.path}: {error}; repair or remove the file, choose another one "
                "with --cache FILE, or do without one with --no-cache"
            ) from error

    def check(self) -> None:
        """Check that an answer can be written.

        Raises:
            CacheError: the cache cannot be read or written.
        """
        with self._trouble("write"):
            self._file.execute("BEGIN IMMEDIATE")
            self._file.execute("ROLLBACK")

    def get(self, key: str) -> dict[str, Any] | None:
        """Return a stored answer."""
        with self._trouble("read"):
            row = self._file.execute(f"SELECT answer FROM calls_v{FORMAT} WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: str, facts: Mapping[str, Any], role: str, answer: Mapping[str, Any]) -> None:
        """Store an answer. A later answer under the same key replaces it.

        Raises:
            CacheError: it could not be written.
        """
        model = str(facts["model"].get("model", ""))
        # JSON in ASCII can hold any reply, with NUL and lone surrogates.
        row = (key, model, role, facts["prompt_hash"], json.dumps(facts), json.dumps(answer))
        columns = "key, model, role, prompt_hash, request, answer"
        with self._trouble("write"):
            self._file.execute(f"INSERT OR REPLACE INTO calls_v{FORMAT} ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)

    def counts(self) -> list[tuple[Any, ...]]:
        """Count the answers by model, checkpoint and role, most first.

        A row holds model, the server's name of the checkpoint (see :meth:`.ChatModel.served_as`), role, number of
        answers, prompt tokens, reply tokens, and the time of the newest answer.
        """
        tokens = [f"coalesce(sum(json_extract(answer, '$.{name}')), 0)" for name in _USAGE]
        query = (
            f"SELECT model, json_extract(request, '$.served_as') AS served_as, role, count(*), {', '.join(tokens)}, "
            f"max(stored_at) FROM calls_v{FORMAT} GROUP BY model, served_as, role ORDER BY count(*) DESC"
        )
        with self._trouble("read"):
            return self._file.execute(query).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


_USAGE = ("prompt_tokens", "completion_tokens")
_KNOWN = (*_USAGE, "model_revision", "left_out")
_PAID = ("attempts", "latency", "cost", "broken_off")
"""Columns of a cached call that only the paying store gets again."""


class CachedModel(ChatModel):
    """A chat model behind the cache."""

    def __init__(
        self, model: ChatModel, cache: CallCache, *, refresh: bool = False, payer: str = "", place: str = ""
    ) -> None:
        """Look into ``cache`` before asking ``model``; with ``refresh`` always ask, and store the new answer.

        ``payer`` is the store billed for the answers: when it needs one again, as after a kill, the call has its
        original cost; for other stores it is free. Where neither server nor revision names a checkpoint, an answer
        holds for this store alone; without a store, for the server at ``place``.
        """
        self._model = model
        self._cache = cache
        self._refresh = refresh
        self._payer = payer
        self._place = payer or place
        self._config = model.config

    @property
    def config(self) -> dict[str, Any]:
        """Return the config of the model."""
        return self._config

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Return the stored answer, or else the answer of the model."""
        served_as = await self._model.served_as()
        facts = request_facts(self._config, request, served_as)
        if served_as is None and self._config.get("revision") is None:
            facts["place"] = self._place  # a model of the same name on another server may have other weights
        key = digest(facts)
        started = time.perf_counter()
        stored = None if self._refresh else self._cache.get(key)
        if stored is not None:
            is_ours = bool(self._payer) and stored.get("paid_by") == [self._payer, request.request_id]
            answer = _restored(stored, time.perf_counter() - started, is_ours=is_ours)
            if _is_worth_keeping(request, answer):  # older caches hold other fields
                return answer
        answer = await self._model.answer(request)
        if _is_worth_keeping(request, answer):
            paid_by = [self._payer, request.request_id]
            self._cache.put(key, facts, request.role, {**_row(answer), "paid_by": paid_by})
        return answer

    async def served_as(self) -> str | None:
        """Return the model's name of the checkpoint."""
        return await self._model.served_as()

    async def aclose(self) -> None:
        """Close model and cache."""
        try:
            await self._model.aclose()
        finally:
            self._cache.close()


def _is_worth_keeping(request: ChatRequest, answer: ChatAnswer) -> bool:
    if answer.refusal is not None:
        return False
    if request.usable is not None:
        return request.usable(answer)
    return bool(answer.text.strip()) or request.role == "student"


_LISTS = ("token_ids", "logprobs", "tokens")


def _row(answer: ChatAnswer) -> dict[str, Any]:
    fields = {name: getattr(answer, name) for name in ("text", "finish_reason", *_LISTS)}
    return fields | {name: answer.call.get(name) for name in (*_KNOWN, *_PAID)}


def _restored(stored: Mapping[str, Any], seconds: float, *, is_ours: bool) -> ChatAnswer:
    lists: Any = {name: tuple(stored[name]) for name in _LISTS if stored.get(name) is not None}
    return ChatAnswer(
        text=stored["text"],
        finish_reason=stored["finish_reason"],
        **lists,
        call={
            **{name: stored[name] for name in _KNOWN if name in stored},
            **(
                {name: stored[name] for name in _PAID if stored.get(name) is not None}
                | {"cache_hit": False, "kept": True}
                if is_ours
                else {"attempts": 0, "latency": seconds, "cost": 0.0, "cache_hit": True}
            ),
        },
    )


def cached(model: ChatModel, service: Service) -> ChatModel:
    """Return ``model`` behind the cache of the service settings, or ``model`` itself without one.

    Raises:
        CacheError: the cache cannot be used.
    """
    if not service.cache:
        return model
    return CachedModel(
        model, CallCache(Path(service.cache)), refresh=service.refresh, payer=service.payer, place=service.base_url
    )


def check_cache(service: Service) -> None:
    """Check that the cache in the service settings, if any, can be read and written.

    Raises:
        CacheError: the cache cannot be read or written.
    """
    if service.cache:
        with contextlib.closing(CallCache(Path(service.cache))) as cache:
            cache.check()
