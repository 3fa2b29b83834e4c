"""Navigation: metres to the target, blocked moves, rotations."""

import re
from collections.abc import Mapping

from ..claims import claimed
from ..statements import Statement, statement
from .base import Domain, Failure, exact_facts, general_actions, general_facts

WORDINGS: Mapping[str, tuple[str, ...]] = {
    # What to look out for
    "watch_obstacles": (
        "Look for walls and furniture in the way before you move: a blocked move still costs its turn.",
        "Avoid walking into obstacles, since a blocked move costs a turn like any other.",
        "When a move is blocked, do not try the same one again; look for a way around.",
    ),
    "few_rotations": (
        "Turning or looking around costs a turn and brings the target no nearer.",
        "Avoid rotations and looks that the way does not need.",
        "Rotate or look only when you cannot see the way, since each takes a turn from the budget.",
    ),
    "straight_way": (
        "Avoid detours: a move covers half a metre at most.",
        "Take the straightest way to the target that the furniture allows.",
        "Plan for more moves than the straight line takes, since furniture makes the way longer.",
    ),
    "watch_progress": (
        "When the target has come no nearer for several steps, choose another move.",
        "Watch the distance: several steps without progress are too many.",
        "Avoid sequences of steps that do not shorten the distance to the target.",
    ),
    # What happened
    "far_before": (
        "Before step {step} the target was {metres} m away, which takes at least {moves}, with {turns} left.",
        "Just before step {step} the {metres} m to the target needed at least {moves}, and the budget was {turns}.",
        "With {turns} left before step {step}, the target was {metres} m away, which takes at least {moves}.",
    ),
    "far_after": (
        "After step {step} the target is {metres} m away, which takes at least {moves}, but the budget is {turns}.",
        "Step {step} left a budget of {turns}, but the {metres} m to the target take at least {moves}.",
        "The {metres} m that remain after step {step} need at least {moves}, more than the budget of {turns}.",
    ),
    "away": (
        "After step {step} the target was {metres} m away, with {turns} left.",
        "Step {step} ended {metres} m from the target, with {turns} left.",
        "When step {step} was over, the distance to the target was {metres} m and the budget was {turns}.",
    ),
    "blocked": (
        "The log reports that {action} at step {step} failed.",
        "According to the log, {action} at step {step} did not succeed.",
        "At step {step} the log says that {action} could not be carried out.",
    ),
    "no_nearer": (
        "The action {action} at step {step} brought the target no nearer.",
        "At step {step} the action {action} did not shorten the distance to the target.",
        "After step {step}, {action}, the target was no nearer than before.",
    ),
    "stagnant": (
        "Over the last few steps up to step {step} the distance to the target did not shrink noticeably.",
        "Taken together, the last few steps up to step {step} made no noticeable progress.",
        "The last few steps up to step {step} did not bring the target noticeably nearer in all.",
    ),
    "too_far": (
        "From the start the {metres} m to the target take at least {moves}, but the budget is {turns}.",
        "At the start the {metres} m to the target need at least {moves}, more than the budget of {turns}.",
        "The budget of {turns} is too small for the {metres} m from the start, which take at least {moves}.",
    ),
    # What to do
    "nearest": (
        "Up to step {step}, choose moves that bring the target nearer, which {action} did not.",
        "Up to step {step}, make every turn a move towards the target; {action} was none.",
        "Up to step {step}, make moves that shorten the distance, in place of {action}.",
    ),
    "nearer": (
        "Up to step {step}, look for a way that brings the target nearer in fewer turns.",
        "Up to step {step}, look for moves that shorten the distance more than the moves of this episode did.",
    ),
    "around": (
        "Up to step {step}, look for a way around; {action} was blocked there.",
        "Up to step {step}, look where the way is free; {action} was blocked there.",
    ),
    "reply_nearer": (
        "Up to step {step}, let no reply be without an action, and make each a move towards the target.",
        "Up to step {step}, make every reply a move that brings the target nearer.",
    ),
    "lost_before": (
        "At step {step}, no action helps any more: the way through the room was already too long.",
        "At step {step}, it is too late: too few turns were left for the way through the room.",
    ),
    "walk_on": (
        "At step {step}, go on towards the target.",
        "At step {step}, keep walking towards the target.",
        "At step {step}, take the next move towards the target.",
    ),
}

_REACHED = re.compile(
    r"\b(?:reached|found|arrived at|got to) (?:the |its )?(?:target|goal|object|destination)\b", re.IGNORECASE
)


