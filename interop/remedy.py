"""Remedy for the dialect of a source: guesses are tried on the source, and the one that agrees is named.

The source is read and audited with the options of a guess, and only what imports more episodes and contradicts none of
them is named. Words that are unknown, such as numbers, are matched with the actions by what was recorded: of all
assignments exactly one must agree with it. So are replies that were no play, at either end of the chats. What nothing
recorded tells is the user's to say: the text then names the options that would, and none is applied.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from ..rollouts.dialect import Call, Dialect, Read, read_reply
from .base import Importer, Place, UnreadableError
from .episode import RecordedAction
from .guess import DIRECTIONS, MOST_WORDS, Guess, Said, guesses, pairs_text, read_whole
from .levels import LeftOutError

_NEARLY_ALL = 0.95
_SAMPLE = 8
"""Episodes on which assignments of words are tried first."""
_MOST_CANDIDATES = 12
_MOST_NO_PLAY = 4
"""Maximum number of replies at either end of a chat that are tried as not played."""
_MOST_REPLIES = 20_000
_MANY = 6
_LEAST_PROVED = 3
"""Least number of confirmed episodes at which a remedy may suggest to accept partly unused replies."""


class Yield(NamedTuple):
    """Episodes of a source under some options."""

    taken: int
    contradicted: int
    proved: int
    """Episodes that recorded values confirm."""


Trial = Callable[[Mapping[str, Any], int], Yield]
"""Reads the source with further options; the number limits its episodes (0: no limit)."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Remedy of the audit for the dialect of a source."""

    text: str
    """Finding, and the options to paste, if there are any."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options that were tried on the source and import more of it; empty if no guess does, or if several do."""


def replies_in(importer: Importer, source: Path, places: Sequence[Place]) -> tuple[list[Said], str, int]:
    """Return replies of the source (at most ``_MOST_REPLIES``), their environment, and the limit of a turn."""
    replies: list[Said] = []
    kinds = Counter[tuple[str, int]]()
    step = 1
    for place in (place for number, place in enumerate(places) if not number % step):
        try:
            episode = importer.episode(source, place)
        except (LeftOutError, UnreadableError):
            continue
        kinds[episode.env, episode.chat.limit] += 1
        for t, turn in enumerate(episode.turns, 1):
            is_last = t == len(episode.turns)
            if turn.reading is not None:
                replies.append(Said(turn.response or "", turn.calls, is_last))
            elif turn.actions and not any(isinstance(each, RecordedAction) for each in turn.actions):
                replies.append(Said("", [Call(str(each), {}) for each in turn.actions], is_last))
        step = 1 + len(replies) // _MOST_REPLIES * 16
    env, limit = max(kinds, key=kinds.__getitem__, default=("", 0))
    return replies, env, limit


