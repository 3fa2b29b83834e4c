"""What a text about a failure claims: named claims with a truth each, and the small lexicon that spots them in prose.

A claim is a yes-or-no question about the episode (did the player fall, did the turns run out). A model writer declares
every claim of its environment in a typed field, which is held against the truth; the lexicon only has to see where
prose mentions one and whether it affirms or denies it. Advice, wishes and conditions ("avoid falling", "if the turns
run out") claim nothing. The limits: only English, no irony, no coreference; what is worded in a way not listed is not
seen.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Truth(NamedTuple):
    """The answer to a claim; None where log and certificate do not decide it."""

    at: bool | None
    """At the pivot step."""
    ever: bool | None
    """At any step up to it."""

    @classmethod
    def of(cls, fact: bool | None) -> "Truth":
        """Return a truth about the episode as a whole."""
        return cls(fact, fact)


@dataclass(frozen=True, slots=True)
class Claim:
    """A yes-or-no question about a failed episode, and the words that answer it."""

    name: str
    question: str
    """The claim as a writer is asked about it; ``{step}`` stands for the pivot step."""
    says: re.Pattern[str]
    """Words that affirm it, unless they are denied."""
    denies: re.Pattern[str] | None = None
    """Words that deny it by themselves."""
    of_pivot: bool = True
    """Whether prose without a step speaks of the pivot; otherwise of any step up to it."""
    unless: re.Pattern[str] | None = None
    """Words that make a clause speak of something else."""


class Mention(NamedTuple):
    """A claim that a text affirms or denies."""

    claim: Claim
    affirmed: bool
    about_pivot: bool
    words: str


def lexicon(*patterns: str) -> re.Pattern[str]:
    """Compile alternatives into one pattern of whole words; a word left open in them is no negation."""
    text = "|".join(rf"(?:\b(?:{pattern})\b)" for pattern in patterns)
    any_word = r"(?!(?:not|never|no|nor|neither|without|hardly|nearly|almost)\b)\w+"
    return re.compile(text.replace(r"(?: \w+)", rf"(?: {any_word})").replace(r"(?:\w+ )", rf"(?:{any_word} )"))


# How prose is taken apart

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_CLAUSE = re.compile(
    r"\s*(?:[,;:()]|\s[-\u2013\u2014]+\s|\u2014"
    r"|\b(?P<condition>if|when|whenever|unless|until|till|before|once|as soon as|so that|whether|lest|in case|"
    r"instead of|rather than|except|in order to|(?:not|never|hardly) because)\b"
    r"|\b(?:but|while|whereas|although|though|because|since|where|which|then)\b)\s*"
)
_IMPERATIVE = re.compile(
    r"^(?:(?:and|then|so|also|or|always|please|first|just|only|next time|here|there|better) )*"
    r"(?:avoid|do not|don't|never(?! \w+(?:ed|ell|ent|ot|as)\b)|keep|look|check|watch|use|send|write|give|choose|"
    r"take|move|go|step|walk|head|read|compare|count|put|place|pick|push|close|plan|spend|try|make|change|redraw|draw|"
    r"turn|find|grasp|finish|leave|end with|see|stop|stay|prefer|remember|think|wait|press|select|repeat|continue|let|"
    r"beware|approach|return|aim|follow|reach|get|bring|ensure|be (?:sure|careful|aware)|consider|sidestep|start|begin|"
    r"clear|note|mind|save|respect|act|answer|respond|reply|state|open|shut|lift|carry|align|stack)\b"
    r"(?! (?:(?:was|is|were|had|has)\b|\d))"
)
_RULE = re.compile(
    r"^(?:(?:a|an|each|any|such)\b|\w+ing\b|(?!(?:this|its|his|as|was|is|does|has|always|perhaps|yes|ours|us)\b)"
    r"[a-z]{2,}s\b(?! (?:the|was|were|had)\b))|\b(?:sign|warning|hint|means)\b"
)
"""How a sentence begins that tells what holds in general, or the word with which it names a sign."""
_DUTY = re.compile(r"\b(?:should|must|needs? to|has to|have to|ought to|it is (?:better|best|safer|enough))\b")
_IF = re.compile(r"\b(?:if|when|whenever|once|unless|until|as soon as)\b")
_PASSIVE = re.compile(
    r"\b(?:be|been|is|are|has|have|gets?)(?: (?:not|yet|already|never|been|closely))* [a-z]+(?:ed|en|ne)\b"
)
_MODAL = re.compile(
    r"\b(?:would|should|might|may|must|ought|needs? to|want(?:s|ed)? to|(?:can|could)(?! (?:not|no longer|never)\b)|"
    r"cannot|almost|nearly|trying|in order)\b[^.]*$"
)
_NEGATION = re.compile(
    r"(?:\b(?:not|never|no|nor|neither|nothing|nobody|none|hardly|failed to|cannot|avoid|far from)|n't)"
    r"(?: (?!(?:and|so|that|for|who)\b)[\w'-]+){0,5}$|\bwithout(?: \w+ing(?: [\w'-]+){0,3}|(?: (?:an?|any|the|"
    r"having))?(?: \w+ed)?)$"
)
_NEGATIVE = re.compile(r"(?:never|no longer|not)\b")
_PAST = re.compile(r"\b(?:\w{2,}ed|was|were|had|got|came|went|took|ran|hit|stood|lay|fell|sat|made|gave|sank|slid)\b")
_LATER = re.compile(r"\b(?:later|afterwards)\b")
_EARLIER = re.compile(r"\b(?:earlier|at first|first|before|previous(?:ly)?|early|beginning|until then|later)\b")
_REFUSAL = re.compile(
    r"\b(?:i|we)(?:'m| am| are)? (?:sorry|afraid|unable to|not able to|not allowed to)\b"
    r"|\b(?:i|we) (?:can ?not|can't|won't|will not|must decline|have to decline) "
    r"(?:\w+ )?(?:help|assist|comply|answer|provide|do (?:that|this)|see|view|process|fulfil|fulfill|discuss|judge)\b"
    r"|\bas an? (?:ai|artificial intelligence|language model|assistant)\b"
)


def plain(text: str) -> str:
    """Return a text in lower case, one line, with straight apostrophes."""
    return " ".join(text.lower().replace("\u2019", "'").split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a plain text."""
    return [part for part in _SENTENCE_END.split(text) if part]