class NavigationDomain(Domain):
    """Wording and statements about navigation."""

    pivot: str = (
        "the first step after which the moves that were left, half a metre each, could no longer cover the "
        "distance to the target"
    )
    advice: str = (
        "The target counts as found within 1.5 m of it. Look for the turn that used up the last slack: a move that "
        "was stopped, a turn of the head, a detour, or a reply without an action (action=invalid)."
    )
    log_advice: str = (
        "dist can be trusted; moved and last_action_success may be wrong. Where dist is missing, the one before still "
        "holds."
    )
    meanings: Mapping[str, str] = {
        "format": "the reply at the pivot held no usable action, and its turn was the one too many",
        "blocked": "the move at the pivot was stopped by a wall or a piece of furniture",
        "stagnation": "the distance shrank by less than 0.1 m over the five steps up to the pivot",
        "budget": "none of these: the moves that were left just could not cover the remaining distance any more",
    }

    wordings = WORDINGS

    def signs(self, failure: Failure) -> list[Statement]:
        """Return what to look out for; see the base class."""
        kinds = {"blocked": ["watch_obstacles"], "stagnation": ["watch_progress"]}.get(failure.verdict.failure_mode, [])
        if failure.action.startswith(("rotate", "look")):
            kinds = [*kinds, "few_rotations"]
        kinds = [*kinds, "straight_way" if failure.is_usable else "send_action"]
        return [statement(kind) for kind in (*kinds, "count_turns")]

    def facts(self, failure: Failure) -> list[Statement]:
        """Return what happened; the simulator's flags may be wrong, so a blocked move is what the log reports."""
        verdict, step, action = failure.verdict, failure.step, failure.action
        facts, (moves, left), (turns, rest) = verdict.certificate, failure.needs, failure.turns
        before, after = failure.measure(facts.raw_before), failure.measure(facts.raw_after)
        if facts.kind == "exact":
            statements = [*exact_facts(failure), statement("away", step=step, metres=after, turns=rest)]
        elif verdict.infeasible_at_start:
            statements = [statement("too_far", metres=before, moves=moves, turns=turns)]
        elif (facts.after or 0) > facts.budget_after:
            statements = [statement("far_after", step=step, metres=after, moves=left, turns=rest)]
            if verdict.feasible_actions:  # else it would sound as if the goal were still within reach
                statements.append(statement("far_before", step=step, metres=before, moves=moves, turns=turns))
        else:
            statements = [statement("away", step=step, metres=after, turns=rest)]
        if verdict.failure_mode == "blocked":
            statements.append(statement("blocked", step=step, action=action))
        if verdict.failure_mode == "stagnation":
            statements.append(statement("stagnant", step=step))
        if failure.is_usable and _was_no_gain(failure):
            statements.append(statement("no_nearer", step=step, action=action))
        return [*statements, *(each for each in general_facts(failure) if each.kind != "unchanged")]

    def actions(self, failure: Failure) -> list[Statement]:
        """Return the actions that kept the target within reach where the room proves them; see the base class."""
        verdict, step, action = failure.verdict, failure.step, failure.action
        if verdict.feasible_actions or verdict.infeasible_at_start:
            return general_actions(failure)
        if verdict.fallback:
            return [statement("walk_on", step=step)]
        if _is_lost_before(failure):
            return [statement("lost_before", step=step)]
        if not failure.is_usable:
            return [statement("reply_nearer", step=step)]
        if verdict.failure_mode == "blocked":
            return [statement("around", step=step, action=action)]
        facts = verdict.certificate
        is_nearer = (facts.raw_after or 0.0) < (facts.raw_before or 0.0)
        return [statement("nearer", step=step) if is_nearer else statement("nearest", step=step, action=action)]

    def contradiction(self, failure: Failure, text: str) -> str | None:
        """Return words that call the target reached."""
        return claimed(_REACHED, text)


def _is_lost_before(failure: Failure) -> bool:
    """Whether the exact search lost the goal before the pivot of the bound."""
    facts = failure.verdict.certificate
    return (
        facts.reference_kind == "exact" and facts.reference_pivot is not None and facts.reference_pivot < failure.step
    )


def _was_no_gain(failure: Failure) -> bool:
    """Whether the distance was measured on both sides of the pivot step and did not shrink."""
    facts, infos, step = failure.verdict.certificate, failure.episode.infos, failure.step
    measured = all(info.get("dist") is not None for info in infos[max(step - 1, 0) : step + 1])
    return measured and (facts.raw_after or 0.0) >= (facts.raw_before or 0.0)


DOMAIN = NavigationDomain()
