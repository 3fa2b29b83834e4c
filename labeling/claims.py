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
_GOAL = r"(?:goal|target|destination|object|item)"
_ARRIVED = (
    r"\b(?:reache[sd]|arrive[sd] (?:at|near|next to|beside)|g[eo]ts? to|made it to|makes it to|found|attained|"
    r"(?:stands|stood|stops|stopped|ends(?: up)?|ended(?: up)?|is|was) (?:now |already |right |directly |just )*"
    r"(?:at|beside|next to|in front of|close enough to|within reach of|near enough to)) "
    r"(?:the |its |this |that |a |an )?(?:(?!and|but|while)\w+ )?{goal}s?\b"
    r"|\b{goal} (?:(?:was|is|has been|had been) (?:now |already |finally |successfully )*(?:reached|found|attained))\b"
    r"|\b(?:task|navigation|search|episode|attempt) (?:was|is|has been|had been) (?:now |already |successfully )*"
    r"(?:solved|complete|completed|successful|accomplished|done|a success)\b"
    r"|\b(?:agent|robot|it|task|navigation|episode|attempt) (?:has |had )?(?:succeeded|succeeds)\b"
    r"|\b(?:completed|solved|finished|accomplished) the (?:task|navigation|search|instruction)\b"
)
_WAS = r"(?:(?:was|were|is|are|has been|have been|had been|got) )(?:(?:now|already|finally|successfully|all|both) )*"
_GOAL_DONE = re.compile(
    rf"\b(?:cubes|blocks|they) {_WAS}(?:aligned|lined up|in line|stacked)\b"
    rf"|\b(?:tower|stack|alignment|arrangement) {_WAS}(?:built|complete|completed|finished|done|standing)\b"
    rf"|\b(?:task|instruction|goal|attempt|episode|manipulation) {_WAS}(?:solved|complete|completed|successful|"
    r"accomplished|done|fulfilled|reached|achieved|a success)\b"
    r"|\b(?:robot|arm|gripper|agent|it|episode|attempt) (?:has |had )?(?:succeeded|succeeds)\b"
    r"|\b(?:completed|solved|finished|accomplished|fulfilled) the (?:task|instruction|tower|stack)\b"
)
_ALL_STAGES = re.compile(
    rf"\b(?:all|both|every|each) (?:of )?(?:the )?(?:\w+ )?(?:stages?|subgoals?|sub-goals?|parts of the task) {_WAS}"
    r"(?:achieved|complete|completed|done|finished|reached|met)\b"
    r"|\b(?:achieved|completed|finished|reached) (?:all|every one) of the (?:\w+ )?stages\b"
)
_NO_STAGE = re.compile(
    r"\b(?:no|none of the|not one|not a single) (?:\w+ )?(?:stages?|subgoals?|progress) (?:(?:was|were|is|are|has been|"
    r"had been) )(?:ever )?(?:achieved|completed|done|finished|reached|met|made)\b"
    r"|\b(?:never|did not|didn't) (?:achieve|achieved|complete|completed|finish|finished|reach|reached) "
    r"(?:a|any|one) (?:\w+ )?(?:stage|subgoal)\b"
)
_NO_COMMAND = re.compile(
    r"\b(?:reply|answer|response|turn) (?:there |here )?(?:was|is|had been) (?:left )?(?:empty|blank)\b"
    r"|\bno (?:command|action|primitive) (?:was|had been) (?:sent|given|issued|answered)\b"
)
_CONDITION = re.compile(
    r"\b(?:until|till|once|when|whenever|if|unless|before|as soon as|so that|whether)\b[^.;!?]*$"
    r"|\b(?:would|could|should|might|may|can|to|almost|nearly|instead of)(?: \w+){0,2}\s*$"
)
"""What makes the statement that follows it in a sentence a wish, a plan or a condition."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
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


def _plain(text: str) -> str:
    return " ".join(text.lower().replace("’", "'").split())


def _negated(text: str, start: int) -> bool:
    return _NEGATION.search(text[max(0, start - 40) : start].rstrip()) is not None


def claims(text: str) -> frozenset[str]:
    """Return which of ``fall``, ``no_fall`` and ``budget`` the text claims."""
    plain = _plain(text)
    found = {"no_fall"} if _NO_FALL.search(plain) else set[str]()
    for match in _FALL.finditer(plain):
        found.add("no_fall" if _negated(plain, match.start()) else "fall")
    if any(not _negated(plain, match.start()) for match in _BUDGET.finditer(plain)):
        found.add("budget")
    return frozenset(found)


def drawing_claims(text: str) -> frozenset[str]:
    """Return which of ``worse``, ``better``, ``exact`` and ``empty`` the text claims about scored drawings."""
    plain = _plain(text)
    lists = {"worse": _WORSE, "better": _BETTER, "exact": _EXACT, "empty": _EMPTY}
    return frozenset(
        name
        for name, words in lists.items()
        if any(not _negated(plain, match.start()) for match in words.finditer(plain))
    )


def claims_arrival(text: str, target: str) -> bool:
    """Return whether a text claims that the target was reached; ``target`` is its type, such as ``AlarmClock``."""
    name = r"[ -]?".join(re.escape(word.lower()) for word in _WORDS.findall(target))
    plain = _plain(text)
    pattern = _ARRIVED.replace("{goal}", rf"(?:{_GOAL}|{name})" if name else _GOAL)
    return any(
        not _negated(plain, match.start())
        and not _negated(plain, match.end())
        and _CONDITION.search(plain[max(0, match.start() - 80) : match.start()]) is None
        for match in re.finditer(pattern, plain)
    )


def handling_claims(text: str) -> frozenset[str]:
    """Return which of ``goal``, ``stages`` (all of them), ``no_stage`` and ``empty`` the text claims about handling."""
    plain = _plain(text)
    lists = {"goal": _GOAL_DONE, "stages": _ALL_STAGES, "no_stage": _NO_STAGE, "empty": _NO_COMMAND}
    return frozenset(name for name, words in lists.items() if any(_stated(plain, m) for m in words.finditer(plain)))


def claims_grasp(text: str, things: Sequence[str]) -> str | None:
    """Return the first of ``things`` that the text claims to have been in the hand; None where it claims none."""
    plain = _plain(text)
    for thing in things:
        name = re.escape(thing)
        pattern = (
            rf"\b(?:picked up|grasped|gripped|grabbed|lifted) the {name}\b"
            rf"|\bthe {name} (?:was|is|has been|had been) (?:now |already |correctly |successfully )*"
            r"(?:picked up|grasped|gripped|grabbed|lifted|held)\b"
        )
        if any(_stated(plain, match) for match in re.finditer(pattern, plain)):
            return thing
    return None


def _stated(plain: str, match: re.Match[str]) -> bool:
    """Whether a match is a statement: neither denied nor part of a wish, a plan or a condition."""
    if _negated(plain, match.start()):
        return False
    return _CONDITION.search(plain[max(0, match.start() - 80) : match.start()]) is None


def outcome_claims(text: str) -> frozenset[str]:
    """Return which of ``success`` and ``dead`` (a box or room lost for good) the text claims."""
    plain = _plain(text)
    lists = {"success": _SUCCESS, "dead": _DEAD}
    return frozenset(
        name
        for name, words in lists.items()
        if any(not _negated(plain, match.start()) for match in words.finditer(plain))
    )


def is_refusal(text: str) -> bool:
    """Whether the first words of a text decline to answer: an apology, an inability, or talk about being a model."""
    return _REFUSAL.search(_plain(text[:300])) is not None


def advised_action(text: str, step: int, actions: Sequence[str]) -> str | None:
    """Return the first of ``actions`` that a sentence about step ``step`` tells to take; None where none does.

    A command is a verb such as "move" or "push" shortly before the action, and not "do not move" or "instead of".
    """
    names = "|".join(map(re.escape, actions))
    command = re.compile(
        rf"\b{_ADVICE_VERB}\b(?: (?:the|a|one|to|box|person|cell|step|it|straight)){{0,3}} ({names})\b"
    )
    for sentence in re.split(r"(?<=[.!?])\s", _plain(text)):
        if re.search(rf"\bstep[ \-_]?0*{step}\b", sentence):
            for match in command.finditer(sentence):
                if not _NOT_ADVISED.search(sentence[: match.start()].rstrip()):
                    return match[1]
    return None
