"""Statements: the closed set of sentences that guidance is made of, rendered from checked values and read back.

A domain lists, for every kind of statement, several wordings with named slots. For one failure it offers statements
whose values come from the certificate, the log or the level; a teacher chooses among them. The text of a target is
rendered from that choice alone, so no answer of a model can put a false sentence into it. A text is checked the other
way round: every sentence must be a wording of a known kind, and its values must be those of an offered statement.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from string import Formatter
from typing import Final
from zlib import crc32

MOST_FACTS: Final = 3
"""Facts that one text may state."""
MOST_CHARS: Final = 2_000
"""Longer texts are not read; the longest rendered one has about 600 characters."""
WORDINGS: Final = 8
"""Numbers of wordings that a teacher may choose from; they are added to a number that the episode gives."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Statement:
    """One checked statement about a failure: its kind, and the text in each slot."""

    kind: str
    values: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> str:
        """Name under which a teacher chooses it, unique in an offer."""
        return ":".join(
            (self.kind, *(text for name, text in self.values if name in ("instead", "side", "at", "colour")))
        )


@lru_cache(maxsize=1 << 14, typed=True)
def statement(kind: str, **values: str | int) -> Statement:
    """Return a statement; numbers become texts."""
    return Statement(kind, tuple(sorted((name, str(value)) for name, value in values.items())))


@dataclass(frozen=True, slots=True)
class Offer:
    """Statements that are true of one failure, the most telling first; at least one sign and one fact."""

    signs: tuple[Statement, ...]
    """Signs: the thing to stay away from or to look out for in a situation like this."""
    facts: tuple[Statement, ...]
    """Facts about the course of the episode."""
    actions: tuple[Statement, ...]
    """Better actions at the pivot step; empty where none is proved."""

    def __contains__(self, each: Statement) -> bool:
        """Whether a statement is offered."""
        return each in self.signs or each in self.facts or each in self.actions

    def choice(self, sign: str, facts: Sequence[str], action: str | None, wording: int = 0) -> "Choice":
        """Return a choice by the ids of statements.

        Raises:
            KeyError: an id is not offered.
        """
        signs, happened, actions = ({each.id: each for each in part} for part in (self.signs, self.facts, self.actions))
        chosen = [happened[name] for name in dict.fromkeys(facts)]
        advice = () if action is None else (actions[action],)
        return Choice((signs[sign], *chosen[:MOST_FACTS], *advice), wording)


@dataclass(frozen=True, slots=True)
class Choice:
    """A teacher's choice from an offer."""

    statements: tuple[Statement, ...]
    """The sign, one to three facts in the order of the text, and the action if there is one."""
    wording: int = 0
    """Number that selects the wordings; every number gives true sentences."""


class UnknownSentenceError(ValueError):
    """A sentence that no statement renders; the argument is the sentence."""


@dataclass(frozen=True, eq=False)
class Sentences:
    """The wordings of one environment: renders statements, and reads rendered sentences back.

    Args:
        wordings: sentences by the kind of statement. Each begins with a capital letter and ends with a full stop; all
            wordings of a kind have the same slots. Texts in slots have no spaces, except counts such as ``3 moves``.
    """

    wordings: Mapping[str, tuple[str, ...]]
    _patterns: dict[str, list[tuple[re.Pattern[str], str]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile the patterns that read the wordings.

        Raises:
            ValueError: wordings of a kind differ in their slots, or two kinds share a wording.
        """
        patterns: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        kinds: dict[str, str] = {}
        for kind, texts in self.wordings.items():
            slots: set[frozenset[str]] = set()
            for text in texts:
                named, bare, pattern = _parsed(text)
                slots.add(named)
                if (other := kinds.setdefault(bare, kind)) != kind:
                    raise ValueError(f"{kind!r} and {other!r} share the wording {text!r}; a reader cannot tell which")
                patterns.setdefault(text.split(maxsplit=1)[0], []).append((pattern, kind))
            if len(slots) != 1:
                raise ValueError(f"the wordings of {kind!r} differ in their slots; give all of them the same ones")
        object.__setattr__(self, "_patterns", patterns)

    def render(self, choice: Choice, seed: str) -> str:
        """Return the text of a choice; ``seed``, the id of the episode, and the wording decide among the wordings."""
        number = crc32(seed.encode())
        return " ".join(
            self.sentence(each, (number >> 6 * index) + choice.wording) for index, each in enumerate(choice.statements)
        )

    def sentence(self, each: Statement, number: int = 0) -> str:
        """Return one statement in one of its wordings."""
        texts = self.wordings[each.kind]
        return texts[number % len(texts)].format_map(dict(each.values))

    def read(self, text: str) -> list[Statement]:
        """Return the statements of a rendered text, in order.

        Raises:
            UnknownSentenceError: a sentence is not a wording of a known kind.
        """
        if len(text) > MOST_CHARS:
            raise UnknownSentenceError(f"{text[:80]}... ({len(text)} characters)")
        return [self._read_one(sentence) for sentence in _SENTENCE_ENDS.split(text.strip())]

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - one object per environment, which lives as long as the process
    def _read_one(self, sentence: str) -> Statement:
        for pattern, kind in self._patterns.get(sentence.split(maxsplit=1)[0] if sentence.strip() else "", ()):
            match = pattern.fullmatch(sentence)
            if match is not None:
                return Statement(kind, tuple(sorted(match.groupdict().items())))
        raise UnknownSentenceError(sentence[:200])


def _parsed(text: str) -> tuple[frozenset[str], str, re.Pattern[str]]:
    """Return the slots of a wording, the wording with nameless slots, and its pattern.

    Two wordings that differ in the names of slots alone read alike. A slot that comes twice has to hold the same text.
    """
    literals: list[str] = []
    parts: list[str] = []
    named: set[str] = set()
    for literal, name, _, _ in Formatter().parse(text):
        literals.append(literal)
        parts.append(re.escape(literal))
        if name is not None:
            parts.append(f"(?P={name})" if name in named else rf"(?P<{name}>\d+ [a-z]+|\S+)")
            named.add(name)
    return frozenset(named), "{}".join(literals), re.compile("".join(parts))


def count(number: float, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"
