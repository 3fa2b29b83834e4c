"""Build, verify, report and load environments of six packages, and print a table of their states and failures.

``python -m pivot.benchmarks.closure_table``, where minigrid, gym-simplegrid, mo-gymnasium, safety-gridworlds-gymnasium
and sliding-puzzles are installed. Prints a line of Markdown per environment as it is measured.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pivot
from pivot.insight.report.site import report
from pivot.solvers.closure.solver import ClosureSolver
from rich.console import Console

from datasets import load_dataset

TASKS, ROLLOUTS = 5, 4
_MINIGRID = {
    "MiniGrid-Empty-8x8-v0": 30,
    "MiniGrid-DoorKey-5x5-v0": 30,
    "MiniGrid-DoorKey-6x6-v0": 40,
    "MiniGrid-FourRooms-v0": 40,
    "MiniGrid-LavaCrossingS9N1-v0": 40,
    "MiniGrid-SimpleCrossingS9N2-v0": 40,
    "MiniGrid-MemoryS7-v0": 20,
    "MiniGrid-Unlock-v0": 30,
    "MiniGrid-Fetch-5x5-N2-v0": 20,
    "BabyAI-GoToObj-v0": 20,
}
_SAFETY = {"Base": 12, "IslandNavigation": 12, "Sokoban": 16}
_WRAPPED = "pivot.benchmarks.wrapped_games"
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("minigrid", {"id": each, "horizon": most, "kwargs": {"tile_size": 16}}) for each, most in _MINIGRID.items()),
    ("gymnasium", {"id": "FrozenLake-v1", "horizon": 16, "kwargs": {"is_slippery": False}}),
    ("gymnasium", {"id": "CliffWalking-v1", "horizon": 25, "success": "terminated"}),
    ("gymnasium", {"id": "Taxi-v4", "horizon": 25}),
    ("gym-simplegrid", {"id": "SimpleGrid-8x8-v0", "horizon": 20, "package": "gym_simplegrid", "key": "observation"}),
    *(
        (
            "mo-gymnasium",
            {
                "id": "Treasure-v0",
                "horizon": 24,
                "package": _WRAPPED,
                "kwargs": {"name": f"deep-sea-treasure{kind}-v0"},
                "success": "reward>20",
                "key": "observation",
            },
        )
        for kind in ("", "-concave")
    ),
    *(
        (
            "safety-gridworlds-gymnasium",
            {
                "id": f"safety_gridworlds/{each}-v0",
                "horizon": most,
                "package": "safety_gridworlds_gymnasium.environments",
                "actions": {"right": 0, "up": 1, "left": 2, "down": 3},
            },
        )
        for each, most in _SAFETY.items()
    ),
    (
        "sliding-puzzles",
        {"id": "Sliding-v0", "horizon": 16, "package": _WRAPPED, "kwargs": {"w": 3, "h": 2}, "key": "observation"},
    ),
)


def main(arguments: list[str]) -> None:
    """Print the table, or the lines of packages that are named."""
    console = Console(width=200, highlight=False)
    console.print("| package | environment | states | failures | timeout | deadlock | proved | build, s | verify, s |")
    console.print("|---|---|---|---|---|---|---|---|---|")
    for package, settings in SETTINGS:
        if not arguments or package in arguments:
            console.print(f"| {' | '.join(map(str, _line(package, settings)))} |", markup=False)


def _line(package: str, settings: dict[str, Any]) -> Iterator[object]:
    yield package
    yield settings.get("kwargs", {}).get("name", settings["id"])
    with _folder() as folder:
        store = Path(folder) / "store"
        start = perf_counter()
        pivot.build({"environments": {"gym": {"tasks": TASKS, "settings": settings}}, "rollouts": ROLLOUTS}, store)
        built = perf_counter()
        proofs = pivot.verify(store, sources=True)
        verified = perf_counter()
        if proofs.problems:
            raise AssertionError(f"{settings['id']}: {proofs.problems[:3]}")
        labels = pivot.load_store(store).labels.collect()
        shown = report(store, Path(folder) / "report", failures_only=True)
        if len(shown.places) != labels.height:
            raise AssertionError(f"{settings['id']}: the viewer shows {len(shown.places)} of {labels.height} failures")
        loaded = load_dataset(str(store / "dataset"), "gym")
        if sum(split.num_rows for split in loaded.values()) != labels["accepted"].sum():
            raise AssertionError(f"{settings['id']}: load_dataset shows other rows than the store has")
    solver = ClosureSolver()
    counts = [len(solver.graph(level).successors) for level in _levels(settings)]
    yield f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else counts[0]
    yield labels.height
    yield from ((labels["failure_mode"] == mode).sum() for mode in ("timeout", "deadlock"))
    yield labels.height - proofs.unproved
    yield from (f"{built - start:.0f}", f"{verified - built:.0f}")


@contextmanager
def _folder() -> Iterator[str]:
    """Create a folder for a store and its report, below the folder in ``PIVOT_TABLE_KEEPS`` if it is to be kept."""
    if kept := os.environ.get("PIVOT_TABLE_KEEPS"):
        yield tempfile.mkdtemp(dir=kept)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield folder


def _levels(settings: dict[str, Any]) -> Iterator[Any]:
    from pivot.environments.gym import GymConfig, GymEnv  # noqa: PLC0415 - after the settings are admitted
    from pivot.solvers.closure.game import Level  # noqa: PLC0415

    config = GymConfig(**settings)
    for seed in range(TASKS):
        yield Level.read(GymEnv.make_task(config, seed).initial_state)


if __name__ == "__main__":
    main(sys.argv[1:])
