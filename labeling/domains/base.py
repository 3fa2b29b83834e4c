"""What the language about one environment is: wording of the Analyzer's prompt, phrases, facts for a writer.

A domain is an object of the group ``pivot.domains``, under the name of its environment. One without a domain gets the
general sentences of the base class, so writing one improves prompts and guidance but is never needed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .phrases import Facts, general_phrases

if TYPE_CHECKING:
    from ..base import FailedEpisode

GENERAL_MEANINGS = {
    "timeout": "the goal could still be reached, but not within the turns that were left",
    "deadlock": "the goal can never be reached again, whatever is done",
    "format": "the reply held no usable action",
    "blocked": "the move was stopped by an obstacle",
    "stagnation": "the last actions brought no progress",
    "budget": "the turns that were left could not cover the remaining distance",
    "wrong_target": "the right object was handled but ended up in a wrong place",
    "order_error": "actions came in an order that cannot work",
    "regression": "the result became worse than the one before",
    "mismatch": "the final result differs too much from what was asked for",
}
"""One line for every failure mode; a domain's own takes precedence."""


class Domain:
    """The general sentences; a subclass says it better for its environment."""

    pivot: str = "the first step after which the goal could no longer be reached in the turns that were left"
    """Completes the sentence "pivot_step is the index of ..."."""
    advice: str = (
        "Look for the action that lost the episode. A turn that changed nothing is seldom the one, "
        "but it is when that turn was the one too many."
    )
    log_advice: str = ""
    """How to read the fields of the log; said only where the Analyzer is shown them."""
    meanings: Mapping[str, str] = {}
    """One line for each failure mode of the environment."""
    paper_modes: Mapping[str, str] = {}
    """The word for each mode in the paper's targets, where the paper has others (spec section 3)."""

    def meaning(self, mode: str) -> str:
        """Return the one-line meaning of ``mode``; empty when nobody has described it."""
        return self.meanings.get(mode) or GENERAL_MEANINGS.get(mode, "")

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences about a label: what to avoid, and what to do."""
        return general_phrases(facts)

    def facts(self, episode: "FailedEpisode", step: int) -> list[str]:
        """Return what a writer should know beside the certificate, a sentence each."""
        del episode, step
        return []

    def would_serve(self, episode: "FailedEpisode", step: int) -> str | None:
        """Return an action that would have served at a step where no proof names one; None where nobody knows."""
        del episode, step
        return None
