"""PrimitiveSkill: stages, grasps, and what a perfect player would have done."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from ...environments.primitiveskill import KINDS, Scene, TaskKind, reached
from ...errors import LevelError
from ...plugins import Settings
from ...rollouts.scripted.primitiveskill_expert import expert_action
from ...solvers.primitiveskill import HELD_ABOVE, read_observation
from ..base import Draft, FailedEpisode, Filter, Objection
from ..claims import plain, stated
from .base import Domain
from .phrases import Facts, count

GRASP_COUNTS = {"place": ("red cube",), "stack": ("red cube", "purple cube"), "drawer": ("apple",)}
"""Things whose grasp is a stage in itself: where no stage was achieved, they were never in the hand."""


def task_of(initial_state: str) -> TaskKind | None:
    """Return what is fixed about the task of a state text; None where the text names no task."""
    try:
        return KINDS.get(json.loads(initial_state)["task"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # the solver or the replay rule says so


def open_stages(episode: FailedEpisode) -> list[int]:
    """Return how many stages were open after each step that logs it."""
    return [count for info in episode.infos if type(count := info.get("remaining_stages")) is int]


def would_serve(episode: FailedEpisode, step: int) -> str | None:
    """Return the action that a perfect player would have taken at a step; None where the log does not tell."""
    kind = task_of(episode.initial_state)
    if kind is None or not 0 <= step < len(episode.observations):
        return None
    return _would_serve(kind.name, episode.observations[step])


@lru_cache(maxsize=1 << 12)
def _would_serve(task: str, observation: str) -> str | None:
    kind = KINDS[task]
    try:
        at, opening = read_observation(task, observation)
    except LevelError:
        return None
    high = [thing for thing, (_, _, z) in zip(kind.things, at, strict=True) if z > HELD_ABOVE[task]]
    held = min(high, key=lambda thing: at[kind.things.index(thing)][2], default=None)
    positions = {thing: (float(x), float(y), float(z)) for thing, (x, y, z) in zip(kind.things, at, strict=True)}
    scene = Scene(positions, held, float(opening) if task == "drawer" else None)
    # Within the rounding the goal may seem reached; then nothing can be advised.
    return None if reached(kind, scene) else expert_action(kind, scene)


def manipulation_facts(episode: FailedEpisode, step: int) -> list[str]:
    """Return facts for a teacher, a sentence each: the task's stages, where things were, what would have served."""
    kind = task_of(episode.initial_state)
    if kind is None:
        return []
    stages = "; ".join(kind.stages)
    found = [f"Stages of the task, each counted once it has been achieved: {stages}."]
    if step < len(episode.observations) and episode.observations[step]:
        told = "; ".join(episode.observations[step].splitlines()[1:])
        found.append(f"Told before step {step}, in the order {_order(kind)}: {told}.")
    if (action := would_serve(episode, step)) is not None:
        found.append(f"An action that would have served at step {step}: {action}.")
    return found


def _order(kind: TaskKind) -> str:
    fixed: dict[str, Sequence[Any]] = {"place": ("left target", "right target"), "drawer": ("middle of the tray",)}
    return ", ".join((*kind.things, *fixed.get(kind.name, ())))


def _primitiveskill(facts: Facts) -> tuple[str, str]:
    at = f"At step {facts.step}"
    go = "pick up what is still in a wrong place and put it where it belongs in the same turn"
    if facts.served is not None:
        go = f"take {facts.served}"
    if facts.hopeless:
        command = f"{at}, do not count on {facts.action}: there were fewer turns than stages from the start."
    elif facts.served == facts.action:
        command = f"{at}, {facts.action} comes too late; take such a turn from the first step on."
    elif not facts.usable:
        command = f"{at}, do not leave the answer without a command ({facts.action}); {go}."
    else:
        command = f"{at}, do not answer {facts.action}; {go} instead."
    return _primitiveskill_avoid(facts), command


def _primitiveskill_avoid(facts: Facts) -> str:
    stages, turns = count(facts.after or 0, "stage"), count(facts.budget_after, "turn")
    if facts.hopeless:
        given = count(facts.budget_before, "turn")
        return f"Avoid losing any turn on such a task: it has {facts.before} open stages, and only {given} were given."
    if facts.fallback and not facts.after:
        return (
            "Avoid taking achieved stages for the goal: all of them had been achieved, and yet not everything was in "
            "its place at the end."
        )
    if facts.fallback:
        return f"Avoid stopping on the way: when the log ends, {stages} and {turns} are left."
    habit = {
        "format": "answers without a pick, place or push that can be carried out",
        "order_error": "placing or pushing before anything has been picked up",
        "wrong_target": "picking and placing beside the thing or the place that is meant, which achieves nothing",
    }.get(facts.mode, "turns that achieve less than the turns left demand")
    verb = "is" if facts.after == 1 else "are"
    return f"Avoid {habit}: after this turn {stages} {verb} open with {turns} left."


class PrimitiveSkillDomain(Domain):
    """What is said about it."""

    pivot: str = (
        "the first step after which more stages of the task are open than turns are left, a stage being taken to "
        "need a turn"
    )
    advice: str = (
        "Prefer a command that was carried out and achieved nothing; a turn without one (action=empty) is the pivot "
        "only when that turn was the one too many."
    )
    log_advice: str = "remaining_stages and remaining_turns are those after the step."
    meanings: Mapping[str, str] = {
        "timeout": "the turn at the pivot was used, but more stages are open after it than turns are left",
        "format": "the reply at the pivot held no pick, place or push that could be carried out",
        "wrong_target": "a thing was to be picked and placed in the turn at the pivot, and no stage was achieved",
        "order_error": "the turn at the pivot places or pushes, and nothing had been picked before",
    }

    def phrases(self, facts: Facts) -> tuple[str, str]:
        """Return the template's sentences; see the base class."""
        return _primitiveskill(facts)

    def facts(self, episode: FailedEpisode, step: int) -> list[str]:
        """Return the task's stages, where things were, and what would have served."""
        return manipulation_facts(episode, step)

    def would_serve(self, episode: FailedEpisode, step: int) -> str | None:
        """Return the perfect player's action for what the observation tells."""
        return would_serve(episode, step)


