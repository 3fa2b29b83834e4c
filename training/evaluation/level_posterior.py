"""A baseline that guesses the level: generated levels that fit the log vote for a pivot, weighted by habits.

It reads the log alone. A level of the environment's own generator counts if the logged moves have the logged effects in
it and do not solve it. Its weight is the probability of the actions in it for a player whose habits are learned from
the training failures: how often an action was a best, an idle or a fatal one, by what the state offered and by the
length of the shortest solution. Each level then says where the episode was lost, and the step with the largest weight
is the guess.

Levels are searched completely, all at a time: a state is an index, and a table holds the state after each action.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.errors import GenerationError
from ...core.identity import derive_seed
from ...datasets.export.predictors import LoggedFailure, fit_majority
from ...datasets.store.config import environment
from .boosted_trees import Judgement

LEVELS = 10_000
"""Generated levels that may explain a log."""
MOST_STATES = 1024
"""Most states of a level; larger levels have too many explanations for this predictor."""
FAR = 255
"""Distance of a state from which the goal cannot be reached."""
ACTIONS = ("up", "down", "left", "right")
BEST, IDLE, FATAL, LOST = range(4)
"""Qualities of an action: on a shortest way, another one that keeps the goal reachable, one that does not, and any
action in a state from which the goal is out of reach."""

Ints = NDArray[np.int64]
Grid = NDArray[np.uint8]


class Worlds(NamedTuple):
    """Many levels of one size as tables."""

    after: NDArray[np.int16]
    """State after each action, shape (levels, states, 4)."""
    start: Ints
    """First state, shape (levels,)."""
    distance: Grid
    """Fewest actions to the goal, FAR without a way, shape (levels, states)."""
    over: NDArray[np.bool_]
    """Whether the episode ends in a state without success, shape (levels, states)."""


def read_worlds(env: str, texts: Sequence[str]) -> Worlds | None:
    """Return levels as tables; None if they are of another game, of several sizes, or too large."""
    reader = {"frozenlake": _lakes, "sokoban": _rooms}.get(env)
    grids = [text.split("\n") for text in texts]
    shapes = {(len(grid), *{len(line) for line in grid}) for grid in grids}
    if reader is None or len(shapes) != 1 or len(next(iter(shapes))) != 2:
        return None
    return reader(np.array([[list(line) for line in grid] for grid in grids]))


def _lakes(cells: NDArray[Any]) -> Worlds | None:
    """Return maps of FrozenLake; a state is a cell."""
    count, rows, columns = cells.shape
    if rows * columns > MOST_STATES or not ((cells == "S").sum(axis=(1, 2)) == 1).all():
        return None
    flat = cells.reshape(count, -1)
    place = np.arange(rows * columns)
    row, column = place // columns, place % columns
    moves = np.stack(
        [
            np.maximum(row - 1, 0) * columns + column,
            np.minimum(row + 1, rows - 1) * columns + column,
            row * columns + np.maximum(column - 1, 0),
            row * columns + np.minimum(column + 1, columns - 1),
        ],
        axis=1,
    )
    over, goal = flat == "H", flat == "G"
    after = np.where((over | goal)[:, :, None], place[None, :, None], moves[None])
    return _searched(after, np.argmax(flat == "S", axis=1), goal, over)


def _rooms(cells: NDArray[Any]) -> Worlds | None:
    """Return rooms of Sokoban with one box; a state is the cell of the player and that of the box."""
    count, rows, columns = cells.shape
    inner = cells[:, 1:-1, 1:-1]
    width, size = columns - 2, (rows - 2) * (columns - 2)
    flat = inner.reshape(count, -1)
    box, player, target = np.isin(flat, ("$", "*")), np.isin(flat, ("@", "+")), np.isin(flat, (".", "*", "+"))
    ring = cells.copy()
    ring[:, 1:-1, 1:-1] = "#"
    single = all((each.sum(axis=1) == 1).all() for each in (box, player, target))
    if size**2 > MOST_STATES or not single or not np.isin(ring, ("#", " ")).all():
        return None
    wall = np.concatenate([flat == "#", np.ones((count, 1), bool)], axis=1)  # the last cell is everything outside
    place = np.arange(size)
    row, column = place // width, place % width
    steps = np.stack(
        [
            np.where(row > 0, place - width, size),
            np.where(row < rows - 3, place + width, size),
            np.where(column > 0, place - 1, size),
            np.where(column < width - 1, place + 1, size),
        ],
        axis=1,
    )
    beyond = np.concatenate([steps, np.full((1, 4), size)])
    players, boxes = np.divmod(np.arange(size**2), size)
    ahead = steps[players]  # (states, 4)
    behind = beyond[ahead, np.arange(4)]
    pushes = ahead == boxes[:, None]
    blocked = wall[:, ahead] | (pushes & wall[:, behind])
    moved = ahead * size + np.where(pushes, behind, boxes[:, None])
    after = np.where(blocked, np.arange(size**2)[None, :, None], moved[None])
    goal = target[:, boxes]
    start = np.argmax(player, axis=1) * size + np.argmax(box, axis=1)
    return _searched(after, start, goal, np.zeros_like(goal))


def _searched(after: Any, start: Any, goal: NDArray[np.bool_], over: NDArray[np.bool_]) -> Worlds:
    """Return tables with the distances of all states, by rounds of one action."""
    count, states, _ = after.shape
    after = after.astype(np.int16)
    distance = np.where(goal, 0, FAR).astype(np.uint8)
    flat = after.reshape(count, -1)
    for depth in range(1, FAR):
        reached = (np.take_along_axis(distance, flat, axis=1) == depth - 1).reshape(count, states, -1).any(axis=2)
        fresh = reached & (distance == FAR) & ~over
        if not fresh.any():
            break
        distance[fresh] = depth
    return Worlds(after, start.astype(np.int64), distance, over)


def qualities(worlds: Worlds, rows: Ints, states: Ints) -> Ints:
    """Return the quality of each action in some states, shape (states, 4)."""
    here = worlds.distance[rows, states]
    there = np.take_along_axis(worlds.distance[rows], worlds.after[rows, states].astype(np.int64), axis=1)
    best = there == there.min(axis=1, keepdims=True)
    quality = np.where(there == FAR, FATAL, np.where(best, BEST, IDLE))
    return np.where((here == FAR)[:, None], LOST, quality)


@dataclass(frozen=True, slots=True)
class Habits:
    """Probability of an action by its quality in a context, for players of several kinds."""

    weights: NDArray[np.float64]
    """Share of each kind of player, shape (kinds,)."""
    rates: NDArray[np.float64]
    """Probability of an action of a quality, shape (kinds, contexts, qualities)."""


LONGEST = 8
"""Largest solution length that contexts distinguish."""
CONTEXTS = 16 * (LONGEST + 1)
"""Contexts: which of the four qualities a state offers, as bits, and the length of the level's shortest solution."""


