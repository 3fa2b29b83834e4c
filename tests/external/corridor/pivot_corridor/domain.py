"""Sentences about corridors for the prompts and the template writer."""

from pivot.plugin import Domain


class CorridorDomain(Domain):
    """Two modes, and where to look."""

    pivot = "the first step after which the goal could no longer be reached in the turns that were left"
    advice = "Look first for a step into a pit, then for the step that left too few turns."
    meanings = {  # noqa: RUF012 - read only
        "timeout": "the goal is still in reach, but it is further away than there are turns left",
        "fell": "the agent fell into a pit",
    }


DOMAIN = CorridorDomain()
