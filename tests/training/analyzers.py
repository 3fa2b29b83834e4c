"""Analyzers for tests, behind a chat server: one that reads the picture, one that reads the log alone."""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from pivot.models.base import Backend, ChatModel
from pivot.tests.models.chat_server import MODEL, pictures_of
from pivot.training.analyzer import Analyzer, AnalyzerCase, Reading, ask_all, reading_of
from pivot.training.evaluation.run import make_backend

RANGE = re.compile(r"Valid range of pivot_step: \[0, (\d+)\]")
MODES = re.compile(r"failure_mode has to be exactly one of: (.*)\.")


def asked(body: dict[str, Any]) -> tuple[str, int, list[str]]:
    """Return the text of the last question, its largest step and its modes."""
    text = next(part["text"] for part in body["messages"][-1]["content"] if part["type"] == "text")
    return text, int(RANGE.findall(text)[0]), MODES.findall(text)[0].split(", ")


def answered(step: int, mode: str, reason: str = "") -> dict[str, Any]:
    """Return a reply in the target's format."""
    return {"text": json.dumps({"pivot_step": step, "failure_mode": mode, "failure_reason": reason})}


def sees(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as an Analyzer that uses the last picture alone."""
    _, last, modes = asked(body)
    number = int.from_bytes(hashlib.sha256(pictures_of(body)[-1]).digest()[:4], "big")
    return answered(number % (last + 1), modes[number % len(modes)])


def reads(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as an Analyzer that uses the text alone."""
    text, last, modes = asked(body)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    return answered(number % (last + 1), modes[number % len(modes)])


def readings(backend: Backend, cases: Iterable[AnalyzerCase], shots: Any = ()) -> list[Reading]:
    """The readings of a model's replies to cases, in order."""
    analyzer = Analyzer(backend, shots)

    async def ask(model: ChatModel, case: AnalyzerCase) -> Reading:
        return reading_of(await model.answer(analyzer.request(case)), case)

    return ask_all(backend, cases, ask)


def served_backend(url: str, **service: Any) -> Backend:
    """The backend of a test server, without the call cache."""
    return make_backend("openai", {"model": MODEL}, {"base_url": url, "cache": "", **service})