def contexts(worlds: Worlds, rows: Ints, quality: Ints) -> Ints:
    """Return the context of one state per level."""
    shortest = np.minimum(worlds.distance[rows, worlds.start[rows]], LONGEST).astype(np.int64)
    return 16 * shortest + sum((quality == each).any(axis=1).astype(np.int64) << each for each in range(4))


class Walk(NamedTuple):
    """Levels that fit a log, and where each of them is lost."""

    rows: Ints
    """Indices of the levels."""
    pivot: Ints
    """Step at which each of them is lost."""
    dead: NDArray[np.bool_]
    """Whether the goal is out of reach for ever after it."""
    logs: NDArray[np.float64]
    """Logarithm of the probability of the actions in each level for each kind of player, shape (levels, kinds)."""


def walk(worlds: Worlds, failure: LoggedFailure, habits: Habits | None = None) -> Walk:
    """Follow a log through levels and keep those in which it is a failure with the logged effects."""
    rows = np.arange(len(worlds.start))
    states = worlds.start.copy()
    last = len(failure.actions) - 1
    pivot, dead = np.full(len(rows), last), np.zeros(len(rows), bool)
    within = worlds.distance[rows, states] <= failure.horizon
    pivot[~within] = 0
    logs = np.zeros((len(rows), 1 if habits is None else len(habits.weights)))
    rates = None if habits is None else np.log(np.maximum(habits.rates, 1e-9))
    for t, action in enumerate(failure.actions):
        after = states
        if action in ACTIONS:
            index = ACTIONS.index(action)
            after = worlds.after[rows, states, index].astype(np.int64)
            if rates is not None:
                quality = qualities(worlds, rows, states)
                mine = quality[:, index]
                logs += rates[:, contexts(worlds, rows, quality), mine].T
                logs -= np.log((quality == mine[:, None]).sum(axis=1))[:, None]
        distance = worlds.distance[rows, after]
        fits = distance > 0
        if failure.moved[t] is not None:
            fits &= (after != states) == failure.moved[t]
        if t < failure.horizon - 1:
            fits &= worlds.over[rows, after] == (t == last)
        lost = within & (distance > failure.horizon - 1 - t)
        pivot[lost], dead[lost] = t, distance[lost] == FAR
        within &= ~lost
        rows, states, pivot = rows[fits], after[fits], pivot[fits]
        within, dead, logs = within[fits], dead[fits], logs[fits]
    return Walk(rows, pivot, dead, logs)


