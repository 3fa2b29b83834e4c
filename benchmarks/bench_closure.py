"""Search of all states of an environment: its own overhead per step, and its memory.

The environment is a plane of cells whose steps take a microsecond, so that nearly all time is the search's. Keys are
texts of 64 characters, as long as a level of 8x8 cells. Memory is measured in a process of its own.
"""

import json
import resource
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import gymnasium
from gymnasium import spaces
from pivot.benchmarks.harness import Row, output_of
from pivot.solvers.closure.explore import explore

SIDE, LARGE_SIDE = 400, 1415
ACTIONS = 4


class Plane(gymnasium.Env[Any, Any]):
    """Square of cells; the goal is the last one."""

    def __init__(self, side: int) -> None:
        """Begin in cell 0 of ``side * side``."""
        self.action_space, self.observation_space = spaces.Discrete(ACTIONS), spaces.Discrete(side * side)
        self.side, self.cell = side, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Go back to cell 0."""
        del seed, options
        self.cell = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Move up, down, left or right."""
        row, column = divmod(self.cell, self.side)
        if action < 2:
            row = max(row - 1, 0) if action == 0 else min(row + 1, self.side - 1)
        else:
            column = max(column - 1, 0) if action == 2 else min(column + 1, self.side - 1)
        self.cell = row * self.side + column
        won = self.cell == self.side * self.side - 1
        return self.cell, float(won), won, False, {}

    def snapshot(self) -> int:
        """Return the cell."""
        return self.cell

    def restore(self, snapshot: int) -> None:
        """Go back to a cell."""
        self.cell = snapshot


def rows() -> Iterator[Row]:
    """Yield the speed and the memory of a search."""
    start = perf_counter()
    states = _search(SIDE)
    speed = states * ACTIONS / (perf_counter() - start)
    note = f"steps of the environment per second, the environment's own time included; {states:,} states"
    yield Row(name="closure, speed", ours=speed, required=100_000, passed=speed >= 100_000, note=note)
    measured = json.loads(output_of([sys.executable, "-m", "pivot.benchmarks.bench_closure", str(LARGE_SIDE)]))
    note = f"peak megabytes of a process that searches {measured['states']:,} states"
    peak = measured["megabytes"]
    yield Row(name="closure, memory", ours=peak, required=2000, passed=peak < 2000, note=note)


def _search(side: int) -> int:
    """Return the number of states of a plane."""
    graph = explore(Plane(side), key=lambda env: f"{env.cell:064d}", clock=(), max_states=side * side, checks=4)
    if graph.limit is not None or graph.need(0) != 2 * (side - 1):
        raise AssertionError(f"found a need of {graph.need(0)} at the limit {graph.limit}, expected {2 * (side - 1)}")
    return len(graph.successors)


if __name__ == "__main__":
    met = _search(int(sys.argv[1]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"states": met, "megabytes": peak}))  # noqa: T201 - read by the parent
