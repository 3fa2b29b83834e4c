"""What the probe leaves: one row a retry, in files beside the tables of the store, and the settings behind them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from ...datasets.config import Shard
from ...datasets.schema import TableSchema, columns_of
from ...plugins import Settings
from ...records import Stored
from .arms import DEFAULT_ARMS

FOLDER = "probe"
SETTINGS_FILE = f"{FOLDER}/probe.json"
RECEIPTS = f".{FOLDER}"
"""How a probe that was stopped goes on; in no manifest."""
VERSION = "1"
"""Raised when equal inputs give other rows."""
DECIMALS = 8
"""Returns that agree when rounded to so many are equal, as in the statistics of groups."""


class RetryStatus(StrEnum):
    """What became of a retry."""

    DONE = "done"
    NO_SUFFIX = "no_suffix"  # nothing is left to be played again from there
    NO_HINT = "no_hint"  # there is no text to tell
    NOT_RESTORED = "not_restored"  # the logged replies did not lead to the logged state
    ERROR = "error"  # the policy or the environment broke


class ProbeSettings(Settings):
    """What decides the rows of a probe, beside the store."""

    arms: tuple[str, ...] = Field(default=DEFAULT_ARMS, min_length=1)
    resamples: int = Field(default=1, ge=1, le=10_000)
    """Retries of a failure in every arm."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of suffix returns, from the restored step on."""
    accepted_only: bool = False
    """Whether only failures whose label was accepted are played again."""


@dataclass(slots=True, kw_only=True)
class Retry:
    """One suffix that was sampled again: one row of the ``probe`` table."""

    retry_id: Annotated[str, Stored("Versioned hash of failure, arm, sample and policy; its random stream.")]
    episode_id: Annotated[str, Stored("The failure.")]
    env: Annotated[str, Stored("Environment name.")]
    task_id: Annotated[str, Stored("Level.")]
    arm: Annotated[str, Stored("`no_hint`, `after`, `self`, `teacher`, `random` or `before`.")]
    sample_idx: Annotated[int, Stored("Which of the retries of this failure in this arm.")]
    label_version: Annotated[str, Stored("Version of the label that named the pivot.")]
    pivot_step: Annotated[int, Stored("t* of the failure.")]
    kind: Annotated[str, Stored("Kind of its certificate.")]
    restore_step: Annotated[int | None, Stored("Step whose state was restored; null where there is none.")]
    hint: Annotated[str | None, Stored("What the policy was told from there on; null in arms without a hint.")]
    status: Annotated[
        RetryStatus,
        Stored("`done`, `no_suffix`, `no_hint`, `not_restored` or `error`; only a retry that is done counts."),
    ]
    error: Annotated[str | None, Stored("What went wrong.")] = None
    old_return: Annotated[float | None, Stored("Return of the failure's own suffix from the restored step.")] = None
    new_return: Annotated[float | None, Stored("Return of the new one.")] = None
    lift: Annotated[bool | None, Stored("Whether the new one is strictly larger, at 8 decimals.")] = None
    success: Annotated[bool | None, Stored("Whether the retry reached the goal.")] = None
    actions: Annotated[list[str] | None, Stored("Actions of the new suffix.")] = None
    payloads: Annotated[list[str] | None, Stored("Their parsed arguments, JSON; empty where there are none.")] = None
    action_valid: Annotated[list[bool] | None, Stored("Whether each reply kept the whole format.")] = None
    rewards: Annotated[list[float] | None, Stored("Their rewards.")] = None
    responses: Annotated[list[str] | None, Stored("The raw replies.")] = None
    policy: Annotated[str, Stored("Who played; `scripted` is an embedded stand-in for a model.")]
    policy_config: Annotated[str, Stored("Its model, revision and sampling, JSON.")]


PROBE = TableSchema(FOLDER, "One row a retry of the rollback probe.", columns_of(Retry))


def probe_file(shard: Shard) -> str:
    """Return the relative path of a shard's retries."""
    return f"{FOLDER}/{shard.file}"


def receipt_file(shard: Shard) -> str:
    """Return the relative path of the receipt of a shard's retries."""
    return f"{RECEIPTS}/{shard.stem}.json"


def suffix_return(rewards: list[float], start: int, gamma: float) -> float:
    """Return the discounted sum of ``rewards`` from step ``start`` on (paper, suffix return)."""
    return sum(gamma**place * reward for place, reward in enumerate(rewards[start:]))


def is_lift(old: float, new: float) -> bool:
    """Whether a suffix is strictly better than another."""
    return round(new, DECIMALS) > round(old, DECIMALS)


def settings_record(settings: ProbeSettings) -> dict[str, Any]:
    """Return what is stored about a probe beside its rows."""
    return {"version": VERSION, "settings": settings.model_dump(mode="json")}
