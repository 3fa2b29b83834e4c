"""Rollouts against a model, spread over the workers of a pool: workers play, the driver process asks the model for all.

:mod:`.shards` knows which shards are pending, :mod:`.scheduler` assigns them to workers and asks the model,
:mod:`.remote` plays in a worker, and :mod:`.connection` carries the messages between the two.
"""

from .scheduler import roll_out_spread, worker_loops
from .shards import PendingShards, batch_of

__all__ = ["PendingShards", "batch_of", "roll_out_spread", "worker_loops"]
