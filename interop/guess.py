"""Guess of the dialect of a source, from all its replies: which options would read them.

A guess is tried like a command: the source is read and audited with its options, and only what imports more episodes
and contradicts none of them is named. Words that are unknown, such as numbers, are matched with the actions by what was
recorded: of all assignments exactly one must agree with it.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, NamedTuple

from ..rollouts.dialect import Call, Dialect, contents_of, read_reply, without_thoughts, words_of
from ..rollouts.parser import THINK_TAGS

_NEARLY_ALL = 0.95
_RARE = 0.02
"""Share of replies whose words are not looked at."""
_MOST_WORDS = 5
"""Most unknown words that are matched by evidence."""
_MOST_CONTAINERS = 8

_DIRECTIONS = ("up", "down", "left", "right")
_FAMILIES = tuple(
    family.split()
    for family in (
        "north south west east",
        "n s w e",
        "u d l r",
        "w s a d",
        "↑ ↓ ← →",
        "⬆ ⬇ ⬅ ➡",
        "^ v < >",
        "arrowup arrowdown arrowleft arrowright",
        "upward downward leftward rightward",
        "upwards downwards leftwards rightwards",
        "haut bas gauche droite",
        "oben unten links rechts",
        "arriba abajo izquierda derecha",
        "su giù sinistra destra",
        "cima baixo esquerda direita",
        "omhoog omlaag links rechts",
        "upp ner vänster höger",
        "op ned venstre højre",
        "ylös alas vasen oikea",
        "góra dół lewo prawo",
        "nahoru dolů vlevo vpravo",
        "yukarı aşağı sol sağ",
        "вверх вниз влево вправо",
        "вгору вниз вліво вправо",
        "πάνω κάτω αριστερά δεξιά",
        "atas bawah kiri kanan",
        "上 下 左 右",
        "向上 向下 向左 向右",
        "위 아래 왼쪽 오른쪽",
        "أعلى أسفل يسار يمين",
        "ऊपर नीचे बाएं दाएं",
        "למעלה למטה שמאלה ימינה",
        "nord sud ouest est",
        "norte sur oeste este",
    )
)
"""Words for the four directions that leave no doubt together: compass, letters, arrows, languages."""
_FILLERS = frozenset(
    (
        *("move", "go", "walk", "step", "push", "head", "to", "the", "player", "agent", "one"),
        *("cell", "square", "tile", "action", "direction", "dir"),
    )
)
_SEPARATORS = (",", ";", "->", "→", "|", "&", "\n")


@dataclass(frozen=True, slots=True)
class Said:
    """One reply of a source."""

    text: str
    calls: Sequence[Call] = ()


@dataclass(frozen=True, slots=True)
class Guess:
    """A dialect that reads more replies than the declared one."""

    options: Mapping[str, Any]
    read: int
    """Replies that it reads whole."""
    look: str
    """Description of the replies."""
    needs_proof: bool = False
    """Whether only recorded values can confirm it."""


@dataclass(frozen=True, slots=True)
class _Container:
    options: Mapping[str, str]
    look: str
    needs_proof: bool = False
    contents: list[str | None] = field(default_factory=list[str | None])

    def readable(self) -> set[int]:
        """Return the replies in which it holds words for directions alone."""
        split = Dialect(separator="any")
        words = {n: words_of(content, split) for n, content in enumerate(self.contents) if content}
        return {n for n, each in words.items() if each and all(map(_meanings, each))}


def guesses(replies: Sequence[Said], names: Sequence[str], tag: str, declared: Dialect) -> list[Guess]:
    """Return dialects that read more replies than the declared one, the best first."""
    baseline = _read_whole(replies, names, tag, declared)
    containers = [each for each in _containers(replies) if each.contents]
    unions = list(_unions(containers, replies))
    containers.sort(key=lambda each: -sum(content is not None for content in each.contents))
    guesses: list[Guess] = []
    for container in [*containers[:_MOST_CONTAINERS], *unions]:
        for options, proof in _vocabularies(container, names):
            dialect = declared.model_copy(update=options)
            count = _read_whole(replies, names, tag, dialect)
            look = container.look + _look(options)
            guesses.append(Guess(options, count, look, container.needs_proof or proof))
    better = [each for each in guesses if each.read > baseline or each.needs_proof]
    better.sort(key=lambda each: (each.needs_proof, -each.read, len(options_text(each.options))))
    return better


def explains(guess: Guess, replies: Sequence[Said]) -> bool:
    """Return whether a guess reads nearly all replies."""
    return guess.read >= _NEARLY_ALL * len(replies)


def same_reading(
    one: Guess, two: Guess, replies: Sequence[Said], names: Sequence[str], tag: str, base: Dialect
) -> bool:
    """Return whether two guesses read the same actions from all replies that both read."""
    first, second = (base.model_copy(update=dict(each.options)) for each in (one, two))
    for said in replies:
        a, b = (read_reply(names, tag, each, said.text, said.calls).actions for each in (first, second))
        if a and b and a != b:
            return False
    return True


def _read_whole(replies: Sequence[Said], names: Sequence[str], tag: str, dialect: Dialect) -> int:
    readings = (read_reply(names, tag, dialect, said.text, said.calls) for said in replies)
    return sum(bool(each.actions) and not each.dropped for each in readings)


def _look(options: Mapping[str, Any]) -> str:
    parts = [f" with {options['separator']!r} between actions" if options.get("separator") else ""]
    parts += [f", the words {options['words']}" if options.get("words") else ""]
    return "".join(parts)


# Containers

_TAGS = re.compile(r"<([A-Za-z_][\w.-]{0,40})>")
_LABELS = re.compile(r"^[\W_]{0,6}([^\W\d_](?:[^\W\d]| ){0,24}?)[\W_]{0,4}[:=：]\s*\S", re.MULTILINE)
_KEYS = re.compile(r"[\"']([A-Za-z_]\w{0,30})[\"']\s*:")
_FIXED = {
    r"\\boxed\{(?:\\\w+\{)?\s*([^{}]*)": r"\boxed{}",
    r"```\w*\s*([^`]{1,80})```": "a fenced block",
    r"\[\[([^\[\]]{1,60})\]\]": "[[ ]]",
    r"\*\*([^*\n]{1,60})\*\*": "bold text",
    r"\[([^\[\]\n]{1,60})\]": "[ ]",
    r"`([^`\n]{1,60})`": "code",
    r"\(([^()=\n]{1,60})\)": "( )",
    r"\b\w+\(\s*\w+\s*=([^()=]{1,60})\)": "a call in the text",
    r"<\w+\s+\w+\s*=\s*([^<>]{1,60}?)/?>": "an attribute",
    r"\A\s*([^\n]{1,80}?)\s*\Z": "the reply as a whole",
    r"^([^\n]{1,60}?)\s*\Z": "the last line",
}


def _containers(replies: Sequence[Said]) -> Iterator[_Container]:
    """Yield what encloses something in many replies."""
    keys = Counter(key for said in replies for key in {key for call in said.calls for key in call.arguments})
    for key, _ in keys.most_common(4):
        yield _filled({"argument": key}, f"calls with the argument {key}", replies)
    names = Counter(call.name for said in replies for call in said.calls)
    if names:
        yield _filled({"argument": ""}, "calls", replies)
    visible = [without_thoughts(said.text) for said in replies]
    least = max(1, _RARE * len(replies))
    tags = Counter(name for text in visible for name in {*_TAGS.findall(text)})
    for name in [each for each, count in tags.most_common(6) if count >= least and each not in THINK_TAGS]:
        yield _filled({"tag": name, "pattern": ""}, f"<{name}>", replies)
        opened = re.escape(name)
        yield _filled({"pattern": rf"<{opened}\b[^>]*>\s*([^<]*)"}, f"<{name}>, open thoughts included", replies)
        last = rf"(?s:.*)<{opened}>([^<]*)</{opened}>"
        yield _filled({"pattern": last}, f"the last <{name}>", replies, needs_proof=True)
        first = rf"(?s:\A.*?)<{opened}>([^<]*)</{opened}>(?s:.*)"
        yield _filled({"pattern": first}, f"the first <{name}>", replies, needs_proof=True)
    labels = Counter(name.strip() for text in visible for name in {*_LABELS.findall(text)})
    for name in [each for each, count in labels.most_common(8) if count >= least]:
        words = r"\s+".join(map(re.escape, name.split()))
        yield _filled({"pattern": rf"^[\W_]*{words}[\W_]*[:=：]\s*([^\n]+)"}, f"{name}:", replies)
        yield _filled({"pattern": rf"^[\W_]*{words}[\W_]*[:=：]\s*((?s:.+))\Z"}, f"all after {name}:", replies)
    fields = Counter(name for text in visible for name in {*_KEYS.findall(text)})
    for name in [each for each, count in fields.most_common(6) if count >= least]:
        yield _filled(
            {"pattern": rf"\W{re.escape(name)}\W\s*:\s*([^,}}\[\]\n]+)"}, f"the field {name} of JSON", replies
        )
        yield _filled({"pattern": rf"\W{re.escape(name)}\W\s*:\s*\[([^\]]*)\]"}, f"the list {name} of JSON", replies)
    for pattern, look in _FIXED.items():
        yield _filled({"pattern": pattern}, look, replies)


def _filled(options: Mapping[str, str], look: str, replies: Sequence[Said], *, needs_proof: bool = False) -> _Container:
    """Return a container with what it holds in every reply, None where it is missing or not used."""
    contents: list[str | None] = []
    dialect = Dialect(tag=options.get("tag") or "-", pattern=options.get("pattern", ""))
    for said in replies:
        if said.calls:
            contents.append(_argument(said.calls, options))
            continue
        texts = [] if "argument" in options else contents_of(said.text, dialect, "-")
        same = len({each.casefold() for each in texts}) == 1 or bool(texts and needs_proof)
        contents.append(texts[0] if same else None)
    return _Container(options, look, needs_proof, contents if any(contents) else [])


def _argument(calls: Sequence[Call], options: Mapping[str, str]) -> str | None:
    if "argument" not in options:
        return None
    key = options["argument"]
    values = [call.arguments.get(key) if key else call.name for call in calls]
    parts = [part for each in values for part in (each if isinstance(each, list) else [each])]
    texts = [str(part) for part in parts if isinstance(part, str | int) and not isinstance(part, bool)]
    return ",".join(texts) if texts and len(texts) == len(parts) else None


def _unions(containers: Sequence[_Container], replies: Sequence[Said]) -> Iterator[_Container]:
    """Yield the fewest containers that hold actions in nearly all replies together, and apart in fewer."""
    chosen: list[int] = []
    covered: set[int] = set()
    certain = [(number, each.readable()) for number, each in enumerate(containers) if not each.needs_proof]
    while len(covered) < _NEARLY_ALL * len(replies):
        number, mine = max(certain, key=lambda each: len(each[1] - covered), default=(0, set[int]()))
        if not mine - covered:
            return
        chosen.append(number)
        covered |= mine
    if len(chosen) < 2:
        return
    parts = [containers[number] for number in sorted(chosen)]  # those of a whole line come last
    argument = next((each.options["argument"] for each in parts if "argument" in each.options), None)
    patterns = [p for each in parts if (p := _pattern_of(each.options))]
    options = {"pattern": "|".join(patterns), **({} if argument is None else {"argument": argument})}
    filled = _filled({"pattern": options["pattern"]}, " or ".join(each.look for each in parts), replies)
    contents = [
        next((each.contents[index] for each in parts if each.contents[index] is not None), None)
        if replies[index].calls
        else content
        for index, content in enumerate(filled.contents or [None] * len(replies))
    ]
    yield _Container(options, filled.look, False, contents)


def _pattern_of(options: Mapping[str, str]) -> str:
    tag = options.get("tag")
    return options.get("pattern") or (rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>" if tag else "")


# Words


def _vocabularies(container: _Container, names: Sequence[str]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield options that read the contents of a container, and whether they need a proof."""
    contents = [each for each in container.contents if each is not None]
    separator = _separator(contents, names)
    split = Dialect(separator=separator, spelling="loose")
    items = [words_of(content, split) for content in contents]
    counts = Counter(word for words in items for word in {*words})
    words = [word for word, count in counts.items() if count > _RARE * len(contents) or len(contents) < 50]
    unknown = [word for word in words if word not in names]
    options: dict[str, Any] = {**container.options}
    longest = max((len(each) for each in items if all(word in words for word in each)), default=1)
    if separator:
        options |= {"separator": separator}
    if longest > 1:
        options |= {"actions_per_turn": longest}
    exact = Dialect(separator="" if separator == "any" else separator)
    is_exact = all(
        {*words_of(content, exact)} <= {*words} for content in contents if {*words_of(content, split)} <= {*words}
    )
    if not is_exact and separator not in ("any", "each"):
        options |= {"spelling": "loose"}
    plain = [re.sub(r"\b(and|then)\b|\s*\n\s*", ",", content, flags=re.IGNORECASE) for content in contents]
    proof = separator == "any" and any(re.search(r"\w\s+\w", content) for content in plain)
    if not unknown:
        yield options, proof
        return
    mapping = _known_words(unknown, names)
    if mapping is not None:
        yield {**options, "words": _pairs(mapping)}, proof
    elif len(words) <= _MOST_WORDS and len(unknown) == len(words):
        yield {**options, "words": "?" + ",".join(sorted(words))}, True


