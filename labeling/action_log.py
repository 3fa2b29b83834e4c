"""The compact action log: what happened in each step, one line a step, for the Analyzer and for people.

A line reads ``step 0: action=left moved=true remaining_turns=8``. Which ``info`` keys follow the action, and in which
order, is the environment's ``EnvProfile.log_fields``. A key that a step does not have is left out of its line, so that
a missing measurement can never be read as a value (spec section 4).
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

FLOAT_DECIMALS = 2
"""Distances are logged to the centimetre and scores to the hundredth."""


def _value_text(value: Any) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, float):
        # Adding 0.0 turns a rounded -0.0 into 0.0, which no reader should have to wonder about.
        return f"{round(value, FLOAT_DECIMALS) + 0.0:.{FLOAT_DECIMALS}f}"
    text = str(value)
    # Imported text must not be able to forge a second line or field.
    return text if text and text.isprintable() and " " not in text else json.dumps(text)


# Episodes of one environment share nearly all their lines. `typed` keeps True apart from 1, which are equal as keys.
@lru_cache(maxsize=1 << 15, typed=True)
def _line(log_fields: tuple[str, ...], t: int, action: str, *values: Any) -> str:
    shown = [
        f"{name}={_value_text(value)}" for name, value in zip(log_fields, values, strict=True) if value is not None
    ]
    return " ".join([f"step {t}: action={_value_text(action)}", *shown])


def log_lines(log_fields: tuple[str, ...], actions: Sequence[str], infos: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line per step.

    Args:
        log_fields: ``info`` keys to show, in order.
        actions: normalised action names, length T.
        infos: ``info`` after each action, length T; values are booleans, numbers or short strings.
    """
    return [
        _line(log_fields, t, action, *map(info.get, log_fields))
        for t, (action, info) in enumerate(zip(actions, infos, strict=True))
    ]


def action_log(log_fields: tuple[str, ...], actions: Sequence[str], infos: Sequence[Mapping[str, Any]]) -> str:
    """Return the compact log as one text, its lines joined by newlines."""
    return "\n".join(log_lines(log_fields, actions, infos))
