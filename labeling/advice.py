"""What a text says about actions: which it advises, warns of, or reports, read from the verb that goes with each.

"Move up", "you should move up" and "up is the right choice" advise; "do not move up" and "instead of moving up" warn;
"you moved up", "decided to move up" and "the box was pushed up" report. A direction without such a verb is a place
("the wall above", "the box left of you") and says nothing. Advice to do the same again, or nothing, names no action.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .claims import clauses, is_imperative, names_step, plain, sentences

_BASE = (
    "move|go|push|step|walk|head|shove|slide|press|choose|take|turn|try|play|pick|select|answer|use|reply with|"
    "rotate|spin|look|tilt|run|drive|continue|proceed|advance"
)
_ING = (
    "moving|going|pushing|stepping|walking|heading|shoving|sliding|pressing|choosing|taking|turning|trying|picking|"
    "rotating|spinning|looking|tilting|running"
)
_PAST = (
    "moved|went|pushed|stepped|walked|headed|shoved|slid|pressed|chose|took|turned|tried|picked|rotated|spun|looked|"
    "tilted|ran|chosen|taken|gone"
)
_THIRD = (
    "moves|goes|pushes|steps|walks|heads|shoves|slides|presses|chooses|takes|turns|tries|picks|rotates|spins|looks|"
    "tilts|runs"
)
_FILLER = (
    r"(?: (?:the|a|an|one|to|towards?|box|crate|person|player|agent|cell|step|it|its|your|his|her|head|view|camera|"
    r"straight|further|once|more|back|on|red|turn|move|action))"
)
_NOT_AFTER = (
    r"(?! ?-?hand\b| (?:of|wall|side|edge|corner|column|row|border|half|cell|over|behind|part|upper|lower|top)\b)"
)
_AGENT = re.compile(r"(?:\b(?:agent|player|robot|person|it|he|she|arm)|^)$")
_DECIDED = re.compile(
    r"\b(?:decided|chose|tried|wanted|went on|happened|began|started|attempted|managed|used|preferred|opted|made|came|"
    r"decision|choice|attempt|urge|turned) to$"
)
_ADVISED = re.compile(
    r"\b(?:should(?: have)?|must|ought to|needs? to|had to|have to|(?:is|was|be|better|best|safer|enough|aim|plan|"
    r"try|remember) to|had better|better)$"
)
_NEUTRAL = re.compile(r"\b(?:would(?: have)?|could(?: have)?|might|may|can|to|you|i|we|they|if|when)$")
_AGAINST = re.compile(
    r"\b(?:not|never|avoid|without|don't|stop|no|resist|refrain from|against|cannot)\b(?: \w+){0,3}$|n't(?: \w+){0,2}$"
)
_NOUN = re.compile(
    r"\b(?:the|a|an|this|that|every|each|another|last|next|one|any|its|your|first|single|fatal)$|"
    r"\b(?:the|a|an|this|that)(?: (?!agent|player|robot|person)\w+){1,2}$"
)
_SHOULD_HAVE = re.compile(r"\bshould have$")
_UNREAL = re.compile(r"\b(?:would|could|might) have$|n't$|\b(?:not|never)$")
_KEEP = re.compile(r"\b(?:keep|continue|go on|carry on|try|consider|start|prefer)$")
_KEPT = re.compile(r"\b(?:kept|continued|went on)$")
_PRAISE = re.compile(
    r"\b(?:was|is|were|be) (?:the |a |an |quite |perfectly |only |very )*"
    r"(?:safe|right|best|correct|good|fine|fastest|quickest|safest|harmless|clever|wise|sound)"
    r"(?: (?:choice|move|way|one|thing|action|decision|push|step|answer|direction|idea))?(?: (?:here|there|now|"
    r"at step \d+))*$"
    r"|\b(?:is|was) (?:well|wisely|cleverly) (?:chosen|played|made|taken)\b"
    r"|\b(?:is|was) (?:what (?:is|was) )?(?:needed|called for|required|the way(?: to go)?)$"
    r"|\bbest (?:move|action|choice|step)\b"
)
_AGAIN = re.compile(
    r"^(?:(?:and|then|so|just|please|here|there) )*(?:"
    r"repeat (?!\w+ing)|do (?:it|this|that|the same|so)(?: \w+)* again|do the same|do (?:nothing|not move$)|"
    r"(?:send|submit|answer|draw|say|give|reply) (?:nothing|no\b)|(?:send|submit|give) (?:the )?same|"
    r"(?:send|give|submit) an? (?:empty|invalid|blank)|leave the (?:answer|reply|turn) (?:empty|blank)|"
    r"(?:reply|answer) without (?:an?|any) (?:action|command)|(?:keep|continue) (?:\w+ ){1,4}(?:the same|as before)|"
    r"(?:push|pick|place|look|rotate|turn|move|step|submit|send|answer|reply)(?: \w+){0,5} (?:again|once more|"
    r"the same way)(?: in the same way| at step \d+| here| too)*$"
    r")"
)
_AGAIN_PASSIVE = re.compile(
    r"\b(?:should|must|can|may|has to|ought to) be (?:\w+ )?(?:repeated|(?:sent|made|tried|used|chosen|submitted|"
    r"done) (?:once )?(?:again|more))"
)
_FRONTED = re.compile(r"^(?:at|on|in) (?:step \d+|this (?:step|turn))\s*")


_NOTHING = re.compile(r"(?!)")
_MADE = re.compile(r"\b(?:move|push|step|action|choice|turn|rotation|look|reply|way)\b")

Kind = Literal["advises", "warns", "reports", "names", "mentions"]
"""``names`` is a noun ("the push up"); ``mentions`` is neither advice nor a report ("pushing up would ...")."""


class Remark(NamedTuple):
    """What a text says about one action; the action is empty where it is that of the pivot or none at all."""

    kind: Kind
    action: str
    about_pivot: bool
    words: str


@dataclass(frozen=True, slots=True)
class Moves:
    """How prose names the actions of an environment."""

    directions: Mapping[str, str]
    """Pattern of the direction words by the name that the actions use."""
    actions: Mapping[tuple[str, str], str]
    """Action by kind of verb (``move``, ``rotate``, ``look``) and direction."""

    def pattern(self) -> re.Pattern[str]:
        """Return what matches a verb with its direction."""
        if not self.directions:
            return _NOTHING
        names = "|".join(f"(?P<{name}>{words})" for name, words in self.directions.items())
        return re.compile(
            rf"\b(?:(?P<base>{_BASE})|(?P<ing>{_ING})|(?P<past>{_PAST})|(?P<third>{_THIRD})){_FILLER}{{0,4}} "
            rf"(?:{names})\b{_NOT_AFTER}"
        )

    def action(self, match: re.Match[str]) -> str | None:
        """Return the action that a match names, or None where there is none of the kind."""
        verb = next(match[form] for form in ("base", "ing", "past", "third") if match[form])
        direction = next(name for name in self.directions if match[name])
        kind = "look" if verb[:4] in ("look", "tilt") else "move"
        if verb[:3] in ("rot", "spi") or (verb[:4] == "turn" and ("rotate", direction) in self.actions):
            kind = "rotate"
        return self.actions.get((kind, direction))


NO_MOVES = Moves({}, {})
"""For an environment whose actions prose does not name by directions."""


def remarks(text: str, moves: Moves, step: int) -> Iterator[Remark]:
    """Yield what a text says about actions."""
    pattern = moves.pattern()
    for sentence in sentences(plain(text)):
        named = names_step(step, sentence)
        for clause in clauses(_FRONTED.sub("", sentence)):
            words = clause.words
            if not clause.condition and (_AGAIN.search(words) or _AGAIN_PASSIVE.search(words)):
                yield Remark("advises", "", True, words)
            acts = []
            for match in pattern.finditer(words):
                action = moves.action(match)
                if action is None or _is_a_count(match, words):
                    continue
                acts.append(action)
                kind = "warns" if clause.condition and match["ing"] else _kind(match, words)
                kind = "mentions" if clause.condition and kind == "advises" else kind
                yield Remark(kind, action, named, match[0])
            if not clause.condition and not is_imperative(words) and (praise := _PRAISE.search(words)):
                against = _AGAINST.search(words[: praise.end()].replace(praise[0], "")) or " not " in f" {words} "
                if not against:
                    yield from (Remark("advises", action, True, words) for action in acts or _bare(words, moves))


def _bare(words: str, moves: Moves) -> list[str]:
    """Return the actions that a clause of praise names without a verb; an empty name where it praises the one made."""
    bare = re.sub(r"\b(the|a) right\b", r"\1", words)
    named = [name for name, pattern in moves.directions.items() if re.search(rf"\b(?:{pattern})\b", bare)]
    actions = [moves.actions["move", name] for name in named if ("move", name) in moves.actions]
    return actions or ([""] if _MADE.search(bare) else [])


def _is_a_count(match: re.Match[str], words: str) -> bool:
    """Whether the words are no action but an amount: "5 moves left", "too few turns left"."""
    before = words[: match.start()].rstrip()
    if re.search(r"\b(?:clock|counter|time|turns)$", before):
        return True
    if not re.search(r"\bleft$", match[0]):
        return False
    if match["base"] in ("move", "step", "turn"):
        return re.search(r"\b(?:one|no|another|\d+|a|every|last|single|any)$", before) is not None
    if match["third"] not in ("moves", "steps", "turns"):
        return False
    return _AGENT.search(before) is None


def _kind(match: re.Match[str], words: str) -> Kind:
    before = words[: match.start()].rstrip()
    if match["past"] or match["third"]:
        unreal = "advises" if _SHOULD_HAVE.search(before) else "mentions" if _UNREAL.search(before) else None
        return unreal or "reports"
    moods: dict[Kind, re.Pattern[str]] = {"reports": _DECIDED, "advises": _ADVISED}
    if match["ing"]:
        moods = {"warns": _AGAINST, "reports": _KEPT, "advises": _KEEP}
    elif not (_ADVISED.search(before) or _DECIDED.search(before)):
        moods = {"names": _NOUN}
    if _AGAINST.search(before):
        return "mentions" if "names" in moods and _NOUN.search(before) else "warns"
    default: Kind = "mentions" if match["ing"] or _NEUTRAL.search(before) else "advises"
    for kind, mood in moods.items():
        if mood.search(before):
            return kind
    return default
