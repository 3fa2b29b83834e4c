"""The compact action log: one line per step, for the Analyzer and for people.

A line reads ``step 0: action=left moved=true remaining_turns=8``. Which ``info`` keys follow the action, and in which
order, is the environment's ``EnvProfile.log_fields``. A key that a step does not have is left out of its line, so that
a missing measurement can never be read as a value.

Measurements are rounded, and what decides the label survives it: :func:`log_decimals` asks the solver which label it
gives to the rounded log, and takes as many decimals as it needs for the same one. The Analyzer may be shown less, the
actions alone, so that only the pictures show the effects (``LogDetail``).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from ..solvers.base import Case, Solver, Unsolved, Verdict

LogDetail = Literal["full", "actions"]
"""Content of the Analyzer's log per step: the fields of its environment, or its action alone."""

FLOAT_DECIMALS = 2
"""Distances are logged to the centimetre and scores to the hundredth, unless a label needs more."""
MOST_DECIMALS = 17
"""Floats between 0 and 10 have no more significant decimals."""


def number_text(value: float, decimals: int = FLOAT_DECIMALS) -> str:
    """Return a measurement in the notation of the log."""
    # Adding 0.0 turns a rounded -0.0 into 0.0, which no reader should have to wonder about.
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def _value_text(value: Any, decimals: int = FLOAT_DECIMALS) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value, decimals)
    text = str(value)
    # Imported text must not be able to forge a second line or field.
    return text if text and text.isprintable() and " " not in text else json.dumps(text)


# Episodes of one environment share nearly all their lines. `typed` keeps True apart from 1, which are equal as keys.
@lru_cache(maxsize=1 << 15, typed=True)
def _line(log_fields: tuple[str, ...], decimals: int, t: int, action: str, *values: Any) -> str:
    shown = [
        f"{name}={_value_text(value, decimals)}"
        for name, value in zip(log_fields, values, strict=True)
        if value is not None
    ]
    return " ".join([f"step {t}: action={_value_text(action)}", *shown])


def log_lines(
    log_fields: tuple[str, ...],
    actions: Sequence[str],
    infos: Sequence[Mapping[str, Any]],
    decimals: int = FLOAT_DECIMALS,
) -> list[str]:
    """Return one line per step.

    Args:
        log_fields: ``info`` keys to show, in order.
        actions: normalised action names, length T.
        infos: ``info`` after each action, length T; values are booleans, numbers or short strings.
        decimals: how many of a measurement are shown.
    """
    return [
        _line(log_fields, decimals, t, action, *map(info.get, log_fields))
        for t, (action, info) in enumerate(zip(actions, infos, strict=True))
    ]


def action_log(
    log_fields: tuple[str, ...],
    actions: Sequence[str],
    infos: Sequence[Mapping[str, Any]],
    decimals: int = FLOAT_DECIMALS,
) -> str:
    """Return the compact log as one text, its lines joined by newlines."""
    return "\n".join(log_lines(log_fields, actions, infos, decimals))


def log_decimals(solver: Solver, cases: Sequence[Case], answers: Sequence[Verdict | Unsolved]) -> list[int]:
    """Return the number of decimals that each case's log needs so that the label can be derived from it.

    The solver gives the rounded log the same verdict, and a measurement of the certificate, rounded in the same way,
    takes as much as the certificate says. A case without a verdict has nothing that could be lost.
    """
    decimals = [FLOAT_DECIMALS] * len(cases)
    undecided = [
        index
        for index, (case, answer) in enumerate(zip(cases, answers, strict=True))
        if isinstance(answer, Verdict)  # anything is rounded that may decide: in the log, or in the certificate
        for facts in [answer.certificate]  # (no log has a start distance)
        if any(isinstance(value, float) for info in case.steps for value in info.values())
        or any(raw is not None and solver.needed(raw) is not None for raw in (facts.raw_before, facts.raw_after))
    ]
    for tried in range(FLOAT_DECIMALS, MOST_DECIMALS):
        rounded = solver.certify([_rounded(cases[index], tried) for index in undecided]) if undecided else []
        undecided = [
            index
            for index, answer in zip(undecided, rounded, strict=True)
            if not _says_the_same(solver, answers[index], answer, tried)
        ]
        for index in undecided:
            decimals[index] = tried + 1
    return decimals


def _rounded(case: Case, decimals: int) -> Case:
    steps = [
        {key: float(number_text(value, decimals)) if isinstance(value, float) else value for key, value in info.items()}
        for info in case.steps
    ]
    return replace(case, steps=steps)


def _says_the_same(solver: Solver, exact: Verdict | Unsolved, rounded: Verdict | Unsolved, decimals: int) -> bool:
    if not (isinstance(exact, Verdict) and isinstance(rounded, Verdict)):
        return False
    facts = exact.certificate
    measured = replace(rounded.certificate, raw_before=facts.raw_before, raw_after=facts.raw_after)
    if replace(rounded, certificate=measured) != exact:
        return False
    shown = [
        (solver.needed(float(number_text(raw, decimals))), amount)
        for raw, amount in ((facts.raw_before, facts.before), (facts.raw_after, facts.after))
        if raw is not None
    ]
    return all(needed is None or needed == amount for needed, amount in shown)
