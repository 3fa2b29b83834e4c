"""Reading replies in the dialect of another program: which part contains the actions, and their spelling.

A reply has one *container*: a pair of tags, the match of a pattern, or the argument of a tool call. The words in it are
the actions. Whatever else looks like an action, in the container or beside it, is *dropped*, and counted: a program
that acted on it would have played something else.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, field_validator

from ..core.messages import THINK_TAGS, after_thoughts, in_think_tags
from ..core.plugins import Settings
from ..environments.base import ParsedAction
from .parser import parse_reply, visible_span

AROUND = " \t\r\n.,;:!?/\"'`*_()[]{}<>|#~\\“”‘’«»。！，、：·\ufe0e\ufe0f"
"""Characters around a word that loose spelling ignores."""
PAIR = re.compile(r"<(\w{1,40})>([^<>]{1,200})</\1>", re.IGNORECASE)
LABELLED = re.compile(
    r"^\W{0,8}(?:final |next |my )?(?:action|answer|move)s?\W{0,4}[:=：][^\S\n]*([^\n]{1,100})$",
    re.IGNORECASE | re.MULTILINE,
)
_BETWEEN = re.compile(r"(?:^|(?<=\s))\d{1,2}[.)]\s|[\s,;|/>\-]+|\band\b|\bthen\b", re.IGNORECASE | re.MULTILINE)
_STRUCTURE = re.compile(r"[<>{}\[\]|`*=:：()]")
"""Characters that may enclose an action in another dialect."""
_MOST_CHARACTERS = 64 * 1024


class Words(Settings):
    """Meaning of the words of a source."""

    words: str = ""
    """Words of the source for the actions, such as ``up:north,down:south``, or ``left:0,down:1`` for numbers."""

    @field_validator("words")
    @classmethod
    def _are_pairs(cls, words: str) -> str:
        if words and any(not all(map(str.strip, each.partition(":")[::2])) for each in words.split(",")):
            raise ValueError(f"found {words!r}, expected pairs such as up:north,down:south")
        return words

    @property
    def vocabulary(self) -> Mapping[str, str]:
        """Return the actions by the words of the replies, case-folded."""
        return _vocabulary(self.words)


class Dialect(Words):
    """Place and spelling of the actions in the replies of a source."""

    tag: str = ""
    """Tag that encloses the actions in a reply, such as ``answer``; by default that of the environment."""
    pattern: str = ""
    """Regular expression whose first group holds the actions, in place of a tag; case is ignored, and text in closed
    think tags is not searched."""
    separator: str = ""
    """Text between the actions of a reply, such as a comma; ``any`` for blanks, punctuation, numbers of a list, "and"
    and "then"; ``each`` if every character is an action, as in ``UURD``; empty for one action per reply."""
    actions_per_turn: int = Field(default=1, ge=1, le=64)
    """Maximum number of actions of a reply; further ones did not run."""
    argument: str = ""
    """Argument of a tool call that holds the actions, such as ``direction``; by default a call has the name of an
    action, or its only argument is a text that holds them."""
    container: Literal["", "first", "last"] = ""
    """Which of several containers after the thought holds the actions, so that the others hold none; by default the
    first is read, and other actions in the others count as dropped."""
    spelling: Literal["exact", "loose"] = "exact"
    """``loose`` ignores punctuation, quotes and brackets around a word, as in ``Down.``"""

    @field_validator("pattern")
    @classmethod
    def _is_an_expression(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"found {pattern!r}, expected a regular expression: {error}") from error
        return pattern

    @property
    def is_plain(self) -> bool:
        """Whether replies are read by the grammar of the environment."""
        return self.actions_per_turn == 1 and not (
            self.tag or self.pattern or self.separator or self.words or self.container or self.spelling == "loose"
        )


@lru_cache(maxsize=64)
def _vocabulary(words: str) -> Mapping[str, str]:
    pairs = [each.partition(":") for each in words.split(",")] if words else []
    return {word.strip().casefold(): action.strip().casefold() for action, _, word in pairs}


_ANY, _COMMAS = Dialect(separator="any"), Dialect(separator=",")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in a reply."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """Result of reading one reply."""

    actions: tuple[str, ...] = ()
    """Actions in order."""
    dropped: tuple[str, ...] = ()
    """Words and parts that could be actions and are not used."""
    form: str = ""
    """Kind of a reply without an action: ``blank``, ``mention`` (an action outside of a container), the text of the
    container, or the reply after the thought."""
    is_chatter: bool = False
    """Whether the reply has no tags, labels or other characters that may enclose an action."""
    said: bool = True
    """Whether the source contains the reply; False if it lists only the actions."""


@dataclass(slots=True)
class _Parts:
    """Parts of a reply, in the course of reading."""

    actions: list[str] = field(default_factory=list[str])
    dropped: list[str] = field(default_factory=list[str])
    contents: list[str] = field(default_factory=list[str])
    """Contents of its containers, the used one first."""


def read_reply(
    names: Sequence[str], tag: str, dialect: Dialect, text: str, calls: Sequence[Call] = (), most: int = 0
) -> Read:
    """Read the actions of a reply.

    Args:
        names: actions of the environment.
        tag: its answer tag.
        dialect: how the source writes replies.
        text: the reply.
        calls: its calls of tools; if there are any, they are the container.
        most: most actions of a turn, if the environment says more than the dialect.
    """
    text = text[:_MOST_CHARACTERS]
    most = max(most, dialect.actions_per_turn)
    parts = _Parts()
    if calls:
        _read_calls(parts, names, dialect, calls, most)
    else:
        parts.contents = contents_of(text, dialect, tag)
        if parts.contents:
            _read_words(parts, names, dialect, parts.contents[:1], most)
            used, others = parts.actions[:most], () if dialect.container else parts.contents[1:]
            parts.dropped += [each for each in others if _is_other(each, names, dialect, used)]
    parts.dropped += parts.actions[most:]
    actions = parts.actions[:most]
    parts.dropped += _beside(text, parts.contents, names, dialect, actions) if actions else []
    form = "" if actions else _form(text, parts.contents, names, dialect, calls)
    is_chatter = not (actions or calls or parts.contents or form in ("blank", "mention") or _STRUCTURE.search(form))
    return Read(tuple(actions), tuple(each[:80] for each in parts.dropped), form, is_chatter)


def contents_of(text: str, dialect: Dialect, tag: str, *, keeps_case: bool = False) -> list[str]:
    """Return the contents of the containers of a reply, the used one first; those of tags are case-folded."""
    if dialect.pattern:
        matches = re.finditer(dialect.pattern, after_thoughts(text), re.IGNORECASE | re.MULTILINE)
        groups = (next((each for each in match.groups() if each is not None), match[0]) for match in matches)
        contents = [each.strip() for each in groups if each.strip()]
        return contents[::-1] if dialect.container == "last" else contents
    tag = dialect.tag or tag
    pair = re.compile(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", re.DOTALL)
    text = in_think_tags(text)
    start, end, _ = visible_span(text)
    if dialect.container == "last" and (pairs := pair.findall(text, start, end)):
        return [each.strip() if keeps_case else each.strip().casefold() for each in pairs[::-1]]
    parsed = parse_reply(text, tag, ParsedAction, keeps_case=keeps_case)
    if parsed.action is None:
        return []
    others = [each.strip() if keeps_case else each.strip().casefold() for each in pair.findall(text)]
    return [parsed.action.name, *(each for each in others if each != parsed.action.name)]


def words_of(content: str, dialect: Dialect) -> list[str]:
    """Return the words of a container."""
    if dialect.separator == "any":
        parts = _BETWEEN.split(content)
    elif dialect.separator == "each":
        parts = list(content)
    else:
        parts = content.split(dialect.separator) if dialect.separator else [content]
    loose = dialect.spelling == "loose" or dialect.separator in ("any", "each")
    if dialect.separator == "each":
        words = [each.strip(AROUND.translate({60: None, 62: None})) for each in parts]  # < and > are arrows
    elif loose:
        words = [each.strip(AROUND) or (each.strip() if dialect.separator != "any" else "") for each in parts]
    else:
        words = [each.strip() for each in parts]
    return [each.casefold() for each in words if each or not loose]


def action_of(word: str, names: Sequence[str], dialect: Dialect) -> str | None:
    """Return the action that a word means; None for none."""
    action = dialect.vocabulary.get(word, word)
    return action if action in names else None


def _read_words(parts: _Parts, names: Sequence[str], dialect: Dialect, texts: Sequence[str], most: int) -> None:
    """Read the words up to the first that is not an action; in the environment's own grammar only that word is lost."""
    spelling = _COMMAS if dialect.is_plain and most > 1 else dialect
    words = [word for text in texts for word in words_of(text, spelling)]
    for index, word in enumerate(words):
        action = action_of(word, names, dialect)
        if action is not None:
            parts.actions.append(action)
        elif dialect.is_plain:
            parts.dropped += [word] if word else []
        else:
            parts.dropped += [each for each in words[index:] if each]
            return


