"""Environments of other packages that need a wrapper: examples of ``gym.package``, used by ``closure_table``.

Importing this module registers them. mo-gymnasium pays vectors, and sliding-puzzles shuffles without its seed.
"""

import random
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np


class OnePayment(gymnasium.RewardWrapper[Any, Any]):
    """The first of several rewards: in deep-sea-treasure, the treasure without the price of time."""

    def reward(self, reward: Any) -> float:
        """Return the first reward."""
        return float(np.asarray(reward).ravel()[0])


class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that draws its level from the global random numbers and remembers its last answer."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Seed the global random numbers and forget the last answer, then reset."""
        vars(self.env.unwrapped).update(last_reward=0.0, last_info={}, last_done=False)
        random.seed(seed)
        np.random.seed(seed)
        return self.env.reset(seed=seed, options=options)


def treasure(name: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Return an environment of mo-gymnasium by its id."""
    return OnePayment(import_module("mo_gymnasium").make(name, render_mode=render_mode).unwrapped)


def sliding(render_mode: str | None = None, **settings: Any) -> gymnasium.Env[Any, Any]:
    """Return a sliding puzzle of ``w`` by ``h`` tiles."""
    import_module("sliding_puzzles")
    return Seeded(gymnasium.make("SlidingPuzzles-v0", render_mode=render_mode or "rgb_array", **settings).unwrapped)


gymnasium.register("Treasure-v0", entry_point="pivot.benchmarks.wrapped_games:treasure")
gymnasium.register("Sliding-v0", entry_point="pivot.benchmarks.wrapped_games:sliding")