@dataclass(slots=True)
class Search:
    """Search for a dialect that fits better than the declared one."""

    replies: Sequence[Said]
    names: Sequence[str]
    """Actions of the environment."""
    tag: str
    """Its answer tag."""
    declared: Dialect
    trial: Trial
    before: Yield
    """Yield of the source under the declared dialect."""
    stated: int = 0
    """Maximum number of actions per turn that the prompts state; 0 if they state none."""
    read: int = 0
    """Replies that the declared dialect reads."""
    yields: dict[tuple[str, int], Yield] = field(default_factory=dict[tuple[str, int], Yield])
    """Yields of the options that were tried."""
    agreeing: list[tuple[Guess, Yield]] = field(default_factory=list[tuple[Guess, Yield]])
    """Guesses that import more, one per reading."""
    partly: list[Guess] = field(default_factory=list[Guess])
    """Guesses that nothing contradicts and that read more than half of the replies."""
    unknown: list[Guess] = field(default_factory=list[Guess])
    """Guesses whose words nothing explains."""
    unproved: list[Guess] = field(default_factory=list[Guess])
    """Guesses that read nearly all replies and that no recorded value confirms or contradicts."""

    def remedy(self) -> Remedy | None:
        """Return the remedy; None if no guess reads the replies better than the declared dialect."""
        replies, declared, tag = self.replies, self.declared, self.tag
        self.read = len(read_whole(replies, self.names, tag, declared))
        candidates = [Guess({"words": declared.words}, self.read, f"<{declared.tag or tag}>")] if self.read else []
        candidates += guesses(replies, self.names, tag, declared, self.stated)
        for candidate in candidates[:_MOST_CANDIDATES]:
            self._try(candidate)
        where = "that the pattern finds" if declared.pattern else f"in <{declared.tag or tag}>"
        head = f"{len(replies) - self.read} of {len(replies)} replies hold no action {where}, or more than was used"
        if self.agreeing:
            best = max((counts.taken, counts.proved) for _, counts in self.agreeing)
            return _choice(head, [guess for guess, counts in self.agreeing if (counts.taken, counts.proved) == best])
        is_read = self.read >= _NEARLY_ALL * len(replies)
        question = "" if is_read and not self.before.contradicted else self._question()
        if not question and not is_read:
            question = (
                "no options of a dialect read them, so write what was played yourself, as lines of the format jsonl "
                'with {"actions": ["up"]} per turn'
            )
        return Remedy(f"{head}; {question}") if question else None

    def _question(self) -> str:
        """Return the question that only the user can answer; empty if no guess comes close."""
        texts = [f"{guess.look}: {_with_limit(guess)}" for guess in self.unproved[:3]]
        some = {look: options for guess in self.unproved[:3] for look, options in guess.parts.items()}
        self.partly.sort(key=lambda each: -each.read)
        some |= {each.look: each.options for each in self.partly[:2]}
        for look, options in some.items():
            declared = options_text({**options, "evidence": "declared"})
            texts.append(f"{look} alone, only if replies without it were unusable turns: {declared}")
        for guess in (*self.unproved[:3], *self.partly[:1]):
            if 0 < self.stated < guess.options.get("actions_per_turn", 1):
                fewer = {**guess.options, "actions_per_turn": self.stated, "evidence": "declared"}
                texts.append(f"the first {self.stated} actions of each, as the prompts say: {options_text(fewer)}")
        for guess in self.unknown[:1]:
            look = f"{guess.look.partition(', the words')[0]} with the words {guess.options['words'][1:]}"
            words = options_text({**guess.options, "words": "up:WORD,down:WORD,left:WORD,right:WORD"})
            texts.append(f"{look}, as in {words}")
        drops = {} in some.values() or any(self._reading(self.declared, said).dropped for said in self.replies)
        if (
            len(self.replies) > self.read > len(self.replies) // 2
            and not self.before.contradicted
            and (self.before.proved >= _LEAST_PROVED or not drops)
        ):
            texts.append("only if none of that moved anything: --option evidence=declared")
        if len(texts) < 2 and not self.unproved and not self.unknown:
            return "".join(texts)
        return f"nothing recorded shows how they were read, so say what was played: {'; or '.join(texts)}"

    def _try(self, candidate: Guess) -> None:
        """Try a guess on the source, and add it to the list for its result."""
        explains = candidate.read >= _NEARLY_ALL * len(self.replies)
        unknown = str(candidate.options.get("words", "")).startswith("?")
        counts = Yield(0, 1, 0) if unknown else self._tried(candidate.options, 0)
        fitting = [candidate]
        if counts.contradicted and 0 < self.stated < candidate.options.get("actions_per_turn", 1):
            look = f"{candidate.look}, the first {self.stated} actions of each, as the prompts say,"
            fewer = replace(candidate, options={**candidate.options, "actions_per_turn": self.stated}, look=look)
            self.partly += [] if self._tried(fewer.options, 0).contradicted else [fewer]
        if counts.contradicted:
            many = not unknown and candidate.read > len(self.replies) // 2
            fitting = self._without_ends(candidate, counts.contradicted) if many else []
            fitting = fitting or self._with_words(candidate)
            if len(fitting) != 1:
                self.unproved += fitting
                self.unknown += [candidate] if unknown and explains else []
                return
            counts = self._tried(fitting[0].options, 0)
        (guess,) = fitting
        if counts.contradicted:
            return
        proved = counts.proved > (self.before.proved if guess.needs_proof else 0)
        proved = proved and all(counts.proved > self._tried(each, 0).proved for each in guess.parts.values())
        if counts.taken > self.before.taken and (proved or (explains and not guess.needs_proof)):
            if not any(self._same_reading(guess, other) for other, _ in self.agreeing):
                self.agreeing.append((guess, counts))
        elif guess.needs_proof and explains:
            self.unproved.append(guess)
        elif guess.read > max(self.read, len(self.replies) // 2):
            self.partly.append(guess)

    def _tried(self, options: Mapping[str, Any], limit: int) -> Yield:
        """Return the yield of the source under some options, read once."""
        key = repr(sorted(options.items())), limit
        if key not in self.yields:
            self.yields[key] = self.trial(options, limit) if options else self.before
        return self.yields[key]

    def _reading(self, dialect: Dialect, said: Said) -> Read:
        return read_reply(self.names, self.tag, dialect, said.text, said.calls)

    def _same_reading(self, one: Guess, two: Guess) -> bool:
        """Return whether two guesses play the same replies, and agree on the actions of replies that both read."""
        if any(one.options.get(name) != two.options.get(name) for name in ("examples", "trailing")):
            return False
        first, second = (
            self.declared.model_copy(update={k: v for k, v in each.options.items() if k in Dialect.model_fields})
            for each in (one, two)
        )
        pairs = [(self._reading(first, said).actions, self._reading(second, said).actions) for said in self.replies]
        return all(a == b for a, b in pairs if a and b)

    def _agrees(self, options: Mapping[str, Any]) -> bool:
        counts = self._tried(options, _SAMPLE)
        return bool(counts.taken) and not counts.contradicted and not self._tried(options, 0).contradicted

    def _without_ends(self, guess: Guess, contradicted: int) -> list[Guess]:
        """Return a guess without surplus actions at the end of its turns, or without replies that were not played.

        Where many episodes were contradicted, and all of them have as many replies too much, that proves it.
        """
        longest = guess.options.get("actions_per_turn", 1)
        tried = [
            ("examples", range(1, _MOST_NO_PLAY + 1), "replies of the prompt"),
            ("trailing", range(1, _MOST_NO_PLAY + 1), "replies after the end"),
            ("actions_per_turn", range(longest - 1, 0, -1), "actions of a turn that ran"),
        ]
        fitting: list[Guess] = []
        for name, counts, look in tried:
            options = [{**guess.options, name: count} for count in counts]
            for chosen in [each for each in options if self._agrees(each)][:1]:
                text, less = f"{guess.look}, with {chosen[name]} {look}", {**chosen, name: max(chosen[name] - 1, 0)}
                same = chosen[name] == 1 or self._tried(less, 0).contradicted == contradicted
                proof = guess.needs_proof or contradicted < _MANY or not same
                fitting.append(replace(guess, options=chosen, look=text, needs_proof=proof, unsure=False))
        return fitting

    def _with_words(self, guess: Guess) -> list[Guess]:
        """Return a guess with the only meaning of its words that agrees with the recording, or None."""
        words = str(guess.options.get("words", ""))
        if words.startswith("?"):
            said = words[1:].split(",")
        elif words:
            said = [each.partition(":")[2] for each in words.split(",")]
        else:
            said = [*self.declared.vocabulary] or list(self.names)
        chosen = [each for each in DIRECTIONS if each in self.names] or list(self.names)
        if len(said) > len(chosen) or len(chosen) > MOST_WORDS:
            return []
        look = guess.look.partition(", the words")[0]
        mappings = [pairs_text(dict(zip(said, actions, strict=True))) for actions in permutations(chosen, len(said))]
        left_out = 0
        for limit in (_SAMPLE, 0):
            tried = [(each, self._tried({**guess.options, "words": each}, limit)) for each in mappings]
            mappings = [each for each, counts in tried if counts.proved and not counts.contradicted]
            left_out += sum(counts.contradicted > 0 for _, counts in tried)
        if len(mappings) != 1 or not left_out:
            return []
        options = {**guess.options, "words": mappings[0]}
        return [replace(guess, options=options, look=f"{look}, the words {mappings[0]}", needs_proof=True)]


def _choice(head: str, winners: Sequence[Guess]) -> Remedy:
    texts = [f"{guess.look}: {options_text(guess.options)}" for guess in winners]
    if len(winners) > 1:
        return Remedy(
            f"{head}; several dialects read them differently, so say which one was played: {'; or '.join(texts)}"
        )
    (guess,) = winners
    if guess.unsure:
        longest = guess.options["actions_per_turn"]
        return Remedy(
            f"{head}; they look like {guess.look}: {_with_limit(guess)}; the longest of them holds {longest} actions, "
            "which does not show how many a turn could hold: name that number"
        )
    return Remedy(f"{head}; they look like {texts[0]}", guess.options)


def _with_limit(guess: Guess) -> str:
    """Return the options of a guess, with N in place of a number of actions that is not known."""
    return options_text({**guess.options, **({"actions_per_turn": "N"} if guess.unsure else {})})


def options_text(options: Mapping[str, Any]) -> str:
    """Return options as they are written in a command."""
    return " ".join(f"--option {shlex.quote(f'{name}={value}')}" for name, value in options.items() if value != "")
