"""Claims that several environments share. Their words are stems: wide enough that a lie in other words is seen, too.

What a stem catches too much costs an honest text, and the writer is asked again; what it misses is trained on.
"""

from ..claims import Claim, lexicon

TURNS = r"(?:turns?|steps?|moves?|time|budget|clock|counter)"
GOAL = r"(?:goal|target|destination|finish|exit)"

_SUCCESS = (
    r"succe(?:ss|sses|ssful|ssfully|eded|eds)",
    r"(?:solved|solves|completed|completes|finished|finishes|accomplished|fulfilled|won|wins|victory|victorious|"
    r"triumph\w*)",
    r"(?:managed|was able|were able) to|nothing (?:\w+ )?(?:more|else|left|remains?|remained) to (?:do|fix|change|"
    r"gain)",
    r"(?:made|makes|found) (?:it|its way|the way) (?:safely )?(?:to the|home|there|in time)",
    r"(?:arrived|arrives|arrival|navigated to|got to|gets to|got there|well done|as (?:wanted|required|desired|asked))",
    rf"(?:reached|reaches|attained|attains|hit|found) (?:(?:the|its|their|this|that|a) )?(?:\w+ )?{GOAL}s?",
    rf"{GOAL}s? (?:\w+ )?(?:was|is|were|are|has been|had been|got)(?: \w+)? (?:reached|found|attained|achieved|met|"
    rf"hit)",
    r"(?:task|mission|job|instruction|episode|attempt|goal)(?: \w+)? (?:was|is|were|has been|had been|got)(?: \w+)? "
    r"(?:done|over|met|achieved|performed|reached)",
)


def target_reached(question: str, *more: str, unless: str | None = None) -> Claim:
    """Return the claim of success, with words of the environment's own."""
    return Claim(
        "target_reached", question, lexicon(*_SUCCESS, *more), unless=None if unless is None else lexicon(unless)
    )


