"""The arms of the probe: the step that a retry of a failure starts from, and its hint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...training.policy_rl.hindsight.contexts import random_other_step

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
