"""Sokoban: rooms, boxes that are lost, detours."""

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from ...plugins import Settings
from ...solvers.base import Case, Solver, Unsolved, Verdict
from ..base import Draft, Filter, Objection
from ..claims import Claim, Truth, lexicon
from ..episode import FailedEpisode
from ..replay import DisagreementError
from ..texts import FactsFilter
from .base import Domain
from .grid import MOVES, grid_truths
from .lexicon import ACTION_REPEATED, BLOCKED, FAULT, NO_ACTION, PROGRESS, TURNS_RAN_OUT, target_reached
from .phrases import Facts, command, count, spent, wasteful


def _sokoban(facts: Facts) -> tuple[str, str]:
    verb = "push" if facts.mode == "deadlock" else "move"
    if facts.fallback:
        avoid = "Avoid leaving the room half solved: when the log ends, a plan within the turns left still existed."
    elif facts.hopeless and facts.before is None:
        avoid = "Avoid treating this room as winnable: from its first position a box can never be brought to a target."
    elif facts.hopeless:
        avoid = (
            f"Avoid losing any move in such a room: it takes {count(facts.before or 0, 'move')} "
            f"and only {count(facts.budget_before, 'turn')} were given."
        )
    elif facts.mode == "deadlock":
        avoid = (
            f"Avoid pushing a box to a place from which it can never be brought to a target: "
            f"before this push {count(facts.before or 0, 'move')} solved the room, after it no number of moves does."
        )
    else:
        avoid = f"Avoid {wasteful(facts, 'detours around the box')}: {spent(facts, 'the room')}"
    return avoid, command(facts, verb)


_BOX = r"(?:box|boxes|crate|crates|room|puzzle|level)"
BOX_LOST = Claim(
    "box_lost",
    "the action at step {step} brought a box to where no plan, however long, brings it to a target",
    lexicon(
        r"(?:stuck|trapped|jammed|wedged|deadlock(?:ed)?|unsolvable|unwinnable|immovable|cornered|irretrievabl[ey]|"
        r"irreversibl[ey])",
        rf"{_BOX}(?: \w+){{0,3}} (?:lost|dead|impossible|ruined|in (?:a|the) corner)|(?:into a corner|for good|"
        rf"for ?ever)",
        r"(?:lost|ruined|gave up) (?:the|a|its|one) (?:box|crate)",
        r"(?:can|could)(?: never|not| no longer| not)(?: ever| again)? (?:be )?"
        r"(?:\w+ )?(?:solved|pushed|brought|moved|freed|finished|escape|leave|get out|get away|recovered|solve)",
        r"cannot (?:be )?(?:solved|pushed|brought|moved|freed|escape|leave|get out|get away|recovered)",
        r"(?:never|no longer|not)(?: \w+){0,2} (?:come|get|move|leave|escape|slide)(?: \w+)? (?:out|away|back|loose|"
        r"free)(?: of)?",
        r"dead end|(?:brings?|bring|take|get) it back|corner (?:\w+ )?(?:decided|ended|cost|lost|killed)|killed",
        r"(?:no|without a) (?:plan|number of moves|way out|solution)(?! (?:was|is) needed)",
    ),
    lexicon(
        rf"(?:can|could) still (?:be )?(?:\w+ )?(?:solve|solved|moved|pushed|brought|reach|leave)"
        rf"|{_BOX} (?:\w+ )?(?:was|is|stayed|remained) (?:still )?(?:free|movable|solvable)"
    ),
    unless=lexicon("within", "in time", "in the turns", "remaining", "turns?", r"\d moves"),
)


