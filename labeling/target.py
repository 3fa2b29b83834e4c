"""The training target: three fields of JSON in a fixed order, and the strict reader of what claims to be one.

Targets are built from labels and read back by the factual filter; an Analyzer's answer is read with the same rules, so
the text is untrusted: whatever it holds, reading ends quickly with a target or a typed problem.

Where every turn submits a whole result, the paper asks its Analyzer for ``timeout`` or ``deadlock`` and answers
``timeout`` throughout. Labels always keep the certificate's mode; the vocabulary only decides what the exported target,
the prompt's list of modes and the dataset's completion say.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from ..environments.base import EnvConfig, EnvProfile
from .domains import domain_of
from .episode import Vocabulary

MAX_TARGET_CHARS = 64 * 1024
"""Longer texts are refused unread."""
FIELDS = ("pivot_step", "failure_mode", "failure_reason")

TargetProblem = Literal["too_long", "not_json", "not_an_object", "wrong_fields", "wrong_type", "not_text"]


@dataclass(frozen=True, slots=True)
class Target:
    """The answer expected of the Analyzer."""

    pivot_step: int
    failure_mode: str
    failure_reason: str


class BadTargetError(ValueError):
    """A text that is not a target; ``problem`` is the reason, for counting."""

    def __init__(self, problem: TargetProblem, detail: str) -> None:
        super().__init__(f"{problem}: {detail}")
        self.problem: TargetProblem = problem
        self.detail = detail


_quoted = json.JSONEncoder(ensure_ascii=False).encode


def build_target(pivot_step: int, failure_mode: str, failure_reason: str = "") -> str:
    """Return the target text; ``failure_reason`` is empty without guidance."""
    return (
        f'{{"pivot_step": {pivot_step:d}, "failure_mode": {_quoted(failure_mode)}, '
        f'"failure_reason": {_quoted(failure_reason)}}}'
    )


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is given twice")
    return fields


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(object_pairs_hook=_refuse_repeats, parse_constant=_refuse_constant).decode


def parse_target(text: str) -> Target:
    """Read a target: exactly the three fields, in any order, each of its type, with nothing around the object.

    Raises:
        BadTargetError: the text is anything else.
    """
    if len(text) > MAX_TARGET_CHARS:
        raise BadTargetError("too_long", f"{len(text)} characters, at most {MAX_TARGET_CHARS} are read")
    try:
        value = _decode(text)
    except RecursionError:
        raise BadTargetError("not_json", "nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, the two hooks above, and integers too long for Python to read
        raise BadTargetError("not_json", str(error)) from None
    if not isinstance(value, dict):
        raise BadTargetError("not_an_object", f"the text holds a {type(value).__name__}, not an object")
    if value.keys() != set(FIELDS):
        names = ", ".join(map(repr, sorted(value)))[:200] or "none"
        raise BadTargetError("wrong_fields", f"found the fields {names}; expected exactly {', '.join(FIELDS)}")
    step = value["pivot_step"]
    if type(step) is not int:  # bool is an int to isinstance, and 3.0 is not a step index
        raise BadTargetError("wrong_type", f"pivot_step is a {type(step).__name__}, not an integer")
    for name in ("failure_mode", "failure_reason"):
        if not isinstance(value[name], str):
            raise BadTargetError("wrong_type", f"{name} is a {type(value[name]).__name__}, not a string")
        try:
            value[name].encode()
        except UnicodeEncodeError:  # JSON can spell it, UTF-8 cannot
            raise BadTargetError(
                "not_text", f"{name} holds half of a surrogate pair, which no file can store"
            ) from None
    return Target(step, value["failure_mode"], value["failure_reason"])


PAPER_MODES = ("timeout", "deadlock")


def profile_under(profile: EnvProfile, settings: EnvConfig | Mapping[str, Any]) -> EnvProfile:
    """Return the profile of an environment with the failure modes that its settings add, in ``failure_modes``."""
    values = settings if isinstance(settings, Mapping) else vars(settings)
    added = values.get("failure_modes")
    if not isinstance(added, Mapping) or not added:
        return profile
    return replace(profile, failure_modes=(*profile.failure_modes, *map(str, cast(Mapping[str, Any], added))))


def target_mode(env: str, mode: str, vocabulary: Vocabulary) -> str:
    """Return the word for ``mode`` in a target; a mode without a word of the paper's stays as it is."""
    return domain_of(env).paper_modes.get(mode, mode) if vocabulary == "paper" else mode


def target_modes(profile: EnvProfile, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the closed list of modes that the Analyzer is given."""
    is_translated = vocabulary == "paper" and bool(domain_of(profile.name).paper_modes)
    return PAPER_MODES if is_translated else profile.failure_modes
