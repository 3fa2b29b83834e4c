"""What the language about one environment is: wording of the Analyzer's prompt, phrases, facts for a writer, claims.

A domain is an object of the group ``pivot.domains``, under the name of its environment. One without a domain gets the
general sentences of the base class, so writing one improves prompts and guidance but is never needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ...contracts import Answer, Contract, Terms
from ...solvers.base import Verdict
from ..advice import NO_MOVES, Moves
from ..base import Draft
from ..claims import Claim, Truth
from ..episode import FailedEpisode
from .lexicon import ACTION_REPEATED, FAULT, NO_ACTION, target_reached
from .phrases import Facts, general_phrases

UNUSABLE = frozenset({"invalid", "empty"})
"""Words of the five environments for a reply that held no usable action."""

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


class Domain(Contract):
    """The general sentences; a subclass says it better for its environment."""

    terms: ClassVar[Terms] = Terms(
        attributes={
            "pivot": str,
            "advice": str,
            "log_advice": str,
            "meanings": Mapping[str, str],
            "paper_modes": Mapping[str, str],
            "quotes": Sequence[str],
        },
        answers={
            "meaning": Answer(str),
            "phrases": Answer(tuple[str, str]),
            "facts": Answer(list[str]),
            "claims": Answer(tuple[Claim, ...]),
            "truths": Answer(dict[str, Truth]),
            "excuses": Answer(bool),
            "literals": Answer(tuple[str, ...]),
            "would_serve": Answer(str | None),
        },
    )

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

    def facts(self, episode: FailedEpisode, step: int) -> list[str]:
        """Return what a writer should know beside the certificate, a sentence each."""
        del episode, step
        return []

    moves: Moves = NO_MOVES
    """How prose names the actions by directions."""
    quotes: Sequence[str] = ()
    """What may stand in a text as it is, beside the actions."""

    def claims(self, episode: FailedEpisode) -> tuple[Claim, ...]:
        """Return what a text may claim about an episode; a model writer has to declare each that has a truth."""
        del episode
        return _GENERAL_CLAIMS

    def truths(self, episode: FailedEpisode, verdict: Verdict) -> dict[str, Truth]:
        """Return the truth of the claims, by name, from certificate and log; one that is left out is not decided."""
        return general_truths(episode, verdict)

    def excuses(self, claim: str, episode: FailedEpisode, draft: Draft) -> bool:
        """Whether a claim that is untrue up to the pivot became true later; re-executes the episode where it must."""
        del claim, episode, draft
        return False

    def literals(self, episode: FailedEpisode, step: int) -> tuple[str, ...]:
        """Return what may stand in a text as it is: actions that are no words, and quotes."""
        served = self.would_serve(episode, step)
        actions = [action for action in {*episode.actions, served or ""} if not action.isalpha()]
        return (*actions, *(part for action in actions for part in action.split("|")), *self.quotes)

    def amounts(self, episode: FailedEpisode, verdict: Verdict) -> Iterator[float]:
        """Yield the numbers that a text may give: those of the certificate, the budget, and the log's measurements."""
        certificate, step = verdict.certificate, verdict.pivot_step
        yield from (0, 1, step, episode.horizon, episode.num_steps)
        yield from (certificate.budget_before, certificate.budget_after)
        known = (certificate.before, certificate.after, certificate.raw_before, certificate.raw_after)
        yield from (amount for amount in known if amount is not None)
        for info in episode.infos:
            yield from (value for value in info.values() if isinstance(value, float))

    def would_serve(self, episode: FailedEpisode, step: int) -> str | None:
        """Return an action that would have served at a step where no proof names one; None where nobody knows."""
        del episode, step
        return None


_GENERAL_CLAIMS = (target_reached("the goal was reached at the end"), NO_ACTION, ACTION_REPEATED, FAULT)


def flags(facts: Sequence[bool | None], step: int) -> Truth:
    """Return the truth of what holds or not at each step; None stands for a step that nobody knows about."""
    so_far = facts[: step + 1]
    ever = True if any(so_far) else None if None in so_far else False
    return Truth(facts[step], ever)


def general_truths(episode: FailedEpisode, verdict: Verdict) -> dict[str, Truth]:
    """Return what every log tells: the goal was not reached, which replies held nothing, which actions came twice."""
    actions, step = episode.actions, verdict.pivot_step
    twice = any(action in actions[:t] for t, action in enumerate(actions[: step + 1]))
    return {
        "target_reached": Truth.of(False),
        "fault": Truth.of(None if verdict.fallback or verdict.infeasible_at_start else True),
        "no_action": flags([action in UNUSABLE for action in actions], step),
        "action_repeated": Truth(step > 0 and actions[step] == actions[step - 1], twice),
    }