def _read_calls(parts: _Parts, names: Sequence[str], dialect: Dialect, calls: Sequence[Call], most: int) -> None:
    for call in calls:
        name, values = call.name.strip().casefold(), dict(call.arguments)
        if dialect.argument:
            value = values.pop(dialect.argument, None)
        elif action_of(name, names, dialect) is not None:
            value = name
        else:
            value = values.pop(next(iter(values))) if len(values) == 1 else None
        before = len(parts.actions)
        items = value if isinstance(value, list) else [value]
        texts = [str(each) for each in items if isinstance(each, str | int) and not isinstance(each, bool)]
        _read_words(parts, names, dialect, texts, most)
        if len(parts.actions) == before:
            parts.dropped.append(f"call {call.name}")
        parts.dropped += [f"{key}={each!r:.40}" for key, each in values.items() if _could_act(each, names, dialect)]


def _could_act(value: Any, names: Sequence[str], dialect: Dialect) -> bool:
    """Return whether an unused argument could change what a call does: a number, a list, or an action."""
    if isinstance(value, str):
        return bool(lenient(value, names, dialect)) or (value.strip().lstrip("+-").isdigit() and value.strip() != "1")
    return value not in (None, 1, True, False)


def lenient(content: str, names: Sequence[str], dialect: Dialect) -> list[str]:
    """Return the actions of a text that consists only of actions, in any spelling; else none."""
    words = words_of(content, _ANY)
    actions = [action_of(word, names, dialect) for word in words]
    return [] if None in actions else [each for each in actions if each is not None]


