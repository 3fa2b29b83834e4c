"""Replies that name given actions: in the reply grammar of an environment, or in the dialect of an imported source.

A source shows its dialect by its own replies. A reply with other actions is therefore an *example* of the source with
new words in its container. A certified thought replaces its think block and prose, which argue for other actions.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import ConfigError
from ..core.messages import THINK_TAGS, THOUGHT_MARKS, after_thoughts
from ..environments.base import ParsedAction
from ..solvers.base import TURN_SEPARATOR
from .dialect import AROUND, LABELLED, PAIR, Call, Dialect, action_of, lenient, read_reply, words_of


def action_text(action: str, parse_action: Callable[[str], ParsedAction | None]) -> str:
    """Return the text inside the answer tag that names an action: the action, or its parts separated by commas.

    Args:
        action: normalised name, as logged, such as ``up`` or ``up|left``.
        parse_action: the environment's grammar.

    Raises:
        ConfigError: the grammar reads neither as this action.
    """
    for text in (action, action.replace(TURN_SEPARATOR, ", ")):
        parsed = parse_action(text)
        if parsed is not None and parsed.name == action:
            return text
    raise ConfigError(f"found action {action!r}, expected one that the environment's reply grammar can name")


def written_reply(thought: str, text: str, tag: str) -> str:
    """Return a whole reply: a think block, then the text of an action in the answer tag."""
    return f"<{THINK_TAGS[0]}>{thought}</{THINK_TAGS[0]}><{tag}>{text}</{tag}>"


@dataclass(frozen=True, slots=True)
class Said:
    """A reply: its text, and its tool calls."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Writer:
    """Writer of replies in the dialect of a source."""

    dialect: Dialect
    tag: str
    """Answer tag of the environment."""
    names: Sequence[str]
    """Actions of the environment."""

    def spelled(self, action: str) -> str:
        """Return the actions of a turn in the words of the source."""
        return self._words("", [], action.split(TURN_SEPARATOR)) or ""

    def names_exactly(self, said: Said, action: str) -> bool:
        """Whether a reply names the actions of a turn and nothing else."""
        actions = tuple(action.split(TURN_SEPARATOR))
        read = read_reply(self.names, self.tag, self.dialect, said.text, said.calls, len(actions))
        if read.actions or said.calls:
            return read.actions == actions and not read.dropped
        return self._container(said.text, actions) is not None

    def written(self, action: str, example: Said | None, shown: str, thought: str | None) -> Said | None:
        """Return a reply that names an action.

        Args:
            action: the action, or the actions of a turn joined by bars.
            example: a reply of the source; None if it has none, which leaves the tag of the dialect.
            shown: the action that the example names.
            thought: thought of the reply, which is used if the example has one; None for no thought.

        Returns:
            The reply; None if no reader of the dialect would find the action in it.
        """
        actions, before = action.split(TURN_SEPARATOR), shown.split(TURN_SEPARATOR)
        if example is None:
            tag = self.dialect.tag or self.tag
            can = not (self.dialect.pattern or self.dialect.argument)
            said = Said(f"<{tag}>{self.spelled(action)}</{tag}>") if can else None
        elif example.calls:
            call = self._call(example.calls[0], before, actions)
            said = None if call is None else Said(_thought_of(example.text, thought), (call,))
        else:
            place, text = self._container(example.text, before), example.text
            if place is None:
                return None
            begin, start, first, last, stop = place
            words, thoughts = self._words(text[first:last], before, actions), _thought_of(text, thought)
            lead, tail = (
                _around(text[begin:start], thought or "", thought or ""),
                _around(text[stop:], thought or "", ""),
            )
            said = None if words is None else Said(f"{thoughts}{lead}{text[start:first]}{words}{text[last:stop]}{tail}")
        return said if said is not None and self.names_exactly(said, action) else None

    def _container(self, text: str, actions: Sequence[str]) -> tuple[int, int, int, int, int] | None:
        """Return the start of the visible text, and the bounds of the container with these actions and its content."""
        begin, matches = len(text) - len(after_thoughts(text)), list[re.Match[str]]()
        own = self.dialect.pattern or rf"<{re.escape(self.dialect.tag or self.tag)}>(.*?)</"
        own += "" if self.dialect.pattern else rf"{re.escape(self.dialect.tag or self.tag)}>"
        for pattern, flags in ((own, re.IGNORECASE | re.MULTILINE | re.DOTALL), (PAIR, 0), (LABELLED, 0), (_NAMED, 0)):
            matches += re.compile(pattern, flags).finditer(text, begin)
        for match in matches[::-1] if self.dialect.container == "last" else matches:
            groups = [2] if match.re is PAIR else range(1, len(match.groups()) + 1)
            group = next((each for each in groups if match[each] is not None), 0)
            if any(read == [*actions] for read in self._readings(match[group])):
                return len(text) - len(text[begin:].lstrip()), match.start(), *match.span(group), match.end()
        return None

    def _readings(self, content: str) -> Iterator[list[str | None]]:
        """Yield the actions of a content, read as one word, with the dialect's separator, and as any text."""
        yield [action_of(content.strip(AROUND).casefold(), self.names, self.dialect)]
        yield [action_of(each, self.names, self.dialect) for each in words_of(content, self.dialect)]
        yield [*lenient(content, self.names, self.dialect)]

    def _words(self, content: str, before: Sequence[str], actions: Sequence[str]) -> str | None:
        """Return a content with other actions, in the spelling and between the marks of ``content``."""
        vocabulary: dict[str, str] = {}
        for word, action in self.dialect.vocabulary.items():
            vocabulary.setdefault(action, word)
        folded, spans, place = content.casefold(), list[tuple[int, int]](), 0
        for each in before:
            words = [word for word in (vocabulary.get(each, each), each) if word in folded[place:]]
            if not words or len(folded) != len(content):
                return None
            start = folded.index(words[0], place)
            place = start + len(words[0])
            spans.append((start, place))
        own = content[slice(*spans[0])] if spans else ""
        plain = bool(spans) and own.casefold() == before[0]
        spelled = [each if plain else vocabulary.get(each, each) for each in actions]
        if own.isupper() and (len(own) > 1 or self.dialect.separator == "each"):
            spelled = [each.upper() for each in spelled]
        elif own[:1].isupper():
            spelled = [each[:1].upper() + each[1:] for each in spelled]
        between = {"each": "", "any": ", ", "": ", ", ",": ", ", ";": "; "}
        separator = between.get(self.dialect.separator, self.dialect.separator)
        if len(spans) > 1:
            separator = content[spans[0][1] : spans[1][0]]
        first, last = (spans[0][0], spans[-1][1]) if spans else (0, 0)
        return content[:first] + separator.join(spelled) + content[last:]

    def _call(self, call: Call, before: Sequence[str], actions: Sequence[str]) -> Call | None:
        """Return a copy of a call with other actions."""
        name = self.dialect.argument or (next(iter(call.arguments)) if len(call.arguments) == 1 else "")
        if not self.dialect.argument and action_of(call.name.strip().casefold(), self.names, self.dialect):
            words = self._words(call.name, before, actions) if len(actions) == 1 else None
            return None if words is None else Call(words, call.arguments)
        if name not in call.arguments:
            return None
        value: Any = call.arguments[name]
        if isinstance(value, list):
            listed = [self._words(str(value[0]), before[:1], [each]) for each in actions] if value else [None]
            return None if None in listed else Call(call.name, {**call.arguments, name: listed})
        words = self._words(str(value), before, actions)
        if words is None or (isinstance(value, int) and not words.isdecimal()):
            return None
        return Call(call.name, {**call.arguments, name: int(words) if isinstance(value, int) else words})


