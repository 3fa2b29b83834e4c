"""Navigation: metres to the target, blocked moves, rotations."""

import re
from functools import lru_cache

from ...core.data import load_data
from ...core.plugins import Settings
from ...solvers.navigation.solver import NavigationSettings
from ..claims import claimed
from ..statements import Statement, statement
from .base import Domain, Failure, exact_facts, general_actions, general_facts, read_texts, reply_action

_REACHED = re.compile(
    r"\b(?:reached|found|arrived at|got to) (?:the |its )?(?:target|goal|object|destination)\b", re.IGNORECASE
)


class NavigationDomain(Domain):
    """Wording and statements about navigation."""

    _, _, log_advice, _, wordings = read_texts("navigation")

    def __init__(self, settings: NavigationSettings | None = None) -> None:
        """Fill the solver's settings into the texts."""
        settings = settings or NavigationSettings()
        texts, values = load_data(__file__, "navigation.yaml"), settings.model_dump()
        values["length"] = "half a metre" if settings.step == 0.5 else f"{settings.step:g} m"
        self._ways = ["straight_way"] if settings.step == 0.5 else []  # it names half a metre
        values["span"] = "five" if settings.window == 5 else settings.window
        self.pivot = texts["pivots"][settings.pivot_rule].format(**values)
        self.advice = texts["advice"].format(**values)
        self.meanings = {mode: text.format(**values) for mode, text in texts["meanings"].items()}

    def under(self, settings: Settings) -> Domain:
        """Return the domain for the settings of a solver; see the base class."""
        is_own = isinstance(settings, NavigationSettings)
        return _under(settings) if is_own else self  # pyright: ignore[reportArgumentType] - frozen, so hashable

    def signs(self, failure: Failure) -> list[Statement]:
        """Return what to look out for; see the base class."""
        kinds = {"blocked": ["watch_obstacles"], "stagnation": ["watch_progress"]}.get(failure.verdict.failure_mode, [])
        if failure.action.startswith(("rotate", "look")):
            kinds = [*kinds, "few_rotations"]
        kinds = [*kinds, *(self._ways if failure.is_usable else ["send_action"])]
        return [statement(kind) for kind in (*kinds, "count_turns")]

    def facts(self, failure: Failure) -> list[Statement]:
        """Return what happened; the simulator's flags may be wrong, so a blocked move is stated as the log's report."""
        verdict, step, action = failure.verdict, failure.step, failure.action
        facts, (moves, left), (turns, rest) = verdict.certificate, failure.needs, failure.turns
        before, after = failure.measure(facts.raw_before), failure.measure(facts.raw_after)
        if facts.kind == "exact":
            statements = [*exact_facts(failure), statement("away", step=step, metres=after, turns=rest)]
        elif verdict.infeasible_at_start:
            statements = [statement("too_far", metres=before, moves=moves, turns=turns)]
        elif (facts.after or 0) > facts.budget_after:
            statements = [statement("far_after", step=step, metres=after, moves=left, turns=rest)]
            if verdict.feasible_actions:  # otherwise the sentence would suggest that the goal is still within reach
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
        """Return the actions that kept the target within reach, if the room proves them; else nothing."""
        if failure.verdict.feasible_actions or failure.verdict.infeasible_at_start:
            return general_actions(failure)
        if not failure.is_usable:
            return [reply_action(failure)]
        return [statement("lost_before", step=failure.step)] if _is_lost_before(failure) else []

    def contradiction(self, failure: Failure, text: str) -> str | None:
        """Return words that state that the target was reached."""
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


_under = lru_cache(maxsize=64)(NavigationDomain)
DOMAIN = NavigationDomain()
