"""The loose check of free prose about a failure: the rules of the paper, for stores with ``guidance: prose``.

No rule can prove a free text. These find the text that is empty, declines, names neither the pivot step nor its action,
calls the failure a success, or contradicts a fact that one environment checks. Nearly everything passes: of 121 false
texts that an outsider wrote about twelve failures of four environments, 91.7 % (95 % interval 85.5 to 95.4 %), while of
47 true ones 10.6 % (4.6 to 22.6 %) were refused. A stricter and much longer set of rules, which these replace, let pass
37.9 % of 272 others. A text that passed is therefore called unverified wherever it is shown.
"""

import re
from functools import lru_cache

from .base import EMPTY, Objection
from .claims import claimed
from .domains import Domain, Failure

_REFUSAL = re.compile(
    r"\b(?:i|we)(?:'m| am| are)? (?:sorry|afraid|unable to|not able to|not allowed to)\b"
    r"|\b(?:i|we) (?:can ?not|can't|won't|will not|must decline|have to decline) "
    r"(?:\w+ )?(?:help|assist|comply|answer|provide|do (?:that|this)|see|view|process|fulfil|fulfill|discuss|judge)\b"
    r"|\bas an? (?:ai|artificial intelligence|language model|assistant)\b",
    re.IGNORECASE,
)
_SUCCESS = re.compile(
    r"\b(?:the episode (?:succeeded|was a success)|(?:solved|completed) the (?:room|task|episode)|(?:reached|achieved) "
    r"the goal|was (?:successful|a success))\b",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether the first words of a text decline to answer: an apology, an inability, or talk about being a model."""
    return _REFUSAL.search(text[:300].replace("\u2019", "'")) is not None


@lru_cache(maxsize=4096)
def _pivot_pattern(step: int, action: str) -> re.Pattern[str]:
    """Match the step by number, or the logged action: verbatim, or any word of it (``pick`` of ``pick(1,2,3)``)."""
    words = [re.escape(action), *re.findall(r"[^\W\d_]{2,}", action)]
    return re.compile(rf"\bstep[ \-_]?0*{step}\b|(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


def prose_objection(domain: Domain, failure: Failure, text: str) -> Objection | None:
    """Return the first thing that the loose rules find wrong with a text, or None."""
    if not text.strip():
        return Objection(EMPTY, "the teacher gave no text")
    if is_refusal(text):
        return Objection("refusal", "the text declines to answer")
    if _pivot_pattern(failure.step, failure.action).search(text) is None:
        return Objection("unrelated", f"the text names neither step {failure.step} nor the action {failure.action!r}")
    success = claimed(_SUCCESS, text)
    if success is not None:
        return Objection("claims_success", f"the text says {success!r}, but the episode failed")
    words = domain.contradiction(failure, text)
    return None if words is None else Objection("contradicts", f"the text says {words!r}, which the facts contradict")