KINDS, ROUNDS, PRIOR = 3, 30, 2.0
"""Kinds of players, rounds of their fit, and actions that each rate starts with."""


def fit_habits(worlds: Worlds, failures: Sequence[LoggedFailure]) -> Habits:
    """Fit the habits of players to failures of certain levels, by expectation and maximisation.

    Args:
        worlds: the level of each failure, in order.
        failures: the failures.
    """
    counts = np.zeros((len(failures), CONTEXTS, 4))
    states = worlds.start.copy()
    for t in range(max(len(each.actions) for each in failures)):
        rows = np.array([n for n, each in enumerate(failures) if t < len(each.actions) and each.actions[t] in ACTIONS])
        if not len(rows):
            continue
        index = np.array([ACTIONS.index(failures[n].actions[t]) for n in rows])
        quality = qualities(worlds, rows, states[rows])
        mine = quality[np.arange(len(rows)), index]
        counts[rows, contexts(worlds, rows, quality), mine] += 1
        states[rows] = worlds.after[rows, states[rows], index]
    flat = counts.reshape(len(failures), -1)
    bits = np.arange(CONTEXTS) % 16
    offered = np.stack([bits >> quality & 1 for quality in range(4)], axis=1).astype(float)
    pooled = counts.sum(axis=0) + offered
    pooled /= np.maximum(pooled.sum(axis=1, keepdims=True), 1e-9)
    rng = np.random.Generator(np.random.PCG64(derive_seed("level posterior")))
    members = rng.dirichlet(np.ones(KINDS), len(failures))
    weights, rates = np.ones(KINDS), np.ones((KINDS, CONTEXTS, 4))
    for _ in range(ROUNDS):
        sums = np.stack([(flat * each[:, None]).sum(axis=0) for each in members.T])
        rates = sums.reshape(KINDS, CONTEXTS, 4) + PRIOR * pooled
        rates /= np.maximum(rates.sum(axis=2, keepdims=True), 1e-9)
        weights = (members.sum(axis=0) + 1) / (len(failures) + KINDS)
        logs = flat @ np.log(np.maximum(rates, 1e-9)).reshape(KINDS, -1).T + np.log(weights)
        members = np.exp(logs - logs.max(axis=1, keepdims=True))
        members /= members.sum(axis=1, keepdims=True)
    return Habits(weights, rates)


def level_weights(habits: Habits | None, walked: Walk) -> NDArray[np.float64]:
    """Return the weight of each level that fits, the largest 1; all alike without habits."""
    logs = walked.logs if habits is None else walked.logs + np.log(habits.weights)
    return np.exp(logs - logs.max()).sum(axis=1)


