"""Wording of the Analyzer's prompt, and the statements of guidance, for one environment.

A domain is an object of the group ``pivot.domains``, under the name of its environment. One without a domain gets the
general sentences of the base class, so writing one improves prompts and guidance but is never needed.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from ...core import plugins
from ...core.contracts import Answer, Contract, Terms
from ...core.data import load_data
from ...core.plugins import Settings
from ...environments.base import EnvConfig, EnvProfile, actions_per_turn
from ...solvers.base import TURN_SEPARATOR, Verdict
from ..action_log import FLOAT_DECIMALS, number_text
from ..episode import FailedEpisode
from ..statements import Offer, Sentences, Statement, count, statement


def read_texts(*names: str) -> tuple[str, str, str, Mapping[str, str], Mapping[str, tuple[str, ...]]]:
    """Return the first five attributes of a :class:`Domain` from its data file.

    They are ``pivot``, ``advice``, ``log_advice`` and ``meanings`` of the first file of ``names`` in this folder, and
    the wordings of all of them.
    """
    files = [load_data(__file__, f"{name}.yaml") for name in names]
    wordings = {kind: tuple(texts) for data in files for kind, texts in data["wordings"].items()}
    pivot, advice, log_advice = (files[0].get(name, "") for name in ("pivot", "advice", "log_advice"))
    return pivot, advice, log_advice, files[0].get("meanings", {}), wordings


_, _, _, GENERAL_MEANINGS, GENERAL_WORDINGS = read_texts("general")
"""Meaning of every failure mode, and wordings for every environment; a domain's own take precedence."""


@dataclass(slots=True)
class Failure:
    """One certified failure as input of a domain."""

    profile: EnvProfile
    episode: FailedEpisode
    verdict: Verdict
    decimals: int = FLOAT_DECIMALS
    """Number of decimals of measurements in the log of this episode."""
    step: int = field(init=False)
    """The pivot step."""
    action: str = field(init=False)
    """The logged action of the pivot step."""
    is_usable: bool = field(init=False)
    """Whether the reply at the pivot step held an action."""
    is_long: bool = field(init=False)
    """Whether the turn of the pivot step had several actions."""
    needs: tuple[str, str] = field(init=False)
    """Moves, or turns of several moves, that the goal took before and after the pivot step, by the certificate."""
    turns: tuple[str, str] = field(init=False)
    """The turns left before and after the pivot step."""

    def __post_init__(self) -> None:
        """Read the pivot step off the verdict."""
        certificate = self.verdict.certificate
        noun = "move" if actions_per_turn(self.episode.env_config) == 1 else "turn"
        self.step = self.verdict.pivot_step
        self.action = self.episode.actions[self.step]
        self.is_usable = self.action != self.profile.unusable_action
        self.is_long = TURN_SEPARATOR in self.action
        self.needs = count(certificate.before or 0, noun), count(certificate.after or 0, noun)
        self.turns = count(certificate.budget_before, "turn"), count(certificate.budget_after, "turn")

    @property
    def changed_nothing(self) -> bool:
        """Whether a usable action at the pivot step had no effect, according to the log; a rotation moves nothing."""
        info = self.episode.infos[self.step]
        return self.is_usable and info.get("moved") is False and info.get("last_action_success") is not True

    @property
    def is_lost_for_good(self) -> bool:
        """Whether the certificate proves that nothing leads to the goal after the pivot step, and did before."""
        certificate = self.verdict.certificate
        return certificate.kind == "exact" and certificate.before is not None and certificate.reachable_after is False

    def measure(self, value: float | None) -> str:
        """Return a measurement in the notation of the log."""
        return number_text(value or 0.0, self.decimals)


class Domain(Contract):
    """General sentences; a subclass has better ones for its environment."""

    terms: ClassVar[Terms] = Terms(
        attributes={
            "pivot": str,
            "advice": str,
            "log_advice": str,
            "meanings": Mapping[str, str],
            "paper_modes": Mapping[str, str],
            "wordings": Mapping[str, tuple[str, ...]],
        },
        answers={
            "meaning": Answer(str),
            "background": Answer(list[str]),
            "signs": Answer(list[Statement]),
            "facts": Answer(list[Statement]),
            "actions": Answer(list[Statement]),
            "contradiction": Answer(str | None),
        },
    )

    pivot: str = "the first step after which the goal could no longer be reached in the turns that were left"
    """Completes the sentence "pivot_step is the index of ..."."""
    advice: str = (
        "Look for the action that lost the episode. A turn that changed nothing is seldom the one, "
        "but it is when that turn was the one too many."
    )
    log_advice: str = ""
    """Advice about the fields of the log; shown only where the Analyzer sees them."""
    meanings: Mapping[str, str] = {}
    """One line for each failure mode of the environment."""
    paper_modes: Mapping[str, str] = {}
    """Name of each mode in the paper's targets, if it differs."""
    wordings: Mapping[str, tuple[str, ...]] = {}
    """Sentences by kind of statement, in addition to the general ones."""

    def under(self, settings: Settings) -> "Domain":
        """Return the domain for labels of a solver with these settings; itself if no text depends on them."""
        del settings
        return self

    @cached_property
    def of_long_turns(self) -> "Domain":
        """The domain where a turn may have several actions, which its own meaning of ``timeout`` may count."""
        domain = copy(self)
        domain.meanings = {mode: text for mode, text in self.meanings.items() if mode != "timeout"}
        return domain

    def meaning(self, mode: str) -> str:
        """Return the one-line meaning of ``mode``; empty if there is none."""
        return self.meanings.get(mode) or GENERAL_MEANINGS.get(mode, "")

    def background(self, episode: FailedEpisode, step: int) -> list[str]:
        """Return facts for the teacher besides the certificate, a sentence each; none of them enters a target."""
        del episode, step
        return []

    @cached_property
    def sentences(self) -> Sentences:
        """All wordings, compiled."""
        return Sentences({**GENERAL_WORDINGS, **self.wordings})

    def offer(self, failure: Failure) -> Offer:
        """Return what may be said about a failure."""
        return Offer(*map(tuple, (self.signs(failure), self.facts(failure), self.actions(failure))))

    def signs(self, failure: Failure) -> list[Statement]:
        """Return warning signs, the most telling first; they hold in every episode of the kind."""
        ahead = [statement("look_ahead")] if failure.is_lost_for_good else []
        return [*ahead, *general_signs(failure)]

    def facts(self, failure: Failure) -> list[Statement]:
        """Return what happened, the most telling first; each follows from certificate, log or level."""
        left = statement("turns_left", step=failure.step, turns=failure.turns[1])
        return [*exact_facts(failure), *general_facts(failure), left]

    def actions(self, failure: Failure) -> list[Statement]:
        """Return what to do at the pivot step instead, the witness's action first."""
        return general_actions(failure)

    def contradiction(self, failure: Failure, text: str) -> str | None:
        """Return words of free prose that contradict the facts, by a rough check that misses many, or None."""
        del failure, text
        return None