DOMAIN = PrimitiveSkillDomain()


# What guidance may not say

_WAS = r"(?:(?:was|were|is|are|has been|have been|had been|got) )(?:(?:now|already|finally|successfully|all|both) )*"

_GOAL_DONE = re.compile(
    rf"\b(?:cubes|blocks|they) {_WAS}(?:aligned|lined up|in line|stacked)\b"
    rf"|\b(?:tower|stack|alignment|arrangement) {_WAS}(?:built|complete|completed|finished|done|standing)\b"
    rf"|\b(?:task|instruction|goal|attempt|episode|manipulation) {_WAS}(?:solved|complete|completed|successful|"
    r"accomplished|done|fulfilled|reached|achieved|a success)\b"
    r"|\b(?:robot|arm|gripper|agent|it|episode|attempt) (?:has |had )?(?:succeeded|succeeds)\b"
    r"|\b(?:completed|solved|finished|accomplished|fulfilled) the (?:task|instruction|tower|stack)\b"
)

_ALL_STAGES = re.compile(
    rf"\b(?:all|both|every|each) (?:of )?(?:the )?(?:\w+ )?(?:stages?|subgoals?|sub-goals?|parts of the task) {_WAS}"
    r"(?:achieved|complete|completed|done|finished|reached|met)\b"
    r"|\b(?:achieved|completed|finished|reached) (?:all|every one) of the (?:\w+ )?stages\b"
)

_NO_STAGE = re.compile(
    r"\b(?:no|none of the|not one|not a single) (?:\w+ )?(?:stages?|subgoals?|progress) (?:(?:was|were|is|are|has been|"
    r"had been) )(?:ever )?(?:achieved|completed|done|finished|reached|met|made)\b"
    r"|\b(?:never|did not|didn't) (?:achieve|achieved|complete|completed|finish|finished|reach|reached) "
    r"(?:a|any|one) (?:\w+ )?(?:stage|subgoal)\b"
)

_NO_COMMAND = re.compile(
    r"\b(?:reply|answer|response|turn) (?:there |here )?(?:was|is|had been) (?:left )?(?:empty|blank)\b"
    r"|\bno (?:command|action|primitive) (?:was|had been) (?:sent|given|issued|answered)\b"
)


def handling_claims(text: str) -> frozenset[str]:
    """Return which of ``goal``, ``stages`` (all of them), ``no_stage`` and ``empty`` the text claims about handling."""
    words = plain(text)
    lists = {"goal": _GOAL_DONE, "stages": _ALL_STAGES, "no_stage": _NO_STAGE, "empty": _NO_COMMAND}
    return frozenset(name for name, claim in lists.items() if any(stated(words, m) for m in claim.finditer(words)))


def claims_grasp(text: str, things: Sequence[str]) -> str | None:
    """Return the first of ``things`` that the text claims to have been in the hand; None where it claims none."""
    words = plain(text)
    for thing in things:
        name = re.escape(thing)
        pattern = (
            rf"\b(?:picked up|grasped|gripped|grabbed|lifted) the {name}\b"
            rf"|\bthe {name} (?:was|is|has been|had been) (?:now |already |correctly |successfully )*"
            r"(?:picked up|grasped|gripped|grabbed|lifted|held)\b"
        )
        if any(stated(words, match) for match in re.finditer(pattern, words)):
            return thing
    return None


class PrimitiveSkillFactsFilter(Filter):
    """Guidance claims no goal, stage or grasp that the log denies, nor that an answer was empty that was not.

    What a text claims is read by the word lists of :mod:`~pivot.labeling.claims`. A stage counts wherever in the
    episode it was achieved; of the pivot alone it must be true that the answer was empty.
    """

    name: ClassVar[str] = "primitiveskill_facts"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"primitiveskill"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``claims_goal``, ``claims_stages``, ``denies_stages``, ``claims_grasp`` or ``claims_empty``."""
        text, kind, counts = draft.guidance or "", task_of(episode.initial_state), open_stages(episode)
        claimed, step = handling_claims(text), draft.verdict.pivot_step
        left = counts[-1] if counts else 0
        achieved = len(kind.stages) - left if kind is not None and counts else None
        grasped = claims_grasp(text, GRASP_COUNTS.get(kind.name, ())) if kind is not None and achieved == 0 else None
        objections = {
            ("claims_goal", "the text says that what was asked for was done, but it failed"): "goal" in claimed,
            ("claims_stages", f"the text says that all stages were achieved, but {left} stayed open"): (
                "stages" in claimed and left > 0
            ),
            ("denies_stages", f"the text says that no stage was achieved, but {achieved} were"): (
                "no_stage" in claimed and bool(achieved)
            ),
            ("claims_grasp", f"the text says that the {grasped} was picked up, but no stage was achieved"): (
                grasped is not None
            ),
            ("claims_empty", f"the text says that no command came, but step {step} has one"): (
                "empty" in claimed and episode.actions[step] != "empty"
            ),
        }
        return next((Objection(*objection) for objection, holds in objections.items() if holds), None)