def _pairs(mapping: Mapping[str, str]) -> str:
    return ",".join(f"{action}:{word}" for word, action in sorted(mapping.items(), key=lambda each: (each[1], each[0])))


def _separator(contents: Sequence[str], names: Sequence[str]) -> str:
    """Return the separator of the words in the contents of replies: one text, ``any``, or an empty text."""
    used = Counter(
        cut
        for content in contents
        for cut in _SEPARATORS
        if cut in content.strip() and not (cut == "→" and len(content.split()) == 1)
    )
    letters = {each for content in contents for each in words_of(content, Dialect(separator="each"))}
    if letters and _known_words([*letters], names):
        return "each" if any(len(words_of(each, Dialect(separator="each"))) > 1 for each in contents) else ""
    used["\n"] += sum(bool(re.search(r"\b(and|then)\b", content, re.IGNORECASE)) for content in contents)
    used = Counter({cut: count for cut, count in used.items() if count > _RARE * len(contents)})
    if "->" in used and "→" not in used and set(used) == {"->"}:
        return "->"
    if len(used) == 1:
        cut = next(iter(used))
        return cut if cut != "\n" else "any"
    if used:
        return "any"
    several = sum(
        len(words) > 1 and all(word in names for word in words)
        for words in (content.casefold().split() for content in contents)
    )
    return "any" if several > _RARE * len(contents) else ""


