"""All states that episodes of some levels can reach, as arrays, and exact values of a policy on them.

Transitions and rewards are those of the environment, which is reset to every state and stepped; distances are those of
the environment's solver. A state that is first reached in the last turn has no transitions: nothing follows it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pivot.datasets.store.config import solver_type
from pivot.environments.base import EnvConfig, PivotEnv, Task
from pivot.solvers.base import ExactSolver
from pivot.solvers.puzzles import ACTIONS

FAR = 1 << 20
"""Distance of a state from which the goal is out of reach."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """States of several levels; arrays are indexed by state, or by state and action."""

    states: tuple[str, ...]
    level: NDArray[np.int64]
    """Index of the level of each state."""
    starts: NDArray[np.int64]
    """First state of each level."""
    following: NDArray[np.int64]
    """State after each action; shape (states, 4). The state itself where nothing follows."""
    won: NDArray[np.bool_]
    """Whether each action wins; shape (states, 4)."""
    over: NDArray[np.bool_]
    """Whether the episode ends with each action, won or lost; shape (states, 4)."""
    rewards: Floats
    """Reward of each action; shape (states, 4)."""
    distance: NDArray[np.int64]
    """Fewest turns to the goal, or ``FAR``; shape (states,)."""
    after: NDArray[np.int64]
    """Fewest turns after each action; shape (states, 4)."""
    horizon: int


def explore(kind: type[PivotEnv], config: EnvConfig, tasks: Sequence[Task]) -> World:
    """Return the world of the levels of ``tasks``.

    Args:
        kind: environment with one action per turn and an exact solver.
        config: its settings.
        tasks: levels; none of them is solved at the start.
    """
    env = kind(config, render_mode=None)
    env.draw_frames = False
    solver = solver_type(kind.profile.name)()
    assert isinstance(solver, ExactSolver)
    horizon = config.horizon
    states: list[str] = []
    levels, starts, following, won, over, rewards, distance, after = ([] for _ in range(8))
    for number, task in enumerate(tasks):
        distances = solver.distance_map(task.initial_state)
        index = {task.initial_state: len(states)}
        starts.append(len(states))
        edge = [task.initial_state]
        states.append(task.initial_state)
        for turn in range(horizon):
            fresh: list[str] = []
            for state in edge:
                env.reset(options={"state": state})
                snapshot = env.snapshot()
                here = index[state]
                row = [here] * 4, [False] * 4, [False] * 4, [0.0] * 4
                for action, name in enumerate(ACTIONS):
                    env.restore(snapshot)
                    _, reward, ended, _, info = env.step(env.encode_action(name))
                    text = env.state_text()
                    row[1][action], row[2][action], row[3][action] = bool(info["success"]), ended, float(reward)
                    if ended:
                        continue
                    if text not in index and turn + 1 < horizon:
                        index[text] = len(states)
                        states.append(text)
                        fresh.append(text)
                    row[0][action] = index.get(text, here)
                levels.append(number)
                for column, values in zip((following, won, over, rewards), row, strict=True):
                    column.append(values)
                distance.append(_or_far(distances.distance(state)))
                after.append([_or_far(each) for each in distances.after_each_action(state)])
            edge = fresh
    return World(
        tuple(states),
        np.array(levels),
        np.array(starts),
        np.array(following),
        np.array(won),
        np.array(over),
        np.array(rewards),
        np.array(distance),
        np.array(after),
        horizon,
    )


def _or_far(distance: int | None) -> int:
    return FAR if distance is None else distance


def exact_success(world: World, policy: Floats) -> Floats:
    """Return the probability of success from the start of each level; shape (levels,).

    ``V_k(s) = sum_a p(a | s) (won(s, a) + (1 - over(s, a)) V_{k-1}(s'))`` with ``k`` turns left, and what is missing
    from the sum of ``p`` is an unusable reply, which costs the turn: ``p(unusable | s) V_{k-1}(s)``.

    Args:
        world: the states.
        policy: probability of each action in each state; shape (states, 4).
    """
    values = np.zeros(len(world.states))
    unusable = 1.0 - policy.sum(axis=1)
    for _ in range(world.horizon):
        follows = np.where(world.over, world.won, values[world.following])
        values = (policy * follows).sum(axis=1) + unusable * values
    return values[world.starts]
