"""Optional fields of a request, which some servers refuse; each is dropped separately.

A refusal that names a field is believed once the request is answered without it. A refusal that names none proves
nothing: the server may refuse a request temporarily, or because of its content. Then fields are left out one after the
other until the request is answered, and it is sent once more to see which of them decided.
"""

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

OPTIONAL: Mapping[str, str] = {
    "return_token_ids": r"return_token_ids",
    "logprobs": r"log_?\s?prob|not json compliant",  # servers fail to send a log-probability that is not a number
    "response_format": r"response_format|json.schema|guided|grammar|structured output",
    "max_tokens": r"max_tokens",
    "max_completion_tokens": r"max_completion_tokens",
    "seed": r"\bseed\b",
    "top_k": r"top_k",
    "top_p": r"top_p",
    "temperature": r"temperature",
}
"""Patterns that name a field in the words of a server. Fields with the least effect on the answers come first."""
SET_FIELDS = frozenset({*OPTIONAL, "model", "messages", "logit_bias", "stream", "n", "chat_template_kwargs"})
"""Fields that ``extra_body`` must not contain: they have settings of their own, or PIVOT needs their value."""
RENAMED = {"max_tokens": "max_completion_tokens"}
"""Newer name of a field, which is tried when the server refuses the old name."""
UNNAMED = frozenset({400, 422})
"""Statuses of a refusal after which fields are dropped even if the message names none."""
NAMED = frozenset({403, 500})
"""Statuses after which a field is dropped only if the message names it."""
_VALUE_OF_LIMIT = re.compile(
    r"too (large|long|many)|context (length|window)|maximum|exceed|at most|less than", re.IGNORECASE
)
_LIMITS = frozenset({*RENAMED, *RENAMED.values()})


def sent(fields: Mapping[str, Any], without: frozenset[str]) -> dict[str, Any]:
    """Return the fields of a request without the refused ones; renamed fields have their newer name."""
    renamed = {new: fields[old] for old, new in RENAMED.items() if old in without and old in fields}
    return {name: value for name, value in {**fields, **renamed}.items() if name not in without}


def suspect(fields: Mapping[str, Any], accepted: Set[str], status: int, words: str) -> tuple[str | None, bool]:
    """Return the field of a refused request to leave out next, and whether the server named it.

    Args:
        fields: the fields that were sent.
        accepted: fields with which the server has answered a request; only its own words make them suspect.
        status: status of the refusal.
        words: the server's own words.
    """
    present = [name for name in OPTIONAL if name in fields]
    matches = {name: re.search(OPTIONAL[name], words, re.IGNORECASE) for name in present}
    places = {name: match.start() for name, match in matches.items() if match is not None}
    named = min(places, key=places.__getitem__, default=None)  # the message may list the allowed ones after it
    if _VALUE_OF_LIMIT.search(words) and named in {None, *_LIMITS}:
        return None, True  # about the number of tokens, and an answer without any limit is not what was asked for
    own = [re.escape(name) for name in fields if name not in {*OPTIONAL, "model"}]  # the user's, which are not dropped
    if named is not None or status not in UNNAMED or (own and re.search(rf"\b({'|'.join(own)})\b", words)):
        return named, True
    return next((name for name in present if name not in accepted), None), False


def lacking(without: frozenset[str], fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the dropped fields; a renamed field counts only if both names were refused."""
    missing = {name for name in without & fields.keys() if RENAMED.get(name, name) in without}
    return tuple(sorted(missing))


_TEXTS = ("error", "detail", "message", "msg", "errors", "metadata", "raw")
"""Fields of an error that hold words; in the last two a gateway quotes the server behind it."""


def words_of(body: Any) -> str:
    """Return the server's own words in the body of an error: the texts of its ``error``, ``detail`` and ``message``."""
    texts = dict.fromkeys(" ".join(text.split()) for text in _texts(body))
    return "; ".join(text for text in texts if text)


def _texts(value: Any, depth: int = 0) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and depth < 5:
        return [text for each in value[:20] for text in _texts(each, depth + 1)]
    if not isinstance(value, dict) or depth >= 5:
        return []
    parts = [value[name] for name in _TEXTS if name in value]
    texts = [text for part in parts for text in _texts(part, depth + 1)]
    where = value.get("loc") or value.get("param")
    names = [str(each) for each in (where if isinstance(where, list) else [where]) if each and each != "body"]
    return [f"{'.'.join(names)}: {texts[0]}", *texts[1:]] if names and texts else texts