@lru_cache(maxsize=4)
def generated_worlds(env: str, settings: str, count: int) -> Worlds | None:
    """Return levels of an environment's own generator; None if they cannot be searched completely."""
    kind: Any = environment(env)
    config = kind.config_type.model_validate(json.loads(settings))
    texts: list[str] = []
    for number in range(count):
        try:
            texts.append(kind.find_level(config, derive_seed("level posterior", env, number))[1])
        except GenerationError:
            continue
        if number == 7 and read_worlds(env, texts) is None:
            return None
    return read_worlds(env, texts)


def objection(train: Sequence[LoggedFailure]) -> str | None:
    """Return why the predictor cannot be fitted on some failures, or None."""
    if train[0].env not in ("sokoban", "frozenlake"):
        return f"levels of {train[0].env} cannot be searched completely"
    if not all(each.initial_state and each.env_config for each in train):
        return "the failures do not say their levels and settings"
    if any("|" in action for each in train for action in each.actions):
        return "found turns of several actions, expected one per turn"
    if len({each.env_config for each in train}) > 1:
        return "found environments of several settings, expected one"
    if read_worlds(train[0].env, [each.initial_state for each in train]) is None:
        return "the levels are of several sizes, too large, or of several boxes"
    return None


class LevelPosterior:
    """The fitted predictor."""

    def __init__(self, train: Sequence[LoggedFailure]) -> None:
        """Fit on failures of one environment with their levels; :func:`objection` says on which it can be fitted."""
        mine = read_worlds(train[0].env, [each.initial_state for each in train])
        assert mine is not None
        self._worlds = generated_worlds(train[0].env, train[0].env_config, LEVELS)
        self._usual = fit_majority(train)
        self._habits = fit_habits(mine, train)

    def judge(self, failure: LoggedFailure) -> Judgement:
        """Return the vote of the matching levels about every step; the most frequent label if none matches."""
        fitting, count = self._fitting(failure), len(failure.actions)
        if fitting is None or self._worlds is None:
            usual = self._usual(failure)
            return Judgement(np.eye(count)[usual.step], usual.mode)
        walked, weights = fitting
        worlds, rows = self._worlds, walked.rows
        votes, mode = _vote(walked, weights, count)
        needs = np.zeros(count)
        safe: list[tuple[str, ...]] = []
        states = worlds.start[rows]
        for t, action in enumerate(failure.actions):
            left = failure.horizon - 1 - t
            there = np.take_along_axis(worlds.distance[rows], worlds.after[rows, states].astype(np.int64), axis=1)
            sets = ((there <= left) << np.arange(len(ACTIONS))).sum(axis=1)
            sets = np.bincount(sets, weights, minlength=1 << len(ACTIONS))[1:-1]  # some are safe, and some are not
            best = int(sets.argmax()) + 1
            safe.append(tuple(action for index, action in enumerate(ACTIONS) if best >> index & 1))
            if action in ACTIONS:
                states = worlds.after[rows, states, ACTIONS.index(action)].astype(np.int64)
            needs[t] = weights @ np.minimum(worlds.distance[rows, states], failure.horizon + 1) / weights.sum()
        return Judgement(votes, mode, need=needs, safe=safe)

    def _fitting(self, failure: LoggedFailure) -> tuple[Walk, NDArray[np.float64]] | None:
        """Return the levels that fit and their weights; None without any."""
        if self._worlds is None:
            return None
        walked = walk(self._worlds, replace(failure, initial_state="", env_config=""), self._habits)
        return (walked, level_weights(self._habits, walked)) if len(walked.rows) else None


def _vote(walked: Walk, weights: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], str]:
    """Return the share of each step in the votes, shape (count,), and the mode at the step with the largest."""
    votes = np.bincount(walked.pivot, weights, minlength=count)
    here = walked.pivot == int(votes.argmax())
    dead = float(weights[here & walked.dead].sum()) > 0.5 * float(weights[here].sum())
    return votes / votes.sum(), "deadlock" if dead else "timeout"
