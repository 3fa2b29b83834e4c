"""Short rules for a piece of prose: plain English in a few sentences, no markup, no orders to whoever reads it.

They hold whatever the episode is. What may stand in a text beside words (an action such as ``pick(1,2,3)``, a tag that
is meant) is named by the caller and taken out first.
"""

import re
import unicodedata
from collections.abc import Collection, Sequence

from .claims import plain, sentences

MAX_CHARS = 700
"""About five sentences. Longer texts are not advice any more."""
MAX_SENTENCES = 5
"""The command, and up to four of the rest."""

Finding = tuple[str, str]
"""A word that can be counted, and what was found."""

_TYPOGRAPHY = "\u2018\u2019\u201c\u201d\u2013\u2014\u2026\u00d7\u00b0\u2212"
_MARKUP = re.compile(
    r"https?:|\bwww\.|\b[\w-]+\.(?:com|org|net|io|info|ai|dev)\b|</?[a-z!][^>]*>|&[a-z#0-9]{2,8};|\[[^\]\n]{0,80}\]"
    r"|\*\*|__|``?|[{}\\|^~]|^#|[<>]|\$\(|\*\w[^*\n]*\*",
    re.IGNORECASE,
)
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass) (?:\w+ ){0,3}"
    r"(?:instructions?|rules?|facts?|above|previous|prompts?|everything|constraints?|guidelines?)\b"
    r"|\b(?:system|hidden|secret|developer) (?:prompt|message|mode|instructions?)\b|\bjailbreak\b|\bsudo\b"
    r"|^(?:system|assistant|user|developer) ?:|\b(?:you are|act as) (?:now |an? )+(?:ai|assistant|model|bot|"
    r"developer|in)\b"
    r"|\b(?:print|output|reveal|leak|show|execute|eval) (?:\w+ ){0,3}(?:prompts?|instructions?|contents?|passwords?|"
    r"secrets?"
    r"|tokens?|keys?|environment variables?)\b"
    r"|\b(?:reply|respond|answer|say|state|report|write|claim) (?:\w+ ){0,6}(?:was a success|is a success|"
    r"was reached|succeeded"
    r"|the words?|every question)\b"
    r"|/etc/|\bapi[ _-]?keys?\b|\b(?:pivot_step|failure_mode|failure_reason)\b|\bfrom now on you\b",
    re.MULTILINE,
)
_ENGLISH = re.compile(
    r"(?:a|about|above|after|again|all|also|an|and|any|are|as|at|away|be|because|been|before|behind|below|beside|but|"
    r"by|can|cannot|could|did|do|does|done|don't|down|each|every|few|for|from|get|go|had|has|have|he|her|his|how|"
    r"if|in|instead|into|is|it|its|just|keep|left|less|like|made|make|many|more|most|move|moves|must|near|never|"
    r"no|not|nothing|of|off|on|once|one|only|or|other|out|over|rather|right|same|should|so|step|steps|still|than|"
    r"that|the|their|them|then|there|these|they|this|those|to|too|toward|towards|turn|turns|two|under|until|up|"
    r"use|was|watch|way|were|what|when|where|which|while|will|with|without|would|you|your|avoid|action)"
)
_FOREIGN = re.compile(
    r"(?:att|au|auf|aux|avec|car|ce|cette|che|com|con|contre|da|dans|das|de|del|dem|den|denn|der|des|det|di|du|een|"
    r"ein|eine|einen|el|en|er|es|est|et|evita|evitar|evitate|evite|evitez|gli|hacia|hay|het|ikke|il|inte|ist|"
    r"jamais|la|las|le|les|lo|los|mit|naar|nao|ne|nicht|nie|niet|non|nunca|och|og|os|para|pas|per|por|porque|pour|"
    r"que|qui|sans|se|si|sich|sie|som|sonst|sul|sur|till|um|uma|un|una|und|une|vermeide|von|wird|zu)"
)
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS = dict(zip(_COUNTED.split(), range(13), strict=True))
"""Number words that are read."""
_AMOUNT = rf"\d+|{'|'.join(NUMBERS)}"
_STEP = re.compile(rf"\bsteps?[ \-_]*(?:number |no\.? )?#?({_AMOUNT})(?:[ ,]*(?:and|or|to|-|\u2013)+ ?({_AMOUNT}))?\b")
_FATE = r"(?:fatal|decisive|decided|lost|mistake|wrong|doomed|ruined|one too many|where|when)"
_NTH = re.compile(
    r"\b(?P<nth>first|opening|initial|second|third|fourth|fifth|sixth|seventh|last|final)(?: \w+)? (?:step|move|turn|"
    r"push|action)\b"
    rf"(?: \w+){{0,5}} {_FATE}\b"
    r"|\b(?:lost|over|doomed|decided|dead|mistake|wrong)\b[^.]{0,30}\b(?:at|from|in) the (?:very )?(?P<early>start|"
    r"beginning|outset)\b"
    r"|\b(?:one|two|three|a few|several) (?:steps?|turns?|moves?) (?:earlier|before that|later)\b"
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_LEFT = re.compile(
    rf"\b(?P<number>{_AMOUNT}) (?:more )?(?:turns?|steps?|moves?) (?:(?:was|were|is|are|had|still|to be) )*"
    r"(?:left|remain(?:ed|s|ing)?|to spare|to go)\b"
)
_DIGITS = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")


def form_problem(text: str, literals: Sequence[str] = ()) -> Finding | None:
    """Return what is wrong with the characters, the language, the length or the addressee of a text, or None.

    Kinds: ``too_long``, ``control``, ``script``, ``markup``, ``orders``, ``language``.
    """
    if len(text) > MAX_CHARS:
        return "too_long", f"{len(text)} characters, at most {MAX_CHARS} are guidance"
    bare = without(text, literals)
    words = plain(bare)
    parts = sentences(words)
    if len(parts) > MAX_SENTENCES:
        return "too_long", f"{len(parts)} sentences, at most {MAX_SENTENCES} are guidance"
    problem = _character_problem(text)
    if problem is None and (markup := _MARKUP.search(bare)) is not None:
        problem = "markup", f"{markup[0][:40]!r} is markup, a link or code"
    if problem is None and (orders := _ORDERS.search(words)) is not None:
        problem = "orders", f"{orders[0][:60]!r} gives orders to the reader of the text"
    foreign = next((part for part in parts if not is_english(part)), None)
    if problem is None and foreign is not None:
        problem = "language", f"{foreign[:60]!r} is not English"
    return problem


def _character_problem(text: str) -> Finding | None:
    for character in text:
        name = unicodedata.name(character, f"U+{ord(character):04X}")
        if unicodedata.category(character) in ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"):
            return "control", f"the character {name} is no text"
        latin = character.isascii() or character in _TYPOGRAPHY or (character.isalpha() and name.startswith("LATIN"))
        if not latin:
            return "script", f"the character {name} is none of English prose"
    return None


def is_english(sentence: str) -> bool:
    """Whether the small words of a plain sentence are English ones, by and large; a few words alone may be anything."""
    words = _WORD.findall(sentence)
    english = sum(_ENGLISH.fullmatch(word) is not None for word in words)
    foreign = sum(_FOREIGN.fullmatch(word) is not None for word in words)
    return foreign <= english // 3 and (len(words) < 4 or english > 0)


def without(text: str, literals: Sequence[str]) -> str:
    """Return a text without what may stand in it as it is."""
    for literal in sorted(filter(None, literals), key=len, reverse=True):
        text = re.sub(re.escape(literal), " ", text, flags=re.IGNORECASE)
    return text


def step_problem(text: str, step: int, steps: int) -> Finding | None:
    """Return ``other_step`` where a text speaks of another step than ``step`` of the ``steps`` that were made."""
    words = plain(text)
    others = [match[0] for match in _STEP.finditer(words) if any(_number(n) != step for n in match.groups() if n)]
    for match in _NTH.finditer(words):
        nth = "first" if match["early"] else match["nth"]
        if nth is None or step != _place(nth, steps):
            others.append(match[0])
    if not others:
        return None
    return "other_step", f"the text speaks of {others[0]!r}, the episode was lost at step {step}"


def _number(text: str) -> int:
    return NUMBERS[text] if text in NUMBERS else int(text[:9])


def _place(nth: str, steps: int) -> int:
    if nth in ("last", "final"):
        return steps - 1
    return 0 if nth in ("opening", "initial") else _ORDINALS.index(nth)


def number_problem(
    text: str, amounts: Collection[float], left: Collection[int], literals: Sequence[str]
) -> Finding | None:
    """Return ``number`` where a text gives an amount that is none of the facts'.

    Args:
        text: the prose.
        amounts: numbers of the log and the certificate; a text may round them.
        left: turns that were left before and after the pivot, and those that could be spared.
        literals: what may stand in the text as it is.
    """
    words = plain(without(text, literals))
    for match in _LEFT.finditer(words):
        if _number(match["number"]) not in left:
            return "number", f"the text says {match[0]!r}, but {' and '.join(map(str, sorted(left)))} turns were left"
    for match in _DIGITS.finditer(words):
        decimals = len(match[0].partition(".")[2])
        if float(match[0]) not in {round(amount, decimals) for amount in amounts}:
            return "number", f"the text gives the number {match[0][:20]}, which is none of the facts"
    return None
