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
TEACHERS, TEACHER_WEIGHTS = ("empty", "mp", "mpr", "mp_random_r", "oracle"), (0.01, 0.1, 1.0)
"""Arms of the paper's loss, and the weights at which they are run from a habit."""


def arms_of(*, habit: bool) -> Mapping[str, SmallArm]:
    """Return the arms of a game; from a habit Teachers also have other weights, and those of the start."""
    if not habit:
        return ARMS
    arms = [arm for arm in ARMS.values() if arm.name not in TEACHERS and arm.name != "oracle_1"]
    for name in TEACHERS:
        for weight in TEACHER_WEIGHTS:
            live = replace(ARMS[name], name=name if weight == 0.01 else f"{name}_{weight:g}", weight=weight)
            arms += [live, replace(live, name=f"{live.name}_start", frozen=True)]
    arms += [replace(arm, name=f"{arm.name}_start", frozen=True) for arm in arms if arm.objective == "distribution"]
    return {arm.name: arm for arm in arms}


CONTROLS: Mapping[str, str] = {
    **{f"witness_{step}": "witness_random" for step in ("pivot", "first", "largest", "all")},
    **{f"dpo_{step}": "dpo_random" for step in ("pivot", "first", "largest", "all")},
    "distribution_safe": "distribution_safe_random",
    "mpr": "mp_random_r",
}
"""Arm that differs by the step alone: a gain is evidence for the location only against it. (Where the Analyzer of
``mpr`` misses the pivot, the safe action that it names is wrong, too; that of ``mp_random_r`` is always safe.)"""
RATED = ("oracle_centred", "distribution_oracle", "distribution_safe", "witness_pivot", "dpo_pivot", "credit_progress")
"""Arms whose weight was compared on other seeds (``small rates``). Their controls have the same weight."""
RATE_GAME, RATE_WEIGHTS = "frozenlake", (0.1, 1.0)
