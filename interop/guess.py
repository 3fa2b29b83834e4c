"""Guesses of the dialect of a source, from all its replies: which options would read them.

A guess names a container (tags, a label, a field, an argument, the only direction of the last line), the words in it,
and what separates them. :mod:`pivot.interop.remedy` tries guesses on the source.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize

import yaml

from ..core.messages import THINK_TAGS, after_thoughts
from ..rollouts.dialect import Call, Dialect, contents_of, read_reply, words_of

_NEARLY_ALL = 0.95
_RARE = 0.02
"""Share of replies whose words are ignored."""
MOST_WORDS = 5
"""Most unknown words that are matched by evidence."""
_MOST_CONTAINERS = 8
_PILE = 4
"""Least square of the number of longest replies, per reply, at which the longest one shows the limit of a turn."""
_LINE = 400
"""Most characters of a line of prose."""
_MOST_PHRASES = 4
"""Most phrases around the only direction of a last line that are a format, and not prose."""

DIRECTIONS = ("up", "down", "left", "right")
_SEPARATORS = (",", ";", "->", "→", "=>", "|", "&", "/", "+", "\n")


@lru_cache(maxsize=1)
def _words_of_directions() -> tuple[Mapping[str, Mapping[int, str]], frozenset[str]]:
    """Return the directions that each word may mean, by line of words.yaml, and the words to ignore."""
    data = yaml.safe_load((Path(__file__).parent / "words.yaml").read_text(encoding="utf-8"))
    meanings: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for number, line in enumerate(data["directions"]):
        for word, direction in zip(line.split(), DIRECTIONS, strict=True):
            plain = "".join(each for each in normalize("NFD", word) if not combining(each))
            for each in {word, plain} if plain.isascii() else {word}:
                meanings[each][number] = direction
    return meanings, frozenset(data["fillers"].split())


@dataclass(frozen=True, slots=True)
class Said:
    """One reply of a source."""

    text: str
    calls: Sequence[Call] = ()
    is_last: bool = False
    """Whether its episode ends with it."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A dialect that reads more replies than the declared one."""

    options: Mapping[str, Any]
    read: int
    """Number of replies that it reads completely."""
    look: str
    """Description of the replies."""
    needs_proof: bool = False
    """Whether only recorded values can confirm it."""
    unsure: bool = False
    """Whether turns may hold more actions than the longest reply."""
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Options of the containers that hold actions in some of its replies, by their looks. Each may be the only one that
    was read, so that recorded values have to confirm more episodes under this guess than under any of them."""


@dataclass(frozen=True, slots=True)
class _Container:
    options: Mapping[str, str]
    look: str
    needs_proof: bool = False
    contents: list[str | None] = field(default_factory=list[str | None])
    parts: Sequence["_Container"] = ()
    """Containers of some of its replies; see :attr:`Guess.parts`."""

    def readable(self) -> set[int]:
        """Return the replies that contain only words for directions."""
        split = Dialect(separator="any")
        words = {n: words_of(content, split) for n, content in enumerate(self.contents) if content}
        return {n for n, each in words.items() if each and all(map(_meanings, each))}

    def is_code(self) -> bool:
        """Return whether nearly all replies contain one of a few short words that are no directions."""
        texts = [each for each in self.contents if each is not None]
        words = {each.casefold() for each in texts}
        if not 1 < len(words) <= MOST_WORDS or len(texts) < _NEARLY_ALL * len(self.contents):
            return False
        parts = [part for each in words for part in re.findall(r"[^\W\d_]+|[^\w\s<>^]", each)]
        return all(re.fullmatch(r"\S{1,12}", each) for each in words) and not any(map(_meanings, parts))


def guesses(replies: Sequence[Said], names: Sequence[str], tag: str, declared: Dialect, stated: int = 0) -> list[Guess]:
    """Return dialects that read more replies than the declared one, the best first.

    Args:
        replies: replies of the source.
        names: actions of the environment.
        tag: its answer tag.
        declared: the dialect that is declared.
        stated: most actions of a turn by the text of its prompts, 0 where they do not say it.
    """
    baseline = len(read_whole(replies, names, tag, declared))
    own = {n for n, said in enumerate(replies) if read_reply(names, tag, declared, said.text, said.calls).actions}
    distinct = {tuple(each.contents): each for each in reversed([*_containers(replies)]) if each.contents}
    containers = [*reversed(distinct.values())]
    unions = list(_unions(containers, replies))
    if not declared.container:
        containers += [other for each in containers for other in _one_of_several(each, replies)]
    parts = [(each, each.readable()) for each in containers if each.options.get("pattern") not in _FIXED]
    loose = [each for each in containers if each.options.get("pattern") in _FIXED] + [*_mentions(replies)]
    containers = [each for each, _ in parts]
    for each in loose:  # they may find actions in replies of which only some were read
        lines = each.readable()
        mixed = [part for part, mine in parts if 0 < len(lines & mine) < _NEARLY_ALL * len(lines)]
        proof = each.needs_proof or bool(mixed) or 0 < len(lines & own) < _NEARLY_ALL * len(lines)
        containers += [replace(each, needs_proof=proof, parts=mixed[:2])] if each.contents and lines else []
    containers.sort(key=lambda each: (-len(each.readable()), -sum(content is not None for content in each.contents)))
    rivals = [each for each in containers if each.is_code()]  # next to their action, a direction may be a remark
    last = {number for number, said in enumerate(replies) if said.is_last}
    guesses: list[tuple[Guess, set[int]]] = []
    forms: list[tuple[str, set[int], Mapping[str, Any]]] = []
    """Readings of one form of replies; perhaps only this form counts."""
    for container in [*containers[:_MOST_CONTAINERS], *unions]:
        for options, proof in _vocabularies(container, names):
            unsure = False
            if (longest := options.get("actions_per_turn", 1)) > 1:
                options["actions_per_turn"] = max(longest, stated)
                unsure = not stated and not _is_limit(longest, container, replies, options)
            dialect = declared.model_copy(update=options)
            mine = read_whole(replies, names, tag, dialect)
            count = len(mine)
            if str(options.get("words", "")).startswith("?"):
                count = sum(content is not None for content in container.contents)
            look = container.look + _look(options)
            doubt = proof or container.needs_proof or any(each is not container for each in rivals)
            spelled = {name: value for name, value in options.items() if name not in container.options}
            parts = {each.look: {**each.options, **spelled} for each in container.parts}
            is_stated = stated > declared.actions_per_turn
            simpler = [] if is_stated else [("what is declared", own, {})]
            for name in ("words", "spelling", *(() if is_stated else ("separator",))):
                if options.get(name) and not options[name].startswith("?"):
                    less = {key: value for key, value in options.items() if key not in (name, _WITH.get(name))}
                    read = read_whole(replies, names, tag, declared.model_copy(update=less))
                    # The last reply may be shorter, because the episode ended within it.
                    read = read if name != "separator" else read - (mine & last)
                    simpler.append((f"{container.look} without {name}={options[name]}", read, less))
            forms += simpler
            guesses.append((Guess(options, count, look, doubt, unsure, parts), mine))
    for number, (guess, mine) in enumerate(guesses):  # replies of other forms may have been unusable turns
        some = {look: less for look, read, less in forms if 0 < len(mine & read) < _NEARLY_ALL * len(mine)}
        if some:
            parts = dict([*guess.parts.items(), *some.items()][:_MOST_PARTS])
            guesses[number] = replace(guess, needs_proof=True, parts=parts), mine
    better = [each for each, _ in guesses if each.read > baseline or each.needs_proof]
    better.sort(key=lambda each: (each.needs_proof, -each.read, len(repr(each.options))))
    return better


_MOST_PARTS = 4
_WITH = {"separator": "actions_per_turn"}
"""Options that are left out together: leaving out the key leaves out the value, too."""


def read_whole(replies: Sequence[Said], names: Sequence[str], tag: str, dialect: Dialect) -> set[int]:
    """Return the replies of which a dialect reads an action and drops nothing."""
    readings = (read_reply(names, tag, dialect, said.text, said.calls) for said in replies)
    return {number for number, each in enumerate(readings) if each.actions and not each.dropped}


def _is_limit(longest: int, container: _Container, replies: Sequence[Said], options: Mapping[str, Any]) -> bool:
    """Return whether so many replies have the maximum length that it must be the limit of a turn.

    Last replies that are shorter do not count: the episode may have ended within them.
    """
    split = Dialect(separator=options.get("separator", ""), spelling="loose")
    lengths = [
        (len(words_of(content, split)), said.is_last)
        for content, said in zip(container.contents, replies, strict=True)
        if content is not None
    ]
    full = sum(length == longest for length, _ in lengths)
    others = sum(length < longest and not is_last for length, is_last in lengths)
    return full * full >= _PILE * (full + others)


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
    r">\s?([^<>\n]{1,60}?)\s*\Z": "the text after the last mark",
}


def _containers(replies: Sequence[Said]) -> Iterator[_Container]:
    """Yield the containers, such as tags or labels, that occur in many replies."""
    keys = Counter(key for said in replies for key in {key for call in said.calls for key in call.arguments})
    for key, _ in keys.most_common(4):
        yield _filled({"argument": key}, f"calls with the argument {key}", replies)
    names = Counter(call.name for said in replies for call in said.calls)
    if names:
        yield _filled({"argument": ""}, "calls", replies)
    visible = [after_thoughts(said.text) for said in replies]
    least = max(1, _RARE * len(replies))
    tags = Counter(name for text in visible for name in {*_TAGS.findall(text)})
    for name in [each for each, count in tags.most_common(6) if count >= least and each not in THINK_TAGS]:
        yield _filled({"tag": name, "pattern": ""}, f"<{name}>", replies)
        pattern = rf"<{re.escape(name)}\b[^>]*>\s*([^<]*)"
        yield _filled({"pattern": pattern}, f"<{name}>, open thoughts included", replies)
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


def _mentions(replies: Sequence[Said]) -> Iterator[_Container]:
    """Yield directions in prose: the only one in the last line, or the one after certain words before the last one.

    A direction in prose may be a remark. Where it has many phrases or other directions around it, only recorded values
    prove what was played.
    """
    lines = [after_thoughts(said.text).rstrip().rpartition("\n")[2][-_LINE:] for said in replies if not said.calls]
    families: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for line in lines:
        for word in {*re.findall(r"[^\W\d_]+|[^\w\s]", line.casefold())}:
            for family in _meanings(word) if len(word) > 1 or not word.isascii() else ():
                families[family][word] += 1
    seen = {family: words for family, words in families.items() if len(words) > 2}
    if not seen:
        return
    words = seen[max(seen, key=lambda each: seen[each].total())]
    either = "|".join(map(re.escape, sorted(words)))
    before, after = (r"(?<!\w)", r"(?!\w)") if re.fullmatch(r"[\w|\\]+", either) and either.isascii() else ("", "")
    word = f"{before}(?:{either}){after}"
    only = rf"^(?=[^\n]{{1,{_LINE}}}\s*\Z)(?!.*{word}.*{word}|.*\d).*?{before}({either})"
    sentences = [re.split(r"[.!?:;]\s+", line.casefold().rstrip(" .!?"))[-1] for line in lines]
    phrases = {re.sub(word, "", each) for each in sentences}
    remarks = sum(re.search(word, each) is None for each in sentences)
    is_prose = len(phrases) > _MOST_PHRASES or remarks > _RARE * len(lines)
    yield _filled({"pattern": only}, "the only direction of the last line", replies, needs_proof=is_prose)
    leads = Counter(
        match[1] for line in lines if (match := re.match(rf"(?i).*?\b(\w+)[ :,-]+{word}(?!.*{word})", line))
    )
    for lead, _ in leads.most_common(2):
        pattern = rf"\b{re.escape(lead)}\b[ :,-]+({either}){after}(?!.{{0,{_LINE}}}{word}).{{0,{_LINE}}}\s*\Z"
        yield _filled({"pattern": pattern}, f"the direction after {lead!r}", replies, needs_proof=True)


def _filled(options: Mapping[str, str], look: str, replies: Sequence[Said], *, needs_proof: bool = False) -> _Container:
    """Return a container with its content in every reply; None where it is missing or unused."""
    contents: list[str | None] = []
    which: Any = options.get("container", "")
    dialect = Dialect(tag=options.get("tag") or "-", pattern=options.get("pattern", ""), container=which)
    for said in replies:
        if said.calls:
            contents.append(_argument(said.calls, options))
            continue
        texts = [] if "argument" in options else contents_of(said.text, dialect, "-")
        same = len({each.casefold() for each in texts}) == 1 or bool(texts and (needs_proof or which))
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


def _one_of_several(container: _Container, replies: Sequence[Said]) -> Iterator[_Container]:
    """Yield the first and the last of a container that many replies hold several times, with different contents."""
    if not {"tag", "pattern"} & {*container.options} or container.options.get("pattern") in _FIXED:
        return
    dialect = Dialect(tag=container.options.get("tag") or "-", pattern=container.options.get("pattern", ""))
    texts = (contents_of(said.text, dialect, "-") for said in replies if not said.calls)
    if sum(len({each.casefold() for each in several}) > 1 for several in texts) > _RARE * len(replies):
        for which in ("last", "first"):
            options = {**container.options, "container": which}
            yield _filled(options, f"the {which} {container.look} of a reply", replies, needs_proof=True)


def _unions(containers: Sequence[_Container], replies: Sequence[Said]) -> Iterator[_Container]:
    """Yield the smallest sets of containers that together hold actions in nearly all replies, or in the most.

    Replies with one of them may have been unusable turns, so that only recorded values prove the union.
    """
    chosen: list[int] = []
    covered: set[int] = set()
    certain = [(number, each.readable()) for number, each in enumerate(containers) if not each.needs_proof]
    while len(covered) < _NEARLY_ALL * len(replies):
        number, mine = max(certain, key=lambda each: len(each[1] - covered), default=(0, set[int]()))
        if not mine - covered:
            break
        chosen.append(number)
        covered |= mine
    if len(chosen) < 2:
        return
    parts = [containers[number] for number in sorted(chosen)]  # containers of a whole line come last
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
    yield _Container(options, filled.look, True, contents, parts)


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
    # Few letters may be those of another language: u is up in English, and down in German.
    proof = proof or (any(len(each) == 1 and each.isascii() and each.isalpha() for each in words) and len(words) < 4)
    rare = [word for word in counts if word not in {*words, *names} and len(word) > 1 and _meanings(word)]
    mapping = _known_words([*unknown, *rare], names) or _known_words(unknown, names)
    if mapping is not None:
        yield {**options, "words": pairs_text(mapping)}, proof
    elif len(words) <= MOST_WORDS and len(unknown) == len(words):
        yield {**options, "words": "?" + ",".join(sorted(words))}, True


def pairs_text(mapping: Mapping[str, str]) -> str:
    """Return the meaning of words in the notation of the option."""
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
        len(words) > 1 and all(word in names or _meanings(word) for word in words)
        for words in (content.casefold().split() for content in contents)
    )
    return "any" if several > _RARE * len(contents) else ""


def _known_words(unknown: Sequence[str], names: Sequence[str]) -> dict[str, str] | None:
    """Return the actions of unknown words, if their families leave no doubt."""
    if not {*DIRECTIONS} <= {*names}:
        return None
    meanings = {word: _meanings(word) for word in unknown}
    common = set.intersection(*({*each} for each in meanings.values())) - {_OWN}
    if common:  # one family has all of them
        mappings = {tuple(meanings[word][index] for word in unknown) for index in common}
        return dict(zip(unknown, mappings.pop(), strict=True)) if len(mappings) == 1 else None
    if not all(len({*each.values()}) == 1 and len(word) > 1 for word, each in meanings.items()):
        return None
    return {word: next(iter(each.values())) for word, each in meanings.items()}


_OWN = -1
"""Family of the names of the actions, with fillers as in move_up."""


def _meanings(word: str) -> Mapping[int, str]:
    """Return the possible actions of a word by language; -1 for an action name with extra words, as in move_up."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", word).casefold()
    words, fillers = _words_of_directions()
    rest = [part for part in re.split(r"[\s_\-]+", plain) if part and part not in fillers]
    if len(rest) != 1:
        return {}
    return {**({_OWN: rest[0]} if rest[0] in DIRECTIONS else {}), **words.get(rest[0], {})}
