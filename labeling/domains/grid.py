"""What both puzzles have in common: four moves, of which some still led to the goal."""

from typing import ClassVar

from ...plugins import Settings
from ..base import Draft, FailedEpisode, Filter, Objection
from ..claims import advised_action


class GridAdviceFilter(Filter):
    """Guidance does not advise an action at ``t*`` that loses the goal, as the solver proved.

    The advised action is the one that :func:`~pivot.labeling.claims.advised_action` reads from a sentence about step
    ``t*``. Where no action keeps the goal in reach, any advice passes.
    """

    name: ClassVar[str] = "grid_advice"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban", "frozenlake"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``bad_action``."""
        verdict, good = draft.verdict, draft.verdict.feasible_actions or ()
        if not draft.guidance or not good:
            return None
        advised = advised_action(draft.guidance, verdict.pivot_step, ("up", "down", "left", "right"))
        if advised is None or advised in good:
            return None
        return Objection(
            "bad_action", f"the text advises {advised} at step {verdict.pivot_step}, but only {', '.join(good)} held"
        )
