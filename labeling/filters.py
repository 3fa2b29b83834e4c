"""The loose factual filter: the rules that a label must pass before anyone trains on it (spec section 4).

Every rule sees every label that speaks about its environment, and every objection is kept: a rule never hides another.
The text of an objection starts with a typed word and a colon, so that kinds can be counted within a rule. Adding a rule
is one class and one entry point in the group ``pivot.filters``.
"""

import re
from functools import lru_cache
from typing import ClassVar

from .. import plugins
from ..environments.base import EnvProfile
from ..plugins import Settings
from .base import EMPTY, Draft, Filter, Objection
from .claims import is_refusal
from .domains import domain_of
from .episode import FailedEpisode
from .replay import DisagreementError
from .target import BadTargetError, Target, parse_target
from .texts import SUCCESS, prose_problem, untrue_claims
from .vocabulary import target_mode


class TargetFilter(Filter):
    """The target parses, and it says what the label says, about a step that the episode has."""

    name: ClassVar[str] = "target"
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return the parser's typed problem, ``out_of_range`` or ``differs``."""
        verdict = draft.verdict
        try:
            target = parse_target(draft.target)
        except BadTargetError as error:
            return Objection(error.problem, error.detail)
        if not 0 <= target.pivot_step < episode.num_steps:
            return Objection("out_of_range", f"pivot_step {target.pivot_step} is not in [0, {episode.num_steps - 1}]")
        mode = target_mode(episode.env, verdict.failure_mode, draft.vocabulary)
        expected = Target(verdict.pivot_step, mode, draft.guidance or "")
        return None if target == expected else Objection("differs", f"the target says {target}, the label {expected}")


class ModeFilter(Filter):
    """The failure mode, and every secondary one, belongs to the environment's closed vocabulary."""

    name: ClassVar[str] = "mode"
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``unknown`` with the mode that the environment does not have."""
        profile: EnvProfile = plugins.load("environments", episode.env).profile
        for mode in (draft.verdict.failure_mode, *draft.verdict.secondary_modes):
            if mode not in profile.failure_modes:
                return Objection(
                    "unknown", f"{mode!r} is not a mode of {episode.env}: {', '.join(profile.failure_modes)}"
                )
        return None


class ReplayFilter(Filter):
    """Re-executing the logged actions from the initial state gives the logged rewards, ``info``, frames and end."""

    name: ClassVar[str] = "replay"
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``settings``, ``horizon``, ``state``, ``action``, ``reward``, ``info``, ``frame`` or ``end``."""
        try:
            draft.replays.of(episode).check(episode)
        except DisagreementError as error:
            return Objection(error.kind, error.detail)
        return None


def names_pivot(step: int, action: str, text: str) -> bool:
    """Whether a text names step ``step`` or the action logged there."""
    return _pivot_pattern(step, action).search(text) is not None


@lru_cache(maxsize=4096)
def _pivot_pattern(step: int, action: str) -> re.Pattern[str]:
    """Match the step by number, or the logged action: verbatim, or any word of it (``pick`` of ``pick(1,2,3)``)."""
    words = [re.escape(action), *re.findall(r"[^\W\d_]{2,}", action)]
    return re.compile(rf"\bstep[ \-_]?0*{step}\b|(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


class GuidanceFilter(Filter):
    """Guidance, when a teacher was asked for it, is plain English about step ``t*``, or the logged action there.

    It names no other step and gives no number that the facts do not hold; the rules of form stand in
    :mod:`~pivot.labeling.wording`. The action has to stand as a word of its own; whether it is meant as one ("the box
    *left* of you") is not decided.
    """

    name: ClassVar[str] = "guidance"
    judges_text: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``empty``, ``unrelated``, ``other_step``, ``number`` or a kind of :func:`.wording.form_problem`."""
        if draft.guidance is None:
            return None
        if not draft.guidance.strip():
            return Objection(EMPTY, "the teacher gave no text")
        step = draft.verdict.pivot_step
        action = episode.actions[step]
        if names_pivot(step, action, draft.guidance):
            return prose_problem(domain_of(episode.env), episode, draft.verdict, draft.guidance)
        return Objection("unrelated", f"the text names neither step {step} nor the action {action!r}")


class OutcomeFilter(Filter):
    """Guidance neither declines to be guidance nor calls the failed episode a success."""

    name: ClassVar[str] = "outcome"
    judges_text: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``refusal`` or ``claims_success``."""
        text = draft.guidance or ""
        if is_refusal(text):
            return Objection("refusal", "the text declines to answer")
        for mention in untrue_claims(domain_of(episode.env), episode, draft.verdict, text):
            if mention.claim.name == SUCCESS:
                return Objection("claims_success", f"the text says {mention.words!r}, but the episode failed")
        return None
