"""Certified corrections of failures, for the arms that learn from the solver's plan.

A correction is the first turn of a shortest plan at one step of a failed episode, in the agent's own prompt: at the
solver's pivot, at a random other step where the agent left every shortest plan (the control of the location), or at the
first step. The agent's own thoughts stay before the action where its reply had the format, so that the action alone is
learned; otherwise the thoughts are empty.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ....core.errors import PivotError
from ....core.identity import below, derive_seed
from ....core.messages import in_think_tags
from ....datasets.store.config import solver_type
from ....environments.base import actions_per_turn
from ....rollouts.base import Episode, TaskRollouts
from ....rollouts.replies import action_text
from ....solvers.base import Case, DistanceMap, ExactSolver, Needs, Verdict
from ....solvers.puzzles import INVALID
from ...encode import CLOSED, OPENED, Encoder
from ..config import RlConfig
from ..levels import Levels
from ..scoring import Correction, Row, TurnSample
from .analysis import Failures, UpdateSamples, thinking_tokens
from .contexts import arm_of


def with_corrections(
    samples: UpdateSamples,
    rollouts: Sequence[TaskRollouts],
    failures: Failures,
    levels: Levels,
    config: RlConfig,
    encoder: Encoder,
) -> UpdateSamples:
    """Return the samples of an update with a correction of each failure that has one; others stay as they are."""
    kind = arm_of(config.arm).corrects
    if kind is None:
        return samples
    solver = solver_type(config.env)()
    episodes = {each.episode_id: each for task in rollouts for each in task.episodes}
    chosen: dict[tuple[str, int], str] = {}
    maps: dict[str, DistanceMap | None] = {}
    most = actions_per_turn(levels.config)
    env = levels.env(levels.config)
    for name, verdict in failures.verdicts.items():
        fix = corrected_step(episodes[name], verdict, config.correction_step, solver, maps, most)
        # A preference between two replies with the same action would teach nothing but their wording.
        if fix is not None and (kind == "witness" or episodes[name].steps[fix[0]].action != fix[1]):
            chosen[name, fix[0]] = action_text(fix[1], env.parse_action)
    env.close()
    tag = levels.env.profile.answer_tag

    def corrected(turn: TurnSample) -> TurnSample:
        action = chosen.get((turn.episode_id, turn.t))
        if action is None:
            return turn
        kept = episodes[turn.episode_id].steps[turn.t].action_valid
        return replace(turn, correction=corrected_reply(turn.student, action, tag, encoder, keep_thoughts=kept))

    return replace(samples, turns=[corrected(turn) for turn in samples.turns])


def corrected_step(
    episode: Episode,
    verdict: Verdict,
    which: str,
    solver: object,
    maps: dict[str, DistanceMap | None],
    most: int = 1,
) -> tuple[int, str] | None:
    """Return the step to correct and the certified turn there; None where no plan exists.

    Args:
        episode: a failed episode.
        verdict: its label.
        which: ``pivot``, ``random`` or ``start``.
        solver: solver of the environment.
        maps: distances by level, for turns of one action, filled here; None for a level that is too large.
        most: most actions of a turn.
    """
    if which == "pivot":
        return (verdict.pivot_step, verdict.witness[0]) if verdict.witness else None
    assert isinstance(solver, ExactSolver)
    shortest = _single_turns(episode, solver, maps) if most == 1 else _long_turns(episode, solver, most)
    plans = {t: shortest(t) for t in ((0,) if which == "start" else range(episode.num_steps))}
    if which == "start":
        best, taken = plans[0], episode.steps[0].action
        return (0, taken if taken in best else best[0]) if best else None
    others = [
        (t, best[0])
        for t, best in plans.items()
        if best and t != verdict.pivot_step and episode.steps[t].action not in best
    ]
    return others[below(random.Random(derive_seed(episode.episode_id, "correction")), len(others))] if others else None


def _single_turns(
    episode: Episode, solver: ExactSolver, maps: dict[str, DistanceMap | None]
) -> Callable[[int], list[str]]:
    """Return a function from a step to the actions there that begin a shortest plan; none where no plan is known."""
    level = episode.initial_state
    if level not in maps:
        try:
            maps[level] = solver.distance_map(level)
        except PivotError:
            maps[level] = None
    distances = maps[level]

    def shortest(t: int) -> list[str]:
        state = episode.steps[t].state
        after = () if state is None or distances is None else distances.after_each_action(state)
        least = min((each for each in after if each is not None), default=None)
        actions = zip(solver.actions_of(level), after, strict=True) if least is not None else ()
        return [action for action, distance in actions if distance == least]

    return shortest


def _long_turns(episode: Episode, solver: ExactSolver, most: int) -> Callable[[int], list[str]]:
    """Return the same for turns of several actions: the agent's own if it saved a turn, else that of the first plan.

    The plan is that of an episode which begins at the step with as many turns as it needs, and wastes one.
    """
    measured = solver.measure([Case(episode.initial_state, episode.actions, episode.horizon, actions_per_turn=most)])[0]
    needs = measured.needs if isinstance(measured, Needs) else [None] * (episode.num_steps + 1)

    def shortest(t: int) -> list[str]:
        need, state = needs[t], episode.steps[t].state
        if not need or state is None:
            return []
        if needs[t + 1] == need - 1:
            return [episode.steps[t].action]
        verdict = solver.certify([Case(state, (INVALID,), need, actions_per_turn=most)])[0]
        return list(verdict.witness[:1]) if isinstance(verdict, Verdict) and verdict.witness else []

    return shortest


def corrected_reply(student: Row, action: str, tag: str, encoder: Encoder, *, keep_thoughts: bool) -> Correction:
    """Return the correction of one reply: its own thoughts if ``keep_thoughts``, then the certified action."""
    text, tokens = f"<{tag}>{action}</{tag}>", student.tokens
    decode = encoder.tokenizer.decode
    count = thinking_tokens(tokens, decode) if keep_thoughts and not set(tokens) & set(encoder.placeholders) else 0
    # A token may hold the end of the thoughts and the beginning of the action, such as `><`.
    begun = in_think_tags(decode(tokens[:count])).rpartition(CLOSED)[2] if count else ""
    if count == 0 or not text.startswith(begun):
        whole = tuple(encoder.reply_tokens(f"{OPENED}{CLOSED}{text}"))
        return Correction(Row(student.prompt, whole), len(whole))
    rest = [*encoder.tokenizer(text[len(begun) :], add_special_tokens=False)["input_ids"], encoder.end]
    return Correction(Row(student.prompt, (*tokens[:count], *rest)), len(rest))


def correction_figures(turns: Sequence[TurnSample]) -> Mapping[str, int]:
    """Return the number of corrections of an update."""
    return {"corrections": sum(turn.correction is not None for turn in turns)}
