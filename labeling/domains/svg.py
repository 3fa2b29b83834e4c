"""SVG: submissions and their scores."""

from collections.abc import Mapping

from ..statements import Statement, statement
from .base import Domain, Failure

WORDINGS: Mapping[str, tuple[str, ...]] = {
    # What to look out for
    "whole_document": (
        "A turn without a whole document from <svg> to </svg> scores 0.",
        "Avoid replies without a document: such a submission scores 0.",
        "Check that the answer is one whole document before it is sent.",
    ),
    "after_thought": (
        "An answer inside the thought is not read, and the turn scores 0.",
        "Close the thought before the answer begins.",
    ),
    "short_document": (
        "Leave enough room for the whole document: what is cut off scores 0.",
        "Avoid long thoughts and long documents, since a reply that breaks off scores 0.",
        "Keep the document short enough to be finished within the reply.",
    ),
    "drawable": (
        "A document that cannot be drawn scores 0.",
        "Avoid documents that cannot be drawn; each of them scores 0.",
        "Check the document before it is sent, because one that cannot be drawn scores 0.",
    ),
    "keep_what_fits": (
        "Avoid changing shapes that were right already.",
        "Change only what differs from the target.",
        "Compare the last drawing with the target before anything in it is changed.",
    ),
    "real_changes": (
        "Avoid spending a turn on changes that hardly move the score.",
        "Before a new submission, find the part that differs most from the target.",
    ),
    "new_document": (
        "Avoid sending the same document again: it has the same score.",
        "Before a new submission, change something in the document.",
    ),
    "all_shapes": (
        "Compare place, size and colour of every shape with the target.",
        "Go through the shapes of the target one by one, and compare each with yours.",
        "Check that every shape has the place, size and colour that it has in the target.",
    ),
    # What happened
    "no_document": (
        "The reply at step {step} held no answer that could be read.",
        "At step {step} nothing was submitted, because no answer could be read from the reply.",
        "Step {step} was lost to a reply without a readable answer.",
    ),
    "cut_off": (
        "The reply at step {step} broke off before it held a readable answer.",
        "At step {step} the reply was cut off before it held a readable answer.",
        "Step {step} was lost to a reply that was cut off.",
    ),
    "in_thought": (
        "The reply at step {step} left the answer inside the thought.",
        "At step {step} the answer was inside the thought, where it is not read.",
    ),
    "not_a_document": (
        "The answer at step {step} could not be read as one SVG document.",
        "At step {step} no SVG document could be read from the answer.",
    ),
    "not_well_formed": (
        "The document at step {step} was not well-formed SVG.",
        "At step {step} the document could not be read as SVG.",
        "Step {step} submitted a document that is not well-formed SVG.",
    ),
    "too_large": (
        "The document at step {step} was longer than what is read.",
        "At step {step} the document exceeded the length that is read.",
    ),
    "not_text": (
        "The document at step {step} was not plain text.",
        "At step {step} the document held bytes that are no text.",
    ),
    "outside": (
        "The document at step {step} declared entities or referred to something outside.",
        "At step {step} the document used entities or references to something outside, which are refused.",
    ),
    "too_slow": (
        "The document at step {step} took too long to draw.",
        "At step {step} drawing the document exceeded its time.",
    ),
    "too_heavy": (
        "The document at step {step} took too much memory to draw.",
        "At step {step} drawing the document exceeded its memory.",
    ),
    "not_drawable": (
        "The document at step {step} could not be drawn.",
        "At step {step} the submission could not be drawn.",
    ),
    "had": (
        "The turn before step {step} had scored {before}.",
        "Before step {step} the score was {before}.",
    ),
    "fell": (
        "With the submission at step {step} the score fell from {before} to {after}.",
        "At step {step} the score went down from {before} to {after}.",
        "The submission at step {step} scored {after}, less than the {before} of the turn before.",
    ),
    "same": (
        "The score was {before} before step {step} and {after} after it.",
        "The submission at step {step} scored {after}; the turn before it scored {before}.",
        "At step {step} the score hardly changed: {before} before, {after} after.",
    ),
    "sent_again": (
        "Step {step} sent the document of the previous step again.",
        "The document at step {step} was the same as the previous one.",
    ),
    "rose": (
        "The submission at step {step} scored {after}, more than the {before} of the turn before.",
        "At step {step} the score rose from {before} to {after}, where an exact match has 1.",
        "With step {step} the score rose from {before} to {after}, still short of 1.",
    ),
    "scored": (
        "The submission at step {step} scored {after}, where an exact match has 1.",
        "At step {step} the drawing reached a score of {after}, still short of 1.",
        "The drawing at step {step} was not the target and scored {after}.",
    ),
    # What to do
    "send_document": (
        "At step {step}, send one whole document from <svg> to </svg>.",
        "At step {step}, let the answer be one complete document from <svg> to </svg>.",
        "At step {step}, put one whole document from <svg> to </svg> into the answer.",
    ),
    "send_shorter": (
        "At step {step}, think less and send a shorter document, whole from <svg> to </svg>.",
        "At step {step}, send a document that is short enough to be complete, up to </svg>.",
    ),
    "close_thought": (
        "At step {step}, close the thought before the answer, then send the document.",
        "At step {step}, do not answer inside the thought; send the document after it.",
    ),
    "close_tags": (
        "At step {step}, check that the document is well-formed XML with <svg> as its root before you send it.",
        "At step {step}, send well-formed XML with <svg> as its root: tags closed, values quoted, no bare & or <.",
    ),
    "draw_simply": (
        "At step {step}, draw with fewer and simpler shapes.",
        "At step {step}, use a few plain shapes with plain numbers and colours.",
    ),
    "write_text": (
        "At step {step}, write the document out as plain text.",
        "At step {step}, send the document as text, without bytes or compression.",
    ),
    "stay_inside": (
        "At step {step}, draw everything in the document itself, without references to files, addresses or entities.",
        "At step {step}, leave out entities and references, and draw every shape in the document.",
    ),
    "keep_shapes": (
        "At step {step}, keep the shapes of the previous submission that fit the target and change only the others.",
        "At step {step}, start from the previous submission and correct only what differs from the target.",
        "At step {step}, leave what already fits the target as it was.",
    ),
    "redraw": (
        "At step {step}, compare the drawing with the target and redraw what differs most.",
        "At step {step}, make the change that brings the drawing nearest to the target.",
        "At step {step}, look for the part that differs most from the target, and redraw it.",
    ),
    "send_changed": (
        "At step {step}, do not send the same document again; redraw the part that differs most from the target.",
        "At step {step}, change the document where it differs most from the target.",
    ),
    "draw_all": (
        "At step {step}, draw every shape of the target, each with its own place, size and colour.",
        "At step {step}, compare every shape with the target, and correct its place, size and colour.",
        "At step {step}, give every shape the place, size and colour that it has in the target.",
    ),
}

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
"""The same for a document that was not drawn, by the reason why."""
_MODES = {
    "regression": ("fell", "keep_what_fits", "keep_shapes"),
    "stagnation": ("same", "real_changes", "redraw"),
}
"""The same for a document that was drawn, by failure mode."""


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

    pivot: str = "the last submission, the one that ended the episode"
    advice: str = (
        "Every turn submits a whole drawing, so nothing is lost before the last one: the pivot is the last "
        "submission, also when it was empty (action=empty) or could not be drawn."
    )
    log_advice: str = "One that could not be drawn has valid_svg=false."
    meanings: Mapping[str, str] = {
        "format": "the last submission was empty or could not be drawn",
        "regression": "its score is more than 0.01 below that of the submission before",
        "stagnation": "its score differs by at most 0.01 from that of the submission before",
        "mismatch": "it is better than the submission before or the only one, and still not the target",
        "timeout": "the turns ended before a submission reproduced the target",
        "deadlock": "no further submission could have reproduced the target",
    }
    paper_modes: Mapping[str, str] = dict.fromkeys(("format", "regression", "stagnation", "mismatch"), "timeout")

    wordings = WORDINGS

    def signs(self, failure: Failure) -> list[Statement]:
        """Return what to look out for; see the base class."""
        if _sent_again(failure):
            return [statement("new_document")]
        return [statement(_kinds(failure)[1])]

    def facts(self, failure: Failure) -> list[Statement]:
        """Return what the log of submissions shows; see the base class."""
        kind, certificate = _kinds(failure)[0], failure.verdict.certificate
        values: dict[str, str | int] = {"step": failure.step}
        scores = {"before": certificate.raw_before, "after": certificate.raw_after}
        slots = {"fell": ("before", "after"), "same": ("before", "after"), "rose": ("before", "after")}
        values |= {name: failure.measure(scores[name]) for name in slots.get(kind, ("after",) * (kind == "scored"))}
        statements = [statement(kind, **values)]
        if _sent_again(failure):
            statements.insert(0, statement("sent_again", step=failure.step))
        if failure.verdict.failure_mode == "format" and certificate.raw_before is not None:
            statements.append(statement("had", step=failure.step, before=failure.measure(certificate.raw_before)))
        return statements

    def actions(self, failure: Failure) -> list[Statement]:
        """Return what to submit instead; see the base class."""
        return [statement("send_changed" if _sent_again(failure) else _kinds(failure)[2], step=failure.step)]


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
