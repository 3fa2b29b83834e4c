"""What both puzzles have in common: four moves, of which some still led to the goal, and turns that run out."""

from typing import ClassVar

from ...plugins import Settings
from ...solvers.base import Verdict
from ..advice import Moves
from ..base import Draft, Filter, Objection
from ..claims import Truth
from ..episode import FailedEpisode
from ..texts import advice_problem
from .base import UNUSABLE, flags, general_truths

DIRECTIONS = ("up", "down", "left", "right")
MOVES = Moves(
    {
        "up": r"up(?:wards?)?|north(?:wards?)?",
        "down": r"down(?:wards?)?|south(?:wards?)?",
        "left": "left|west(?:wards?)?",
        "right": "right|east(?:wards?)?",
    },
    {("move", name): name for name in DIRECTIONS},
)


def grid_truths(episode: FailedEpisode, verdict: Verdict) -> dict[str, Truth]:
    """Return what log and exact distances tell in both puzzles."""
    step, certificate = verdict.pivot_step, verdict.certificate
    stopped: list[bool | None] = [
        False if action in UNUSABLE else None if (moved := info.get("moved")) is None else moved is False
        for action, info in zip(episode.actions, episode.infos, strict=True)
    ]
    lost_by_turns: bool | None = verdict.failure_mode == "timeout"
    if verdict.fallback or (not lost_by_turns and certificate.budget_after <= 0):
        lost_by_turns = None
    open_end = verdict.fallback or verdict.infeasible_at_start
    return general_truths(episode, verdict) | {
        "turns_ran_out": Truth.of(lost_by_turns),
        "blocked": flags(stopped, step),
        "progress": Truth(None if open_end else False, None),
    }


class GridAdviceFilter(Filter):
    """Guidance does not advise an action at ``t*`` that loses the goal, nor warn of one that keeps it.

    What a text says about actions is read by :mod:`~pivot.labeling.advice`. Where no action keeps the goal in reach,
    any advice passes.
    """

    name: ClassVar[str] = "grid_advice"
    judges_text: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban", "frozenlake"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``bad_action`` or ``other_action``."""
        return advice_problem(MOVES, episode, draft.verdict, draft.guidance or "")
