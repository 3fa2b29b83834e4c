"""SVG: submissions and their scores."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ...solvers.base import Verdict
from ..advice import NO_MOVES
from ..base import Draft, Objection
from ..claims import Claim, Truth, lexicon
from ..episode import FailedEpisode
from ..texts import FactsFilter, advice_problem
from .base import Domain, flags, general_truths
from .lexicon import FAULT, NO_ACTION, target_reached
from .phrases import Facts


def _svg(facts: Facts) -> tuple[str, str]:
    at, before, after = f"At step {facts.step}", facts.raw_before, facts.raw_after
    if facts.mode == "format":
        had = "" if before is None else f", where the submission before had {facts.measure(before)}"
        avoid, command = _unusable(facts) if not facts.usable else _UNDRAWN.get(facts.submission or "", _UNDRAWABLE)
        return f"Avoid {avoid}: such a submission scores 0{had}.", f"{at}, {command}."
    if facts.mode == "regression":
        return (
            f"Avoid giving up what was right: with this submission the score fell from {facts.measure(before)} to "
            f"{facts.measure(after)}.",
            f"{at}, keep the shapes of the submission before that fit the target and change only those that do not.",
        )
    if facts.mode == "stagnation":
        return (
            f"Avoid spending a turn on nearly the same picture: the score was {facts.measure(before)} before it and "
            f"{facts.measure(after)} after it.",
            f"{at}, do not repeat the document; compare the canvas with the target and redraw what differs most.",
        )
    earlier = "" if before is None else f" after {facts.measure(before)} on the submission before"
    return (
        f"Avoid stopping at a rough likeness: the last drawing scored {facts.measure(after)}{earlier}; an exact match "
        "has 1.",
        f"{at}, draw every shape of the target, none besides, each with its own place, size and colour.",
    )


_EMPTY_REPLIES = {
    "tag_in_think": (
        "leaving the document in the thought",
        "do not answer inside the thought; close it, then send one whole document from <svg> to </svg>",
    ),
    "not_an_action": (
        "an answer that is no svg document",
        "do not leave the answer without a drawing; send one whole document from <svg> to </svg> and nothing else",
    ),
}
"""What to avoid and what to do, by what the reply grammar made of a reply without a document."""

_UNDRAWN = {
    "not_svg": (
        "documents that are not well formed, such as unclosed tags or missing quotes",
        "do not send svg code that breaks off; close every tag and check the document before you send it",
    ),
    "too_large": (
        "documents that are longer than what is read",
        "do not send svg code of such a length; draw with fewer and simpler shapes",
    ),
    "not_text": (
        "documents that are not plain text",
        "do not send bytes or compressed svg code; write the document out as text",
    ),
    "forbidden": (
        "documents that declare entities or refer to something outside",
        "do not refer to files, addresses or entities in svg code; draw everything in the document itself",
    ),
    "timeout": (
        "documents that take too long to draw",
        "do not send svg code that repeats or nests so much; draw with fewer and simpler shapes",
    ),
    "memory": (
        "documents that take too much memory to draw",
        "do not send svg code with such large or numerous parts; keep to the size of the canvas and to simple shapes",
    ),
}
"""The same for a document that was not drawn, by the reason why."""

_UNDRAWABLE = (
    "documents that cannot be drawn",
    "do not send svg code with values that cannot be drawn; use plain shapes with plain numbers and colours",
)


def _unusable(facts: Facts) -> tuple[str, str]:
    """Return what to avoid and what to do where a reply held no document."""
    if facts.cut:
        return (
            "replies that are cut off before the document is complete",
            "do not leave the answer empty by running out of space; think less, and send a shorter document, whole "
            "from <svg> to </svg>",
        )
    default = (
        "replies without a document",
        "do not leave the answer empty; send one whole document from <svg> to </svg>",
    )
    return _EMPTY_REPLIES.get(facts.reply or "", default)


class SvgDomain(Domain):
    """What is said about it."""

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

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences; see the base class."""
        return _svg(facts)

    quotes = ("<svg>", "</svg>")

    def claims(self, episode: FailedEpisode) -> tuple[Claim, ...]:
        """Return what a text may claim; see the base class."""
        return _CLAIMS

    def truths(self, episode: FailedEpisode, verdict: Verdict) -> dict[str, Truth]:
        """Return what the log of submissions tells; see the base class."""
        step = verdict.pivot_step
        scores = [info.get("average_score") for info in episode.infos]
        changes = _changes(scores)
        valid = [info.get("valid_svg") for info in episode.infos]
        undrawn = [
            False if action == "empty" else None if drawn is None else not drawn
            for action, drawn in zip(episode.actions, valid, strict=True)
        ]
        return general_truths(episode, verdict) | {
            "undrawn": flags(undrawn, step),
            "drawn": flags(valid, step),
            "score_fell": flags([None if change is None else change < 0 for change in changes], step),
            "score_rose": flags([None if change is None else change > 0 for change in changes], step),
        }


