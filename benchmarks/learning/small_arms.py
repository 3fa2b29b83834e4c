"""Arms of the small-network study, and its stand-ins for Teachers.

A Teacher is the Student's own distribution, tilted at the step that the hint names and untouched elsewhere: ``fatal``
lowers the action that was taken there by ``TILT`` nats, ``safe`` also raises the action that the hint names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

TILT = 4.0
"""Amount by which a hint changes the log-probability of one action, nats."""
ANALYZER_ACCURACY = 0.45
"""Share of pivots that the simulated Analyzer names correctly, as at nine turns of Sokoban (evidence.md)."""
Step = Literal["pivot", "random", "start", "first-mistake", "largest-loss", "all"]


@dataclass(frozen=True, slots=True)
class SmallArm:
    """One arm: GRPO and its addition."""

    name: str
    hint: Literal["fatal", "safe", "nothing"] | None = None
    """Content of the Teacher's hint; None for no Teacher."""
    named: Literal["solver", "analyzer", "random", "half"] = "solver"
    """Step that the hint names: the pivot; the pivot in ``ANALYZER_ACCURACY`` of the failures and a random other step
    in the rest; a random other step; the pivot, with a wrong action in half of the failures."""
    objective: str = "printed"
    corrects: Literal["witness", "preference"] | None = None
    step: Step = "pivot"
    """Step of the correction, as in ``--correction-step``."""
    credit: str | None = None
    """Rule of the credit per turn, as in ``--credit``."""
    weight: float = 0.0
    """Weight of the distillation, the corrections or the credit."""
    frozen: bool = False
    """Whether the Teacher has the weights of the start, as with ``--teacher-weights start``."""


ARMS: Mapping[str, SmallArm] = {
    arm.name: arm
    for arm in (
        SmallArm("vanilla_grpo"),
        SmallArm("empty", "nothing", weight=0.01),
        SmallArm("mp", "fatal", "analyzer", weight=0.01),
        SmallArm("mpr", "safe", "analyzer", weight=0.01),
        SmallArm("mp_random_r", "safe", "random", weight=0.01),
        SmallArm("oracle", "fatal", weight=0.01),
        SmallArm("oracle_1", "fatal", weight=1.0),
        SmallArm("oracle_centred", "fatal", objective="centred", weight=1.0),
        SmallArm("oracle_gap", "fatal", objective="gap", weight=1.0),
        SmallArm("distribution_oracle", "fatal", objective="distribution", weight=0.1),
        SmallArm("distribution_analyzer", "fatal", "analyzer", "distribution", weight=0.1),
        SmallArm("distribution_safe", "safe", objective="distribution", weight=1.0),
        SmallArm("distribution_safe_random", "safe", "random", "distribution", weight=1.0),
        SmallArm("distribution_safe_half", "safe", "half", "distribution", weight=1.0),
        SmallArm("witness_pivot", corrects="witness", weight=1.0),
        SmallArm("witness_random", corrects="witness", step="random", weight=1.0),
        SmallArm("witness_start", corrects="witness", step="start", weight=1.0),
        SmallArm("witness_first", corrects="witness", step="first-mistake", weight=1.0),
        SmallArm("witness_largest", corrects="witness", step="largest-loss", weight=1.0),
        SmallArm("witness_all", corrects="witness", step="all", weight=1.0),
        SmallArm("dpo_pivot", corrects="preference", weight=1.0),
        SmallArm("dpo_random", corrects="preference", step="random", weight=1.0),
        SmallArm("dpo_first", corrects="preference", step="first-mistake", weight=1.0),
        SmallArm("dpo_largest", corrects="preference", step="largest-loss", weight=1.0),
        SmallArm("dpo_all", corrects="preference", step="all", weight=1.0),
        SmallArm("credit_progress", credit="progress", weight=1.0),
        SmallArm("credit_slack", credit="slack", weight=1.0),
        SmallArm("credit_pivot", credit="pivot", weight=1.0),
    )
}
FROZEN = ("empty", "mp", "oracle", "distribution_oracle", "distribution_safe")
"""Arms whose Teacher is also run with the weights of the start."""


def arms_of(*, habit: bool) -> Mapping[str, SmallArm]:
    """Return the arms of a game; from a habit they are also run with other weights, and frozen Teachers."""
    if not habit:
        return ARMS
    arms: list[SmallArm] = []
    for arm in ARMS.values():
        printed = arm.hint is not None and arm.objective == "printed"
        weights = (0.01, 0.1, 1.0) if printed else (0.1, 1.0) if arm.corrects or arm.credit else (arm.weight,)
        for weight in weights if arm.name != "oracle_1" else ():
            name = arm.name if weight == arm.weight else f"{arm.name}_{weight:g}"
            arms.append(replace(arm, name=name, weight=weight))
            if arm.name in FROZEN:
                arms.append(replace(arm, name=f"{name}_start", weight=weight, frozen=True))
    return {arm.name: arm for arm in sorted(arms, key=lambda arm: arm.hint is not None)}


STEPS = ("pivot", "first", "largest", "all")
CONTROLS: Mapping[str, str] = {
    **{f"{kind}_{step}": f"{kind}_random" for kind in ("witness", "dpo") for step in STEPS},
    **{f"{kind}_{step}_0.1": f"{kind}_random_0.1" for kind in ("witness", "dpo") for step in STEPS},
    "distribution_safe": "distribution_safe_random",
    "mpr": "mp_random_r",
}
"""Arm that differs by the step alone: a gain is evidence for the location only against it. (Where the Analyzer of
``mpr`` misses the pivot, the safe action that it names is wrong, too; that of ``mp_random_r`` is always safe.)"""
RATED = ("oracle_centred", "distribution_oracle", "distribution_safe", "witness_pivot", "dpo_pivot", "credit_progress")
"""Arms whose weight was compared on other seeds (``small rates``). Their controls have the same weight."""
RATE_GAME, RATE_WEIGHTS = "frozenlake", (0.1, 1.0)
