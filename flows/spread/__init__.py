"""Rollouts against a model, spread over the workers of a pool: they play, one process asks the model for all.

:mod:`.shards` knows which shards are left, :mod:`.deal` gives them to workers and asks the model, :mod:`.away` plays in
a worker, and :mod:`.line` is what the two talk over.
"""

from .deal import loops_on, roll_out_spread
from .shards import ShardsToPlay, batch_of

__all__ = ["ShardsToPlay", "batch_of", "loops_on", "roll_out_spread"]
