"""The audit between reading and labelling: the evidence of each episode, and the evidence that the whole source gives.

An episode is taken if the recording confirms every turn of its replay (:mod:`pivot.rollouts.confirm`), or every turn
but the last, whose reply then is read like the others, or if it ended in the recorded success. One that nothing
confirms is taken only whole, with every turn read and no word dropped, and only if the dialect of its source has earned
it: all recorded successes, three or more, replay to success; or at least 95 % of the turns were read, or confirmed as
unusable, and no word was dropped elsewhere. A recorded value that contradicts a replay takes that back for the source:
its words may mean something else. Integers need confirmation or declared words. ``evidence=declared`` is the user's own
word in place of what the dialect has not earned.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, takewhile

from ..core import plugins
from ..core.identity import digest
from ..environments.base import PivotEnv, Task, actions_per_turn
from ..rollouts.confirm import Confirmation
from ..rollouts.policies.imported import Evidence, evidence_of
from ..solvers.base import TURN_SEPARATOR, Case, Solver, Verdict
from .episode import RecordedEpisode
from .levels import Slot
from .replay import Agreement

LEAST_SUCCESSES = 3
LEAST_READ = 0.95
_MOST_CONTRADICTED = 1 / 3
"""Largest share of contradicted episodes among those with an unread turn or a dropped word; above it, the dialect
misses actions, and its confirmed episodes are left out, too."""
_LEAST_CHATS = 4
"""Fewest chats of different levels whose equal beginnings are no accident."""
_MOST_EXAMPLES = 8
_MOST_WORDS = 8
"""Most actions in a last reply of which any may have been played."""
_CHATTER = " chatter"
_KNOWN = 3
"""Number of confirmed turns with one kind of unusable reply after which the kind counts as known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Facts about one episode from the audit."""

    env: str
    turns: int
    unread: int = 0
    """Turns without a readable action; of a source that lists its actions, none."""
    dropped: int = 0
    """Words and parts that could be actions and are not used."""
    trailing: int = 0
    """Replies after the end."""
    forms: tuple[str, ...] = ()
    """Kinds of the replies without an action."""
    chatter: int = 0
    """Number of these that are chatter."""
    last: str | None = None
    """Kind of the last reply if it has no action, or if a part of it was dropped; chatter of any text is one kind.
    None if it was read whole."""
    example: str = ""
    """First word or reply that was not used."""
    integers: bool = False
    """Whether actions are indices."""
    confirmation: Confirmation = field(default_factory=Confirmation)
    recorded: tuple[str, ...] = ()
    """Kinds of recorded values that agree: before the first turn and after each."""
    contradicted: bool = False
    success: bool | None = None
    """Recorded success."""
    succeeded: bool = False
    """Success of the replay."""
    begins: tuple[str, ...] = ()
    """Digests of its first replies."""
    level: str = ""
    """Digest of its level."""
    doubt: str = ""
    """Reason why only a confirmation, or the user, can take the episode: two agents, masked replies, a foreign seed."""
    remedy: str = ""
    """Option with which the episode is accepted in spite of the doubt."""

    @property
    def is_won(self) -> bool:
        """Whether the episode ended in the recorded success."""
        return self.success is True and self.succeeded

    @property
    def is_settled(self) -> bool:
        """Whether recorded values confirm how its replies without an action were read."""
        confirmation = self.confirmation
        return self.is_won or confirmation.whole or (confirmation.open_end and self.last is None)

    @property
    def is_whole(self) -> bool:
        """Whether every turn was read and nothing was dropped."""
        return not self.unread and not self.dropped


def finding_of(
    episode: RecordedEpisode,
    slots: Sequence[Slot],
    agreement: Agreement,
    confirmation: Confirmation,
    task: Task,
    *,
    asks: bool,
    doubt: str = "",
    remedy: str = "",
) -> Finding:
    """Return the facts about an episode that the audit keeps; ``asks`` adds those about examples in its prompt."""
    played = len(agreement.moves) or len(episode.turns)
    acts = {slot.turn for slot in slots if slot.action is not None}
    unread, forms, chatter, dropped, example = 0, list[str](), 0, 0, ""
    last: str | None = None
    for t, turn in enumerate(episode.turns[:played]):
        reading = turn.reading
        listed = reading is None and turn.actions is not None
        if t not in acts and not listed:
            unread += 1
            forms.append(reading.form if reading is not None else _form(turn.response))
            chatter += reading is not None and reading.is_chatter
            example = example or (turn.response or "").strip()[-80:]
        last = None
        if (t not in acts and not listed) or (reading is not None and reading.dropped):
            last = forms[-1] if t not in acts else "mention"
            last = _CHATTER if reading is not None and reading.is_chatter else last
        if reading is not None:
            dropped += len(reading.dropped)
            example = example or next(iter(reading.dropped), "")
    chat = [turn for turn in episode.turns if turn.reading is not None]
    integers = episode.recorder != "pivot" and any(
        isinstance(action, int) for turn in episode.turns for action in turn.actions or ()
    )
    return Finding(
        env=episode.env,
        turns=played,
        unread=unread,
        dropped=dropped,
        trailing=agreement.trailing,
        forms=tuple(forms),
        chatter=chatter,
        last=last,
        example=example,
        integers=integers,
        confirmation=confirmation,
        recorded=tuple(" ".join(kinds) for kinds in agreement.recorded),
        contradicted=bool(agreement.contradiction) or agreement.refuted,
        success=episode.success,
        succeeded=agreement.success,
        begins=tuple(digest([turn.response, repr(turn.calls)], 12) for turn in chat[:_MOST_EXAMPLES]) if asks else (),
        level=digest([task.initial_state], 12),
        doubt=doubt,
        remedy=remedy,
    )


def last_decides_nothing(env: PivotEnv, task: Task, episode: RecordedEpisode, agreement: Agreement) -> bool:
    """Return whether every reading of its last reply gives a recorded failure the same label.

    The reply has to consist of names of actions alone, after its thoughts; any of them may have been played, in their
    order. What succeeds was not played.
    """
    names = [moves[0][0] for moves in agreement.moves if len(moves) == 1]
    said = (episode.turns[len(agreement.moves) - 1].response or "").rpartition("</think>")[2].lower()
    words = re.findall(r"[^\s,;|]+", said)
    if episode.success is not False or len(names) < len(agreement.moves):
        return False
    if not 0 < len(words) <= _MOST_WORDS or not set(words) <= {*env.actions}:
        return False
    most, unusable = actions_per_turn(env.config), env.profile.unusable_action
    turns = {TURN_SEPARATOR.join(turn) for size in range(most + 1) for turn in combinations(words, size)}
    cases = [
        Case(task.initial_state, (*names[:-1], turn or unusable), env.config.horizon, actions_per_turn=most)
        for turn in turns
    ]
    solver: Solver = plugins.load("solvers", env.profile.name)()
    answers = [each for each in solver.certify(cases) if getattr(each, "reason", "") != "not_a_failure"]
    return len(answers) > 0 and all(isinstance(each, Verdict) and each == answers[0] for each in answers)


def _form(reply: str | None) -> str:
    return (reply or "").strip()[:200] or "blank"


@dataclass(slots=True)
class SourceAudit:
    """The audit of the episodes of one environment."""

    declared: bool = False
    """Whether the user vouches for the dialect."""
    findings: int = 0
    turns: int = 0
    unread: int = 0
    dropped: int = 0
    trailing: int = 0
    confirmed: int = 0
    successes: Counter[bool] = field(default_factory=Counter[bool])
    """Recorded successes by whether they replay to success."""
    open_unread: int = 0
    open_dropped: int = 0
    """Turns and words of episodes that are not settled."""
    contradicted: int = 0
    incomplete: Counter[bool] = field(default_factory=Counter[bool])
    """Episodes with an unread turn or a dropped word, by whether they are contradicted."""
    begins: tuple[str, ...] | None = None
    """Digests of the replies with which all chats begin."""
    levels: set[str] = field(default_factory=set[str])
    forms: Counter[str] = field(default_factory=Counter[str])
    """Unusable replies in confirmed turns, and how many are chatter. Chatter of another text is known to be unusable
    only as the last reply of an episode whose other turns are confirmed."""

    def add(self, finding: Finding) -> None:
        """Count an episode, even one that is left out because it disagrees."""
        self.findings += 1
        self.turns += finding.turns
        self.unread += finding.unread
        self.dropped += finding.dropped
        self.trailing += finding.trailing
        if finding.contradicted or not finding.is_settled:
            self.open_unread += finding.unread
            self.open_dropped += finding.dropped
        self.contradicted += finding.contradicted
        self.levels.add(finding.level)
        pairs = zip(finding.begins if self.begins is None else self.begins, finding.begins, strict=False)
        self.begins = tuple(own for own, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if finding.success:
            self.successes[finding.succeeded] += 1
        if not finding.is_whole:
            self.incomplete[finding.contradicted] += 1
        if not finding.contradicted and (finding.confirmation.whole or finding.is_won):
            self.confirmed += 1
            self.forms.update([*finding.forms, *[_CHATTER] * finding.chatter])
        elif not finding.contradicted and finding.confirmation.open_end:
            self.forms.update(finding.forms[: len(finding.forms) - (finding.last is not None)])
            self.forms[_CHATTER] += finding.chatter - (finding.last == _CHATTER)

    @property
    def common(self) -> int:
        """Replies with which all chats of several levels begin: they may be examples of the prompt."""
        return len(self.begins or ()) if len(self.levels) > 1 and self.findings >= _LEAST_CHATS else 0

    @property
    def earned(self) -> tuple[Evidence, ...]:
        """Evidence that the source as a whole gives an episode that nothing confirms."""
        if self.contradicted or self.successes[False]:
            return ()
        earned = [Evidence.SUCCESS] if self.successes[True] >= LEAST_SUCCESSES else []
        if self.turns - self.open_unread >= LEAST_READ * self.turns and not self.open_dropped:
            earned.append(Evidence.READ)
        return tuple(earned)

    def evidence(self, finding: Finding) -> tuple[Evidence, ...]:
        """Return the evidence for the actions and the level of an episode; nothing if it has to be left out."""
        confirmation = finding.confirmation
        many = _MOST_CONTRADICTED * sum(self.incomplete.values())
        misses = self.incomplete[True] > many and not finding.is_whole
        confirms = confirmation.whole or (confirmation.open_end and self._knows(finding.last))
        evidence: tuple[Evidence, ...] = ()
        if finding.doubt:
            pass
        elif confirms and not misses:
            evidence = evidence_of(confirmation.kinds)
        elif finding.is_won and not (finding.begins and self.common and self.contradicted):
            evidence = (Evidence.END,)
        elif self.declared:
            evidence = (Evidence.DECLARED,)
        elif not finding.integers and not finding.dropped and not (finding.begins and self.common):
            earned = [each for each in self.earned if each is Evidence.SUCCESS or finding.is_whole]
            evidence = tuple(earned) if all(map(self._knows, finding.forms)) else ()
        return evidence

    def _knows(self, form: str | None) -> bool:
        """Return whether a kind of reply is known to be an unusable turn, or was read."""
        return form is None or (form != "mention" and self.forms[form] >= _KNOWN)

    def reason(self, finding: Finding) -> str:
        """Return why an episode is left out."""
        head = "nothing recorded confirms it"
        if finding.confirmation.turns:
            head = f"only {finding.confirmation.turns} of its {finding.turns} turns are confirmed"
        example = f", such as {finding.example!r}" if finding.example else ""
        if finding.doubt:
            why = f"{finding.doubt}: {finding.remedy}"
        elif finding.integers:
            why = "its actions are numbers: say what they mean, as in --option words=up:0,down:1,left:2,right:3"
        elif finding.begins and self.common:
            why = (
                f"all chats of the source begin with the same {self.common} replies: say whether they are examples of "
                f"the prompt with --option examples=0 or --option examples={self.common}"
            )
        elif finding.unread:
            why = f"{finding.unread} of its {finding.turns} replies hold no readable action{example}"
        elif finding.dropped:
            why = f"{finding.dropped} of its words or parts were not used{example}"
        elif self.contradicted:
            lost = f"{self.successes[False]} of {sum(self.successes.values())} recorded successes do not replay"
            why = (
                f"recorded values contradict {self.contradicted} of {self.findings} episodes of the source ({lost}), "
                "so its words may mean something else"
            )
        else:
            read = self.turns - self.open_unread
            why = f"of the source {read} of {self.turns} turns were read, {self.open_dropped} words dropped"
        return f"{head}, and {why}"
