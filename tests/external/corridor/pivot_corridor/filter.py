"""A filter of one's own: a label must not contradict the log."""

from typing import ClassVar

from pivot.plugin import Draft, FailedEpisode, Filter, Objection, Settings


class CorridorFactsFilter(Filter):
    """An agent that fell must have moved."""

    name: ClassVar[str] = "corridor_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"corridor"})
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``unmoved`` with the step, or None."""
        verdict = draft.verdict
        fell = verdict.failure_mode == "fell" and not verdict.infeasible_at_start
        if fell and episode.infos[verdict.pivot_step].get("moved") is False:
            return Objection("unmoved", f"it fell, but nothing moved at step {verdict.pivot_step}")
        return None
