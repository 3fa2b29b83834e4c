"""The factual filters: the rules that a label must pass before it is used for training.

Every rule judges every label of its environments, and every objection is kept: a rule never hides another. Adding a
rule takes one class and one entry point in the group ``pivot.filters``.
"""

from typing import ClassVar

from ..core import plugins
from ..core.plugins import Settings
from ..environments.base import EnvProfile
from ..solvers.base import Verdict
from .base import EMPTY, Draft, Filter, Objection
from .domains import Failure, domain_of
from .episode import FailedEpisode
from .replay import DisagreementError
from .statements import Offer, UnknownSentenceError
from .target import BadTargetError, Target, parse_target, profile_under, target_mode


class TargetFilter(Filter):
    """The target can be parsed and agrees with the label, about a step that the episode has."""

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
        profile = profile_under(plugins.load("environments", episode.env).profile, episode.env_config)
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


class GuidanceFilter(Filter):
    """Every sentence of the guidance is a rendered statement that the facts of the failure support.

    The text is read back into statements. Each of them, with its values, has to be among the statements that the domain
    offers for this failure. Free prose, in a store that asks for it, passes the loose rules of
    :mod:`~pivot.labeling.prose` instead, which prove nothing.
    """

    name: ClassVar[str] = "guidance"
    judges_text: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = Settings

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``empty``, ``unknown_sentence``, ``untrue`` or a kind of :func:`.prose_objection`."""
        if draft.guidance is None:
            return None
        if draft.source == "facts":
            return text_objection(draft.guidance, episode, draft.verdict, draft.offer)
        from .prose import prose_objection  # noqa: PLC0415 - few stores ask for free prose

        profile: EnvProfile = plugins.load("environments", episode.env).profile
        return prose_objection(domain_of(episode.env), Failure(profile, episode, draft.verdict), draft.guidance)


UNKNOWN_SENTENCE = "unknown_sentence"
"""Kind of the objection to a text that is not made of rendered sentences alone."""


def is_rendered(env: str, text: str) -> bool:
    """Whether a text is made of sentences that an environment renders from facts, true or not."""
    try:
        domain_of(env).sentences.read(text)
    except UnknownSentenceError:
        return False
    return True


def text_objection(text: str, episode: FailedEpisode, verdict: Verdict, offer: Offer | None = None) -> Objection | None:
    """Return the problem of a text that should be rendered from checked facts; None if there is none.

    Args:
        text: the guidance.
        episode: the failed episode that it is about.
        verdict: its certified label.
        offer: what may be said about it; derived if it is missing.
    """
    if not text.strip():
        return Objection(EMPTY, "the teacher chose none of the offered facts")
    domain = domain_of(episode.env)
    try:
        statements = domain.sentences.read(text)
    except UnknownSentenceError as error:
        return Objection(UNKNOWN_SENTENCE, f"{str(error)!r} is not a sentence that {episode.env} renders from facts")
    if offer is None:
        offer = domain.offer(Failure(plugins.load("environments", episode.env).profile, episode, verdict))
    for each in statements:
        if each not in offer:
            return Objection("untrue", f"{domain.sentences.sentence(each)!r} is not among the facts of this failure")
    return None
