"""Compile the solvers and renderers before the tests, because otherwise each test worker spends a minute on it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pivot
from pivot.datasets.progress import Silent
from pivot.datasets.proof.verify import verify_store
from pivot.tests.flow_runs import config_of

ENVIRONMENTS = ("sokoban", "frozenlake", "navigation", "primitiveskill")

if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        pivot.build(config_of(dict.fromkeys(ENVIRONMENTS, 1), rollouts=2), root)
        verify_store(root, Silent())
        for name, level in {"sokoban": "######\n#@ $.#\n######", "frozenlake": "SFG"}.items():
            pivot.credit(name, [{"initial_state": level, "actions": ["right"], "horizon": 9}])
