"""Sentences of advice, by what each claims about the episode, for the independent reader of guidance."""

MOVE = r"(?:up|down|left|right)"
CALL = r"(?:pick|place|push)\(\S*?\)"
ACT = rf"(?:{MOVE}(?:\|{MOVE})*|(?:move|rotate|look)[a-z]+|{CALL}(?:\|{CALL})?|empty|invalid)"
BAD, GOOD = rf"(?P<bad>{ACT})", rf"(?P<good>{ACT})"
END = r"(?: instead)?\."
ADVICE = {
    "better": [
        rf"do not (?:choose|move|answer) {BAD}; (?:choose|move|answer) {GOOD}{END}",
        rf"(?:choose|play) {GOOD} instead of {BAD}\.",
        rf"(?:go|answer) {GOOD} rather than {BAD}\.",
        rf"in place of {BAD}, answer {GOOD}\.",
        rf"the (?:action to take|move to make|turn to play) is {GOOD}, not {BAD}\.",
        rf"(?:choose|play) {GOOD}: it keeps the goal within reach, but {BAD} does not\.",
    ],
    "better than a push": [
        rf"do not push {BAD}; move {GOOD}{END}",
        rf"move {GOOD} rather than pushing {BAD}\.",
        rf"instead of pushing {BAD}, go {GOOD}\.",
        rf"choose {GOOD}: it keeps the goal within reach, but the push {BAD} does not\.",
    ],
    "in place of no action": [
        rf"do not leave the (?:reply without an action|answer without a command); (?:choose|answer) {GOOD}\.",
        rf"(?:give a usable reply and (?:choose|play)|send one clear action:|give the command|send) {GOOD}\.",
        rf"do not leave the reply without an action; play {GOOD}\.",
    ],
    "no action": [
        r"do not leave the reply without an action; choose one that makes progress\.",
        r"give a usable reply with an action that brings the goal nearer\.",
        r"send one clear action that makes progress\.",
        r"let no reply be without an action, and make each a move towards the target\.",
        r"make every reply a move that brings the target nearer\.",
        r"leave no answer without a command, and use every turn to achieve a stage\.",
        r"answer every turn with a command that achieves a stage\.",
    ],
    "keep": [
        rf"choose {GOOD}, which keeps the goal within reach\.",
        rf"continue with {GOOD}; the goal is still within reach\.",
        rf"{GOOD} still leaves enough turns to reach the goal\.",
    ],
    "hopeless": [
        rf"do not count on {BAD}: no action there kept the goal within reach\.",
        rf"expect nothing from {BAD}, since the goal was out of reach from the start\.",
        rf"neither {BAD} nor any other action helps, since the goal was out of reach from the start\.",
    ],
    "other": [
        rf"do not choose {BAD}; choose an action that makes progress\.",
        rf"avoid {BAD} and choose an action that brings the goal nearer\.",
        rf"look for an action other than {BAD}, one that makes progress\.",
    ],
    "not nearer": [
        rf"choose moves that bring the target nearer, which {BAD} did not\.",
        rf"make every turn a move towards the target; {BAD} was none\.",
        rf"make moves that shorten the distance, in place of {BAD}\.",
    ],
    "little nearer": [
        r"look for a way that brings the target nearer in fewer turns\.",
        r"look for moves that shorten the distance more than the moves of this episode did\.",
    ],
    "blocked": [
        rf"look for a way around; {BAD} was blocked there\.",
        rf"look where the way is free; {BAD} was blocked there\.",
    ],
    "lost before": [
        r"no action helps any more: the way through the room was already too long\.",
        r"it is too late: too few turns were left for the way through the room\.",
    ],
    "open end": [
        r"(?:go on|keep walking|take the next move) towards the target\.",
    ],
    "no stage": [
        rf"{BAD} does not complete the task; let every turn, also before it, achieve what it can\.",
        rf"use every turn for as many stages as it can achieve; {BAD} does not complete the task\.",
        rf"check {BAD}, and every command before it, against the positions and limits that are given\.",
    ],
    "late": [
        rf"{BAD} (?:came too late|was needed sooner); let every turn before it achieve a stage\.",
    ],
    "right": [
        rf"{BAD} can stay; the task could still be completed in the turns after it\.",
        rf"keep {GOOD}, and use the turns after it to complete the task\.",
    ],
    "incomplete": [
        r"compare the positions with the instruction after every turn, and do what is still missing\.",
        r"check after every turn what the instruction still asks for, and do that\.",
    ],
    "too many stages": [
        r"aim for two stages in one turn: from the start the stages outnumbered the turns\.",
        r"try to achieve two stages in one turn, since they outnumbered the turns from the start\.",
    ],
    "no document": [
        r"(?:send|let the answer be|put) one (?:whole|complete) document from <svg> to </svg>(?: into the answer)?\.",
    ],
    "cut off": [
        r"think less and send a shorter document, whole from <svg> to </svg>\.",
        r"send a document that is short enough to be complete, up to </svg>\.",
    ],
    "in the thought": [
        r"close the thought before the answer, then send the document\.",
        r"do not answer inside the thought; send the document after it\.",
    ],
    "not SVG": [
        r"check that the document is well-formed XML with <svg> as its root before you send it\.",
        r"send well-formed XML with <svg> as its root: tags closed, values quoted, no bare & or <\.",
    ],
    "not drawn": [
        r"draw with fewer and simpler shapes\.",
        r"use a few plain shapes with plain numbers and colours\.",
    ],
    "not text": [
        r"write the document out as plain text\.",
        r"send the document as text, without bytes or compression\.",
    ],
    "forbidden": [
        r"draw everything in the document itself, without references to files, addresses or entities\.",
        r"leave out entities and references, and draw every shape in the document\.",
    ],
    "worse": [
        r"keep the shapes of the previous submission that fit the target and change only the others\.",
        r"start from the previous submission and correct only what differs from the target\.",
        r"leave what already fits the target as it was\.",
    ],
    "other document": [
        r"compare the drawing with the target and redraw what differs most\.",
        r"make the change that brings the drawing nearest to the target\.",
        r"look for the part that differs most from the target, and redraw it\.",
    ],
    "same document": [
        r"do not send the same document again; redraw the part that differs most from the target\.",
        r"change the document where it differs most from the target\.",
    ],
    "not the target": [
        r"draw every shape of the target, each with its own place, size and colour\.",
        r"compare every shape with the target, and correct its place, size and colour\.",
        r"give every shape the place, size and colour that it has in the target\.",
    ],
}
"""Patterns of advice without its first words, "At step N, " or "Up to step N, "; by the claim that the advice makes."""
