"""Claims in a free text: words that no negation or condition revokes."""

import re

_TAKEN_BACK = re.compile(
    r"(?:\b(?:not|never|no|nor|neither|without|avoid(?:s|ed|ing)?|could|would|might|should)\b|n['\u2019]t\b)"
    r"(?:(?!\b(?:and|but|then)\b)[^.;:!?])*$"
    r"|\bto(?:\s\w+){0,2}\s*$",
    re.IGNORECASE,
)


def claimed(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the first match that no earlier word of its clause negates or makes conditional, or None.

    A negation, an infinitive or a conditional takes a claim back: ``never reached the goal``, ``tried to have reached
    the goal``, ``would have reached the goal``. This is a rough rule about English, like all that are about free texts.
    """
    for match in pattern.finditer(text):
        if _TAKEN_BACK.search(text[: match.start()]) is None:
            return match[0]
    return None
