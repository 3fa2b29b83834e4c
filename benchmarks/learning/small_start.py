"""Games of the small-network study: their levels, and the networks from which all arms of a seed start.

A *walker* is cloned from an expert until it wins 18 to 25 % of the training levels: nearly a random walk, whose groups
seldom agree. A *habit* is confident and wrong, as a pretrained model is: a clone whose logits are scaled until it wins
as much with an entropy of 0.62 nats where it plays; it then repeats its mistakes, and no turn has a price, so that
about half of its groups teach GRPO nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pivot.benchmarks.learning.worlds import FAR, World, exact_success, explore
from pivot.core.identity import derive_seed
from pivot.models.extras import need
from pivot.training.policy_rl.config import make_rl_config
from pivot.training.policy_rl.levels import plan_levels

torch: Any = need("torch", "train")

LEVELS, HELD_OUT = 400, 0.25
WIDTH, LOW, HIGH = 128, 0.18, 0.25
CLONED = 64
"""States of a step of cloning."""
HABIT_LOW, HABIT_HIGH, HABIT_ENTROPY = 0.22, 0.28, 0.62
"""Success of a habit, and its mean entropy in nats over the turns that it plays."""


@dataclass(frozen=True)
class Game:
    """An environment with its settings and the kind of its start."""

    env: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    habit: bool = False


GAMES: Mapping[str, Game] = {
    "frozenlake": Game("frozenlake"),
    "sokoban": Game("sokoban", {"horizon": 4, "max_solution": 3}),
    "frozenlake_habit": Game("frozenlake", {"step_reward": 0.0}, habit=True),
    "sokoban_habit": Game("sokoban", {"step_reward": 0.0}, habit=True),
}


@dataclass(frozen=True)
class Setup:
    """Training and held-out levels of a seed, their one-hot states, and the network from which all arms start."""

    train: World
    held_out: World
    inputs: Any
    held_out_inputs: Any
    start: Any


def one_hot(world: World) -> Any:
    """Return the symbols of each state's cells as one-hot rows; float32, shape (states, features).

    On a lake, whose player is not among the cells, a second row of flags per state marks the player's cell.
    """
    flags: list[NDArray[np.float32]] = []
    for state in world.states:
        rows, mark, position = state.partition("\n@ ")
        lines = rows.split("\n")
        cells = "".join(lines)
        symbols = "SFHG" if "S" in cells else "#@+$*. "
        hot = np.array([[cell == symbol for symbol in symbols] for cell in cells], np.float32).ravel()
        if symbols == "SFHG":
            row, column = map(int, position.split()) if mark else divmod(cells.index("S"), len(lines[0]))
            hot = np.concatenate([hot, np.eye(len(cells), dtype=np.float32)[row * len(lines[0]) + column]])
        flags.append(hot)
    return torch.from_numpy(np.stack(flags))


def make_network(features: int, seed: int) -> Any:
    """Return a new network; its output is the logits of the four actions."""
    torch.manual_seed(derive_seed("small network", seed) % 2**31)
    nn = torch.nn
    return nn.Sequential(nn.Linear(features, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))


@torch.no_grad()
def policy_of(network: Any, inputs: Any) -> NDArray[np.float64]:
    """Return the probability of each action in each state; shape (states, 4)."""
    return network(inputs).double().softmax(-1).numpy()


def entropy(world: World, policy: NDArray[np.float64]) -> float:
    """Return the mean entropy of the policy, nats, over the turns that it plays from all starts."""
    each = -(policy * np.log(np.maximum(policy, 1e-300))).sum(axis=1)
    there = np.bincount(world.starts, minlength=len(world.states)).astype(float)
    total = turns = 0.0
    for _ in range(world.horizon):
        total, turns = total + float(there @ each), turns + there.sum()
        moved = there[:, None] * policy * ~world.over
        there = np.bincount(world.following.ravel(), moved.ravel(), len(world.states))
    return total / turns


@cache
def setup(game: str, seed: int) -> Setup:
    """Plan the levels of a seed and clone its start.

    Raises:
        RuntimeError: cloning never reached the intended success rate.
    """
    kind = GAMES[game]
    fields = {"env": kind.env, "settings": kind.settings, "model": "none", "levels": LEVELS, "held_out": HELD_OUT}
    levels = plan_levels(make_rl_config(fields | {"seed": seed}))
    world, held_out = (explore(levels.env, levels.config, tasks) for tasks in (levels.train, levels.validation))
    inputs = one_hot(world)
    return Setup(world, held_out, inputs, one_hot(held_out), cloned(world, inputs, seed, habit=kind.habit))


def cloned(world: World, inputs: Any, seed: int, *, habit: bool = False) -> Any:
    """Return a walker of the levels of ``world``, or a habit."""
    network = make_network(inputs.shape[1], seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4, weight_decay=0.0)
    solvable = np.flatnonzero(world.distance < FAR)
    rng = np.random.default_rng(derive_seed("clone", seed))
    low, high, every = (HABIT_LOW, HABIT_HIGH, 10) if habit else (LOW, HIGH, 1)
    for step in range(2000):
        factor = _factor(world, network, inputs) if habit and step % every == 0 else 1.0
        if step % every == 0:
            logits = network(inputs).detach().double() * factor
            if low <= exact_success(world, logits.softmax(-1).numpy()).mean() <= high:
                with torch.no_grad():
                    network[-1].weight *= factor
                    network[-1].bias *= factor
                return network
        chosen = rng.choice(solvable, CLONED)
        best = torch.from_numpy(world.after[chosen].argmin(axis=1))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs[chosen]), best).backward()
        optimizer.step()
    raise RuntimeError(f"seed {seed}: cloning never came to {low:.0%} to {high:.0%} of success")


def _factor(world: World, network: Any, inputs: Any) -> float:
    """Return the factor of the logits at which the entropy is ``HABIT_ENTROPY``, by bisection."""
    logits, low, high = network(inputs).detach().double(), 0.1, 1000.0
    for _ in range(16):
        middle = (low * high) ** 0.5
        confident = entropy(world, (logits * middle).softmax(-1).numpy()) < HABIT_ENTROPY
        low, high = (low, middle) if confident else (middle, high)
    return low
