"""FrozenLake: holes, paths over ice, detours."""

from collections.abc import Mapping
from typing import ClassVar

from ...solvers.base import Verdict
from ..claims import Claim, Truth, lexicon
from ..episode import FailedEpisode
from ..texts import FactsFilter
from .base import Domain
from .grid import MOVES, grid_truths
from .lexicon import ACTION_REPEATED, BLOCKED, FAULT, NO_ACTION, PROGRESS, TURNS_RAN_OUT, target_reached
from .phrases import Facts, command, count, spent, wasteful


def _frozenlake(facts: Facts) -> tuple[str, str]:
    if facts.fallback:
        avoid = (
            "Avoid stopping short of the goal: when the log ends, a path over ice within the turns left still existed."
        )
    elif facts.hopeless and facts.before is None:
        avoid = "Avoid treating this lake as winnable: no path over ice leads from the start to the goal."
    elif facts.hopeless:
        avoid = (
            f"Avoid losing any move on such a lake: the path over ice takes {count(facts.before or 0, 'move')} "
            f"and only {count(facts.budget_before, 'turn')} were given."
        )
    elif facts.mode == "deadlock":
        avoid = (
            f"Avoid stepping into a hole, which ends the episode at once: the goal was "
            f"{count(facts.before or 0, 'move')} away over ice with {count(facts.budget_before, 'turn')} left."
        )
    else:
        avoid = f"Avoid {wasteful(facts, 'detours on the ice')}: {spent(facts, 'the path over ice')}"
    return avoid, command(facts, "move")


_WATER = r"(?:the |a |an |that |this )?(?:\w+ )?(?:hole|holes|water)"
FELL = Claim(
    "fell",
    "the action at step {step} ended in a hole",
    lexicon(
        r"(?:fell|fallen|falls|slipp?ed|drown(?:s|ed)|swallow(?:s|ed)|plunge[sd]|plummeted|sank|sunk|splash(?:ed)?|"
        r"(?:the|a) fall)",
        r"fall (?:happened|occurred|came)|broke through",
        rf"(?:stepp?(?:s|ed)|walk(?:s|ed)|move[sd]|went|goes|slid|slides|ran|runs|land(?:s|ed)|end(?:s|ed)|"
        rf"dropp?(?:s|ed)|jumped|"
        rf"tumbled|rushed|was|is)(?: \w+){{0,3}}? (?:in|into|onto) {_WATER}",
        rf"(?:falling|stepping|a step|walking|going|slipping)(?: \w+)? (?:through|into|in) (?:the ice|"
        rf"{_WATER})(?: \w+)? "
        r"(?:ended|cost|lost|was|finished)",
        r"(?:stepped|walked|went|came|slid) off the ice|went under|ice (?:broke|cracked|gave|opened)|(?:dark|cold|"
        r"open|icy) water",
    ),
    lexicon(
        r"(?:did not|didn't|does not|doesn't|has not|hasn't|never) (?:fall|fallen|slip|drop|sink|step|walk)",
        r"(?:at no time|never|not)(?: \w+){0,4} (?:leave|left|leaving) the ice|(?:avoided|escaped|missed) the holes?",
        r"(?:is |was |stays |stayed |remains |remained |still |kept |standing |stood )+(?:safely )?(?:on|to) (?:the |"
        r"safe |solid )*ice",
    ),
    of_pivot=False,
)


class FrozenLakeDomain(Domain):
    """What is said about it."""

    pivot: str = "the first step after which the goal could no longer be reached in the turns that were left"
    advice: str = (
        "Look first for a step into a hole, then for a move that left too few turns. A turn that changed nothing is "
        "seldom the pivot, but it is when that turn was the one too many."
    )
    log_advice: str = "Such turns have action=invalid or moved=false."
    meanings: Mapping[str, str] = {
        "timeout": "the agent stands on ice and a path to the goal exists, but it is longer than the turns left",
        "deadlock": "the agent fell into a hole, or no path over ice leads to the goal",
    }

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences; see the base class."""
        return _frozenlake(facts)

    moves = MOVES

    def claims(self, episode: FailedEpisode) -> tuple[Claim, ...]:
        """Return what a text may claim; see the base class."""
        return _CLAIMS

    def truths(self, episode: FailedEpisode, verdict: Verdict) -> dict[str, Truth]:
        """Return what log and map tell, above all whether the player fell; a later fall counts, too."""
        end = _fell(episode)
        at = end if end is None else end and verdict.pivot_step == episode.num_steps - 1
        return grid_truths(episode, verdict) | {"fell": Truth(at, end)}


_CLAIMS = (
    target_reached("the player stood on the goal at the end"),
    TURNS_RAN_OUT,
    FELL,
    NO_ACTION,
    ACTION_REPEATED,
    BLOCKED,
    PROGRESS,
    FAULT,
)
DOMAIN = FrozenLakeDomain()

_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def _fell(episode: FailedEpisode) -> bool | None:
    """Whether the last action ended in a hole, by walking the map; None where the state is none of FrozenLake's."""
    *rows, last = episode.initial_state.splitlines() or [""]
    start = next(((y, row.index("S")) for y, row in enumerate((*rows, last)) if "S" in row), None)
    try:
        if last.startswith("@"):
            y, x = map(int, last.split()[1:])
        else:
            rows.append(last)
            y, x = start or (-1, -1)
        for action in episode.actions:
            down, right = _STEPS.get(action, (0, 0))
            if 0 <= y + down < len(rows) and 0 <= x + right < len(rows[y]):
                y, x = y + down, x + right
        return None if start is None else rows[y][x] == "H"
    except (ValueError, IndexError):
        return None  # the replay rule says so


class FrozenLakeFactsFilter(FactsFilter):
    """Guidance does not contradict the facts of its FrozenLake episode, such as whether the player fell."""

    name: ClassVar[str] = "frozenlake_facts"
    environments: ClassVar[frozenset[str] | None] = frozenset({"frozenlake"})
