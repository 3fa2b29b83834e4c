"""Exact pivots for any deterministic, restorable environment, without a solver of its own.

:func:`explore` walks all states of one level breadth first through ``reset``, ``step`` and a way to come back to a
state. The resulting :class:`Graph` knows the need of every state, the dead ends, the actions that are still safe and
the first shortest plan, and labels episodes of that level. Before it is returned, the graph is checked against the
environment itself; hidden state, randomness and keys that hide a difference are refused.
"""

from .explore import explore
from .graph import Graph

__all__ = ["Graph", "explore"]
