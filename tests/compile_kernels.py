"""Compile the renderers and the kernel of large Sokoban before the tests, or else each test worker compiles them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pivot
from pivot.solvers.base import Case
from pivot.solvers.sokoban.search import Engine
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.tests.flow_runs import config_of

LARGE = "\n".join(["#" * 12, "#@ $$ .. $.#", *["#" + " " * 10 + "#"] * 9, "#" * 12])

if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        pivot.build(config_of(dict.fromkeys(("navigation", "primitiveskill"), 1), rollouts=2), Path(folder) / "store")
    Engine.work = 10**9
    SokobanSolver().certify([Case(LARGE, ["left"], 3)])
