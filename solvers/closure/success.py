"""Success in a foreign environment: rules by name, and the rule that a searched level implies.

The rule is ``info["success"]`` or ``info["is_success"]`` where a level sets one of them, else ``goal-reward``: the
positive reward that nothing but ends of the episode pays. Where neither fits, where ``info`` or the observation says
different things of the ends that pay, or where the flag is True on the way to an end, the user names a rule.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...core import admission
from ...core.errors import CertifyError
from .advice import AdvisedError, plain, raised, short
from .graph import ILLEGAL, LOST, WON, SuccessSteps
from .worlds import Env, Success

if TYPE_CHECKING:
    from .search import Search

FLAGS = ("success", "is_success")
"""Keys of ``info`` that say whether a step reached the goal."""
_TELLING = re.compile(
    r"(.*\.)?(is_|has_|task_)?(success(ful)?|won|win|solved|goal(_reached)?|reached(_goal)?|completed?)"
)
"""Other keys of ``info``, in lower case, whose name suggests that they report success."""
GOAL_REWARD = "goal-reward"
PREDICATE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_REWARD = re.compile(r"(terminated and )?reward(>=|>)(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_INFO = re.compile(r"(?P<ends>terminated and (?=.*==))?info\.(?P<key>[^=]+)(==(?P<value>.+))?")
_WITNESSES = 5
RULES = (
    "terminated, reward>=X, terminated and reward>=X (or > in place of >=), info.KEY, info.KEY==VALUE, terminated and "
    "info.KEY==VALUE, module:function"
)
_MISSING = "nothing"
"""Value of what ``info`` lacks, in rules and messages."""
_MOST_VALUES = 64
"""Maximum number of different values that are counted per place of ``info``."""
_LONGEST = 16
"""Maximum number of members of a list that is compared."""
_SIMPLE = frozenset({bool, int, float, str, bytes, type(None), np.ndarray})
"""Types without fields; they come first, because a search reads values of every step."""
_DIGIT = re.compile(r"\d")
_CELL = re.compile(r"\]\[\d+\]$")
"""Place of a number in an array of two dimensions or more."""


class NoSuccessError(AdvisedError):
    """No step of a level succeeds under the default rule; other levels may define success."""

    is_kept = True


def check_rule(text: str) -> str:
    """Return the name of a rule without needless spaces; the empty name leaves the rule to the levels.

    Raises:
        ValueError: no rule has this name.
    """
    text = re.sub(r" ?(>=|>|==) ?", r"\1", " ".join(text.split()))
    named = text in ("", "terminated", GOAL_REWARD) or _INFO.fullmatch(text)
    if not named and not _REWARD.fullmatch(text) and not PREDICATE.fullmatch(text):
        raise ValueError(f"found {text!r}, expected one of {RULES}")
    return text


def is_predicate(rule: str) -> bool:
    """Return whether a rule is a function of a module."""
    return not rule.startswith("info.") and PREDICATE.fullmatch(rule) is not None


def _mapping(value: Any) -> Mapping[Any, Any] | None:
    """Return a mapping or the attributes of an object; None for anything else."""
    if type(value) in _SIMPLE:
        return None
    if type(value) is dict or isinstance(value, Mapping):
        return cast(Mapping[Any, Any], value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    return None if isinstance(value, Enum) or callable(value) else getattr(value, "__dict__", None)


def _find(info: Any, name: str) -> tuple[Any, ...]:
    """Return the value of ``info`` at a key, or at keys with dots between them; nothing if there is none."""
    fields = _mapping(info) or {}
    if name in fields:
        return (fields[name],)
    first, _, rest = name.partition(".")
    return _find(fields[first], rest) if rest and first in fields else ()


def word(value: Any) -> str | None:
    """Return a value of ``info`` as a word or number to compare; None for a picture or a large object."""
    if type(value) is int:
        return str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.ndarray) and value.size > _LONGEST:
        return None
    value = plain(value)
    if isinstance(value, float):
        value = int(value) if value.is_integer() else round(value, 9)
    if isinstance(value, bool | int | float | str | bytes | None):
        return " ".join(str(value).split())
    if isinstance(value, list | tuple) and len(cast(Any, value)) <= _LONGEST:
        words = [word(each) for each in cast(Any, value)]
        return None if None in words else " ".join(map(str, words)) or "empty"
    return None


def _words(info: Any, where: str = "info", depth: int = 4) -> Iterator[tuple[str, str]]:
    """Yield each place of ``info`` with what :func:`word` reads there."""
    for name, value in (_mapping(info) or {}).items():
        if depth > 1 and _mapping(value) is not None:
            yield from _words(value, f"{where}.{name}", depth - 1)
        elif (text := word(value)) is not None:
            yield f"{where}.{name}", text


def _shows(observation: Any, where: str = "observation", depth: int = 4) -> Iterator[tuple[str, str]]:
    """Yield each word and number of an observation, with its place; pictures and other large parts show none."""
    if isinstance(observation, list | tuple) or (isinstance(observation, np.ndarray) and observation.ndim):
        size = observation.size if isinstance(observation, np.ndarray) else len(cast(Sequence[Any], observation))
        parts = [(f"{where}[{place}]", each) for place, each in enumerate(cast(Any, observation)) if size <= _LONGEST]
    elif (fields := _mapping(observation)) is not None:
        parts = [(f"{where}.{name}", each) for name, each in fields.items()]
    else:
        parts = []
        if (text := word(observation)) is not None:
            yield where, text
    for place, each in parts if depth else ():
        yield from _shows(each, place, depth - 1)


def flag(info: Any, name: str) -> bool:
    """Return a flag of ``info``; a missing one is False.

    Raises:
        CertifyError: it is not a bool, or ``info`` is not a mapping.
    """
    if not isinstance(info, Mapping):
        raise CertifyError(f"info: found {short(info)}, expected a mapping; return a dict from reset and step")
    if not (values := _find(info, name)):
        return False
    (value,) = values
    if not isinstance(value, bool | np.bool_):
        raise AdvisedError(
            f"info[{name!r}]: found {short(value)} of type {type(value).__name__}, expected True or False; return a "
            f"bool, or name another rule in gym.success: {RULES}"
        )
    return bool(value)


class Rule:
    """Decides which steps of one level succeed; under the default rule it also records the flags in ``info``."""

    def __init__(self, success: Success | str) -> None:
        """Prepare a rule.

        Raises:
            CertifyError: no rule has this name, or its function cannot be imported. NotAllowedError: this call does not
            allow the module of a function.
        """
        self.text = "a function"
        self.seen: dict[str, None] = {}
        """Flags that a step or reset showed, in the order of :data:`FLAGS` for each."""
        self.differ = False
        """Whether the two flags contradicted each other."""
        self.denied = ""
        """Place of a flag that is False at a rewarded end."""
        self._goals: dict[tuple[tuple[str, str], ...], None] = {}
        """Words of ``info`` and of the observation at each rewarded end."""
        self._way: dict[str, Counter[str]] = defaultdict(Counter)
        """Counts of the values of each of these keys on steps that do not end the episode."""
        self._steps = 0
        self.claims: list[str] = []
        """Rules of flags of other names that were True."""
        self._judge = success if callable(success) else self._named(success)
        self._is_settled = not self.is_open
        self.closed: Success | str = success if callable(success) else self.text
        """The rule that decides every step by itself, once the level is searched."""

    def _named(self, text: str) -> Success:
        try:
            self.text = text = check_rule(text)
        except ValueError as error:
            raise CertifyError(f"success: {error}") from error
        if self.is_open:
            return lambda _env, _reward, _terminated, info: self._flagged(info)
        if text == "terminated":
            return lambda _env, _reward, terminated, _info: terminated
        if match := _INFO.fullmatch(text):
            ends, key, value = match["ends"], match["key"], match["value"]
            return lambda _env, _reward, terminated, info: (terminated or not ends) and self._flag(info, key, value)
        if match := _REWARD.fullmatch(text):
            at_ends, least, strictly = bool(match[1]), float(match[3]), match[2] == ">"
            return lambda _env, reward, terminated, _info: (
                (terminated or not at_ends) and (reward > least if strictly else reward >= least)
            )
        return _predicate(text)

    @property
    def is_open(self) -> bool:
        """Whether the searched level decides which steps succeed, by :func:`settle`."""
        return self.text in ("", GOAL_REWARD)

    def won(self, env: Env, reward: float, terminated: bool, info: Any, observation: Any = None) -> bool:
        """Return whether a step succeeded; before the rule is known, whether a flag reports success.

        Raises:
            CertifyError: a flag is not a bool, or a function of the user's raised or returned something else.
        """
        won = self._judge(env, reward, terminated, info)
        if not self._is_settled:
            self._note(reward, terminated, info, observation)
        return won

    def won_at_start(self, info: Any) -> bool:
        """Return whether ``info`` of ``reset`` reports success already; only flags can."""
        if self.is_open:
            return True in {self._flag(info, name) for name in FLAGS}
        return self.text.startswith("info.") and self.won(None, 0.0, False, info)

    def settled(self, text: str) -> None:
        """Judge by a rule that the level showed from now on."""
        self.closed = "terminated and reward>0" if text == GOAL_REWARD else text
        self._judge = self._named(self.closed)
        self.text, self._is_settled = text, True

    def _flag(self, info: Any, name: str, expected: str | None = None) -> bool:
        if values := _find(info, name):
            self.seen[name] = None
        if expected is None:
            return flag(info, name)
        return (word(values[0]) if values else _MISSING) == expected

    def _flagged(self, info: Any) -> bool:
        if type(info) is dict and not info:
            return False
        flags = {self._flag(info, name) for name in FLAGS}
        self.differ = self.differ or len(flags) > 1
        return True in flags

    def _note(self, reward: float, terminated: bool, info: Any, observation: Any) -> None:
        """Record values of a step that may distinguish success from other steps."""
        words = tuple(_words(info)) if info else ()
        for place, text in words:
            if text == "True" and _TELLING.fullmatch(place.lower()) and place not in self.claims:
                self.claims.append(place)
        if terminated and reward > 0:
            denied = (place for place, text in words if text == "False" and _TELLING.fullmatch(place.lower()))
            self.denied = self.denied or next(denied, "")
            self._goals[(*words, *_shows(observation))] = None
        elif not terminated:
            self._steps += 1
            for place, text in (*words, *_shows(observation)):
                values = self._way[place]
                values[text if len(values) < _MOST_VALUES else "…"] += 1

    def telling(self) -> tuple[str, list[str], list[str]] | None:
        """Return the key by which rewarded ends differ, its values, and the matching rules; a function if none.

        A number or a text with digits counts only where it is the same on the way, because counters, places and times
        always differ; a word counts if an end alone shows it, and so does a cell of a grid, which holds a code.
        """
        goals = [dict(each) for each in self._goals]
        for place in dict.fromkeys(name for each in goals for name in each):
            values = sorted({each.get(place, _MISSING) for each in goals})
            way = self._way.get(place, Counter[str]())
            others = {*way, *([_MISSING] if way.total() < self._steps else [])}
            is_new = any(each not in others for each in values if not _DIGIT.search(each))
            is_new = is_new or (_CELL.search(place) is not None and others.isdisjoint(values))
            if len(values) > 1 and (len(others) <= 1 or is_new):
                if not place.startswith("info."):
                    return place, values, []
                rules = [f"{place}=={each}" for each in values]
                both = [
                    f"terminated and {rule}" if each in others else rule
                    for each, rule in zip(values, rules, strict=True)
                ]
                return place, values, both
        return None


def rule_of(text: str) -> Rule:
    """Return the judge of single steps under a rule that the first levels have established.

    Raises:
        CertifyError: no rule has this name, or its function cannot be imported.
    """
    rule = Rule(text)
    if rule.is_open:
        rule.settled(text)
    return rule


def _predicate(text: str) -> Success:
    module, _, name = text.partition(":")
    admission.require({module: "gym.success"})
    try:
        function: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CertifyError(
            f"gym.success: found {text!r}, expected module:function of a function that can be imported; {error}"
        ) from error

    def judge(env: Env, reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
        try:
            answer = function(env, reward, terminated, info)
        except (Exception, SystemExit) as error:  # foreign code may raise anything
            raise CertifyError(f"gym.success: {text} {raised(error)}; expected True or False") from error
        if not isinstance(answer, bool | np.bool_):
            raise CertifyError(f"gym.success: {text} returned {short(answer)}, expected True or False")
        return bool(answer)

    return judge


def settle(search: "Search", limit: str | None) -> SuccessSteps:
    """Decide which steps of a level searched up to ``limit`` succeed, and mark them if the rule was still open.

    Raises:
        CertifyError: the level does not show what success is, or every first action succeeds. NoSuccessError: no step
            of it succeeds.
    """
    rule, targets, rewards = (
        cast(Rule, search.world.reading.success),
        np.array(search.targets),
        np.array(search.rewards),
    )
    pays, ends = rewards > 0, Counter[float](rewards[targets == LOST].tolist())
    if is_open := rule.is_open:
        text = _shown_rule(rule, targets, rewards)
        if text == GOAL_REWARD:
            for step in np.flatnonzero((targets == LOST) & pays).tolist():
                search.targets[step] = WON
                targets[step] = WON
        succeeds = bool((targets == WON).any())
        if rule.seen and not succeeds and pays.any():
            raise unclear(f"{text} is never True, but steps pay a positive reward ({int(pays.sum())})", ends)
        if not (rule.text or rule.seen or succeeds) and (limit is None or ends):
            until = (
                f" until {limit} ended the search; raise that limit (before a run gym.first_search)" if limit else ""
            )
            raise unclear(f"no step succeeds{until}", ends, rule.claims, NoSuccessError)
        rule.settled(text if succeeds or rule.seen or rule.text else "")
    elif rule.text.startswith("info.") and not rule.seen and (paid := int(((targets == LOST) & pays).sum())):
        raise CertifyError(
            f"no step of this level shows {rule.text}, but ends of the episode pay a "
            f"positive reward ({paid}), expected the flag on them; set it in every step"
        )
    elif "==" in rule.text and pays.any() and not (targets == WON).any():
        raise unclear(f"{rule.text} never holds, but steps pay a positive reward ({int(pays.sum())})", ends)
    won = np.flatnonzero(targets == WON).tolist()
    width = len(search.actions)
    first = targets[:width][targets[:width] != ILLEGAL]
    if first.size and (first == WON).all():
        raise AdvisedError(
            f"success ({rule.text}): every first action succeeds, expected a level that can fail; name another rule in "
            f"gym.success: {RULES}"
        )
    if is_open and search.open_wins and (ends := _all_ends(search) or ends):
        raise unclear(
            f"{rule.text} is True on steps that do not end the episode ({len(search.open_wins)}), but others end it",
            ends,
            [f"{rule.text} if each step with it is success"],
        )
    witnesses = [(*search.path(step // width), step % width) for step in won[:_WITNESSES]]
    return SuccessSteps(
        rule.text, int((targets != ILLEGAL).sum()), len(won), len(won) - len(search.open_wins), tuple(witnesses)
    )


def _all_ends(search: "Search") -> Counter[float]:
    """Return the rewards of all ends of a level when play continues after its flags, as far as a search shows."""
    world, limits = search.world, search.limits
    beyond = type(search)(
        type(world)(world.env, world.seed, world.options, replace(world.reading, success=Rule(lambda *_: False))),
        search.actions,
        replace(limits, states=min(limits.states, 2 * len(search.keys) + 1_000), seconds=limits.seconds / 3),
    )
    with suppress(CertifyError):  # play does not continue where steps raise
        beyond.run(limits.seconds)
    return Counter(reward for target, reward in zip(beyond.targets, beyond.rewards, strict=False) if target == LOST)


def _shown_rule(rule: Rule, targets: Any, rewards: Any) -> str:
    """Return the rule that a level implies: a flag, or the goal reward.

    Raises:
        CertifyError: the two flags differ, or positive rewards do not tell success from other steps.
    """
    if rule.seen:
        names = [name for name in FLAGS if name in rule.seen]
        if rule.text == GOAL_REWARD:
            raise CertifyError(
                f"info[{names[0]!r}] is set in this level, but in no first level of the run, where the goal reward was "
                f"taken for success; name the rule in gym.success: {RULES}"
            )
        if len(names) > 1 and rule.differ:
            raise AdvisedError(
                "info has both 'success' and 'is_success', which differ on a step; set gym.success to info.success or "
                "info.is_success"
            )
        return f"info.{names[0]}"
    on_the_way = Counter(rewards[(targets >= 0) & (rewards > 0)].tolist())
    at_ends = Counter(rewards[targets == LOST].tolist())
    goals = {round(reward, 9) for reward in at_ends if reward > 0}
    if on_the_way:
        highest = max(on_the_way | at_ends)
        choices = [f"'reward>={highest!r}' if only steps with the highest reward are"]
        if rewards[targets >= 0].min() == highest:
            choices = ["nothing that a search proves if staying alive is the task"]
        raise unclear(
            f"steps that do not end the episode pay a positive reward ({_listed(on_the_way)}; number of such steps: "
            f"{on_the_way.total()})",
            at_ends,
            [*rule.claims, *choices],
        )
    if rule.denied:
        raise unclear(f"{rule.denied} is False at an end that pays a positive reward", at_ends, [rule.denied])
    if len(goals) > 1:
        raise unclear("ends of the episode pay different positive rewards", at_ends, rule.claims)
    if difference := rule.telling():
        place, values, rules = difference
        raise unclear(
            f"ends that pay a positive reward differ in {place}: {', '.join(map(short, values[:5]))}",
            at_ends,
            [f"'{rule}'" for rule in rules[:5]] + ["'terminated and reward>0' if all of them are"],
        )
    return GOAL_REWARD


def _listed(rewards: Mapping[float, int]) -> str:
    shown = [f"{reward:g}" for reward in sorted(rewards)]
    return ", ".join(shown if len(shown) <= 5 else (*shown[:2], "...", *shown[-2:]))


def unclear(
    finding: str, ends: Mapping[float, int], rules: Sequence[str] = (), kind: type[AdvisedError] = AdvisedError
) -> AdvisedError:
    """Return an error that lists the rules by which the ends of a level differ, ``rules`` first."""
    if ends:
        highest = min(each for each in ends if max(ends) - each < 1e-9)
        finding += f"; ends of the episode: {sum(ends.values())}, with the rewards {_listed(ends)}"
        choices = ["terminated if every end is success"]
        if len(ends) > 1:
            choices.append(f"'terminated and reward>={highest!r}' if only ends with the highest reward are")
        if len([each for each in ends if each > 0]) > 1 or (len(ends) > 1 and max(ends) > 0 >= min(ends)):
            choices.append("'terminated and reward>0' if all ends with a positive reward are")
    else:
        finding += "; no step ends the episode"
        choices = ["'reward>=X' if a reward of X or more is success"]
    choices = [*rules, *choices, "info.KEY for a flag of info", "module:function for anything else"]
    return kind(f"what success is cannot be seen: {finding}; say it with gym.success, which is {', '.join(choices)}")