def _known_words(unknown: Sequence[str], names: Sequence[str]) -> dict[str, str] | None:
    """Return the actions of unknown words, if their families leave no doubt."""
    if not {*_DIRECTIONS} <= {*names}:
        return None
    meanings = {word: _meanings(word) for word in unknown}
    common = set.intersection(*({*each} for each in meanings.values())) - {_OWN}
    if common:  # one family has all of them
        mappings = {tuple(meanings[word][index] for word in unknown) for index in common}
        return dict(zip(unknown, mappings.pop(), strict=True)) if len(mappings) == 1 else None
    if not all(len({*each.values()}) == 1 for each in meanings.values()):
        return None
    return {word: next(iter(each.values())) for word, each in meanings.items()}


_OWN = -1
"""Family of the names of the actions, with fillers as in move_up."""


def _meanings(word: str) -> dict[int, str]:
    """Return the actions that a word may mean, by family; -1 for the name of an action with fillers, as in move_up."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", word).casefold()
    rest = [part for part in re.split(r"[\s_\-]+", plain) if part and part not in _FILLERS]
    if len(rest) != 1:
        return {}
    directions = {_OWN: rest[0]} if rest[0] in _DIRECTIONS else {}
    for index, family in enumerate(_FAMILIES):
        if rest[0] in family:
            directions[index] = _DIRECTIONS[family.index(rest[0])]
    return directions


class Yield(NamedTuple):
    """Episodes of a source under some options."""

    taken: int
    contradicted: int
    proved: int
    """Episodes that recorded values confirm."""


Trial = Callable[[Mapping[str, Any], int], Yield]
"""Reads the source with further options; the number limits its episodes (0: no limit)."""

_SAMPLE = 8
"""Episodes on which assignments of words are tried first."""
_MOST_CANDIDATES = 10
_LEAST_PROVED = 3
"""Least number of confirmed episodes at which a remedy may suggest to accept partly unused replies."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Remedy of the audit for the dialect of a source."""

    text: str
    """Finding, and the options to paste, if there are any."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options that were tried on the source and import more of it; none where no guess does, or several do."""


