"""Arms, settings and rows of a probe: one row per retry, in files next to the tables of the store.

An arm says from which step a retry of a failure starts, and its hint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from ...core.plugins import Settings
from ...core.records import Stored
from ...datasets.store.config import Shard
from ...datasets.store.schema import TableSchema, columns_of
from ...datasets.store.store import PROBE_FOLDER as FOLDER
from ...training.policy_rl.hindsight.contexts import random_other_step

SETTINGS_FILE = f"{FOLDER}/probe.json"
RECEIPTS = f".{FOLDER}"
"""Folder of the receipts with which a stopped probe resumes; no manifest lists them."""
VERSION = "1"
"""Version of the rows; raised when equal inputs give different rows."""
DECIMALS = 8
"""Number of decimals to which returns are compared, as in the statistics of groups."""


Restore = Literal["pivot", "before", "after", "random"]
Hint = Literal["none", "self", "teacher"]


@dataclass(frozen=True, slots=True)
class ProbeArm:
    """One condition of the probe."""

    name: str
    summary: str
    """Half a sentence for ``--help`` and the docs."""
    restore: Restore = "pivot"
    hint: Hint = "none"

    def step(self, episode_id: str, pivot: int, num_steps: int) -> int | None:
        """Return the step whose state is restored, None if the episode has no such step.

        Args:
            episode_id: decides the random step.
            pivot: t*.
            num_steps: T; steps 0 to T - 1 were taken.
        """
        if self.restore == "random":
            return random_other_step(episode_id, pivot, num_steps) if num_steps > 1 else None
        step = pivot + {"pivot": 0, "before": -1, "after": 1}[self.restore]
        return step if 0 <= step < num_steps else None


PROBE_ARMS: Mapping[str, ProbeArm] = {
    arm.name: arm
    for arm in (
        ProbeArm("no_hint", "from t*, without a hint"),
        ProbeArm("after", "from t* + 1, without a hint: the lost step is kept", "after"),
        ProbeArm("self", "from t*, with m* and guidance by the policy's own model", hint="self"),
        ProbeArm("teacher", "from t*, with m* and the label's guidance", hint="teacher"),
        ProbeArm("random", "control: from a uniform random other step", "random"),
        ProbeArm("before", "control: from t* - 1", "before"),
    )
}
"""Arms by name, in the order of tables. The order is also part of the ids of retries: new arms go to the end."""

DEFAULT_ARMS = tuple(PROBE_ARMS)
BOUND = "bound"
"""Arm that chooses the step of each retry by earlier outcomes; see :mod:`.bounds`. It has its own rows."""


class RetryStatus(StrEnum):
    """Outcome of a retry."""

    DONE = "done"
    NO_SUFFIX = "no_suffix"  # the episode has no step to restart from
    NO_HINT = "no_hint"  # the hint is empty
    NOT_RESTORED = "not_restored"  # the logged replies did not lead to the logged state
    ERROR = "error"  # the policy or the environment failed


class ProbeSettings(Settings):
    """Settings that decide the rows of a probe, in addition to the store."""

    arms: tuple[str, ...] = Field(default=DEFAULT_ARMS, min_length=1)
    resamples: int = Field(default=1, ge=1, le=10_000)
    """Retries of a failure in every arm."""
    retries: int = Field(default=16, ge=1, le=1000)
    """Expected number of retries per success in arm bound; used to choose the next step to retry."""
    budget: int | None = Field(default=None, ge=1)
    """Maximum number of retries of a failure in arm bound; by default three times ``retries``."""
    certified: bool = False
    """Whether failures with an exact certificate get bounds, too, for comparison."""


@dataclass(slots=True, kw_only=True)
class Retry:
    """One resampled suffix: a row of the ``probe`` table."""

    retry_id: Annotated[str, Stored("Versioned hash of failure, arm, sample and policy; its random stream.")]
    episode_id: Annotated[str, Stored("The failure.")]
    env: Annotated[str, Stored("Environment name.")]
    task_id: Annotated[str, Stored("Level.")]
    arm: Annotated[str, Stored("`no_hint`, `after`, `self`, `teacher`, `random` or `before`.")]
    sample_idx: Annotated[int, Stored("Index among the retries of this failure in this arm.")]
    label_version: Annotated[str, Stored("Version of the label that named the pivot.")]
    pivot_step: Annotated[int, Stored("t* of the failure.")]
    kind: Annotated[str, Stored("Kind of its certificate.")]
    restore_step: Annotated[int | None, Stored("Step whose state was restored; null if the episode has no such step.")]
    hint: Annotated[str | None, Stored("Hint in the prompts from that step on; null in arms without a hint.")]
    status: Annotated[
        RetryStatus, Stored("`done`, `no_suffix`, `no_hint`, `not_restored` or `error`; only `done` counts in rates.")
    ]
    error: Annotated[str | None, Stored("Reason of a failed retry.")] = None
    old_return: Annotated[float | None, Stored("Return of the failure's own suffix from the restored step.")] = None
    new_return: Annotated[float | None, Stored("Return of the new suffix.")] = None
    lift: Annotated[bool | None, Stored("Whether the new return is strictly larger, at 8 decimals.")] = None
    success: Annotated[bool | None, Stored("Whether the retry reached the goal.")] = None
    actions: Annotated[list[str] | None, Stored("Actions of the new suffix.")] = None
    payloads: Annotated[list[str] | None, Stored("Parsed arguments of the actions, JSON; or empty.")] = None
    action_valid: Annotated[list[bool] | None, Stored("Whether each reply kept the whole format.")] = None
    rewards: Annotated[list[float] | None, Stored("Rewards of the actions.")] = None
    responses: Annotated[list[str] | None, Stored("The raw replies.")] = None
    policy: Annotated[str, Stored("Name of the policy; `scripted` is the built-in mock.")]
    policy_config: Annotated[str, Stored("Model, revision and sampling of the policy, JSON.")]


PROBE = TableSchema(FOLDER, "One row per retry of the rollback probe.", columns_of(Retry))


@dataclass(slots=True, kw_only=True)
class Bound:
    """The bound of one failure: a row of the ``bounds`` table of a probe."""

    episode_id: Annotated[str, Stored("The failure.")]
    env: Annotated[str, Stored("Environment name.")]
    num_steps: Annotated[int, Stored("Number of its steps.")]
    proven: Annotated[int, Stored("Step t for which t* >= t is proved.")]
    actions: Annotated[
        list[str] | None, Stored("Actions from that step on that reach the goal; null for step 0, which needs none.")
    ] = None
    payloads: Annotated[list[str] | None, Stored("Parsed arguments of the actions, JSON; or empty.")] = None
    tried: Annotated[dict[str, int], Stored("Failed retries by step, JSON.", json=True)]
    retries: Annotated[int, Stored("Finished retries.")]
    begun: Annotated[int, Stored("Retries that were begun; the next one gets this number.")]
    is_over: Annotated[bool, Stored("Whether the search ended; false where the next run continues it.")]
    chance_step: Annotated[int | None, Stored("Step after the proven one, if retries began there.")] = None
    chance_at_most: Annotated[
        float | None, Stored("Bound on the chance of this policy to succeed from there, at 95 %.")
    ] = None
    policy: Annotated[str, Stored("Name of the policy that played the retries.")]
    policy_config: Annotated[str, Stored("Model, revision and sampling of the policy, JSON.")]


BOUNDS = TableSchema("bounds", "One row per failure under arm bound of the rollback probe.", columns_of(Bound))


def bounds_file(shard: Shard) -> str:
    """Return the relative path of the bounds of a shard."""
    return f"{FOLDER}/bounds/{shard.file}"


def probe_file(shard: Shard) -> str:
    """Return the relative path of a shard's retries."""
    return f"{FOLDER}/{shard.file}"


def receipt_file(shard: Shard) -> str:
    """Return the relative path of the receipt of a shard's retries."""
    return f"{RECEIPTS}/{shard.stem}.json"


def is_lift(old: float, new: float) -> bool:
    """Whether a new suffix return is strictly larger than the old one."""
    return round(new, DECIMALS) > round(old, DECIMALS)


def settings_record(settings: ProbeSettings) -> dict[str, Any]:
    """Return the content of the settings file."""
    return {"version": VERSION, "settings": settings.model_dump(mode="json")}
