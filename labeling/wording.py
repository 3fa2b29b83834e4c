"""What the Analyzer prompt says about each environment: when an episode is lost, what the modes mean, what to look for.

One entry per environment. An environment without an entry, such as a third party's, gets the general sentences, so
adding one here improves its prompt but is never needed to make it work.
"""

from dataclasses import dataclass, field

GENERAL_MEANINGS = {
    "timeout": "the goal could still be reached, but not within the turns that were left",
    "deadlock": "the goal can never be reached again, whatever is done",
    "format": "the reply held no usable action",
    "blocked": "the move was stopped by an obstacle",
    "stagnation": "the last actions brought no progress",
    "budget": "the turns that were left could not cover the remaining distance",
    "wrong_target": "the right object was handled but ended up in a wrong place",
    "order_error": "actions came in an order that cannot work",
    "regression": "the result became worse than the one before",
    "mismatch": "the final result differs too much from what was asked for",
}
"""One line for every failure mode; an environment's own entry takes precedence."""


@dataclass(frozen=True, slots=True)
class AnalyzerWording:
    """The sentences of one environment."""

    pivot: str = "the first step after which the goal could no longer be reached in the turns that were left"
    """Completes the sentence "pivot_step is the index of ..."."""
    advice: str = (
        "Look for the action that lost the episode. A turn that changed nothing is seldom the one, "
        "but it is when that turn was the one too many."
    )
    meanings: dict[str, str] = field(default_factory=dict)

    def meaning(self, mode: str) -> str:
        """Return the one-line meaning of ``mode``; empty when nobody has described it."""
        return self.meanings.get(mode) or GENERAL_MEANINGS.get(mode, "")


WORDING: dict[str, AnalyzerWording] = {
    "sokoban": AnalyzerWording(
        pivot="the first step after which the room could no longer be solved in the turns that were left",
        advice=(
            "Look first at moves that pushed a box, then at detours. A turn that changed nothing (action=invalid or "
            "moved=false) is seldom the pivot, but it is when that turn was the one too many."
        ),
        meanings={
            "timeout": "the room could still be solved, but it takes more moves than there were turns left",
            "deadlock": "a box can never be brought to a target again, however many moves are made",
        },
    ),
    "svg": AnalyzerWording(
        pivot="the last submission, the one that ended the episode",
        advice=(
            "Every turn submits a whole drawing, so nothing is lost before the last one: the pivot is the last "
            "submission, also when it was empty (action=empty) or could not be drawn (valid_svg=false)."
        ),
        meanings={
            "format": "the last submission was empty or could not be drawn",
            "regression": "its score is more than 0.01 below that of the submission before",
            "stagnation": "its score differs by at most 0.01 from that of the submission before",
            "mismatch": "it is better than the submission before or the only one, and still not the target",
            "timeout": "the turns ended before a submission reproduced the target",
            "deadlock": "no further submission could have reproduced the target",
        },
    ),
    "navigation": AnalyzerWording(
        pivot=(
            "the first step after which the moves that were left, half a metre each, could no longer cover the "
            "distance to the target"
        ),
        advice=(
            "The target counts as found within 1.5 m of it. Look for the turn that used up the last slack: a move that "
            "was stopped, a turn of the head, a detour, or a reply without an action (action=invalid). dist can be "
            "trusted; moved and last_action_success may be wrong. Where dist is missing, the one before still holds."
        ),
        meanings={
            "format": "the reply at the pivot held no usable action, and its turn was the one too many",
            "blocked": "the move at the pivot was stopped by a wall or a piece of furniture",
            "stagnation": "the distance shrank by less than 0.1 m over the five steps up to the pivot",
            "budget": "none of these: the moves that were left just could not cover the remaining distance any more",
        },
    ),
    "primitiveskill": AnalyzerWording(
        pivot=(
            "the first step after which more stages of the task are open than turns are left, a stage being taken to "
            "need a turn"
        ),
        advice=(
            "remaining_stages and remaining_turns are those after the step: the first line with more stages than turns "
            "is the pivot. Prefer a command that was carried out and achieved nothing; a turn without one "
            "(action=empty) is the pivot only when that turn was the one too many."
        ),
        meanings={
            "timeout": "the turn at the pivot was used, but more stages are open after it than turns are left",
            "format": "the reply at the pivot held no pick, place or push that could be carried out",
            "wrong_target": "a thing was to be picked and placed in the turn at the pivot, and no stage was achieved",
            "order_error": "the turn at the pivot places or pushes, and nothing had been picked before",
        },
    ),
    "frozenlake": AnalyzerWording(
        pivot="the first step after which the goal could no longer be reached in the turns that were left",
        advice=(
            "Look first for a step into a hole, then for a move that left too few turns. A turn that changed nothing "
            "(action=invalid or moved=false) is seldom the pivot, but it is when that turn was the one too many."
        ),
        meanings={
            "timeout": "the agent stands on ice and a path to the goal exists, but it is longer than the turns left",
            "deadlock": "the agent fell into a hole, or no path over ice leads to the goal",
        },
    ),
}


def wording(env: str) -> AnalyzerWording:
    """Return the sentences of an environment, the general ones for an environment without its own."""
    return WORDING.get(env, _GENERAL)


_GENERAL = AnalyzerWording()
