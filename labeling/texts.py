"""Does a piece of guidance fit the facts? The rules for prose of all environments, put together.

A text is held against the proved label and the log alone: its form, the steps and numbers that it names, what it claims
and what it advises. So a stored text can be judged again at any time, whoever wrote it and whatever was declared.
"""

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ..plugins import Settings
from ..solvers.base import Verdict
from .advice import Moves, remarks
from .base import Draft, Filter, Objection
from .claims import Claim, Mention, Truth, is_advice, is_guidance, is_refusal, mentions, plain, untrue
from .domains import Domain, domain_of
from .episode import FailedEpisode
from .wording import form_problem, number_problem, step_problem, without

SUCCESS = "target_reached"
"""The claim that no failed episode can make; the rule ``outcome`` speaks about it."""


def prose_problem(domain: Domain, episode: FailedEpisode, verdict: Verdict, text: str) -> Objection | None:
    """Return what is wrong with a text beside its claims and its advice: form, language, steps, numbers."""
    step, certificate = verdict.pivot_step, verdict.certificate
    literals = domain.literals(episode, step)
    left = {certificate.budget_before, certificate.budget_after}
    if certificate.before is not None and certificate.unit != "score":
        left.add(int(certificate.budget_before - certificate.before))
    problem = (
        form_problem(text, literals)
        or step_problem(text, step, episode.num_steps)
        or number_problem(text, set(domain.amounts(episode, verdict)), left, literals)
    )
    return None if problem is None else Objection(*problem)


def untrue_claims(domain: Domain, episode: FailedEpisode, verdict: Verdict, text: str) -> Iterator[Mention]:
    """Yield what a text claims against certificate and log."""
    return untrue(text, domain.claims(episode), domain.truths(episode, verdict), verdict.pivot_step)


def claim_objection(mention: Mention) -> Objection:
    """Return an untrue claim as an objection; its kind says which it is, and whether it is claimed or denied."""
    kind = f"{'claims' if mention.affirmed else 'denies'}_{mention.claim.name}"
    return Objection(kind, f"the text says {mention.words!r}, which log and certificate contradict")


def advice_problem(moves: Moves, episode: FailedEpisode, verdict: Verdict, text: str) -> Objection | None:
    """Return ``bad_action`` for advice that loses the goal, ``other_action`` for a report of what was not done.

    Nothing is bad where the goal was out of reach before, or where no action was fatal.
    """
    logged, good = episode.actions[verdict.pivot_step], verdict.feasible_actions
    may_repeat = verdict.fallback or verdict.infeasible_at_start or logged in good
    for kind, action, about_pivot, words in remarks(text, moves, verdict.pivot_step):
        if kind == "advises" and not may_repeat and (action in ("", logged) or (good and action not in good)):
            held = f"only {', '.join(good)} held" if good else f"{logged} was what lost the goal"
            return Objection("bad_action", f"the text advises {words!r}, but {held}")
        if kind == "warns" and action in good and action != logged:
            return Objection("bad_action", f"the text warns of {words!r}, but {action} kept the goal within reach")
        if kind in ("reports", "names") and action not in ((logged,) if about_pivot else episode.actions):
            return Objection("other_action", f"the text reports {words!r}, but the action was {logged}")
    return None


def supported(domain: Domain, episode: FailedEpisode, verdict: Verdict, sentence: str) -> bool:
    """Whether a sentence of a text that contradicts nothing may be taken: it is advice, a sign, or says a proved fact.

    What is merely retold, no word list can tell to be true; it is left out.
    """
    step = verdict.pivot_step
    bare = plain(without(sentence, domain.literals(episode, step)))
    kinds = {remark.kind for remark in remarks(bare, domain.moves, step)}
    if re.search(r"\d\.\d|\b\d+ (?:turns?|moves?|stages?)\b", bare) or "reports" in kinds:
        return True
    advice = is_guidance(bare) and not ({"names", "mentions"} & kinds and not is_advice(bare))
    return advice or any(mentions(bare, domain.claims(episode), step))


def text_problem(episode: FailedEpisode, verdict: Verdict, text: str) -> Objection | None:
    """Return the first thing that is wrong with a text, by any of the rules; None when it fits the facts."""
    domain = domain_of(episode.env)
    if is_refusal(text):
        return Objection("refusal", "the text declines to answer")
    problem = prose_problem(domain, episode, verdict, text)
    problem = problem or next(map(claim_objection, untrue_claims(domain, episode, verdict, text)), None)
    return problem or advice_problem(domain.moves, episode, verdict, text)


def asked_claims(episode: FailedEpisode, verdict: Verdict) -> Mapping[Claim, bool]:
    """Return the claims that a writer has to declare about the pivot, with their truth: those that are decided."""
    domain = domain_of(episode.env)
    truths = domain.truths(episode, verdict)
    answers = {
        claim: truths.get(claim.name, Truth(None, None)).at for claim in domain.claims(episode) if claim.question
    }
    return {claim: answer for claim, answer in answers.items() if answer is not None}


class FactsFilter(Filter):
    """Guidance claims nothing about its episode that certificate and log contradict.

    What can be claimed, and its truth, is the :class:`~pivot.labeling.domains.base.Domain`'s; how prose is read, and
    the limits of it, stand in :mod:`~pivot.labeling.claims`. Success is left to the rule ``outcome``.
    """

    judges_text: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``claims_`` or ``denies_`` and the name of a claim."""
        domain = domain_of(episode.env)
        for mention in untrue_claims(domain, episode, draft.verdict, draft.guidance or ""):
            name = mention.claim.name
            if name != SUCCESS and not (mention.affirmed and domain.excuses(name, episode, draft)):
                return claim_objection(mention)
        return None