def remedy_for(
    replies: Sequence[Said], names: Sequence[str], tag: str, declared: Dialect, trial: Trial, before: Yield
) -> Remedy | None:
    """Return the dialect to declare; None where no guess reads the replies better than what is declared.

    Args:
        replies: replies of the source.
        names: actions of the environment.
        tag: its answer tag.
        declared: the dialect that is declared.
        trial: reads the source with other options.
        before: what the source gives as it is declared.
    """
    read = _read_whole(replies, names, tag, declared)
    candidates = [] if not read else [Guess({"words": declared.words}, read, f"<{declared.tag or tag}>")]
    candidates += guesses(replies, names, tag, declared)
    tried: list[tuple[Guess, Yield]] = []
    doubtful: list[Guess] = []
    partly: list[Guess] = []
    """Guesses that nothing contradicts, and that read more than half of the replies."""
    for candidate in candidates[:_MOST_CANDIDATES]:
        guess: Guess = candidate
        unknown = str(guess.options.get("words", "")).startswith("?")
        counts = Yield(0, 1, 0) if unknown else trial(guess.options, 0)
        if counts.contradicted:
            named = _with_words(guess, names, declared, trial)
            if named is None:
                doubtful += [guess] if unknown and explains(guess, replies) else []
                continue
            guess, counts = named, trial(named.options, 0)
        if not guess.needs_proof and guess.read > max(read, len(replies) // 2):
            partly.append(guess)
        certain = counts.proved > 0 if guess.needs_proof or not explains(guess, replies) else counts.taken > 0
        if not certain or counts.contradicted or counts.taken <= before.taken:
            continue
        if not any(same_reading(guess, other, replies, names, tag, declared) for other, _ in tried):
            tried.append((guess, counts))
    where = "that the pattern finds" if declared.pattern else f"in <{declared.tag or tag}>"
    head = f"{len(replies) - read} of {len(replies)} replies hold no action {where}, or more than was used"
    if not tried:
        if partly:
            best_guess = max(partly, key=lambda each: each.read)
            return Remedy(
                f"{head}; {best_guess.read} of them look like {best_guess.look}: {options_text(best_guess.options)}; "
                "nothing recorded shows what the others did; only if they were unusable turns, declare the evidence too"
            )
        drops = any(read_reply(names, tag, declared, said.text, said.calls).dropped for said in replies)
        if (
            len(replies) > read > len(replies) // 2
            and not before.contradicted
            and (before.proved >= _LEAST_PROVED or not drops)
        ):
            return Remedy(f"{head}; only if none of that moved anything: --option evidence=declared")
        look = (
            f"{doubtful[0].look.partition(', the words')[0]} with the words {doubtful[0].options['words'][1:]}"
            if doubtful
            else ""
        )
        words = "say what they mean, as in --option words=up:WORD,down:WORD,left:WORD,right:WORD"
        return (
            Remedy(f"{head}; they look like {look}, and nothing recorded shows what these mean: {words}")
            if look
            else None
        )
    best = max((counts.taken, counts.proved) for _, counts in tried)
    winners = [guess for guess, counts in tried if (counts.taken, counts.proved) == best]
    texts = [f"{guess.look}: {options_text(guess.options)}" for guess in winners]
    if len(winners) > 1:
        return Remedy(
            f"{head}; several dialects read them differently, so say which one was played: {'; or '.join(texts)}"
        )
    return Remedy(f"{head}; they look like {texts[0]}", winners[0].options)


def _with_words(guess: Guess, names: Sequence[str], declared: Dialect, trial: Trial) -> Guess | None:
    """Return a guess with the only meaning of its words that agrees with what was recorded, if there is exactly one."""
    words = str(guess.options.get("words", ""))
    if words.startswith("?"):
        said = words[1:].split(",")
    elif words:
        said = [each.partition(":")[2] for each in words.split(",")]
    else:
        said = [*declared.vocabulary] or list(names)
    fitting: list[Guess] = []
    contradicted = 0
    for each in _assignments(guess, said, names):
        counts = trial(each.options, _SAMPLE)
        contradicted += counts.contradicted
        if counts.proved and not counts.contradicted:
            fitting.append(each)
    return fitting[0] if len(fitting) == 1 and contradicted else None


def _assignments(guess: Guess, words: Sequence[str], names: Sequence[str]) -> Iterator[Guess]:
    """Yield a guess with its words matched to the actions in every way."""
    chosen = [each for each in _DIRECTIONS if each in names] or list(names)
    if len(words) > len(chosen) or len(chosen) > _MOST_WORDS:
        return
    for actions in permutations(chosen, len(words)):
        pairs = _pairs(dict(zip(words, actions, strict=True)))
        look = f"{guess.look.partition(', the words')[0]}, the words {pairs}"
        yield Guess({**guess.options, "words": pairs}, guess.read, look, needs_proof=True)


def options_text(options: Mapping[str, Any]) -> str:
    """Return options as they are written in a command."""
    return " ".join(f"--option {shlex.quote(f'{name}={value}')}" for name, value in options.items() if value != "")