def _is_other(content: str, names: Sequence[str], dialect: Dialect, used: Sequence[str]) -> bool:
    actions = lenient(content, names, dialect)
    return bool(actions) and actions != list(used)


def _beside(
    text: str, contents: Sequence[str], names: Sequence[str], dialect: Dialect, used: Sequence[str]
) -> list[str]:
    """Return other containers and lines after the thought that contain other actions."""
    content = contents[0] if contents else ""
    declared = {each.casefold() for each in (contents if dialect.container else ())}
    visible = after_thoughts(text)
    parts = [inner for name, inner in PAIR.findall(visible) if name.casefold() not in THINK_TAGS]
    parts += LABELLED.findall(visible)
    parts += [line for line in map(str.strip, visible.split("\n")) if line.casefold() not in content.casefold()]
    return [each for each in parts if each.strip().casefold() not in declared and _is_other(each, names, dialect, used)]


def _form(text: str, contents: Sequence[str], names: Sequence[str], dialect: Dialect, calls: Sequence[Call]) -> str:
    if calls:
        return f"call {calls[0].name}"
    if contents:
        return contents[0].casefold()[:80]
    if not text.strip():
        return "blank"
    words = {part for word in text.casefold().split() for part in (word.strip(AROUND), *re.findall(r"[^\W_]+", word))}
    if any(action_of(word, names, dialect) is not None for word in words):
        return "mention"
    visible = after_thoughts(text).strip().casefold()
    return visible[:200]
