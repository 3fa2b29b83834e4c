"""PrimitiveSkill: stages, picks, and what a perfect player would have done."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...environments.primitiveskill import KINDS, Scene, TaskKind, reached
from ...errors import LevelError
from ...rollouts.scripted.primitiveskill_expert import expert_action
from ...solvers.primitiveskill import HELD_ABOVE, read_observation
from ..episode import FailedEpisode
from ..statements import Statement, count, statement
from .base import Domain, Failure, general_facts, general_signs

WORDINGS: Mapping[str, tuple[str, ...]] = {
    # What to look out for
    "stage_a_turn": (
        "Avoid turns that achieve no stage when as many stages are open as turns are left.",
        "Count the open stages and the turns that are left before every answer.",
        "Plan for one stage a turn at least, so that the budget lasts.",
    ),
    "pick_first": (
        "Avoid placing or pushing before an object has been picked up.",
        "Begin with a pick: a place needs an object in the hand.",
        "Check that an object is in the hand before you place.",
    ),
    "aim": (
        "Check the coordinates of the object and of its goal before you pick and place.",
        "Compare the coordinates in the command with the positions that are given.",
        "Look up where the object is and where it belongs before you name coordinates.",
    ),
    "command": (
        "Answer every turn with a complete pick, place or push.",
        "Avoid answers without a command that can be carried out; each costs a turn.",
        "Check the names and the number of coordinates of every command.",
    ),
    "see_the_goal": (
        "Do not take achieved stages for the goal: everything has to be in its place at the end.",
        "Check at the end that everything is still in its place.",
        "Achieved stages are not enough when something is out of its place at the end.",
    ),
    # What happened
    "stages_left": (
        "After step {step} the task has {stages} open, with only {turns} left.",
        "With {turns} left after step {step}, {stages} of the task remained open.",
        "When step {step} was over, the budget was {turns} for {stages}.",
    ),
    "no_stage": (
        "The turn at step {step} achieved no stage.",
        "At step {step} no stage of the task was achieved.",
        "Step {step} brought the task no stage further.",
    ),
    "no_command": (
        "The answer at step {step} held no pick, place or push that could be carried out.",
        "At step {step} the answer held no command that could be carried out.",
        "Step {step} was lost to an answer of which nothing could be carried out.",
    ),
    "no_pick": (
        "At step {step} a place or push came before any pick.",
        "No pick had been given when step {step} placed or pushed.",
        "Step {step} began to place or push although nothing had been picked before.",
    ),
    "missed": (
        "The turn at step {step} held a pick and a place, but achieved no stage.",
        "At step {step} a pick and a place brought no stage.",
        "Step {step} used up a pick and a place without achieving a stage.",
    ),
    "all_stages": (
        "After step {step} no stage was open, and yet the task was not complete.",
        "All stages had been achieved by the end of step {step}, but not the goal itself.",
        "At the end of step {step} every stage had been achieved, but the task as a whole was not done.",
    ),
    "stages_at_start": (
        "At the start the task has {stages} open, but the budget is {turns}.",
        "The budget of {turns} is smaller than the {stages} of the task at the start.",
        "From the start there are {stages} to achieve with a budget of {turns}.",
    ),
    "stages_open": (
        "When the log ends after step {step}, the task has {stages} open and {turns} left.",
        "After step {step}, the last one, the budget is {turns} for {stages}.",
        "The log stops after step {step} with {stages} open and {turns} left.",
    ),
    # What to do
    "serve": (
        "At step {step}, do not answer {action}; answer {instead} instead.",
        "At step {step}, answer {instead} rather than {action}.",
        "At step {step}, replace {action} by {instead}.",
    ),
    "serve_reply": (
        "At step {step}, do not leave the answer without a command; answer {instead}.",
        "At step {step}, give a command such as {instead}.",
        "At step {step}, send {instead}.",
    ),
    "earlier": (
        "At step {step}, {action} comes too late; take such a turn from the first step on.",
        "At step {step}, {action} is right but late, so begin with such turns earlier.",
        "At step {step}, {action} would have been needed sooner; waste no turn before it.",
    ),
    "put_right": (
        "At step {step}, do not answer {action}; pick up what is in a wrong place and put it where it belongs.",
        "At step {step}, instead of {action}, pick up what is out of its place and bring it there in the same turn.",
        "At step {step}, replace {action} by a pick and a place that achieve the next stage.",
    ),
    "too_many": (
        "At step {step}, do not count on {action}: the task had more open stages than turns from the start.",
        "At step {step}, expect nothing from {action}, since the stages outnumbered the turns from the start.",
        "At step {step}, try more than {action} in a turn, since the stages outnumbered the turns from the start.",
    ),
}


def task_of(initial_state: str) -> TaskKind | None:
    """Return what is fixed about the task of a state text; None where the text names no task."""
    try:
        return KINDS.get(json.loads(initial_state)["task"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # the solver or the replay rule says so


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
    in_hand = min(high, key=lambda thing: at[kind.things.index(thing)][2], default=None)
    positions = {thing: (float(x), float(y), float(z)) for thing, (x, y, z) in zip(kind.things, at, strict=True)}
    scene = Scene(positions, in_hand, float(opening) if task == "drawer" else None)
    # Within the rounding the goal may seem reached; then nothing can be advised.
    return None if reached(kind, scene) else expert_action(kind, scene)


def manipulation_facts(episode: FailedEpisode, step: int) -> list[str]:
    """Return facts for a teacher, a sentence each: the task's stages, where things were, what would have served."""
    kind = task_of(episode.initial_state)
    if kind is None:
        return []
    stages = "; ".join(kind.stages)
    sentences = [f"Stages of the task, each counted once it has been achieved: {stages}."]
    if step < len(episode.observations) and episode.observations[step]:
        positions = "; ".join(episode.observations[step].splitlines()[1:])
        sentences.append(f"Given before step {step}, in the order {_order(kind)}: {positions}.")
    if (action := would_serve(episode, step)) is not None:
        sentences.append(f"An action that would have served at step {step}: {action}.")
    return sentences


