"""Certified corrections of failures, for the arms that learn from the solver's plan.

A correction is the first turn of a shortest plan at a step of a failed episode, in the agent's own prompt. The agent's
own thoughts stay before the action where its reply had the format, so that the action alone is learned; otherwise the
thoughts are empty.

A turn that is not on a shortest plan loses turns: one where nothing changed, two or more where the goal is further
away, all where it is out of reach for ever. With ``need`` as in :func:`pivot.credit`, a *mistake* is a turn whose
progress, ``need`` before minus ``need`` after, is below 0: it loses two turns or more.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

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
    """Return the samples of an update with the corrections of its failures; others stay as they are."""
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
        for t, action in corrected_steps(episodes[name], verdict, config.correction_step, solver, maps, most):
            # A preference between two replies with the same action would teach nothing but their wording.
            if kind == "witness" or episodes[name].steps[t].action != action:
                chosen[name, t] = action_text(action, env.parse_action)
    env.close()
    tag = levels.env.profile.answer_tag

    def corrected(turn: TurnSample) -> TurnSample:
        action = chosen.get((turn.episode_id, turn.t))
        if action is None:
            return turn
        kept = episodes[turn.episode_id].steps[turn.t].action_valid
        return replace(turn, correction=corrected_reply(turn.student, action, tag, encoder, keep_thoughts=kept))

    return replace(samples, turns=[corrected(turn) for turn in samples.turns])


def corrected_steps(
    episode: Episode, verdict: Verdict, which: str, solver: object, maps: dict[str, DistanceMap | None], most: int = 1
) -> list[tuple[int, str]]:
    """Return the steps to correct and the certified turn at each; none where no plan is known.

    Args:
        episode: a failed episode.
        verdict: its label.
        which: ``pivot``; ``start``, the first step; ``random``, a random step other than the pivot that lost a turn;
            ``first-mistake`` and ``all``, the first mistake and all of them; ``largest-loss``, the first mistake that
            lost most turns.
        solver: solver of the environment.
        maps: distances by level, for turns of one action, filled here; None for a level that is too large.
        most: most actions of a turn.
    """
    if which == "pivot":
        return [(verdict.pivot_step, verdict.witness[0])] if verdict.witness else []
    assert isinstance(solver, ExactSolver)
    plan = _single_turns(episode, solver, maps) if most == 1 else _long_turns(episode, solver, most)
    steps = [(t, *plan(t)) for t in ((0,) if which == "start" else range(episode.num_steps))]
    fixes = [(t, action, lost) for t, action, lost in steps if action is not None]
    if which == "random":
        fixes = [each for each in fixes if each[0] != verdict.pivot_step and each[2] > 0]
        rng = random.Random(derive_seed(episode.episode_id, "correction"))
        fixes = [fixes[below(rng, len(fixes))]] if fixes else []
    elif which != "start":
        fixes = [each for each in fixes if each[2] > 1]
        most_lost = max((lost for _, _, lost in fixes), default=0.0)
        fixes = [each for each in fixes if which != "largest-loss" or each[2] == most_lost]
        fixes = fixes if which == "all" else fixes[:1]
    return [(t, action) for t, action, _ in fixes]


Plan = Callable[[int], tuple[str | None, float]]
"""Function from a step to the first turn of a shortest plan there, the agent's own where that is one and None where no
plan is known, and to the turns that the agent's own turn lost."""


def _single_turns(episode: Episode, solver: ExactSolver, maps: dict[str, DistanceMap | None]) -> Plan:
    """Return the plans of turns of one action."""
    level = episode.initial_state
    if level not in maps:
        try:
            maps[level] = solver.distance_map(level)
        except PivotError:
            maps[level] = None
    distances = maps[level]

    def plan(t: int) -> tuple[str | None, float]:
        state, taken = episode.steps[t].state, episode.steps[t].action
        after = () if state is None or distances is None else distances.after_each_action(state)
        least = min((each for each in after if each is not None), default=None)
        if least is None:
            return None, 0.0
        actions = dict(zip(solver.actions_of(level), after, strict=True))
        reached = actions.get(taken, least + 1)  # an unusable action changes nothing
        best = next(action for action, distance in actions.items() if distance == least)
        return (taken if reached == least else best), inf if reached is None else reached - least

    return plan


def _long_turns(episode: Episode, solver: ExactSolver, most: int) -> Plan:
    """Return the plans of turns of several actions.

    A plan is that of an episode which begins at the step with as many turns as it needs, and wastes one.
    """
    measured = solver.measure([Case(episode.initial_state, episode.actions, episode.horizon, actions_per_turn=most)])[0]
    needs = measured.needs if isinstance(measured, Needs) else [None] * (episode.num_steps + 1)

    def plan(t: int) -> tuple[str | None, float]:
        need, after, state = needs[t], needs[t + 1], episode.steps[t].state
        if not need or state is None:
            return None, 0.0
        lost = inf if after is None else after - need + 1
        if lost == 0:
            return episode.steps[t].action, lost
        verdict = solver.certify([Case(state, (INVALID,), need, actions_per_turn=most)])[0]
        return (verdict.witness[0] if isinstance(verdict, Verdict) and verdict.witness else None), lost

    return plan


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
