"""Labels of navigation logs that hold distances to the target, but no state: lower bounds on the movements left.

An episode whose turns have one action is labelled by navigation's solver. Turns of several actions have one distance
each, and the actions that are left do not fall by the same number per turn; their label is the first turn after which
more movements are needed than actions are left (:func:`bound_of_turns`). Both are sound only if no movement is longer
than the step of the log, so that a log whose distances change faster gets no label.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import Field, model_validator

from .. import plugins
from ..errors import CertifyError, ConfigError, LevelError, PluginError
from ..plugins import read_settings
from ..solvers.base import Case, Certificate, Solver, Unsolved
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
    """The first turn after which a lower bound exceeds what is left."""

    turn: int
    fallback: bool
    """Whether no turn was fatal, so that it is the last one by convention."""
    needed: tuple[int, int]
    """Movements that are needed at least before the turn, and after it."""


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


def label_by_distance(episode: RecordedEpisode, slots: Sequence[Slot]) -> dict[str, Any] | str:
    """Return the label of a failure that its recorded distances give, or the reason why they give none."""
    metres = episode.distances
    moments = len(slots if episode.left is None else episode.turns) + 1
    if episode.success is not False:
        return "it reached the goal" if episode.success else "the log does not say how it ended"
    if metres is None or len(metres) != moments:
        count = len(metres or ())
        return f"found {count} distances, expected one before the first turn and one after each: {moments}"
    try:
        return _label(episode, slots, metres)
    except (CertifyError, ConfigError, LevelError, PluginError, ValueError, TypeError, KeyError) as error:
        return f"its distances cannot be used: {error}"


def _label(episode: RecordedEpisode, slots: Sequence[Slot], metres: Sequence[float]) -> dict[str, Any] | str:
    """Return a label or the reason for none; the errors are those of the solver."""
    kind: type[Solver] = plugins.load("solvers", episode.env)
    solver = kind(read_settings(kind.config_type, episode.solver or {}, f"setting of solver {episode.env}: "))
    settings = solver.settings.model_dump(mode="json")
    made = _contradiction(episode, slots, metres, settings.get("step"))
    if made is None:
        made = (
            _by_solver(episode, slots, metres, solver)
            if episode.left is None
            else _by_turns(episode, slots, metres, episode.left, settings["step"], settings["threshold"])
        )
    if isinstance(made, str):
        return made
    return {**made, "probability": None, "by": {"solver": kind.name, "version": kind.version, "settings": settings}}


def _contradiction(
    episode: RecordedEpisode, slots: Sequence[Slot], metres: Sequence[float], step: float | None
) -> str | None:
    """Return why a log cannot be one of movements of this length, between starts of this range."""
    if step is None:
        return None
    counts = [0] * len(episode.turns)
    for slot in slots:
        counts[slot.turn] += slot.action is not None
    nearest, farthest = episode.starts or (0.0, math.inf)
    if not nearest - MILLIMETRE <= metres[0] <= farthest or metres[1] < nearest - counts[0] * step - MILLIMETRE:
        return f"it began {metres[0]:g} m from the target at least, starts are from {nearest:g} to {farthest:g} m"
    moments = counts if episode.left is not None else [int(slot.action is not None) for slot in slots]
    for t, most in enumerate(moments):
        change = abs(metres[t + 1] - metres[t])
        if change > most * step + MILLIMETRE:
            return (
                f"the distance changes by {change:.3f} m in turn {t}, which has {most} actions of at most {step:g} m; "
                "bounds for such movements prove nothing"
            )
    return None


def _by_solver(
    episode: RecordedEpisode, slots: Sequence[Slot], metres: Sequence[float], solver: Solver
) -> dict[str, Any] | str:
    verdict = solver.certify([case_of(episode, slots, metres, type(solver))])[0]
    if isinstance(verdict, Unsolved):
        return f"{verdict.reason}: {verdict.detail}"
    return {
        "kind": verdict.certificate.kind,
        "pivot_step": verdict.pivot_step,
        "failure_mode": verdict.failure_mode,
        "certificate": asdict(verdict.certificate),
    }


def case_of(episode: RecordedEpisode, slots: Sequence[Slot], metres: Sequence[float], solver: type[Solver]) -> Case:
    """Return the solver's case of an episode of one action per turn.

    Raises:
        LevelError: the environment has no state that is a distance.
    """
    infos = [{**(turn.info or {}), "dist": dist} for turn, dist in zip(episode.turns, metres[1:], strict=True)]
    unusable = plugins.load("environments", episode.env).profile.unusable_action
    actions = [unusable if slot.action is None else slot.action.name for slot in slots]
    return Case(solver.read_distance(metres[0]), actions, int(episode.env_config.get("horizon", len(slots))), infos)


def _by_turns(
    episode: RecordedEpisode,
    slots: Sequence[Slot],
    metres: Sequence[float],
    left: Sequence[int],
    step: float,
    threshold: float,
) -> dict[str, Any] | str:
    if len(left) != len(metres):
        return f"found {len(left)} numbers of actions that are left, expected {len(metres)}"
    if (near := next((t for t, each in enumerate(metres) if each <= threshold), None)) is not None:
        return f"not_a_failure: {metres[near]:.2f} m from the target after {near} turns"
    bound = bound_of_turns(metres, left, step, threshold)
    turn = bound.turn
    runs = any(slot.turn == turn and slot.action is not None for slot in slots)
    blocked = (episode.turns[turn].info or {}).get("last_action_success") is False
    certificate = Certificate(
        kind="lower_bound",
        unit="moves",
        budget_before=left[turn],
        budget_after=left[turn + 1],
        before=bound.needed[0],
        after=bound.needed[1],
        reachable_after=None,
        raw_before=metres[turn],
        raw_after=metres[turn + 1],
    )
    return {
        "kind": certificate.kind,
        "pivot_step": turn,
        "failure_mode": "format" if not runs else "blocked" if blocked else "budget",
        "fallback": bound.fallback,
        "certificate": asdict(certificate),
    }