FAULT = Claim(
    "fault",
    "",
    lexicon(
        r"(?:wrong|fatal|mistake|mistaken|careless|unwise|error|one too many|luxury|costly|expensive|useless|"
        r"pointless|needless)",
    ),
    lexicon(
        r"(?:no|not a|never a) (?:harm|mistake|error|problem|fault)|without (?:trouble|harm|loss)|harmless|well chosen|"
        r"(?:was|is) (?:clever|wise|correct|fine|sensible)"
    ),
)
"""That the action at the pivot was a mistake: known, so nobody is asked."""
TURNS_RAN_OUT = Claim(
    "turns_ran_out",
    "after step {step} the goal could still be reached, but not in the turns that were left",
    lexicon(
        rf"{TURNS} (?:limit|ran|runs?|running|ticked|expired|elapsed|ended|lacking|lacked)|limit was|timed? ?out|"
        rf"times out|timeout",
        rf"{TURNS} (?:\w+ )?(?:was|were|is|are|had been|has been|have been|had)(?: \w+)? "
        r"(?:spent|exhausted|used|used up|gone|up|over|out|expired|elapsed|too (?:small|short|few|tight)|insufficient)",
        rf"(?:out of|short of|low on|used up|exhausted|lacked|(?:for )?(?:lack|want) of|not enough|too few|"
        rf"insufficient|too many|"
        rf"(?:a few |some |needed |needs )more)(?: \w+)? {TURNS}",
        rf"no (?:more )?{TURNS} (?:was |were |is |are |had |to be )*(?:left|remain(?:ed|s|ing)?)",
        rf"{TURNS} (?:was |were |is |are )?not (?:enough|sufficient)",
        r"(?:wast(?:ed|es)|lost|burn(?:s|ed|t)?)(?: \w+){0,2} (?:turns?|moves?|steps?|time|slack)",
        r"(?:turns?|moves?|steps?|time) (?:was|were) (?:\w+ )?(?:wasted|lost|missing)",
        r"(?:was|were|is|came|comes) (?:far |much )?(?:too )?(?:slow|late)(?: to| for)?|too (?:slowly|late|long)",
        r"(?:counter|clock|time|turns?|countdown)(?: \w+)? (?:zero|nought|its end|the end)|dawdl\w+|delay\w*|overran|"
        r"deadline|tardy",
    ),
    lexicon(
        rf"(?:plenty of|lots of|enough|sufficient|ample|more than enough)(?: \w+)? {TURNS}|{TURNS} (?:left )?to spare|"
        r"no need to hurry|no hurry"
    ),
)
NO_ACTION = Claim(
    "no_action",
    "the reply at step {step} held nothing usable",
    lexicon(
        r"(?:reply|replies|answers?|submission|response|turn)(?: \w+){0,5} (?:empty|blank|invalid|unusable|unreadable)",
        r"(?:empty|blank|invalid|unusable|unreadable) (?:reply|replies|answers?|submission|response|document|action|"
        r"command)s?",
        r"(?:submitted|sent|answered|said|drew|gave) nothing|nothing (?:\w+ )?(?:was|got|had been) (?:sent|submitted|"
        r"said|answered|drawn)",
        r"(?:held|holds|had|has|contained|named|gave|includes?|included|sent|with|without|missed|lacked)(?: \w+){0,2} "
        r"(?:no|any|an?) (?:\w+ )?(?:action|command|document|svg|drawing|code)",
        r"no (?:\w+ )?(?:action|command|document|drawing|svg|code)(?: \w+)? (?:was|had been|could be|came|is|were)",
        r"did not (?:contain|hold|give|name|include|output|send|state|produce) (?:an?|any|the) (?:\w+ )?"
        r"(?:action|command|document|svg|drawing|code|move)",
    ),
    lexicon(
        r"(?:reply|answer|action|command) (?:was|is|had been) (?:\w+ )?(?:fine|good|valid|usable|carried out|"
        r"executed|performed)"
    ),
    of_pivot=False,
)
ACTION_REPEATED = Claim(
    "action_repeated",
    "the action at step {step} was the same as the one before it",
    lexicon(
        r"(?:was|were|had been|got) repeated|repeated (?:the|this|that|its)",
        r"(?:the )?same (?:\w+ ){1,4}(?:again|twice|once more|over and over)",
        r"(?:moved|pushed|stepped|picked|turned|sent|tried) (?:\w+ ){0,4}(?:twice|over and over|again and again)",
    ),
    of_pivot=False,
)
BLOCKED = Claim(
    "blocked",
    "the action at step {step} was a usable one, but something stopped it and it changed nothing",
    lexicon(
        r"(?:bumped|bumping|crashed|collided|collision|knocked|blocked|obstructed|refused|halted)",
        r"(?:was|were|is|got|been) (?:stopped|rejected|hindered)|hit (?:a|an|the|some)",
        r"(?:ran|runs|walked|walks|moved|stepped|went|came|pushed|drove) (?:straight |right |up )?(?:into|against) "
        r"(?:a |an |the |some |its )?(?:\w+ )?(?:wall|obstacle|furniture|table|chair|counter|border|edge|cupboard|"
        r"fridge|sofa|door)",
        r"(?:wall|obstacle|furniture|table|chair|counter|border)s? (?:had |has )?(?:stopped|stood in)",
    ),
    lexicon(
        r"nothing (?:was|stood|lay) in the way|(?:way|path)(?: ahead)? (?:was|is) (?:clear|free|open|unobstructed)|"
        r"went through|"
        r"(?:move|step)(?: ahead)? (?:succeeded|worked|was carried out)"
    ),
    of_pivot=False,
    unless=lexicon("against the (?:wall|edge|top wall|upper wall)", "box", "crate"),
)
PROGRESS = Claim(
    "progress",
    "the action at step {step} brought the goal nearer",
    lexicon(
        r"(?:nearer|closer|advanced|advances|shortened|shortens|approached|worked|helped|helps|paid off|progressed|"
        r"easier)",
        r"(?:saved|saves|gained|won) (?:a|one|the|some|two) (?:turns?|moves?|steps?|time)",
        r"(?:good|great|real|clear|some|useful) progress",
        r"(?:made|left|kept|keeps)(?: \w+){1,3} (?:easy|solvable|free|open|alive|possible|"
        r"on (?:the )?(?:safe )?\w+ ice)",
        r"freed|(?:reduced|cut|decreased)(?: \w+)? (?:way|path|distance)|distance (?:\w+ )?(?:shrank|fell|decreased|"
        r"dropped)",
    ),
)