class SokobanDomain(Domain):
    """What is said about it."""

    pivot: str = "the first step after which the room could no longer be solved in the turns that were left"
    advice: str = (
        "Look first at moves that pushed a box, then at detours. A turn that changed nothing is seldom the pivot, but "
        "it is when that turn was the one too many."
    )
    log_advice: str = "Such turns have action=invalid or moved=false."
    meanings: Mapping[str, str] = {
        "timeout": "the room could still be solved, but it takes more moves than there were turns left",
        "deadlock": "a box can never be brought to a target again, however many moves are made",
    }

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences; see the base class."""
        return _sokoban(facts)

    moves = MOVES

    def claims(self, episode: FailedEpisode) -> tuple[Claim, ...]:
        """Return what a text may claim; see the base class."""
        return _CLAIMS

    def truths(self, episode: FailedEpisode, verdict: Verdict) -> dict[str, Truth]:
        """Return what log and certificate tell, above all whether a box was lost at the pivot."""
        return grid_truths(episode, verdict) | {"box_lost": Truth.of(verdict.failure_mode == "deadlock")}

    def excuses(self, claim: str, episode: FailedEpisode, draft: Draft) -> bool:
        """Whether a box was lost after the pivot, in the state in which the episode ended."""
        if claim != "box_lost":
            return False
        try:
            state = draft.replays.of(episode).state_after(episode, episode.num_steps)
        except DisagreementError:
            return True  # the replay rule says so
        answer = _verdict_on(draft.solver, state)
        return isinstance(answer, Unsolved) or answer.failure_mode == "deadlock"


_CLAIMS = (
    target_reached(
        "all boxes stood on targets at the end",
        r"(?:boxes|crates|box|crate) (?:was|were|is|are|stood|ended|had been|reached|sat|came)(?: \w+){0,2} "
        r"(?:(?:on|onto|at|to) )?(?:their|its|the|a) (?:targets?|goals?|places?|storage)",
    ),
    TURNS_RAN_OUT,
    BOX_LOST,
    NO_ACTION,
    ACTION_REPEATED,
    BLOCKED,
    PROGRESS,
    FAULT,
)
DOMAIN = SokobanDomain()


@lru_cache(maxsize=1 << 14)
def _verdict_on(solver: Solver, state: str) -> Verdict | Unsolved:
    """Return the solver's verdict on wasting a turn in ``state``, or why it has none."""
    return solver.certify([Case(state, ["invalid"], 1)])[0]


class SokobanDeadlockFilter(Filter):
    """A deadlock is accepted only if re-execution reaches the state after ``t*`` that the solver pinned.

    Pinned means dead: the solver's certificate says that no plan of any length leads from ``s_{t*+1}`` to success. The
    environment, with its own rules, re-executes the actions up to and including ``t*``; its state text goes back to the
    solver as a level of its own, and the solver has to find that one dead, too. So neither a label moved to another
    step nor a difference between the two sets of rules can pass. An episode that cannot be re-executed that far is
    left to the ``replay`` rule.
    """

    name: ClassVar[str] = "sokoban_deadlock"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``certificate``, ``unproved`` or ``not_dead``."""
        verdict = draft.verdict
        if verdict.failure_mode != "deadlock":
            return None
        if verdict.certificate.reachable_after is not False or verdict.certificate.after is not None:
            return Objection(
                "certificate",
                "the mode is deadlock, but the certificate says that the goal is within reach",
            )
        try:
            state = draft.replays.of(episode).state_after(episode, verdict.pivot_step + 1)
        except DisagreementError:
            return None
        answer = _verdict_on(draft.solver, state)
        if isinstance(answer, Verdict) and answer.failure_mode == "deadlock":
            return None
        after = f"the state after step {verdict.pivot_step}"
        if isinstance(answer, Verdict):
            return Objection("not_dead", f"{after} can still be solved")
        kind = "not_dead" if answer.reason == "not_a_failure" else "unproved"
        return Objection(kind, f"{after}: {answer.reason}, {answer.detail}")


class SokobanFactsFilter(FactsFilter):
    """Guidance does not contradict the facts of its Sokoban episode."""

    name: ClassVar[str] = "sokoban_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban"})
