"""SVG: submissions and their scores."""

import json
from collections.abc import Mapping, Sequence

from ..statements import Statement, statement
from .base import Domain, Failure, read_texts
from .svg_shapes import differences

_REPLIES = {
    "tag_in_think": ("in_thought", "after_thought", "close_thought"),
    "not_an_action": ("not_a_document", "whole_document", "send_document"),
}
"""Fact, sign and action by what the reply grammar made of a reply without a document."""
_SUBMISSIONS = {
    "not_svg": ("not_well_formed", "drawable", "close_tags"),
    "too_large": ("too_large", "drawable", "draw_simply"),
    "not_text": ("not_text", "drawable", "write_text"),
    "forbidden": ("outside", "drawable", "stay_inside"),
    "timeout": ("too_slow", "drawable", "draw_simply"),
    "memory": ("too_heavy", "drawable", "draw_simply"),
}
"""Kinds of statements about a document that was not drawn, by reason."""
_MODES = {"regression": ("fell", "keep_what_fits", "draw_all"), "stagnation": ("same", "real_changes", "draw_all")}
"""Kinds of statements about a drawn document, by failure mode."""


def _kinds(failure: Failure) -> tuple[str, str, str]:
    """Return the kinds of the fact, the sign and the action that fit a failure best."""
    episode, step, mode = failure.episode, failure.step, failure.verdict.failure_mode
    if mode == "stagnation" and not _had_drawing(failure):
        return "same", "all_shapes", "draw_all"
    if mode in _MODES:
        return _MODES[mode]
    if mode != "format":
        has_before = failure.verdict.certificate.raw_before is not None
        return ("rose" if has_before else "scored"), "all_shapes", "draw_all"
    if failure.is_usable:
        submission = episode.submission_outcomes[step] if episode.submission_outcomes else None
        return _SUBMISSIONS.get(submission or "", ("not_drawable", "drawable", "draw_simply"))
    if episode.finish_reasons and episode.finish_reasons[step] == "length":
        return "cut_off", "short_document", "send_shorter"
    reply = episode.reply_outcomes[step] if episode.reply_outcomes else ""
    return _REPLIES.get(reply, ("no_document", "whole_document", "send_document"))


class SvgDomain(Domain):
    """Wording and statements about SVG."""

    pivot, advice, log_advice, meanings, wordings = read_texts("svg")
    paper_modes: Mapping[str, str] = dict.fromkeys(("format", "regression", "stagnation", "mismatch"), "timeout")

    def signs(self, failure: Failure) -> list[Statement]:
        """Return what to look out for; see the base class."""
        if _sent_again(failure):
            return [statement("new_document")]
        return [statement(_kinds(failure)[1])]

    def facts(self, failure: Failure) -> list[Statement]:
        """Return what the last drawing lacks, and facts from the log of submissions; see the base class."""
        kind, certificate = _kinds(failure)[0], failure.verdict.certificate
        values: dict[str, str | int] = {"step": failure.step}
        scores = {"before": certificate.raw_before, "after": certificate.raw_after}
        slots = {"fell": ("before", "after"), "same": ("before", "after"), "rose": ("before", "after")}
        values |= {name: failure.measure(scores[name]) for name in slots.get(kind, ("after",) * (kind == "scored"))}
        statements = [*(fact for fact, _ in _differences(failure)), statement(kind, **values)]
        if _sent_again(failure):
            statements.insert(0, statement("sent_again", step=failure.step))
        if failure.verdict.failure_mode == "format" and certificate.raw_before is not None:
            statements.append(statement("had", step=failure.step, before=failure.measure(certificate.raw_before)))
        return statements

    def actions(self, failure: Failure) -> list[Statement]:
        """Return what to submit instead: the correction of a difference, if both pictures are known."""
        fixes = [remedy for _, remedy in _differences(failure)]
        return fixes or [statement(_kinds(failure)[2], step=failure.step)]


def _differences(failure: Failure) -> Sequence[tuple[Statement, Statement]]:
    """Return the largest differences between the target and the last drawing; empty if the last one was not drawn."""
    episode, payload = failure.episode, failure.episode.payloads[failure.step]
    if payload is None or failure.verdict.failure_mode == "format":
        return ()
    try:
        target, drawn = json.loads(episode.initial_state)["target"], json.loads(payload)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()  # the solver or the replay filter reports it
    return differences(target, drawn, failure.step) if isinstance(target, str) and isinstance(drawn, str) else ()


def _had_drawing(failure: Failure) -> bool:
    """Whether the submission before the pivot step was drawn, so that there was something to change."""
    outcomes, step = failure.episode.submission_outcomes, failure.step
    if outcomes:
        return outcomes[step - 1] == "ok"
    return failure.episode.infos[step - 1].get("valid_svg") is True


def _sent_again(failure: Failure) -> bool:
    """Whether the submission of the pivot step was that of the step before."""
    payloads, step = failure.episode.payloads, failure.step
    return failure.verdict.failure_mode == "stagnation" and payloads[step - 1] == payloads[step] is not None


DOMAIN = SvgDomain()