# What a text may claim

_DRAWING = (
    r"(?:score|likeness|similarity|result|drawing|picture|reconstruction|submission|document)s? "
    r"(?:(?!never|not|no|neither|nor)\w+ ){0,2}"
)
_EMPTY_REPLY = Claim(
    "no_action", "the reply at step {step} held no document", NO_ACTION.says, NO_ACTION.denies, of_pivot=False
)
UNDRAWN = Claim(
    "undrawn",
    "a document was sent at step {step}, but it could not be drawn",
    lexicon(
        r"(?:could not|couldn't|cannot|failed to) (?:be )?(?:drawn|rendered|parsed?|draw|render|read)",
        r"(?:sent|submitted|wrote) (?:a )?(?:broken|malformed|invalid) (?:code|document|svg)",
        r"(?:code|document|svg|markup) (?:broke off|was (?:broken|malformed|cut off|not well formed))",
    ),
    of_pivot=False,
)
DRAWN = Claim(
    "drawn",
    "the document at step {step} was drawn",
    lexicon(
        r"(?:last|final|second) (?:drawing|sketch|picture) (?:was|had|got|shows|showed|scored|looked)",
        r"(?:last|final|second) (?:submission|document|answer|reply) (?:was|is) an? (?:\w+ )?(?:sketch|drawing|"
        r"picture|copy)",
        r"(?:drawing|sketch|picture) of the (?:last|final) (?:turn|step) (?:was|had|got|shows|showed|scored|looked)",
    ),
)
SCORE_FELL = Claim(
    "score_fell",
    "the submission at step {step} scored less than the one before",
    lexicon(
        _DRAWING
        + r"(?:fell|dropped|sank|decreased|declined|worsened|went down|(?:got|became|was|is) (?:\w+ )?worse|regressed)",
        _DRAWING.replace("(?:score", "(?:second drawing|score") + r"scored (?:lower|less|worse)",
        r"(?:got|became|went) (?:\w+ )?(?:worse|down)",
    ),
)
SCORE_ROSE = Claim(
    "score_rose",
    "the submission at step {step} scored more than the one before",
    lexicon(
        _DRAWING
        + r"(?:rose|climbed|increased|improved|went up|(?:got|became|was|is) (?:\w+ )?(?:better|higher|closer))",
        r"scored (?:higher|more|better)|(?:a|an) (?:\w+ )?improvement|it (?:was|is) better than|(?:got|became|"
        r"went) (?:\w+ )?(?:better|up)",
    ),
)
_CLAIMS = (
    target_reached(
        "the target was reproduced exactly",
        r"(?:match(?:es|ed)|reproduce[sd]|equal(?:s|ed|led)|recreate[sd]|copied) (?:the )?(?:target|icon|picture|"
        r"image) "
        r"(?:exactly|perfectly|fully|completely|flawlessly)",
        r"(?:target|icon|picture|image) (?:was|is|had been) (?:\w+ )?"
        r"(?:reproduced|matched|copied|drawn|recreated) (?:exactly|perfectly|fully|completely|flawlessly)",
        r"(?:a |an |the )?(?:perfect|flawless|full) (?:match|score|reproduction|copy|marks)(?: (?:was|were) \w+ \w+)?",
        r"full marks|drawn (?:flawlessly|perfectly|exactly)|(?:perfect|flawless)(?:ly)?|(?:identical|"
        r"equal) to the (?:target|icon)|nothing differs",
        r"(?:exact|faithful) (?:copy|match) (?:was|of)|(?:was|gave|reached|made|sent|submitted) an? (?:exact|"
        r"faithful) \w+",
        r"(?:matched|matches|equals|reproduced|reproduces) (?:the )?(?:target|icon|original)",
    ),
    _EMPTY_REPLY,
    UNDRAWN,
    DRAWN,
    SCORE_FELL,
    SCORE_ROSE,
    FAULT,
)


def _changes(scores: Sequence[float | None]) -> list[float | None]:
    """Return by how much each score differs from the one before; 0 for the first."""
    before = [scores[0], *scores[:-1]]
    return [None if a is None or b is None else a - b for a, b in zip(scores, before, strict=True)]


DOMAIN = SvgDomain()


class SvgFactsFilter(FactsFilter):
    """Guidance does not contradict the log of submissions and scores, nor advise to send the same once more."""

    name: ClassVar[str] = "svg_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"svg"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return an untrue claim or ``bad_action``."""
        return super().check(episode, draft) or advice_problem(NO_MOVES, episode, draft.verdict, draft.guidance or "")
