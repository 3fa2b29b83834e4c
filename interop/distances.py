"""Labels of navigation logs that hold distances to the target, but no state: lower bounds on the movements left.

The label is the first turn after which more movements are needed than actions are left (:func:`bound_of_turns`). It is
sound only if no movement is longer than the step of the log, so that a log whose distances change faster gets no label.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, model_validator

from ..core import plugins
from ..core.errors import ConfigError, PluginError
from ..core.plugins import read_settings
from ..rollouts.policies.imported import DistanceBound
from ..solvers.base import Solver
from .base import SourceSettings
from .episode import RecordedEpisode
from .levels import Slot

SLACK = 1e-5
"""Tolerance of quotients above a whole number: positions of simulators have seven digits."""
MILLIMETRE = 1e-3
"""Tolerance of distances that are compared, metres."""


class StartSettings(SourceSettings):
    """Start range of a dialect of navigation."""

    nearest_start: float = Field(default=0.0, ge=0)
    """Smallest distance of a start from its target, metres. An episode that cannot have begun so far away gets no
    label."""
    farthest_start: float = Field(default=1000.0, gt=0)
    """Largest distance of a start from its target, metres."""

    @model_validator(mode="after")
    def _is_a_range(self) -> "StartSettings":
        if self.nearest_start > self.farthest_start:
            raise ValueError(f"nearest_start={self.nearest_start} is above farthest_start={self.farthest_start}")
        return self


@dataclass(frozen=True, slots=True)
class TurnBound:
    """The first turn after which a lower bound exceeds the remaining actions."""

    turn: int
    fallback: bool
    """Whether no turn was fatal, so that the last one is named by convention."""
    needed: tuple[int, int]
    """Minimum number of movements before the turn, and after it."""


def bound_of_turns(metres: Sequence[float], left: Sequence[int], step: float, threshold: float) -> TurnBound:
    """Return the pivot of an episode by its distances before the first turn and after each.

    Args:
        metres: distances to the target.
        left: most actions that could still run, at the same moments.
        step: longest movement, metres.
        threshold: distance that is success, metres.
    """
    needed = [math.ceil(max(0.0, each - threshold) / step - SLACK) for each in metres]
    lost = [need > most for need, most in zip(needed, left, strict=True)]
    turns = range(len(metres) - 1)
    turn = next((t for t in turns if lost[t + 1] or (t == 0 and lost[0])), None)
    last = len(metres) - 2 if turn is None else turn
    return TurnBound(last, turn is None, (needed[last], needed[last + 1]))


def start_distance(first: float, movements: int, step: float, nearest: float) -> float:
    """Return the smallest distance that an episode can have begun at.

    Args:
        first: first distance that was logged, metres.
        movements: movements before it.
        step: longest movement, metres.
        nearest: smallest distance of a start, metres.
    """
    return max(nearest, first - movements * step, 0.0)


def bound_by_distance(
    episode: RecordedEpisode, slots: Sequence[Slot], env_config: Mapping[str, Any]
) -> DistanceBound | str:
    """Return the bound from the recorded distances of a failure, or the reason why there is none.

    Without a horizon in ``env_config``, the log is as long as the turns that were given.
    """
    try:
        return _bound(episode, slots, env_config)
    except _NoBoundError as error:
        return str(error)
    except (ConfigError, PluginError) as error:
        return f"its distances cannot be used: {error}"


class _NoBoundError(Exception):
    """The distances of an episode give no bound."""


def _bound(episode: RecordedEpisode, slots: Sequence[Slot], env_config: Mapping[str, Any]) -> DistanceBound:
    metres, moments = episode.distances or [], len(episode.turns) + 1
    if episode.success is not False:
        raise _NoBoundError("it reached the goal" if episode.success else "the log does not say how it ended")
    if len(metres) != moments:
        raise _NoBoundError(
            f"found {len(metres)} distances, expected one before the first turn and after each: {moments}"
        )
    kind: type[Solver] = plugins.load("solvers", episode.env)
    values = read_settings(kind.config_type, episode.solver or {}, f"setting of solver {episode.env}: ").model_dump()
    if "step" not in values or values.get("pivot_rule") != "budget":
        raise _NoBoundError(f"solver {episode.env} finds no pivot by step and budget with these settings")
    horizon = int(env_config.get("horizon", len(slots)))
    left = episode.left or [max(0, horizon - t) for t in range(moments)]
    if len(left) != moments or (episode.left is None and len(slots) != len(episode.turns)):
        raise _NoBoundError(
            f"found {len(episode.left or ())} numbers of actions that are left, expected one before the first turn and "
            f"one after each: {moments}"
        )
    step, threshold = float(values["step"]), float(values["threshold"])
    _refuse_contradiction(episode, slots, metres, step)
    if (near := next((t for t, each in enumerate(metres) if each <= threshold), None)) is not None:
        raise _NoBoundError(f"not_a_failure: {metres[near]:.2f} m from the target after {near} turns")
    bound = bound_of_turns(metres, left, step, threshold)
    runs = any(slot.turn == bound.turn and slot.action is not None for slot in slots)
    is_blocked = (episode.turns[bound.turn].info or {}).get("last_action_success") is False
    return DistanceBound(
        kind="lower_bound",
        pivot_step=bound.turn,
        failure_mode="format" if not runs else "blocked" if is_blocked else "budget",
        fallback=bound.fallback,
        before=bound.needed[0],
        after=bound.needed[1],
        distances=tuple(metres),
        left=tuple(left),
        step=step,
        threshold=threshold,
    )


def _refuse_contradiction(
    episode: RecordedEpisode, slots: Sequence[Slot], metres: Sequence[float], step: float
) -> None:
    """Refuse a log whose distances contradict the movement length or the range of starts."""
    counts = [0] * len(episode.turns)
    for slot in slots:
        counts[slot.turn] += slot.action is not None
    nearest, farthest = episode.starts or (0.0, math.inf)
    if not nearest - MILLIMETRE <= metres[0] <= farthest or metres[1] < nearest - counts[0] * step - MILLIMETRE:
        raise _NoBoundError(
            f"it began {metres[0]:g} m from the target at least, starts are from {nearest:g} to {farthest:g} m"
        )
    for t, most in enumerate(counts):
        change = abs(metres[t + 1] - metres[t])
        if change > most * step + MILLIMETRE:
            raise _NoBoundError(
                f"the distance changes by {change:.3f} m in turn {t}, which has {most} actions of at most {step:g} m; "
                "bounds for such movements prove nothing"
            )
