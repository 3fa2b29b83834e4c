"""What a guidance text claims about falls, budgets, outcomes, drawings, arrivals and handling, by word lists.

The lists hold statements of fact, in the past or present tense ("fell into a hole", "ran out of turns"), not advice
("avoid falling into a hole", "do not run out of turns"). A negation shortly before a claim ("never fell into a hole")
turns a claim of a fall into its denial. The limits: only English; no irony, no reported speech, no coreference; a claim
worded in a way not listed is not seen, and one about another episode counts as one about this episode. The rule is
meant to be loose: it misses rather than invents.
"""

import re
from collections.abc import Sequence

_HOLE = r"(?:the |a |an? open |that |this )?(?:ice )?holes?"

_FALL = re.compile(
    rf"\b(?:fell|has fallen|had fallen|have fallen|drop(?:s|ped)|plunge[sd]|tumble[sd]|"
    rf"(?:step(?:s|ped)|walk(?:s|ed)|move[sd]|went|goes|slid|slides|ran|runs|land(?:s|ed)|end(?:s|ed)(?: up)?)"
    rf"(?: \w+)?) (?:straight |right |directly )?(?:down )?(?:in|into|onto) {_HOLE}\b"
    r"|\b(?:fell|falls) through the ice\b"
    rf"|\b(?:is|was) (?:now )?in {_HOLE}\b"
    r"|\bdrown(?:s|ed)\b"
)
_NO_FALL = re.compile(
    r"\b(?:did not|didn't|does not|doesn't|has not|hasn't|never) (?:fall|fallen|step|stepped|walk)\b"
    r"|\b(?:is|was) still on (?:the |safe )*ice\b"
    r"|\b(?:stays|stayed|remains|remained) on (?:the |safe )*ice\b"
)
_BUDGET = re.compile(
    r"\b(?:ran|runs|has run|had run) out of (?:the )?(?:turns?|steps?|moves?|time|budget)\b"
    r"|\b(?:timed|times) out\b"
    r"|\b(?:no|not enough|too few) (?:turns?|steps?|moves?|time|budget) "
    r"(?:was |were |is |are )?(?:left|remained|remaining)\b"
    r"|\b(?:turns?|steps?|moves?|time|budget) (?:was|were|is|are|had been) "
    r"(?:spent|exhausted|used up|gone|too (?:small|short|few))\b"
)
_CONDITION = re.compile(
    r"\b(?:until|till|once|when|whenever|if|unless|before|as soon as|so that|whether)\b[^.;!?]*$"
    r"|\b(?:would|could|should|might|may|can|to|almost|nearly|instead of)(?: \w+){0,2}\s*$"
)
"""What makes the statement that follows it in a sentence a wish, a plan or a condition."""
_AGENT = r"\b(?:you|it|he|she|they|the (?:agent|player|person|model|episode|attempt))"
_SUCCESS = re.compile(
    rf"{_AGENT} (?:(?:has|have|had|was|were|successfully|finally|then|eventually|correctly) )*"
    r"(?:succeeded|won|(?:reached|arrived at|got to|made it to) the (?:goal|target|destination)"
    r"|(?:solved|finished|completed) the (?:task|room|puzzle|level|lake|episode|maze))\b"
    r"|\b(?:the )?(?:task|room|puzzle|level|episode|attempt) (?:was|is|has been|had been) "
    r"(?:(?:successfully|correctly) )?(?:solved|completed|successful|a success|won)\b"
)
_DEAD = re.compile(
    r"\b(?:box|room|puzzle|level) (?:was|is|became|got|had become|has become) (?:now |then )?"
    r"(?:stuck|deadlocked|trapped|unsolvable|jammed|lost for good)\b"
    r"|\b(?:can|could) (?:never|no longer) be (?:solved|pushed (?:out|away|back)|brought|moved)\b"
)
_REFUSAL = re.compile(
    r"\b(?:i|we)(?:'m| am| are)? (?:sorry|afraid|unable to|not able to|not allowed to)\b"
    r"|\b(?:i|we) (?:can ?not|can't|won't|will not|must decline|have to decline) "
    r"(?:\w+ )?(?:help|assist|comply|answer|provide|do (?:that|this)|see|view|process|fulfil|fulfill|discuss)\b"
    r"|\bas an? (?:ai|artificial intelligence|language model|assistant)\b"
)
_ADVICE_VERB = (
    r"(?:move|go|push|step|walk|head|choose|answer|take|turn|try|play|pick|select|use|reply(?: with)?|go on with)"
)
_NOT_ADVISED = re.compile(
    r"\b(?:not|never|avoid|without|instead of|rather than|don't|stop|than|no)\b(?: \w+){0,2}$|n't$"
)
_NEGATION = re.compile(r"\b(?:not|never|no|nor|without|n't)\b(?: \w+)?$|n't(?: \w+)?$")


def plain(text: str) -> str:
    """Return a text in lower case, one line, with straight apostrophes."""
    return " ".join(text.lower().replace("’", "'").split())


def negated(text: str, start: int) -> bool:
    """Whether what begins at ``start`` is denied shortly before."""
    return _NEGATION.search(text[max(0, start - 40) : start].rstrip()) is not None


def claims(text: str) -> frozenset[str]:
    """Return which of ``fall``, ``no_fall`` and ``budget`` the text claims."""
    words = plain(text)
    found = {"no_fall"} if _NO_FALL.search(words) else set[str]()
    for match in _FALL.finditer(words):
        found.add("no_fall" if negated(words, match.start()) else "fall")
    if any(not negated(words, match.start()) for match in _BUDGET.finditer(words)):
        found.add("budget")
    return frozenset(found)


def stated(text: str, match: re.Match[str]) -> bool:
    """Whether a match is a statement: neither denied nor part of a wish, a plan or a condition."""
    if negated(text, match.start()):
        return False
    return _CONDITION.search(text[max(0, match.start() - 80) : match.start()]) is None


def outcome_claims(text: str) -> frozenset[str]:
    """Return which of ``success`` and ``dead`` (a box or room lost for good) the text claims."""
    words = plain(text)
    lists = {"success": _SUCCESS, "dead": _DEAD}
    return frozenset(
        name
        for name, pattern in lists.items()
        if any(not negated(words, match.start()) for match in pattern.finditer(words))
    )


def is_refusal(text: str) -> bool:
    """Whether the first words of a text decline to answer: an apology, an inability, or talk about being a model."""
    return _REFUSAL.search(plain(text[:300])) is not None


def advised_action(text: str, step: int, actions: Sequence[str]) -> str | None:
    """Return the first of ``actions`` that a sentence about step ``step`` tells to take; None where none does.

    A command is a verb such as "move" or "push" shortly before the action, and not "do not move" or "instead of".
    """
    names = "|".join(map(re.escape, actions))
    command = re.compile(
        rf"\b{_ADVICE_VERB}\b(?: (?:the|a|one|to|box|person|cell|step|it|straight)){{0,3}} ({names})\b"
    )
    for sentence in re.split(r"(?<=[.!?])\s", plain(text)):
        if re.search(rf"\bstep[ \-_]?0*{step}\b", sentence):
            for match in command.finditer(sentence):
                if not _NOT_ADVISED.search(sentence[: match.start()].rstrip()):
                    return match[1]
    return None
