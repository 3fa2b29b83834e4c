"""Navigation: metres to the target, what stands in the way."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from ...plugins import Settings
from ..base import Draft, FailedEpisode, Filter, Objection
from ..claims import negated, plain, stated
from .base import Domain
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


DOMAIN = NavigationDomain()


# What guidance may not say

_GOAL = r"(?:goal|target|destination|object|item)"

_ARRIVED = (
    r"\b(?:reache[sd]|arrive[sd] (?:at|near|next to|beside)|g[eo]ts? to|made it to|makes it to|found|attained|"
    r"(?:stands|stood|stops|stopped|ends(?: up)?|ended(?: up)?|is|was) (?:now |already |right |directly |just )*"
    r"(?:at|beside|next to|in front of|close enough to|within reach of|near enough to)) "
    r"(?:the |its |this |that |a |an )?(?:(?!and|but|while)\w+ )?{goal}s?\b"
    r"|\b{goal} (?:(?:was|is|has been|had been) (?:now |already |finally |successfully )*(?:reached|found|attained))\b"
    r"|\b(?:task|navigation|search|episode|attempt) (?:was|is|has been|had been) (?:now |already |successfully )*"
    r"(?:solved|complete|completed|successful|accomplished|done|a success)\b"
    r"|\b(?:agent|robot|it|task|navigation|episode|attempt) (?:has |had )?(?:succeeded|succeeds)\b"
    r"|\b(?:completed|solved|finished|accomplished) the (?:task|navigation|search|instruction)\b"
)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def claims_arrival(text: str, target: str) -> bool:
    """Return whether a text claims that the target was reached; ``target`` is its type, such as ``AlarmClock``."""
    name = r"[ -]?".join(re.escape(word.lower()) for word in _WORDS.findall(target))
    words = plain(text)
    pattern = _ARRIVED.replace("{goal}", rf"(?:{_GOAL}|{name})" if name else _GOAL)
    return any(stated(words, match) and not negated(words, match.end()) for match in re.finditer(pattern, words))


class NavigationFactsFilter(Filter):
    """Guidance does not claim that the target was reached, which no failed episode does.

    What a text claims is read by the word lists of :mod:`~pivot.labeling.claims`; the target's own name is one of the
    words. Advice ("reach the bread"), conditions ("once it is reached") and denials are no claims.
    """

    name: ClassVar[str] = "navigation_facts"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"navigation"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``claims_arrival``."""
        if not draft.guidance or not claims_arrival(draft.guidance, _target_type(episode.initial_state)):
            return None
        nearest = min((float(d) for info in episode.infos if (d := info.get("dist")) is not None), default=None)
        found = "the log has no distance" if nearest is None else f"the nearest it came is {nearest:.2f} m"
        return Objection("claims_arrival", f"the text says that the target was reached, but {found}")


@lru_cache(maxsize=256)
def _target_type(state: str) -> str:
    """Return the name of what a navigation state asks for; empty where the text is no such state."""
    try:
        return str(json.loads(state)["target"]["type"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""  # the replay rule says so
