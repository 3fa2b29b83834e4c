"""PrimitiveSkill: stages, picks, and what a perfect player would have done."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gymnasium.error import ResetNeeded

from ...core import plugins
from ...core.errors import LevelError
from ...core.identity import canonical_json
from ...environments.backends import EMBEDDED
from ...environments.primitiveskill import PrimitiveSkillEnv
from ...environments.primitiveskill.actions import join, read_primitives
from ...environments.primitiveskill.expert import expert_action
from ...environments.primitiveskill.tasks import KINDS, Scene, TaskKind, reached
from ...solvers.primitiveskill import HELD_ABOVE, read_observation
from ..episode import FailedEpisode
from ..statements import Statement, count, statement
from .base import Domain, Failure, general_facts, general_signs, read_texts


def task_of(initial_state: str) -> TaskKind | None:
    """Return the constants of the task of a state text; None if the text names no task."""
    try:
        return KINDS.get(json.loads(initial_state)["task"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # the solver or the replay filter reports it


def would_serve(episode: FailedEpisode, step: int) -> str | None:
    """Return the action of a perfect player at a step; None if the log does not determine it."""
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
    return None if reached(kind, scene) else _inside(kind, expert_action(kind, scene))


def _inside(kind: TaskKind, action: str) -> str:
    """Return an action with all of its coordinates inside the workspace, where the environment moves them anyway."""
    primitives, _ = read_primitives(action)
    return join(tuple(each.clipped(kind.workspace) for each in primitives))


def manipulation_facts(episode: FailedEpisode, step: int) -> list[str]:
    """Return facts for a teacher, a sentence each: stages, object positions, and actions that would have helped."""
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

    pivot, advice, log_advice, meanings, wordings = read_texts("primitiveskill")

    def background(self, episode: FailedEpisode, step: int) -> list[str]:
        """Return the task's stages, object positions, and actions that would have helped."""
        return manipulation_facts(episode, step)

    def signs(self, failure: Failure) -> list[Statement]:
        """Return what to look out for; see the base class."""
        verdict = failure.verdict
        kind = {"format": "command", "wrong_target": "aim"}.get(verdict.failure_mode)
        if verdict.fallback and not verdict.certificate.after:
            return [statement("see_the_goal")]
        if verdict.failure_mode == "order_error":
            kind = "pick_first" if failure.action.startswith("place") else _first_grasp(failure.episode)
        pace = "two_stages_a_turn" if verdict.infeasible_at_start else "stage_a_turn"
        return [*([statement(kind)] if kind else []), statement(pace), *general_signs(failure)]

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
        elif failure.verdict.certificate.budget_after == 0:
            statements = [statement("no_turn_left", step=step, stages=left)]
        else:
            statements = [statement("stages_left", step=step, stages=left, turns=rest)]
        kind = {"format": "no_command", "order_error": "no_pick", "wrong_target": "missed"}.get(verdict.failure_mode)
        if kind == "missed" and not facts.before:
            kind = None  # no stage was left to achieve
        if kind == "no_pick" and not (failure.action.startswith("place") or _first_grasp(failure.episode)):
            kind = None  # a push needs no pick
        if kind is not None:
            statements.append(statement(kind, step=step))
        if facts.before == facts.after != 0 and kind != "missed":
            statements.append(statement("no_stage", step=step))
        return [*statements, *(each for each in general_facts(failure) if each.kind != "unusable")]

    def actions(self, failure: Failure) -> list[Statement]:
        """Return the turn of a perfect player, if re-execution shows that it completes the task in time.

        See the base class.
        """
        step, action, verdict = failure.step, failure.action, failure.verdict
        served, facts = would_serve(failure.episode, step), verdict.certificate
        kind = task_of(failure.episode.initial_state)
        is_same = kind is not None and served == _inside(kind, action)
        is_good = is_same or (facts.after or 0) < (facts.before or 0)
        if served is not None and is_good and _completes(failure, action):
            return [statement("still_right", step=step, action=action)]
        if served is not None and not is_same and _completes(failure, served):
            rejected = {"action": action} if failure.is_usable else {}
            return [statement("serve" if rejected else "serve_reply", step=step, instead=served, **rejected)]
        if verdict.infeasible_at_start or verdict.fallback:
            return [statement("too_many" if verdict.infeasible_at_start else "missing", step=step)]
        if not failure.is_usable:
            return [statement("every_reply", step=step)]
        return [statement("too_late" if is_same else "every_turn", step=step, action=action)]


def _first_grasp(episode: FailedEpisode) -> str | None:
    """Return the sign for tasks whose first stage is grasping an object; None for other tasks."""
    kind = task_of(episode.initial_state)
    return "grasp_first" if kind is not None and kind.stages[0].endswith("grasped") else None


def _completes(failure: Failure, served: str) -> bool:
    """Whether a perfect player that begins with an action at the pivot step reaches the goal in the turns left."""
    episode = failure.episode
    actions = (*episode.actions[: failure.step], served)
    return _reaches_goal(episode.env, canonical_json(dict(episode.env_config)), episode.initial_state, actions)


@lru_cache(maxsize=1 << 12)
def _reaches_goal(env: str, settings: str, level: str, actions: tuple[str, ...]) -> bool:
    """Play some actions, then a perfect player's until the episode ends; False in a simulator of its own time."""
    config = json.loads(settings)
    if config.get("backend", EMBEDDED) != EMBEDDED:
        return False
    kind: type[PrimitiveSkillEnv] = plugins.load("environments", env)
    game = kind(kind.config_type(**config), render_mode=None)
    game.draw_frames = False
    task, first = json.loads(level)["task"], iter(actions)
    try:
        _, info = game.reset(options={"state": level})
        while True:
            action = next(first, None) or _would_serve(task, info["observation_text"])
            if action is None:
                return False
            _, _, success, truncated, info = game.step(action)
            if success or truncated:
                return success
    except (ValueError, LevelError, ResetNeeded):
        return False  # the log does not replay; the replay filter reports it
    finally:
        game.close()


DOMAIN = PrimitiveSkillDomain()
