"""Navigation: metres to the target, what stands in the way."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from ...solvers.base import Verdict
from ..advice import Moves
from ..base import Draft, Objection
from ..claims import Claim, Truth
from ..episode import FailedEpisode
from ..texts import FactsFilter, advice_problem
from .base import Domain, flags, general_truths
from .lexicon import ACTION_REPEATED, BLOCKED, FAULT, NO_ACTION, PROGRESS, TURNS_RAN_OUT, target_reached
from .phrases import Facts, count


def _navigation(facts: Facts) -> tuple[str, str]:
    at, avoid = f"At step {facts.step}", _navigation_avoid(facts)
    if facts.hopeless:
        return avoid, f"{at}, do not count on {facts.action}: nothing there kept the target in reach."
    stop, go = f"do not choose {facts.action}", f"take {facts.instead} instead"
    if facts.instead is None:
        go = "take the move that shortens the way to the target most"
    if facts.fallback:
        stop = f"do not end with {facts.action}"
    elif not facts.usable:
        stop = f"do not leave the reply without an action ({facts.action})"
    elif facts.mode == "blocked":
        stop = f"do not run into what is in the way with {facts.action}"
        go = "go around it" if facts.instead is None else f"go around it with {facts.instead}"
    return avoid, f"{at}, {stop}; {go}."


def _navigation_avoid(facts: Facts) -> str:
    metres = f"{facts.measure(facts.raw_after)} m"
    if facts.hopeless:
        return (
            f"Avoid losing any turn on so long a way: the {facts.measure(facts.raw_before)} m to the target take at "
            f"least {count(facts.before or 0, 'move')}, and only {count(facts.budget_before, 'turn')} were given."
        )
    if facts.fallback:
        return f"Avoid stopping on the way: when the log ends, {metres} are left to the target and so are turns."
    habit = {
        "format": "replies without a usable action, each of which costs a turn",
        "blocked": "walking into what stands in the way, since a stopped move costs its turn",
        "stagnation": "turns that bring the target no nearer",
    }.get(facts.mode, "detours and turns of the head that the way does not need")
    needed = count(facts.after or 0, "move")
    return (
        f"Avoid {habit}: after this turn the {metres} to the target take at least {needed}, "
        f"with {count(facts.budget_after, 'turn')} left."
    )


MOVES = Moves(
    {
        "ahead": r"ahead|forwards?|straight|onwards?",
        "back": "back(?:wards?)?",
        "left": "left(?:wards?)?",
        "right": "right(?:wards?)?",
        "up": "up(?:wards?)?",
        "down": "down(?:wards?)?",
    },
    {
        **{("move", name): f"move{name}" for name in ("ahead", "back", "left", "right")},
        **{("rotate", name): f"rotate{name}" for name in ("left", "right")},
        **{("look", name): f"look{name}" for name in ("up", "down")},
    },
)


class NavigationDomain(Domain):
    """What is said about it."""

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

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences; see the base class."""
        return _navigation(facts)

    moves = MOVES

    def claims(self, episode: FailedEpisode) -> tuple[Claim, ...]:
        """Return what a text may claim; the target's own name is one of the words for success."""
        return _claims(_target_type(episode.initial_state))

    def truths(self, episode: FailedEpisode, verdict: Verdict) -> dict[str, Truth]:
        """Return what log and certificate tell; see the base class."""
        step, raw = verdict.pivot_step, (verdict.certificate.raw_before, verdict.certificate.raw_after)
        stopped = [_stopped(action, info) for action, info in zip(episode.actions, episode.infos, strict=True)]
        if verdict.failure_mode == "blocked":
            stopped[step] = True
        nearer = None if None in raw else (raw[1] or 0.0) < (raw[0] or 0.0)
        return general_truths(episode, verdict) | {
            "turns_ran_out": Truth.of(None if verdict.fallback else True),
            "blocked": flags(stopped, step),
            "progress": Truth(nearer, flags([*_nearer(episode)[:step], nearer], step).ever),
        }

    def amounts(self, episode: FailedEpisode, verdict: Verdict) -> Iterator[float]:
        """Yield the numbers that a text may give, with the length of a move and the distance that counts as found."""
        yield from super().amounts(episode, verdict)
        yield from (0.5, 1.5)


# What a text may claim

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_NEAR = (
    r"(?:stands|standing|stood|stops|stopped|ends(?: up)?|ended(?: up)?|is|was) (?:now |already |right |directly |"
    r"just )*"
    r"(?:at|beside|next to|in front of|close enough to|within reach of|near enough to) (?:the |its |this |that |a )?"
)
_MORE_TURNS = Claim(
    TURNS_RAN_OUT.name,
    "after step {step} the way to the target took more moves than there were turns left",
    TURNS_RAN_OUT.says,
    TURNS_RAN_OUT.denies,
)


@lru_cache(maxsize=256)
def _claims(target: str) -> tuple[Claim, ...]:
    """Return the claims about a walk to a target of a type such as ``AlarmClock``."""
    name = r"[ -]?".join(re.escape(word.lower()) for word in _WORDS.findall(target))
    goal = rf"(?:goal|target|destination|object|item{f'|{name}' if name else ''})"
    arrival = target_reached(
        "the agent came near enough to the target",
        rf"{_NEAR}(?:(?!and|but|while)\w+ )?{goal}",
        rf"{goal}s? (?:was|is|were) (?:now |already |finally |then )?(?:within|in) reach|(?:near|close) enough",
        rf"(?:found|finds|reached|reaches|attained|located) (?:the |its |their |that )?(?:\w+ )?{goal}",
        rf"{goal} (?:was|is|has been|had been) (?:\w+ )?(?:found|reached|attained|located)",
        r"(?:was|were) (?:\w+ )?(?:found|reached)",
    )
    return arrival, _MORE_TURNS, NO_ACTION, ACTION_REPEATED, BLOCKED, PROGRESS, FAULT


def _stopped(action: str, info: Mapping[str, Any]) -> bool | None:
    """Whether an action was stopped; the simulator's two flags may disagree, and then nobody knows."""
    if not action.startswith("move"):
        return False
    told = {info.get("moved"), info.get("last_action_success")}
    if None in told:
        return None
    return not told.pop() if len(told) == 1 else None


def _nearer(episode: FailedEpisode) -> list[bool | None]:
    """Return for each step whether the logged distance shrank; None where a distance is missing."""
    before: float | None = None
    shrank: list[bool | None] = []
    for info in episode.infos:
        after = info.get("dist")
        shrank.append(None if after is None or before is None else after < before)
        before = before if after is None else after
    return shrank


DOMAIN = NavigationDomain()


class NavigationFactsFilter(FactsFilter):
    """Guidance does not contradict the facts of its walk, nor advise the action that lost it.

    Distances prove which action lost the walk, not which would have kept it: any other may be advised.
    """

    name: ClassVar[str] = "navigation_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"navigation"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return an untrue claim, ``bad_action`` or ``other_action``."""
        return super().check(episode, draft) or advice_problem(MOVES, episode, draft.verdict, draft.guidance or "")


@lru_cache(maxsize=256)
def _target_type(state: str) -> str:
    """Return the name of what a navigation state asks for; empty where the text is no such state."""
    try:
        return str(json.loads(state)["target"]["type"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""  # the replay rule says so