def _order(kind: TaskKind) -> str:
    fixed: dict[str, Sequence[Any]] = {"place": ("left target", "right target"), "drawer": ("middle of the tray",)}
    return ", ".join((*kind.things, *fixed.get(kind.name, ())))


class PrimitiveSkillDomain(Domain):
    """Wording and statements about manipulation."""

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

    wordings = WORDINGS

    def background(self, episode: FailedEpisode, step: int) -> list[str]:
        """Return the task's stages, where things were, and what would have served."""
        return manipulation_facts(episode, step)

    def signs(self, failure: Failure) -> list[Statement]:
        """Return what to look out for; see the base class."""
        verdict = failure.verdict
        kind = {"format": "command", "order_error": "pick_first", "wrong_target": "aim"}.get(verdict.failure_mode)
        if verdict.fallback and not verdict.certificate.after:
            kind = "see_the_goal"
        return [*([statement(kind)] if kind else []), statement("stage_a_turn"), *general_signs(failure)]

    def facts(self, failure: Failure) -> list[Statement]:
        """Return what happened; see the base class."""
        verdict, step = failure.verdict, failure.step
        facts, (turns, rest) = verdict.certificate, failure.turns
        stages, left = count(facts.before or 0, "stage"), count(facts.after or 0, "stage")
        if verdict.infeasible_at_start:
            statements = [statement("stages_at_start", stages=stages, turns=turns)]
        elif verdict.fallback and not facts.after:
            statements = [statement("all_stages", step=step)]
        elif verdict.fallback:
            statements = [statement("stages_open", step=step, stages=left, turns=rest)]
        else:
            statements = [statement("stages_left", step=step, stages=left, turns=rest)]
        kind = {"format": "no_command", "order_error": "no_pick", "wrong_target": "missed"}.get(verdict.failure_mode)
        if kind is not None:
            statements.append(statement(kind, step=step))
        if facts.before == facts.after:
            statements.append(statement("no_stage", step=step))
        return [*statements, *general_facts(failure)]

    def actions(self, failure: Failure) -> list[Statement]:
        """Return the turn of a perfect player, as far as the observation shows it; see the base class."""
        step, action = failure.step, failure.action
        if failure.verdict.infeasible_at_start:
            return [statement("too_many", step=step, action=action)]
        served = would_serve(failure.episode, step)
        if served is None:
            return [statement("put_right", step=step, action=action)]
        if not failure.is_usable:
            return [statement("serve_reply", step=step, instead=served)]
        if served == action:
            return [statement("earlier", step=step, action=action)]
        return [statement("serve", step=step, action=action, instead=served)]


DOMAIN = PrimitiveSkillDomain()
