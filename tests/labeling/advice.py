"""Sentences of advice, by what each claims about the episode, for the independent reader of guidance."""

from pivot.core.data import load_data

MOVE = r"(?:up|down|left|right)"
CALL = r"(?:pick|place|push)\(\S*?\)"
ACT = rf"(?:{MOVE}(?:\|{MOVE})*|(?:move|rotate|look)[a-z]+|{CALL}(?:\|{CALL})?|empty|invalid)"
BAD, GOOD = rf"(?P<bad>{ACT})", rf"(?P<good>{ACT})"
END = r"(?: instead)?\."
ADVICE: dict[str, list[str]] = {
    claim: [pattern.replace("{BAD}", BAD).replace("{GOOD}", GOOD).replace("{END}", END) for pattern in patterns]
    for claim, patterns in load_data(__file__, "advice.yaml").items()
}
"""Patterns of advice by the claim that it makes; see the file."""