_GENERAL = Domain()


def domain_of(
    env: str, settings: Settings | None = None, config: EnvConfig | Mapping[str, Any] | None = None
) -> Domain:
    """Return the domain of an environment; the general one if no domain is registered under its name.

    Args:
        env: the environment.
        settings: those of the solver, for the pivot's and the modes' texts; the default ones if missing.
        config: settings of the environment, for the number of actions of a turn; one if missing.

    Raises:
        PluginError: the registered domain cannot be used.
    """
    domain: Domain = plugins.load("domains", env) if env in plugins.names("domains") else _GENERAL
    domain = domain if settings is None else domain.under(settings)
    return domain.of_long_turns if actions_per_turn(config or {}) > 1 else domain


def general_signs(failure: Failure) -> list[Statement]:
    """Return the signs that every environment has."""
    first = [] if failure.is_usable else [statement("send_action")]
    if failure.changed_nothing:
        first.append(statement("no_effect"))
    return [*first, statement("count_turns")]


def exact_facts(failure: Failure) -> list[Statement]:
    """Return what an exact certificate proves about a pivot in any environment; empty if no action was fatal."""
    verdict, certificate, step = failure.verdict, failure.verdict.certificate, failure.step
    if certificate.kind != "exact" or verdict.infeasible_at_start or verdict.fallback:
        return []
    (before, after), (turns, rest) = (certificate.before or 0, certificate.after), failure.turns
    within = statement("goal_within", step=step, actions=count(before, "action"), turns=turns)
    if after is None:
        return [*([statement("lost_for_good", step=step)] if failure.is_lost_for_good else []), within]
    return [statement("goal_far", step=step, actions=count(after, "action"), turns=rest), within]


def general_facts(failure: Failure) -> list[Statement]:
    """Return the facts that every log shows; a domain that gives the budget with other amounts adds these."""
    step, action, actions = failure.step, failure.action, failure.episode.actions
    facts: list[Statement] = []
    if not failure.is_usable:
        facts.append(statement("unusable", step=step))
    elif " " not in action:
        noun = "turn" if failure.is_long else "action"
        if failure.changed_nothing:
            facts.append(statement("unchanged", step=step, action=action, noun=noun))
        if step > 0 and actions[step - 1] == action:
            facts.append(statement("repeated", step=step, action=action, noun=noun))
    return facts


def best_actions(verdict: Verdict) -> list[str]:
    """Return the actions that begin a shortest plan at the pivot step, the witness's first; empty without a plan.

    Others may keep the goal within reach as well, but waste a turn. Where no turn was to spare, every safe action
    begins a shortest plan; elsewhere only that of the witness is known to.
    """
    first, certificate = (verdict.witness or ("",))[0], verdict.certificate
    if not first or first not in verdict.feasible_actions:
        return [each for each in verdict.feasible_actions if each and not verdict.witness]
    if certificate.kind != "exact" or certificate.before != certificate.budget_before:
        return [first]
    return [first, *(each for each in verdict.feasible_actions if each != first)]


def general_actions(failure: Failure, kind: str = "take") -> list[Statement]:
    """Return one statement per best action; if there is none, one without an action.

    Args:
        failure: the failure.
        kind: kind of the statements that set such an action against the logged one.
    """
    verdict, step, action = failure.verdict, failure.step, failure.action
    safe = [each for each in best_actions(verdict) if " " not in each]
    if verdict.infeasible_at_start and verdict.certificate.kind in ("exact", "lower_bound"):
        return [statement("hopeless", step=step, action=action)] if failure.is_usable else [reply_action(failure)]
    if verdict.fallback or action in verdict.feasible_actions:
        kept = [statement("keep", step=step, instead=each) for each in safe]
        return kept or [reply_action(failure)]
    if not failure.is_usable:
        answer = "answer" if actions_per_turn(failure.episode.env_config) == 1 else "answer_turn"
        return [statement(answer, step=step, instead=each) for each in safe] or [reply_action(failure)]
    named = [statement(kind, step=step, action=action, instead=each) for each in safe if " " not in action]
    return named or [reply_action(failure)]


def reply_action(failure: Failure) -> Statement:
    """Return the statement where no action is known to have served."""
    if failure.is_usable and " " not in failure.action:
        return statement("other", step=failure.step, action=failure.action)
    return statement("reply", step=failure.step)
