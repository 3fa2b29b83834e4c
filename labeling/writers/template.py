"""The embedded guidance writer: two sentences put together from the certificate, a stand-in for a teacher model.

The first sentence says what to avoid and states the proved facts; the second is a short command that names step ``t*``,
the logged action and, where one exists, the first action of the witness. The same label always gets the same text. An
environment has phrases of its own in its domain; any other gets general sentences from the mode's meaning.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from ...plugins import Settings
from ..base import Guidance, GuidanceRequest, GuidanceWriter
from ..domains import Facts, domain_of
from ..vocabulary import target_mode

VERSION = "2"
"""Version of the phrases; any change of a text raises it."""


def _whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)


def facts_of(request: GuidanceRequest) -> Facts:
    """Collect what may be said about the pivot of one label."""
    episode, verdict = request.episode, request.verdict
    certificate, step = verdict.certificate, verdict.pivot_step
    action = episode.actions[step]
    word = target_mode(episode.env, verdict.failure_mode, request.vocabulary)
    return Facts(
        step=step,
        action=action,
        usable=action != request.profile.unusable_action,
        moved=episode.infos[step].get("moved") is not False,
        mode=verdict.failure_mode,
        word=word,
        meaning=domain_of(episode.env).meaning(word),
        instead=verdict.witness[0] if verdict.witness else None,
        before=_whole(certificate.before),
        after=_whole(certificate.after),
        budget_before=certificate.budget_before,
        budget_after=certificate.budget_after,
        hopeless=verdict.infeasible_at_start,
        fallback=verdict.fallback,
        raw_before=certificate.raw_before,
        raw_after=certificate.raw_after,
        served=domain_of(episode.env).would_serve(episode, step),
        reply=episode.reply_outcomes[step] if episode.reply_outcomes else None,
        cut=bool(episode.finish_reasons) and episode.finish_reasons[step] == "length",
        submission=episode.submission_outcomes[step] if episode.submission_outcomes else None,
        decimals=request.decimals,
    )


class TemplateWriter(GuidanceWriter):
    """Writes guidance from the certificate alone; stands in for a teacher model and is named so in every row."""

    name = "template"
    config_type: ClassVar[type[Settings]] = Settings
    is_stand_in: ClassVar[bool] = True

    @property
    def config(self) -> dict[str, Any]:
        """The version of the phrases; nothing else decides the texts."""
        return {"version": VERSION}

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        """Answer ``requests``, in order."""
        return [Guidance(" ".join(domain_of(request.episode.env).phrases(facts_of(request)))) for request in requests]