_FRONTED_WORDS = 4
"""A clause this short that names a step speaks for the next one: "at step 3, the reply was empty"."""


class Clause(NamedTuple):
    """A part of a sentence that says one thing."""

    words: str
    condition: bool
    """Whether it is a condition, a time to come or an alternative."""


def clauses(sentence: str) -> Iterator[Clause]:
    """Take a sentence apart at its punctuation and conjunctions."""
    start, condition, told = 0, False, False
    for match in _CLAUSE.finditer(sentence):
        if words := sentence[start : match.start()].strip(" .!?"):
            yield Clause(words, condition and not (told and _PAST.search(words)))
        start, condition, told = match.end(), match["condition"] is not None, match["condition"] == "when"
    if words := sentence[start:].strip(" .!?"):
        yield Clause(words, condition and not (told and _PAST.search(words)))


def is_imperative(words: str) -> bool:
    """Whether a clause tells somebody what to do."""
    return _IMPERATIVE.match(words) is not None


def is_advice(sentence: str) -> bool:
    """Whether a plain sentence tells what to do."""
    commands = any(is_imperative(clause.words) and not clause.condition for clause in clauses(sentence))
    return commands or _DUTY.search(sentence) is not None


def is_guidance(sentence: str) -> bool:
    """Whether a plain sentence tells what to do, what to look for, or what holds in general; no tale of the past."""
    if is_advice(sentence):
        return True
    if _PAST.search(_PASSIVE.sub("", sentence)):
        return False
    return _IF.search(sentence) is not None or _RULE.search(sentence) is not None


def is_denied(words: str) -> bool:
    """Whether what follows these words of a clause is denied by them."""
    return _NEGATION.search(words.rstrip()) is not None


def names_step(step: int, sentence: str) -> bool:
    """Whether a plain sentence names the step by its number."""
    return re.search(rf"\bsteps?[ \-_]?0*{step}\b", sentence) is not None


def mentions(text: str, claims: Sequence[Claim], step: int) -> Iterator[Mention]:
    """Yield every claim that a text affirms or denies."""
    for sentence in sentences(plain(text)):
        earlier, fronted = _EARLIER.search(sentence) is not None, False
        for words, condition in clauses(sentence):
            named = fronted or names_step(step, words)
            fronted = named and len(words.split()) <= _FRONTED_WORDS
            named = named and _LATER.search(words) is None
            if condition or is_imperative(words):
                continue
            for claim in claims:
                if claim.unless is not None and claim.unless.search(words):
                    continue
                pivot = named or (claim.of_pivot and not earlier)
                for match in claim.says.finditer(words):
                    before = words[: match.start()]
                    if _NEGATIVE.match(match[0]):  # "can never": no possibility, but a statement
                        before = re.sub(r"\b(?:can|could) ?$", "", before)
                    if _MODAL.search(before) is None and not words[match.end() :].startswith((" would ", " could ")):
                        yield Mention(claim, not is_denied(before), pivot, match[0])
                for match in claim.denies.finditer(words) if claim.denies else ():
                    if not is_denied(words[: match.start()]):
                        yield Mention(claim, False, pivot, match[0])


def untrue(text: str, claims: Sequence[Claim], truths: Mapping[str, Truth], step: int) -> Iterator[Mention]:
    """Yield what of a text's mentions the truth contradicts."""
    for mention in mentions(text, claims, step):
        truth = truths.get(mention.claim.name, Truth(None, None))
        if mention.affirmed:
            if (truth.at if mention.about_pivot else truth.ever) is False:
                yield mention
        elif truth.at is True:
            yield mention


def is_refusal(text: str) -> bool:
    """Whether the first words of a text decline to answer: an apology, an inability, or talk about being a model."""
    return _REFUSAL.search(plain(text[:300])) is not None
