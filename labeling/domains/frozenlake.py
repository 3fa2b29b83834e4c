"""FrozenLake: holes, paths over ice, detours."""

from collections.abc import Mapping
from typing import ClassVar

from ...plugins import Settings
from ..base import Draft, FailedEpisode, Filter, Objection
from ..claims import claims
from ..replay import DisagreementError
from .base import Domain
from .phrases import Facts, command, count, spent, wasteful


def _frozenlake(facts: Facts) -> tuple[str, str]:
    if facts.fallback:
        avoid = (
            "Avoid stopping short of the goal: when the log ends, a path over ice within the turns left still existed."
        )
    elif facts.hopeless and facts.before is None:
        avoid = "Avoid treating this lake as winnable: no path over ice leads from the start to the goal."
    elif facts.hopeless:
        avoid = (
            f"Avoid losing any move on such a lake: the path over ice takes {count(facts.before or 0, 'move')} "
            f"and only {count(facts.budget_before, 'turn')} were given."
        )
    elif facts.mode == "deadlock":
        avoid = (
            f"Avoid stepping into a hole, which ends the episode at once: the goal was "
            f"{count(facts.before or 0, 'move')} away over ice with {count(facts.budget_before, 'turn')} left."
        )
    else:
        avoid = f"Avoid {wasteful(facts, 'detours on the ice')}: {spent(facts, 'the path over ice')}"
    return avoid, command(facts, "move")


class FrozenLakeDomain(Domain):
    """What is said about it."""

    pivot: str = "the first step after which the goal could no longer be reached in the turns that were left"
    advice: str = (
        "Look first for a step into a hole, then for a move that left too few turns. A turn that changed nothing is "
        "seldom the pivot, but it is when that turn was the one too many."
    )
    log_advice: str = "Such turns have action=invalid or moved=false."
    meanings: Mapping[str, str] = {
        "timeout": "the agent stands on ice and a path to the goal exists, but it is longer than the turns left",
        "deadlock": "the agent fell into a hole, or no path over ice leads to the goal",
    }

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences; see the base class."""
        return _frozenlake(facts)


DOMAIN = FrozenLakeDomain()


def _in_hole(state: str) -> bool:
    """Whether the player of a FrozenLake state text is in a hole; off the start its last line is ``@ row column``."""
    *rows, last = state.splitlines()
    if not last.startswith("@"):
        return False
    row, column = map(int, last.split()[1:])
    return rows[row][column] == "H"


class FrozenLakeFactsFilter(Filter):
    """Guidance does not contradict whether the player fell into a hole, and whether turns were left.

    What a text claims is read by the word lists of :mod:`~pivot.labeling.claims`, whose limits stand there. A fall
    counts wherever it happens in the episode, since a later fall is a fact about a timeout, too. An episode that cannot
    be re-executed is left to the ``replay`` rule.
    """

    name: ClassVar[str] = "frozenlake_facts"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"frozenlake"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``claims_fall``, ``denies_fall`` or ``claims_budget``."""
        claimed = claims(draft.guidance) if draft.guidance else frozenset[str]()
        if not claimed:
            return None
        verdict = draft.verdict
        if "budget" in claimed and verdict.failure_mode == "deadlock" and verdict.certificate.budget_after > 0:
            left = verdict.certificate.budget_after
            return Objection("claims_budget", f"the text says the turns ran out, but {left} were left at the deadlock")
        try:
            fell = _in_hole(draft.replays.of(episode).state_after(episode, episode.num_steps))
        except DisagreementError:
            return None
        if "fall" in claimed and not fell:
            return Objection("claims_fall", "the text says that the player fell into a hole, but it never did")
        if "no_fall" in claimed and fell:
            return Objection("denies_fall", "the text says that the player did not fall, but it did")
        return None
