"""Sokoban: rooms, boxes that are lost, detours."""

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from ...plugins import Settings
from ...solvers.base import Case, Solver, Unsolved, Verdict
from ..base import Draft, FailedEpisode, Filter, Objection
from ..claims import claims, outcome_claims
from ..replay import DisagreementError
from .base import Domain
from .phrases import Facts, command, count, spent, wasteful


def _sokoban(facts: Facts) -> tuple[str, str]:
    verb = "push" if facts.mode == "deadlock" else "move"
    if facts.fallback:
        avoid = "Avoid leaving the room half solved: when the log ends, a plan within the turns left still existed."
    elif facts.hopeless and facts.before is None:
        avoid = "Avoid treating this room as winnable: from its first position a box can never be brought to a target."
    elif facts.hopeless:
        avoid = (
            f"Avoid losing any move in such a room: it takes {count(facts.before or 0, 'move')} "
            f"and only {count(facts.budget_before, 'turn')} were given."
        )
    elif facts.mode == "deadlock":
        avoid = (
            f"Avoid pushing a box to a place from which it can never be brought to a target: "
            f"before this push {count(facts.before or 0, 'move')} solved the room, after it no number of moves does."
        )
    else:
        avoid = f"Avoid {wasteful(facts, 'detours around the box')}: {spent(facts, 'the room')}"
    return avoid, command(facts, verb)


class SokobanDomain(Domain):
    """What is said about it."""

    pivot: str = "the first step after which the room could no longer be solved in the turns that were left"
    advice: str = (
        "Look first at moves that pushed a box, then at detours. A turn that changed nothing is seldom the pivot, but "
        "it is when that turn was the one too many."
    )
    log_advice: str = "Such turns have action=invalid or moved=false."
    meanings: Mapping[str, str] = {
        "timeout": "the room could still be solved, but it takes more moves than there were turns left",
        "deadlock": "a box can never be brought to a target again, however many moves are made",
    }

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences; see the base class."""
        return _sokoban(facts)


DOMAIN = SokobanDomain()


@lru_cache(maxsize=1 << 14)
def _verdict_on(solver: Solver, state: str) -> Verdict | Unsolved:
    """Return the solver's verdict on wasting a turn in ``state``, or why it has none."""
    return solver.certify([Case(state, ["invalid"], 1)])[0]


class SokobanDeadlockFilter(Filter):
    """A deadlock is accepted only if re-execution reaches the state after ``t*`` that the solver pinned.

    Pinned means dead: the solver's certificate says that no plan of any length leads from ``s_{t*+1}`` to success. The
    environment, with its own rules, re-executes the actions up to and including ``t*``; its state text goes back to the
    solver as a level of its own, and the solver has to find that one dead, too. So neither a label moved to another
    step nor a difference between the two sets of rules can pass. An episode that cannot be re-executed that far is
    left to the ``replay`` rule.
    """

    name: ClassVar[str] = "sokoban_deadlock"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``certificate``, ``unproved`` or ``not_dead``."""
        verdict = draft.verdict
        if verdict.failure_mode != "deadlock":
            return None
        if verdict.certificate.reachable_after is not False or verdict.certificate.after is not None:
            return Objection(
                "certificate",
                "the mode is deadlock, but the certificate says that the goal is within reach",
            )
        try:
            state = draft.replays.of(episode).state_after(episode, verdict.pivot_step + 1)
        except DisagreementError:
            return None
        answer = _verdict_on(draft.solver, state)
        if isinstance(answer, Verdict) and answer.failure_mode == "deadlock":
            return None
        after = f"the state after step {verdict.pivot_step}"
        if isinstance(answer, Verdict):
            return Objection("not_dead", f"{after} can still be solved")
        kind = "not_dead" if answer.reason == "not_a_failure" else "unproved"
        return Objection(kind, f"{after}: {answer.reason}, {answer.detail}")


class SokobanFactsFilter(Filter):
    """Guidance does not contradict whether turns were left at a deadlock, nor call a room dead that never was.

    A box may be lost after an earlier timeout, so the claim is held against the state in which the episode ended.
    """

    name: ClassVar[str] = "sokoban_facts"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``claims_budget`` or ``claims_dead``."""
        verdict, text = draft.verdict, draft.guidance or ""
        left = verdict.certificate.budget_after
        if "budget" in claims(text) and verdict.failure_mode == "deadlock" and left > 0:
            return Objection("claims_budget", f"the text says the turns ran out, but {left} were left at the deadlock")
        if "dead" not in outcome_claims(text) or verdict.failure_mode == "deadlock":
            return None
        try:
            state = draft.replays.of(episode).state_after(episode, episode.num_steps)
        except DisagreementError:
            return None
        answer = _verdict_on(draft.solver, state)
        if isinstance(answer, Verdict) and answer.failure_mode != "deadlock":
            return Objection(
                "claims_dead",
                "the text says that a box or the room was lost for good, but it could still be solved",
            )
        return None