_NAMED = re.compile(r'"(?:action|answer|move)s?"\s*:\s*"([^"]*)"', re.IGNORECASE)
"""Action in JSON, at any place of a line."""
_KEPT = re.compile(r"\W*|\s*(?:```|~~~)\W*\w*\s*|.*[(\[{=<>\"']\s*|\W*(?:\w+ )?\w+\W{0,4}[:=][^\w\n]*")
"""Lines around a container that are no prose: marks, code fences, the opening of a container, and its label."""
_CLOSED = re.compile(r"(?:[^{}]+|\{[^{}]*\})*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_LABEL = re.compile(r"^[^\w<]*(?:<\w+>[^\w<]*)?(?:\w+(?: \w+)?\W{0,4}[:=]\s*)?")


def _around(text: str, thought: str, prose: str) -> str:
    """Return the text around a container, with ``thought`` in place of values of JSON, and ``prose`` of prose."""
    if opened := text.count("{") - text.count("}"):  # the container is within JSON
        value = json.dumps(thought, ensure_ascii=False)
        start, stop = (next(_CLOSED.finditer(text)).end(), len(text)) if opened > 0 else (0, text.rindex("}") + 1)
        inner = _STRING.sub(lambda each: each[0] if each[1] else value, text[start:stop])
        return _around(text[:start], thought, prose) + inner + _around(text[stop:], thought, "")
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        bare = line.rstrip()
        if _KEPT.fullmatch(line):
            lines.append(line)
        elif prose:
            lines.append(_LABEL.match(bare)[0] + prose + line[len(bare) :])  # pyright: ignore[reportOptionalSubscript]
            prose = ""
    return "".join(lines)


def _thought_of(example: str, thought: str | None) -> str:
    """Return the think block of an example reply with the blanks after it; empty if it has none."""
    visible = after_thoughts(example)
    if thought is None or len(visible) == len(example):
        return ""
    marks = {**THOUGHT_MARKS, **{f"<{name}>": f"</{name}>" for name in THINK_TAGS}}
    before = example[: len(example) - len(visible)]
    opening, closing = next(each for each in marks.items() if before.endswith(each[1]))
    return f"{opening}{thought}{closing}" + visible[: len(visible) - len(visible.lstrip())]
