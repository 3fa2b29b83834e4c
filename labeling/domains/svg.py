"""SVG: submissions and their scores."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

from ...plugins import Settings
from ..base import Draft, FailedEpisode, Filter, Objection
from ..claims import negated, plain
from .base import Domain
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


DOMAIN = SvgDomain()


# What guidance may not say

_DRAWING = r"\b(?:score|likeness|similarity|result|drawing|picture|reconstruction)s? (?:(?!never|not)\w+ )?"

_WORSE = re.compile(
    _DRAWING + r"(?:fell|dropped|sank|decreased|declined|worsened|went down|(?:got|became|was) worse|regressed)\b"
)

_BETTER = re.compile(
    _DRAWING + r"(?:rose|climbed|increased|improved|went up|(?:got|became|was) (?:better|higher|closer))\b"
)

_EXACT = re.compile(
    r"\b(?:match(?:es|ed)|reproduce[sd]|equal(?:s|ed|led)|recreate[sd]) the (?:target|icon|picture|image) "
    r"(?:exactly|perfectly|fully|completely)\b"
    r"|\b(?:was|gave|reached|scored) (?:a |an |the )?(?:perfect|exact|full) (?:match|score|reproduction|copy)\b"
)

_EMPTY = re.compile(
    r"\b(?:reply|answer|submission|document|response) (?:there |here )?(?:was|is|had been) (?:left )?(?:empty|blank)\b"
    r"|\b(?:submitted|sent|drew|answered) nothing\b"
    r"|\bno (?:document|svg|code|drawing) was (?:sent|submitted|given)\b"
)


def drawing_claims(text: str) -> frozenset[str]:
    """Return which of ``worse``, ``better``, ``exact`` and ``empty`` the text claims about scored drawings."""
    words = plain(text)
    lists = {"worse": _WORSE, "better": _BETTER, "exact": _EXACT, "empty": _EMPTY}
    return frozenset(
        name
        for name, pattern in lists.items()
        if any(not negated(words, match.start()) for match in pattern.finditer(words))
    )


class SvgFactsFilter(Filter):
    """Guidance does not contradict the log of submissions and scores.

    What a text claims is read by the word lists of :mod:`~pivot.labeling.claims`. A rise or fall counts wherever it
    happens in the episode, and of the pivot alone it must be true that the submission was empty.
    """

    name: ClassVar[str] = "svg_facts"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"svg"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``claims_exact``, ``claims_empty``, ``claims_worse`` or ``claims_better``."""
        claimed = drawing_claims(draft.guidance) if draft.guidance else frozenset[str]()
        scores = [float(info.get("average_score") or 0.0) for info in episode.infos]
        if "exact" in claimed:
            return Objection(
                "claims_exact",
                f"the text says that the target was reproduced, but the last score is {scores[-1]}",
            )
        if "empty" in claimed and episode.actions[draft.verdict.pivot_step] != "empty":
            return Objection(
                "claims_empty",
                f"the text says that nothing was submitted, but step {draft.verdict.pivot_step} did",
            )
        if "worse" in claimed and not any(after < before for before, after in pairwise(scores)):
            return Objection("claims_worse", f"the text says that the drawing got worse, but the scores are {scores}")
        if "better" in claimed and not any(after > before for before, after in pairwise(scores)):
            return Objection("claims_better", f"the text says that the drawing got better, but the scores are {scores}")
        return None
